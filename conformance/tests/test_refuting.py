"""A claim is refuted where its sentence is false, whatever claim the divergence is booked under.

The sentences are evaluated here on every answer of broken subjects in every cache state, from what
single tokens read: not with the checks' own words for what is wrong.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.connector import check_local_prefix
from hitproof.conformance.checks.lookup import check_common_hit, check_lookup
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Question, SymbolicBlock
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.tests import test_checks
from hitproof.conformance.tests.editing import edited
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject
from hitproof.conformance.tests.test_common_hit_check import COMMON_BROKEN
from hitproof.conformance.tests.test_connector_check import CONNECTOR_BROKEN, PAIR, THREE
from hitproof.conformance.tests.test_retention_check import FAULTS
from hitproof.spec.attention import attends
from hitproof.spec.claims import Status
from hitproof.spec.connector import longest_local_prefix
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import in_required_run, longest_valid_hit, valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA
TABLE = "hit_has_every_block_attention_reads"
EAGLE = "eagle_needs_tail_plus_one"
LONGEST = "lookup_returns_longest_valid_hit"

Judged = Configuration | Layout
Cached = frozenset[Question]
Sentences = Callable[[Judged, int, Cached, Any], Iterator[str]]
"""Given the most that may be served, what is cached and the answer: the claims that are false."""


def a_token_less(answer: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    """Serves all but a token of the first block, though nothing is cached."""
    del pool
    size = configuration.group.block_size
    return LookupAnswer(size - 1, answer.tables) if answer.hit_length == 0 else answer


def one_block_whatever_is_cached(
    answer: LookupAnswer, pool: Any, configuration: Configuration
) -> LookupAnswer:
    """Serves null blocks for the first boundary where it should serve nothing."""
    if answer.hit_length:
        return answer
    length = configuration.alignment
    blocks = length // configuration.group.block_size
    return LookupAnswer(length, [[pool.null_block] * blocks for _ in answer.tables])


LOOKUPS = {
    name: subject
    for name, (subject, *_) in test_checks.BROKEN.items()
    if not name.startswith("mask")  # whose lookups are right
} | {
    "a token less": BrokenSubject(answer=a_token_less),
    "a hit of nothing": BrokenSubject(answer=one_block_whatever_is_cached),
}
CONFIGURATIONS = [single_group(FULL, 2, 1, None, eagle, 3) for eagle in (False, True)] + [
    single_group(SLIDING, 2, 1, 4, False, 4),
    single_group(SLIDING, 2, 2, 2, True, 4),
    single_group(SLIDING, 2, 1, 4, True, 4),
    single_group(CHUNKED, 2, 1, None, False, 4, 1, 4),
    single_group(MAMBA, 2, 2, None, False, 4),
]


def tokens_read(group: Group, length: int) -> list[int]:
    """The tokens before it that a request reads which resumes after ``length`` tokens."""
    if group.kind is MAMBA:
        return [length - 1] if length else []
    return [t for t in range(length) if attends(length, t, group.window, group.chunk)]


def of_one_group(judged: Judged, most: int, cached: Cached, answer: Any) -> Iterator[str]:
    (looked_up,) = judged.looked_up
    group, size = looked_up.group, looked_up.group.block_size
    cap, horizon = judged.reach(most, LookaheadHorizon.CAPPED)

    def held(number: int, block: int) -> bool:
        return (number, block) in cached

    if isinstance(answer, Exception):
        yield LONGEST
        return
    served = answer.hit_length
    if served != longest_valid_hit((group,), judged.alignment, cap, horizon, held):
        yield LONGEST
    read = {token // size for token in tokens_read(group, served)}
    (table,) = answer.tables
    whole = group.kind is not MAMBA or served % size == 0
    if not (
        whole
        and all((0, block) in cached for block in read)
        and len(table) == served // size
        and all(_is(table, block, block in read) for block in range(len(table)))
    ):
        yield TABLE
    if group.eagle and not (
        valid_hit((group,), judged.alignment, served, cap, horizon, held)
        and len(table) == served // size
    ):
        yield EAGLE


def _is(table: Any, block: int, needed: bool) -> bool:
    found = table[block]
    if not isinstance(found, SymbolicBlock):
        return False
    return found.question == (0, block) or (found.is_null_block and not needed)


def false_sentences(
    lookup: Any, judged: Judged, policy: LookaheadHorizon, sentences: Sentences
) -> set[str]:
    """The claims whose sentences some answer in some cache state makes false."""
    found: set[str] = set()
    for most in judged.max_lengths:
        space = space_of(judged, lookup, most, policy)
        questions = sorted(set(space.keys.values()))
        for held in itertools.product((False, True), repeat=len(questions)):
            cached = frozenset(itertools.compress(questions, held))
            answer = replay(space, lookup, most, cached)
            found |= set(sentences(judged, most, cached, answer))
    return found


def compare(result: CheckResult, false: set[str]) -> None:
    """A false sentence is refuted and, but for what a divergence is booked under, no other."""
    refuted = {claim for claim, status in result.statuses.items() if status is Status.REFUTED}
    booked = {evidence.signature.claim for evidence in result.evidence}
    assert false <= refuted
    assert refuted <= false | booked
    found = {evidence.signature for evidence in result.evidence}
    assert result.refuting.keys() == refuted
    assert all(cited and found.issuperset(cited) for cited in result.refuting.values())


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_of_one_group(name: str) -> None:
    for configuration in CONFIGURATIONS:
        subject = LOOKUPS[name]
        lookup = subject.lookup(configuration)
        false = false_sentences(lookup, configuration, LookaheadHorizon.CAPPED, of_one_group)
        compare(check_lookup(subject, configuration), false)


def test_a_hit_that_is_served_without_its_blocks_is_not_the_longest() -> None:
    """One finding, under another claim; its sentence and those of the others are false."""
    subject, *_ = test_checks.BROKEN["no lookahead"]
    result = check_lookup(subject, single_group(FULL, 1, 1, None, True, 3))
    assert {evidence.signature.claim for evidence in result.evidence} == {EAGLE}
    assert result.statuses == {TABLE: Status.PROVED, EAGLE: Status.REFUTED, LONGEST: Status.REFUTED}
    assert result.refuting[LONGEST] == tuple(e.signature for e in result.evidence)
    tail, *_ = test_checks.BROKEN["tail one short, EAGLE"]
    result = check_lookup(tail, single_group(SLIDING, 1, 1, 3, True, 5))
    assert set(result.statuses.values()) == {Status.REFUTED}


def stated(
    judged: Judged, most: int, cached: Cached
) -> tuple[tuple[Group, ...], int, int, Callable[[int, int], bool]]:
    """Groups, cap, horizon and what is held, as clauses of several groups take them."""
    cap, horizon = judged.reach(most, LookaheadHorizon.HASHED)
    groups = tuple(each.group for each in judged.looked_up)
    return groups, cap, horizon, lambda number, block: (number, block) in cached


def of_several_groups(judged: Judged, most: int, cached: Cached, answer: Any) -> Iterator[str]:
    groups, cap, horizon, held = stated(judged, most, cached)
    if isinstance(answer, Exception):
        yield "common_hit_is_the_longest"
        return
    if answer.hit_length != longest_valid_hit(groups, judged.alignment, cap, horizon, held):
        yield "common_hit_is_the_longest"
    if not valid_hit(groups, judged.alignment, answer.hit_length, cap, horizon, held):
        yield "common_hit_is_valid_for_every_group"


LAYOUTS = [
    Layout((Group(FULL, 1), Group(SLIDING, 1, 2)), 3, False, 1),
    Layout((Group(FULL, 1, eagle=True), Group(SLIDING, 1, 2)), 3, True, 1),
    Layout((Group(FULL, 1), Group(SLIDING, 1, 2, True)), 4, True, 1),
    Layout((Group(FULL, 1), Group(MAMBA, 2)), 5, False, 1),
]


@pytest.mark.parametrize("name", COMMON_BROKEN)
def test_lookups_of_several_groups(name: str) -> None:
    subject, *_ = COMMON_BROKEN[name]
    for layout in LAYOUTS:
        policy = subject.lookahead_horizon
        false = false_sentences(subject.lookup(layout), layout, policy, of_several_groups)
        compare(check_common_hit(subject, layout), false)


def of_local_prefixes(judged: Judged, most: int, cached: Cached, answer: Any) -> Iterator[str]:
    groups, cap, horizon, held = stated(judged, most, cached)
    if isinstance(answer, Exception):
        yield "local_prefix_is_the_longest"
        return
    served = answer.hit_length
    if served != longest_local_prefix(groups, judged.alignment, cap, horizon, held):
        yield "local_prefix_is_the_longest"
    loaded = {number for number, group in enumerate(groups) if group.kind is MAMBA}

    def local(number: int, block: int) -> bool:
        return (answer.diverged and number in loaded) or held(number, block)

    if not valid_hit(groups, judged.alignment, served, cap, horizon, local):
        yield "local_prefix_lacks_states_only"


@pytest.mark.parametrize("name", CONNECTOR_BROKEN)
def test_local_prefixes(name: str) -> None:
    subject, *_ = CONNECTOR_BROKEN[name]
    for layout in (PAIR, replace(THREE, num_tokens=2)):
        policy, lookup = subject.lookahead_horizon, subject.connector_lookup(layout)
        false = false_sentences(lookup, layout, policy, of_local_prefixes)
        compare(check_local_prefix(subject, layout), false)


RESENDS = "retention_keeps_resends_and_extensions"
SIBLINGS = "retention_keeps_siblings"


@pytest.mark.parametrize("name", FAULTS)
def test_what_retention_keeps(name: str) -> None:
    """Each promised hit that lacks a block is one that a claim promises."""
    subject = ReferenceSubject()
    for configuration in (
        single_group(SLIDING, 2, 2, 3, True, 24),
        single_group(SLIDING, 2, 1, 4, False, 12),
        single_group(MAMBA, 2, 2, None, False, 12),
    ):
        with edited(FAULTS[name]):
            result = check_retention(subject, configuration)
            compare(result, set(_lost(subject, configuration)))


def _lost(subject: ReferenceSubject, configuration: Configuration) -> Iterator[str]:
    shape, size = configuration.shape, configuration.group.block_size
    align = configuration.alignment
    for interval in (0, 2 * align):
        for tokens in range(1, configuration.num_blocks * size + 1):
            kept = subject.retained(configuration, tokens, interval)
            resend, extension = configuration.replays(tokens, subject.lookahead_horizon)
            every = range(0, extension * size + 1, interval) if interval else ()
            siblings = {end // size for end in every}
            for claim, ends in ((RESENDS, {resend, extension}), (SIBLINGS, siblings)):
                for end in ends - {0}:
                    run = (b for b in range(len(kept)) if in_required_run(shape, b, end))
                    if not all(kept[block] for block in run):
                        yield claim
