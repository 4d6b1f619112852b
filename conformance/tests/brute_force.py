"""Every cache state, for what is run on each."""

import itertools
from collections.abc import Iterable, Iterator

from hitproof.conformance.exploration.symbolic import Question


def states(questions: Iterable[Question]) -> Iterator[frozenset[Question]]:
    """Every cache state."""
    every = sorted(set(questions))
    for size in range(len(every) + 1):
        yield from map(frozenset, itertools.combinations(every, size))
