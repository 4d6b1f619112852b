"""Which release a tree is nearest to, by the content of the files that are judged.

What a file has in common with another is counted in units: a function or a head of a class, or the
lines between. Comments, empty lines and indentation do not count, and where a unit stands does not.
The table of what each release has is made from the releases:

    python -m hitproof.vllm_integration.targets.content 0.32.0 0.33.0
"""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from packaging.version import Version

from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import CONTENT

_JUDGED = ("vllm/v1/core/**/*.py", "vllm/v1/kv_cache_interface.py", "vllm/v1/request.py")
_BEGINS = re.compile(r"(    )?(@|async def |def |class )")
_DECORATES = re.compile(r"(    )?@")

Content = Mapping[str, Collection[str]]
"""The judged files of a tree by their paths, each as the digests of its units."""


@dataclass(frozen=True)
class Nearest:
    """The release that a tree is nearest to, the newest of those that are equally near.

    Attributes:
        release: its number.
        others: those that are as near.
        different: how many of the judged files differ.
        files: how many there are in either.
        units: how many units only one of the two has.
    """

    release: str
    others: tuple[str, ...]
    different: int
    files: int
    units: int

    def describe(self) -> str:
        """A description in a phrase."""
        differ = f"{self.different} of {count(self.files, 'file')} differ"
        if not self.others:
            return f"nearest release {self.release}: {differ}"
        others = ", ".join(self.others)
        return f"nearest release {self.release}, the newest one; {others} as near: {differ}"


def content_of(root: Path) -> Content:
    """The content of the tree at ``root``; what cannot be read is left out."""
    found: dict[str, Collection[str]] = {}
    for file in sorted(chain.from_iterable(root.glob(pattern) for pattern in _JUDGED)):
        try:
            units = [_digest(unit) for unit in _units(file.read_text("utf-8").splitlines())]
        except (OSError, UnicodeDecodeError):
            continue
        if units:
            found[file.relative_to(root).as_posix()] = units
    return found


def nearest(content: Content, releases: Mapping[str, Content] | None = None) -> Nearest | None:
    """The release with the most in common; None where nothing is."""
    releases = known() if releases is None else releases
    units = _all_units(content)
    distances = {
        release: len(units ^ own)
        for release, its in releases.items()
        if units & (own := _all_units(its))
    }
    if not distances:
        return None
    near = [each for each, units in distances.items() if units == min(distances.values())]
    newest, *others = sorted(near, key=Version, reverse=True)
    return _compared(content, newest, releases[newest], tuple(reversed(others)))


def compared_with(content: Content, release: str) -> Nearest | None:
    """How near the tree is to a release; None where the table does not have it."""
    its = known().get(release)
    return None if its is None else _compared(content, release, its, ())


def _compared(content: Content, release: str, its: Content, others: tuple[str, ...]) -> Nearest:
    paths = content.keys() | its.keys()
    different = sum(list(content.get(path, ())) != list(its.get(path, ())) for path in paths)
    units = len(_all_units(content) ^ _all_units(its))
    return Nearest(release, others, different, len(paths), units)


@cache
def known() -> Mapping[str, Content]:
    """The content of the releases."""
    read = json.loads(CONTENT.read_text("utf-8"))
    return {
        release: {path: [read["units"][n] for n in expanded(of)] for path, of in files.items()}
        for release, files in read["releases"].items()
    }


def _all_units(content: Content) -> set[str]:
    return set(chain.from_iterable(content.values()))


def _units(lines: Iterable[str]) -> list[list[str]]:
    """The lines that say something, each where a function or class begins in a new list."""
    units: list[list[str]] = [[]]
    decorated = False
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if _BEGINS.match(line) and not decorated:
            units.append([])
        decorated = bool(_DECORATES.match(line))
        units[-1].append(text)
    return [unit for unit in units if unit]


def _digest(unit: Sequence[str]) -> str:
    return blake2b("\n".join(unit).encode(), digest_size=5).hexdigest()


def to_json(releases: Mapping[str, Content]) -> str:
    """The table: digests of units, and of each release's files which units they have, in order."""
    numbers: dict[str, int] = {}
    written: dict[str, dict[str, str]] = {}
    for release in sorted(releases, key=Version):
        written[release] = {
            path: shortened([numbers.setdefault(unit, len(numbers)) for unit in units])
            for path, units in releases[release].items()
        }
    return json.dumps({"units": list(numbers), "releases": written}, indent=0) + "\n"


def shortened(numbers: Sequence[int]) -> str:
    """Numbers as ranges: 3-5,9."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def expanded(text: str) -> Iterable[int]:
    """Inverse of `shortened`."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main(releases: Sequence[str]) -> None:
    """Add releases to the table."""
    from hitproof.vllm_integration.targets.resolving import resolve  # which imports this module

    contents = dict(known()) if CONTENT.exists() else {}
    for release in releases:
        root = resolve(release).root
        assert root is not None
        contents[release] = content_of(root)
    CONTENT.write_text(to_json(contents), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
