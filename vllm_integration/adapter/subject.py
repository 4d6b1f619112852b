"""vLLM's managers of any release as a subject.

Entry points are found by inspection: parameters are filled by their name in the target's own
signature, and a required one that is not known ends the check with a sentence that names it.
Imported in the worker process only, where the target is the imported ``vllm``.
"""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn, TypeVar
from zlib import crc32

from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import OFFLOADING, UMBP, Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.subject.lookups import Lookup
from hitproof.conformance.subject.managers import Allocation
from hitproof.conformance.subject.tiers import TierMasks
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import (
    POLICIES,
    DefaultRetention,
    EagleGroups,
    Junctions,
    SparseRetention,
    thins_out,
)
from hitproof.spec.retention import SPARSE_KINDS, falls_on_boundaries
from hitproof.vllm_integration.adapter.blocks import BlockHashes, VllmPool, VllmPools
from hitproof.vllm_integration.adapter.computing import Computing, ends_of
from hitproof.vllm_integration.adapter.connector import FOR_CONNECTORS, VllmConnectorLookup
from hitproof.vllm_integration.adapter.history import History
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    parameters_of,
    probed,
    spelled,
)
from hitproof.vllm_integration.adapter.lookups import VllmCommonLookup, VllmLookup, group_lookup
from hitproof.vllm_integration.adapter.managers import VllmManager, VllmManagers
from hitproof.vllm_integration.adapter.offloading import (
    OFFLOADING_ENTRIES,
    Offloading,
    VllmOffloadLookup,
    VllmOffloadPlays,
    offloading_class,
)
from hitproof.vllm_integration.adapter.parts import MASK, Parts, stand_in_hashes
from hitproof.vllm_integration.adapter.producer import Producer
from hitproof.vllm_integration.adapter.reads import Reads
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.tiers import (
    ENTRIES,
    TIERS,
    VllmTierLookup,
    VllmTierMasks,
    coordinator_class,
)
from hitproof.vllm_integration.adapter.umbp import (
    UMBP_ENTRIES,
    VllmUmbpLookup,
    VllmUmbpMasks,
    umbp_class,
)

_T = TypeVar("_T")
_STORED_END = "final_segment_end_block"


class VllmSubject:
    """The imported vLLM under the checks' protocol, `conformance.subject.subjects.Subject`."""

    def __init__(self, predates: frozenset[str]) -> None:
        self._parts = parts = Parts(predates)
        self._new_pool = VllmPools(parts.pools, parts.utils, parts.new_request)
        self._block_hashes = BlockHashes(parts.utils, parts.new_request)
        self._computing = Computing(parts)
        self._history = History(parts)
        self._producer = Producer(parts, self._history)
        self._chosen: frozenset[str] = frozenset()

    @property
    def parts(self) -> Parts:
        """The modules of the target, and the objects set up from them."""
        return self._parts

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The real ``find_longest_cache_hit`` of a manager or of the coordinator."""
        self._parts.vary(judged)
        if isinstance(judged, Layout):
            return self._common_lookup(judged)
        hashes = self._hashes(judged)
        view = self._parts.view(hashes, judged.hash_block_size, judged.group.block_size)
        keys = [view[i] for i in range(judged.num_blocks)]
        return group_lookup(self._parts, judged, judged.alignment, hashes, view, keys)

    def fine_lookup(self, configuration: Configuration) -> VllmLookup:
        """The same function, called for hits that may end on any hash block."""
        if self.hit_granularity is HitGranularity.ALIGNED:
            self._parts.lacks("fine-grained hits")
        self._parts.vary(configuration)
        return self._fine_lookup(configuration)

    def inside_lookup(self, layout: Layout) -> VllmCommonLookup:
        """The real ``find_longest_cache_hit`` of a coordinator, for hits on any hash block.

        Its keys are those of hash blocks, for each of its groups.
        """
        if self.hit_granularity is HitGranularity.ALIGNED:
            self._parts.lacks("fine-grained hits")
        self._parts.vary(layout)
        hashes, _ = self._hashes_and_keys(layout)
        coordinator = self._producer.coordinator(layout, inside=True)
        return VllmCommonLookup(coordinator, hashes, [hashes] * len(layout.looked_up))

    def connector_lookup(self, layout: Layout) -> VllmConnectorLookup:
        """The real ``get_computed_blocks_for_connector`` of a whole manager."""
        if not hasattr(attribute(self._parts.whole, "KVCacheManager"), FOR_CONNECTORS):
            self._parts.lacks("local prefixes for connectors")
        self._parts.vary(layout)
        return VllmConnectorLookup(self._parts, layout, *self._hashes_and_keys(layout))

    def tier_lookup(self, layout: Layout, local: int = 0) -> Lookup:
        """The real lookup of the offloading scheduler, of UMBP, or of the Mooncake store."""
        self._vary_tier(layout)
        if layout.beside_umbp:
            return VllmUmbpLookup(self._parts, self._schedulers, layout, local)
        if layout.blocks_per_chunk:
            offloading = self._offloading(layout, layout.num_tokens)
            return VllmOffloadLookup(offloading, self._parts, layout, local)
        return VllmTierLookup(self._parts, layout, *self._hashes_and_keys(layout))

    def tier_masks(self, layout: Layout) -> TierMasks:
        """The real masks of UMBP, or of the Mooncake store's coordinator."""
        self._vary_tier(layout)
        if layout.beside_umbp:
            return VllmUmbpMasks(self._parts, self._schedulers, layout)
        return VllmTierMasks(self._parts, layout)

    def tier_plays(self, layout: Layout, num_tokens: int) -> VllmOffloadPlays:
        """The real scheduler with the offloading connector."""
        self._vary_tier(layout)
        self._parts.vary(None)  # other requests end later
        offloading = self._offloading(layout, num_tokens + layout.prefill_lookahead)
        return VllmOffloadPlays(offloading, self._parts, layout, num_tokens)

    def _offloading(self, layout: Layout, num_tokens: int) -> Offloading:
        self._parts.needs(TIERS)
        return Offloading(self._parts, self._schedulers, layout, num_tokens)

    @cached_property
    def _schedulers(self) -> VllmSchedulers:
        return VllmSchedulers()

    def _vary_tier(self, layout: Layout) -> None:
        if layout.prefill_lookahead > 1 and not self._producer.looks_ahead:
            self._parts.lacks("drafts that are computed anew")
        self._parts.vary(layout)

    def _common_lookup(self, layout: Layout) -> VllmCommonLookup:
        return VllmCommonLookup(self._producer.coordinator(layout), *self._hashes_and_keys(layout))

    def _hashes_and_keys(self, layout: Layout) -> tuple[list[bytes], list[list[bytes]]]:
        hashes = stand_in_hashes(layout.num_tokens // layout.hash_block_size)
        views = [
            (self._parts.view(hashes, layout.hash_block_size, size), layout.num_tokens // size)
            for size in (looked_up.group.block_size for looked_up in layout.looked_up)
        ]
        return hashes, [[view[block] for block in range(blocks)] for view, blocks in views]

    def _fine_lookup(self, configuration: Configuration) -> VllmLookup:
        hashes = self._hashes(configuration)
        unit = configuration.hash_block_size
        return group_lookup(self._parts, configuration, unit, hashes, hashes, hashes)

    def _hashes(self, configuration: Configuration) -> list[bytes]:
        num_tokens = configuration.num_blocks * configuration.group.block_size
        return stand_in_hashes(num_tokens // configuration.hash_block_size)

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        """Compute the prompt with a real ``KVCacheManager``, and see what other requests find."""
        return self._computing.registered(configuration, chunks, alone=alone)

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        """Call the real ``reachable_block_mask`` like an offloading connector.

        If a block has an even number of tokens, its tokens are shared by two ranks. If ``end`` is
        even, retention is sparse, with an interval of one alignment, which keeps the same.
        """
        interval = None if end % 2 else configuration.alignment
        return self._stored(configuration, end, configuration.alignment, interval)

    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        """The same where the chunks of full attention are not whole blocks of the group."""
        return self._stored(configuration, configuration.num_blocks, alignment)

    def _stored(
        self,
        configuration: Configuration,
        end: int,
        alignment: int | None,
        interval: int | None = None,
    ) -> list[bool]:
        self._parts.vary(configuration)
        manager_class = self._parts.varied_manager_class(configuration.group)
        mask = getattr(manager_class, MASK, None)
        if mask is None or _STORED_END not in parameters_of(mask):
            self._parts.lacks("masks of what is stored")
        ranks, bound = 2 - configuration.group.block_size % 2, configuration.num_blocks
        size = configuration.group.block_size // ranks
        values = {
            "alignment_tokens": alignment,
            "kv_cache_spec": self._parts.spec(replace(configuration.group, block_size=size)),
            "use_eagle": configuration.group.eagle,
            "retention_interval": interval,
            "dcp_world_size": ranks,
            _STORED_END: end,
        }
        stored: list[bool] = []
        for start, stop in ((0, bound // 3), (bound // 3, bound)):
            places = {"start_block": start, "end_block": stop}
            keywords = arguments(mask, values | places, f"{manager_class.__name__}.{MASK}")
            stored += mask(**spelled(mask, keywords)) or [True] * (stop - start)
        return stored

    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        """The same as `registered`, with draft models that look ahead."""
        if not self._producer.looks_ahead:
            self._parts.lacks("drafts that are computed anew")
        if interval is not None and configuration.group.kind not in SPARSE_KINDS:
            self._parts.needs("retention of full attention alone")
        # One token ahead is what the drafts themselves are, and is never computed anew.
        ends, ahead = ends_of(configuration, num_tokens), not_final + 1
        return self._computing.registered(
            configuration, ends, interval, alone=alone, prefill_lookahead=ahead
        )

    @cached_property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """See `Producer.lookahead_horizon`."""
        return self._probed("lookahead horizon", self._producer.lookahead_horizon)

    @cached_property
    def hit_granularity(self) -> HitGranularity:
        """Register a Mamba block under the hash of its first half, and see what is hit."""
        states = Configuration(1, 1, 4, Group(GroupKind.MAMBA, 4), hash_block_size=2)
        self._parts.vary(None)
        lookup = self._fine_lookup(states)
        pool = _HalfABlock(lookup.keys[0][0])
        answer = self._probed("hit granularity", lambda: lookup(pool, 4))
        return HitGranularity.FINE if answer.hit_length == 2 else HitGranularity.ALIGNED

    @cached_property
    def fine_tail(self) -> FineTail:
        """Compute prompts that end on a hash block and past it, and see what is registered."""
        groups = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
        engine = EngineConfiguration(groups, 10, 2, 8)

        def entered(length: int) -> bool:
            manager = self._managers.start(engine)
            manager.add_request("a", RequestInput(tuple(range(length))))
            manager.allocate_slots("a", Allocation(length, manager.get_computed_blocks("a")))
            return (0, manager.unit_keys("a")[-1]) in manager.observe().cached

        if self._probed("kept end of a prompt", lambda: entered(6)):
            return FineTail.EXTENSION
        # Where hits may end there, an end that is not kept is a fault, not a policy.
        fine = self.hit_granularity is HitGranularity.FINE
        resent = fine or self._probed("kept end of a prompt", lambda: entered(7))
        return FineTail.RESEND if resent else FineTail.NONE

    @cached_property
    def eagle_groups(self) -> EagleGroups:
        """See `Producer.all_groups_drop`."""
        drops = self._probed("set of groups with EAGLE", self._producer.all_groups_drop)
        return EagleGroups.ALL if drops else EagleGroups.FLAGGED

    @cached_property
    def sparse_retention(self) -> SparseRetention:
        """See which kinds have a mask that takes a retention interval."""
        thinned = {kind for kind in SPARSE_KINDS if self._parts.thins_out(kind)}
        if thinned == set(SPARSE_KINDS):
            return SparseRetention.WINDOWS_AND_STATES
        return SparseRetention.WINDOWS if thinned else SparseRetention.NONE

    @cached_property
    def junctions(self) -> Junctions:
        """See `History.notes_junctions`."""
        return Junctions.KEPT if self._history.notes_junctions() else Junctions.DROPPED

    @cached_property
    def default_retention(self) -> DefaultRetention:
        """The default of ``CacheConfig``; before it had one, retention was off by default."""
        from vllm.config import CacheConfig

        interval = getattr(CacheConfig(), "prefix_cache_retention_interval", None)
        return DefaultRetention.DENSE if interval is None else DefaultRetention.LATEST

    def _probed(self, policy: str, behaviour: Callable[[], _T]) -> _T:
        """What the target shows in the plainest variant."""
        self._parts.vary(None)
        return probed(policy, behaviour)

    def reads(self) -> Reads:
        """What it reads of its inputs."""
        return Reads(self._parts)

    def policies(self) -> dict[str, str]:
        """The value of each policy of `spec.releases.policies` that the target is judged by.

        It is the value that the target shows, unless another was asked for (`judge_by`).
        """
        return {name: getattr(self, name) for name in POLICIES}

    def judge_by(self, chosen: Mapping[str, str]) -> None:
        """Judge by these values of policies, by name, instead of those that the target shows."""
        for name, value in chosen.items():
            values = type(POLICIES[name].eras[0].value)
            vars(self)[name] = values(value)  # a cached property, which is not found out any more
        self._chosen = frozenset(chosen)

    def as_it_behaves(self) -> "VllmSubject":
        """The same target, judged only by the policies that it shows."""
        behaving = copy(self)
        for name in POLICIES:
            vars(behaving).pop(name, None)
        behaving._chosen = frozenset()
        return behaving

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        """The same as `registered`, under a retention interval.

        The manager may refuse an interval that the spec has not; that is raised as it is.
        """
        self._must_thin_out(configuration.group.kind)
        ends = ends_of(configuration, num_tokens)
        try:
            return self._computing.registered(configuration, ends, interval)
        except CannotJudge as error:
            cause = error.__cause__
            if cause is None or falls_on_boundaries(interval, configuration.alignment):
                raise
            raise cause from None

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        """Serve the prompts with the real ``KVCacheManager``."""
        self._must_thin_out(configuration.group.kind)
        if self.junctions is Junctions.DROPPED:
            self._lacks("junctions", "junctions")
        self._parts.vary(configuration)
        return self._history.hits(configuration, prompts, interval)

    @property
    def keeps_every_state(self) -> bool:
        """See `VllmManagers`."""
        return self._managers.keeps_every_state

    @property
    def fits_whole(self) -> bool:
        """See `VllmManagers`."""
        return self._managers.fits_whole

    def manager(self, engine: EngineConfiguration) -> VllmManager:
        """A real ``KVCacheManager``."""
        if engine.retention_interval is not None:
            sparse = [group.kind for group in engine.groups if group.kind in SPARSE_KINDS]
            for kind in sparse:
                self._must_thin_out(kind)
        return self._managers.start(engine)

    @cached_property
    def _managers(self) -> VllmManagers:
        return VllmManagers()

    def _must_thin_out(self, kind: GroupKind) -> None:
        """Reject a check of a retention interval where groups of the kind stay dense."""
        chosen = "sparse_retention" in self._chosen
        thinned = thins_out(self.sparse_retention, kind) if chosen else self._parts.thins_out(kind)
        if not thinned:
            self._lacks(_retention_of(kind), "sparse_retention")

    def _lacks(self, feature: str, policy: str) -> NoReturn:
        """There is nothing to judge: the requested policy lacks the feature, or the target does."""
        if policy in self._chosen:
            raise Predates(f"the requested policy {policy} is without {feature}")
        self._parts.lacks(feature)

    def pool(self, num_blocks: int) -> VllmPool:
        """A real ``BlockPool``."""
        self._parts.vary(None)
        return self._new_pool(num_blocks)

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """The hashes of a real ``Request``, through the view that groups look at them."""
        if hash_lookahead and not self._block_hashes.can_look_ahead():
            self._parts.lacks("hashes that look ahead")
        if prompt.is_token_ids and not self._parts.mixes_embeddings():
            self._parts.lacks("prompts of token ids and embeddings")
        self._parts.vary_by(crc32(repr(prompt).encode()))
        return self._block_hashes(prompt, hash_block_size, block_size, hash_lookahead)

    def source(self, entry: str) -> str:
        """file:line of the code behind "lookup <kind>", "lookup several" and the like."""
        return _location(self.entry_point(entry))

    def entry_point(self, entry: str) -> Any:
        """The function or class behind "lookup <kind>", "lookup several" and the like."""
        if entry == "block_pool":
            return self._parts.pools.BlockPool
        if entry == "block_hash":
            return self._parts.utils.get_request_block_hasher
        if entry == "admission":
            return attribute(self._parts.whole.KVCacheManager, "allocate_slots")
        what, kind = entry.split()
        if kind == OFFLOADING:
            return attribute(offloading_class(), OFFLOADING_ENTRIES[what])
        if kind == UMBP:
            return attribute(umbp_class(self._parts), UMBP_ENTRIES[what])
        if kind == "tier":
            return attribute(coordinator_class(self._parts), ENTRIES[what])
        if kind == "connector":
            return attribute(self._parts.whole.KVCacheManager, FOR_CONNECTORS)
        if kind == "several":
            return self._producer.hybrid.find_longest_cache_hit
        manager = self._parts.manager_class(GroupKind(kind))
        if what == "lookup":
            return manager.find_longest_cache_hit
        return self._parts.find_mask(manager) or manager.cache_blocks


class _HalfABlock:
    """A pool with one block, registered under one hash."""

    hash_block_size = 2
    null_block = None

    def __init__(self, key: bytes) -> None:
        self._key = key

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: Sequence[int]) -> Any:
        """The block, if that is the hash."""
        return [object() for _ in kv_cache_group_ids] if block_hash == self._key else None


def _retention_of(kind: GroupKind) -> str:
    """The driver's name of the feature that retention of the kind is."""
    return "retention of states" if kind is GroupKind.MAMBA else "retention"


def _location(function: Any) -> str:
    function = inspect.unwrap(getattr(function, "__func__", function))
    file = inspect.getsourcefile(function) or "?"
    root = os.path.dirname(os.path.dirname(sys.modules["vllm"].__file__ or "")) + os.sep
    try:
        line = inspect.getsourcelines(function)[1]
    except OSError:  # the target has deleted it
        line = inspect.unwrap(function).__code__.co_firstlineno
    return f"{file.removeprefix(root)}:{line}"
