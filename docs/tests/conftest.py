"""The site, built once, and a real browser."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from docs.tests.building import build_site

REQUIRED = "HITPROOF_REQUIRE_BROWSER"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site."""
    directory = tmp_path_factory.mktemp("site")
    build_site(directory)
    return directory


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; skips without one, or fails where one is required."""
    chromium = shutil.which("chromium")
    if chromium is None:
        reason = "needs Chromium: install Debian's package chromium"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason} ({REQUIRED} is set)")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()
