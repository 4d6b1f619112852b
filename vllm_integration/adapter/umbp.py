"""The scheduler's half of the UMBP connector: a tier of blocks over a native store.

It asks the store for the keys of a request at once, and looks up the union of what that says and of
what is local with a coordinator of the prefix cache of its own. The native store has no part in
what is judged: here a set of keys answers.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hitproof.conformance.checks.spaces import resumed_at
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.offloading import deployment_of
from hitproof.vllm_integration.adapter.parts import Parts, stand_in_hashes
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.transfers import set_connector
from hitproof.vllm_integration.adapter.umbp_store import CONNECTOR, PACKAGE, named

_CLASS = "UMBPStoreConnectorScheduler"
_FEATURE = "UMBP"

UMBP_ENTRIES = {
    "lookup": "get_num_new_matched_tokens",
    "stored": "_store_plans",
    "asked": "_build_lookup_context",
    "loaded": "update_state_after_alloc",
}
"""The methods of the scheduler's half, by what they are asked for."""


def umbp_class(parts: Parts) -> Any:
    """The class of the scheduler's half. Raises `Predates` where the release has none."""
    if find_spec(PACKAGE) is None:
        parts.lacks(_FEATURE)
    return attribute(import_module(f"{PACKAGE}.scheduler"), _CLASS)


class _Keys:
    """What a native store answers: which of the keys it has."""

    def __init__(self) -> None:
        self.has: Callable[[int, bytes], bool] = lambda *_: False

    def lookup(self, keys: Sequence[str]) -> list[bool]:
        """Whether it has each key."""
        return [self.has(*named(key)) for key in keys]


class _Umbp:
    """A real scheduler's half over a set of keys, for one layout."""

    def __init__(self, parts: Parts, schedulers: VllmSchedulers, layout: Layout) -> None:

        made = umbp_class(parts)
        self._parts = parts
        self.layout = layout
        deployment = deployment_of(layout, layout.num_tokens)
        vllm_config = schedulers.vllm_config(deployment)
        set_connector(vllm_config, {"kv_connector": CONNECTOR, "kv_role": "kv_both"})
        data = import_module(f"{PACKAGE}.data")
        self.keys = _Keys()
        with schedulers.groups_config(deployment, vllm_config) as groups:
            self.half = made(
                vllm_config,
                groups,
                self.keys,
                attribute(data, "BlockIdentityCodec")(attribute(data, "UMBPNamespace")("judged")),
            )
        self._tracker = attribute(data, "RequestTracker")
        self.asked = attribute(self.half, UMBP_ENTRIES["lookup"])
        if self.half.hash_block_size != layout.hash_block_size:
            raise CannotJudge(
                f"blocks are hashed in units of {self.half.hash_block_size} tokens, not "
                f"{layout.hash_block_size}"
            )

    def request(self, length: int) -> Any:
        """A request of ``length`` tokens."""
        hashes = stand_in_hashes(length // self.layout.hash_block_size)
        return self._parts.request_of(range(length), hashes)

    def hash_at(self, end: int) -> bytes:
        """The hash of the block that ends after ``end`` tokens."""
        return stand_in_hashes(end // self.layout.hash_block_size)[-1]


class VllmUmbpLookup:
    """``get_num_new_matched_tokens`` of the scheduler's half, for requests of one layout.

    The first ``local`` tokens are a hit of the prefix cache, which has what that hit reads.
    """

    inputs: Sequence[object] = ()

    def __init__(
        self, parts: Parts, schedulers: VllmSchedulers, layout: Layout, local: int
    ) -> None:
        self._umbp = umbp = _Umbp(parts, schedulers, layout)
        unit, self._local = layout.hash_block_size, local
        hashes = stand_in_hashes(layout.num_tokens // unit)
        sizes = [each.group.block_size for each in layout.looked_up]
        self.keys = [hashes[size // unit - 1 :: size // unit] for size in sizes]
        held = {
            (group, self.keys[number][block])
            for number, block in resumed_at(layout, local)
            for group in layout.looked_up[number].group_ids
        }
        umbp.half.bind_local_cache_lookup(lambda *block: block in held)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""

        def has(group: int, block_hash: bytes) -> bool:
            return pool.get_cached_block(block_hash, (group,)) is not None

        self._umbp.keys.has = has
        more, _ = self._umbp.asked(self._umbp.request(max_length + 1), self._local)
        if more is None:
            raise CannotJudge("UMBP wants to be asked later")
        return LookupAnswer(self._local + more, ())


class VllmUmbpMasks:
    """What the scheduler's half stores and loads of one layout."""

    def __init__(self, parts: Parts, schedulers: VllmSchedulers, layout: Layout) -> None:
        self._parts = parts
        self._umbp = _Umbp(parts, schedulers, layout)
        self._layout = layout

    def stored(self, start: int, end: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`. States are handed over block by block."""
        half, tables = self._umbp.half, self._tables(end)
        tracker = self._umbp._tracker(saved_tokens=start)
        store = attribute(half, UMBP_ENTRIES["stored"])
        plans = store(self._umbp.request(end), tracker, end, tables)
        masks = self._marked(plans, end)
        handed_over = attribute(half, "_boundary_handoff_groups")
        return [
            None if mask is None or group in handed_over else mask[start // each.block_size :]
            for group, (mask, each) in enumerate(zip(masks, self._layout.groups, strict=True))
        ]

    def asked_for(self, length: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`. It asks for all blocks: there is no mask."""
        del length
        raise Predates("UMBP has no masks of what it looks up")

    def loaded(self, hit: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`. None of all where no such hit is served."""
        from vllm.v1.core.kv_cache_manager import KVCacheBlocks
        from vllm.v1.core.kv_cache_utils import KVCacheBlock

        half = self._umbp.half
        self._umbp.keys.has = lambda *_: True
        for length in range(hit + 1, hit + 3 * self._layout.alignment):
            request = self._umbp.request(length)
            if self._umbp.asked(request, 0)[0] == hit:
                break
        else:
            return [None] * len(self._layout.groups)
        tables = tuple([KVCacheBlock(block) for block in ids] for ids in self._every(length))
        attribute(half, UMBP_ENTRIES["loaded"])(request, KVCacheBlocks(tables), hit)
        told = half._pending_loads[request.request_id]
        half.request_finished(request, ())
        return self._marked(told, length)

    def _every(self, length: int) -> list[list[int]]:
        """The block tables of all groups: each block is another one."""
        sizes = [each.block_size for each in self._layout.groups]
        longest = length + 1
        return [
            [1 + group * longest + block for block in range(-(-length // size))]
            for group, size in enumerate(sizes)
        ]

    def _tables(self, length: int) -> tuple[list[int], ...]:
        """Those of the groups that take part."""
        tables = self._every(length)
        return tuple(tables[group] for group in self._part())

    def _part(self) -> list[int]:
        return [n for n, each in enumerate(self._layout.groups) if each.prefix_cacheable]

    def _marked(self, plans: Any, length: int) -> list[list[bool] | None]:
        """Which blocks are copied to or from where they belong, of each group."""
        copied = set(zip(plans.block_ids, map(named, plans.keys), strict=True))
        masks: list[list[bool] | None] = [None] * len(self._layout.groups)
        tables = self._every(length)
        for group in self._part():
            size = self._layout.groups[group].block_size
            masks[group] = [
                (tables[group][block], (group, self._umbp.hash_at((block + 1) * size))) in copied
                for block in range(length // size)
            ]
        return masks
