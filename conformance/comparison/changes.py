"""What changes for users between two subjects, from their recorded behaviours."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hitproof.conformance.comparison.answers import (
    FINE,
    LOOKUPS,
    TABLES,
    TIER,
    State,
    states_of,
    wrong_with,
)
from hitproof.conformance.comparison.effects import Effect, of_hits
from hitproof.conformance.comparison.facts import Answer, Fact, Outcome
from hitproof.conformance.comparison.tier_runs import TIER_RUNS, compared, told
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.words import in_blocks, in_tokens
from hitproof.spec.hits import required_run


@dataclass(frozen=True)
class Change:
    """One difference of the head from the base.

    Attributes:
        effect: what it means.
        judged: the configuration or layout.
        given: what both were given, one fact per line.
        base: what the base does.
        head: what the head does.
    """

    effect: Effect
    judged: Configuration | Layout
    given: tuple[str, ...]
    base: str
    head: str

    @property
    def about(self) -> tuple[str, str, bool]:
        """What is counted together: effect, kinds of group, and whether a block is dropped."""
        return self.effect, self.judged.kinds, self.judged.drops_block

    @property
    def size(self) -> tuple[bool, Configuration | Layout, int, tuple[str, ...]]:
        """Smaller changes first, those of a single group before those of layouts."""
        words = sum(map(len, self.given))
        return isinstance(self.judged, Layout), self.judged, words, self.given


def changes(
    judged: Configuration | Layout, base: Iterable[Fact], head: Iterable[Fact]
) -> list[Change]:
    """The smallest change of each effect for each thing that both subjects were asked."""
    before, after = _by_question(base), _by_question(head)
    found: list[Change] = []
    for key, fact in after.items():
        if key in before and before[key].outcome != fact.outcome:
            found += _compared(judged, before, after, fact)
    return found


def unmatched(base: Iterable[Fact], head: Iterable[Fact]) -> int:
    """How many things only one of two subjects was asked, or answered."""
    return len(_by_question(base).keys() ^ _by_question(head).keys())


_Facts: TypeAlias = Mapping[tuple[str, tuple[Any, ...]], Fact]


def _by_question(facts: Iterable[Fact]) -> _Facts:
    return {(fact.what, fact.given): fact for fact in facts}


def _compared(
    judged: Configuration | Layout, before: _Facts, after: _Facts, fact: Fact
) -> Iterator[Change]:
    what, about_tables, _ = fact.what.partition(TABLES)
    if what not in LOOKUPS:
        return _runs(judged, fact, before[fact.what, fact.given].outcome)
    hits, tables = (what, fact.given), (what + TABLES, fact.given)
    states = states_of(what, judged, fact.given)
    answers = [
        [
            _Answer(hit, table)
            for hit, table in zip(side[hits].outcome, side[tables].outcome, strict=True)
        ]
        for side in (before, after)
    ]
    compare = _tables if about_tables else _hits
    return compare(_Asked(what, judged, fact.given), states, *answers)


def _runs(judged: Configuration | Layout, fact: Fact, before: Outcome) -> Iterator[Change]:
    """Compare what two runs registered, or what their prompts hit."""
    given = (judged.describe(), told(fact) if fact.what in TIER_RUNS else _words(fact))

    def change(effect: Effect, base: str, head: str) -> Change:
        return Change(effect, judged, given, base, head)

    if isinstance(before, str) or isinstance(fact.outcome, str):
        both = isinstance(before, str) and isinstance(fact.outcome, str)
        one = Effect.CRASH if isinstance(fact.outcome, str) else Effect.FIXED
        effect = Effect.CRASHES if both else one
        words = (f"raises {o}" if isinstance(o, str) else "returns" for o in (before, fact.outcome))
        yield change(effect, *words)
        return
    if isinstance(judged, Layout):
        for each in compared(judged, fact, before):
            yield change(*each)
        return
    if fact.what == "hits":
        pairs = [(int(one), int(other)) for one, other in zip(before, fact.outcome, strict=True)]
        served = (", ".join(map(str, hits)) for hits in (before, fact.outcome))
        hits = [f"the prompts hit {tokens} tokens" for tokens in served]
        if any(other < one for one, other in pairs):
            yield change(Effect.LOST, *hits)
        if any(other > one for one, other in pairs):
            yield change(Effect.GAINED, *hits)
        return
    yield from _registrations(judged, fact, _held(before), _held(fact.outcome), change)


def _registrations(
    judged: Configuration,
    fact: Fact,
    old: set[int],
    new: set[int],
    change: Callable[[Effect, str, str], Change],
) -> Iterator[Change]:
    """Compare what is registered: the hits that it serves, and the blocks that serve none."""
    bound = len(fact.outcome)
    does = "stores" if fact.what == "stored" else "registers"
    registered = [f"{does} {_listed(sorted(held)) or 'no block'}" for held in (old, new)]
    if fact.what == "registered_when_final":
        num_tokens, not_final, *_ = fact.given
        final = (num_tokens - not_final) // judged.group.block_size
        for effect, blocks in ((Effect.UNSOUND, new - old), (Effect.SOUND, old - new)):
            if max(blocks, default=-1) >= final:
                yield change(effect, *registered)
    else:
        servable = [_servable(judged, held, bound) for held in (old, new)]
        words = "a hit of {} is possible", "a hit of {} is not possible"
        for effect, lengths, (one, other) in (
            (Effect.LOST, servable[0] - servable[1], words),
            (Effect.GAINED, servable[1] - servable[0], words[::-1]),
        ):
            if lengths:
                least = in_tokens(min(lengths))
                yield change(effect, one.format(least), other.format(least))
    wasted = [held - _useful(judged, held, bound) for held in (old, new)]
    more, fewer = new - old, old - new
    if bool(more & wasted[1]) != bool(fewer & wasted[0]):
        yield change(Effect.WASTE if more & wasted[1] else Effect.WASTE_GONE, *registered)
    more, fewer = more - wasted[1], fewer - wasted[0]
    if more or fewer:
        one_way = Effect.MORE if more else Effect.FEWER
        yield change(Effect.OTHERS if more and fewer else one_way, *registered)


@dataclass(frozen=True)
class _Answer:
    """What a lookup answers: the hit, or what was raised, and the block tables in short."""

    hit: Answer
    tables: Answer

    @property
    def flagged(self) -> bool:
        return str(self.tables).startswith("!")

    def words(self, with_tables: bool) -> str:
        if isinstance(self.hit, str):
            return f"raises {self.hit}"
        flagged = ", flagged" if self.flagged else ""
        tables = f", block tables {str(self.tables).lstrip('!')}" if with_tables else ""
        return f"hit of {in_tokens(self.hit)}{flagged}{tables}"


@dataclass(frozen=True)
class _Asked:
    """A lookup that two subjects were asked for."""

    what: str
    judged: Configuration | Layout
    given: tuple[Any, ...]

    def change(self, effect: Effect, state: State, base: _Answer, head: _Answer) -> Change:
        """What changes when exactly those blocks are cached."""
        *_, max_length = self.given
        asked = f"a {self.what} of at most {in_tokens(max_length)}"
        cached = _cached_words(self.judged, state, "stored" if self.what == TIER else "cached")
        if self.what == FINE:
            units = self.given[0]
            asked += f", {units} hash blocks in a block"
            cached = iter([f"entries of hash blocks: {_listed(n for _, n in state) or 'none'}"])
        with_tables = effect is Effect.TABLES
        return Change(
            effect,
            self.judged,
            (self.judged.describe(), asked, *cached),
            base.words(with_tables),
            head.words(with_tables),
        )

    def effect(self, state: State, base: _Answer, head: _Answer) -> Effect:
        """What it means that two answers differ in their hits."""
        if isinstance(head.hit, str):
            return Effect.CRASHES if isinstance(base.hit, str) else Effect.CRASH
        if isinstance(base.hit, str):
            return Effect.FIXED
        was, now = (
            wrong_with(self.what, self.judged, self.given, hit, answer.flagged, state)
            for hit, answer in ((base.hit, base), (head.hit, head))
        )
        return of_hits(base.hit, head.hit, was, now)


def _hits(
    asked: _Asked, states: Sequence[State], base: Sequence[_Answer], head: Sequence[_Answer]
) -> Iterator[Change]:
    """Compare the hits for each cache state; reports the smallest state of each effect."""
    reported = set()
    for state, before, after in _smallest_first(states, base, head):
        if before.hit == after.hit:
            continue
        effect = asked.effect(state, before, after)
        if effect not in reported:
            reported.add(effect)
            yield asked.change(effect, state, before, after)


def _tables(
    asked: _Asked, states: Sequence[State], base: Sequence[_Answer], head: Sequence[_Answer]
) -> Iterator[Change]:
    """The smallest state in which hits are equal and block tables or flags are not."""
    reported = set()
    for state, before, after in _smallest_first(states, base, head):
        if before.hit != after.hit or before.tables == after.tables:
            continue
        effect = Effect.TABLES if before.flagged == after.flagged else Effect.CONNECTOR
        if effect not in reported:
            reported.add(effect)
            yield asked.change(effect, state, before, after)


def _smallest_first(
    states: Sequence[State], base: Sequence[_Answer], head: Sequence[_Answer]
) -> list[tuple[State, _Answer, _Answer]]:
    together = zip(states, base, head, strict=True)
    return sorted(together, key=lambda each: (len(each[0]), sorted(each[0])))


def _servable(judged: Configuration, held: set[int], bound: int) -> set[int]:
    """The hits, in tokens, whose required run is registered."""
    shape, size = judged.shape, judged.group.block_size
    return {
        boundary * size
        for boundary in range(shape.segment, bound + 1, shape.segment)
        if held.issuperset(required_run(shape, boundary))
    }


def _useful(judged: Configuration, held: set[int], bound: int) -> set[int]:
    """The blocks in required runs of which everything is there, up to the end of the request."""
    shape, useful = judged.shape, set[int]()
    last = bound // shape.segment * shape.segment + shape.segment
    for boundary in range(shape.segment, last + 1, shape.segment):
        run = required_run(shape, boundary)
        if held.issuperset(block for block in run if block < bound):
            useful.update(run)
    return held & useful


def _held(registered: Sequence[Answer]) -> set[int]:
    return {block for block, held in enumerate(registered) if held}


def _words(fact: Fact) -> str:
    match fact.what:
        case "registered":
            return f"a request registered after {_listed(fact.given[0])} tokens"
        case "retained":
            num_tokens, interval = fact.given
            return f"a prompt of {in_tokens(num_tokens)}, {_retention(interval)}"
        case "stored":
            (end,) = fact.given
            return f"what a connector stores of a request that it has {in_blocks(end)} of"
        case "registered_when_final":
            num_tokens, not_final, alone, interval = fact.given
            beside = "alone" if alone else "beside full attention"
            under = "" if interval is None else f", {_retention(interval)}"
            return (
                f"a prompt of {in_tokens(num_tokens)}, {beside}, of which a draft model computes "
                f"the last {not_final} anew{under}"
            )
        case "hits":
            lengths, shared, interval = fact.given
            return (
                f"prompts of {_listed(lengths)} tokens that share the first {shared}, "
                f"{_retention(interval)}"
            )
        case what:
            raise ValueError(f"there are no facts about {what}")


def _cached_words(
    judged: Configuration | Layout, cached: State, how: str = "cached"
) -> Iterator[str]:
    for number, looked_up in enumerate(judged.looked_up):
        blocks = _listed(sorted(block for owner, block in cached if owner == number))
        groups = " and ".join(map(str, looked_up.group_ids))
        yield f"{how} blocks of group {groups}: {blocks or 'none'}"


def _retention(interval: int | None) -> str:
    return "dense retention" if interval is None else f"retention interval {interval}"


def _listed(numbers: Iterable[int]) -> str:
    """Numbers in order, with "0-3" for 0, 1, 2, 3."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ", ".join(f"{a}" if a == b else f"{a}{'-' if b > a + 1 else ', '}{b}" for a, b in runs)
