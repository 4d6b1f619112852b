"""``hitproof init``."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from hitproof.conformance.ledger.ledger import accepted_reads, all_accepted_reads, load
from hitproof.conformance.ledger.records import write
from hitproof.conformance.ledger.writing import to_toml
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.configuration import FILE
from hitproof.vllm_integration.commands.init_ledger import adopt, comment, write_new
from hitproof.vllm_integration.commands.options import Classes, Format
from hitproof.vllm_integration.commands.running import announce, fail, failures
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_LEDGER = "hitproof-ledger.toml"
_WORKFLOW = ".github/workflows/hitproof.yml"

_STEPS = Path(__file__).with_name("workflow.yml").read_text(encoding="utf-8")


def init(
    target: str = ".",
    quick: bool = False,
    limits: Limits = Limits(),
    policy: list[str] | None = None,
    classes: Classes = Classes(),
) -> None:
    """Set up a checkout: configuration file, ledger with footprints, and a GitHub workflow.

    They are written to the working directory and must not exist yet. From then on `hitproof check
    .` conforms until something new diverges. If something cannot be put into a ledger, init
    reports it and exits as `hitproof check` would.
    """
    with failures(Format.TEXT):
        policies = chosen_values(policy or [])
        for name in (FILE, _LEDGER, _WORKFLOW):
            if Path(name).exists():
                fail(Verdict.USAGE, f"{name} exists already; remove it or keep it", Format.TEXT)
        resolved = classes.of(resolve(target, announce=announce))
        profile = Profile.QUICK if quick else Profile.DEFAULT
        accepted = accepted_reads(LEDGER, resolved.version)
        run = Run(resolved, profile, load(LEDGER), limits, policies, accepted_reads=accepted)
        adoption = adopt(run)
        standings = adoption.report.policy_changes
        changed = {each.policy.name: each.actual for each in standings if each.actual is not None}
        every = all_accepted_reads(LEDGER)
        write_new(Path(_LEDGER), to_toml(adoption.entries, comment(resolved), every))
        write(Path(_LEDGER), adoption.record)
        write_new(Path(FILE), _configuration(resolved, profile, policies | changed))
        Path(_WORKFLOW).parent.mkdir(parents=True, exist_ok=True)
        write_new(Path(_WORKFLOW), _STEPS)
    entries = count(adoption.entries, "entry", "entries")
    typer.echo(f"wrote {FILE}, {_WORKFLOW} and {_LEDGER} with {entries}{adoption.remaining}")
    for name, value in changed.items():
        typer.echo(f"{FILE} sets the policy {name}={value}, which differs from the release's")
    raise typer.Exit(int(adoption.verdict_with(changed)))


def _configuration(target: Target, profile: Profile, policies: Mapping[str, str]) -> str:
    """The configuration file."""
    lines = [
        "# hitproof's options for this repository. Command-line options take precedence.",
        f'ledger = "{_LEDGER}"',
    ]
    if target.version is not None:
        lines.append(f'release = "{target.version}"  # by {target.inferred}')
    if profile is not Profile.DEFAULT:
        lines.append(f'profile = "{profile}"')
    for key in ("managers", "coordinators", "aliases"):
        if names := getattr(target, key):
            lines.append(f"{key} = {json.dumps(names)}")  # which is TOML, too
    if policies:
        lines += ["", "[policies]", *(f'{name} = "{value}"' for name, value in policies.items())]
    return "\n".join((*lines, ""))
