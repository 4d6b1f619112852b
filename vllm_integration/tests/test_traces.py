"""Traces on a page with a slider, and of real managers."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.conformance.judge.tracing import traced
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_traces import TWICE, trace_of
from hitproof.vllm_integration.reports.html.pages import THEME, TRACE, replay_page
from hitproof.vllm_integration.reports.traces import states
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
    shown = states(trace_of(broken.ShorterHit))
    rows = [{name: (mark, *more) for mark, name, *more in rows} for _, rows, _ in shown]
    assert {mark for mark, *_ in rows[0].values()} == {""}
    assert {mark for mark, *_ in rows[1].values()} == {"+", "~"}
    assert rows[1]["free queue"] == ("~", [("7-15", "added")], "1-15")
    assert rows[2]["block table of a, group 0"] == ("-", [("1-3", "removed")], "")
    assert rows[2]["cached, group 0"][0] == ""
    assert '<tr class="same">' in replay_page([replay_of(broken.ShorterHit)], "hitproof")
    _, fine = traced(TWICE, broken.Broken(lambda manager: manager))
    page = replay_page([replace(replay_of(broken.ShorterHit), trace=fine)], "hitproof")
    assert 'value="3"' in page
    assert '<option value="3">' not in page


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
