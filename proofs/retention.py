"""What sparse retention keeps, in the style of `proofs.theorems`.

``interval`` is in segments from one sibling boundary to the next; ``resend``, ``extension`` and
``junction`` are boundaries in blocks. A junction is promised as a prompt of its own is: by one
boundary more.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product

from hitproof.proofs import fine, promises
from hitproof.proofs.cases import CASES, any_group, case_name, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import hits, mask, retention
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term, is_multiple, not_

_SPARSE = tuple((kind, n) for kind, n in CASES if kind in retention.SPARSE_KINDS)


def _with_interval(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Hypotheses]:
    """Any group, with any retention interval in blocks."""
    group, sizes = any_group(at, kind, lookahead)
    interval = at.integer("interval") * group.segment
    return group, interval, (*sizes, ("the interval is at least one block", 1 <= interval))


def _promised(
    at: Interpretation, kind: GroupKind, lookahead: int, siblings: bool
) -> tuple[BlockGeometry, list[Term], Term | None, Hypotheses]:
    """Any group, the boundaries of a resend, an extension and a junction, and any interval."""
    group, interval, hypotheses = _with_interval(at, kind, lookahead)
    replays = [at.integer(name) for name in ("resend", "extension", "junction")]
    return group, replays, interval if siblings else None, hypotheses


def _every_promised_run_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, siblings: bool
) -> Statement:
    block, boundary = at.integer("block"), at.integer("boundary")
    group, (resend, *others), interval, hypotheses = _promised(at, kind, lookahead, siblings)
    promised = boundary == resend
    for replay in others:
        promised |= boundary == replay
    if interval is not None:
        promised |= boundary == at.integer("count") * interval
    required = hits.in_required_run(group, block, boundary)
    return Statement(
        (
            *hypotheses,
            ("the boundary is one of the promised", promised),
            ("the hit is not empty", 1 <= boundary),
            ("the block is in its required run", required),
        ),
        retention.in_retained_mask(group, block, [resend, *others], interval),
    )


def _no_kept_block_can_be_spared(
    at: Interpretation, kind: GroupKind, lookahead: int, siblings: bool
) -> Statement:
    block = at.integer("block")
    group, replays, interval, hypotheses = _promised(at, kind, lookahead, siblings)
    cached = at.block_set("cached")
    kept = retention.in_retained_mask(group, block, replays, interval)

    def loses(boundary: Term) -> Formula:
        without = hits.has_required_run(group, boundary, lambda i: cached(i) & (i != block))
        return (1 <= boundary) & not_(without)

    first, *others = replays
    if interval is not None:  # The sibling that shows it: the first whose run ends after the block.
        others.append(retention.sibling_boundary(group, block, interval))
    lost = loses(first)
    for boundary in others:
        lost |= loses(boundary)
    return Statement(
        (*hypotheses, ("the block is kept", kept), ("it is cached", cached(block))), lost
    )


@obligation(
    "sparse_keeps_no_more_than_dense",
    "A block that sparse retention keeps is one that dense retention keeps.",
    _SPARSE,
)
def _retained_is_in_the_mask(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    block = at.integer("block")
    group, interval, sizes = _with_interval(at, kind, lookahead)
    replays = [at.integer(n) * group.segment for n in ("resend", "extension")]
    sibling = retention.sibling_boundary(group, block, interval)
    in_segments = at.integer("sibling") * group.segment
    return Statement(
        (
            *sizes,
            ("what falls on the interval is a boundary: see multiples", sibling == in_segments),
            (
                "the block is kept under sparse retention",
                retention.in_retained_mask(group, block, replays, interval),
            ),
        ),
        mask.in_mask(group, block),
    )


def _follow_up(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Term, Hypotheses]:
    """Any group, an extension's boundary and a later one, in blocks."""
    group, sizes = any_group(at, kind, lookahead)
    extension, later = at.integer("extension"), at.integer("boundary")
    hypotheses = (
        *sizes,
        ("the extension's boundary is not negative", 0 <= extension),
        ("the computed blocks are counted", 0 <= at.integer("computed")),
    )
    return group, extension * group.segment, later * group.segment, hypotheses


@obligation(
    "no_block_of_a_follow_up_is_waste",
    "If the run of a boundary past the extension's is kept as far as it is computed, each block "
    "in it may be kept.",
    _SPARSE,
)
def _follow_up_run_is_spared(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    block, computed, kept = at.integer("block"), at.integer("computed"), at.block_set("kept")
    group, extension, boundary, hypotheses = _follow_up(at, kind, lookahead)
    whole = hits.has_required_run(group, boundary, lambda i: kept(i) | (computed <= i))
    return Statement(
        (
            *hypotheses,
            ("the hit is longer", at.integer("extension") < at.integer("boundary")),
            ("its run is kept as far as it is computed", whole),
            ("the block is in its run", hits.in_required_run(group, block, boundary)),
        ),
        retention.serves_follow_ups(group, block, boundary, extension, computed, kept),
    )


@obligation(
    "a_follow_up_hits_what_is_spared",
    "A block that is kept for follow-up turns is needed for a hit past the extension's, which is "
    "there when the output has filled and registered the rest of its run.",
    _SPARSE,
)
def _follow_up_hits_what_is_spared(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> Statement:
    block, computed, kept = at.integer("block"), at.integer("computed"), at.block_set("kept")
    group, extension, boundary, hypotheses = _follow_up(at, kind, lookahead)
    spared = retention.serves_follow_ups(group, block, boundary, extension, computed, kept)
    hit = hits.has_required_run(group, boundary, lambda i: kept(i) | (computed <= i))
    needs = hits.in_required_run(group, block, boundary)
    return Statement(
        (*hypotheses, ("the block is spared", spared)), (extension < boundary) & needs & hit
    )


def _not_thinned_out(
    at: Interpretation, kind: GroupKind, lookahead: int, before: int = 0
) -> Statement:
    """``before``: how many blocks before each block of the dense mask the kept one is."""
    block = at.integer("block")
    group, replays, interval, hypotheses = _promised(at, kind, lookahead, True)
    kept = retention.in_retained_mask(group, block - before, replays, interval)
    return Statement(hypotheses, kept == mask.in_mask(group, block))


@obligation(
    "the_hit_that_is_left_is_the_longest",
    "Of the boundaries up to a promised one, the hit that is left is the longest of which the run"
    " is kept.",
    CASES,
    longer=("It is longer than each other one.", {"shorter": 1}),
)
def _left(at: Interpretation, kind: GroupKind, lookahead: int, shorter: int = 0) -> Statement:
    """Where a promised hit is lost, the remaining hit is kept; no other kept one is longer."""
    other = at.compared("other")
    group, sizes = any_group(at, kind, lookahead)
    promised, kept = at.integer("promised"), at.block_set("kept")
    left = retention.hit_instead(group, promised, kept)
    return Statement(
        (
            *sizes,
            ("another hit is no longer than promised", (1 <= other) & (other <= promised)),
            ("it is on a boundary", is_multiple(other, group.segment)),
            ("its run is kept", hits.has_required_run(group, other, kept)),
        ),
        (other + shorter <= left)
        & (left <= promised)
        & is_multiple(left, group.segment)
        & hits.has_required_run(group, left, kept),
    )


def _with_and_without(
    what: str, sentence: str, state: Callable[..., Statement], siblings: Iterable[bool]
) -> Iterable[Obligation]:
    """An obligation for each case, with and without an interval."""
    for (kind, lookahead), promised in product(_SPARSE, siblings):
        name = case_name(what, kind, lookahead)
        if promised:
            name = f"{name[:-1]}, with an interval]"
        case = partial(state, kind=kind, lookahead=lookahead, siblings=promised)
        yield Obligation(name, sentence, case)


def _run_is_kept(siblings: bool) -> Iterable[Obligation]:
    yield from _with_and_without(
        "every_promised_run_is_kept",
        "Each block in the required run of a promised boundary is kept, be it a resend's, an "
        "extension's or a junction's"
        + (", or one that falls on the interval." if siblings else "."),
        _every_promised_run_is_kept,
        (siblings,),
    )


@obligation(
    "resend_computes_a_token_and_has_its_hashes",
    "A resend may hit a length if and only if a token of the prompt is left to compute, and all "
    "tokens that hashes of the hit cover are in the prompt.",
    whole_prompt=("So it may hit the whole prompt if its hashes are known.", {"left": 0}),
)
def _resend_cap(at: Interpretation, left: int = 1) -> Statement:
    length, prompt, covered = (at.integer(n) for n in ("length", "prompt", "hash_lookahead"))
    may_hit = length <= retention.resend_cap(prompt, covered)
    return Statement(
        (("hashes do not lag behind", 0 <= covered),),
        may_hit == ((length + left <= prompt) & (length + covered <= prompt)),
    )


def _retention_keeps_resends_and_extensions() -> Iterable[Obligation]:
    yield from promises.replays()
    yield from _resend_cap
    yield from _run_is_kept(siblings=False)
    for kind, lookahead in CASES:
        if kind in retention.SPARSE_KINDS:
            continue
        state = partial(_not_thinned_out, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("dense_mask_stays", kind, lookahead),
            "Of a kind that is not thinned out, sparse retention keeps exactly the dense mask.",
            state,
            (
                Mutant(
                    "block_before",
                    "It keeps exactly the block before each block of the mask.",
                    partial(state, before=1),
                ),
            ),
        )
    yield from fine.tails()


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "retention_keeps_resends_and_extensions": tuple(_retention_keeps_resends_and_extensions()),
    "retention_keeps_siblings": (*promises.siblings(), *_run_is_kept(siblings=True)),
    "retention_keeps_only_promised_blocks": (
        *_left,
        *_with_and_without(
            "no_kept_block_can_be_spared",
            "A kept block is in the required run of a promised boundary: whatever else is cached, "
            "without it that hit is lost.",
            _no_kept_block_can_be_spared,
            (False, True),
        ),
        *_retained_is_in_the_mask,
        *_follow_up_run_is_spared,
        *_follow_up_hits_what_is_spared,
    ),
}
"""The obligations of each claim on retention, by its name."""
