"""Annotations on GitHub: workflow commands on standard output.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Iterator, Sequence

from hitproof.conformance.comparison.effects import HARMFUL
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci.problems import (
    Problem,
    known_problems,
    new_problems,
    of_finding,
    plain,
    readable,
)
from hitproof.vllm_integration.reports.diff import (
    about,
    about_histories,
    case,
    one_sided,
    reach,
    summary,
    witness,
)
from hitproof.vllm_integration.reports.text import print_held_against, print_verdict
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
        *plain(lambda console: print_verdict(report, console)).splitlines(),
        *plain(lambda console: print_held_against(report, console)).splitlines(),
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
    """The report of `hitproof diff`: what does harm is an error, what else changes a notice."""
    lines = [_annotation("error", of_finding(finding)) for finding in diff.brought]
    for group in diff.groups:
        effect = group.smallest.effect
        title = readable(f"{effect}: {about(group)}")
        text = readable("\n".join(witness(group)))
        lines.append(command("error" if effect in HARMFUL else "notice", text, title=title))
    for change in filter(lambda change: change.counts, diff.histories.changes):
        title = readable(f"{change.effect}: {about_histories(change, diff)}")
        text = readable("\n".join(case(change.example))) if change.example else title
        kind = "error" if change.harmful else "notice"
        lines.append(command(kind, text, title=title))
    for each in diff.reaches:
        kind = "error" if each.grown else "notice"
        lines.append(command(kind, readable(each.signature.headline), title=readable(reach(each))))
    lines += [
        command("notice", f"{base} -> {head}", title=f"policy {name}")
        for name, base, head in diff.policies
    ]
    lines += [command("notice", readable(line), title="on one only") for line in one_sided(diff)]
    lines += _inconclusive(diff.open_questions)
    lines.append(command("notice", readable(summary(diff)), title="hitproof"))
    return "".join(lines)


def refusal(verdict: Verdict, sentence: str) -> str:
    """That there is no report, and why."""
    return command("error", readable(sentence), title=f"hitproof: {verdict.label}")


def _annotation(kind: str, problem: Problem) -> str:
    text = problem.text or problem.title
    if problem.accepted:
        text = f"known: {problem.accepted}\n{text}"
    return command(kind, text, file=problem.path, line=problem.line, title=problem.title)


def _inconclusive(reasons: list[str]) -> Iterator[str]:
    for reason in dict.fromkeys(filter(None, reasons)):
        yield command("warning", readable(reason), title="inconclusive")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
