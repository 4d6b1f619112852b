"""What makes a hit valid, and that there is one longest, in the style of `proofs.theorems`."""

from hitproof.proofs import boundaries, scans
from hitproof.proofs.cases import CASES, any_group, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec import hits
from hitproof.spec.groups import BlockGeometry, GroupKind, whole_blocks
from hitproof.spec.terms import Formula, Term, ceil_div, for_all, implies, not_


def _some_hit(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Hypotheses]:
    """Any hit of any group, in blocks."""
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    return group, boundary, (*sizes, ("the hit is not empty", 1 <= boundary))


def _complete(at: Interpretation, group: BlockGeometry, boundary: Term, slip: int = 0) -> Formula:
    """Whether each block is cached that the hit requires."""
    cached = at.block_set("cached")
    return for_all(
        0,
        hits.run_end(group, boundary),
        lambda i: implies(hits.in_required_run(group, i, boundary + slip), cached(i)),
    )


@obligation(
    "more_cached_blocks_keep_a_hit_valid",
    "A required run stays cached when more blocks are cached.",
    CASES,
)
def _more_stays_valid(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, boundary, hypotheses = _some_hit(at, kind, lookahead)
    cached, more = at.block_set("cached"), at.block_set("more")
    grows = for_all(0, hits.run_end(group, boundary), lambda i: implies(cached(i), more(i)))
    return Statement(
        (
            *hypotheses,
            ("the required run is cached", hits.has_required_run(group, boundary, cached)),
            ("what is cached stays cached", grows),
        ),
        hits.has_required_run(group, boundary, more),
    )


@obligation(
    "required_blocks_are_enough",
    "A required run is cached when each of its blocks is, whatever else is not.",
    CASES,
)
def _required_suffices(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, boundary, hypotheses = _some_hit(at, kind, lookahead)
    return Statement(
        (*hypotheses, ("each required block is cached", _complete(at, group, boundary))),
        hits.has_required_run(group, boundary, at.block_set("cached")),
    )


@obligation(
    "each_required_block_is_needed",
    "Without any one of its blocks a required run is not cached.",
    CASES,
)
def _less_is_invalid(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, boundary, hypotheses = _some_hit(at, kind, lookahead)
    block, cached = at.integer("block"), at.block_set("cached")
    without = hits.has_required_run(group, boundary, lambda i: cached(i) & (i != block))
    return Statement(
        (
            *hypotheses,
            ("the block is in the required run", hits.in_required_run(group, block, boundary)),
            ("the block was cached", cached(block)),
        ),
        not_(without),
    )


@obligation(
    "valid_hit_is_within_reach_and_complete",
    "A hit is valid if and only if lookup may serve it and each block that it requires is cached.",
    CASES,
    earlier_boundary=(
        "It is when each block is that the block edge before requires.",
        {"slip": -1},
    ),
)
def _valid_is_complete(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    group, boundary, hypotheses = _some_hit(at, kind, lookahead)
    limits = at.integer("cap"), at.integer("horizon")
    valid = hits.valid_boundary(group, boundary, *limits, at.block_set("cached"))
    reach = hits.within_reach(group, boundary, *limits)
    return Statement(hypotheses, valid == (reach & _complete(at, group, boundary, slip)))


@obligation(
    "reach_in_blocks_is_reach_in_tokens",
    "With cap and lookahead horizon rounded down to blocks, lookup may serve exactly the hits that "
    "end within the cap and whose lookahead block ends within the horizon.",
    CASES,
    rounded_up=("So it may with both rounded up.", {"rounded_up": True}),
)
def _reach_in_tokens(
    at: Interpretation, kind: GroupKind, lookahead: int, rounded_up: bool = False
) -> Statement:
    boundary, block_size = at.integer("boundary"), at.integer("block_size")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group, sizes = any_group(at, kind, lookahead)
    in_blocks = ceil_div if rounded_up else whole_blocks
    reach = hits.within_reach(
        group, boundary, in_blocks(cap, block_size), in_blocks(horizon, block_size)
    )
    return Statement(
        (*sizes, ("a block holds at least one token", 1 <= block_size)),
        reach
        == (
            (boundary * block_size <= cap) & ((boundary + group.lookahead) * block_size <= horizon)
        ),
    )


@obligation(
    "scan_starts_high_enough",
    "No hit that lookup may serve is longer than the cap rounded down to the alignment.",
    CASES,
)
def _scan_starts_high_enough(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    count, boundary = at.integer("count"), at.integer("boundary")
    block_size, alignment = at.integer("block_size"), at.integer("alignment")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group, sizes = any_group(at, kind, lookahead)
    reach = hits.within_reach(group, boundary, cap // block_size, horizon // block_size)
    length = count * alignment
    return Statement(
        (
            *sizes,
            ("a block holds at least one token", 1 <= block_size),
            ("the alignment is at least one token", 1 <= alignment),
            ("a hit ends on a block edge", length == boundary * block_size),
            ("lookup may serve the hit", reach),
        ),
        length <= cap // alignment * alignment,
    )


def _two_hits(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[Term, Formula, Term, Formula, Hypotheses]:
    """Two hits of any group, in segments, each with whether it is valid."""
    count, other = at.integer("count"), at.integer("other")
    group, sizes = any_group(at, kind, lookahead)
    cap, horizon, cached = at.integer("cap"), at.integer("horizon"), at.block_set("cached")

    def valid(segments: Term) -> Formula:
        boundary = segments * group.segment
        return hits.valid_boundary(group, boundary, cap, horizon, cached)

    some_hits = ("neither hit is empty", (1 <= count) & (1 <= other))
    return count, valid(count), other, valid(other), (*sizes, some_hits)


@obligation(
    "scan_skips_no_valid_hit",
    "When no valid hit is longer than this one and this one is not valid, then no valid hit is "
    "longer than the next shorter one. So, by induction, a scan from above stops at the longest "
    "valid hit, at 0 at the latest.",
    CASES,
)
def _scan_goes_on(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    count, valid, other, other_is_valid, sizes = _two_hits(at, kind, lookahead)
    return Statement(
        (
            *sizes,
            ("no other valid hit is longer", implies(other_is_valid, other <= count)),
            ("the hit is not valid", not_(valid)),
        ),
        implies(other_is_valid, other <= count - 1),
    )


@obligation("longest_valid_hit_is_one", "Two valid hits that are both longest are the same.", CASES)
def _longest_is_one(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    count, valid, other, other_is_valid, sizes = _two_hits(at, kind, lookahead)
    return Statement(
        (
            *sizes,
            ("the hit is valid", valid),
            ("the other hit is valid", other_is_valid),
            ("no valid hit is longer than the one", implies(other_is_valid, other <= count)),
            ("nor than the other", implies(valid, count <= other)),
        ),
        count == other,
    )


OBLIGATIONS = {
    "lookup_returns_longest_valid_hit": (
        *_more_stays_valid,
        *_required_suffices,
        *_less_is_invalid,
        *_valid_is_complete,
        *_reach_in_tokens,
        *_scan_starts_high_enough,
        *_scan_goes_on,
        *_longest_is_one,
        *scans.obligations(),
        *boundaries.OBLIGATIONS,
    )
}
"""The obligations of each claim on lookup, by its name."""
