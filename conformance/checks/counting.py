"""How many cache states of a lookup diverge, and how: exact counts from the explorer's paths.

A path fixes the blocks that the lookup asked about; the others are open. The expected hit depends
on the open ones, so the completions of a path are counted by their expected hit. Counts depend on
what the lookup does in each cache state, and not on how its runs were merged.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hitproof.conformance.exploration.explorer import Path
from hitproof.conformance.exploration.symbolic import Question
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code

_MOST = 50_000
"""Different cases of one count; where there are more, expected hits are not distinguished."""
UNCOUNTED = sys.maxsize
"""Stands for the expected hit where these are not distinguished."""


@dataclass(frozen=True)
class Need:
    """A hit, in tokens, and the blocks that must be cached for it."""

    length: int
    blocks: frozenset[Question]


@dataclass(frozen=True)
class Judging:
    """How the answer of a path is judged.

    Attributes:
        needed: the blocks of the hit that was served: those that attention reads, and with them
            those that only EAGLE looks at. None where it is no hit that may be served.
        malformed: what is wrong with it even where they are cached, as a code and words.
        missing: the code where one of them is not cached.
        short: the code where they are cached and a longer hit is expected.
    """

    needed: tuple[frozenset[Question], frozenset[Question]] | None
    malformed: tuple[Code, str] | None
    missing: Code
    short: Code


def diverging_states(
    path: Path, questions: int, needs: Iterable[Need], judging: Judging, max_length: int
) -> Counter[tuple[Code, Row]]:
    """The cache states in which the answer of a path is wrong, by code and by what is answered.

    ``questions`` is how many blocks there are in all, and ``needs`` has every possible hit. A row
    has ``max_length``, the answer, the expected hit, in tokens, and what is wrong.
    """
    held = frozenset(question for question, cached in path.answers.items() if cached)
    absent = path.answers.keys() - held
    possible = [Need(n.length, n.blocks - held) for n in needs if absent.isdisjoint(n.blocks)]
    free = questions - len(path.answers)
    answer, malformed = path.answer, judging.malformed
    served = None if isinstance(answer, Exception) else answer.hit_length
    found: Counter[tuple[Code, Row]] = Counter()

    def add(code: Code, due: Mapping[int, int], words: str) -> None:
        for length, states in due.items():
            if states:
                found[code, (max_length, served, length, words)] += path.weight * states

    def due_with(blocks: frozenset[Question]) -> Mapping[int, int]:
        """The hits expected where these blocks are cached."""
        if not absent.isdisjoint(blocks):
            return {}
        unasked = blocks - held
        given = [Need(need.length, need.blocks - unasked) for need in possible]
        return hits_due(given, free - len(unasked))

    every = due_with(frozenset())
    if judging.needed is None or isinstance(answer, Exception):
        assert malformed is not None
        add(malformed[0], every, malformed[1])
        return found
    read, whole = map(due_with, judging.needed)
    add(judging.missing, _less(every, read), "required")
    add(judging.missing, _less(read, whole), "lookahead")
    if malformed is not None:
        add(malformed[0], whole, malformed[1])
    else:
        add(judging.short, {n: states for n, states in whole.items() if n > answer.hit_length}, "")
    return found


def _less(every: Mapping[int, int], some: Mapping[int, int]) -> dict[int, int]:
    return {length: states - some.get(length, 0) for length, states in every.items()}


def hits_due(needs: Iterable[Need], free: int) -> dict[int, int]:
    """For each hit, in tokens, in how many states of ``free`` open blocks it is the longest.

    Where there are too many different cases all states are under `UNCOUNTED`.
    """
    known: dict[tuple[tuple[Need, ...], int], dict[int, int]] = {}

    def due(hits: tuple[Need, ...], free: int) -> dict[int, int]:
        first = hits[0]
        if not first.blocks:
            return {first.length: 1 << free}
        key = hits, free
        if key not in known:
            if len(known) >= _MOST:
                raise _TooMany
            block = max(first.blocks)
            counted = Counter(due(_with(hits, block), free - 1))
            counted.update(due(tuple(n for n in hits if block not in n.blocks), free - 1))
            known[key] = counted
        return known[key]

    longest_first = sorted(needs, key=lambda need: -need.length)
    try:
        return due(_up_to_certain(longest_first), free)
    except (_TooMany, RecursionError):
        return {UNCOUNTED: 1 << free}


class _TooMany(Exception):
    """There are more cases than are counted apart."""


def _with(hits: Iterable[Need], block: Question) -> tuple[Need, ...]:
    """The hits once that block is cached."""
    return _up_to_certain([Need(hit.length, hit.blocks - {block}) for hit in hits])


def _up_to_certain(hits: list[Need]) -> tuple[Need, ...]:
    """The hits, the longest first, down to the first that needs no more blocks."""
    for number, hit in enumerate(hits, 1):
        if not hit.blocks:
            return tuple(hits[:number])
    return tuple(hits)
