"""Building the site, as `make docs` does."""

from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
SCREENSHOTS = "HITPROOF_SCREENSHOTS"
"""Names a directory to keep what the browser showed."""


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
