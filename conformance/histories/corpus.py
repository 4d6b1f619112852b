"""The corpus: few histories that together run and show what thousands of generated ones do.

`hitproof branches --distil` writes it: a history of a manager or of a scheduler in each line, the
one that adds most first.
"""

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus.jsonl"
"""Where it is."""


@cache
def corpus() -> dict[str, str]:
    """The histories as JSON text, by a name that is another where a history is."""
    return named(CORPUS.read_text(encoding="utf-8").splitlines())


def named(lines: Iterable[str]) -> dict[str, str]:
    """Histories as JSON text, by their names."""
    return {sha256(line.encode()).hexdigest()[:8]: line for line in lines}
