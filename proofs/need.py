"""How many blocks a hit needs, with and without EAGLE, in the style of `proofs.theorems`.

``contiguous`` is a number of blocks.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from hitproof.proofs import dropping, several
from hitproof.proofs.cases import (
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    any_group,
    case_name,
    holds_token,
    lookaheads,
    obligation,
)
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import attention, hits
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term, max, not_


def _group_and_need(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool
) -> tuple[BlockGeometry, Term, Term, Hypotheses]:
    """Any group and boundary, and how many blocks a hit there needs."""
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    sizes = (*sizes, ("the hit is not empty", 1 <= boundary))
    if kind is FULL:
        return group, boundary, boundary + group.lookahead, sizes
    if kind is MAMBA:
        return group, boundary, 1, sizes
    if kind is CHUNKED:
        first_block = at.integer("first_block")
        first_token = boundary * group.block_size // group.chunk * group.chunk  # of its chunk
        holds = holds_token(first_block, first_token, group.block_size)
        begins = ("the block holds the first token of the boundary's chunk", holds)
        return group, boundary, boundary - first_block + group.lookahead, (*sizes, begins)
    if near_start:
        cut = ("the tail reaches past the start of the request", boundary < group.tail)
        return group, boundary, boundary + group.lookahead, (*sizes, cut)
    uncut = ("the request holds the whole tail", group.tail <= boundary)
    return group, boundary, group.tail + group.lookahead, (*sizes, uncut)


def _among_last(group: BlockGeometry, boundary: Term, count: Term, block: Term) -> Formula:
    """Whether the block is one of the ``count`` that end just past the lookahead block."""
    end = boundary + group.lookahead
    return (end - count <= block) & (block < end)


def _need_suffices(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    count = at.integer("contiguous")
    among_last = partial(_among_last, group, boundary, count)
    return Statement(
        (*sizes, ("as many blocks as needed are contiguous", need <= count)),
        hits.has_required_run(group, boundary, among_last),
    )


def _less_does_not_suffice(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    count = at.integer("contiguous")
    first = max(hits.run_start(group, boundary), 0)
    return Statement(
        (
            *sizes,
            ("a count is not negative", 0 <= count),
            ("fewer blocks than needed are contiguous", count < need),
        ),
        hits.in_required_run(group, first, boundary)
        & not_(_among_last(group, boundary, count, first)),
    )


def _run_is_exact(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool, slip: int = 0
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    block = at.integer("block")
    return Statement(
        sizes,
        hits.in_required_run(group, block, boundary)
        == _among_last(group, boundary, need + slip, block),
    )


@obligation(
    "lookahead_blocks_span_the_tokens",
    "The lookahead blocks span the tokens that draft layers look ahead by, one block at least, "
    "and one block less does not.",
)
def _lookahead_is_exact(at: Interpretation) -> Statement:
    ahead, block_size = at.integer("lookahead_tokens"), at.integer("block_size")
    blocks = attention.lookahead_blocks(ahead, block_size)
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("a draft layer takes in one token after its own, or more", 1 <= ahead),
        ),
        (1 <= blocks) & (ahead <= blocks * block_size) & (blocks * block_size - block_size < ahead),
    )


@obligation(
    "one_lookahead_block_is_enough_up_to_its_size",
    "One lookahead block is enough exactly where draft layers look ahead by no more tokens than "
    "it holds.",
    up_to_the_alignment=(
        "So it is up to the tokens from one boundary to the next, as vLLM's guard has it.",
        {"up_to_the_alignment": True},
    ),
)
def _one_block_is_enough(at: Interpretation, up_to_the_alignment: bool = False) -> Statement:
    ahead, block_size = at.integer("lookahead_tokens"), at.integer("block_size")
    segment = at.integer("segment")
    span = segment * block_size if up_to_the_alignment else block_size
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("boundaries are at least a block apart", 1 <= segment),
            ("a draft layer takes in one token after its own, or more", 1 <= ahead),
        ),
        (attention.lookahead_blocks(ahead, block_size) == 1) == (ahead <= span),
    )


def _eagle_needs_tail_plus_one() -> Iterable[Obligation]:
    yield from dropping.OBLIGATIONS
    yield from several.FLAGS
    yield from _one_block_is_enough
    yield from _lookahead_is_exact
    for kind, near_start, where, run in (
        (SLIDING, False, "tail", "the tail"),
        (SLIDING, True, "tail_cut_at_the_start", "every block"),
        (FULL, False, "every_block", "every block"),
        (CHUNKED, False, "chunk", "those of the boundary's chunk"),
        (MAMBA, False, "one_state", "the state block"),
    ):
        for lookahead in reversed(lookaheads(kind)):
            case: dict[str, Any] = {"kind": kind, "lookahead": lookahead, "near_start": near_start}
            need = run
            need += " and the lookahead block" if lookahead else ""
            yield Obligation(
                case_name(f"{where}_suffices", kind, lookahead),
                f"As many contiguous blocks as {need} contain the required run.",
                partial(_need_suffices, **case),
            )
            yield Obligation(
                case_name(f"less_than_{where}_does_not_suffice", kind, lookahead),
                f"Fewer contiguous blocks than {need} leave out a block of the required run.",
                partial(_less_does_not_suffice, **case),
            )
            yield Obligation(
                case_name(f"required_run_is_{where}", kind, lookahead),
                f"The required run is contiguous: {need}, no more and no less.",
                partial(_run_is_exact, **case),
                (
                    Mutant(
                        "one_block_less",
                        "It is one block shorter.",
                        partial(_run_is_exact, **case, slip=-1),
                    ),
                ),
            )


OBLIGATIONS = {"eagle_needs_tail_plus_one": tuple(_eagle_needs_tail_plus_one())}
"""The obligations of each claim on how much a hit needs, by its name."""
