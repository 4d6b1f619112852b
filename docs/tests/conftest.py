"""The site, built once, and a real browser."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from docs.tests.building import build_site, chromium
from hitproof.vllm_integration.reports.html import writing
from hitproof.vllm_integration.tests.conftest import checked as checked

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
    found = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    """A page in a directory of its own."""

    def write(name: str, page: str) -> Path:
        directory = tmp_path / name
        writing.prepare(directory)
        writing.write(directory, page)
        return directory / writing.PAGE

    return write
