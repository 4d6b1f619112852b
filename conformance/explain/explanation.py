"""Explanations: what a hit of a layout needs, what its producer registers, and why.

Every fact comes from the spec's own predicates; the sentences only spell out their arithmetic.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hitproof.conformance.explain.reasons import (
    LONGEST_OF_ONE,
    Reason,
    alignment_reason,
    lookahead_reason,
    need_reason,
    registered_reason,
    run_reasons,
)
from hitproof.conformance.findings.strips import Row, Strip, marks, numbers, roles
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import Layout, is_possible
from hitproof.conformance.words import in_tokens
from hitproof.spec.groups import ConfigurationError, GroupKind
from hitproof.spec.hits import longest_valid_hit, required_run, valid_hit
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import check_interval, in_retained_mask, replay_boundary
from hitproof.spec.terms import is_multiple


class ExplanationError(ConfigurationError):
    """A question that has no answer; the message names the remedy."""


MOST_TOKENS = 2**20
"""The longest prompt that is explained, in tokens."""
MOST_BLOCKS_OF_A_CACHE = 4096
"""The most blocks of a group in a cache state that is looked up, since the time is quadratic."""

Cache = tuple[frozenset[int] | None, ...]
"""The cached blocks of each group, by its index in the layout; None for the registered ones."""


@dataclass(frozen=True)
class Miss:
    """Why a longer hit is not valid.

    Attributes:
        length: the boundary, in tokens.
        group_ids: the groups that lack a block.
        block: the first block of their required run that is not cached.
    """

    length: int
    group_ids: tuple[int, ...]
    block: int


@dataclass(frozen=True)
class Question:
    """What to explain.

    Attributes:
        layout: the groups; its bound is the length of the prompt in tokens.
        horizon: how far past the hit a lookup may peek.
        retention: the retention interval in tokens; None for dense retention.
        hit: the boundary in tokens; None for the longest hit.
        cache: what is cached; None if the question is not about a cache state.
    """

    layout: Layout
    horizon: LookaheadHorizon
    retention: int | None = None
    hit: int | None = None
    cache: Cache | None = None


def shortest_prompt(layout: Layout, policy: LookaheadHorizon, hit: int) -> int:
    """The fewest tokens of a prompt whose resend can hit ``hit`` tokens, a boundary."""
    past = hit + layout.lookahead_tokens
    return next(
        num_tokens
        for num_tokens in sorted({hit + 1, past, past + 1})
        if Explanation(Question(replace(layout, num_tokens=num_tokens), policy)).resend >= hit
    )


def usual_hit(layout: Layout) -> int:
    """A boundary, in tokens, at which every run has its full length."""
    longest = max(group.window or group.chunk or 0 for group in layout.groups)
    return (longest // layout.alignment + 1) * layout.alignment


@dataclass(frozen=True)
class Explained:
    """What the hit means for one set of groups that are looked up together.

    Attributes:
        looked_up: the groups.
        num_blocks: full blocks of the prompt.
        required: the required run of the hit; empty when there is no hit.
        registered: the blocks that the producer registers.
        cached: the blocks that all of the groups have cached; None if not asked about.
        ends: the hits to draw, in blocks: a label and where it ends.
        reasons: why.
    """

    looked_up: LookedUp
    num_blocks: int
    required: range
    registered: frozenset[int]
    cached: frozenset[int] | None
    ends: tuple[tuple[str, int], ...]
    reasons: tuple[Reason, ...]

    def strip(self, blocks: range) -> Strip:
        """The picture of ``blocks``."""
        rows = [Row("block", numbers(blocks)), Row("registered", marks(blocks, self.registered))]
        if self.cached is not None:
            rows.append(Row("cached", marks(blocks, self.cached)))
        rows += [
            Row(label, roles(self.looked_up, blocks, end), end or None) for label, end in self.ends
        ]
        return Strip(tuple(rows), blocks, self.looked_up.shape.segment)

    def cut(self, most: int) -> range:
        """At most ``most`` blocks of the prompt, including as much of the required run as fits."""
        if self.num_blocks <= most:
            return range(self.num_blocks)
        spare = max(most - len(self.required), 0)
        stop = min(self.required.stop + (spare + 1) // 2, self.num_blocks)
        stop = min(max(stop, most), self.num_blocks)
        return range(max(stop - most, 0), stop)


@dataclass(frozen=True)
class Explanation:
    """The answer to a `Question`. Raises `ExplanationError` from `check` on one without answer."""

    question: Question

    @property
    def layout(self) -> Layout:
        """The groups, and the length of the prompt."""
        return self.question.layout

    @cached_property
    def reach(self) -> tuple[int, int]:
        """Cap and lookahead horizon, in tokens."""
        return self.layout.reach(self.layout.num_tokens - 1, self.question.horizon)

    @cached_property
    def resend(self) -> int:
        """The longest hit of a resend of the prompt, in tokens."""
        cap, horizon = self.reach
        return int(
            replay_boundary(cap, horizon, self.layout.lookahead_tokens, self.layout.alignment)
        )

    @cached_property
    def extension(self) -> int:
        """The longest hit of an extension of the prompt, in tokens."""
        tokens = self.layout.num_tokens
        return int(
            replay_boundary(tokens, tokens, self.layout.lookahead_tokens, self.layout.alignment)
        )

    def check(self) -> None:
        """Reject what no engine can have or do."""
        layout, hit = self.layout, self.question.hit
        if self.question.horizon is LookaheadHorizon.CANDIDATE:
            raise ExplanationError(
                "with the horizon 'candidate' (vLLM up to 0.19) groups are looked up one after the "
                "other, which no single strip can show; ask for 'capped' or 'hashed'"
            )
        if not is_possible(layout):
            raise ExplanationError(
                "no vLLM engine has these groups: chunked local attention excludes EAGLE and needs "
                "one block size for all groups and chunks of whole blocks, and a Mamba group has "
                "no draft layer; change that"
            )
        check_interval(self.question.retention, layout.alignment)
        self._check_size()
        if hit is None:
            return
        if hit < 1 or not is_multiple(hit, layout.alignment):
            below = max(hit // layout.alignment, 1) * layout.alignment
            raise ExplanationError(
                f"a hit ends on a multiple of the alignment ({in_tokens(layout.alignment)}), which "
                f"{hit} is not; ask for {below} or {below + layout.alignment}"
            )
        if hit > self.resend:
            enough = shortest_prompt(layout, self.question.horizon, hit)
            raise ExplanationError(
                f"a request of {in_tokens(layout.num_tokens)} is served "
                f"{in_tokens(self.resend)} at most, not {hit}; ask for a shorter "
                f"hit or for a prompt of at least {in_tokens(enough)}"
            )

    def _check_size(self) -> None:
        if self.layout.num_tokens > MOST_TOKENS:
            raise ExplanationError(
                f"these groups take a prompt of {in_tokens(self.layout.num_tokens)} to show; at "
                f"most {MOST_TOKENS} can be, so ask for --tokens or a --hit of fewer"
            )
        most = max(self.layout.bound(looked_up) for looked_up in self.layout.looked_up)
        if self.question.cache is not None and most > MOST_BLOCKS_OF_A_CACHE:
            raise ExplanationError(
                f"a cache state can have at most {MOST_BLOCKS_OF_A_CACHE} blocks of a group, not "
                f"{most}; ask for fewer --tokens"
            )

    def registered(self, looked_up: LookedUp) -> frozenset[int]:
        """The full blocks of the prompt that the producer registers."""
        shape, size = looked_up.shape, looked_up.group.block_size
        interval = self.question.retention
        blocks = range(self.layout.bound(looked_up))
        if interval is None:
            return frozenset(block for block in blocks if in_mask(shape, block))
        replays = [self.resend // size, self.extension // size]
        every = interval // size or None
        return frozenset(b for b in blocks if in_retained_mask(shape, b, replays, every))

    @cached_property
    def cached(self) -> tuple[frozenset[int], ...]:
        """The cached blocks of each group."""
        if self.question.cache is None:
            return ()
        registered = {
            group_id: self.registered(looked_up)
            for looked_up in self.layout.looked_up
            for group_id in looked_up.group_ids
        }
        return tuple(
            registered.get(group_id, frozenset()) if blocks is None else blocks
            for group_id, blocks in enumerate(self.question.cache)
        )

    def _is_cached(self, group_id: int, block: int) -> bool:
        return block in self.cached[group_id]

    @cached_property
    def longest(self) -> int | None:
        """The longest valid hit for what is cached, in tokens; None if not asked about."""
        if self.question.cache is None:
            return None
        layout = self.layout
        return longest_valid_hit(layout.shared, layout.alignment, *self.reach, self._is_cached)

    @property
    def length(self) -> int:
        """The hit that is explained, in tokens; 0 when there is none."""
        if self.question.hit is not None:
            return self.question.hit
        return self.resend if self.longest is None else self.longest

    @property
    def is_served(self) -> bool | None:
        """Whether the hit is valid for what is cached; None if not asked about."""
        if self.question.cache is None:
            return None
        layout = self.layout
        return valid_hit(layout.shared, layout.alignment, self.length, *self.reach, self._is_cached)

    @cached_property
    def misses(self) -> tuple[Miss, ...]:
        """For each boundary within reach past the longest hit, what is missing."""
        if self.longest is None:
            return ()
        longer = range(self.longest + self.layout.alignment, self.resend + 1, self.layout.alignment)
        found = (lacking(self.layout.looked_up, length, self._have) for length in longer)
        return tuple(miss for miss in found if miss is not None)

    def _have(self, looked_up: LookedUp) -> frozenset[int]:
        return frozenset.intersection(*(self.cached[each] for each in looked_up.group_ids))

    @cached_property
    def groups(self) -> tuple[Explained, ...]:
        """What the hit means for each set of groups."""
        return tuple(self._explained(looked_up) for looked_up in self.layout.looked_up)

    def _explained(self, looked_up: LookedUp) -> Explained:
        size = looked_up.group.block_size
        end = self.length // size
        label = "longest hit" if self.question.hit is None and self.longest else "hit needs"
        ends = [(label, end)]
        if self.question.hit is not None and self.longest is not None:
            ends.append(("longest hit", self.longest // size))
        registered = self.registered(looked_up)
        return Explained(
            looked_up=looked_up,
            num_blocks=self.layout.bound(looked_up),
            required=required_run(looked_up.shape, end) if end else range(0),
            registered=registered,
            cached=None if self.longest is None else self._have(looked_up),
            ends=tuple(ends),
            reasons=tuple(self._group_reasons(looked_up, end, registered)),
        )

    def _group_reasons(
        self, looked_up: LookedUp, end: int, registered: frozenset[int]
    ) -> Iterator[Reason]:
        if end:
            yield from run_reasons(looked_up, end)
            if looked_up.group.kind is not GroupKind.MAMBA:
                yield lookahead_reason(self.layout, looked_up)
            yield need_reason(looked_up, end)
        yield registered_reason(
            self.layout, looked_up, registered, self.question.retention, self.resend, self.extension
        )

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """What holds for all groups together."""
        return tuple(self._reasons())

    def _reasons(self) -> Iterator[Reason]:
        layout = self.layout
        yield alignment_reason(layout.groups, layout.alignment)
        (cap, horizon), lookahead = self.reach, layout.lookahead_tokens
        longest = "common_hit_is_the_longest" if len(layout.groups) > 1 else LONGEST_OF_ONE
        yield Reason(
            f"cap = {layout.num_tokens} - 1 = {in_tokens(cap)}: the last token is always "
            f"recomputed; a lookup may peek as far as {in_tokens(horizon)} (lookahead horizon)",
            longest,
        )
        yield Reason(
            f"longest hit of a resend = the multiple of {layout.alignment} at or below "
            f"min({cap}, {horizon} - {lookahead}) = {min(cap, horizon - lookahead)}: "
            f"{in_tokens(self.resend)}",
            longest,
        )
        if is_fine_grained(layout.shared, layout.hash_block_size):
            yield Reason(
                "vLLM from 0.26 on may end hits here inside blocks, on any multiple of "
                f"{in_tokens(layout.hash_block_size)} (hit granularity fine); the hits shown end "
                "on block edges",
                "fine_grained_hit_is_vouched_for",
            )
        for number, group in enumerate(layout.groups):
            if not group.prefix_cacheable:
                yield Reason(
                    f"group {number} opts out of prefix caching: a hit needs nothing from it",
                    "common_hit_is_valid_for_every_group",
                )


def lacking(
    sets: Sequence[LookedUp], length: int, have: Callable[[LookedUp], frozenset[int]]
) -> Miss | None:
    """The first missing block of a hit of ``length`` tokens, or None."""
    for looked_up in sets:
        held = have(looked_up)
        run = required_run(looked_up.shape, length // looked_up.group.block_size)
        for block in run:
            if block not in held:
                return Miss(length, looked_up.group_ids, block)
    return None
