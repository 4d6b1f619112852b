"""What was asked of a manager becomes a history that asks the same, or ends where it would not."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.json_format import as_json, read, write
from hitproof.conformance.histories.schema import (
    Finish,
    History,
    Hold,
    Release,
    RequestInput,
    Results,
    Schedule,
    Sent,
    Take,
)
from hitproof.conformance.playing.player import Player
from hitproof.conformance.playing.transcript import Asked, Transcript, history_of
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.managers import Allocation, Hit, Progress, Tables

REFERENCE = ReferenceManagers()


class Noted:
    """The reference's manager, of which every call is noted."""

    def __init__(self, played: History) -> None:
        self.manager = REFERENCE.start(played.engine)
        self.transcript = Transcript(played.engine)
        self._progress: dict[str, int] = {}

    def _note(self, method: str, name: str, **more: Any) -> None:
        request = self.transcript.requests[name]
        self._add(Asked(method, name, self._progress.get(name, 0), len(request.token_ids), **more))

    def _add(self, asked: Asked) -> None:
        if not self.transcript.ended:
            self.transcript.calls.append(asked)

    def add_request(self, name: str, request: RequestInput) -> None:
        self.transcript.requests[name] = replace(request, output=())
        self.manager.add_request(name, request)

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        known = self.transcript.requests[name]
        self.transcript.requests[name] = replace(known, output=known.output + tuple(token_ids))
        self.manager.append_output(name, token_ids)

    def set_progress(self, name: str, progress: Progress) -> None:
        self._progress[name] = progress.num_computed_tokens
        self.manager.set_progress(name, progress)

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return self.manager.block_keys(name, group)

    def cached_blocks(self, group: int, key: Any) -> Sequence[int]:
        return self.manager.cached_blocks(group, key)

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.manager.get_computed_blocks(name)
        self._note("get_computed_blocks", name, hit=hit.length)
        return hit

    def allocate_slots(self, name: str, allocation: Allocation) -> Tables | None:
        new = self.manager.allocate_slots(name, allocation)
        self._note(
            "allocate_slots",
            name,
            new_tokens=allocation.num_new_tokens,
            hit=0 if allocation.hit is None else allocation.hit.length,
            external=allocation.num_external_computed_tokens,
            lookahead=allocation.num_lookahead_tokens,
            delayed=allocation.delay_cache_blocks,
            must_fit=allocation.full_sequence_must_fit,
            done=new is not None,
        )
        return new

    def cache_blocks(self, name: str, num_computed_tokens: int) -> None:
        self.manager.cache_blocks(name, num_computed_tokens)
        self._note("cache_blocks", name, computed=num_computed_tokens)

    def free(self, name: str) -> None:
        self.manager.free(name)
        self._note("free", name)

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        gone = set(block_ids)
        held = tuple(
            (name, group, tuple(place for place, block in enumerate(table) if block in gone))
            for name, tables in self.manager.observe().tables.items()
            for group, table in enumerate(tables)
            if gone & set(table)
        )
        tables = self.manager.observe().tables.values()
        if gone - {block for of_all in tables for table in of_all for block in table}:
            self.transcript.ended = "blocks are evicted that no request holds"
        self.manager.evict_blocks(gone)
        self._add(Asked("evict_blocks", evicted=held))

    def reset_prefix_cache(self) -> bool:
        done = self.manager.reset_prefix_cache()
        self._add(Asked("reset_prefix_cache", done=done))
        return done

    def new_step_starts(self) -> None:
        self.manager.new_step_starts()
        self._add(Asked("new_step_starts"))

    def observe(self) -> Any:
        return self.manager.observe()


def noted(played: History) -> Transcript:
    manager = Noted(played)
    player = Player(played, manager)
    for step in played.steps:
        player.play(step)
    return manager.transcript


def asks(transcript: Transcript) -> list[Asked]:
    """The calls that are not free; evictions are named by the holders of the blocks."""
    free = ("get_computed_blocks", "new_step_starts", "evict_blocks")
    return [call for call in transcript.calls if call.method not in free]


def in_turn(played: History) -> History:
    """The history with nothing in flight or held from outside, of which no history is made."""
    steps = (replace(s, in_flight=False) if isinstance(s, Schedule) else s for s in played.steps)
    ended = (replace(s, sending=False) if isinstance(s, Finish) else s for s in steps)
    left_out = Results, Sent, Hold, Take, Release
    return replace(played, steps=tuple(step for step in ended if not isinstance(step, left_out)))


@pytest.mark.parametrize("seed", range(60))
def test_a_history_made_of_calls_makes_the_same_calls(seed: int) -> None:
    transcript = noted(in_turn(history(seed)))
    made, why = history_of(transcript)
    assert why == transcript.ended
    if made is None:
        assert not asks(transcript)
        return
    assert read(write(made)) == made
    assert as_json(made)["about"].startswith("Recorded.")
    assert asks(noted(made)) == asks(transcript)


def test_it_ends_where_no_scheduler_would_ask_so() -> None:
    transcript = noted(history(3))
    number, call = next(
        (n, c) for n, c in enumerate(transcript.calls) if c.method == "allocate_slots" and n > 5
    )
    whole, _ = history_of(transcript)
    transcript.calls[number] = replace(call, new_tokens=call.new_tokens + 1000)
    made, why = history_of(transcript)
    assert "would be given slots" in why
    assert whole is not None
    assert made is not None
    assert made.steps == whole.steps[: len(made.steps)]
    assert 0 < len(made.steps) < len(whole.steps)
    assert made.about == f"Recorded. It ends where {why}."


def test_it_ends_where_the_notes_do_and_leaves_out_other_requests() -> None:
    transcript = noted(history(3))
    transcript.ended = "the cache was changed past the manager"
    del transcript.calls[3:]
    made, why = history_of(transcript)
    assert why == transcript.ended
    assert made is not None
    named = {step.request for step in made.steps if isinstance(step, Schedule)}
    assert made.requests.keys() >= named
    assert len(made.requests) < len(transcript.requests)
