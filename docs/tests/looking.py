"""Looking at pages in a real browser, with nothing said on the console and nothing fetched."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from docs.tests.building import SCREENSHOTS

Scheme = Literal["light", "dark"]
PHONE, DESKTOP = (360, 740), (1280, 900)
everywhere = pytest.mark.parametrize(("size", "scheme"), [(PHONE, "dark"), (DESKTOP, "light")])


@contextmanager
def seen(
    browser: Browser,
    path: Path,
    size: tuple[int, int] = DESKTOP,
    scheme: Scheme = "light",
    fragment: str = "",
    java_script: bool = True,
) -> Iterator[Page]:
    """A page that is opened from disk; fails on what the console says and what goes elsewhere."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        offline=True,
        java_script_enabled=java_script,
    )
    page, trouble = context.new_page(), list[str]()

    def console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            trouble.append(message.text)

    def request(asked: Request) -> None:
        if not asked.url.startswith(("file:", "data:", "about:", "blob:")):
            trouble.append(f"asked for {asked.url}")

    page.on("console", console)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", request)
    page.on("requestfailed", lambda failed: trouble.append(f"{failed.url} cannot be loaded"))
    page.set_default_timeout(10_000)
    try:
        page.goto(path.as_uri() + fragment)
        yield page
        shot = os.environ.get(SCREENSHOTS)
        if shot:
            name = f"{path.parent.name}-{path.stem}-{size[0]}-{scheme}.png"
            page.screenshot(path=Path(shot) / name, full_page=True)
        assert trouble == []
    finally:
        context.close()


def assert_fits(page: Page) -> None:
    """The page itself does not scroll sideways."""
    across = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    scroll, client = page.evaluate(across)
    assert scroll <= client
