"""Invariants of a block pool: no block leaks, and none is both free and in use."""

from collections import Counter
from collections.abc import Iterator, Mapping

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Name, Naming
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.subject.managers import Observation
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import is_fine_grained


def violated_invariants(
    engine: EngineConfiguration,
    requests: Mapping[str, RequestInput],
    prefixes: Naming,
    seen: Observation,
) -> Iterator[tuple[Code, str, str, frozenset[int]]]:
    """What is wrong with the pool: what must hold, what is seen instead, and of which blocks.

    No blocks are named where the count of free blocks is wrong, and no one block.
    """
    blocks, free = set(range(1, engine.num_gpu_blocks)), set(seen.free_queue)
    held = Counter(
        block for tables in seen.tables.values() for table in tables for block in table if block
    )
    held.update(seen.held_outside)
    if len(free) != len(seen.free_queue) or not free <= blocks:
        yield (
            Code.FREE_QUEUE_WRONG,
            "the free queue holds each free block once",
            f"free queue {seen.free_queue}",
            frozenset(Counter(seen.free_queue) - Counter(blocks)),
        )
    if seen.num_free_blocks != len(seen.free_queue):
        yield (
            Code.FREE_COUNT_WRONG,
            "the count of free blocks is the length of the free queue",
            f"{seen.num_free_blocks}, but {len(seen.free_queue)} in the queue",
            frozenset(),
        )
    if dict(held) != dict(seen.ref_counts):
        wrong = {
            block
            for block in held.keys() | seen.ref_counts.keys()
            if held[block] != seen.ref_counts.get(block, 0)
        }
        yield (
            Code.REFERENCE_COUNT_WRONG,
            "a reference count is the number of table entries",
            f"it is not of blocks {sorted(wrong)}",
            frozenset(wrong),
        )
    if free & held.keys():
        yield (
            Code.BLOCK_FREE_AND_IN_USE,
            "no block is free and in use",
            f"blocks {sorted(free & held.keys())} are",
            frozenset(free & held.keys()),
        )
    contents: dict[int, tuple[int, Name]] = {}
    for group, block, name in _contents(engine, requests, prefixes, seen):
        if contents.setdefault(block, (group, name)) != (group, name):
            first_group, first_name = contents[block]
            yield (
                Code.TWO_CONTENTS_IN_BLOCK,
                "a block in use holds one content",
                f"block {block} holds {first_name} for group {first_group} and {name} for "
                f"group {group}",
                frozenset({block}),
            )
    if blocks - free - held.keys():
        leaked = sorted(blocks - free - held.keys())
        yield (
            Code.BLOCK_LEAKED,
            "each block is free or in use",
            f"blocks {leaked} are neither",
            frozenset(leaked),
        )
    registered = Counter(block for ids in seen.cached.values() for block in ids)
    # A block may be registered under several prefixes that end inside it.
    most = max(registered.values(), default=0)
    once = most <= 1 or is_fine_grained(engine.groups, engine.hash_block_size)
    if not once or not registered.keys() <= blocks:
        yield (
            Code.BLOCK_UNDER_TWO_KEYS,
            "a block is registered under one key at most",
            f"registered {registered}",
            frozenset(b for b, times in registered.items() if times > 1 or b not in blocks),
        )
    if abs(seen.usage - (1 - len(free) / len(blocks))) > 1e-9:
        shown = f"usage {seen.usage}"
        yield Code.USAGE_WRONG, "usage is the share of blocks in use", shown, frozenset()


def unshared_heads(seen: Observation) -> Iterator[tuple[int, str, frozenset[int]]]:
    """Heads of tables that are said to be all requests', and are not.

    Each by its group, in words, and by the blocks of it that some request does not have there.
    """
    for request, counts in (seen.common_prefix or {}).items():
        for group, number in enumerate(counts):
            own = seen.tables[request][group]
            tables = [of_all[group] for of_all in seen.tables.values()]
            wrong = {
                block
                for place, block in enumerate(own[:number])
                if any(table[place : place + 1] != (block,) for table in tables)
            }
            if wrong or len(own) < number:
                yield group, f"{number} blocks of {request} are said to", frozenset(wrong - {0})


def _contents(
    engine: EngineConfiguration,
    requests: Mapping[str, RequestInput],
    prefixes: Naming,
    seen: Observation,
) -> Iterator[tuple[int, int, Name]]:
    """Each block in a table: its group, the block, and the prefix that it ends."""
    for request, tables in seen.tables.items():
        num_tokens = len(requests[request].token_ids)
        for group, table in enumerate(tables):
            if engine.mamba_checkpoint_alignment and engine.groups[group].kind is GroupKind.MAMBA:
                continue  # a state from inside a chunk is not in the block of its tokens
            size = engine.groups[group].block_size
            for position, block in enumerate(table):
                end = (position + 1) * size
                full = end <= num_tokens
                name = prefixes.name(request, end) if full else f"{request}[0:{end}]"
                if block:
                    yield group, block, name
