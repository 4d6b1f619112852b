"""Cache states in which an answer is wrong, each state run on its own."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Question
from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.subjects_for_tests import lacks_a_block
from hitproof.spec.groups import Group
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon

Judged: TypeAlias = Configuration | Layout
Holds: TypeAlias = Callable[[int, int], bool]
IsRight: TypeAlias = Callable[[tuple[Group, ...], tuple[int, int, int], Holds, Any], bool]
"""By the groups, the alignment, cap and horizon, and what is cached: whether an answer is right."""


def states(questions: Iterable[Question]) -> Iterator[frozenset[Question]]:
    """Every cache state."""
    every = sorted(set(questions))
    for size in range(len(every) + 1):
        yield from map(frozenset, itertools.combinations(every, size))


def serves_the_longest_hit(
    groups: tuple[Group, ...], reach: tuple[int, int, int], holds: Holds, answer: Any
) -> bool:
    return isinstance(answer, LookupAnswer) and answer.hit_length == longest_valid_hit(
        groups, *reach, holds
    )


def wrong_states(
    judged: Judged,
    lookup: Lookup,
    policy: LookaheadHorizon,
    is_right: IsRight = serves_the_longest_hit,
) -> dict[int, set[tuple[frozenset[int], ...]]]:
    """For each cap, the blocks of each group that are cached where the answer is wrong."""
    groups = tuple(each.group for each in judged.looked_up)
    wrong: dict[int, set[tuple[frozenset[int], ...]]] = {}
    for max_length in judged.max_lengths:
        space = space_of(judged, lookup, max_length, policy)
        reach = (judged.alignment, *judged.reach(max_length, policy))
        wrong[max_length] = {
            tuple(frozenset(b for n, b in cached if n == number) for number in range(len(groups)))
            for cached in states(space.keys.values())
            for answer in [replay(space, lookup, max_length, cached)]
            if not is_right(groups, reach, lambda n, b: (n, b) in cached, answer)  # noqa: B023
            or (is_right is serves_the_longest_hit and lacks_a_block(judged, answer))
        }
    return wrong


def assert_agrees(result: CheckResult, wrong: dict[int, set[tuple[frozenset[int], ...]]]) -> None:
    """What a check has found is wrong, and it has found something if there is anything."""
    assert bool(result.evidence) == any(wrong.values())
    for evidence in result.evidence:
        assert isinstance(evidence, LookupEvidence)
        assert evidence.cached in wrong[evidence.max_length]
