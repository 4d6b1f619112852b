"""``hitproof survey``."""

from enum import StrEnum
from pathlib import Path

import typer

from hitproof.conformance.ledger import records
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.commands.footprints import record_of
from hitproof.vllm_integration.commands.options import Format
from hitproof.vllm_integration.commands.running import (
    announce,
    failures,
    progress,
    show,
    wanted_profile,
)
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.survey import document, table
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.survey.faults import load
from hitproof.vllm_integration.survey.survey import of_report, read, to_json, verdict
from hitproof.vllm_integration.survey.survey import survey as judge
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict

SurveyFormat = StrEnum("SurveyFormat", "MARKDOWN BUGS JSON")
"""How a survey is printed."""


def survey(
    releases: list[str] | None = None,
    quick: bool = False,
    thorough: bool = False,
    kept: Path = SURVEY,
    recording: bool = False,
    output: SurveyFormat = SurveyFormat.MARKDOWN,
    limits: Limits = Limits(timeout=300.0),
) -> None:
    """Show which releases of vLLM have which faults.

    The exit code is 1 if a release has a fault that is not in BUGS.md, and 3 if something could
    not be judged.
    """
    plain = Format.JSON if output is SurveyFormat.JSON else Format.TEXT
    profile = wanted_profile(quick, thorough, plain)
    names = list(dict.fromkeys(releases or ()))
    with failures(plain):
        faults = load()
        found = [] if names else read(kept)
        unsettled: list[str] = []
        for name in names:
            target = resolve(name, announce=announce)
            known = records.read(LEDGER)
            with progress(f"judging vLLM {name}") as done:
                record = None if recording else records.choose(known, target.version)
                report = judge(Run(target, profile, limits=limits, record=record), done)
            if recording:
                unsettled += record_of(report, limits)
            found.append(of_report(report))
    render = document if output is SurveyFormat.BUGS else table
    show(
        plain,
        lambda: to_json(found),
        lambda console: console.print(render(found, faults), markup=False, end="", soft_wrap=True),
    )
    raise typer.Exit(int(Verdict.INCONCLUSIVE if unsettled else verdict(found, faults)))
