"""Lines of the target's source as code scanning identifies them.

The hash is that of the action that uploads results to GitHub, which warns where one is another:
https://github.com/github/codeql-action/blob/main/src/fingerprints.ts
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HASHED = 100
"""Characters from the start of a line that its hash covers, blanks left out."""
_FACTOR = 37
_END_OF_FILE = 0xFFFF


@dataclass(frozen=True)
class SourceLine:
    """One line of a file.

    Attributes:
        start: the column of its first character that is no blank, from 1.
        end: the column after its last one.
        fingerprint: its hash, and the how manieth line of that hash it is.
    """

    start: int
    end: int
    fingerprint: str


def source_line(root: Path | None, path: str, line: int) -> SourceLine | None:
    """The line, from 1, of a file below ``root``; None where it cannot be read."""
    if root is None or not line:
        return None
    lines, hashes = _read(root / path)
    if line > min(len(lines), len(hashes)):
        return None
    text = lines[line - 1].rstrip()
    start = len(text) - len(text.lstrip()) + 1
    return SourceLine(start, max(len(text), start) + 1, hashes[line - 1])


@cache
def _read(file: Path) -> tuple[list[str], list[str]]:
    try:
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return [], []
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), fingerprints(text)


def fingerprints(text: str) -> list[str]:
    """The fingerprint of each line of a file."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    units = text.encode("utf-16-le")
    characters = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    characters.append(_END_OF_FILE)
    starts = [0] + [n + 1 for n, each in enumerate(characters) if each == ord("\n")]
    seen: Counter[str] = Counter()
    found = []
    for start in starts:
        value = 0
        for at in range(start, start + _HASHED):
            value = value * _FACTOR + (characters[at] if at < len(characters) else 0)
        name = f"{value % 2**64:x}"
        seen[name] += 1
        found.append(f"{name}:{seen[name]}")
    return found
