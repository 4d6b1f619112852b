"""The report and the site in a real browser: clicked through, with nothing said on the console.

`HITPROOF_SCREENSHOTS=DIR` keeps what was seen.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from docs.source import ROOT
from docs.tests.building import REQUIRED, chromium
from docs.tests.looking import DESKTOP, PHONE, Scheme, assert_fits, everywhere, seen
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.tests.broken_managers import ShorterHit
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.html.pages import check_page, diff_page, replay_page
from hitproof.vllm_integration.tests.reports import conforming, diverging, known, replay_of

PAGES = ROOT / "docs" / "pages"
GUIDES = [f"commands/{path.stem}" for path in sorted((PAGES / "commands").glob("*.md"))]


def shown_with_test(report: Report) -> Report:
    """The report with a demonstration of its findings."""
    played = Demonstration("t", True, pytest="def test_t():\n    assert 1 < 2\n", vector={"a": 1})
    judgement = report.judgement
    new = tuple(replace(finding, demonstration=played) for finding in judgement.new)
    return replace(report, judgement=replace(judgement, new=new))


# --- the report


@everywhere
def test_the_report_is_clicked_through(
    browser: Browser, written: Callable[[str, str], Path], size: tuple[int, int], scheme: Scheme
) -> None:
    path = written("report", check_page(shown_with_test(diverging()), "hitproof check fork"))
    with seen(browser, path, size, scheme) as page:
        assert page.locator(".verdict").inner_text().startswith("diverges")
        assert page.locator("article svg").is_visible()
        assert not page.get_by_text("assert 1 < 2").is_visible()
        for summary in page.locator("#new-1 summary").all():
            summary.click()
        assert page.get_by_text("assert 1 < 2").is_visible()
        assert page.get_by_text("the hit that decides on block 2").is_visible()
        page.get_by_text("Every obligation, with its bound").click()
        for summary in page.locator("details details summary").all():
            summary.click()
        assert page.get_by_text("3 blocks").first.is_visible()
        for link in page.locator("nav a").all():
            link.click()
        assert page.url.endswith("#reproduce")
        assert_fits(page)


def test_the_report_is_used_by_keyboard(
    browser: Browser, written: Callable[[str, str], Path]
) -> None:
    path = written("keyboard", check_page(known(), "hitproof check fork"))
    with seen(browser, path) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the findings"
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.tagName") == "SUMMARY":
                break
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"
        assert not page.locator("article").is_visible()
        page.keyboard.press("Enter")
        assert page.locator("article").is_visible()


def test_a_trace_is_gone_through_by_keyboard(
    browser: Browser, written: Callable[[str, str], Path]
) -> None:
    path = written("trace", replay_page([replay_of(ShorterHit)], "hitproof replay h.json fork"))
    with seen(browser, path) as page:
        assert page.locator(".state:visible").count() == 1
        assert page.locator(".state:visible .broken").first.is_visible()
        slider = page.get_by_role("slider", name="step")
        slider.focus()
        assert slider.get_attribute("aria-valuetext") == "steps[2], violates a clause"
        page.keyboard.press("ArrowLeft")
        assert page.locator("output").inner_text() == "steps[1]"
        assert page.locator(".state:visible").get_by_text("block table of a, group 0").is_visible()
        page.keyboard.press("Home")
        assert page.locator("output").inner_text() == "start"
        page.get_by_role("button", name="Next").click()
        page.get_by_role("button", name="Next").click()
        assert page.locator("output").inner_text() == "steps[1]"
        assert page.locator(".state:visible tr.same").first.is_visible()
        page.get_by_label("changed fields only").check()
        assert not page.locator(".state:visible tr.same").first.is_visible()
        assert_fits(page)


def test_dark_and_light_differ_and_both_can_be_read(
    browser: Browser, written: Callable[[str, str], Path]
) -> None:
    path = written("schemes", check_page(diverging(), "c"))
    colours = "(e => { const s = getComputedStyle(e); return [s.color, s.backgroundColor] })"
    found = []
    for scheme in ("light", "dark"):
        with seen(browser, path, scheme=scheme) as page:
            ink, paper = page.evaluate(f"{colours}(document.body)")
            lookahead = page.evaluate("getComputedStyle(document.querySelector('.cell.L')).fill")
            found.append((ink, paper, lookahead))
            assert ink != paper
    assert all(one != other for one, other in zip(*found, strict=True))


@everywhere
def test_the_comparison_is_clicked_through(
    browser: Browser, written: Callable[[str, str], Path], size: tuple[int, int], scheme: Scheme
) -> None:
    before, after = conforming(), diverging()
    diff = Diff(before, after, brought=list(after.judgement.new), shared=list(after.judgement.new))
    with seen(browser, written("diff", diff_page(diff, "hitproof diff a b")), size, scheme) as page:
        for summary in page.locator("main > details > summary").all():
            summary.click()
        assert page.locator("#fault-3-1 svg").is_visible()
        assert_fits(page)


# --- the site


@pytest.mark.long
@everywhere
def test_a_clause_is_read(
    browser: Browser, site: Path, size: tuple[int, int], scheme: Scheme
) -> None:
    with seen(browser, site / "eagle_needs_tail_plus_one.html", size, scheme) as page:
        fitting, other = ("narrow", "wide") if size == PHONE else ("wide", "narrow")
        assert page.locator(f"figure .{fitting} svg.strip").is_visible()
        assert not page.locator(f"figure .{other} svg.strip").is_visible()
        assert page.locator("math").first.is_visible()
        for summary in page.locator("details summary").all():
            summary.click()
        assert page.get_by_text("def in_required_run").count()
        assert page.evaluate("document.body.dataset.mdColorScheme") == (
            "slate" if scheme == "dark" else "default"
        )
        assert_fits(page)


@pytest.mark.long(keep=2)
@pytest.mark.parametrize(
    "name",
    [
        *(path.stem for path in sorted(PAGES.glob("*.md"))),
        *("faults", "codes", "clauses", "policies"),
        *GUIDES,
    ],
)
def test_pages_open_from_disk(browser: Browser, site: Path, name: str) -> None:
    for size in (PHONE, DESKTOP):
        with seen(browser, site / f"{name}.html", size) as page:
            assert page.locator("h1").first.is_visible()
            assert_fits(page)


def test_search_works_from_disk(browser: Browser, site: Path) -> None:
    with seen(browser, site / "index.html") as page:
        page.get_by_placeholder("Search").click()
        page.get_by_placeholder("Search").press_sequentially("lookahead horizon")
        result = page.locator(".md-search-result__link").first
        result.wait_for()
        assert "policies" in " ".join(
            str(link.get_attribute("href"))
            for link in page.locator(".md-search-result__link").all()
        )


# --- broken pages are noticed


@pytest.mark.parametrize(
    "breakage",
    [
        ("assets/strips.css", "assets/no-such-file.css"),
        ("</body>", "<script>console.error('broken')</script></body>"),
        ("</body>", "<img src='https://example.invalid/x.png'></body>"),
    ],
)
def test_a_broken_page_is_noticed(browser: Browser, site: Path, breakage: tuple[str, str]) -> None:
    page, copy = site / "hits.html", site / "broken.html"
    text = page.read_text()
    assert breakage[0] in text
    copy.write_text(text.replace(*breakage))
    try:
        with pytest.raises(AssertionError), seen(browser, copy) as opened:
            opened.wait_for_timeout(200)
    finally:
        copy.unlink()


def test_a_report_that_runs_a_script_is_noticed(
    browser: Browser, written: Callable[[str, str], Path]
) -> None:
    text = check_page(diverging(), "c").replace("</body>", "<script>1</script></body>")
    with pytest.raises(AssertionError), seen(browser, written("script", text)) as page:
        page.wait_for_timeout(100)


def test_without_a_browser_tests_are_skipped_unless_one_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="package chromium"):
        chromium()
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="package chromium"):
        chromium()
