"""The summary of a job on GitHub: the verdict, and a table of what is new."""

from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.causes import Cause, causes
from hitproof.vllm_integration.reports.check import verdict_line
from hitproof.vllm_integration.reports.ci.problems import (
    Problem,
    new_problems,
    of_cause,
)
from hitproof.vllm_integration.reports.markdown import escaped, table
from hitproof.vllm_integration.reports.printing import document, plain, readable, said

_MOST_SHOWN = 10
"""Findings in full, and reasons; GitHub cuts a summary of more than a megabyte."""


def markdown(report: Report) -> str:
    """The report of `hitproof check`; one line where all is well."""
    found = causes(report.judgement.new, report.target.version)
    others = [problem for problem in new_problems(report) if not problem.code]
    more = len(report.open_questions) - _MOST_SHOWN
    told = document(
        "summary.md",
        report=report,
        said=_escaped,
        verdict=verdict_line(report),
        held_against=plain(said("held_against", report.target)),
        found=found,
        others=others,
        rows=[*map(_row, found), *map(_other, others)],
        shown=[*map(of_cause, found[:_MOST_SHOWN])],
        most=_MOST_SHOWN,
        more=count(more, "more reason") if more > 0 else "",
        table=table,
    )
    return told.rstrip() + "\n"


def _row(cause: Cause) -> list[str]:
    signature, where = cause.worst.signature, cause.worst.location
    return _cells(
        signature.headline,
        signature.divergence,
        f"`{where.path}:{where.line}` {where.function}, {where.why}" if where else "",
        cause.numbers,
        str(len(cause.findings)),
    )


def _other(problem: Problem) -> list[str]:
    return _cells(problem.title, str(problem.divergence or problem.rule), "", "", "")


def _cells(*cells: str) -> list[str]:
    return escaped(map(_escaped, cells))


def _escaped(text: str) -> str:
    return " ".join(readable(text).replace("&", "&amp;").replace("<", "&lt;").split())
