"""Traces as people read them: in the terminal, and on a page with a slider."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.replayed import replayed
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.judge.tracing import traced
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_traces import TWICE, trace_of
from hitproof.vllm_integration.gate.replay import ReplayReport
from hitproof.vllm_integration.reports.html.pages import replay_page
from hitproof.vllm_integration.reports.html.scripts import THEME, TRACE
from hitproof.vllm_integration.reports.html.traces import ShownTrace
from hitproof.vllm_integration.reports.replay import print_report, report_json
from hitproof.vllm_integration.reports.text import print_finding
from hitproof.vllm_integration.reports.traces import print_trace
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import hitproof
from hitproof.vllm_integration.tests.test_html_report import Page, references

GOLDEN = """\
trace: the state after each step; + new, ~ changed, - gone
start
    free queue: 1-15
steps[0] {"do": "schedule", "request": "a"}
    lookup of a: hit of 0 tokens (expected 0)
  + request a: running, 9 of 9 tokens computed
  + block table of a, group 0: 1-3
  + block table of a, group 1: 4-6
  + cached, group 0: a[0:4]: 1, a[0:8]: 2
  + cached, group 1: a[0:4]: 4, a[0:8]: 5
  ~ free queue: 7-15 (was 1-15)
steps[1] {"do": "finish", "request": "a"}
  ~ request a: finished, 9 of 9 tokens computed (was running, 9 of 9 tokens computed)
  ~ free queue: 6, 3, 7-15, 2-1, 5-4 (was 7-15)
  - block table of a, group 0 (was 1-3)
  - block table of a, group 1 (was 4-6)
steps[2] {"do": "schedule", "request": "b"}
    lookup of b: hit of 4 tokens (expected 8)
"""
"""The start of the trace of a manager that serves a boundary less than it could."""


def printed(trace: Trace, **options: Any) -> str:
    console = Console(file=StringIO(), width=200, soft_wrap=True)
    print_trace(trace, console, **options)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def report_of(subject: type[broken.Wrapped]) -> ReplayReport:
    outcome, trace = traced(TWICE, broken.Broken(subject))
    return ReplayReport(
        Target("here", None, None),
        TWICE,
        steps=outcome.steps,
        findings=outcome.findings,
        trace=trace,
    )


def test_a_trace_in_the_terminal() -> None:
    """First the whole state, then what changed; where a clause breaks, the derivation."""
    text = printed(trace_of(broken.ShorterHit))
    start, rest = text[: len(GOLDEN)], text[len(GOLDEN) :]
    assert start == GOLDEN
    assert "a[0:4]: 1" not in rest.partition("  violates a clause")[0]
    last = rest.partition("  violates a clause")[2]
    assert last.startswith(
        " at get_computed_blocks: lost hit: full attention + sliding window: hit"
    )
    lines = last.splitlines()
    assert "  claim : lookup_returns_longest_valid_hit" in lines
    assert "  why   : why a hit of 8 tokens is valid: all of this is cached:" in lines
    assert "          need = 1 + 0 = 1 block: block 1" in lines
    assert "  spec  : hit of 8 tokens" in lines


def test_what_is_left_out_of_a_long_trace_is_said() -> None:
    trace = trace_of(broken.ShorterHit)
    many = [trace.steps[0].model_copy(update={"number": number}) for number in range(60)]
    text = printed(trace.model_copy(update={"steps": tuple(many)}))
    assert "... 52 steps left out; --format json has all" in text
    assert text.count("steps[") == 8
    some = trace.model_copy(update={"steps": tuple(many[40:])})
    assert "... 40 steps left out\n" in printed(some)
    assert "left out" not in printed(trace)


def test_long_values_are_cut() -> None:
    trace = trace_of(broken.ShorterHit)
    queue = tuple((number, number) for number in range(1, 100, 2))
    start = trace.start.model_copy(update={"free_queue": queue})
    line = printed(trace.model_copy(update={"start": start})).splitlines()[2]
    assert line.endswith("17, 19, ... 38 more ..., 97, 99")


def test_replay_prints_it_when_asked() -> None:
    report = report_of(broken.ShorterHit)
    console = Console(file=StringIO(), width=200, soft_wrap=True)
    print_report(report, console, verbose=False)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().startswith(GOLDEN)
    assert report_json(report)["trace"]["steps"][2]["broken"][0]["spec"] == "hit of 8 tokens"
    found = report.findings[0].signature
    report.reasons = {found: trace_of(broken.ShorterHit).why(found.claim, str(found.defect))}
    report.trace = None
    shown = report_json(report)
    assert shown["trace"] is None
    # Without the trace the finding itself says why.
    console = Console(file=StringIO(), width=200, soft_wrap=True)
    print_report(report, console, verbose=False)
    assert isinstance(console.file, StringIO)
    assert "  why   : why a hit of 8 tokens is valid: all of this" in console.file.getvalue()
    assert "  violates a clause" not in console.file.getvalue()
    assert len(shown["findings"][0]["because"]) == len(report.reasons[found]) > 3
    assert shown["findings"][1]["because"] == []


def test_a_finding_of_a_history_says_why() -> None:
    """In short the derivation only, in detail the whole trace with it."""
    outcome, trace = traced(TWICE, broken.Broken(broken.ShorterHit))
    first, why = outcome.findings[0], "  why   : why a hit of 8 tokens is valid: all of this"
    about = first.violation.spec, first.violation.actual, first.step
    shown = replayed(
        first.signature, Play.written(TWICE, ""), *about, Demonstration(), trace=trace.as_json()
    )
    texts = []
    for verbose in (False, True):
        console = Console(file=StringIO(), width=200, soft_wrap=True)
        print_finding(shown, console, verbose=verbose)
        assert isinstance(console.file, StringIO)
        texts.append(console.file.getvalue())
    assert ["  violates a clause" in text for text in texts] == [False, True]
    assert [text.count(why) for text in texts] == [1, 1]
    assert GOLDEN in texts[1]


def test_a_page_has_every_state_and_a_slider() -> None:
    text = replay_page([report_of(broken.ShorterHit)], "hitproof replay h.json here")
    page = Page(text)
    (policy,) = [
        each["content"]
        for each in page.named("meta")
        if each.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert re.findall(r"'(sha256-[^']+)'", policy) == [THEME.hash, TRACE.hash]
    assert not list(references(page)) or all(to.startswith("#") for _, to in references(page))
    states = [each for each in page.named("section") if each.get("class") == "state"]
    assert len(states) == 1 + len(TWICE.steps)
    (slider,) = [each for each in page.named("input") if each.get("type") == "range"]
    # It starts where a clause breaks.
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "3", "3")
    assert "(expected 8)" in page.text
    assert "need = 1 + 0 = 1 block: block 1" in page.text


def test_a_page_shows_what_changed() -> None:
    shown = ShownTrace.of(trace_of(broken.ShorterHit))
    rows = [{row.name: row for row in state.rows} for state in shown.states]
    assert {row.mark for row in rows[0].values()} == {""}
    assert {row.mark for row in rows[1].values()} == {"+", "~"}
    queue = rows[1]["free queue"]
    assert (queue.mark, queue.parts, queue.was) == ("~", (("7-15", "added"),), "1-15")
    gone = rows[2]["block table of a, group 0"]
    assert (gone.mark, gone.parts) == ("-", (("1-3", "removed"),))
    assert rows[2]["cached, group 0"].mark == ""
    assert (shown.first, shown.breaks) == (3, (3,))
    assert '<tr class="same">' in replay_page([report_of(broken.ShorterHit)], "hitproof")
    fine = ShownTrace.of(traced(TWICE, broken.Broken(lambda manager: manager))[1])
    assert (fine.first, fine.breaks) == (3, ())


VECTORS = Path(__file__).resolve().parents[2] / "conformance" / "vectors"


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.14.0", "0.22.1", "0.33.0"])
def test_a_traced_run_answers_as_an_untraced_one(release: str, tmp_path: Path) -> None:
    path = VECTORS / "eagle_with_mask.json"
    plain = json.loads(hitproof("replay", path, release, "--format", "json").stdout)
    asked = ("--trace", "--report", tmp_path, "--format", "json")
    shown = json.loads(hitproof("replay", path, release, *asked).stdout)
    trace = shown.pop("trace")
    assert plain.pop("trace") is None
    for report in (plain, shown):
        report.pop("seconds")
    assert shown == plain
    assert len(trace["steps"]) == len(shown["steps"])
    assert all(step["state"]["free_queue"] for step in trace["steps"])
    assert trace["steps"][0]["state"]["cached"]
    found = [(step["number"], b["code"]) for step in trace["steps"] for b in step["broken"]]
    assert len(found) == len(shown["findings"])
    codes = {code for _, code in found}
    assert ("lookahead-block-unregistered" in codes) == (release == "0.22.1")
    for finding in shown["findings"]:
        assert finding["location"]["path"].startswith("vllm/v1/core/")
    assert Page((tmp_path / "index.html").read_text()).named("output")
