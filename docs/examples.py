"""The console examples of README and the guides: what a command prints, shown under the command.

``python -m docs.examples`` runs each of them and writes what it prints into the documents.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.source import ROOT

DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs" / "pages").rglob("*.md")))
LEFT_OUT = "..."
"""A line that stands for any lines of an output."""

_BLOCK = re.compile(r"^```console\n(.*?)^```", flags=re.M | re.S)
_EXAMPLE = re.compile(r"^\$ (hitproof .*)\n((?:(?!\$ ).*\n)*)", flags=re.M)
_SHELL = re.compile(r"^```sh\n(.*?)^```", flags=re.M | re.S)
_TIMES = re.compile(r"[\d.]+ s(, \d+ histories a second)?$|\b\d+\.\d\d\b", flags=re.M)


@dataclass(frozen=True)
class Example:
    """A command of ``hitproof``, with the output that a document shows under it.

    Attributes:
        document: the file.
        command: the command line.
        shown: the output, as it stands there.
    """

    document: Path
    command: str
    shown: str

    @property
    def words(self) -> list[str]:
        """The arguments of ``hitproof``."""
        return shlex.split(self.command)[1:]


def examples(text: str, document: Path) -> Iterator[Example]:
    """Those in the console blocks of ``text``."""
    for block in _BLOCK.findall(text):
        for command, shown in _EXAMPLE.findall(block):
            yield Example(document, command, shown)


def all_examples() -> list[Example]:
    """Those of all documents."""
    return [e for path in DOCUMENTS for e in examples(path.read_text(encoding="utf-8"), path)]


def shell_commands(text: str) -> Iterator[list[str]]:
    """The arguments of each ``hitproof`` that a shell block calls, without showing its output."""
    for block in _SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "hitproof":
                yield words[1:]


def agrees(shown: str, printed: str) -> bool:
    """Whether an example shows what was printed, but for times and the lines that it leaves out."""
    pieces: list[list[str]] = [[]]
    for line in _lines(shown):
        if line == LEFT_OUT:
            pieces.append([])
        else:
            pieces[-1].append(line)
    lines = _lines(printed)
    if len(pieces) == 1:
        return pieces[0] == lines
    first, *middle, last = pieces
    if lines[: len(first)] != first or lines[len(lines) - len(last) :] != last:
        return False
    lines = lines[len(first) : len(lines) - len(last)]
    for piece in middle:
        start = _find(piece, lines)
        if start is None:
            return False
        lines = lines[start + len(piece) :]
    return True


def _find(piece: Sequence[str], lines: Sequence[str]) -> int | None:
    starts = range(len(lines) - len(piece) + 1)
    return next((i for i in starts if lines[i : i + len(piece)] == piece), None)


def _lines(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run."""
    return [
        " ".join(line.split()) for line in _TIMES.sub("TIME", text).splitlines() if line.strip()
    ]


def _main(chosen: Sequence[str]) -> None:
    """Write what is printed into every example that does not show it."""
    for example in all_examples():
        if chosen and not any(word in example.command for word in chosen):
            continue
        words = [sys.executable, "-m", "hitproof", *example.words]
        printed = subprocess.run(
            words,
            cwd=ROOT,
            env=os.environ | {"HITPROOF_NO_CACHE": "1"},  # what is printed now, not then
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
        place = f"{example.document.relative_to(ROOT)}: {example.command}"
        if agrees(example.shown, printed):
            print(f"as it is   {place}", flush=True)
        elif LEFT_OUT in example.shown.splitlines():
            print(f"BY HAND    {place}", flush=True)
        else:
            text = example.document.read_text(encoding="utf-8")
            printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
            old, new = (f"$ {example.command}\n{output}" for output in (example.shown, printed))
            example.document.write_text(text.replace(old, new), encoding="utf-8")
            print(f"rewritten  {place}", flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
