"""vLLM's block pool and block hashes, for any release."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

from hitproof.conformance.histories.schema import RequestInput
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.subject.pools import Key, PoolSnapshot
from hitproof.vllm_integration.adapter.cache import block_ids, free_queue
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    call,
    parameters_of,
    spelled,
)


class VllmPools:
    """Makes real ``BlockPool``s, and the requests whose blocks they register.

    ``pools`` and ``utils`` are the target's modules ``block_pool`` and ``kv_cache_utils``;
    ``new_request`` makes a ``Request``. A check makes thousands of pools, so signatures are
    inspected only once.
    """

    def __init__(
        self, pools: ModuleType, utils: ModuleType, new_request: Callable[..., Any]
    ) -> None:
        self._class = attribute(pools, "BlockPool")
        self._utils = utils
        self._new_request = new_request
        self._requests: dict[bytes, Any] = {}

    def __call__(self, num_blocks: int) -> "VllmPool":
        """A new pool of ``num_blocks`` blocks."""
        keywords = {**self._keywords, "num_gpu_blocks": num_blocks}
        pool = self._class(**spelled(self._class, keywords))
        return VllmPool(pool, self._utils, self._registration)

    @cached_property
    def _keywords(self) -> dict[str, Any]:
        values = {"enable_caching": True, "hash_block_size": 1}
        call(self._class, {"num_gpu_blocks": 2, **values}, "BlockPool")
        return arguments(self._class, values, "BlockPool", given=("num_gpu_blocks",))

    def _registration(self, block: Any, key: Key) -> dict[str, Any]:
        """The arguments that register a block as the only one of a request."""
        block_hash, group = key
        if block_hash not in self._requests:
            self._requests[block_hash] = self._new_request(prompt_token_ids=[0])
            self._requests[block_hash].block_hashes = [block_hash]
        values = {
            "request": self._requests[block_hash],
            "blocks": [block],
            "num_cached_blocks": 0,
            "num_full_blocks": 1,
            "block_size": 1,
            "kv_cache_group_id": group,
        }
        named = {name: values[name] for name in self._registers}
        return spelled(attribute(self._class, "cache_full_blocks"), named)

    @cached_property
    def _registers(self) -> tuple[str, ...]:
        names = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
        values = dict.fromkeys((*names, "kv_cache_group_id"))
        where = "BlockPool.cache_full_blocks"
        function = attribute(self._class, "cache_full_blocks")
        return tuple(arguments(function, values, where, given=("self",)))


class VllmPool:
    """A real ``BlockPool``, its blocks by their numbers: `conformance.subject.pools.Pool`.

    ``registration`` gives the arguments of ``cache_full_blocks`` for a block and a key.
    """

    def __init__(
        self, pool: Any, utils: ModuleType, registration: Callable[[Any, Key], dict[str, Any]]
    ) -> None:
        self._pool = pool
        self._utils = utils
        self._registration = registration
        self._reused: list[int] = []

    def get_new_blocks(self, count: int) -> list[int]:
        """See `conformance.subject.pools.Pool`, here and below."""
        return [block.block_id for block in self._pool.get_new_blocks(count)]

    def touch(self, blocks: Sequence[int]) -> None:
        """Like touching a lookup's blocks when a request is admitted."""
        self._pool.touch(self._blocks(blocks))

    def free_blocks(self, blocks: Sequence[int]) -> None:
        """Frees in the given order."""
        self._pool.free_blocks(self._blocks(blocks))

    @property
    def can_unpin(self) -> bool:
        """See `conformance.subject.pools.UnpinningPool`, here and below."""
        return hasattr(self._pool, "unpin_blocks")

    def unpin_blocks(self, blocks: Sequence[int]) -> None:
        """Like HiSparse, which reads the blocks of finished requests."""
        self._pool.unpin_blocks(
            self._blocks(blocks), lambda block: self._reused.append(block.block_id)
        )

    def take_reused(self) -> Sequence[int]:
        """What the callbacks were called for."""
        reused, self._reused = self._reused, []
        return reused

    def cache_full_block(self, block: int, key: Key) -> None:
        """Like the first block of a request that has that hash."""
        self._pool.cache_full_blocks(**self._registration(self._pool.blocks[block], key))

    def evict_blocks(self, blocks: Sequence[int]) -> None:
        """Like a KV connector's report of blocks that failed to load."""
        self._pool.evict_blocks(set(blocks))

    def reset_prefix_cache(self) -> bool:
        """Like the reset after an update of the weights."""
        return bool(self._pool.reset_prefix_cache())

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        """Like the question of a lookup."""
        found = self._pool.get_cached_block(block_hash, list(groups))
        return None if found is None else [block.block_id for block in found]

    def snapshot(self) -> PoolSnapshot:
        """Read off the real blocks, the real linked list and the real hash map."""
        pool = self._pool
        # Several keys for one block: from 0.32 on they are stored outside the block.
        more = getattr(pool, "cached_block_hashes_by_block", {})
        return PoolSnapshot(
            null_block=pool.null_block.block_id,
            ref_counts=tuple(block.ref_cnt for block in pool.blocks),
            free_queue=tuple(free_queue(pool)),
            free_count=pool.get_num_free_blocks(),
            carried=tuple(
                frozenset(
                    self._key(key)
                    for key in (block.block_hash, *more.get(block.block_id, ()))
                    if key is not None
                )
                for block in pool.blocks
            ),
            named=frozenset(self._entries()),
        )

    def _entries(self) -> Iterator[tuple[Key, int]]:
        entries = attribute(attribute(self._pool, "cached_block_hash_to_block"), "_cache")
        for key, held in entries.items():
            for block in block_ids(held):
                yield self._key(key), block

    def _key(self, key: Any) -> Key:
        return self._utils.get_block_hash(key), self._utils.get_group_id(key)

    def _blocks(self, numbers: Sequence[int]) -> list[Any]:
        return [self._pool.blocks[number] for number in numbers]


HASH_LOOKAHEAD = "num_hash_lookahead_tokens"
PREFILL_LOOKAHEAD = "num_prefill_lookahead"


def block_hasher(
    utils: ModuleType, hash_function: Any, hash_block_size: int, hash_lookahead: int
) -> Callable[[Any], list[bytes]]:
    """The target's own hasher of requests; ``utils`` is its module ``kv_cache_utils``."""
    values = {
        "hash_block_size": hash_block_size,
        "block_size": hash_block_size,
        "caching_hash_fn": hash_function,
        HASH_LOOKAHEAD: hash_lookahead,
    }
    make = "get_request_block_hasher"
    hasher: Callable[[Any], list[bytes]] = call(attribute(utils, make), values, make)
    return hasher


class BlockHashes:
    """The block hashes of a real request, computed with vLLM's SHA-256.

    ``utils`` is the target's module ``kv_cache_utils``; ``new_request`` makes a ``Request``.
    """

    def __init__(self, utils: ModuleType, new_request: Callable[..., Any]) -> None:
        self._utils = utils
        self._new_request = new_request
        self._adapters: dict[tuple[str, str], int] = {}
        self._hashers: dict[tuple[int, int], Callable[[Any], list[bytes]]] = {}

    def __call__(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """See `conformance.subject.hashing.HashSubject.block_hashes`."""
        if (hash_block_size, hash_lookahead) not in self._hashers:
            self._hashers[hash_block_size, hash_lookahead] = self._hasher(
                hash_block_size, hash_lookahead
            )
        hasher = self._hashers[hash_block_size, hash_lookahead]
        request = self._new_request(
            prompt_token_ids=list(prompt.given),
            cache_salt=prompt.salt or None,
            lora_request=self._adapter(*prompt.adapter),
            mm_features=image_features(prompt.images),
            prompt_embeds=embeddings(prompt.embeddings),
            prompt_is_token_ids=list(prompt.is_token_ids) or None,
            block_hasher=hasher,
        )
        if prompt.generated:
            request.append_output_token_ids(list(prompt.generated))
        hashes = request.block_hashes
        if block_size != hash_block_size:
            view = attribute(self._utils, "BlockHashListWithBlockSize")
            hashes = view(hashes, hash_block_size, block_size)
        return [bytes(hashes[block]) for block in range(len(hashes))]

    def can_look_ahead(self) -> bool:
        """Whether a hash can cover tokens past its block."""
        make = attribute(self._utils, "get_request_block_hasher")
        return HASH_LOOKAHEAD in parameters_of(make)

    def _hasher(self, size: int, lookahead: int) -> Callable[[Any], list[bytes]]:
        from vllm.utils.hashing import sha256

        attribute(self._utils, "init_none_hash")(sha256)
        return block_hasher(self._utils, sha256, size, lookahead)

    def _adapter(self, name: str, path: str) -> Any:
        from vllm.lora.request import LoRARequest

        if not name:
            return None
        number = self._adapters.setdefault((name, path), len(self._adapters) + 1)
        values = {"lora_name": name, "lora_int_id": number, "lora_path": path}
        return call(LoRARequest, values, "LoRARequest")


def image_features(images: Iterable[tuple[str, int, int]]) -> list[Any]:
    """Images as requests have them: of each its identifier, offset and length in tokens."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    return [
        call(
            MultiModalFeatureSpec,
            {
                "data": None,
                "modality": "image",
                "identifier": identifier,
                "mm_position": PlaceholderRange(offset=offset, length=length),
            },
            "MultiModalFeatureSpec",
        )
        for identifier, offset, length in images
    ]


def embeddings(values: Sequence[int]) -> Any:
    """A row for each token; None without any."""
    import torch

    return torch.tensor([[float(value)] for value in values]) if values else None


def embedded_prompt(request: RequestInput, real: Any) -> dict[str, Any]:
    """The arguments of a real ``Request`` whose prompt comes as embeddings, or as some."""
    rows, places = request.embedded, range(len(request.prompt))
    if not rows:
        return {}
    is_token_ids = [place not in rows for place in places]
    if any(is_token_ids) and "prompt_is_token_ids" not in parameters_of(real):
        raise CannotJudge(
            "no prompt of this release comes as embeddings in part; have all of it come so, or "
            "name a later release"
        )
    return {
        "prompt_embeds": embeddings([rows.get(place, 0) for place in places]),
        "prompt_is_token_ids": is_token_ids if any(is_token_ids) else None,
    }
