"""Transcripts: the recorded calls of a manager, turned into a history that makes the same calls.

A history says what is wanted, and `conformance.playing.player` makes the calls. Recorded calls
need not be those of a scheduler, so every history made here is played once against its transcript;
it ends before the first step that would make a different call. Extra lookups are allowed: between
a lookup and the admission that follows it, the player looks up once more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    HistoryError,
    Load,
    Loaded,
    Lookup,
    NewStep,
    Preempt,
    RequestInput,
    Reset,
    Schedule,
    Step,
)
from hitproof.conformance.playing.player import SKIPPED, Player
from hitproof.conformance.subject.managers import Allocation, Hit, Tables


@dataclass(frozen=True)
class Asked:
    """One call of a manager, by vLLM's names.

    Attributes:
        method: the method.
        request: the request's name; "" where the call is about none.
        num_computed_tokens: the request's computed tokens before the call.
        num_tokens: how many tokens it had.
        new_tokens: for ``allocate_slots``, tokens to compute, drafts included.
        hit: tokens of a local hit: looked up, or served to the allocation.
        external: tokens that a connector has.
        lookahead: further slots.
        delayed: whether blocks are registered later.
        must_fit: whether blocks for the whole request must be free.
        computed: for ``cache_blocks``, up to how many tokens.
        evicted: for ``evict_blocks``, the request, the group and the blocks of its prefix.
        done: whether the call succeeded: allocation and reset may fail.
    """

    method: str
    request: str = ""
    num_computed_tokens: int = 0
    num_tokens: int = 0
    new_tokens: int = 0
    hit: int = 0
    external: int = 0
    lookahead: int = 0
    delayed: bool = False
    must_fit: bool = False
    computed: int = 0
    evicted: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    done: bool = True


@dataclass
class Transcript:
    """The recorded calls of one manager.

    Attributes:
        engine: its configuration, as far as it is known beforehand.
        requests: the requests by name; their outputs grow.
        calls: the calls in order.
        ended: why recording stopped early, or "".
    """

    engine: EngineConfiguration
    requests: dict[str, RequestInput] = field(default_factory=dict)
    calls: list[Asked] = field(default_factory=list)
    ended: str = ""


class _Differs(Exception):
    """The player makes another call than the recorded one; the message says which."""


def history_of(transcript: Transcript) -> tuple[History | None, str]:
    """The longest history that makes the recorded calls, from the first one on, if there is one.

    And why it ends before the transcript does, or ""; the history's ``about`` also says so.
    """
    calls = transcript.calls
    steps = list(_steps(calls))
    lookahead = max((c.lookahead for c in calls), default=0)
    drafted = (step.drafts for step, _ in steps if isinstance(step, Schedule))
    # The engine's own drafts are known where Mamba keeps blocks for them.
    drafts = max(transcript.engine.num_speculative_tokens, lookahead, *drafted)
    engine = replace(
        transcript.engine,
        num_speculative_tokens=drafts,
        num_lookahead_tokens=lookahead if lookahead < drafts else None,
        full_sequence_must_fit=any(c.must_fit for c in calls),
    )
    try:
        history = History(engine, _readers(transcript), tuple(step for step, _ in steps))
    except HistoryError as error:
        return None, str(error)
    script: Any = _Script(calls)
    player = Player(history, script)
    played, why = 0, transcript.ended
    for step, end in steps:
        script.end = end
        try:
            deviation = player.play(step)
            # The script does not know which blocks are cached.
            if deviation.startswith(SKIPPED) and not isinstance(step, Evict):
                raise _Differs(deviation)
            script.finish(step)
        except _Differs as differs:
            why = str(differs)
            break
        played += 1
    kept = history.steps[:played]
    named = {getattr(step, "request", None) for step in kept}
    if not named - {None}:
        return None, why
    requests = {name: request for name, request in history.requests.items() if name in named}
    about = f"Recorded. It ends where {why}." if why else "Recorded."
    return replace(history, requests=requests, steps=kept, about=about), why


def _readers(transcript: Transcript) -> dict[str, RequestInput]:
    """The requests; those that are admitted without a lookup read no cache."""
    looked_up = {c.request for c in transcript.calls if c.method == "get_computed_blocks"}
    return {
        name: request if name in looked_up else replace(request, skip_reading_prefix_cache=True)
        for name, request in transcript.requests.items()
    }


def _steps(calls: Sequence[Asked]) -> Iterable[tuple[Step, int]]:
    """The steps, each with the number of calls that are done after it."""
    running: dict[str, None] = {}
    loading: dict[str, int] = {}
    number = 0
    while number < len(calls):
        call, name = calls[number], calls[number].request
        number += 1
        match call.method:
            case "get_computed_blocks":
                following = calls[number] if number < len(calls) else None
                if following is None or (following.method, following.request) != (
                    "allocate_slots",
                    name,
                ):
                    yield Lookup(name), number
            case "allocate_slots" if call.delayed:
                if call.done:
                    loading[name] = call.hit + call.external
                yield Load(name, max(call.external, 1), exactly=True), number
            case "allocate_slots":
                drafts = max(0, call.num_computed_tokens + call.new_tokens - call.num_tokens)
                if name not in running:
                    drafts = 0
                    if call.done:
                        running[name] = None
                elif not call.done:
                    number = _after_preemptions(calls, number, name, running)
                accepted = _accepted(calls, number, name, call) if drafts else 0
                wanted = max(1, call.new_tokens - drafts)
                yield (
                    Schedule(name, wanted, drafts, accepted, call.external, exactly=True),
                    number,
                )
            case "cache_blocks":
                whole = call.computed == loading.pop(name, None)
                yield Loaded(name, None if whole else call.computed), number
            case "free" if name in loading:
                del loading[name]
                yield Loaded(name, 0), number
            case "free":
                again = name in running and any(c.request == name for c in calls[number:])
                running.pop(name, None)
                yield Preempt(name) if again else Finish(name), number
            case "evict_blocks":
                for prefix, group, blocks in call.evicted:
                    yield Evict(prefix, group, blocks), number
            case "reset_prefix_cache":
                yield Reset(), number
            case "new_step_starts":
                yield NewStep(), number


def _after_preemptions(
    calls: Sequence[Asked], number: int, name: str, running: dict[str, None]
) -> int:
    """Other requests are freed until this one has space; returns the number of calls."""
    while number < len(calls):
        call = calls[number]
        if call.method == "free" and call.request in running:
            del running[call.request]
            number += 1
            if call.request == name:
                break
        elif (call.method, call.request) == ("allocate_slots", name):
            number += 1
            if call.done:
                break
        else:
            break
    return number


def _accepted(calls: Sequence[Asked], number: int, name: str, call: Asked) -> int:
    """How many drafts were right, judging by the request's tokens at its next call."""
    later = next((c for c in calls[number:] if c.request == name), None)
    return 0 if later is None else max(0, later.num_tokens - call.num_tokens - 1)


class _Script:
    """A manager that answers as the recorded one did, and rejects other calls."""

    def __init__(self, calls: Sequence[Asked]) -> None:
        self._calls = calls
        self._next = 0
        self.end = 0

    def finish(self, step: Step) -> None:
        """The step is over: check that all of its recorded calls were made."""
        if isinstance(step, (NewStep, Lookup)):
            self._next = max(self._next, self.end)
        if self._peek() is not None and not isinstance(step, Evict):
            raise _Differs(f"{self._calls[self._next].method} was called without need")
        if isinstance(step, Evict):
            self._next = self.end

    def _peek(self) -> Asked | None:
        """The next call of this step that is not a lookup."""
        while self._next < self.end and self._asks_nothing(self._calls[self._next]):
            self._next += 1
        return self._calls[self._next] if self._next < self.end else None

    @staticmethod
    def _asks_nothing(call: Asked) -> bool:
        free = call.method in ("get_computed_blocks", "new_step_starts")
        return free or (call.method == "evict_blocks" and not call.evicted)

    def _take(self, method: str, name: str = "") -> Asked:
        call = self._peek()
        if call is None or (call.method, call.request) != (method, name):
            found = "nothing" if call is None else f"{call.method} of {call.request or 'all'}"
            raise _Differs(f"a scheduler would call {method} of {name or 'all'}, not {found}")
        self._next += 1
        return call

    def get_computed_blocks(self, name: str) -> Hit:
        """The hit that the request was admitted with, or that the lookup found."""
        following = self._calls[self._next : self.end]
        served = next(
            (c.hit for c in following if c.method == "allocate_slots" and c.request == name), None
        )
        found = [c.hit for c in following if c.request == name]
        return Hit(served if served is not None else found[-1] if found else 0, ())

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        """Rejected unless it asks for the recorded tokens."""
        call = self._take("allocate_slots", name)
        wanted = (
            allocation.num_new_tokens,
            0 if allocation.hit is None else allocation.hit.length,
            allocation.num_lookahead_tokens,
            allocation.num_external_computed_tokens,
            allocation.delay_cache_blocks,
        )
        asked = call.new_tokens, call.hit, call.lookahead, call.external, call.delayed
        if wanted != asked:
            raise _Differs(
                f"request {name} would be given slots for {wanted[0]} new tokens, a hit of "
                f"{wanted[1]}, {wanted[2]} ahead, {wanted[3]} external ones; it is {asked[:4]}"
            )
        return () if call.done else None

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        """Rejected unless it registers the recorded tokens."""
        if self._take("cache_blocks", name).computed != num_computed_tokens:
            raise _Differs(f"request {name} would be cached up to {num_computed_tokens} tokens")

    def free(self, name: str) -> None:
        """Rejected unless it frees the recorded request."""
        self._take("free", name)

    def reset_prefix_cache(self) -> bool:
        """The recorded result."""
        return self._take("reset_prefix_cache").done

    def __getattr__(self, method: str) -> Any:
        """All else is not checked: the next call shows what came, and steps say what is evicted."""
        return lambda *_: ()
