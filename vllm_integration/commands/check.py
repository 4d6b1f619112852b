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
from hitproof.vllm_integration.commands.files import wanted_files, write_files
from hitproof.vllm_integration.commands.footprints import baseline_of, remedy_for
from hitproof.vllm_integration.commands.options import (
    AcceptRead,
    Classes,
    Html,
    Ledger,
    Policy,
    Pytest,
    Quick,
    TargetName,
    Thorough,
    Verbose,
    Write,
)
from hitproof.vllm_integration.commands.report import wanted_report, write_report
from hitproof.vllm_integration.commands.running import (
    announce,
    as_document,
    failures,
    progress,
    show_document,
    wanted_profile,
)
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.branches import on_record
from hitproof.vllm_integration.gate.last_failed import LastFailed
from hitproof.vllm_integration.gate.places import judgement_located
from hitproof.vllm_integration.gate.policies import best_values, chosen_values
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted, names_from
from hitproof.vllm_integration.reports import text as rendering
from hitproof.vllm_integration.reports.check_json import report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.ci.summary import markdown
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.reproduce.tested import tested
from hitproof.vllm_integration.sandbox.driver import (
    Limits,
)
from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.changed import Hunk, hunks
from hitproof.vllm_integration.targets.resolving import (
    resolve,
    tree_before,
)
from hitproof.vllm_integration.targets.target import Target


class CheckFormat(StrEnum):
    """How a judgement is printed."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"
    JUNIT = "junit"
    MARKDOWN = "markdown"


def check(
    context: typer.Context,
    target: TargetName,
    quick: Quick = False,
    thorough: Thorough = False,
    output: Annotated[
        CheckFormat,
        typer.Option(
            "--format",
            help="The output format: text, JSON, GitHub annotations, SARIF for code scanning, "
            "JUnit XML for test reporters, or Markdown for a job summary.",
        ),
    ] = CheckFormat.TEXT,
    write: Write = None,
    ledger: Ledger = LEDGER,
    limits: Limits = Limits(),
    pytest: Pytest = None,
    html: Html = None,
    verbose: Verbose = False,
    policy: Policy = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Judge by the best value of each policy: hits lost to a worse one are findings.",
        ),
    ] = False,
    sarif_known: Annotated[
        bool,
        typer.Option(
            "--sarif-known",
            help="Include known divergences in SARIF, as suppressed results.",
        ),
    ] = False,
    accept_read: AcceptRead = None,
    classes: Classes = Classes(),
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="TARGET",
            help="Compare known divergences with the footprints of this release or path@ref, which "
            "is checked first if none are recorded. [default: the target's release, or the "
            "newest one recorded]",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="CODE|CLAIM|GLOB",
            autocompletion=names_from,
            help="Check only these claims, or the claims that these codes contradict; repeatable. "
            "A restricted run gives no verdict on the rest.",
            show_default=False,
        ),
    ] = None,
    configuration: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            metavar="NAME",
            help="Check only configurations and histories whose name contains NAME or matches it "
            "as a glob, or the configuration given as JSON; repeatable.",
            show_default=False,
        ),
    ] = None,
    exit_first: Annotated[
        bool, typer.Option("--exitfirst", "-x", help="Stop at the first new finding.")
    ] = False,
    last_failed: Annotated[
        bool,
        typer.Option(
            "--last-failed",
            help="Run what failed in the last check of this target first, and report what still "
            "fails, what is fixed and what is new.",
        ),
    ] = False,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            envvar="HITPROOF_NO_CACHE",
            help="Do not store what fails, unless --last-failed is given.",
        ),
    ] = False,
) -> None:
    """Judge vLLM's real prefix-cache code against the spec, for every cache state up to a bound."""
    started = time.monotonic()
    files = wanted_files(write or [], [f for f in CheckFormat if f is not CheckFormat.TEXT], output)
    directory = wanted_report(html, output)
    forms = {output.value, *(form for form, _ in files)}
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
            shows_known=verbose or directory is not None or not forms.isdisjoint(shows_known),
            wanted=Wanted(selection, first, exit_first),
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
    documents = {
        "json": lambda: as_document(report_json(report)),
        "github": lambda: github.annotations(report, verbose),
        "sarif": lambda: as_document(sarif.sarif(report, sarif_known)),
        "junit": lambda: junit.junit(report),
        "markdown": lambda: markdown(report),
    }
    write_files(files, documents, output)
    write_report(directory, lambda command: check_page(report, command), context, output)
    show_document(
        output, documents, lambda console: rendering.print_report(report, console, verbose)
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
