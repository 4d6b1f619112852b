"""What a release promises to keep: its policies, and the boundaries for which a block is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from hitproof.conformance.histories.schema import EngineConfiguration, History, RequestInput
from hitproof.conformance.playing.player import Player
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import Manager
from hitproof.spec.groups import Group, GroupKind, geometry, share_eagle
from hitproof.spec.hits import in_required_run
from hitproof.spec.mask import next_boundary
from hitproof.spec.releases.fine import (
    FINE_KINDS,
    FineTail,
    HitGranularity,
    at_hash_units,
    is_fine_grained,
    peek,
    tail_boundary,
    witness_entries,
)
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import EagleGroups, Junctions, SparseRetention, thins_out
from hitproof.spec.retention import replay_boundary, resend_cap, sibling_boundary

PROMISED_BY = {
    "resend": "retention_keeps_resends_and_extensions",
    "extension": "retention_keeps_resends_and_extensions",
    "sibling": "retention_keeps_siblings",
    "junction": "retention_keeps_junctions",
}
"""The claim that promises each kind of hit."""


@dataclass(frozen=True)
class JudgedPolicies:
    """What releases may differ in without violating the spec; see `spec.releases.policies`.

    The default is what the newest release has, except that hits are aligned.

    Attributes:
        horizon: how far past the cap a lookup over several groups may peek.
        eagle_groups: which groups drop a lookahead block.
        sparse_retention: which kinds a retention interval thins out.
        junctions: whether a prefix seen to be shared is retained.
        granularity: where hits may end.
        fine_tail: for whose hit the end of a prompt is kept when it lies inside a block.
        every_state: whether a Mamba group keeps the state of every block that a step fills, as
            before vLLM had a ``mamba_cache_mode``, or only that of the step's end.
        windows_opt_out: whether a window can be outside the prefix cache; if not, such a group is
            played as one that keeps no tokens.
    """

    horizon: LookaheadHorizon = LookaheadHorizon.HASHED
    eagle_groups: EagleGroups = EagleGroups.FLAGGED
    sparse_retention: SparseRetention = SparseRetention.WINDOWS_AND_STATES
    junctions: Junctions = Junctions.KEPT
    granularity: HitGranularity = HitGranularity.ALIGNED
    fine_tail: FineTail = FineTail.RESEND
    every_state: bool = False
    windows_opt_out: bool = True

    @classmethod
    def of(
        cls, values: Mapping[str, Any], every_state: bool = False, windows_opt_out: bool = True
    ) -> Self:
        """From the values of the policies, or their text, by name (`spec.releases.policies`).

        Raises `CannotJudge` on values that no release has together.
        """
        if (values["hit_granularity"], values["fine_tail"]) == (HitGranularity.FINE, FineTail.NONE):
            raise CannotJudge(
                "fine-grained hits need a policy on whose hit the end of a prompt is kept for; ask "
                "for fine_tail=extension or fine_tail=resend, or for hit_granularity=aligned"
            )
        return cls(
            horizon=LookaheadHorizon(values["lookahead_horizon"]),
            eagle_groups=EagleGroups(values["eagle_groups"]),
            sparse_retention=SparseRetention(values["sparse_retention"]),
            junctions=Junctions(values["junctions"]),
            granularity=HitGranularity(values["hit_granularity"]),
            fine_tail=FineTail(values["fine_tail"]),
            every_state=every_state,
            windows_opt_out=windows_opt_out,
        )

    def on(self, engine: EngineConfiguration) -> Self:
        """The policies in effect on the engine: with one group, lookups never peek past the cap."""
        return self if len(engine.groups) > 1 else replace(self, horizon=LookaheadHorizon.CAPPED)

    def groups(self, engine: EngineConfiguration) -> tuple[Group, ...]:
        """The engine's groups as lookups treat them; see `share_eagle`."""
        flagged = engine.groups
        if self.eagle_groups is EagleGroups.ALL:
            flagged = tuple(replace(group, eagle=False) for group in flagged)
        return share_eagle(flagged, engine.use_eagle_block_drop)

    def fine(self, engine: EngineConfiguration) -> bool:
        """Whether hits of the engine may end inside blocks."""
        return (
            self.granularity is HitGranularity.FINE
            and engine.enable_prefix_caching
            and is_fine_grained(engine.groups, engine.hash_block_size)
        )

    def tail(self, engine: EngineConfiguration) -> FineTail:
        """For whose hit the end of a prompt is kept on the engine."""
        return self.fine_tail if self.fine(engine) else FineTail.NONE

    def replayed(self, engine: EngineConfiguration) -> int:
        """How many tokens of a hit are computed again for windows outside the prefix cache."""
        return engine.replayed_tokens if self.windows_opt_out else 0

    def player(self, history: History, manager: Manager) -> Player:
        """A scheduler that cuts chunks as the releases with these policies do."""
        engine = history.engine
        return Player(history, manager, self.tail(engine), self.horizon, self.replayed(engine))

    def thins_out(self, kind: GroupKind) -> bool:
        """Whether a retention interval thins out groups of the kind."""
        return thins_out(self.sparse_retention, kind)


class Shared(NamedTuple):
    """A prefix that a lookup showed to be shared with another request, in tokens.

    Attributes:
        kept: the shared-prefix boundary, which sparse retention promises to keep; 0 if there is
            none, or if the lookup does not show how long the prefix is.
        seen: the longest hit that one set of groups alone could serve. Managers may find less,
            depending on the order in which they look up; what they keep up to there is not judged.
    """

    kept: int
    seen: int


NOTHING_SHARED = Shared(0, 0)


class Promises:
    """The promised boundaries of one engine; ``groups`` are as `share_eagle` gives them."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        groups: Sequence[Group],
        policies: JudgedPolicies,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._groups = groups
        # A fine-grained hit may end at any block's end, whatever the other groups' blocks are.
        self._fine = policies.fine(engine)
        self._alignment = engine.hash_block_size if self._fine else engine.alignment
        self._shapes = [
            geometry(group, group.block_size if self._fine else engine.alignment)
            for group in groups
        ]
        self._policies = policies
        self._tail = policies.tail(engine)

    def promised(
        self, request: str, group_index: int, block: int, shared: Shared = NOTHING_SHARED
    ) -> dict[str, int]:
        """The promised boundaries that need a block, in blocks of the group, by kind of request."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        if not (group.prefix_cacheable and self._engine.enable_prefix_caching):
            return {}
        ends = {"hit": next_boundary(shape, block)}
        if self.is_retained(group):
            ends = self._retained(request, group_index, block, shared)
        return {
            who: end for who, end in ends.items() if end >= 1 and in_required_run(shape, block, end)
        }

    def boundaries(
        self, request: str, group_index: int, block: int, shared: Shared = NOTHING_SHARED
    ) -> list[int]:
        """The boundaries that retention promises, in blocks; of siblings, the next after a block.

        Hits that fall back to an earlier sibling boundary are those of siblings, too.
        """
        return [*self._retained(request, group_index, block, shared).values()]

    def are_computed(
        self, request: str, group_index: int, block: int, shared: Shared, computed: int
    ) -> bool:
        """Whether the runs of all that retention promises are among the ``computed`` tokens."""
        size = self._groups[group_index].block_size
        ends = self.boundaries(request, group_index, block, shared)
        last = max(ends) * size + self.reach_tokens
        return computed >= min(last, len(self._requests[request].prompt))

    def extension(self, request: str, group_index: int) -> int:
        """How far an extension of the request's prompt hits, in blocks of the group."""
        size, prompt = self._groups[group_index].block_size, len(self._requests[request].prompt)
        if self._fine:
            return -(-self.tail(request) // size)
        hit = replay_boundary(prompt, prompt, self.lookahead_tokens, self._alignment)
        return int(hit) // size

    @cached_property
    def lookahead_tokens(self) -> int:
        """How far past a hit, in tokens, the lookahead blocks of all groups reach."""
        return max(map(self._dropped_tokens, self._groups))

    def _dropped_tokens(self, group: Group) -> int:
        """How many tokens of lookahead blocks a group drops, of hash units where hits are fine."""
        dropped, unit = group, group.block_size
        if self._fine:
            dropped, unit = at_hash_units(group, self._alignment), self._alignment
        return int(geometry(dropped, unit).lookahead) * unit

    @property
    def reach_tokens(self) -> int:
        """How many tokens past a hit must be computed before all its blocks can be registered."""
        return self.lookahead_tokens + self._engine.num_hash_lookahead_tokens

    def is_retained(self, group: Group) -> bool:
        """Whether sparse retention applies to the group."""
        return self._engine.retention_interval is not None and self._policies.thins_out(group.kind)

    def _retained(
        self, request: str, group_index: int, block: int, shared: Shared
    ) -> dict[str, int]:
        """The boundaries that sparse retention promises, in blocks of the group."""
        size, prompt = self._groups[group_index].block_size, len(self._requests[request].prompt)
        alignment, lookahead = self._alignment, self.lookahead_tokens
        interval = self._engine.retention_interval
        if self._fine:
            tail = self.tail(request)
            promised = {self._tail.value: tail // size if tail % size == 0 else 0}
        else:
            cap = resend_cap(prompt, self._engine.num_hash_lookahead_tokens)
            reach = horizon(self._policies.horizon, prompt)
            resend = replay_boundary(cap, reach, lookahead, alignment)
            extension = replay_boundary(prompt, prompt, lookahead, alignment)
            promised = {"resend": resend // size, "extension": extension // size}
        if interval:
            shape = self._shapes[group_index]
            promised["sibling"] = sibling_boundary(shape, block, interval // size)
        # A fine-grained boundary need not be on a block edge; see `entries_inside`.
        junction = 0 if self._fine and shared.kept % size else shared.kept // size
        return promised | {"junction": junction}

    def tail(self, request: str) -> int:
        """The hit, in tokens, for which the end of a request's prompt is kept; for fine hits."""
        policies, unit = self._policies, self._alignment
        prompt = len(self._requests[request].prompt)
        ahead = self._engine.num_hash_lookahead_tokens
        return int(
            tail_boundary(self._tail, policies.horizon, prompt, self.lookahead_tokens, unit, ahead)
        )

    def entries_inside(
        self, request: str, group_index: int, shared: Shared = NOTHING_SHARED
    ) -> dict[str, range]:
        """For each promised hit the entries inside a block of which it needs one.

        An entry is identified by the number of tokens of its prefix.
        """
        promised = {self._tail.value: self._tail_entries(request, group_index)}
        kept, group = shared.kept, self._groups[group_index]
        # Full attention's part of a shared prefix has shown that it is shared.
        prompt = len(self._requests[request].prompt)
        junction = self._engine.keeps_shared_states and kept <= prompt and kept % group.block_size
        if junction and group.kind is GroupKind.MAMBA:
            promised["junction"] = range(kept, kept + 1)
        return {who: ends for who, ends in promised.items() if ends}

    def _tail_entries(self, request: str, group_index: int) -> range:
        """The entries of which the hit for which the prompt's end is kept needs one.

        Entries past the reach of the reader's lookup are excluded.
        """
        group, unit = self._groups[group_index], self._alignment
        end = self.tail(request)
        last = end + self._dropped_tokens(group)
        if end == 0 or group.kind not in FINE_KINDS or not group.prefix_cacheable:
            return range(0)
        if last % group.block_size == 0:
            return range(0)
        prompt = len(self._requests[request].prompt)
        reach = prompt
        if self._tail is FineTail.RESEND:
            reach = peek(group, prompt - 1, horizon(self._policies.horizon, prompt))
        found = witness_entries(group, unit, last // unit - 1, reach)
        return range((found.start + 1) * unit, (found.stop + 1) * unit, unit)

    def may_be_retained(self, group_index: int, block: int, seen: int) -> bool:
        """Whether a boundary of the shared prefix needs a block that retention thins out."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        if self._fine and group.kind in FINE_KINDS:
            # Blocks before a tail cannot be judged: they serve requests that diverge there.
            return True
        boundaries = range(shape.segment, seen // group.block_size + 1, shape.segment)
        return self.is_retained(group) and any(
            in_required_run(shape, block, boundary) for boundary in boundaries
        )
