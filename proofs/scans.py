"""Verification conditions of the scan that `reference.scan` runs.

The functions that step through a lookup are the ones proved here. The invariant holds at the
start, each step keeps it and comes closer to the end, and at the end it says that the hit is the
longest valid one. What is cached is arbitrary, and so are all sizes, the lookahead, the cap and the
lookahead horizon. Names of unknowns are as in `theorems`; ``left``, ``right``, ``cap`` and
``horizon`` are in blocks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from hitproof.proofs.cases import KINDS, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.reference.scan import (
    State,
    after_hit,
    after_miss,
    first_state,
    hit_found,
    is_done,
)
from hitproof.spec import hits
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term, for_all, implies, max, min, not_


@dataclass(frozen=True)
class _Setting:
    """Any lookup of any group, and any other hit to compare with what it finds."""

    at: Interpretation
    group: BlockGeometry
    cap: Term
    horizon: Term
    other: Term
    cached: Callable[[Term], Formula]

    @property
    def limit(self) -> Term:
        """How many blocks the reference asks about at most (`reference.spec_groups`)."""
        return min(self.cap + self.group.lookahead, self.horizon)

    def valid(self, boundary: Term) -> Formula:
        """Whether lookup may serve the boundary, given that it is positive."""
        cap, horizon = self.cap, self.horizon
        return hits.valid_boundary(self.group, boundary, cap, horizon, self.cached)

    def nothing_longer(self, boundary: Term) -> Formula:
        """Whether the other hit is no counterexample to: no valid hit is longer."""
        return implies(self.valid(self.other), self.other <= boundary)

    def invariant(self, state: State) -> Formula:
        """What holds whenever a scan asks, and at the end."""
        group, boundary = self.group, state.boundary
        start = max(hits.run_start(group, boundary), 0)
        end = hits.run_end(group, boundary)
        within_run = (start <= state.left) & (state.right <= end)
        known = for_all(start, state.left, self.cached) & for_all(
            max(state.right, start), end, self.cached
        )
        shorter_at_least = hits.within_reach(group, boundary, self.cap, self.horizon)
        return (
            self.nothing_longer(boundary)
            & shorter_at_least
            & implies(1 <= boundary, within_run & known)
        )


def _setting(at: Interpretation, kind: GroupKind) -> tuple[_Setting, Hypotheses]:
    lookahead = at.integer("lookahead")
    group, sizes = any_group(at, kind, lookahead)
    cap, horizon, other = at.integer("cap"), at.integer("horizon"), at.integer("other")
    longer, cached = other * group.segment, at.block_set("cached")
    setting = _Setting(at, group, cap, horizon, longer, cached)
    return setting, (
        *sizes,
        ("a group does not look back", 0 <= lookahead),
        ("the request is not negative", (0 <= cap) & (0 <= horizon)),
        ("the other hit is not empty", 1 <= other),
    )


def _any_state(setting: _Setting) -> tuple[State, Hypotheses]:
    at = setting.at
    boundary = at.integer("count") * setting.group.segment
    state = State(boundary, at.integer("left"), at.integer("right"))
    return state, (("the invariant holds", setting.invariant(state)),)


def _starts_right(at: Interpretation, kind: GroupKind, slip: int = 0) -> Statement:
    setting, sizes = _setting(at, kind)
    return Statement(sizes, setting.invariant(first_state(setting.group, setting.limit - slip)))


def _hit_keeps_it(at: Interpretation, kind: GroupKind) -> Statement:
    setting, sizes = _setting(at, kind)
    state, invariant = _any_state(setting)
    count = at.integer("run")
    after = after_hit(state, count)
    fewer = after.right - after.left < state.right - state.left
    same = after.boundary == state.boundary
    in_turn = after.left == state.left + count
    return Statement(
        (
            *sizes,
            *invariant,
            ("the scan is not done", not_(is_done(state))),
            ("one block is cached at least", 1 <= count),
            ("no more than it has to ask about", count <= state.right - state.left),
            (
                "the next blocks it asks about are cached",
                for_all(state.left, after.left, setting.cached),
            ),
        ),
        setting.invariant(after) & same & fewer & in_turn,
    )


def _miss_keeps_it(at: Interpretation, kind: GroupKind) -> Statement:
    setting, sizes = _setting(at, kind)
    state, invariant = _any_state(setting)
    after = after_miss(setting.group, state)
    return Statement(
        (
            *sizes,
            *invariant,
            ("the scan is not done", not_(is_done(state))),
            ("the block asked about is not cached", not_(setting.cached(state.left))),
        ),
        setting.invariant(after) & (after.boundary < state.boundary),
    )


def _ends_right(at: Interpretation, kind: GroupKind) -> Statement:
    setting, sizes = _setting(at, kind)
    state, invariant = _any_state(setting)
    found = hit_found(state)
    return Statement(
        (*sizes, *invariant, ("the scan is done", is_done(state))),
        implies(1 <= found, setting.valid(found)) & setting.nothing_longer(found),
    )


def obligations() -> Iterable[Obligation]:
    """The scan finds the longest valid hit of each kind of group."""
    for kind in KINDS:
        yield Obligation(
            case_name("scan_starts_within_reach", kind),
            "The invariant of a scan holds at its start: no valid hit is longer than the "
            "candidate, and lookup may serve the candidate.",
            partial(_starts_right, kind=kind),
            (
                Mutant(
                    "one_block_lower",
                    "It holds when the scan starts below the last block.",
                    partial(_starts_right, kind=kind, slip=1),
                ),
            ),
        )
        yield Obligation(
            case_name("scan_ends_with_the_longest_valid_hit", kind),
            "When a scan is done its candidate, if positive, is valid, and no valid hit is longer.",
            partial(_ends_right, kind=kind),
        )
        yield Obligation(
            case_name("scan_goes_on_after_a_cached_block", kind),
            "The scan keeps its invariant and its candidate when the next blocks that it asks "
            "about are cached, however many, has fewer to ask about, and goes on in turn.",
            partial(_hit_keeps_it, kind=kind),
        )
        yield Obligation(
            case_name("scan_goes_on_after_a_missing_block", kind),
            "The scan keeps its invariant when a block is missing, and its candidate is "
            "shorter. So it ends, as the candidate only shrinks and there are fewer and "
            "fewer blocks to ask about.",
            partial(_miss_keeps_it, kind=kind),
        )
