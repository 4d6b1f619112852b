"""``hitproof check``."""

import time
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.ledger.ledger import Judgement, accepted_reads, load
from hitproof.vllm_integration.bundled import BRANCHES, LEDGER
from hitproof.vllm_integration.commands.footprints import baseline_of, remedy_for
from hitproof.vllm_integration.commands.options import Classes
from hitproof.vllm_integration.commands.outputs import Outputs
from hitproof.vllm_integration.commands.running import (
    announce,
    as_document,
    failures,
    progress,
    wanted_profile,
)
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.branches import on_record
from hitproof.vllm_integration.gate.last_failed import LastFailed
from hitproof.vllm_integration.gate.places import judgement_located
from hitproof.vllm_integration.gate.policies import best_values, chosen_values
from hitproof.vllm_integration.gate.proved import Proved
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted, names_from
from hitproof.vllm_integration.reports import check as rendering
from hitproof.vllm_integration.reports.check import report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.ci.summary import markdown
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.reproduce.cases import tested
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.changed import Hunk, hunks
from hitproof.vllm_integration.targets.resolving import resolve, tree_before
from hitproof.vllm_integration.targets.target import Target

CheckFormat = StrEnum("CheckFormat", "TEXT JSON GITHUB SARIF JUNIT MARKDOWN")
"""How a judgement is printed."""


def check(
    context: typer.Context,
    target: str,
    quick: bool = False,
    thorough: bool = False,
    output: CheckFormat = CheckFormat.TEXT,
    write: list[str] | None = None,
    ledger: Path = LEDGER,
    limits: Limits = Limits(),
    pytest: Path | None = None,
    html: Path | None = None,
    verbose: bool = False,
    policy: list[str] | None = None,
    strict: bool = False,
    sarif_known: bool = False,
    accept_read: list[str] | None = None,
    classes: Classes = Classes(),
    baseline: str | None = None,
    only: Annotated[list[str] | None, {"autocompletion": names_from}] = None,
    configuration: list[str] | None = None,
    exit_first: bool = False,
    last_failed: bool = False,
    no_cache: bool = False,
) -> None:
    """Judge vLLM's real prefix-cache code against the spec, for every cache state up to a bound."""
    started = time.monotonic()
    outputs = Outputs(context, output, html, write)
    shows_known = {"json", "sarif"} if sarif_known else {"json"}
    profile = wanted_profile(quick, thorough, output)
    with failures(output):
        selection = Selection(tuple(only or ()), tuple(configuration or ()))
        policies = (best_values() if strict else {}) | chosen_values(policy or [])
        entries = load(ledger)
        resolved = classes.of(resolve(target, announce=announce))
        failed: LastFailed | None = None
        if last_failed or not no_cache:
            failed = LastFailed(cache_directory() / "failed", resolved, limits.interpreter)
        first = failed.places if failed is not None and last_failed else frozenset()
        accepted = accepted_reads(ledger, resolved.version)
        accepted |= dict.fromkeys(accept_read or (), "accepted by --accept-read")
        run = Run(
            resolved,
            profile,
            entries,
            limits,
            policies,
            remedy=remedy_for(resolved, ledger),
            accepted_reads=accepted,
            shows_known=verbose or html is not None or not outputs.formats.isdisjoint(shows_known),
            wanted=Wanted(selection, first, exit_first),
            proved=Proved(None if no_cache else cache_directory() / "proved.json"),
        )
        run = replace(run, record=baseline_of(run, baseline, ledger))
        with progress(f"judging vLLM {resolved.name}") as done:
            report = gate.check(run, done)
        report.judgement = judgement_located(report.judgement, _changed(resolved, baseline))
        if pytest is not None:
            report.judgement = _tested(pytest, report, limits, verbose)
        since_then = None if failed is None else failed.since_then(report)
        report.since_then = since_then if last_failed else None
        report.branches = on_record(BRANCHES, resolved)
        report.seconds = time.monotonic() - started
    outputs.show(
        {
            "json": lambda: as_document(report_json(report)),
            "github": lambda: github.annotations(report, verbose),
            "sarif": lambda: as_document(sarif.sarif(report, sarif_known)),
            "junit": lambda: junit.junit(report),
            "markdown": lambda: markdown(report),
        },
        lambda console: rendering.print_report(report, console, verbose),
        lambda command: check_page(report, command),
    )
    raise typer.Exit(int(report.verdict))


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
