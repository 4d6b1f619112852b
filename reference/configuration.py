"""What configures a manager: the model's KV cache groups and the size of the pool."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hitproof.spec.admission import blocks_at_once
from hitproof.spec.groups import ConfigurationError, Group


@dataclass(frozen=True)
class KVCacheConfig:
    """The groups and the pool of a model. vLLM: ``KVCacheConfig``.

    Attributes:
        num_blocks: blocks in the pool, the null block included.
        kv_cache_groups: the groups, in the order of their ids.
        num_speculative_blocks: blocks that a Mamba group keeps for draft tokens
            (``MambaSpec.num_speculative_blocks``).
        max_concurrent_batches: steps that are scheduled before the results of the first are known.
    """

    num_blocks: int
    kv_cache_groups: tuple[Group, ...]
    num_speculative_blocks: int = 0
    max_concurrent_batches: int = 1


def scheduler_block_size(
    groups: Sequence[Group], hash_block_size: int, requested: int | None
) -> int:
    """The alignment of hits in tokens: ``requested``, or the LCM of all block sizes.

    Raises `ConfigurationError` when it is not a multiple of every block size, or when a group that
    takes part in prefix caching has blocks that are not a whole number of hash blocks.
    """
    sizes = [group.block_size for group in groups]
    aligned = math.lcm(hash_block_size, *sizes) if requested is None else requested
    for size in (hash_block_size, *sizes):
        if aligned < 1 or aligned % size:
            raise ConfigurationError(
                f"the scheduler block size ({aligned} tokens) must be a multiple of every block "
                f"size; {size} does not divide it"
            )
    for group in groups:
        if group.prefix_cacheable and group.block_size % hash_block_size:
            raise ConfigurationError(
                f"the hash block size ({hash_block_size} tokens) must divide every group's "
                f"block size; {group.block_size} is not a multiple of it"
            )
    return aligned


def max_admission_blocks(
    group: Group, max_num_batched_tokens: int, max_model_len: int
) -> int | None:
    """The most blocks that one request holds at once, or None when it holds all its blocks.

    Mamba groups count their states themselves. vLLM: ``max_admission_blocks_per_request``.
    """
    if group.window is None and group.chunk is None:
        return None
    return int(blocks_at_once(group, max_num_batched_tokens, max_model_len))
