"""What the pages of `hitproof check` and `hitproof diff` show; how it looks is in the templates.

A page refers to nothing outside itself, and runs no script but those of `scripts`; its
Content-Security-Policy says so.
"""

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hitproof.conformance.explain.story import Story, ToldFinding, tell
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import Finding, figures
from hitproof.conformance.findings.replayed import describe
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.strip_svg import STYLE, inline_svg
from hitproof.conformance.findings.strips import ROLES, SIGNS
from hitproof.conformance.ledger.ledger import CauseStatus, Entry
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.obligations import Obligation
from hitproof.vllm_integration.gate.replay import ReplayReport, worst
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports import diff as diff_rendering
from hitproof.vllm_integration.reports.causes import causes, seen
from hitproof.vllm_integration.reports.html.scripts import THEME, TRACE
from hitproof.vllm_integration.reports.html.traces import ShownTrace
from hitproof.vllm_integration.reports.printing import readable
from hitproof.vllm_integration.reports.text import by_cause, coverage_in_words, known_in_words
from hitproof.vllm_integration.survey.faults import status_of
from hitproof.vllm_integration.templates import templates

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_HAS_TRACE = '<div class="trace"'
_PER_LINE = 8
"""Blocks of a line: as many as a phone has room for."""


@dataclass(frozen=True)
class Shown:
    """One finding with all that the page tells of it.

    Attributes:
        finding: the finding.
        picture: its strips as SVG; empty where its steps led to a picture of their own.
        story: it, step by step.
        trace: the history that shows it, state by state; None where none does.
    """

    finding: Finding
    picture: Markup
    story: Story
    trace: ShownTrace | None

    @staticmethod
    def of(finding: Finding) -> "Shown":
        """The finding, drawn and in words."""
        drawn = figures(Evidence.from_json(finding.evidence)) if finding.evidence else ()
        title = f"spec: {finding.spec}; vllm: {finding.actual}"
        # ElementTree escapes what is in it.
        picture = Markup(inline_svg(title, drawn, _PER_LINE)) if drawn else Markup()
        story = tell(ToldFinding.model_validate(finding.as_json()))
        played = story.finding.trace
        trace = None if played is None else ShownTrace.of(played)
        return Shown(finding, picture, story, trace)


@dataclass(frozen=True)
class Cause:
    """Known divergences that one change to vLLM would fix.

    Attributes:
        entries: the entries of the ledger, one for each reason.
        shown: the divergences.
        divergences: the ways to be wrong among them, the most severe first.
        status: whether it is a fault.
    """

    entries: tuple[Entry, ...]
    shown: tuple[Shown, ...]
    divergences: tuple[Divergence, ...]
    status: CauseStatus


@dataclass(frozen=True)
class Settled:
    """How one claim ended, over all configurations.

    Attributes:
        claim: the claim.
        sentence: what it states.
        counts: how many of its obligations ended in which way.
        obligations: each of them.
    """

    claim: str
    sentence: str
    counts: Mapping[Status, int]
    obligations: tuple[Obligation, ...]

    @property
    def paths(self) -> int:
        """Runs of the target."""
        return sum(obligation.paths for obligation in self.obligations)


def check_page(report: Report, command: str) -> str:
    """The page of `hitproof check`; ``command`` is what made it."""
    judgement = report.judgement
    return page(
        "check.html",
        command,
        title=f"vLLM {report.target.label}: {report.verdict_label}",
        report=report,
        new=[
            (cause, [Shown.of(finding) for finding in cause.findings])
            for cause in causes(judgement.new, report.target.version)
        ],
        causes=[_cause(known) for known in by_cause(report).values()],
        known=known_in_words(report),
        seen=seen,
        coverage=coverage_in_words(report),
        settled=_settled(report.obligations),
    )


def replay_page(reports: Sequence[ReplayReport], command: str) -> str:
    """The page of `hitproof replay`; ``command`` is what made it."""
    target, verdict = reports[0].target, worst(reports)
    return page(
        "replay.html",
        command,
        title=f"replay on vLLM {target.label}: {verdict.label}",
        target=target,
        verdict=verdict,
        histories=[
            {
                "report": each,
                "engine": describe(each.history.engine),
                "trace": each.trace and ShownTrace.of(each.trace),
            }
            for each in reports
        ],
    )


def diff_page(diff: Diff, command: str) -> str:
    """The page of `hitproof diff`; ``command`` is what made it."""
    lists = (
        ("Faults that the head introduces", diff.brought, True),
        ("Faults of the base that are fixed", diff.gone, False),
        ("Faults of both", diff.shared, False),
    )
    return page(
        "diff.html",
        command,
        title=f"vLLM {diff.base.target.label} to {diff.head.target.label}: {diff.verdict.label}",
        **diff_rendering.told(diff),
        faults=[(title, list(map(Shown.of, found)), open_) for title, found, open_ in lists],
        sides=[
            (side, report, coverage_in_words(report), _settled(report.obligations))
            for side, report in (("base", diff.base), ("head", diff.head))
        ],
    )


def _cause(known: Sequence[tuple[Finding, Entry]]) -> Cause:
    found = {Divergence(finding.signature.divergence) for finding, _ in known}
    return Cause(
        tuple({entry.reason: entry for _, entry in known}.values()),
        tuple(Shown.of(finding) for finding, _ in known),
        tuple(each for each in Divergence if each in found),
        status_of(known[0][1]),
    )


def _settled(obligations: Iterable[Obligation]) -> list[Settled]:
    of_claim: dict[str, list[Obligation]] = {claim: [] for claim in CLAIMS}
    for obligation in obligations:
        of_claim[obligation.claim].append(obligation)
    return [
        Settled(
            claim,
            CLAIMS[claim].sentence,
            {s: n for s in Status if (n := sum(each.status is s for each in parts))},
            tuple(parts),
        )
        for claim, parts in of_claim.items()
    ]


def _environment() -> "Environment":
    environment = templates(_HERE / "templates", autoescape=True)
    environment.filters["sort_of"] = sort_of
    environment.filters["words"] = lambda name: name.replace("_", " ")
    return environment


def page(name: str, command: str, **shown: Any) -> str:
    """The page that a template makes of what is ``shown``; ``command`` is what made it."""
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    template = _environment().get_template(name)
    render = partial(
        template.render,
        **shown,
        command=command,
        style=Markup(f"{STYLE}\n{style}"),
        signs=SIGNS,
        roles=ROLES,
        versions={
            "hitproof": importlib.metadata.version("hitproof"),
            "Python": platform.python_version(),
            "platform": platform.platform(),
        },
        theme=Markup(THEME.text),
    )
    text = render(scripts=[THEME], trace_script="")
    if _HAS_TRACE in text:
        text = render(scripts=[THEME, TRACE], trace_script=Markup(TRACE.text))
    return readable(text)
