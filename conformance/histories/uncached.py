"""Histories without prefix caching: no hit is found, and blocks are given and taken back alike.

Two requests with one text compute it each for itself, one of them in chunks, while a third gets
tokens from a connector. One is preempted and computed again. A fourth has one token.
"""

from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
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
from hitproof.spec.groups import Group, GroupKind

_FULL = Group(GroupKind.FULL_ATTENTION, 2)
_LONGEST = 32
"""The longest request, in tokens."""


def uncached_engines() -> Iterator[EngineConfiguration]:
    """Engines of one group and of several; with drafts, with few blocks, and with admission."""
    window = Group(GroupKind.SLIDING_WINDOW, 2, window=5)
    chunks = Group(GroupKind.CHUNKED_LOCAL, 4, chunk=8)
    state = Group(GroupKind.MAMBA, _LONGEST)
    plain = EngineConfiguration((_FULL,), 60, 2, _LONGEST, enable_prefix_caching=False)
    yield replace(plain, groups=(_FULL, state), num_speculative_tokens=2)
    yield plain
    yield replace(plain, groups=(_FULL, state), max_num_batched_tokens=6)
    yield replace(plain, groups=(window, _FULL), full_sequence_must_fit=True, num_gpu_blocks=34)
    drafted = replace(_FULL, eagle=True), window
    yield replace(plain, groups=drafted, use_eagle=True, num_speculative_tokens=1)
    yield replace(plain, groups=(_FULL, chunks), num_gpu_blocks=20, max_num_batched_tokens=9)


def uncached_histories() -> Iterator[History]:
    """One history of each engine."""
    text, output = tuple(range(1, 23)), tuple(range(500, 506))
    for engine in uncached_engines():
        requests = {
            "first": RequestInput(text, output),
            "second": RequestInput(text, output),
            "loaded": RequestInput((*text[:12], *range(100, 108)), output[:2]),
            "short": RequestInput(text[:1], output[:1]),
        }
        yield History(engine, requests, tuple(_steps(engine)))


def _steps(engine: EngineConfiguration) -> Iterator[Step]:
    drafts = engine.num_speculative_tokens
    yield from [Schedule("first", 7)] * 4
    yield from (Lookup("second"), Schedule("second"), Load("loaded", 12), Schedule("short"))
    for step in range(3):
        yield Schedule("first", drafts=drafts, accepted=step % 2 * drafts)
        yield Schedule("second", drafts=drafts)
    yield from (Loaded("loaded"), Reset(), Preempt("first"), NewStep())
    yield from (Schedule("first"), Schedule("loaded"), Schedule("first"), Schedule("loaded"))
    yield from (Finish("second"), Schedule("short"), Finish("first"))
    yield from (Finish("loaded"), Finish("short"), Reset())
