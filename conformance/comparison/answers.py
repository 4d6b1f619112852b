"""What lookups answer, state by state, as facts by which two subjects can be compared.

For requests of few blocks these are all cache states. For larger ones, whose hits the checks judge
in all states, they are some near the edges, so that block tables are compared, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TypeAlias

from hitproof.conformance.checks.connector import check_local_prefix, needed
from hitproof.conformance.checks.fine_hits import (
    check_fine,
    entered_states,
    is_vouched_for,
    scales_of,
)
from hitproof.conformance.checks.lookup import check_common_hit, check_lookup
from hitproof.conformance.checks.spaces import of_missing, space_of, worst_missing
from hitproof.conformance.checks.tiers import check_tier_lookup
from hitproof.conformance.comparison.facts import Answer, Fact, raised
from hitproof.conformance.exploration.explorer import explore, replay
from hitproof.conformance.exploration.symbolic import Question, Space, SymbolicBlock
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.subjects import Subject
from hitproof.spec.claims import Divergence
from hitproof.spec.hits import required_run
from hitproof.spec.releases.horizons import LookaheadHorizon

FEW = 8
"""Lookups that can ask about at most this many blocks are recorded for all 2^n cache states."""

LOOKUP, LOCAL_PREFIX, FINE, TIER = "lookup", "local prefix", "fine lookup", "lookup in the tier"
LOOKUPS = (LOOKUP, LOCAL_PREFIX, FINE, TIER)
TABLES = " tables"
"""What is appended to the name of a lookup for the fact about its block tables."""

State: TypeAlias = frozenset[Question]
"""The blocks that are cached, or for a lookup inside blocks the entries of hash blocks."""

_Answered: TypeAlias = LookupAnswer | Exception
_LARGE = 2
"""Of the lookups of a configuration that can ask about more blocks, the largest are recorded."""
_RANDOM = 6


def lookup_facts(
    subject: Subject, check: Callable[..., object], judged: Configuration | Layout
) -> Iterator[Fact]:
    """What the lookup that a check judges answers; nothing for a check of something else.

    Raises what the subject raises where a lookup cannot be recorded.
    """
    asked = _ASKED.get(check)
    if asked is not None:
        what, prepare = asked
        yield from prepare(subject, what, judged)


def questions_of(judged: Configuration | Layout, max_length: int) -> list[Question]:
    """What a lookup of at most ``max_length`` tokens has reason to ask about.

    These are the blocks up to the one past the last that may be served; a cache state's bits have
    them in this order.
    """
    return [
        (number, block)
        for number, looked_up in enumerate(judged.looked_up)
        for block in range(
            min(max_length // looked_up.group.block_size + 1, judged.bound(looked_up))
        )
    ]


def states_of(what: str, judged: Configuration | Layout, given: tuple[int, ...]) -> list[State]:
    """The cache states of a fact, in the order of its outcome."""
    if what == FINE:
        units, blocks, _ = given
        return [frozenset((0, entry) for entry in each) for each in entered_states(units * blocks)]
    (max_length,) = given
    questions = questions_of(judged, max_length)
    if len(questions) <= FEW:
        return [
            frozenset(question for bit, question in enumerate(questions) if state >> bit & 1)
            for state in range(1 << len(questions))
        ]
    return _near_edges(judged, max_length, questions)


def _near_edges(
    judged: Configuration | Layout, max_length: int, questions: Sequence[Question]
) -> list[State]:
    """All blocks; what the longest hits require, exactly and less one; and some at random."""
    every = frozenset(questions)
    found = [every]
    last = max_length // judged.alignment * judged.alignment
    for length in range(last, max(last - 3 * judged.alignment, 0), -judged.alignment):
        required = _required(judged, length) & every
        found += [
            required,
            *(every - {block} for block in sorted(required)[:: len(required) - 1 or 1]),
        ]
    random = Random(f"{judged.describe()}: {max_length}")
    for share in range(1, _RANDOM + 1):
        found.append(frozenset(q for q in questions if random.random() < share / (_RANDOM + 1)))
    return list(dict.fromkeys(found))


def wrong_with(
    what: str,
    judged: Configuration | Layout,
    given: tuple[int, ...],
    length: int,
    flagged: bool,
    cached: State,
) -> str:
    """How it is wrong to serve a hit when exactly ``cached`` is cached, however far lookups peek.

    A divergence, or "" if it may be served.
    """
    if what == FINE:
        assert isinstance(judged, Configuration)
        units, blocks, max_length = given
        entries = frozenset(entry for _, entry in cached)
        is_backed = partial(
            is_vouched_for, _in_units(judged, units, blocks), max_length, entries, length
        )
        if is_backed(True):
            return ""
        return str(Divergence.WRONG_DRAFTS if is_backed(False) else Divergence.UNSOUND)
    if length % judged.alignment:
        # A tier of chunks may serve more than it promises.
        of_chunks = isinstance(judged, Layout) and judged.blocks_per_chunk
        return "" if of_chunks else str(Divergence.UNSOUND)
    required = _required(judged, length) if length else frozenset()
    if what == LOCAL_PREFIX:
        assert isinstance(judged, Layout)
        required = needed(judged, required, flagged)
    missing = required - cached
    return str(of_missing(worst_missing(judged, missing, length)[1])) if missing else ""


def _required(judged: Configuration | Layout, length: int) -> State:
    return frozenset(
        (number, block)
        for number, looked_up in enumerate(judged.looked_up)
        for block in required_run(looked_up.shape, length // looked_up.group.block_size)
    )


def _in_units(configuration: Configuration, units: int, blocks: int) -> Configuration:
    unit = configuration.group.block_size // units
    return replace(configuration, hash_block_size=unit, num_blocks=blocks, members=1)


def _on_boundaries(subject: Subject, what: str, judged: Configuration | Layout) -> Iterator[Fact]:
    if what == LOOKUP:
        lookup = subject.lookup(judged)
    else:
        assert isinstance(judged, Layout)
        tier = what == TIER
        lookup = subject.tier_lookup(judged) if tier else subject.connector_lookup(judged)
    sizes = {length: len(questions_of(judged, length)) for length in judged.max_lengths}
    large = [length for length, size in sizes.items() if size > FEW][-_LARGE:]
    for max_length, size in sizes.items():
        # The horizon limits what may be served, not what may be asked.
        space = space_of(judged, lookup, max_length, LookaheadHorizon.HASHED)
        if size <= FEW:
            yield from _facts(what, (max_length,), _in_all(space, lookup, judged, max_length))
        elif max_length in large:
            states = states_of(what, judged, (max_length,))
            answers = [replay(space, lookup, max_length, state) for state in states]
            yield from _facts(what, (max_length,), answers)


def _in_all(
    space: Space, lookup: Lookup, judged: Configuration | Layout, max_length: int
) -> list[_Answered]:
    """The answer for each state of few blocks, from one run for each path."""
    questions = questions_of(judged, max_length)
    replay(space, lookup, max_length, frozenset())  # which makes the request
    alone = isinstance(judged, Layout) and judged.tier  # a connector keeps the time it takes
    paths = () if alone else explore(space, lookup, max_length, merging=False).paths
    if alone or not all(path.answers.keys() <= set(questions) for path in paths):
        states = states_of(LOOKUP, judged, (max_length,))
        return [replay(space, lookup, max_length, state) for state in states]
    found: dict[int, _Answered] = {}
    for path in paths:
        found |= dict.fromkeys(_completions(questions, path.answers), path.answer)
    return [answer for _, answer in sorted(found.items(), key=lambda pair: pair[0])]


def _completions(questions: Sequence[Question], answers: dict[Question, bool]) -> list[int]:
    """The cache states in which the questions have these answers."""
    states = [0]
    for bit, question in enumerate(questions):
        if question not in answers:
            states += [state | 1 << bit for state in states]
        elif answers[question]:
            states = [state | 1 << bit for state in states]
    return states


def _inside_blocks(subject: Subject, what: str, judged: Configuration | Layout) -> Iterator[Fact]:
    assert isinstance(judged, Configuration)
    for units, blocks in scales_of(judged):
        configuration = _in_units(judged, units, blocks)
        lookup = subject.fine_lookup(configuration)
        unit, keys = configuration.hash_block_size, enumerate(lookup.keys[0])
        space = Space({(0, key): (0, entry) for entry, key in keys}, unit, ())
        for max_length in (units * blocks * unit, units * blocks * unit - 1):
            given = units, blocks, max_length
            states = states_of(what, judged, given)
            yield from _facts(what, given, [replay(space, lookup, max_length, s) for s in states])


def _facts(what: str, given: tuple[int, ...], answers: Sequence[_Answered]) -> Iterator[Fact]:
    hits: list[Answer] = []
    tables: list[Answer] = []
    for answer in answers:
        hits.append(raised(answer) if isinstance(answer, Exception) else answer.hit_length)
        tables.append("" if isinstance(answer, Exception) else _in_short(answer))
    yield Fact(what, given, hits)
    yield Fact(what + TABLES, given, tables)


def _in_short(answer: LookupAnswer) -> str:
    """Block tables: "x" for the block of that position, "." for the null block."""
    tables = "|".join("".join(map(_entry, enumerate(table))) for table in answer.tables)
    return f"!{tables}" if answer.diverged else tables


def _entry(place: tuple[int, object]) -> str:
    position, block = place
    if not isinstance(block, SymbolicBlock):
        return "?"
    return "." if block.is_null_block else "x" if block.index == position else f"<{block.index}>"


_ASKED: dict[
    Callable[..., object],
    tuple[str, Callable[[Subject, str, Configuration | Layout], Iterator[Fact]]],
] = {
    check_lookup: (LOOKUP, _on_boundaries),
    check_common_hit: (LOOKUP, _on_boundaries),
    check_local_prefix: (LOCAL_PREFIX, _on_boundaries),
    check_tier_lookup: (TIER, _on_boundaries),
    check_fine: (FINE, _inside_blocks),
}
