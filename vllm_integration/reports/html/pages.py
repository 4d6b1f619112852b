"""What the pages of `hitproof check` and `hitproof diff` show; how it looks is in the templates.

A page refers to nothing outside itself, and runs no script but `THEME` and `TRACE`; its
Content-Security-Policy says so.
"""

import importlib.metadata
import platform
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from hitproof.conformance.explain.story import ToldFinding, tell
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import Finding, figures
from hitproof.conformance.findings.replayed import describe
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.strip_svg import STYLE, inline_svg
from hitproof.conformance.findings.strips import ROLES, SIGNS
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.doctor import Diagnosis
from hitproof.vllm_integration.gate.replay import ReplayReport, worst
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports import diff as diff_rendering
from hitproof.vllm_integration.reports import doctor
from hitproof.vllm_integration.reports.causes import causes, seen
from hitproof.vllm_integration.reports.check import by_cause, coverage_in_words, known_in_words
from hitproof.vllm_integration.reports.printing import readable
from hitproof.vllm_integration.reports.traces import states
from hitproof.vllm_integration.survey.faults import status_of
from hitproof.vllm_integration.templates import templates

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_HAS_TRACE = '<div class="trace"'
_PER_LINE = 8
"""Blocks of a line: as many as a phone has room for."""


class Script(str):
    """The source of a script that stands in a page: a policy names each, and no other runs."""

    __slots__ = ()

    @property
    def hash(self) -> str:
        """The expression that allows it in a Content-Security-Policy."""
        return f"sha256-{b64encode(sha256(self.encode()).digest()).decode()}"


THEME = Script((_HERE / "theme.js").read_text(encoding="utf-8"))
"""Remembers the theme that was chosen."""
TRACE = Script((_HERE / "trace.js").read_text(encoding="utf-8"))
"""Steps through traces."""


def check_page(report: Report, command: str) -> str:
    """The page of `hitproof check`; ``command`` is what made it."""
    return page(
        "check.html",
        command,
        title=f"vLLM {report.target.label}: {report.verdict_label}",
        report=report,
        new=causes(report.judgement.new, report.target.version),
        causes=list(by_cause(report).values()),
        known=known_in_words(report),
        coverage=coverage_in_words(report),
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
                "trace": each.trace,
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
        faults=[*lists],
        sides=[
            (side, report, coverage_in_words(report))
            for side, report in (("base", diff.base), ("head", diff.head))
        ],
    )


def doctor_page(found: Diagnosis, command: str) -> str:
    """The page of a diagnosis; ``command`` is what made it."""
    title = f"{found.wanted.model.name} on vLLM {found.target.label}"
    return page("doctor.html", command, title=title, **doctor.told(found))


def _picture(finding: Finding) -> Markup:
    """The strips of a finding as SVG; empty where its steps led to a picture of their own."""
    drawn = figures(Evidence.from_json(finding.evidence)) if finding.evidence else ()
    title = f"spec: {finding.spec}; vllm: {finding.actual}"
    # ElementTree escapes what is in it.
    return Markup(inline_svg(title, drawn, _PER_LINE)) if drawn else Markup()


def _environment() -> "Environment":
    environment = templates(_HERE / "templates", autoescape=True)
    environment.filters["sort_of"] = sort_of
    environment.filters["words"] = lambda name: name.replace("_", " ")
    environment.filters["picture"] = _picture
    environment.filters["states"] = lambda trace: list(states(trace))
    environment.filters["story"] = lambda found: tell(ToldFinding.model_validate(found.as_json()))
    environment.globals |= {"claims": CLAIMS, "divergences": [*Divergence], "statuses": [*Status]}
    environment.globals |= {"signs": SIGNS, "roles": ROLES, "seen": seen, "status_of": status_of}
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
        versions={
            "hitproof": importlib.metadata.version("hitproof"),
            "Python": platform.python_version(),
            "platform": platform.platform(),
        },
        theme=Markup(THEME),
    )
    text = render(scripts=[THEME], trace_script="")
    if _HAS_TRACE in text:
        text = render(scripts=[THEME, TRACE], trace_script=Markup(TRACE))
    return readable(text)
