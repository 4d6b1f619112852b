"""Judging one manager at one call: where it breaks the spec, by the spec alone.

What is asked about the cache is asked about the manager's own cache, so a fault counts where it
happens and not again in all that follows from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from conformance.books import wrong_books
from conformance.configurations import Configuration
from conformance.findings import ROLES, Signature, block_role
from conformance.histories import EngineConfiguration, RequestInput
from conformance.managers import Hit, Observation
from conformance.mask_check import unreachable_place
from conformance.naming import Name, Prefixes
from conformance.pages import WrongPage
from spec.attention import attends
from spec.claims import Divergence
from spec.fine import HitGranularity
from spec.groups import Group, GroupKind, geometry, share_eagle
from spec.hits import in_required_run, longest_valid_hit, required_run, valid_hit, within_reach
from spec.in_turn import longest_joint_hit
from spec.mask import next_boundary
from spec.policies import EagleGroups, Junctions, SparseRetention
from spec.retention import (
    SPARSE_KINDS,
    LookaheadHorizon,
    horizon,
    junction_boundary,
    replay_boundary,
    sibling_boundary,
)

Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks registered under each key, by group and name."""

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_PROMISES = {
    "resend": "retention_keeps_resends_and_extensions",
    "extension": "retention_keeps_resends_and_extensions",
    "sibling": "retention_keeps_siblings",
    "junction": "retention_keeps_junctions",
}


@dataclass(frozen=True)
class Violation:
    """Where a manager breaks the spec.

    Attributes:
        signature: what it is a case of.
        spec: what the spec says.
        actual: what the manager did.
    """

    signature: Signature
    spec: str
    actual: str


@dataclass(frozen=True)
class JudgedPolicies:
    """What releases may differ in without breaking the spec; see `spec.policies`.

    The default is what the newest release has, except that hits are aligned.

    Attributes:
        horizon: how far past the cap a lookup over several groups may peek.
        eagle_groups: which groups drop a lookahead block.
        sparse_retention: which kinds a retention interval thins out.
        junctions: whether a prefix seen to be shared is retained.
        granularity: where hits may end.
        every_state: whether a Mamba group keeps the state of every block that a step fills, as
            before vLLM had a ``mamba_cache_mode``, or only that of its end.
    """

    horizon: LookaheadHorizon = LookaheadHorizon.HASHED
    eagle_groups: EagleGroups = EagleGroups.FLAGGED
    sparse_retention: SparseRetention = SparseRetention.WINDOWS_AND_STATES
    junctions: Junctions = Junctions.KEPT
    granularity: HitGranularity = HitGranularity.ALIGNED
    every_state: bool = False

    def thins_out(self, kind: GroupKind) -> bool:
        """Whether a retention interval thins out groups of the kind."""
        match self.sparse_retention:
            case SparseRetention.NONE:
                return False
            case SparseRetention.WINDOWS:
                return kind is GroupKind.SLIDING_WINDOW
            case _:
                return kind in SPARSE_KINDS


class Shared(NamedTuple):
    """A prefix that a lookup showed to be shared with another request, in tokens.

    Attributes:
        kept: the junction, which sparse retention promises to keep; 0 where there is none, or
            where the lookup does not tell how long the prefix is.
        seen: how far some kind of group alone could serve. Managers find out less, depending on
            the order in which they ask: what they keep up to there is not judged.
    """

    kept: int
    seen: int


NOTHING_SHARED = Shared(0, 0)


class Judge:
    """Judges managers of one configuration on the requests of one history."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Prefixes,
        policies: JudgedPolicies,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._prefixes = prefixes
        self._policies = policies
        # The coordinator of one group never peeks past the cap.
        several = len(engine.groups) > 1
        self._policy = policies.horizon if several else LookaheadHorizon.CAPPED
        flagged = engine.groups
        if policies.eagle_groups is EagleGroups.ALL:
            flagged = tuple(replace(group, eagle=False) for group in flagged)
        self._groups = share_eagle(flagged, engine.use_eagle)
        self._shapes = [geometry(group, engine.alignment) for group in self._groups]

    def crash(self, call: str, error: Exception) -> Violation:
        """The manager raised at a call that the history allows."""
        kinds, eagle = self._kinds()
        signature = Signature(
            call, Divergence.CRASH, kinds, eagle, f"raises {type(error).__name__}"
        )
        return Violation(signature, f"{call} returns", f"{call} raises {error!r:.200}")

    def keys(self, wrong: tuple[Divergence, Name, Name]) -> Violation:
        """Two blocks have wrong keys, as `conformance.naming.Names.learn` tells."""
        divergence, first, second = wrong
        shared = divergence == Divergence.UNSOUND
        pattern = "two contents share a key" if shared else "one content has two keys"
        kinds, eagle = self._kinds()
        return Violation(
            Signature("block_hashes", divergence, kinds, eagle, pattern),
            "a key stands for one content, and a content has one key",
            f"{first} and {second}" if shared else first,
        )

    def hit(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Violation | None:
        """Judge a lookup's answer for a request of ``num_tokens`` tokens."""
        cap, peek = num_tokens - 1, horizon(self._policy, num_tokens)

        held = self._held(request, num_tokens, cached)
        expected = self._due_hit(request, num_tokens, held)
        kinds, eagle = self._kinds()

        def violation(claim: str, divergence: Divergence, pattern: str) -> Violation:
            return Violation(
                Signature(claim, divergence, kinds, eagle, pattern),
                f"hit of {expected} tokens",
                f"hit of {hit.length} tokens, tables {hit.tables}",
            )

        # Without a margin a valid hit may be longer than the one that is due.
        skips = self._requests[request].skip_reading_prefix_cache and hit.length
        if skips or not self._is_valid(hit.length, cap, peek, held):
            return violation(
                _EAGLE if eagle else _TABLE,
                Divergence.UNSOUND,
                self._cannot_serve(hit.length, cap, peek, held),
            )
        if hit.length < expected:
            short = (expected - hit.length) // self._engine.alignment
            by = "one boundary" if short == 1 else "several boundaries"
            whole = all(
                expected // group.block_size >= shape.tail
                for group, shape in zip(self._groups, self._shapes, strict=True)
            )
            run = "whole run" if whole else "run cut at the start of the request"
            return violation(_LONGEST, Divergence.LOST_HIT, f"{run}, {by} short")
        for index, (group, shape) in enumerate(zip(self._groups, self._shapes, strict=True)):
            boundary, table = hit.length // group.block_size, hit.tables[index]
            if not group.prefix_cacheable:
                continue
            if len(table) != boundary:
                return violation(
                    _TABLE, Divergence.UNSOUND, "block table as long as the hit is not"
                )
            for block in required_run(shape, boundary) if boundary else ():
                name = self._prefixes.name(request, (block + 1) * group.block_size)
                if block < boundary and table[block] not in cached[index, name]:
                    return violation(_TABLE, Divergence.UNSOUND, "block table holds another block")
        return None

    def due_hit(self, request: str, num_tokens: int, cached: Cached) -> int:
        """The hit, in tokens, that a request of ``num_tokens`` tokens is due."""
        return self._due_hit(request, num_tokens, self._held(request, num_tokens, cached))

    def _due_hit(self, request: str, num_tokens: int, held: Callable[[int, int], bool]) -> int:
        if self._requests[request].skip_reading_prefix_cache:
            return 0
        groups, alignment = self._groups, self._engine.alignment
        return longest_joint_hit(groups, alignment, num_tokens, self._policy, held)

    def shared(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Shared:
        """What a lookup showed to be shared beyond its hit."""
        if self._requests[request].skip_reading_prefix_cache:
            return NOTHING_SHARED
        held, alignment = self._held(request, num_tokens, cached), self._engine.alignment
        peek = horizon(self._policy, num_tokens)
        seen = kept = 0
        for alone in dict.fromkeys(group for group in self._groups if group.prefix_cacheable):
            asked = [replace(g, prefix_cacheable=g == alone) for g in self._groups]
            length = longest_valid_hit(asked, alignment, num_tokens - 1, peek, held)
            seen = max(seen, length)
            drops = geometry(alone, alignment).lookahead * alone.block_size
            if alone.kind is GroupKind.FULL_ATTENTION and drops == self.lookahead_tokens:
                kept = max(kept, junction_boundary(length + drops, drops, alignment))
        kept_too = self._policies.junctions is Junctions.KEPT
        return Shared(kept if kept_too and kept > hit.length else 0, seen)

    def _held(self, request: str, num_tokens: int, cached: Cached) -> Callable[[int, int], bool]:
        def held(group: int, block: int) -> bool:
            end = (block + 1) * self._groups[group].block_size
            return end <= num_tokens and (group, self._prefixes.name(request, end)) in cached

        return held

    def _is_valid(self, length: int, cap: int, peek: int, held: Callable[[int, int], bool]) -> bool:
        return valid_hit(self._groups, self._engine.alignment, length, cap, peek, held)

    def _cannot_serve(
        self, length: int, cap: int, peek: int, held: Callable[[int, int], bool]
    ) -> str:
        """The first group that cannot serve a hit that was served, by its kind."""
        if length % self._engine.alignment:
            return "off the boundaries"
        for index, (group, shape) in enumerate(zip(self._groups, self._shapes, strict=True)):
            size = group.block_size
            boundary = length // size
            if not group.prefix_cacheable:
                continue
            reached = within_reach(shape, boundary, cap // size, peek // size)
            if not (reached and all(held(index, b) for b in required_run(shape, boundary))):
                return f"longer than {group.kind.replace('_', ' ')} serves"
        return "served to a request that takes no hits"

    def registered(
        self,
        request: str,
        group_index: int,
        block: int,
        is_registered: bool,
        shared: Shared = NOTHING_SHARED,
    ) -> Violation | None:
        """Judge that a computed block of a request is registered, or that it is not."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        alignment = self._engine.alignment
        promised = self.promised(request, group_index, block, shared)
        if bool(promised) == is_registered:
            return None
        if is_registered and self._may_be_retained(group_index, block, shared.seen):
            return None
        boundary = next_boundary(shape, block)
        retained = self._is_retained(group)
        configuration = Configuration(1, block + 2, alignment, group, self._engine.hash_block_size)
        if is_registered:
            claim, divergence = "mask_keeps_only_reachable_blocks", Divergence.WASTE
            pattern = f"a block {unreachable_place(configuration, block)}"
            if retained:
                claim, pattern = (
                    "retention_keeps_only_promised_blocks",
                    "a block of no promised hit",
                )
            spec, actual = f"do not register block {block}", f"block {block} is registered"
        else:
            claim, divergence = "mask_keeps_every_reachable_block", Divergence.LOST_HIT
            pattern = f"the {ROLES[block_role(configuration, block, boundary)]} block is left out"
            if retained:
                who = next(iter(promised))
                claim = _PROMISES[who]
                pattern = f"a block of a promised {who} is left out"
            spec, actual = f"register block {block}", f"block {block} is not registered"
        drops = bool(shape.lookahead)
        return Violation(
            Signature(claim, divergence, group.kind, drops, pattern),
            f"group {group_index}: {spec}",
            f"group {group_index}: {actual}",
        )

    def promised(
        self, request: str, group_index: int, block: int, shared: Shared = NOTHING_SHARED
    ) -> dict[str, int]:
        """The promised boundaries that need a block, in blocks of the group, and to whom."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        if not group.prefix_cacheable:
            return {}
        ends = {"hit": next_boundary(shape, block)}
        if self._is_retained(group):
            ends = self._retained(request, group_index, block, shared)
        return {
            who: end for who, end in ends.items() if end >= 1 and in_required_run(shape, block, end)
        }

    @property
    def lookahead_tokens(self) -> int:
        """How far past a hit, in tokens, the lookahead blocks of all groups reach."""
        shapes = zip(self._groups, self._shapes, strict=True)
        return max(int(shape.lookahead) * group.block_size for group, shape in shapes)

    def _is_retained(self, group: Group) -> bool:
        """Whether sparse retention decides what is kept of the group."""
        return self._engine.retention_interval is not None and self._policies.thins_out(group.kind)

    def _retained(
        self, request: str, group_index: int, block: int, shared: Shared
    ) -> dict[str, int]:
        """The boundaries that sparse retention promises, in blocks of the group."""
        size, prompt = self._groups[group_index].block_size, len(self._requests[request].prompt)
        alignment, lookahead = self._engine.alignment, self.lookahead_tokens
        interval = self._engine.retention_interval
        resend = replay_boundary(prompt - 1, horizon(self._policy, prompt), lookahead, alignment)
        extension = replay_boundary(prompt, prompt, lookahead, alignment)
        promised = {"resend": resend // size, "extension": extension // size}
        if interval:
            shape = self._shapes[group_index]
            promised["sibling"] = sibling_boundary(shape, block, interval // size)
        return promised | {"junction": shared.kept // size}

    def _may_be_retained(self, group_index: int, block: int, seen: int) -> bool:
        """Whether a boundary of the shared prefix needs a block that retention thins out."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        boundaries = range(shape.segment, seen // group.block_size + 1, shape.segment)
        return self._is_retained(group) and any(
            in_required_run(shape, block, boundary) for boundary in boundaries
        )

    def page(self, wrong: WrongPage) -> Violation:
        """What was read, or is registered, is not what it should be."""
        kinds, eagle = self._kinds()
        signature = Signature(wrong.claim, Divergence.UNSOUND, kinds, eagle, wrong.pattern)
        return Violation(signature, wrong.spec, wrong.actual)

    def pool_claim(self, claim: str, pattern: str, spec: str, actual: str) -> Violation:
        """An operation on the pool broke a claim."""
        kinds, eagle = self._kinds()
        return Violation(Signature(claim, Divergence.UNSOUND, kinds, eagle, pattern), spec, actual)

    def policy(self, call: str, field: str, real: str, reference: str) -> Violation:
        """The two differ, and neither breaks the spec."""
        kinds, eagle = self._kinds()
        signature = Signature(
            "lockstep", Divergence.POLICY_CHANGE, kinds, eagle, f"{field} after {call}"
        )
        return Violation(signature, reference[:300], real[:300])

    def tables(self, seen: Observation, computed: Mapping[str, int]) -> Violation | None:
        """Judge the tables of requests whose next token is at position ``computed``.

        They hold every block that this token reads, and those that its step writes.
        """
        for request, tables in seen.tables.items():
            for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
                first = self._first_block_read(group, computed.get(request, 0))
                if group.kind is not GroupKind.MAMBA and 0 in table[first:]:
                    kinds, eagle = self._kinds()
                    pattern = f"{group.kind.replace('_', ' ')}: a block that is read was freed"
                    return Violation(
                        Signature(_TABLE, Divergence.UNSOUND, kinds, eagle, pattern),
                        f"request {request}, group {number}: blocks from {first} on are read",
                        f"its table is {table}",
                    )
        return None

    @staticmethod
    def _first_block_read(group: Group, query: int) -> int:
        first = next(token for token in range(query + 1) if _attends(group, query, token))
        return first // group.block_size

    def pool(self, seen: Observation) -> Violation | None:
        """Judge the pool's books: nothing leaks, and nothing is free and in use at once."""
        wrong = next(wrong_books(self._engine, self._requests, self._prefixes, seen), None)
        if wrong is None:
            return None
        kinds, eagle = self._kinds()
        signature = Signature("block_pool", Divergence.UNSOUND, kinds, eagle, wrong[0])
        return Violation(signature, wrong[0], wrong[1])

    def _kinds(self) -> tuple[str, bool]:
        """The kinds in words, and whether a group drops a lookahead block."""
        kinds = " + ".join(dict.fromkeys(group.kind for group in self._groups))
        return kinds, any(shape.lookahead for shape in self._shapes)


def _attends(group: Group, query: int, token: int) -> bool:
    return bool(attends(query, token, group.window, group.chunk))
