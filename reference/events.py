"""Changes to the set of cached blocks, for consumers outside the engine.

The events and their fields are those of ``vllm.distributed.kv_events``. Hashes are the
reference's own (`reference.hashing`).
"""

from dataclasses import dataclass, field

MEDIUM_GPU = "GPU"


@dataclass
class BlockStored:
    """Full blocks of a request became cached, one after another, the first after a cached parent.

    ``token_ids`` has ``block_size`` tokens for each; a single block may have those of blocks before
    it, too, which are not cached. vLLM: ``BlockStored``.
    """

    block_hashes: list[bytes]
    parent_block_hash: bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    lora_name: str | None
    extra_keys: list[tuple[object, ...] | None]
    group_idx: int
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    medium: str = field(default=MEDIUM_GPU, kw_only=True)


@dataclass
class BlockRemoved:
    """No block is cached any more under these hashes. vLLM: ``BlockRemoved``."""

    block_hashes: list[bytes]
    group_idx: int
    medium: str = field(default=MEDIUM_GPU, kw_only=True)


@dataclass
class AllBlocksCleared:
    """The cache was reset. vLLM: ``AllBlocksCleared``."""


KVCacheEvent = BlockStored | BlockRemoved | AllBlocksCleared
