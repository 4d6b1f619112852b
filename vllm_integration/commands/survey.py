"""``hitproof survey``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vllm_integration.commands.options import (
    JOBS,
    MEMORY,
    PYTHON,
    Format,
    Jobs,
    Memory,
    Python,
    Quick,
    Thorough,
    Timeout,
    in_bytes,
)
from vllm_integration.commands.running import announce, failures, progress, show, wanted_profile
from vllm_integration.driver import find_python
from vllm_integration.faults import load
from vllm_integration.survey import SURVEY, read, to_json, verdict
from vllm_integration.survey import survey as judge
from vllm_integration.survey_rendering import document, table
from vllm_integration.targets import resolve


class SurveyFormat(StrEnum):
    """How a survey is printed."""

    MARKDOWN = "markdown"
    BUGS = "bugs"
    JSON = "json"


def survey(
    releases: Annotated[
        list[str] | None,
        typer.Argument(
            help="Releases to judge now, oldest first; without any, the survey that hitproof keeps."
        ),
    ] = None,
    quick: Quick = False,
    thorough: Thorough = False,
    kept: Annotated[
        Path,
        typer.Option("--from", help="A survey in JSON to show. [default: hitproof's own]"),
    ] = SURVEY,
    output: Annotated[
        SurveyFormat,
        typer.Option("--format", help="A table, the document BUGS.md, or JSON for --from."),
    ] = SurveyFormat.MARKDOWN,
    python: Python = PYTHON,
    timeout: Timeout = 300.0,
    memory: Memory = MEMORY,
    jobs: Jobs = JOBS,
) -> None:
    """Show which faults which releases of vLLM have.

    The exit code is 1 when a release has a fault that is not told in BUGS.md yet.
    """
    plain = Format.JSON if output is SurveyFormat.JSON else Format.TEXT
    profile = wanted_profile(quick, thorough, plain)
    with failures(plain):
        faults = load()
        found = [] if releases else read(kept)
        interpreter = find_python(python)
        for name in releases or ():
            target = resolve(name, announce=announce)
            with progress(f"judging vLLM {name}") as done:
                found.append(
                    judge(
                        target,
                        profile,
                        python=interpreter,
                        timeout=timeout,
                        memory=in_bytes(memory),
                        progress=done,
                        jobs=jobs,
                    )
                )
    render = document if output is SurveyFormat.BUGS else table
    show(
        plain,
        lambda: to_json(found),
        lambda console: console.print(
            render(found, faults), markup=False, highlight=False, end="", soft_wrap=True
        ),
    )
    raise typer.Exit(int(verdict(found, faults)))
