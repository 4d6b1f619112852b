"""Families for hits inside blocks: what the end of a prompt leaves in the cache, and what hits it.

Block sizes are a few hash units, and prompts end at each position in a block. A producer computes
its prompt and decodes past the end of the block that its prompt ended in. Before, during and after
that, other requests resend the prompt, extend it, or diverge inside it. So several requests share
the last block of a hit and continue to write it, which takes copies; each of them reads, in each
of its steps, everything that it should have kept. Then blocks are evicted, and the rest is looked
up.

`conformance.judge.judged_replay` judges all of it where the release has such hits; see
`spec.releases.fine`. The first histories are the most revealing.
"""

from collections.abc import Callable, Iterator
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

_Tale = Callable[[EngineConfiguration, int, int | None], History]

_FULL, _MAMBA = GroupKind.FULL_ATTENTION, GroupKind.MAMBA


def fine_engines() -> Iterator[EngineConfiguration]:
    """Engines whose hits may end inside blocks.

    Blocks as large as each other, larger and smaller, of two hash units and of more; a window
    beside them, whose blocks are hash units; two sizes of full attention. Without EAGLE and with
    it, with and without drafts; dense and sparse; with states exported from inside chunks, and
    states kept where shared prefixes end; with hashes that look ahead.
    """
    full, states, drafted = Group(_FULL, 4), Group(_MAMBA, 4), Group(_FULL, 4, eagle=True)
    plain = EngineConfiguration((full, states), 100, 2, 32)
    eagle = replace(plain, groups=(drafted, states), use_eagle=True)
    yield plain
    yield eagle
    yield replace(plain, mamba_checkpoint_alignment=2)
    yield replace(eagle, mamba_shared_prefix_checkpoint=True)
    yield replace(eagle, mamba_checkpoint_alignment=2)
    yield replace(plain, mamba_checkpoint_alignment=2, retention_interval=0)
    yield replace(plain, hash_block_size=1)
    yield replace(eagle, retention_interval=0)
    yield replace(eagle, mamba_checkpoint_alignment=2, retention_interval=12)
    yield replace(eagle, groups=(full, Group(_FULL, 8, eagle=True), states), max_model_len=64)
    yield replace(plain, use_eagle=True, num_speculative_tokens=2)
    yield replace(plain, groups=(full, Group(_MAMBA, 8)), max_model_len=64)
    yield replace(plain, groups=(Group(_FULL, 2), states))
    yield replace(plain, groups=(Group(_FULL, 8), states), max_model_len=64)
    window = Group(GroupKind.SLIDING_WINDOW, 2, window=3)
    yield replace(plain, groups=(full, window, states))
    yield replace(eagle, groups=(full, replace(window, eagle=True), states))
    yield replace(eagle, mamba_shared_prefix_checkpoint=True, retention_interval=0)
    yield replace(plain, retention_interval=8, hash_block_size=1)
    ahead = replace(eagle, num_hash_lookahead_tokens=1)
    yield ahead
    yield replace(ahead, mamba_shared_prefix_checkpoint=True, retention_interval=0)
    yield replace(ahead, mamba_checkpoint_alignment=2)
    yield replace(plain, mamba_checkpoint_alignment=2, retention_interval=8)
    yield replace(eagle, mamba_checkpoint_alignment=2, retention_interval=8)


def fine_families(engine: EngineConfiguration, first: int = 0) -> Iterator[History]:
    """The histories of an engine: each scenario with a prompt end at each position in a block.

    Scenario number ``first`` comes first. Prompt lengths rotate as well, so the first few histories
    have different ones.
    """
    align = engine.alignment
    sizes = [group.block_size for group in engine.groups if group.kind is _FULL]
    tales: tuple[_Tale, ...] = (_sharing, _at_once, _resumed, _junction, _life, _evicting)
    # With two sizes of full attention vLLM loses hits when blocks are evicted: the second is looked
    # up no further than the first has served, though a later entry would be a witness.
    tales = tales[:2] if len(set(sizes)) > 1 else tales
    lengths = [*range(3 * align, 2 * align, -1), align, align - 1]
    for turn in range(len(lengths)):
        for number in range(first, first + len(tales)):
            chunk = align if (turn + number) % 2 else None
            tell = tales[number % len(tales)]
            yield tell(engine, lengths[(turn + number) % len(lengths)], chunk)


def fine_histories() -> Iterator[History]:
    """All of them, one of each engine in turn."""
    running = [fine_families(engine, first) for first, engine in enumerate(fine_engines())]
    while running:
        for family in list(running):
            history = next(family, None)
            if history is None:
                running.remove(family)
            else:
                yield history


def _requests(engine: EngineConfiguration, length: int) -> dict[str, RequestInput]:
    prompt = tuple(range(1, length + 1))
    most = engine.max_model_len
    # Past another boundary of a retention interval, where requests resume (`_resumed`).
    ends = min(engine.alignment + 4 + (engine.retention_interval or 0), most - length)
    output = tuple(range(7001, 7001 + ends))
    other = tuple(range(8001, 8001 + 2 * engine.alignment))
    requests = {
        "producer": RequestInput(prompt, output),
        "resend": RequestInput(prompt, tuple(range(7101, 7101 + engine.alignment))),
        "second": RequestInput(prompt, output),
        "extension": RequestInput((*prompt, *output, 7201, 7202)[:most]),
        "turn": RequestInput((*prompt, *other)[:most], (7301, 7302)),
    }
    for end in range(max(1, length - engine.alignment), length):
        requests[f"shorter {end}"] = RequestInput(prompt[: end + 1], (7400, 7401))
        requests[f"sibling {end}"] = RequestInput((*prompt[:end], *other)[:most])
    return requests


def _lookups(requests: dict[str, RequestInput]) -> list[Step]:
    return [Lookup(name) for name in requests if name != "producer"]


def _life(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """The producer alone, with a lookup after each step from the end of its prompt on."""
    requests = _requests(engine, length)
    lookups = _lookups(requests)[:6]
    steps: list[Step] = [Schedule("producer", chunk)] * (1 if chunk is None else length // chunk)
    drafts = engine.num_speculative_tokens
    for number in range(engine.alignment + 3):
        steps += [Schedule("producer", None, drafts, number % (drafts + 1)), *lookups]
    steps += [NewStep(), Finish("producer"), *lookups, Schedule("resend"), Schedule("resend")]
    return History(engine, requests, tuple(steps))


def _sharing(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """Others resend the prompt, extend it and diverge from it while the producer continues."""
    requests = _requests(engine, length)
    few = [Lookup("resend"), Lookup("turn")]
    steps: list[Step] = [Schedule("producer", chunk)] * 6
    drafts = engine.num_speculative_tokens
    steps += [Schedule("resend"), Schedule("second"), Schedule("producer", None, drafts, 1)]
    middle = max(1, length - engine.alignment // 2)
    names = ["turn", f"sibling {middle}", "extension", f"shorter {length - 1}"]
    running = ["producer", "resend", "second"]
    for name in names:
        steps += [NewStep(), Schedule(name), *few]
        running.append(name)
        for other in running:
            steps.append(Schedule(other, None, drafts, 0))
    steps += [NewStep(), Preempt("resend"), Preempt("producer"), NewStep()]
    for name in running:
        steps += [Schedule(name)]
    for name in running:
        steps += [NewStep(), Finish(name), *few]
    return History(engine, requests, tuple(steps))


def _at_once(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """Others arrive in the very steps in which the producer computes what they could hit."""
    requests = _requests(engine, length)
    names = ["resend", "second", "turn", "extension"]
    steps: list[Step] = []
    for _ in range(5):
        steps += [Schedule("producer", chunk), *map(Schedule, names[:2])]
    for _ in range(3):
        steps += [Schedule(name) for name in ("producer", *names)]
    steps += [Lookup("resend"), *map(Finish, names), Lookup("turn")]
    return History(engine, requests, tuple(steps))


def _resumed(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """A request is preempted repeatedly, and recomputes its output like a prompt.

    In every second round a chunk ends within the output.
    """
    requests = _requests(engine, length)
    steps: list[Step] = [Schedule("producer", chunk)] * 5
    blocks = tuple(range(engine.max_model_len))
    within = (length // engine.alignment + 1) * engine.alignment
    for turn in range(engine.alignment + 1 + (engine.retention_interval or 0)):
        steps += [NewStep(), Preempt("producer")]
        steps += [Evict("producer", group, blocks) for group in range(len(engine.groups))]
        steps += [Schedule("producer", within if turn % 2 else None), Schedule("producer")]
        steps += [Lookup("extension"), Lookup("turn")]
    steps += [NewStep(), Finish("producer"), Schedule("extension"), Schedule("extension")]
    return History(engine, requests, tuple(steps))


def _junction(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """States of the prompt are evicted, so that others find how far the rest of it is shared."""
    requests = _requests(engine, length)
    few = [Lookup("resend"), Lookup("turn"), Lookup("second")]
    steps: list[Step] = [Schedule("producer", chunk)] * 5
    steps += [NewStep(), Finish("producer")]
    group = len(engine.groups) - 1
    blocks = tuple(range(length // engine.groups[group].block_size + 1))
    steps += [Evict("producer", group, blocks), *few]
    steps += [Schedule("turn"), Schedule("turn"), Schedule("turn"), *few]
    steps += [Schedule("extension"), Schedule("second"), Schedule("turn"), Schedule("second")]
    steps += [NewStep(), Finish("turn"), Finish("second"), *few, Schedule("resend")]
    return History(engine, requests, tuple(steps))


def _evicting(engine: EngineConfiguration, length: int, chunk: int | None) -> History:
    """Blocks of the prompt are evicted one by one, from its end, and lookups repeated."""
    requests = _requests(engine, length)
    lookups = _lookups(requests)[:5]
    steps: list[Step] = [Schedule("producer", chunk)] * (engine.alignment + 4)
    steps += [NewStep(), Finish("producer"), *lookups]
    for block in range(length // min(g.block_size for g in engine.groups), 0, -1):
        for number in range(len(engine.groups)):
            steps += [Evict("producer", number, (block,)), *lookups]
        steps += [NewStep(), Schedule("resend"), NewStep(), Finish("resend")]
    return History(engine, requests, tuple(steps))
