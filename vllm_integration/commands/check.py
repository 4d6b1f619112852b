"""``hitproof check``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from hitproof.conformance.ledger.ledger import Judgement, accepted_reads, load
from hitproof.vllm_integration.bundled import BRANCHES, LEDGER
from hitproof.vllm_integration.commands.footprints import baseline_of, remedy_for
from hitproof.vllm_integration.commands.frame import Answer, Outputs, as_document, command
from hitproof.vllm_integration.commands.options import Classes, Scope
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.branches import on_record
from hitproof.vllm_integration.gate.last_failed import LastFailed
from hitproof.vllm_integration.gate.places import judgement_located
from hitproof.vllm_integration.gate.policies import best_values, chosen_values
from hitproof.vllm_integration.gate.proved import Proved
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted, names_from
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.ci.summary import markdown
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.reproduce.cases import tested
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.changed import Hunk, hunks
from hitproof.vllm_integration.targets.resolving import tree_before
from hitproof.vllm_integration.targets.target import Target


@dataclass(frozen=True)
class Known:
    """What a target is judged by, and what is known of it."""

    ledger: Path = LEDGER
    baseline: str | None = None
    policy: list[str] | None = None
    strict: bool = False
    accept_read: list[str] | None = None


@dataclass(frozen=True)
class Selected:
    """What is judged, in which order, and how far."""

    only: Annotated[list[str] | None, {"autocompletion": names_from}] = None
    configuration: list[str] | None = None
    exit_first: bool = False
    last_failed: bool = False
    no_cache: bool = False


@dataclass(frozen=True)
class Shown:
    """What is shown of it."""

    verbose: bool = False
    sarif_known: bool = False
    pytest: Path | None = None


@command(formats="TEXT JSON GITHUB SARIF JUNIT MARKDOWN", writes=True, page=True)
def check(
    target: str,
    scope: Scope,
    known: Known,
    limits: Limits,
    classes: Classes,
    selected: Selected,
    shown: Shown,
    outputs: Outputs,
) -> Answer:
    """Judge vLLM's real prefix-cache code against the spec, for every cache state up to a bound."""
    profile = scope.profile
    selection = Selection(tuple(selected.only or ()), tuple(selected.configuration or ()))
    policies = (best_values() if known.strict else {}) | chosen_values(known.policy or [])
    entries = load(known.ledger)
    resolved = classes.of(resolve(target))
    failed: LastFailed | None = None
    if selected.last_failed or not selected.no_cache:
        failed = LastFailed(cache_directory() / "failed", resolved, limits.interpreter)
    first = failed.places if failed is not None and selected.last_failed else frozenset()
    accepted = accepted_reads(known.ledger, resolved.version)
    accepted |= dict.fromkeys(known.accept_read or (), "accepted by --accept-read")
    formats = {"json", "sarif"} if shown.sarif_known else {"json"}
    in_full = shown.verbose or outputs.directory is not None
    run = Run(
        resolved,
        profile,
        entries,
        limits,
        policies,
        remedy=remedy_for(resolved, known.ledger),
        accepted_reads=accepted,
        shows_known=in_full or not outputs.formats.isdisjoint(formats),
        wanted=Wanted(selection, first, selected.exit_first),
        proved=Proved(None if selected.no_cache else cache_directory() / "proved.json"),
    )
    run = replace(run, record=baseline_of(run, known.baseline, known.ledger))
    with progress(f"judging vLLM {resolved.name}") as done:
        report = gate.check(run, done)
    report.judgement = judgement_located(report.judgement, _changed(resolved, known.baseline))
    if shown.pytest is not None:
        report.judgement = _tested(shown.pytest, report, limits, shown.verbose)
    since_then = None if failed is None else failed.since_then(report)
    report.since_then = since_then if selected.last_failed else None
    report.branches = on_record(BRANCHES, resolved)
    return Answer(
        report.verdict,
        partial(print_report, report, verbose=shown.verbose),
        partial(report_json, report),
        {
            "github": lambda: github.annotations(report, shown.verbose),
            "sarif": lambda: as_document(sarif.sarif(report, shown.sarif_known)),
            "junit": lambda: junit.junit(report),
            "markdown": lambda: markdown(report),
        },
        partial(check_page, report),
        report,
    )


def _changed(target: Target, baseline: str | None) -> Sequence[Hunk]:
    """What a checkout changes of its release, or of the baseline that is named. `TargetError`."""
    before = tree_before(target) if baseline is None else resolve(baseline).root
    return () if before is None or target.root is None else hunks(before, target.root)


def _tested(directory: Path, report: Report, limits: Limits, verbose: bool) -> Judgement:
    """The judgement, with how each finding's test ended on the target."""
    judgement = report.judgement
    known = [finding for finding, _ in judgement.known]
    findings = [*judgement.new, *(known if verbose else ())]
    ran = tested(directory, findings, report.target, limits)
    new, old = ran[: len(judgement.new)], ran[len(judgement.new) :] or known
    entries = [entry for _, entry in judgement.known]
    return replace(judgement, new=tuple(new), known=tuple(zip(old, entries, strict=True)))
