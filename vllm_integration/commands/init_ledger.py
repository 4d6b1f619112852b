"""``hitproof init-ledger``."""

import datetime
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
from hitproof.conformance.ledger.records import Record, write
from hitproof.conformance.ledger.writing import adopted, to_toml
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.footprints import name_of, recorded
from hitproof.vllm_integration.commands.frame import Answer, command, write_text
from hitproof.vllm_integration.commands.options import Classes, QuickOnly, Refusal, Scope
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_MOST_CHECKS = 4
"""Checks until the ledger stays the same: entries name what is checked, and may show each other."""


@command(formats="")
def init_ledger(
    target: str,
    scope: QuickOnly,
    limits: Limits,
    classes: Classes,
    output: Path = Path("hitproof-ledger.toml"),
    ledger: Path = LEDGER,
    policy: list[str] | None = None,
) -> Answer:
    """Write a ledger with which `hitproof check --ledger FILE` of this target conforms.

    It has an entry for each new divergence, whose reason you fill in, and the entries of --ledger
    that still reproduce. The target is checked until neither changes, usually twice. Policy
    changes and inconclusive checks cannot be put into a ledger; with them the exit code is that of
    `hitproof check`. Footprints are recorded beside the ledger, as by `hitproof footprints`.
    """
    policies = chosen_values(policy or [])
    if output.exists() or not output.absolute().parent.is_dir():
        where = "exists already" if output.exists() else "is in a directory that does not exist"
        raise Refusal(f"{output} {where}; name another file with --output")
    accepted = all_accepted_reads(ledger)
    adoption = adopt(run_on(classes.of(resolve(target)), ledger, scope, limits, policies))
    told = comment(adoption.report.target)
    text = to_toml(adoption.entries, told, accepted)
    write_text(output, text, "; name another file with --output", "x")
    write(output, adoption.record)
    line = f"{output} has {count(adoption.entries, 'entry', 'entries')}{adoption.remaining}"
    for standing in adoption.report.policy_changes:
        change = f"{standing.policy.name}={standing.actual}"
        line += f"; a ledger cannot adopt a policy change; check with --policy '{change}'"
    typer.echo(line)
    return Answer(adoption.verdict_with({}))


def run_on(
    target: Target, ledger: Path, scope: Scope, limits: Limits, policies: Mapping[str, str]
) -> Run:
    """The run of a target that is to be adopted, beside what a ledger has."""
    accepted = accepted_reads(ledger, target.version)
    entries = load(ledger)
    return Run(target, scope.profile, entries, limits, policies, accepted_reads=accepted)


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
