"""``hitproof footprints``, and the footprints that other commands compare a target with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.ledger.records import UNRELEASED, Record, choose, read, write
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_USUAL = (Profile.QUICK, Profile.DEFAULT)


@command(formats="")
def footprints(
    targets: list[str], limits: Limits, thorough: bool = False, ledger: Path = LEDGER
) -> Answer:
    """Record how far a target's divergences reach, so that `hitproof check` notices growth.

    For each diverging configuration and history the record has the number of diverging cases and a
    digest of the target's answers, under the default profile and --quick. It is written to a file
    beside the ledger and replaces the release's earlier one. Review the difference before you
    commit it.
    """
    left_out, entries = list[str](), load(ledger)
    for name in targets:
        target = resolve(name)
        speaking = [entry for entry in entries if entry.is_judged_on(target.version)]
        run = Run(target, Profile.DEFAULT, speaking, limits)
        record, unsettled = recorded(run, [*_USUAL, *[Profile.THOROUGH] * thorough])
        path = write(ledger, record)
        places = count({place for each in record.footprints.values() for place in each}, "place")
        signatures = count(record.footprints, "signature")
        typer.echo(f"{path} has {signatures} of {record.name} in {places}")
        _say_left_out(unsettled)
        left_out += unsettled
    return Answer(Verdict.INCONCLUSIVE if left_out else Verdict.CONFORMS)


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
    of_it = replace(run, target=resolve(baseline), entries=speaking)
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
