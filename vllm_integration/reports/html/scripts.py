"""The scripts that pages may run: a page's policy names each by its hash, and no other runs."""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path


@dataclass(frozen=True)
class Script:
    """A script that stands in a page.

    Attributes:
        text: its source.
    """

    text: str

    @property
    def hash(self) -> str:
        """The expression that allows it in a Content-Security-Policy."""
        return f"sha256-{b64encode(sha256(self.text.encode()).digest()).decode()}"


def _read(name: str) -> Script:
    return Script((Path(__file__).parent / name).read_text(encoding="utf-8"))


THEME = _read("theme.js")
"""Remembers the theme that was chosen."""
TRACE = _read("trace.js")
"""Steps through traces."""
