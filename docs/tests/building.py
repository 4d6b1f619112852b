"""Building the site, as `make docs` does, and finding the browser to look at it."""

import os
import shutil
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = "HITPROOF_SCREENSHOTS"
"""Names a directory to keep what the browser showed."""
REQUIRED = "HITPROOF_REQUIRE_BROWSER"
"""Set to 1 where a browser must be there, so that no test in it is skipped."""


def chromium() -> str:
    """The browser; without one the test is skipped, or fails where one is required."""
    found = shutil.which("chromium")
    if found is None:
        reason = "needs Chromium: install Debian's package chromium"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason} ({REQUIRED} is set)")
        pytest.skip(reason)
    return found


def build_site(site: Path, pages: Path = ROOT / "docs" / "pages") -> None:
    """Build strictly, with other handwritten pages if need be; fails as the command does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        patch.chdir(ROOT)
        config = load_config(
            str(ROOT / "mkdocs.yml"), strict=True, docs_dir=str(pages), site_dir=str(site)
        )
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        finally:
            config.plugins.on_shutdown()
