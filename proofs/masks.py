"""The mask has all reachable blocks and no others, in the style of `proofs.theorems`."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from hitproof.proofs.cases import (
    CASES,
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    any_group,
    case_name,
    obligation,
)
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import hits, mask
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term, is_multiple, max


def _read(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Term, Hypotheses]:
    """Any group, a block in the required run of some boundary, and that boundary."""
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    count = at.integer("count")
    boundary = count * group.segment
    hypotheses = (
        *sizes,
        ("the hit is not empty", 1 <= count),
        ("the block is in its required run", hits.in_required_run(group, block, boundary)),
    )
    return group, block, boundary, hypotheses


def _reachable_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, looks_ahead: bool = True
) -> Statement:
    """``looks_ahead``: so does the mask."""
    group, block, _, hypotheses = _read(at, kind, lookahead)
    masked = group if looks_ahead else replace(group, lookahead=0)
    return Statement(hypotheses, mask.in_mask(masked, block))


@obligation(
    "next_boundary_is_the_first",
    "The next boundary after a block is a boundary whose run ends after it, and no earlier "
    "boundary is.",
)
def _next_is_the_first(at: Interpretation) -> Statement:
    block, lookahead, segment = (at.integer(n) for n in ("block", "lookahead", "segment"))
    group = BlockGeometry(SLIDING, segment, 0, lookahead)
    other = at.integer("other") * segment
    boundary = mask.next_boundary(group, block)
    return Statement(
        (
            ("a segment is at least one block", 1 <= segment),
            ("the other is no empty hit", 1 <= at.integer("other")),
            ("the run of the other ends after the block", block < hits.run_end(group, other)),
        ),
        (block < hits.run_end(group, boundary))
        & (1 <= boundary)
        & is_multiple(boundary, segment)
        & (boundary <= other),
    )


def _stored_is_kept(at: Interpretation, kind: GroupKind) -> Statement:
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, 0)
    return Statement(
        (
            *sizes,
            ("the request has a block", 1 <= end),
            ("a hit at its end reads the block", hits.in_required_run(group, block, end)),
        ),
        mask.in_stored_mask(group, block, end),
    )


def _masks(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[Formula, Formula, Hypotheses]:
    """Whether a block is in the mask, and whether a KV connector stores it."""
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, lookahead)
    masked, stored = mask.in_mask(group, block), mask.in_stored_mask(group, block, end)
    return masked, stored, (*sizes, ("the request has a block", 1 <= end))


def _mask_is_stored(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    masked, stored, hypotheses = _masks(at, kind, lookahead)
    return Statement((*hypotheses, ("the block is there", masked)), stored)


def _only_the_mask_is_stored(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    masked, stored, hypotheses = _masks(at, kind, lookahead)
    return Statement((*hypotheses, ("the block is there", stored)), masked)


def _served_is_due(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, block, boundary, hypotheses = _read(at, kind, lookahead)
    num_final = at.integer("num_final")
    final = ("all of that run is final", hits.run_end(group, boundary) <= num_final)
    return Statement((*hypotheses, final), mask.is_due(group, block, num_final))


def _mask_keeps_every_reachable_block() -> Iterable[Obligation]:
    yield from _next_is_the_first
    for kind, lookahead in CASES:
        state = partial(_reachable_is_kept, kind=kind, lookahead=lookahead)
        without_lookahead = Mutant(
            "mask_without_lookahead",
            "A mask that does not look ahead, as vLLM 0.22.1 has it, has every reachable block.",
            partial(state, looks_ahead=False),
        )
        yield Obligation(
            case_name("reachable_block_is_kept", kind, lookahead),
            "A block in the required run of some boundary is in the mask.",
            state,
            (without_lookahead,) if kind is SLIDING and lookahead else (),
        )
    for kind, lookahead in CASES:
        if not lookahead and kind is not FULL:
            yield Obligation(
                case_name("run_at_the_end_of_a_stored_request_is_kept", kind),
                "A KV connector stores each block that a hit at the end of the request reads, "
                "whatever block edge that is.",
                partial(_stored_is_kept, kind=kind),
            )
        yield Obligation(
            case_name("mask_is_stored", kind, lookahead),
            "A KV connector stores each block of the mask.",
            partial(_mask_is_stored, kind=kind, lookahead=lookahead),
        )
        yield Obligation(
            case_name("final_run_is_due", kind, lookahead),
            "Each block in a required run must be registered once all of the run is final.",
            partial(_served_is_due, kind=kind, lookahead=lookahead),
        )


def _first_boundary(group: BlockGeometry, block: Term) -> tuple[Term, Term]:
    """The first boundary whose run ends after the block, in segments and in blocks."""
    passed = (block - group.lookahead) // group.segment
    count = max(passed + 1, 1)
    return count, count * group.segment


def _stored_is_read(at: Interpretation, kind: GroupKind) -> Statement:
    block, end = at.integer("block"), at.integer("end")
    group, sizes = any_group(at, kind, 0)
    stored = mask.in_stored_mask(group, block, end)
    _, boundary = _first_boundary(group, block)
    return Statement(
        (*sizes, ("the request has a block", 1 <= end), ("it is stored", stored)),
        hits.in_required_run(group, block, boundary) | hits.in_required_run(group, block, end),
    )


def _due_is_served(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    block, num_final = at.integer("block"), at.integer("num_final")
    group, sizes = any_group(at, kind, lookahead)
    count, boundary = _first_boundary(group, block)
    return Statement(
        (*sizes, ("the block must be registered", mask.is_due(group, block, num_final))),
        (1 <= count)
        & hits.in_required_run(group, block, boundary)
        & (hits.run_end(group, boundary) <= num_final),
    )


def _kept_is_reachable(
    at: Interpretation, kind: GroupKind, lookahead: int, mask_kind: GroupKind | None = None
) -> Statement:
    """``mask_kind``: for what kind the mask takes the group, if for another one."""
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    kept = mask.in_mask(replace(group, kind=mask_kind or kind), block)
    count, boundary = _first_boundary(group, block)
    return Statement(
        (*sizes, ("the block is in the mask", kept)),
        (1 <= count) & hits.in_required_run(group, block, boundary),
    )


def _mask_keeps_only_reachable_blocks() -> Iterable[Obligation]:
    for kind, lookahead in CASES:
        state = partial(_kept_is_reachable, kind=kind, lookahead=lookahead)
        every_block = Mutant(
            "mask_of_every_block",
            "So is any block, as vLLM 0.33.0 has it.",
            partial(state, mask_kind=FULL),
        )
        yield Obligation(
            case_name("kept_block_is_reachable", kind, lookahead),
            "A block in the mask is in the required run of some boundary.",
            state,
            (every_block,) if kind in (CHUNKED, MAMBA) else (),
        )
    for kind, lookahead in CASES:
        if lookahead:
            yield Obligation(
                case_name("only_the_mask_is_stored", kind, lookahead),
                "Of a group that drops a block a KV connector stores no block but the mask's.",
                partial(_only_the_mask_is_stored, kind=kind, lookahead=lookahead),
            )
        elif kind is not FULL:
            yield Obligation(
                case_name("stored_block_is_read", kind),
                "A KV connector stores no block that neither a hit on some boundary reads nor one "
                "at the end of the request.",
                partial(_stored_is_read, kind=kind),
            )
        yield Obligation(
            case_name("due_block_is_in_a_final_run", kind, lookahead),
            "A block that must be registered is in some required run, all of which is final.",
            partial(_due_is_served, kind=kind, lookahead=lookahead),
        )


OBLIGATIONS = {
    "mask_keeps_every_reachable_block": tuple(_mask_keeps_every_reachable_block()),
    "mask_keeps_only_reachable_blocks": tuple(_mask_keeps_only_reachable_blocks()),
}
"""The obligations of each claim on the mask, by its name."""
