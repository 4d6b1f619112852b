"""The reference as a subject: the checks must find no divergence in it."""

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.managers import Manager
from hitproof.conformance.subject.tiers import Load, TierMasks, TierPlays
from hitproof.conformance.tests.reference_history import ReferenceHistory
from hitproof.conformance.tests.reference_pool import ReferencePool
from hitproof.reference.lookup import Lookup as GroupLookup
from hitproof.reference.request import block_hashes_of_size
from hitproof.reference.spec_groups import SpecGroup, find_hit, find_local_prefix, spec_groups
from hitproof.spec.groups import BlockGeometry, GroupKind, geometry, whole_blocks
from hitproof.spec.hits import required_run
from hitproof.spec.mask import in_mask, in_stored_mask, is_due
from hitproof.spec.releases.fine import at_hash_units, block_of
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.retention import check_interval, in_retained_mask
from hitproof.spec.sharing import covered_tokens
from hitproof.spec.terms import Formula
from hitproof.spec.tiers import is_loaded, is_stored


class ReferenceLookup:
    """The reference's lookup for one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._lookup = GroupLookup(configuration.shape)
        self.keys = [[b"block %d" % block for block in range(configuration.num_blocks)]]
        self._block_size = configuration.group.block_size
        self._group_ids = tuple(range(configuration.members))

    @property
    def inputs(self) -> Sequence[object]:
        """See `conformance.subject.lookups.Lookup`."""
        return self.keys, self._lookup

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        (keys,) = self.keys
        limit = min(max_length // self._block_size, len(keys))
        tables = self._lookup(keys, limit, self._group_ids, pool)
        return LookupAnswer(len(tables[0]) * self._block_size, tables)


class ReferenceCommonLookup:
    """The reference's lookup over the groups of a layout."""

    def __init__(self, layout: Layout, policy: LookaheadHorizon) -> None:
        unit = layout.hash_block_size
        self._hashes = [b"unit %d" % number for number in range(layout.num_tokens // unit)]
        self._spec_groups = spec_groups(layout.shared, layout.alignment, unit)
        self._layout = layout
        self._policy = policy
        self.keys = [
            list(block_hashes_of_size(self._hashes, unit, looked_up.group.block_size))
            for looked_up in layout.looked_up
        ]

    @property
    def inputs(self) -> Sequence[object]:
        """See `conformance.subject.lookups.Lookup`."""
        lookups = [group.lookup for group in self._spec_groups]
        return self._hashes, self._spec_groups, *self._spec_groups, *lookups

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        hit = find_hit(*self._arguments(max_length), pool)
        return LookupAnswer(hit.length, hit.blocks)

    def _arguments(self, max_length: int) -> tuple[list[SpecGroup], int, list[bytes], int, int]:
        layout, unit = self._layout, self._layout.hash_block_size
        cap, horizon = layout.reach(max_length, self._policy)
        hashes = self._hashes[: (max_length + 1) // unit]
        return self._spec_groups, len(layout.groups), hashes, cap, horizon


class ReferenceConnectorLookup(ReferenceCommonLookup):
    """The reference's lookup for a KV connector that loads Mamba states."""

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        hit, diverged = find_local_prefix(*self._arguments(max_length), pool)
        return LookupAnswer(hit.length, hit.blocks, diverged)


class ReferenceTierLookup(ReferenceCommonLookup):
    """A lookup in a tier, whose pool is what is stored; what is local is as good."""

    def __init__(self, layout: Layout, policy: LookaheadHorizon, local: int = 0) -> None:
        super().__init__(layout, policy)
        self._local = local
        self._held: set[tuple[int, bytes]] = set()
        for each, keys in zip(layout.looked_up, self.keys, strict=True):
            resumed = replace(each.shape, lookahead=0)
            run = required_run(resumed, local // each.group.block_size) if local else ()
            self._held |= {(number, keys[b]) for b in run for number in each.group_ids}

    @property
    def inputs(self) -> Sequence[object]:
        """See `conformance.subject.lookups.Lookup`."""
        return self._held, *super().inputs

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        hit = find_hit(*self._arguments(max_length), _StoredOrLocal(self._held, pool)).length
        return LookupAnswer(max(hit, self._local), ())


class _StoredOrLocal:
    """Both stores as a lookup sees them."""

    def __init__(self, local: Collection[tuple[int, bytes]], stored: Any) -> None:
        self.null_block = stored.null_block
        self._local, self._stored = local, stored

    def get_cached_block(self, block_hash: bytes, group_ids: Sequence[int]) -> Any:
        for group_id in group_ids:
            here = (group_id, block_hash) in self._local
            if not here and self._stored.get_cached_block(block_hash, (group_id,)) is None:
                return None
        return [block_hash] * len(group_ids)


class ReferenceTierMasks:
    """What a tier stores, asks for and loads: what the spec has it do."""

    def __init__(self, layout: Layout) -> None:
        self._groups, self._alignment = layout.shared, layout.alignment

    def _masks(
        self, start: int, end: int, kept: Callable[[int, BlockGeometry, int, range], Formula]
    ) -> list[list[bool]]:
        masks = []
        for number, group in enumerate(self._groups):
            shape = geometry(group, self._alignment)
            first, last = (whole_blocks(tokens, group.block_size) for tokens in (start, end))
            blocks = range(first, last) if group.prefix_cacheable else range(0)
            masks.append([bool(kept(number, shape, block, blocks)) for block in blocks])
        return masks

    def stored(self, start: int, end: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`."""

        def kept(_: int, shape: BlockGeometry, block: int, blocks: range) -> Formula:
            return is_stored(shape, block, blocks.start, blocks.stop)

        return self._masks(start, end, kept)

    def asked_for(self, length: int) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`."""

        def kept(_: int, shape: BlockGeometry, block: int, blocks: range) -> Formula:
            return is_due(shape, block, blocks.stop)

        return self._masks(0, length, kept)

    def loaded(
        self, hit: int, local: Sequence[Collection[int]] | None = None
    ) -> Sequence[Sequence[bool] | None]:
        """See `conformance.subject.tiers.TierMasks`; ``local`` are blocks of each group."""
        held = [()] * len(self._groups) if local is None else local

        def kept(number: int, shape: BlockGeometry, block: int, blocks: range) -> Formula:
            return is_loaded(shape, block, blocks.stop, held[number].__contains__)

        return self._masks(0, hit, kept)


class ReferenceTierPlays:
    """Requests that are stored in the reference's tier of chunks, and loaded from it.

    Local are the whole blocks of what was served last. States are kept at the end of every block.
    """

    def __init__(self, layout: Layout, num_tokens: int) -> None:
        self._layout, self._num_tokens = layout, num_tokens
        self._masks = ReferenceTierMasks(layout)

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        """See `conformance.subject.tiers.TierPlays`."""
        kept: list[set[int]] = [set() for _ in self._layout.groups]
        for start, end in pairwise((0, *ends)):
            masks = self._masks.stored(start, end)
            for group, chunks, mask in zip(self._layout.shared, kept, masks, strict=True):
                first = start // group.block_size
                chunks |= {first + place for place, each in enumerate(mask or ()) if each}
        pairs = zip(self._layout.groups, kept, strict=True)
        return [chunks if group.prefix_cacheable else None for group, chunks in pairs]

    def loaded(self, local: int, length: int) -> Load | None:
        """See `conformance.subject.tiers.TierPlays`."""
        align = self._layout.alignment
        # The longest was stored whole, so that a hit may end before its last lookahead block.
        ahead = self._layout.lookahead_tokens
        hit = min(length, self._num_tokens - ahead) // align * align
        if hit <= local:
            return None
        engine = self._layout.in_blocks
        here = [range(local // group.block_size) for group in engine.groups]
        masks = ReferenceTierMasks(engine).loaded(hit, here)
        blocks = [{n for n, each in enumerate(mask or ()) if each} for mask in masks]
        return Load(local, hit, blocks)


class ReferenceFineLookup:
    """The reference's lookup in one group for hits that end on any hash block, also inside blocks.

    It sees hash units as blocks. One of full attention is held by a block that was registered at
    or past it.
    """

    def __init__(self, configuration: Configuration) -> None:
        shape = configuration.in_hash_units
        self.keys = [[b"prefix %d" % unit for unit in range(shape.num_blocks)]]
        self.inputs: tuple[object, ...] = ()
        self._unit = configuration.hash_block_size
        self._size = configuration.group.block_size // self._unit
        self._asked_at = 1 if configuration.group.kind is GroupKind.MAMBA else self._size
        looked_up = at_hash_units(configuration.group, self._unit)
        self._lookup = GroupLookup(geometry(looked_up, self._unit))

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        (keys,) = self.keys
        limit = min(max_length // self._unit, len(keys))
        (units,) = self._lookup(keys, limit, (0,), _Units(pool, keys, limit, self._asked_at))
        # Of each block the last unit in the hit decides: Mamba asks about no other.
        ends = range(self._size, len(units) + self._size, self._size)
        table = [units[min(end, len(units)) - 1] for end in ends]
        return LookupAnswer(len(units) * self._unit, [table])


class _Units:
    """A pool as a lookup sees it when the blocks are hash units."""

    def __init__(self, pool: Any, keys: Sequence[bytes], limit: int, units: int) -> None:
        self.null_block = pool.null_block
        self._pool, self._keys, self._limit, self._units = pool, keys, limit, units
        self._number = {key: unit for unit, key in enumerate(keys)}

    def get_cached_block(self, block_hash: bytes, group_ids: Sequence[int]) -> Any:
        unit = self._number[block_hash]
        end = min((block_of(unit, self._units) + 1) * self._units, self._limit)
        for entry in range(unit, end):
            found = self._pool.get_cached_block(self._keys[entry], group_ids)
            if found is not None:
                return found
        return None


class ReferenceSubject:
    """The reference under the checks' protocol, `conformance.subject.subjects.Subject`."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The reference's lookup, of one group or of several."""
        if isinstance(judged, Layout):
            return ReferenceCommonLookup(judged, self.lookahead_horizon)
        return ReferenceLookup(judged)

    def connector_lookup(self, layout: Layout) -> Lookup:
        """The reference's lookup for connectors."""
        return ReferenceConnectorLookup(layout, self.lookahead_horizon)

    def tier_lookup(self, layout: Layout, local: int = 0) -> Lookup:
        """The lookup of the reference's tier."""
        if layout.tier:
            return ReferenceTierLookup(layout, LookaheadHorizon.HASHED, local)
        return ReferenceTierLookup(layout, self.lookahead_horizon)

    def tier_masks(self, layout: Layout) -> TierMasks:
        """The masks of the reference's tier."""
        return ReferenceTierMasks(layout)

    def tier_plays(self, layout: Layout, num_tokens: int) -> TierPlays:
        """Requests in the reference's tier of chunks."""
        return ReferenceTierPlays(layout, num_tokens)

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        """The spec's mask, which does not depend on chunks."""
        del alone
        full = chunks[-1] // configuration.group.block_size
        return [bool(in_mask(configuration.shape, block)) for block in range(full)]

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        """The spec's mask of what is stored."""
        shape = configuration.shape
        return [bool(in_stored_mask(shape, b, end)) for b in range(configuration.num_blocks)]

    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        """Every block: the mask has no more than blocks."""
        del alignment
        return [True] * configuration.num_blocks

    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        """The blocks that must be registered by the spec."""
        del alone, interval  # which thins out no group that is judged by it
        shape, size = configuration.shape, configuration.group.block_size
        final = (num_tokens - not_final) // size
        return [bool(is_due(shape, block, final)) for block in range(num_tokens // size)]

    eagle_groups = EagleGroups.FLAGGED
    lookahead_horizon = LookaheadHorizon.HASHED

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        """The spec's retained mask, on the blocks of runs that the prompt completes."""
        check_interval(interval, configuration.alignment)
        shape, size = configuration.shape, configuration.group.block_size
        replays = configuration.replays(num_tokens, self.lookahead_horizon)
        every = interval // size or None
        return [
            bool(in_retained_mask(shape, block, replays, every))
            for block in range(num_tokens // size)
        ]

    def pool(self, num_blocks: int) -> ReferencePool:
        """The reference's pool."""
        return ReferencePool(num_blocks)

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """Stand-ins for hashes: everything that each covers, spelt out."""
        del hash_block_size
        blocks = (len(prompt.tokens) - hash_lookahead) // block_size
        covered = (covered_tokens(b, block_size, hash_lookahead) for b in range(blocks))
        return [repr(prompt.agreed(n)).encode() for n in covered]

    def fine_lookup(self, configuration: Configuration) -> "ReferenceFineLookup":
        """The reference's lookup for hits that end on any hash block."""
        return ReferenceFineLookup(configuration)

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        """By the spec: the longest valid hit on what each prompt leaves in the cache."""
        history = ReferenceHistory(configuration, self.lookahead_horizon, interval)
        return [history.serve(prompt) for prompt in prompts]

    keeps_every_state = False

    @property
    def fits_whole(self) -> bool:
        """See `conformance.subject.managers.AdmissionSubject`."""
        return True

    def manager(self, engine: EngineConfiguration) -> Manager:
        """The reference's whole manager."""
        return ReferenceManagers().start(engine)

    def source(self, entry: str) -> str:
        """The name of the entry point in the reference, which has no file and line."""
        return f"reference: {entry}"
