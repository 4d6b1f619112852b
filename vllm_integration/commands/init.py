"""``hitproof init``."""

import json
from collections.abc import Mapping
from pathlib import Path

import typer

from hitproof.conformance.ledger.ledger import all_accepted_reads
from hitproof.conformance.ledger.records import write
from hitproof.conformance.ledger.writing import to_toml
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.configuration import FILE
from hitproof.vllm_integration.commands.frame import Answer, command, write_text
from hitproof.vllm_integration.commands.init_ledger import adopt, comment, run_on
from hitproof.vllm_integration.commands.options import Classes, QuickOnly, Refusal
from hitproof.vllm_integration.commands.running import resolve
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target

_LEDGER = "hitproof-ledger.toml"
_WORKFLOW = ".github/workflows/hitproof.yml"

_STEPS = Path(__file__).with_name("workflow.yml").read_text(encoding="utf-8")


@command(formats="")
def init(
    scope: QuickOnly,
    limits: Limits,
    classes: Classes,
    target: str = ".",
    policy: list[str] | None = None,
) -> Answer:
    """Set up a checkout: configuration file, ledger with footprints, and a GitHub workflow.

    They are written to the working directory and must not exist yet. From then on `hitproof check
    .` conforms until something new diverges. If something cannot be put into a ledger, init
    reports it and exits as `hitproof check` would.
    """
    policies = chosen_values(policy or [])
    for name in (FILE, _LEDGER, _WORKFLOW):
        if Path(name).exists():
            raise Refusal(f"{name} exists already; remove it or keep it")
    run = run_on(classes.of(resolve(target)), LEDGER, scope, limits, policies)
    adoption = adopt(run)
    standings = adoption.report.policy_changes
    changed = {each.policy.name: each.actual for each in standings if each.actual is not None}
    ledger, every = Path(_LEDGER), all_accepted_reads(LEDGER)
    _write_new(ledger, to_toml(adoption.entries, comment(run.target), every))
    write(ledger, adoption.record)
    _write_new(Path(FILE), _configuration(run.target, run.profile, policies | changed))
    Path(_WORKFLOW).parent.mkdir(parents=True, exist_ok=True)
    _write_new(Path(_WORKFLOW), _STEPS)
    entries = count(adoption.entries, "entry", "entries")
    typer.echo(f"wrote {FILE}, {_WORKFLOW} and {_LEDGER} with {entries}{adoption.remaining}")
    for name, value in changed.items():
        typer.echo(f"{FILE} sets the policy {name}={value}, which differs from the release's")
    return Answer(adoption.verdict_with(changed))


def _write_new(path: Path, text: str) -> None:
    write_text(path, text, "; make its directory writable, and run it again", "x")


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
