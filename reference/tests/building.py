"""Managers and requests for tests, and the few steps that most of them take."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from hitproof.reference.groups import Configuration
from hitproof.reference.manager import KVCacheManager, Tables
from hitproof.reference.pool import BlockPool
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA

HASH = 4
"""Tokens in a hash block, and in every block unless a test says otherwise."""


def manager(
    *groups: Group,
    num_blocks: int = 41,
    hash_block_size: int = HASH,
    max_model_len: int = 1000,
    max_num_batched_tokens: int = 1000,
    made: Callable[..., KVCacheManager] = KVCacheManager,
    pool: BlockPool | None = None,
    **options: Any,
) -> KVCacheManager:
    """A manager of ``num_blocks - 1`` usable blocks; one full-attention group by default."""
    groups = groups or (Group(FULL, HASH),)
    aligned = math.lcm(hash_block_size, *(group.block_size for group in groups))
    sizes = num_blocks, max_model_len, hash_block_size, aligned, max_num_batched_tokens
    return made(Configuration(groups, *sizes, **options), pool)


def request(name: str, tokens: Iterable[int], **options: Any) -> Request:
    return Request(name, tokens, **{"hash_block_size": HASH} | options)


def prefill(kv: KVCacheManager, new: Request) -> tuple[int, Tables]:
    """Look the request up and compute all of it in one step: its hit, and the new blocks."""
    blocks, hit, _ = kv.get_computed_blocks(new)
    allocated = kv.allocate_slots(new, new.num_tokens - hit, hit, blocks)
    assert allocated is not None
    new.num_computed_tokens = new.num_tokens
    return hit, allocated


def step(kv: KVCacheManager, running: Request, count: int) -> bool:
    """Compute ``count`` more tokens of a running request; whether there was room."""
    allocated = kv.allocate_slots(running, count)
    if allocated is None:
        return False
    running.num_computed_tokens += count
    return True


def decode(kv: KVCacheManager, running: Request, *tokens: int) -> bool:
    """Append sampled tokens and compute them."""
    running.append_output_token_ids(*tokens)
    return step(kv, running, len(tokens))


def finish(kv: KVCacheManager, *requests: Request) -> None:
    for each in requests:
        kv.free(each)
        each.num_computed_tokens = 0


def num_held(kv: KVCacheManager) -> int:
    """How many blocks requests hold; the null block is not theirs."""
    return len(kv.block_pool.blocks) - 1 - kv.block_pool.num_free_blocks


def free_ids(kv: KVCacheManager) -> list[int]:
    return [*kv.block_pool.free]


def cached_ids(kv: KVCacheManager, group: int = 0) -> set[int]:
    return {
        block.block_id
        for held, _, blocks in kv.block_pool.cached_blocks()
        for block in blocks
        if held == group
    }


def hit(kv: KVCacheManager, tokens: Iterable[int], **options: Any) -> int:
    """What a request of these tokens would hit now."""
    return kv.get_computed_blocks(request("probe", tokens, **options)).length
