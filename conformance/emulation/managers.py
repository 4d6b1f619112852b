"""The reference's classes, with the places overridden in which a release differs from the spec."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from hitproof.conformance.emulation.releases import FreeOrder, Policies, ReplayPolicy
from hitproof.reference.groups import GroupManager, MambaManager
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.pool import KVCacheBlock
from hitproof.reference.registration import Mask, Registration
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import replay_boundary


class EmulatedRegistration(Registration):
    """What a release registers."""

    def __init__(
        self,
        policies: Policies,
        groups: Sequence[Group],
        alignment: int,
        interval: int | None,
        peeks: bool = True,
    ) -> None:
        super().__init__(groups, alignment, interval, peeks)
        self._policies = policies
        self._use_eagle = any(group.eagle for group in groups)

    def num_tokens(self, group: Group, num_computed_tokens: int) -> int:
        """All that is final without ``waits_for_boundaries``."""
        if self._policies.waits_for_boundaries:
            return super().num_tokens(group, num_computed_tokens)
        return self.num_final_tokens(group, num_computed_tokens)

    def mask(self, group: Group, prompt: int, shared: int, hash_lookahead: int) -> Mask:
        """Those kinds are thinned out that the policies name."""
        if self._interval is not None and group.kind in self._policies.sparse_kinds:
            return self.retained(group, prompt, shared, hash_lookahead)
        return self.reachable(group) if group.kind in self._policies.thinned_kinds else _every

    def replays(self, num_tokens: int, num_hash_lookahead_tokens: int) -> Sequence[int]:
        """Those of `ReplayPolicy`."""
        replays, alignment = self._policies.replays, self._alignment
        if replays is ReplayPolicy.PROMISED:
            return super().replays(num_tokens, num_hash_lookahead_tokens)
        if replays is ReplayPolicy.ALIGNMENT_DROPPED and self._use_eagle:
            ends = num_tokens - 1, num_tokens
            return [replay_boundary(end, end, alignment, alignment) for end in ends]
        return [(num_tokens - 1) // alignment * alignment]

    def junctions(self, shared: int) -> Sequence[int]:
        """The boundary that lookup has seen alone, where not all that is promised is kept."""
        kept = super().junctions(shared) if self._policies.junctions else ()
        return kept if self._policies.replays is ReplayPolicy.PROMISED else kept[:1]


class EmulatedGroup(GroupManager):
    """The blocks of one group; the last arguments are those of the class that it varies."""

    def __init__(self, policies: Policies, *given: Any) -> None:
        super().__init__(*given)
        self._policies = policies

    def _num_new(self, required: int, covered: int, own: int, most: int | None) -> int:
        if most is None or not self._policies.admits_too_much:
            return super()._num_new(required, covered, own, most)
        return super()._num_new(min(required, most), covered, own, None)

    def _release(self, blocks: Iterable[KVCacheBlock], finished: bool = True) -> None:
        match self._policies.free_order:
            case FreeOrder.APPENDED:
                scratch_first = False
            case FreeOrder.WINDOW_SCRATCH_FIRST if finished:
                kind = getattr(self.group, "kind", None)
                scratch_first = kind is GroupKind.SLIDING_WINDOW
            case _:
                scratch_first = True
        self._pool.free_blocks(blocks, scratch_first)


class EmulatedMamba(EmulatedGroup, MambaManager):
    """A Mamba group."""

    def __init__(self, policies: Policies, *given: Any) -> None:
        super().__init__(policies, *given)
        if policies.admits_too_much:
            self._max_states = 1

    def remove_skipped_blocks(self, request_id: str, computed: int) -> None:
        """With ``keeps_states_of_drafts`` all drafts of the last step may still be rejected."""
        if self._policies.keeps_states_of_drafts:
            computed = max(0, computed - self._drafts)
        if self._policies.leaves_states_behind:
            self._pass_gap(request_id, computed)
        super().remove_skipped_blocks(request_id, computed)

    def _pass_gap(self, request_id: str, computed: int) -> None:
        """Take as freed what lies before the last null block of those that are not read."""
        blocks = self.req_to_blocks.get(request_id, [])
        before = self._num_removed.get(request_id, 0)
        skipped = min(self._num_skipped(computed), len(blocks))
        gaps = [index for index in range(before, skipped) if blocks[index].is_null]
        if gaps:
            self._num_removed[request_id] = gaps[-1] + 1


class EmulatedManager(KVCacheManager):
    """The manager of a release. The other arguments are those of `KVCacheManager`."""

    def __init__(self, policies: Policies, *given: Any) -> None:
        self._policies = policies
        self.registration_class = partial(EmulatedRegistration, policies)
        self.group_class = partial(EmulatedGroup, policies)
        self.mamba_class = partial(EmulatedMamba, policies)
        super().__init__(*given)

    def _may_peek(self, num_groups: int) -> bool:
        hashed = self._policies.horizon is LookaheadHorizon.HASHED
        return hashed and super()._may_peek(num_groups)

    def _register_accepted(self, request: Request) -> None:
        if self._policies.registers_before_freeing:
            super()._register_accepted(request)

    def _num_settled(self, request: Request, computed: int) -> int:
        keeps_all = self._policies.keeps_states_of_drafts
        return computed if keeps_all else super()._num_settled(request, computed)


def _every(first: int, end: int) -> list[bool]:
    return [True] * (end - first)
