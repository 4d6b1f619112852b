"""What changes for users between two subjects, from their recorded behaviours."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hitproof.conformance.comparison.behaviour import Answer, Fact, Outcome, questions_of
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.exploration.symbolic import Question
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.words import in_tokens
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
    before = {(fact.what, fact.given): fact.outcome for fact in base}
    found: list[Change] = []
    for fact in head:
        outcome = before.get((fact.what, fact.given), fact.outcome)
        if outcome != fact.outcome:
            compare = _lookups if fact.what == "lookup" else _runs
            found += compare(judged, fact, outcome)
    return found


def _runs(judged: Configuration | Layout, fact: Fact, before: Outcome) -> Iterator[Change]:
    """Compare what two runs registered, or what their prompts hit."""
    assert isinstance(judged, Configuration)
    given = (judged.describe(), _words(fact))

    def change(effect: Effect, base: str, head: str) -> Change:
        return Change(effect, judged, given, base, head)

    if isinstance(before, str) or isinstance(fact.outcome, str):
        effect = Effect.CRASH if isinstance(fact.outcome, str) else Effect.FIXED
        words = (f"raises {o}" if isinstance(o, str) else "returns" for o in (before, fact.outcome))
        yield change(effect, *words)
        return
    if fact.what == "hits":
        lost = sum(map(int, fact.outcome)) < sum(map(int, before))
        served = (", ".join(map(str, hits)) for hits in (before, fact.outcome))
        hits = (f"the prompts hit {tokens} tokens" for tokens in served)
        yield change(Effect.LOST if lost else Effect.GAINED, *hits)
        return
    old, new = _held(before), _held(fact.outcome)
    for effect, one, other in ((Effect.LOST, old, new), (Effect.GAINED, new, old)):
        lengths = _servable(judged, one, len(before)) - _servable(judged, other, len(before))
        if lengths:
            what = f"a hit of {in_tokens(min(lengths))} is possible"
            no = f"{what.replace('is possible', 'is not possible')}"
            yield change(effect, *((what, no) if effect is Effect.LOST else (no, what)))
    registered = (f"registers {_listed(sorted(held)) or 'no block'}" for held in (old, new))
    yield change(Effect.MORE if len(new) > len(old) else Effect.FEWER, *registered)


def _lookups(judged: Configuration | Layout, fact: Fact, before: Outcome) -> Iterator[Change]:
    """Compare the hits for each cache state; reports the smallest state of each effect."""
    assert not isinstance(before, str)
    assert not isinstance(fact.outcome, str)
    (max_length,) = fact.given
    questions = questions_of(judged, max_length)
    reported = set()
    states = sorted(range(1 << len(questions)), key=lambda state: (state.bit_count(), state))
    for state in states:
        base, head = before[state], fact.outcome[state]
        if base == head:
            continue
        cached = {question for bit, question in enumerate(questions) if state >> bit & 1}
        effect = _effect(judged, base, head, cached)
        if effect not in reported:
            reported.add(effect)
            yield Change(
                effect,
                judged,
                (judged.describe(), _words(fact), *_cached_words(judged, cached)),
                _done(base),
                _done(head),
            )


def _effect(
    judged: Configuration | Layout, base: Answer, head: Answer, cached: set[Question]
) -> Effect:
    if isinstance(head, str):
        return Effect.CRASH
    if isinstance(base, str):
        return Effect.FIXED
    if head > base:
        return Effect.GAINED if _is_sound(judged, head, cached) else Effect.UNSOUND
    return Effect.LOST if _is_sound(judged, base, cached) else Effect.SOUND


def _is_sound(judged: Configuration | Layout, length: int, cached: set[Question]) -> bool:
    """Whether everything that a hit requires is cached, however far its lookup may peek."""
    return length == 0 or (
        length % judged.alignment == 0
        and all(
            (number, block) in cached
            for number, looked_up in enumerate(judged.looked_up)
            for block in required_run(looked_up.shape, length // looked_up.group.block_size)
        )
    )


def _servable(judged: Configuration, held: set[int], bound: int) -> set[int]:
    """The hits, in tokens, whose required run is registered."""
    shape, size = judged.shape, judged.group.block_size
    return {
        boundary * size
        for boundary in range(shape.segment, bound + 1, shape.segment)
        if held.issuperset(required_run(shape, boundary))
    }


def _held(registered: Sequence[Answer]) -> set[int]:
    return {block for block, held in enumerate(registered) if held}


def _words(fact: Fact) -> str:
    match fact.what:
        case "registered":
            return f"a request registered after {_listed(fact.given[0])} tokens"
        case "retained":
            num_tokens, interval = fact.given
            return f"a prompt of {in_tokens(num_tokens)}, {_retention(interval)}"
        case "hits":
            lengths, shared, interval = fact.given
            return (
                f"prompts of {_listed(lengths)} tokens that share the first {shared}, "
                f"{_retention(interval)}"
            )
        case _:
            return f"a lookup of at most {in_tokens(fact.given[0])}"


def _cached_words(judged: Configuration | Layout, cached: set[Question]) -> Iterator[str]:
    for number, looked_up in enumerate(judged.looked_up):
        blocks = _listed(sorted(block for owner, block in cached if owner == number))
        groups = " and ".join(map(str, looked_up.group_ids))
        yield f"cached blocks of group {groups}: {blocks or 'none'}"


def _retention(interval: int | None) -> str:
    return "dense retention" if interval is None else f"retention interval {interval}"


def _done(answer: Answer) -> str:
    return f"raises {answer}" if isinstance(answer, str) else f"hit of {in_tokens(answer)}"


def _listed(numbers: Iterable[int]) -> str:
    """Numbers in order, with "0-3" for 0, 1, 2, 3."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return ", ".join(f"{a}" if a == b else f"{a}{'-' if b > a + 1 else ', '}{b}" for a, b in runs)
