"""Traces on a page with a slider, and of real managers."""

import json
import re
from pathlib import Path

import pytest

from hitproof.conformance.judge.tracing import traced
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_traces import TWICE, trace_of
from hitproof.vllm_integration.reports.html.pages import replay_page
from hitproof.vllm_integration.reports.html.scripts import THEME, TRACE
from hitproof.vllm_integration.reports.html.traces import ShownTrace
from hitproof.vllm_integration.tests.conftest import hitproof
from hitproof.vllm_integration.tests.reports import replay_of
from hitproof.vllm_integration.tests.test_html_report import Page, references


def test_a_page_has_every_state_and_a_slider() -> None:
    text = replay_page([replay_of(broken.ShorterHit)], "hitproof replay h.json here")
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
    assert '<tr class="same">' in replay_page([replay_of(broken.ShorterHit)], "hitproof")
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
