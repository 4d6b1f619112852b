"""``hitproof footprints``, ``init-ledger`` and ``init``: what a target is held to."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from hitproof.conformance.ledger.ledger import (
    Entry,
    Judgement,
    accepted_reads,
    all_accepted_reads,
    load,
)
from hitproof.conformance.ledger.records import UNRELEASED, Record, choose, read, write
from hitproof.conformance.ledger.writing import adopted, to_toml
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.configuration import FILE
from hitproof.vllm_integration.commands.options import Classes, Format
from hitproof.vllm_integration.commands.running import announce, fail, failures, progress
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_USUAL = (Profile.QUICK, Profile.DEFAULT)


def footprints(
    targets: list[str], thorough: bool = False, ledger: Path = LEDGER, limits: Limits = Limits()
) -> None:
    """Record how far a target's divergences reach, so that `hitproof check` notices growth.

    For each diverging configuration and history the record has the number of diverging cases and a
    digest of the target's answers, under the default profile and --quick. It is written to a file
    beside the ledger and replaces the release's earlier one. Review the difference before you
    commit it.
    """
    incomplete = False
    with failures(Format.TEXT):
        entries = load(ledger)
        for name in targets:
            target = resolve(name, announce=announce)
            speaking = [entry for entry in entries if entry.is_judged_on(target.version)]
            run = Run(target, Profile.DEFAULT, speaking, limits)
            record, unsettled = recorded(run, [*_USUAL, *[Profile.THOROUGH] * thorough])
            path = write(ledger, record)
            places = count(
                {place for each in record.footprints.values() for place in each}, "place"
            )
            signatures = count(record.footprints, "signature")
            typer.echo(f"{path} has {signatures} of {record.name} in {places}")
            _say_left_out(unsettled)
            incomplete = incomplete or bool(unsettled)
    raise typer.Exit(int(Verdict.INCONCLUSIVE if incomplete else Verdict.CONFORMS))


def recorded(run: Run, profiles: Sequence[Profile]) -> tuple[Record, list[str]]:
    """The footprints of a target under some profiles; the rest as `gate.recorded`."""
    found: list[Record] = []
    unsettled: list[str] = []
    for profile in profiles:
        with progress(f"footprints of vLLM {run.target.name}, {profile} profile") as done:
            of_it = replace(run, profile=profile)
            record, reasons = gate.recorded(of_it, name_of(run.target), done)
        found.append(record if not found else found.pop().and_also(record))
        unsettled += reasons
    return found[0], list(dict.fromkeys(unsettled))


def record_of(report: Report, limits: Limits) -> list[str]:
    """Record the footprints that a report has, and those of the other usual profiles.

    The report is compared with them from then on. Returns what the other profiles cannot judge.
    """
    target = report.target
    found = Record.of(name_of(target), report.profile, report.reached, report.refused)
    entries = [entry for entry in load(LEDGER) if entry.is_judged_on(target.version)]
    rest = [profile for profile in _USUAL if profile != report.profile]
    others, unsettled = recorded(Run(target, report.profile, entries, limits), rest)
    _say_left_out(unsettled)
    report.record, report.unrecorded = found.and_also(others), ""
    write(LEDGER, report.record)
    return unsettled


def _say_left_out(unsettled: Sequence[str]) -> None:
    for reason in unsettled:
        typer.echo(f"hitproof: not in the record: {reason}", err=True)


def name_of(target: Target) -> str:
    """What its record is called."""
    return target.version or UNRELEASED


def baseline_of(run: Run, baseline: str | None, ledger: Path) -> Record | None:
    """The footprints that a run's target is compared with; None where there are none on record.

    Those of ``baseline``, which is judged now where they are not on record, or of the target's
    release, or, where it is newer, of the newest. Raises `LedgerError`, `TargetError` and what
    `gate.recorded` raises.
    """
    records = read(ledger)
    if baseline is None:
        return choose(records, run.target.version)
    if baseline in records and run.profile in records[baseline].profiles and not run.policies:
        return records[baseline]
    speaking = [entry for entry in run.entries if entry.is_judged_on(run.target.version)]
    of_it = replace(run, target=resolve(baseline, announce=announce), entries=speaking)
    record, unsettled = recorded(of_it, [run.profile])
    for reason in unsettled:  # what diverges there counts as grown
        typer.echo(f"hitproof: the baseline {baseline} is not judged in full: {reason}", err=True)
    return replace(record, name=baseline)


def remedy_for(target: Target, ledger: Path) -> str:
    """How to get footprints where there are none on record."""
    where = "" if ledger == LEDGER else f" --ledger {ledger}"
    return (
        f"record them with `hitproof footprints {target.name}{where}`, or name a target to compare "
        "with by --baseline"
    )


_MOST_CHECKS = 4
"""Checks until the ledger stays the same: entries name what is checked, and may show each other."""


def init_ledger(
    target: str,
    output: Path = Path("hitproof-ledger.toml"),
    quick: bool = False,
    ledger: Path = LEDGER,
    limits: Limits = Limits(),
    policy: list[str] | None = None,
    classes: Classes = Classes(),
) -> None:
    """Write a ledger with which `hitproof check --ledger FILE` of this target conforms.

    It has an entry for each new divergence, whose reason you fill in, and the entries of --ledger
    that still reproduce. The target is checked until neither changes, usually twice. Policy
    changes and inconclusive checks cannot be put into a ledger; with them the exit code is that of
    `hitproof check`. Footprints are recorded beside the ledger, as by `hitproof footprints`.
    """
    with failures(Format.TEXT):
        policies = chosen_values(policy or [])
        if output.exists() or not output.absolute().parent.is_dir():
            where = "exists already" if output.exists() else "is in a directory that does not exist"
            fail(Verdict.USAGE, f"{output} {where}; name another file with --output", Format.TEXT)
        accepted = all_accepted_reads(ledger)
        resolved = classes.of(resolve(target, announce=announce))
        run = Run(
            resolved,
            Profile.QUICK if quick else Profile.DEFAULT,
            load(ledger),
            limits,
            policies,
            accepted_reads=accepted_reads(ledger, resolved.version),
        )
        adoption = adopt(run)
        write_new(output, to_toml(adoption.entries, comment(resolved), accepted))
        write(output, adoption.record)
    line = f"{output} has {count(adoption.entries, 'entry', 'entries')}{adoption.remaining}"
    for standing in adoption.report.policy_changes:
        change = f"{standing.policy.name}={standing.actual}"
        line += f"; a ledger cannot adopt a policy change; check with --policy '{change}'"
    typer.echo(line)
    raise typer.Exit(int(adoption.verdict_with({})))


@dataclass(frozen=True)
class Adoption:
    """What a ledger adopts of a target.

    Attributes:
        entries: its entries.
        record: how far the divergences reach.
        report: the last check.
    """

    entries: Sequence[Entry]
    record: Record
    report: Report

    @property
    def remaining(self) -> str:
        """What no ledger can adopt, to be put after what has been; empty if there is nothing."""
        report, line = self.report, ""
        if report.judgement.new:
            line += "; the last check still found new divergences"
        if report.unsettled or report.policies_detail or report.reads.detail:
            line += "; not everything could be judged: run hitproof check for details"
        return line

    def verdict_with(self, policies: Mapping[str, str]) -> Verdict:
        """What `hitproof check` will say with the ledger, and with policies chosen by name."""
        judgement = Judgement(self.report.judgement.new, (), ())
        rest = [each for each in self.report.policies if each.policy.name not in policies]
        return replace(self.report, judgement=judgement, policies=rest, unrecorded="").verdict


def adopt(run: Run) -> Adoption:
    """Check a target until the entries stay the same."""
    entries, name = _as_written(run.entries), name_of(run.target)
    for _ in range(_MOST_CHECKS):
        with progress(f"judging vLLM {run.target.name}") as done:
            report = gate.check(replace(run, entries=entries), done)
        kept = _as_written(_kept(entries, report))
        if kept == entries:
            break
        # What goes takes its history with it, which may be all that showed another entry.
        entries = kept
    record = Record.of(name, report.profile, report.reached, report.refused)
    if run.profile != Profile.QUICK:  # whose configurations are not all among those of the others
        smaller, _ = recorded(replace(run, entries=entries), [Profile.QUICK])
        record = record.and_also(smaller)
    return Adoption(entries, record, report)


def _as_written(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The entries as they are read back: a footprint goes by the place that a ledger names."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.toml"
        path.write_text(to_toml(entries, "", ()), encoding="utf-8")
        return load(path)


def _kept(entries: Sequence[Entry], report: Report) -> list[Entry]:
    """The entries that speak of the target and are not stale, and one for each new finding."""
    occasion = f"on {datetime.date.today().isoformat()} in vLLM {report.target.name}"
    speaking = [entry for entry in entries if entry.applies_to(report.target.version)]
    kept = [entry for entry in speaking if entry not in report.judgement.stale]
    return kept + [adopted(finding, occasion) for finding in report.judgement.new]


def comment(target: Target) -> str:
    """What is written at the head of a ledger."""
    return (
        f"Known divergences of vLLM {' '.join(target.name.split())}, for hitproof check --ledger.\n"
        "Give each entry a reason. `releases` is a version specifier (PEP 440); empty means any."
    )


def write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; end with a sentence where that cannot be done."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        fail(Verdict.USAGE, f"{path} exists already; name another file", Format.TEXT)
    except OSError as error:
        sentence = f"{path} cannot be written ({error.strerror}); name another file with --output"
        fail(Verdict.USAGE, sentence, Format.TEXT)


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
