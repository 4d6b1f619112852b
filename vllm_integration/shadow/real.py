"""A real manager's cache, tables and pool, read as they are and never changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hitproof.conformance.histories.naming import Name
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import Observation, Tables
from hitproof.vllm_integration.adapter.cache import block_ids, free_queue
from hitproof.vllm_integration.adapter.inspection import attribute

Entries = Mapping[Any, Any]
"""The hash map of a pool: a key's block, or several by their numbers."""


class Prefix(str):
    """The name of a prefix; remembers a request that has it, and where it ends in tokens."""

    request: Any
    end: int


def named(request: Any, end: int, hash_block_size: int) -> Prefix:
    """The name of a request's first ``end`` tokens: equal hashes are equal names."""
    unit = end // hash_block_size - 1
    hashed = 0 <= unit < len(request.block_hashes)
    text = bytes(request.block_hashes[unit]).hex() if hashed else f"{request.request_id}[0:{end}]"
    name = Prefix(text)
    name.request, name.end = request, end
    return name


@dataclass(frozen=True)
class State:
    """What only calls should change, to detect changes from elsewhere.

    Attributes:
        cached: the blocks under each key.
        ref_counts: the reference count of each block.
        free: the free queue.
        tables: the block tables by group and request.
    """

    cached: Mapping[Any, tuple[int, ...]]
    ref_counts: Sequence[int]
    free: Sequence[int]
    tables: Sequence[Mapping[str, Sequence[int]]]


class RealCache:
    """The cache of a coordinator, or of a pool alone, by the keys that requests have."""

    def __init__(self, pool: Any, utils: ModuleType, block_sizes: Sequence[int], unit: int) -> None:
        self.pool = pool
        self.null_block = attribute(pool, "null_block")
        key = attribute(utils, "make_block_hash_with_group_id")
        # Called once a block it would take most of the time, and it only appends the group.
        self._suffixes: list[bytes] = [key(b"", group) for group in range(len(block_sizes))]
        appends = all(key(b"?", g) == b"?" + suffix for g, suffix in enumerate(self._suffixes))
        if not appends:
            raise CannotJudge("its keys are not block hashes with a group's number behind")
        self._view = getattr(utils, "BlockHashListWithBlockSize", None)
        self._sizes = block_sizes
        self._unit = unit

    @property
    def entries(self) -> Entries:
        """The hash map; a reset makes another."""
        found: Entries = self.pool.cached_block_hash_to_block._cache
        return found

    def hashes(self, block_hashes: Sequence[Any], group: int) -> Sequence[Any]:
        """A request's hashes as the target groups them into the group's blocks."""
        size = self._sizes[group]
        if size == self._unit:
            return block_hashes
        assert self._view is not None
        view: Sequence[Any] = self._view(block_hashes, self._unit, size)
        return view

    def key(self, group: int, block_hash: Any) -> Any:
        """What the hash map has a block of the group under."""
        return block_hash + self._suffixes[group]

    def suffix(self, group: int) -> bytes:
        """What `key` appends to a hash of the group."""
        return self._suffixes[group]

    def keys(self, block_hashes: Sequence[Any]) -> list[tuple[Sequence[Any], bytes, int]]:
        """For each group the request's hashes, what its keys append, and units in a block."""
        return [
            (self.hashes(block_hashes, group), suffix, size // self._unit)
            for group, (suffix, size) in enumerate(zip(self._suffixes, self._sizes, strict=True))
        ]

    def ids(self, group: int, name: Name) -> tuple[int, ...]:
        """The blocks registered under the named prefix, in the order of service."""
        assert isinstance(name, Prefix)
        hashes, block = (
            self.hashes(name.request.block_hashes, group),
            name.end // self._sizes[group] - 1,
        )
        if not 0 <= block < len(hashes):
            return ()
        return block_ids(self.entries.get(self.key(group, hashes[block])))


class CachedPrefixes(Mapping[tuple[int, Name], tuple[int, ...]]):
    """A real cache as the judge sees it: the blocks of each group under each named prefix."""

    def __init__(self, cache: RealCache) -> None:
        self._cache = cache

    def __getitem__(self, place: tuple[int, Name]) -> tuple[int, ...]:
        found = self._cache.ids(*place)
        if not found:
            raise KeyError(place)
        return found

    def __contains__(self, place: object) -> bool:
        assert isinstance(place, tuple)
        return bool(self._cache.ids(*place))

    def __iter__(self) -> Iterator[tuple[int, Name]]:
        raise TypeError("prefixes that no request has cannot be listed")

    def __len__(self) -> int:
        return len(self._cache.entries)


class LookupPool:
    """A real cache as `reference.lookup` sees it, for one request.

    Hash units stand for their hashes, so that the target's own keys are asked for: up to 0.24 the
    key of a larger block joins the hashes of its units.
    """

    def __init__(self, cache: RealCache, block_hashes: Sequence[Any]) -> None:
        self.null_block = cache.null_block
        self._get = cache.entries.get
        self._keys = cache.keys(block_hashes)

    def get_cached_block(
        self, block_hash: Any, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[Any] | None:
        """The block of each group whose last hash unit is that one, or None if any lacks it."""
        found = []
        for group in kv_cache_group_ids:
            hashes, suffix, units = self._keys[group]
            block = block_hash if units == 1 else (block_hash + 1) // units - 1
            held = self._get(hashes[block] + suffix)
            if held is None:
                return None
            if type(held) is dict:
                held = next(iter(held.values()))
            found.append(held)
        return found


def tables_of(managers: Sequence[Any], request_id: str) -> list[Sequence[Any]]:
    """A request's block table in each group; the real lists."""
    return [manager.req_to_blocks.get(request_id, ()) for manager in managers]


def state_of(cache: RealCache, managers: Sequence[Any]) -> State:
    """All of it, copied."""
    return State(
        {key: block_ids(held) for key, held in cache.entries.items()},
        [block.ref_cnt for block in cache.pool.blocks],
        list(free_queue(cache.pool)),
        [
            {
                name: [block.block_id for block in table]
                for name, table in manager.req_to_blocks.items()
                if table
            }
            for manager in managers
        ],
    )


def observation_of(state: State, cache: RealCache, usage: float) -> Observation:
    """The state by which pool invariants are judged; events and statistics are not taken."""
    null = cache.null_block.block_id
    requests = dict.fromkeys(name for tables in state.tables for name in tables)
    # From 0.26 on the tail of a prompt that ends inside a block is registered, too, as a further
    # key of the block; the spec has no clause on that where hits are aligned.
    further = getattr(cache.pool, "cached_block_hashes_by_block", {})

    def primary(key: Any, held: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(block for block in held if key not in further.get(block, ()))

    held: dict[str, Tables] = {
        name: tuple(
            tuple(0 if block == null else block for block in tables.get(name, ()))
            for tables in state.tables
        )
        for name in requests
    }
    return Observation(
        tables={name: tables for name, tables in held.items() if any(tables)},
        ref_counts={
            block: count for block, count in enumerate(state.ref_counts) if count and block != null
        },
        cached={(0, key): ids for key, held in state.cached.items() if (ids := primary(key, held))},
        free_queue=tuple(state.free),
        num_free_blocks=cache.pool.get_num_free_blocks(),
        usage=usage,
        common_prefix=None,
        events=(),
        stats={},
    )
