"""Annotations on GitHub: workflow commands on standard output.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Iterator, Sequence

from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports import check
from hitproof.vllm_integration.reports.ci.diff_problems import diff_problems
from hitproof.vllm_integration.reports.ci.problems import (
    Problem,
    known_problems,
    new_problems,
)
from hitproof.vllm_integration.reports.diff import (
    became_unsettled,
    one_sided,
    summary,
    verdict_line,
)
from hitproof.vllm_integration.reports.printing import plain, readable, said
from hitproof.vllm_integration.verdict import Verdict

_MOST = 10
"""Annotations: GitHub shows no more of one kind in a step."""


def command(kind: str, message: str, **properties: str | int) -> str:
    """A workflow command: ``kind`` is error, warning or notice; empty properties are left out."""
    told = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value)
    return f"::{kind}{' ' + told if told else ''}::{_data(message)}\n"


def annotations(report: Report, verbose: bool) -> str:
    """The report of `hitproof check`; known divergences with ``verbose`` only.

    The verdict comes first, as a line of the log: it is no annotation.
    """
    told = [
        *([] if report.restricted is None else [readable(report.restricted.describe())]),
        check.verdict_line(report),
        *plain(said("held_against", report.target)).splitlines(),
        *plain(said("since_then", report.since_then)).splitlines(),
    ]
    lines = [_annotation("error", problem) for problem in new_problems(report)]
    if report.judgement.new:  # what cannot be judged may be a consequence
        told += [f"inconclusive: {readable(reason)}" for reason in report.open_questions]
    else:
        lines += _inconclusive(report.open_questions)
    if verbose:
        lines += [_annotation("warning", problem) for problem in known_problems(report)]
    return _log(told, lines)


def _log(told: Sequence[str], commands: Sequence[str]) -> str:
    """Lines of the log, and as many annotations as GitHub shows of a step."""
    if (more := len(commands) - _MOST) > 0:
        told = [*told, f"{count(more, 'annotation')} left out, as GitHub shows no more"]
    return "".join(f"{_data(line)}\n" for line in told) + "".join(commands[:_MOST])


def diff_annotations(diff: Diff) -> str:
    """The report of `hitproof diff`: harm is an error, all else is lines of the log."""
    problems, told = diff_problems(diff)
    told += [f"policy {name}: {base} -> {head}" for name, base, head in diff.policies]
    told += [*one_sided(diff), *became_unsettled(diff), summary(diff)]
    lines = [_annotation("error", problem) for problem in problems]
    if problems:  # what cannot be compared may be a consequence
        told += [f"inconclusive: {reason}" for reason in diff.open_questions]
    else:
        lines += _inconclusive(diff.open_questions)
    return _log([readable(line) for line in (verdict_line(diff), *told)], lines)


def refusal(verdict: Verdict, sentence: str) -> str:
    """State that there is no report, and why."""
    return command("error", readable(sentence), title=f"hitproof: {verdict.label}")


def _annotation(kind: str, problem: Problem) -> str:
    told = problem.text or problem.title
    if problem.accepted:
        told = f"known {problem.status}: {problem.accepted}\n{told}"
    return command(kind, told, file=problem.path, line=problem.line, title=problem.title)


def _inconclusive(reasons: list[str]) -> Iterator[str]:
    """One annotation for all that is open: it is seldom about one place."""
    if reasons:
        shown = reasons[:_MOST]
        if (more := len(reasons) - _MOST) > 0:
            shown.append(f"and {count(more, 'more reason')}")
        yield command("warning", readable("\n".join(shown)), title="inconclusive")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
