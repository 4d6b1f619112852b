"""What the fixes of a release are: their patches, and the texts that go with them.

A folder has two files for each: the patch, ``9.diff``, and what only its author can say of it,
``9.toml``. What the fault is, and what shows it, is in the survey and in the ledger.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.conformance.ledger.ledger import Entry, load
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.bundled import FIXES, LEDGER
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.faults import Fault

RELEASE = "0.33.0"
"""The release that the fixes are for."""
UNFIXED = {
    12: "a patch that skips the boundary of 0 tokens removes it; where the run of the boundary "
    "after it reaches down to block 0, the codes also count that block, which is a choice, and the "
    "check would have to tell them apart",
    45: "a patch that counts two states, as the sizing at start-up does, removes it where one step "
    "is in flight; a state for each further one would have to be counted at start-up, too, or a "
    "request that is alone would never be admitted",
    184: "a block that is taken out of the cache while its request computes it again is not "
    "registered anew, as `num_cached_block` counts it, so hits would be lost instead",
}
"""Why a fault has no small patch that removes all of it."""
_HUNK = re.compile(r"^(?=@@ )", re.MULTILINE)
_FILE = re.compile(r"^(?=--- a/)", re.MULTILINE)
_BEFORE = re.compile(r"^@@ -(\d+).*\n((?: .*\n)*+)(?![+-](?:import|from) )", re.MULTILINE)
"""Where a hunk begins, and its lines before the first that changes, but for imports."""


class FixError(Exception):
    """A fix cannot be shown or applied; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class Fix:
    """A patch that removes a fault.

    Attributes:
        fault: the fault of BUGS.
        others: faults that the same lines have, and that are removed with it.
        entries: what the ledger has of it in this release; the patch removes them all.
        uncovered: what it has of other faults that reach further once this one is gone, as `change`
            says: more is hit, or a crash no longer ends the history before.
        refuses: with which words start-up then refuses deployments that have its faults; may be
            empty.
        title: what the patch does, in a line.
        change: what it changes, and why that is right.
        cost: what it costs in time and memory.
        pinned: which of vLLM's own tests expects the fault, and why that is one; may be empty.
        test: a test for vLLM's own suite, which fails without the patch.
        test_file: the file of vLLM that the test belongs in.
        patch: a unified diff, with paths below the root of vLLM's source.
    """

    fault: Fault
    others: tuple[Fault, ...]
    entries: tuple[Entry, ...]
    uncovered: tuple[Entry, ...]
    refuses: str
    title: str
    change: str
    cost: str
    pinned: str
    test: str
    test_file: str
    patch: str

    @property
    def number(self) -> int:
        """The number of the fault."""
        return self.fault.number

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All faults that it removes."""
        return self.fault, *self.others

    @property
    def classes(self) -> tuple[Divergence, ...]:
        """What the faults do in this release, the most severe first."""
        found = {entry.signature.divergence for entry in self.entries}
        return tuple(each for each in SEVERITY if each in found)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that the patch removes, with their parameters."""
        return tuple(sorted({str(entry.signature.defect) for entry in self.entries}))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the patch changes, relative to the root of vLLM's source."""
        return touched(self.patch)

    @property
    def causes(self) -> tuple[tuple[str, int], ...]:
        """The lines of vLLM's code, by file and number from 1, where each hunk changes it first."""
        return tuple(
            (touched(file)[0], int(first) + len(before.splitlines()))
            for file in _FILE.split(self.patch)
            if file.startswith("--- a/vllm/")
            for first, before in _BEFORE.findall(file)
        )

    @property
    def num_hunks(self) -> int:
        """How many hunks the patch has."""
        return sum(len(_HUNK.split(file)) - 1 for file in _FILE.split(self.patch))

    def without_hunk(self, number: int) -> "Fix":
        """The fix with one hunk fewer, of at least two; ``number`` counts them from 0."""
        kept, seen = "", 0
        for file in _FILE.split(self.patch):
            head, *hunks = _HUNK.split(file)
            left = [hunk for i, hunk in enumerate(hunks, seen) if i != number]
            seen += len(hunks)
            kept += "".join([head, *left]) if left else ""
        return replace(self, patch=kept)


def touched(patch: str) -> tuple[str, ...]:
    """The files that a patch changes, each once."""
    return tuple(dict.fromkeys(re.findall(r"^--- a/(.+)$", patch, re.MULTILINE)))


@cache
def all_fixes(directory: Path = FIXES / RELEASE) -> tuple[Fix, ...]:
    """The fixes of the release, by number."""
    by_number = {fault.number: fault for fault in faults.load()}
    entries = [entry for entry in load(LEDGER) if entry.applies_to(RELEASE)]
    texts = sorted(directory.glob("*.toml"), key=lambda path: int(path.stem))
    return tuple(_read(path, by_number, entries) for path in texts)


def _read(path: Path, by_number: Mapping[int, Fault], entries: Sequence[Entry]) -> Fix:
    text = tomllib.loads(path.read_text("utf-8"))
    fault, *others = (by_number[number] for number in (int(path.stem), *text.get("also", ())))
    causes = {each.title for each in (fault, *others)}
    uncovered = {by_number[number].title for number in text.get("uncovers", ())}
    return Fix(
        fault=fault,
        others=tuple(others),
        entries=tuple(entry for entry in entries if entry.cause in causes),
        uncovered=tuple(entry for entry in entries if entry.cause in uncovered),
        refuses=text.get("refuses", ""),
        title=text["title"],
        change=text["change"],
        cost=text["cost"],
        pinned=text.get("pinned", ""),
        test=text["test"],
        test_file=text["test_file"],
        patch=path.with_suffix(".diff").read_text("utf-8"),
    )


def named(numbers: Sequence[int]) -> tuple[Fix, ...]:
    """The fixes of these faults, or all where none is named, each once. Raises `FixError`."""
    fixes = all_fixes()
    there = {fault.number: fix for fix in fixes for fault in fix.faults}
    for number in numbers:
        if number not in there:
            raise FixError(
                f"there is no fix for fault {number} of {RELEASE}; `hitproof fixes list` lists them"
            )
    wanted = {there[number].number for number in numbers or there}
    return tuple(fix for fix in fixes if fix.number in wanted)
