"""The theorems on retention, in the style of `proofs.theorems`.

``length``, ``cap``, ``horizon``, ``lookahead_tokens`` and ``alignment`` are in tokens; ``count``
is in segments, ``interval`` in segments from one sibling boundary to the next.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import product

from proofs import histories
from proofs.cases import CASES, any_group, case_name
from proofs.interpretation import Interpretation, Products
from proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from spec import hits, mask, retention
from spec.groups import BlockGeometry, GroupKind
from spec.terms import Formula, Term, is_multiple

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


def _promised(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, list[Term], Term, Hypotheses]:
    """Any group, the boundaries of a resend, an extension and a junction, and any interval."""
    group, interval, sizes = _with_interval(at, kind, lookahead)
    replays = [at.integer(name) for name in ("resend", "extension", "junction")]
    some_interval = ("the interval is at least one block", 1 <= interval)
    return group, replays, interval, (*sizes, some_interval)


def _every_promised_run_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, kept_lookahead: int
) -> Statement:
    block, boundary = at.integer("block"), at.integer("boundary")
    group, replays, interval, hypotheses = _promised(at, kind, lookahead)
    promised = boundary == at.times(at.integer("count"), interval)
    for replay in replays:
        promised |= boundary == replay
    required = hits.in_required_run(group, block, boundary, at)
    return Statement(
        (
            *hypotheses,
            ("the boundary is that of a replay, or falls on the interval", promised),
            ("the hit is not empty", 1 <= boundary),
            ("the block is in its required run", required),
        ),
        retention.in_retained_mask(
            replace(group, lookahead=kept_lookahead), block, replays, interval, at
        ),
    )


def _no_kept_block_can_be_spared(
    at: Interpretation, kind: GroupKind, lookahead: int, mask_lookahead: int
) -> Statement:
    block = at.integer("block")
    group, replays, interval, hypotheses = _promised(at, kind, lookahead)
    masked, cached = replace(group, lookahead=mask_lookahead), at.block_set("cached")
    kept = retention.in_retained_mask(masked, block, replays, interval, at)
    # The sibling boundary that shows it: the first whose run ends after the block.
    sibling = retention.sibling_boundary(group, block, interval, at)

    def loses(boundary: Term) -> Formula:
        without = hits.has_required_run(group, boundary, lambda i: cached(i) & (i != block), at)
        return (1 <= boundary) & at.negation(without)

    lost = loses(sibling)
    for boundary in replays:
        lost |= loses(boundary)
    return Statement(
        (
            *hypotheses,
            ("a boundary is not negative", _all_natural(replays)),
            ("the block is kept", kept),
            ("it is cached", cached(block)),
        ),
        lost,
    )


def _all_natural(terms: list[Term]) -> Formula:
    first, *others = (0 <= term for term in terms)
    for other in others:
        first &= other
    return first


def _retained_is_in_the_mask(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    block = at.integer("block")
    group, interval, sizes = _with_interval(at, kind, lookahead)
    replays = [at.times(at.integer(n), group.segment) + slip for n in ("resend", "extension")]
    sibling = retention.sibling_boundary(group, block, interval, at)
    in_segments = at.times(at.integer("sibling"), group.segment)
    return Statement(
        (
            *sizes,
            ("the interval is at least one block", 1 <= interval),
            ("what falls on the interval is a boundary: see multiples", sibling == in_segments),
            (
                "the block is kept under sparse retention",
                retention.in_retained_mask(group, block, replays, interval, at),
            ),
        ),
        mask.in_mask(group, block, at),
    )


def _not_thinned_out(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    block = at.integer("block")
    group, replays, interval, hypotheses = _promised(at, kind, lookahead)
    kept = retention.in_retained_mask(group, block + slip, replays, interval, at)
    return Statement(hypotheses, kept == mask.in_mask(group, block, at))


def _intervals_fall_on_boundaries(at: Interpretation, slip: int = 0) -> Statement:
    count, share, alignment = (at.integer(n) for n in ("count", "interval", "alignment"))
    multiple = at.times(count, at.times(share, alignment))
    return Statement(
        (("the alignment is at least one token", 1 <= alignment),),
        multiple == at.times(at.times(count, share) + slip, alignment),
    )


def _interval_is_accepted(at: Interpretation, slip: int = 0) -> Statement:
    count, alignment = at.integer("count"), at.integer("alignment")
    interval = at.times(count, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the interval is not negative", 0 <= count),
        ),
        retention.falls_on_boundaries(interval + slip, alignment, at),
    )


def _interval_is_refused(at: Interpretation, between: bool = True) -> Statement:
    count, alignment, interval = (at.integer(n) for n in ("count", "alignment", "interval"))
    starts, ends = at.times(count, alignment), at.times(count + 1, alignment)
    after = starts < interval if between else starts <= interval
    refused = (after & (interval < ends)) | (interval < 0)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the interval is negative or between two boundaries", refused),
        ),
        at.negation(retention.falls_on_boundaries(interval, alignment, at)),
    )


def _sibling_is_the_first(at: Interpretation, slip: int = 0, strictly: bool = False) -> Statement:
    block, boundary = at.integer("block"), at.integer("boundary")
    lookahead, interval = at.integer("lookahead"), at.integer("interval")
    group = BlockGeometry(GroupKind.SLIDING_WINDOW, 1, 0, lookahead)
    other = at.times(at.integer("other"), interval)
    sibling = retention.sibling_boundary(group, block, interval, at) + slip
    return Statement(
        (
            ("the interval is at least one block", 1 <= interval),
            ("the other hit falls on the interval", boundary == other),
            ("the other hit is not empty", 1 <= at.integer("other")),
            ("its run ends after the block", block < hits.run_end(group, boundary)),
        ),
        (block < hits.run_end(group, sibling))
        & (1 <= sibling)
        & is_multiple(sibling, interval, at)
        & (sibling + int(strictly) <= boundary),
    )


def _replay_is_a_boundary(at: Interpretation, least: int = 0) -> Statement:
    alignment, lookahead = at.integer("alignment"), at.integer("lookahead_tokens")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    boundary = retention.replay_boundary(cap, horizon, lookahead, alignment, at)
    return Statement(
        (("the alignment is at least one token", 1 <= alignment),),
        (least <= boundary) & is_multiple(boundary, alignment, at),
    )


def _retention_keeps_resends_and_extensions() -> Iterable[Obligation]:
    yield Obligation(
        "replay_boundary_is_a_boundary",
        "The replay boundary is a multiple of the alignment and not negative, however short the "
        "prompt.",
        _replay_is_a_boundary,
        (Mutant("positive", "It is positive.", partial(_replay_is_a_boundary, least=1)),),
    )
    for kind, lookahead in CASES:
        if kind not in retention.SPARSE_KINDS:
            state = partial(_not_thinned_out, kind=kind, lookahead=lookahead)
            yield Obligation(
                case_name("dense_mask_stays", kind, lookahead),
                "Of a kind that is not thinned out, sparse retention keeps the dense mask.",
                state,
                (
                    Mutant(
                        "block_before",
                        "It keeps the block before each one of it.",
                        partial(state, slip=-1),
                    ),
                ),
            )
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

    yield from histories.obligations()


def _retention_keeps_siblings() -> Iterable[Obligation]:
    yield Obligation(
        "intervals_fall_on_boundaries",
        "A multiple of a multiple of the alignment is a multiple of the alignment.",
        _intervals_fall_on_boundaries,
        (
            Mutant(
                "one_more", "It is the next one.", partial(_intervals_fall_on_boundaries, slip=1)
            ),
        ),
        interpretation=Products,
    )
    yield Obligation(
        "interval_on_boundaries_is_accepted",
        "Each multiple of the alignment that is not negative is a retention interval.",
        _interval_is_accepted,
        (Mutant("one_token_more", "So is a token more.", partial(_interval_is_accepted, slip=1)),),
    )
    yield Obligation(
        "interval_off_boundaries_is_refused",
        "No retention interval is negative or lies between two multiples of the alignment.",
        _interval_is_refused,
        (
            Mutant(
                "on_a_boundary",
                "None lies on one either.",
                partial(_interval_is_refused, between=False),
            ),
        ),
    )
    yield Obligation(
        "sibling_boundary_is_the_first",
        "The sibling boundary after a block falls on the interval and its run ends after the "
        "block, and that of no earlier one does.",
        _sibling_is_the_first,
        (
            Mutant(
                "block_after",
                "So is the block edge after it.",
                partial(_sibling_is_the_first, slip=1),
            ),
            Mutant(
                "all_later", "All others are later.", partial(_sibling_is_the_first, strictly=True)
            ),
        ),
    )
    for kind, lookahead in _SPARSE:
        kept = partial(_every_promised_run_is_kept, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("every_promised_run_is_kept", kind, lookahead),
            "Each block in the required run of a promised boundary is kept, be it a resend's, an "
            "extension's, a junction's or one that falls on the interval.",
            partial(kept, kept_lookahead=lookahead),
            (
                Mutant(
                    "another_lookahead",
                    "A mask with another lookahead keeps it, too.",
                    partial(kept, kept_lookahead=lookahead - 1),
                ),
            ),
        )
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
        spared = partial(_no_kept_block_can_be_spared, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("no_kept_block_can_be_spared", kind, lookahead),
            "Without any one kept block some promised hit is lost.",
            partial(spared, mask_lookahead=lookahead),
            (
                Mutant(
                    "longer_lookahead",
                    "So it is without one kept by a mask that looks further ahead.",
                    partial(spared, mask_lookahead=lookahead + 1),
                ),
            ),
        )
        within = partial(_retained_is_in_the_mask, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("sparse_keeps_no_more_than_dense", kind, lookahead),
            "A block that sparse retention keeps is one that dense retention keeps.",
            within,
            (
                Mutant(
                    "off_the_boundaries",
                    "So is one that it keeps for hits that end off the boundaries.",
                    partial(within, slip=1),
                ),
            ),
        )
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
