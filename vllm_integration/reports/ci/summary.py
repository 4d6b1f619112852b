"""The summary of a job on GitHub: the verdict, and a table of what is new."""

from collections.abc import Iterator

from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.causes import Cause, causes
from hitproof.vllm_integration.reports.ci.problems import Problem, new_problems, of_cause, plain
from hitproof.vllm_integration.reports.markdown import escaped, table
from hitproof.vllm_integration.reports.text import print_held_against, print_verdict

_MOST_SHOWN = 10
"""Findings in full, and reasons; GitHub cuts a summary of more than a megabyte."""


def markdown(report: Report) -> str:
    """The report of `hitproof check`; one line where all is well."""
    verdict = plain(lambda console: print_verdict(report, console))
    lines = [f"**{verdict}**"]
    if report.restricted is not None:
        lines = [_escaped(report.restricted.describe()), "", *lines]
    found = causes(report.judgement.new, report.target.version)
    others = [problem for problem in new_problems(report) if not problem.code]
    if found or others:
        lines += ["", plain(lambda console: print_held_against(report, console)), ""]
        rows = [*map(_row, found), *map(_other, others)]
        lines += [table(("finding", "class", "where", "fault", "signatures"), rows), ""]
        for cause in found[:_MOST_SHOWN]:
            lines += _in_full(cause)
    reasons = report.open_questions
    lines += [f"- inconclusive: {_escaped(reason)}" for reason in reasons[:_MOST_SHOWN]]
    if (more := len(reasons) - _MOST_SHOWN) > 0:
        lines.append(f"- and {count(more, 'more reason')}")
    return "\n".join(lines).rstrip() + "\n"


def _row(cause: Cause) -> list[str]:
    signature, where = cause.worst.signature, cause.worst.location
    return _cells(
        signature.headline,
        signature.divergence,
        f"`{where.path}:{where.line}` {where.function}, {where.why}" if where else "",
        ", ".join(f"BUGS {fault.number}" for fault in cause.known_from),
        str(len(cause.findings)),
    )


def _other(problem: Problem) -> list[str]:
    return _cells(problem.title, str(problem.divergence or problem.rule), "", "", "")


def _in_full(cause: Cause) -> Iterator[str]:
    """The worst finding of a cause, and the test that shows it."""
    problem = of_cause(cause)
    yield f"<details><summary>{_escaped(problem.title)}</summary>"
    yield from ("", *_fenced(problem.text), "")
    if problem.pytest:
        yield from (*_fenced(problem.pytest, "python"), "")
    yield from ("</details>", "")


def _fenced(text: str, language: str = "text") -> tuple[str, ...]:
    return f"````{language}", text.rstrip(), "````"


def _cells(*cells: str) -> list[str]:
    return escaped(map(_escaped, cells))


def _escaped(text: str) -> str:
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())
