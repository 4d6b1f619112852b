"""Templates: documents, pages and tests as text with gaps, beside the module that fills them in."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates(folder: Path, autoescape: bool = False) -> "Environment":
    """The templates of a folder; ``autoescape`` is for HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only where one is asked for

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
