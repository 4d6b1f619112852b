"""Which boundaries retention promises, in the style of `proofs.theorems`.

``length``, ``cap``, ``horizon``, ``lookahead_tokens`` and ``alignment`` are in tokens. Where an
interval is asked about by itself, ``interval`` is in units of its own.
"""

from collections.abc import Iterable
from functools import partial

from hitproof.proofs.cases import obligation
from hitproof.proofs.interpretation import Interpretation, Products
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import hits, retention
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import is_multiple, not_


def _no_hit_is_longer(at: Interpretation) -> Statement:
    length, alignment = at.integer("length"), at.integer("alignment")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    lookahead = at.integer("lookahead_tokens")
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("a hit is not negative", 0 <= length),
            ("a hit ends on a boundary", is_multiple(length, alignment)),
            ("the hit stays within the cap", length <= cap),
            ("its lookahead stays within the horizon", length + lookahead <= horizon),
        ),
        length <= retention.replay_boundary(cap, horizon, lookahead, alignment),
    )


def _it_can_be_served(at: Interpretation, slip: int = 0) -> Statement:
    alignment, lookahead = at.integer("alignment"), at.integer("lookahead_tokens")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    boundary = retention.replay_boundary(cap, horizon, lookahead + slip, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("there is a hit", 1 <= boundary),
        ),
        is_multiple(boundary, alignment) & (boundary <= cap) & (boundary + lookahead <= horizon),
    )


@obligation(
    "replay_boundary_is_a_boundary",
    "The replay boundary is a multiple of the alignment and not negative, however short the "
    "prompt.",
    positive=("It is positive.", {"least": 1}),
)
def _replay_is_a_boundary(at: Interpretation, least: int = 0) -> Statement:
    alignment, lookahead = at.integer("alignment"), at.integer("lookahead_tokens")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    boundary = retention.replay_boundary(cap, horizon, lookahead, alignment)
    return Statement(
        (("the alignment is at least one token", 1 <= alignment),),
        (least <= boundary) & is_multiple(boundary, alignment),
    )


@obligation(
    "follow_up_hits_no_less",
    "A follow-up turn, which finds the prompt and some of its output cached, hits no less than an"
    " extension of the prompt.",
)
def _follow_up_hits_no_less(at: Interpretation) -> Statement:
    alignment, lookahead = at.integer("alignment"), at.integer("lookahead_tokens")
    prompt, computed = at.integer("prompt"), at.integer("computed")
    extension = retention.replay_boundary(prompt, prompt, lookahead, alignment)
    follow_up = retention.replay_boundary(computed, computed, lookahead, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the prompt is computed, and perhaps more", prompt <= computed),
        ),
        extension <= follow_up,
    )


@obligation(
    "rounded_hit_asks_less",
    "A hit rounded down to the interval is no longer than the dense one and needs no more of the "
    "shared prefix.",
)
def _rounded_hit_asks_less(at: Interpretation) -> Statement:
    boundary, interval = at.integer("boundary"), at.integer("interval")
    lookahead, shared = at.integer("lookahead"), at.integer("shared")
    rounded = boundary // interval * interval
    return Statement(
        (
            ("the interval is at least one block", 1 <= interval),
            ("the dense hit and its lookahead are shared", boundary + lookahead <= shared),
        ),
        (rounded <= boundary) & (rounded + lookahead <= shared),
    )


def _intervals_fall_on_boundaries(at: Interpretation, slip: int = 0) -> Statement:
    count, share, alignment = (at.integer(n) for n in ("count", "interval", "alignment"))
    multiple = count * (share * alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the interval is at least one alignment", 1 <= share),
        ),
        multiple == (count * share + slip) * alignment,
    )


@obligation(
    "interval_on_boundaries_is_accepted",
    "Each multiple of the alignment that is not negative is a retention interval.",
)
def _interval_is_accepted(at: Interpretation) -> Statement:
    count, alignment = at.integer("count"), at.integer("alignment")
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the interval is not negative", 0 <= count),
        ),
        retention.falls_on_boundaries(count * alignment, alignment),
    )


@obligation(
    "interval_off_boundaries_is_refused",
    "No retention interval is negative or lies between two multiples of the alignment.",
)
def _interval_is_refused(at: Interpretation) -> Statement:
    count, alignment, interval = (at.integer(n) for n in ("count", "alignment", "interval"))
    starts, ends = count * alignment, (count + 1) * alignment
    refused = ((starts < interval) & (interval < ends)) | (interval < 0)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the interval is negative or between two boundaries", refused),
        ),
        not_(retention.falls_on_boundaries(interval, alignment)),
    )


@obligation(
    "sibling_boundary_is_the_first",
    "The sibling boundary after a block falls on the interval and its run ends after the block, "
    "and that of no earlier one does.",
)
def _sibling_is_the_first(at: Interpretation) -> Statement:
    block, boundary = at.integer("block"), at.integer("boundary")
    lookahead, interval = at.integer("lookahead"), at.integer("interval")
    group = BlockGeometry(GroupKind.SLIDING_WINDOW, 1, 0, lookahead)
    other = at.integer("other") * interval
    sibling = retention.sibling_boundary(group, block, interval)
    return Statement(
        (
            ("the interval is at least one block", 1 <= interval),
            ("the other hit falls on the interval", boundary == other),
            ("the other hit is not empty", 1 <= at.integer("other")),
            ("its run ends after the block", block < hits.run_end(group, boundary)),
        ),
        (block < hits.run_end(group, sibling))
        & (1 <= sibling)
        & is_multiple(sibling, interval)
        & (sibling <= boundary),
    )


NO_REPLAY_HITS_MORE = Obligation(
    "no_replay_hits_more",
    "No resend or extension hits more than the replay boundary, whatever is cached.",
    _no_hit_is_longer,
)

REPLAY_CAN_BE_SERVED = Obligation(
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

INTERVALS_FALL_ON_BOUNDARIES = Obligation(
    "intervals_fall_on_boundaries",
    "A multiple of a multiple of the alignment is a multiple of the alignment.",
    _intervals_fall_on_boundaries,
    (Mutant("one_more", "It is the next one.", partial(_intervals_fall_on_boundaries, slip=1)),),
    interpretation=Products,
)


def replays() -> Iterable[Obligation]:
    """The replay boundary is the longest hit of a resend or an extension."""
    yield NO_REPLAY_HITS_MORE
    yield REPLAY_CAN_BE_SERVED
    yield from _replay_is_a_boundary
    yield from _follow_up_hits_no_less


def siblings() -> Iterable[Obligation]:
    """The hits promised to siblings fall on the interval, for the intervals that there are."""
    yield from _rounded_hit_asks_less
    yield INTERVALS_FALL_ON_BOUNDARIES
    yield from _interval_is_accepted
    yield from _interval_is_refused
    yield from _sibling_is_the_first
