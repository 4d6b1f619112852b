"""Contrast, names and roles of the site and the reports by axe, and the switch of themes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from docs.tests.looking import DESKTOP, Scheme, seen
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.reports.html.pages import check_page, diff_page
from hitproof.vllm_integration.tests.reports import conforming, diverging, known

SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
PAPER = "getComputedStyle(document.body).backgroundColor"
MATERIALS = {"exclude": [[".md-code__nav"]]}
"""What Material's script adds to each listing: a landmark without a name, around a button."""
OPTIONS = {"preload": False}
"""Style sheets are not fetched once more, which no browser allows of pages from disk."""
SOME_PAGES = (
    *("index", "example", "hits", "clauses", "eagle_needs_tail_plus_one"),
    *("faults", "codes", "commands/check"),
)


def violations(page: Page) -> list[str]:
    """What axe finds, one line for each place, once nothing moves any more."""
    page.evaluate("Promise.all(document.getAnimations().map((each) => each.finished))")
    found: list[dict[str, Any]] = Axe().run(page, MATERIALS, OPTIONS).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]} {node['failureSummary'][:300]}"
        for each in found
        for node in each["nodes"]
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *((name, "light") for name in SOME_PAGES),
        *((name, "dark") for name in ("hits", "eagle_needs_tail_plus_one", "commands/check")),
    ],
)
def test_axe_finds_nothing_on_the_site(
    browser: Browser, site: Path, name: str, scheme: Scheme
) -> None:
    with seen(browser, site / f"{name}.html", DESKTOP, scheme) as page:
        for summary in page.locator("details summary").all():
            summary.click()
        assert violations(page) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_on_reports(
    browser: Browser, written: Callable[[str, str], Path], scheme: Scheme
) -> None:
    both = diverging()
    both = replace(both, judgement=replace(both.judgement, known=known().judgement.known))
    diff = Diff(conforming(), both, brought=list(both.judgement.new))
    for name, text in (
        ("check", check_page(both, "hitproof check fork")),
        ("diff", diff_page(diff, "hitproof diff a b")),
    ):
        with seen(browser, written(name, text), DESKTOP, scheme) as page:
            for summary in page.locator("main > details > summary").all():
                summary.click()
            assert violations(page) == []


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("spoilt", "found"),
    [
        ("document.querySelector('p').style.color = '#999'", "color-contrast"),
        ("document.querySelector('input').removeAttribute('aria-label')", "label"),
        ("document.documentElement.removeAttribute('lang')", "html-has-lang"),
    ],
)
def test_axe_notices_what_is_wrong(
    browser: Browser, written: Callable[[str, str], Path], spoilt: str, found: str
) -> None:
    text = check_page(conforming(), "c").replace(
        "<main", '<input aria-label="to be spoilt"><main', 1
    )
    text = text.replace('<input type="radio"', '<input data-x type="radio"')
    with seen(browser, written("spoilt", text)) as page:
        page.evaluate("document.querySelectorAll('[data-x]').forEach((e) => e.remove())")
        page.evaluate(spoilt)
        assert any(each.startswith(f"{found}:") for each in violations(page))


# --- themes


def papers(browser: Browser, path: Path, java_script: bool) -> list[str]:
    found = []
    for scheme in SCHEMES:
        with seen(browser, path, scheme=scheme, java_script=java_script) as page:
            found.append(str(page.evaluate(PAPER)))
    return found


@pytest.mark.long
def test_a_theme_of_the_site_is_chosen_by_keyboard_and_remembered(
    browser: Browser, site: Path
) -> None:
    with seen(browser, site / "index.html", scheme="dark") as page:
        dark = page.evaluate(PAPER)
        switch = page.get_by_role("radio", name="Theme of the system")
        switch.focus()
        page.keyboard.press("ArrowDown")
        light = page.evaluate(PAPER)
        assert light != dark
        page.goto((site / "tail.html").as_uri())
        assert page.evaluate(PAPER) == light
        page.locator("label[title='Light theme; switch to dark']").click()
        assert page.evaluate(PAPER) == dark
        strip = (
            "getComputedStyle(document.querySelector('.strip')).getPropertyValue('color-scheme')"
        )
        page.goto((site / "example.html").as_uri())
        assert page.evaluate(strip) == "dark"
        page.emulate_media(color_scheme="light")
        assert page.evaluate(PAPER) == dark


def test_a_theme_of_a_report_is_chosen_by_keyboard_and_remembered(
    browser: Browser, written: Callable[[str, str], Path]
) -> None:
    path = written("themes", check_page(diverging(), "c"))
    with seen(browser, path, scheme="light") as page:
        light = page.evaluate(PAPER)
        page.get_by_role("radio", name="system").focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate(PAPER) == light
        page.keyboard.press("ArrowRight")
        dark = page.evaluate(PAPER)
        assert dark != light
        page.reload()
        assert page.get_by_role("radio", name="dark").is_checked()
        assert page.evaluate(PAPER) == dark
        page.get_by_role("radio", name="system").check()
        page.reload()
        assert page.evaluate(PAPER) == light


@pytest.mark.long
def test_without_java_script_the_system_chooses_the_theme(
    browser: Browser, site: Path, written: Callable[[str, str], Path]
) -> None:
    report = written("plain", check_page(diverging(), "c"))
    for path in (site / "example.html", report):
        with_script = papers(browser, path, java_script=True)
        assert with_script[0] != with_script[1]
        assert papers(browser, path, java_script=False) == with_script
    with seen(browser, report, java_script=False) as page:
        before = page.evaluate(PAPER)
        page.get_by_role("radio", name="dark").check()
        assert page.evaluate(PAPER) != before
