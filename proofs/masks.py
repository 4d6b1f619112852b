"""The mask has all reachable blocks and no others, in the style of `proofs.theorems`."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from hitproof.proofs.cases import CASES, CHUNKED, FULL, MAMBA, SLIDING, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import hits, mask
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Term, is_multiple, max


def _altered(group: BlockGeometry, tail_slip: int = 0, **changes: Term) -> BlockGeometry:
    """The group as a mask with an error takes it."""
    return replace(group, tail=group.tail + tail_slip, **changes)


def _reachable_is_kept(
    at: Interpretation,
    kind: GroupKind,
    lookahead: int,
    mask_lookahead: int | None = None,
    tail_slip: int = 0,
    block_slip: int = 0,
) -> Statement:
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    count = at.integer("count")
    boundary = count * group.segment
    masked = _altered(
        group, tail_slip, lookahead=group.lookahead if mask_lookahead is None else mask_lookahead
    )
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= count),
            ("the block is in its required run", hits.in_required_run(group, block, boundary)),
        ),
        mask.in_mask(masked, block + block_slip),
    )


def _next_is_the_first(at: Interpretation, slip: int = 0, strictly: bool = False) -> Statement:
    block, lookahead, segment = (at.integer(n) for n in ("block", "lookahead", "segment"))
    group = BlockGeometry(SLIDING, segment, 0, lookahead)
    other = at.integer("other") * segment
    boundary = mask.next_boundary(group, block) + slip
    return Statement(
        (
            ("a segment is at least one block", 1 <= segment),
            ("the other is no empty hit", 1 <= at.integer("other")),
            ("the run of the other ends after the block", block < hits.run_end(group, other)),
        ),
        (block < hits.run_end(group, boundary))
        & (1 <= boundary)
        & is_multiple(boundary, segment)
        & (boundary + int(strictly) <= other),
    )


def _mask_keeps_every_reachable_block() -> Iterable[Obligation]:
    yield Obligation(
        "next_boundary_is_the_first",
        "The next boundary after a block is a boundary whose run ends after it, and no earlier "
        "boundary is.",
        _next_is_the_first,
        (
            Mutant(
                "block_after", "So is the block edge after it.", partial(_next_is_the_first, slip=1)
            ),
            Mutant(
                "all_later", "All others are later.", partial(_next_is_the_first, strictly=True)
            ),
        ),
    )
    for kind, lookahead in CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        mutants = [
            Mutant(
                "block_before",
                "The mask has the block before each reachable one.",
                partial(_reachable_is_kept, **case, block_slip=-1),
            )
        ]
        if kind is SLIDING:
            mutants.append(
                Mutant(
                    "tail_one_shorter",
                    "A mask for a tail one block shorter has every reachable block.",
                    partial(_reachable_is_kept, **case, tail_slip=-1),
                )
            )
            if lookahead:
                mutants.append(
                    Mutant(
                        "mask_without_lookahead",
                        "A mask that does not look ahead, as vLLM 0.22.1 has it, has every "
                        "reachable block.",
                        partial(_reachable_is_kept, **case, mask_lookahead=0),
                    )
                )
        yield Obligation(
            case_name("reachable_block_is_kept", kind, lookahead),
            "A block in the required run of some boundary is in the mask.",
            partial(_reachable_is_kept, **case),
            tuple(mutants),
        )
    yield from _stored_and_due()


def _stored_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, dense: bool = False
) -> Statement:
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    stored = mask.in_stored_mask(group, block, end)
    return Statement(
        (
            *sizes,
            ("the request has a block", 1 <= end),
            ("a hit at its end reads the block", hits.in_required_run(group, block, end)),
        ),
        mask.in_mask(group, block) if dense else stored,
    )


def _mask_is_stored(
    at: Interpretation, kind: GroupKind, lookahead: int, only: bool = False, slip: int = 0
) -> Statement:
    """``only``: nothing else is stored, instead."""
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    if only:
        given = mask.in_stored_mask(group, block, end)
        then = mask.in_mask(group, block - slip)
    else:
        given = mask.in_mask(group, block)
        then = mask.in_stored_mask(group, block - slip, end)
    hypotheses = (("the request has a block", 1 <= end), ("the block is there", given))
    return Statement((*sizes, *hypotheses), then)


def _served_is_due(at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0) -> Statement:
    block, count, num_final = (at.integer(n) for n in ("block", "count", "num_final"))
    group, sizes = any_group(at, kind, lookahead)
    boundary = count * group.segment
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= count),
            ("the block is in its required run", hits.in_required_run(group, block, boundary)),
            ("all of that run is final", hits.run_end(group, boundary) <= num_final + slip),
        ),
        mask.is_due(group, block, num_final),
    )


def _stored_and_due() -> Iterable[Obligation]:
    for kind, lookahead in CASES:
        if not lookahead and kind is not FULL:
            yield Obligation(
                case_name("run_at_the_end_of_a_stored_request_is_kept", kind),
                "A KV connector stores each block that a hit at the end of the request reads, "
                "whatever block edge that is.",
                partial(_stored_is_kept, kind=kind, lookahead=0),
                (
                    Mutant(
                        "boundaries_only",
                        "The mask alone has each of them.",
                        partial(_stored_is_kept, kind=kind, lookahead=0, dense=True),
                    ),
                ),
            )
        state = partial(_mask_is_stored, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("mask_is_stored", kind, lookahead),
            "A KV connector stores each block of the mask.",
            state,
            (Mutant("one_before", "It stores the block before it.", partial(state, slip=1)),),
        )
        state = partial(_served_is_due, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("final_run_is_due", kind, lookahead),
            "Each block in the required run of some boundary is due once all of the run is final.",
            state,
            (Mutant("one_block_early", "It is one block earlier.", partial(state, slip=1)),),
        )


def _first_boundary(group: BlockGeometry, block: Term) -> tuple[Term, Term]:
    """The first boundary whose run ends after the block, in segments and in blocks."""
    passed = (block - group.lookahead) // group.segment
    count = max(passed + 1, 1)
    return count, count * group.segment


def _stored_is_read(
    at: Interpretation, kind: GroupKind, lookahead: int, boundaries_only: bool = False
) -> Statement:
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    stored = mask.in_stored_mask(group, block, end)
    _, boundary = _first_boundary(group, block)
    read = hits.in_required_run(group, block, boundary)
    if not boundaries_only:
        read = read | hits.in_required_run(group, block, end)
    return Statement(
        (*sizes, ("the request has a block", 1 <= end), ("it is stored", stored)), read
    )


def _due_is_served(at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0) -> Statement:
    block, num_final = at.integer("block"), at.integer("num_final")
    group, sizes = any_group(at, kind, lookahead)
    due = mask.is_due(group, block, num_final + slip)
    count, boundary = _first_boundary(group, block)
    return Statement(
        (*sizes, ("the block is due", due)),
        (1 <= count)
        & hits.in_required_run(group, block, boundary)
        & (hits.run_end(group, boundary) <= num_final),
    )


def _only_stored_and_due() -> Iterable[Obligation]:
    for kind, lookahead in CASES:
        if not lookahead and kind is not FULL:
            state = partial(_stored_is_read, kind=kind, lookahead=0)
            yield Obligation(
                case_name("stored_block_is_read", kind),
                "A KV connector stores no block that neither a hit on some boundary reads nor one "
                "at the end of the request.",
                state,
                (
                    Mutant(
                        "boundaries_only",
                        "Nor any that no hit on a boundary reads.",
                        partial(state, boundaries_only=True),
                    ),
                ),
            )
        elif lookahead:
            state = partial(_mask_is_stored, kind=kind, lookahead=lookahead, only=True)
            yield Obligation(
                case_name("only_the_mask_is_stored", kind, lookahead),
                "Of a group that drops a block a KV connector stores no block but the mask's.",
                state,
                (Mutant("one_before", "The block before it is in it.", partial(state, slip=1)),),
            )
        due = partial(_due_is_served, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("due_block_is_in_a_final_run", kind, lookahead),
            "A block that is due is in the required run of some boundary, all of which is final.",
            due,
            (Mutant("one_block_early", "So is one a block earlier.", partial(due, slip=1)),),
        )


def _kept_is_reachable(
    at: Interpretation,
    kind: GroupKind,
    lookahead: int,
    mask_lookahead: int | None = None,
    mask_kind: GroupKind | None = None,
    tail_slip: int = 0,
    count_slip: int = 0,
) -> Statement:
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    masked = _altered(
        group,
        tail_slip,
        kind=mask_kind or kind,
        lookahead=group.lookahead if mask_lookahead is None else mask_lookahead,
    )
    # The boundary that shows it: the first whose run ends after the block.
    passed = (block - group.lookahead) // group.segment
    count = max(passed + 1, 1) + count_slip
    return Statement(
        (*sizes, ("the block is in the mask", mask.in_mask(masked, block))),
        (1 <= count) & hits.in_required_run(group, block, count * group.segment),
    )


def _mask_keeps_only_reachable_blocks() -> Iterable[Obligation]:
    for kind, lookahead in CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        mutants = [
            Mutant(
                "boundary_before",
                "It is in that of the boundary before, too.",
                partial(_kept_is_reachable, **case, count_slip=-1),
            )
        ]
        if kind is SLIDING:
            mutants.append(
                Mutant(
                    "tail_one_longer",
                    "So is a block in a mask for a tail one block longer.",
                    partial(_kept_is_reachable, **case, tail_slip=1),
                )
            )
            if not lookahead:
                mutants.append(
                    Mutant(
                        "mask_with_lookahead",
                        "So is a block in a mask that looks ahead where lookup does not.",
                        partial(_kept_is_reachable, **case, mask_lookahead=1),
                    )
                )
        if kind in (CHUNKED, MAMBA):
            mutants.append(
                Mutant(
                    "mask_of_every_block",
                    "So is any block, as vLLM 0.33.0 has it.",
                    partial(_kept_is_reachable, **case, mask_kind=FULL),
                )
            )
        yield Obligation(
            case_name("kept_block_is_reachable", kind, lookahead),
            "A block in the mask is in the required run of some boundary.",
            partial(_kept_is_reachable, **case),
            tuple(mutants),
        )
    yield from _only_stored_and_due()


OBLIGATIONS = {
    "mask_keeps_every_reachable_block": tuple(_mask_keeps_every_reachable_block()),
    "mask_keeps_only_reachable_blocks": tuple(_mask_keeps_only_reachable_blocks()),
}
"""The obligations of each claim on the mask, by its name."""
