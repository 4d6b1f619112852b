"""The theorems on retention, in the style of `proofs.theorems`.

``length``, ``cap``, ``horizon``, ``lookahead_tokens`` and ``alignment`` are in tokens; ``count``
is in segments, ``interval`` in segments from one sibling boundary to the next.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import product

from proofs.cases import CASES, any_group, case_name
from proofs.interpretation import Interpretation
from proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from spec import hits, retention
from spec.groups import BlockGeometry, GroupKind
from spec.terms import Term

_SPARSE = tuple((kind, n) for kind, n in CASES if kind in retention.SPARSE_KINDS)


def _replayed(at: Interpretation, slip: int) -> tuple[Term, Term, Hypotheses]:
    """Any hit that lookup may serve with everything cached, and the replay boundary."""
    length, alignment = at.integer("length"), at.integer("alignment")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    lookahead = at.integer("lookahead_tokens")
    boundary = retention.replay_boundary(cap, horizon, lookahead + slip, alignment, at)
    hypotheses = (
        ("the alignment is at least one token", 1 <= alignment),
        ("a lookahead is not negative", 0 <= lookahead),
        ("a hit is not negative", 0 <= length),
        ("a hit ends on a boundary", at.multiple_at_most(length, alignment) == length),
        ("the hit stays within the cap", length <= cap),
        ("its lookahead stays within the horizon", length + lookahead <= horizon),
    )
    return length, boundary, hypotheses


def _no_hit_is_longer(at: Interpretation, slip: int = 0) -> Statement:
    length, boundary, hypotheses = _replayed(at, slip)
    return Statement(hypotheses, length <= boundary)


def _it_can_be_served(at: Interpretation, slip: int = 0) -> Statement:
    alignment, lookahead = at.integer("alignment"), at.integer("lookahead_tokens")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    boundary = retention.replay_boundary(cap, horizon, lookahead + slip, alignment, at)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("there is a hit", 1 <= boundary),
        ),
        (at.multiple_at_most(boundary, alignment) == boundary)
        & (boundary <= cap)
        & (boundary + lookahead <= horizon),
    )


def _promised_run_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, which: int, kept_lookahead: int
) -> Statement:
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    replays = [at.integer("resend"), at.integer("extension")]
    required = hits.in_required_run(group, block, replays[which], at)
    masked = replace(group, lookahead=kept_lookahead)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= replays[which]),
            ("the block is in its required run", required),
        ),
        retention.in_retained_mask(masked, block, replays, None, at),
    )


def _with_interval(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Hypotheses]:
    """Any group, with any retention interval in blocks."""
    group, sizes = any_group(at, kind, lookahead)
    interval = at.times(at.integer("interval"), group.segment)
    return group, interval, (*sizes, ("the interval is positive", 1 <= at.integer("interval")))


def _sibling_boundary_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, kept_lookahead: int
) -> Statement:
    block, boundary, resend = at.integer("block"), at.integer("boundary"), at.integer("resend")
    group, interval, sizes = _with_interval(at, kind, lookahead)
    rounded = at.multiple_at_most(boundary, interval)
    masked = replace(group, lookahead=kept_lookahead)
    return Statement(
        (
            *sizes,
            ("the interval is at least one block", 1 <= interval),
            ("the rounded hit is not empty", 1 <= rounded),
            ("the block is in its required run", hits.in_required_run(group, block, rounded, at)),
        ),
        retention.in_retained_mask(masked, block, [resend], interval, at),
    )


def _rounded_hit_asks_less(at: Interpretation, slip: int = 0) -> Statement:
    boundary, interval = at.integer("boundary"), at.integer("interval")
    lookahead, shared = at.integer("lookahead"), at.integer("shared")
    rounded = at.multiple_at_most(boundary, interval) + slip
    return Statement(
        (
            ("the interval is at least one block", 1 <= interval),
            ("the dense hit and its lookahead are shared", boundary + lookahead <= shared),
        ),
        (rounded <= boundary) & (rounded + lookahead <= shared),
    )


def _kept_is_promised(
    at: Interpretation, kind: GroupKind, lookahead: int, mask_lookahead: int
) -> Statement:
    block, resend, extension = (at.integer(n) for n in ("block", "resend", "extension"))
    group, interval, sizes = _with_interval(at, kind, lookahead)
    masked = replace(group, lookahead=mask_lookahead)
    # The sibling boundary that shows it: the first whose run ends after the block.
    sibling = retention.sibling_boundary(group, block, interval, at)
    return Statement(
        (
            *sizes,
            ("the interval is at least one block", 1 <= interval),
            (
                "the block is kept",
                retention.in_retained_mask(masked, block, [resend, extension], interval, at),
            ),
        ),
        (hits.in_required_run(group, block, resend, at) & (1 <= resend))
        | (hits.in_required_run(group, block, extension, at) & (1 <= extension))
        | (hits.in_required_run(group, block, sibling, at) & (1 <= sibling)),
    )


def _retention_keeps_resends_and_extensions() -> Iterable[Obligation]:
    yield Obligation(
        "no_replay_hits_more",
        "No resend or extension hits more than the replay boundary, whatever is cached.",
        _no_hit_is_longer,
        (
            Mutant(
                "lookahead_too_long",
                "Nor more than that of a longer lookahead.",
                partial(_no_hit_is_longer, slip=1),
            ),
        ),
    )
    yield Obligation(
        "replay_boundary_can_be_served",
        "The replay boundary is a boundary within cap and horizon.",
        _it_can_be_served,
        (
            Mutant(
                "lookahead_too_short",
                "So is that of a shorter lookahead.",
                partial(_it_can_be_served, slip=-1),
            ),
        ),
    )
    for (kind, lookahead), (which, what) in product(_SPARSE, enumerate(("resend", "extension"))):
        state = partial(_promised_run_is_kept, kind=kind, lookahead=lookahead, which=which)
        yield Obligation(
            case_name(f"run_of_{what}_is_kept", kind, lookahead),
            f"Each block in the required run of the {what}'s boundary is kept.",
            partial(state, kept_lookahead=lookahead),
            (
                Mutant(
                    "another_lookahead",
                    "A mask with another lookahead keeps it, too.",
                    partial(state, kept_lookahead=lookahead - 1),
                ),
            ),
        )


def _retention_keeps_siblings() -> Iterable[Obligation]:
    yield Obligation(
        "rounded_hit_asks_less",
        "A hit rounded down to the interval is no longer than the dense one and needs no more "
        "of the shared prefix.",
        _rounded_hit_asks_less,
        (
            Mutant(
                "one_block_more",
                "Nor does a hit one block longer.",
                partial(_rounded_hit_asks_less, slip=1),
            ),
        ),
    )
    for kind, lookahead in _SPARSE:
        state = partial(_sibling_boundary_is_kept, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("run_of_rounded_hit_is_kept", kind, lookahead),
            "Each block in the required run of a hit rounded down to the interval is kept.",
            partial(state, kept_lookahead=lookahead),
            (
                Mutant(
                    "another_lookahead",
                    "A mask with another lookahead keeps it, too.",
                    partial(state, kept_lookahead=lookahead - 1),
                ),
            ),
        )


def _retention_keeps_only_promised_blocks() -> Iterable[Obligation]:
    for kind, lookahead in _SPARSE:
        state = partial(_kept_is_promised, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("kept_block_is_promised", kind, lookahead),
            "A kept block is in the required run of a promised boundary.",
            partial(state, mask_lookahead=lookahead),
            (
                Mutant(
                    "longer_lookahead",
                    "So is one kept by a mask that looks further ahead.",
                    partial(state, mask_lookahead=lookahead + 1),
                ),
            ),
        )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "retention_keeps_resends_and_extensions": tuple(_retention_keeps_resends_and_extensions()),
    "retention_keeps_siblings": tuple(_retention_keeps_siblings()),
    "retention_keeps_only_promised_blocks": tuple(_retention_keeps_only_promised_blocks()),
}
"""The obligations of each claim on retention, by its name."""
