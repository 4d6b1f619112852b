"""Families for several MTP modules: whose entries of draft layers a hit reuses.

With m modules an entry of the draft layers depends on the m tokens after its own. So others share a
text with the producer and diverge from it at each position around two boundaries: in the block past
a hit, in the next one, and before and after the last token that the hit's last entry depends on.
They come while the producer computes its prompt, when it has sampled one token, while it verifies
drafts and after it was preempted, and each of them reads what it hits. Before, a request has ended
whose last entries were computed from drafts only.

m is 1, 2 and 3, as many tokens as the draft layers' blocks have, and one more: then one dropped
block is too little. It is never more than the alignment, with which vLLM refuses to start.
"""

from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Lookup,
    NewStep,
    Preempt,
    RequestInput,
    Schedule,
    Step,
)
from hitproof.spec.groups import Group, GroupKind

_FULL, _MAMBA, _WINDOW = GroupKind.FULL_ATTENTION, GroupKind.MAMBA, GroupKind.SLIDING_WINDOW


def module_engines() -> Iterator[EngineConfiguration]:
    """Engines with several modules, whose draft layers' blocks are smaller, as large, and larger.

    Full attention alone and beside windows and states, dense and sparse, with hashes that look
    ahead as far as the modules do, and with hits that may end inside blocks, also where states
    are exported from inside chunks.
    """
    full, large = Group(_FULL, 2, eagle=True), Group(_FULL, 4)
    window, narrow = Group(_WINDOW, 2, window=3), Group(_WINDOW, 4, window=6)
    flagged, states = replace(window, eagle=True), Group(_MAMBA, 4)
    drafted = replace(large, eagle=True)
    yield _engine((large, flagged), 3)
    yield _engine((drafted, window), 4)
    yield _engine((large, window), 3)
    yield _engine((full,), 2)
    yield _engine((drafted, states), 3)
    yield _engine((large, flagged), 1)
    yield _engine((large, flagged), 2)
    yield _engine((drafted, states), 2)
    yield _engine((large, flagged), 3, num_hash_lookahead_tokens=3)
    yield _engine((large, flagged), 3, retention_interval=0)
    yield _engine((drafted, replace(window, window=5)), 2, retention_interval=0)
    yield _engine((drafted, window), 2, num_hash_lookahead_tokens=2, retention_interval=8)
    yield _engine((full, narrow), 3)
    yield _engine((drafted, states), 2, hash_block_size=4)
    yield _engine((drafted, states), 3, num_hash_lookahead_tokens=3)
    exporting = {"num_hash_lookahead_tokens": 2, "mamba_checkpoint_alignment": 2}
    yield _engine((drafted, states), 2, **exporting)
    yield _engine((drafted, states), 3, **exporting | {"num_hash_lookahead_tokens": 3})


def _engine(groups: tuple[Group, ...], ahead: int, **more: int) -> EngineConfiguration:
    """The engine of groups whose draft layers look ``ahead`` tokens ahead."""
    looking = tuple(replace(group, prefill_lookahead=ahead) for group in groups)
    values = {"hash_block_size": 2, "num_speculative_tokens": ahead} | more
    return EngineConfiguration(looking, 100, max_model_len=40, use_eagle=True, **values)  # type: ignore[arg-type]  # by name


def module_histories() -> Iterator[History]:
    """One history of each engine."""
    for number, engine in enumerate(module_engines()):
        yield _history(engine, number)


def _history(engine: EngineConfiguration, number: int) -> History:
    align, ahead = engine.alignment, engine.num_prefill_lookahead
    text = tuple(range(1, 4 * align + ahead + 1))
    length = 3 * align + 1 - number % 2
    requests = {"producer": RequestInput(text[:length], text[length:])}
    if ahead > 1:
        requests["short"] = RequestInput(text[: 2 * align], text[2 * align : 2 * align + 1])
    ends = range(2 * align - 1, min(3 * align + ahead + 1, len(text)))
    for end in ends:
        other = tuple(range(100 * end, 100 * end + align + ahead))
        requests[f"sibling {end}"] = RequestInput((*text[:end], *other), (9001, 9002, 9003))
    requests["resend"] = RequestInput(text[:length], text[length:])
    siblings = [name for name in requests if name.startswith("sibling")]
    short: list[Step] = [Schedule("short"), Finish("short")] if ahead > 1 else []
    return History(engine, requests, (*short, *_steps(engine, siblings)))


def _steps(engine: EngineConfiguration, siblings: list[str]) -> Iterator[Step]:
    align, ahead = engine.alignment, engine.num_prefill_lookahead
    looked_up: list[Step] = [*map(Lookup, siblings), Lookup("resend")]
    first, second, *rest = siblings
    yield Schedule("producer", 2 * align + 1)
    yield Schedule(first)
    for _ in range(4):
        yield Schedule("producer", align)
    yield from (*looked_up, Schedule(second), Schedule("resend"))
    for accepted in (0, ahead, 1):
        yield Schedule("producer", drafts=ahead, accepted=accepted)
        yield Schedule(first, drafts=ahead)
    yield from (*looked_up, NewStep(), Preempt("producer"), Schedule("resend", drafts=ahead))
    for name in rest:
        yield from (Schedule(name), Schedule(name, drafts=ahead), NewStep(), Finish(name))
    yield from (Schedule("producer"), Schedule("producer"), Finish("producer"), NewStep())
    for group, each in enumerate(engine.groups):
        yield from (Evict("producer", group, (3 * align // each.block_size,)), *looked_up)
    yield from (Schedule(second), Finish(second), Finish("resend"), Schedule(rest[-1]))
