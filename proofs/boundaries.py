"""Boundaries in tokens are boundaries in blocks, in one group and in all.

Several groups appear only as the set of lengths that are block edges in all of them, with what is
assumed of it: `proofs.several` has any number of groups.

``length``, ``alignment``, ``cap``, ``horizon``, ``given`` and ``returned`` are in tokens,
``count`` is in segments and in alignments, ``share`` is the alignment in blocks of a group, and
``edges`` is the set of lengths that are a block edge in every group.
"""

from collections.abc import Callable

from hitproof.proofs.cases import KINDS, any_group, obligation
from hitproof.proofs.interpretation import Interpretation, Products
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec import hits
from hitproof.spec.groups import GroupKind, whole_blocks
from hitproof.spec.terms import Formula, Term, implies, is_multiple, not_

_SOME_BLOCK = "a block holds at least one token"
_SOME_SHARE = "the alignment holds at least one block of the group"
_SOME_ALIGNMENT = "the alignment is at least one token"


@obligation(
    "edges_less_alignments_are_edges",
    "A block edge less any number of alignments is a block edge, whatever the group.",
    interpretation=Products,
    one_block_less=("So is it a block before.", {"slip": 1}),
)
def _difference_of_edges(at: Interpretation, slip: int = 0) -> Statement:
    edge, count, share = at.integer("edge"), at.integer("count"), at.integer("share")
    block_size = at.integer("block_size")
    alignment = share * block_size
    less = edge * block_size - count * alignment
    return Statement(
        ((_SOME_BLOCK, 1 <= block_size), (_SOME_SHARE, 1 <= share)),
        less == (edge - count * share - slip) * block_size,
    )


@obligation(
    "alignments_are_edges",
    "Any number of alignments is a block edge, whatever the group.",
    interpretation=Products,
    one_more=("It is that of one more.", {"slip": 1}),
)
def _alignments_are_edges(at: Interpretation, slip: int = 0) -> Statement:
    count, share, block_size = (at.integer(n) for n in ("count", "share", "block_size"))
    length = count * (share * block_size)
    return Statement(
        ((_SOME_BLOCK, 1 <= block_size), (_SOME_SHARE, 1 <= share)),
        (count + slip) * share * block_size == length,
    )


def _common_edges(at: Interpretation) -> tuple[Callable[[Term], Formula], Term, Hypotheses]:
    """The lengths that are a block edge in every group, and their alignment."""
    edges, alignment = at.block_set("edges"), at.integer("alignment")
    return edges, alignment, ((_SOME_ALIGNMENT, 1 <= alignment),)


@obligation(
    "common_edges_are_boundaries",
    "A length that is a block edge in every group is a multiple of their least positive one, the "
    "alignment.",
)
def _common_edge_is_a_boundary(at: Interpretation) -> Statement:
    length = at.integer("length")
    edges, alignment, hypotheses = _common_edges(at)
    left_over = length - length // alignment * alignment
    smaller = edges(left_over) & (1 <= left_over)
    return Statement(
        (
            *hypotheses,
            ("the length is a block edge in every group", edges(length)),
            ("so is what alignments leave over of it: see the differences", edges(left_over)),
            (
                "the alignment is the least positive one: no other is, what is left over included",
                implies(smaller, alignment <= left_over),
            ),
        ),
        is_multiple(length, alignment),
    )


@obligation(
    "alignment_is_one",
    "Two lengths that are both the least positive block edge in every group are the same.",
)
def _least_is_one(at: Interpretation) -> Statement:
    edges, alignment, hypotheses = _common_edges(at)
    other = at.integer("other")
    return Statement(
        (
            *hypotheses,
            ("the other is at least one token", 1 <= other),
            ("both are block edges in every group", edges(alignment) & edges(other)),
            ("no positive one is less than the one", implies(edges(other), alignment <= other)),
            ("nor than the other", implies(edges(alignment), other <= alignment)),
        ),
        alignment == other,
    )


@obligation(
    "segment_is_the_alignment_in_blocks",
    "A segment of P blocks is what an alignment of P blocks fills, and none is left over.",
    one_more=("It fills one block more.", {"slip": 1}),
)
def _segment_blocks(at: Interpretation, slip: int = 0) -> Statement:
    segment, block_size = at.integer("segment"), at.integer("block_size")
    alignment = segment * block_size
    return Statement(
        ((_SOME_BLOCK, 1 <= block_size), ("a segment is at least one block", 1 <= segment)),
        (whole_blocks(alignment, block_size) == segment + slip)
        & is_multiple(alignment, block_size),
    )


@obligation(
    "alignment_off_the_block_edges_is_refused",
    "A length between two block edges is no multiple of the block size.",
)
def _alignment_off_the_edges(at: Interpretation) -> Statement:
    block, block_size, alignment = (at.integer(n) for n in ("block", "block_size", "alignment"))
    starts, ends = block * block_size, (block + 1) * block_size
    between = (starts < alignment) & (alignment < ends)
    return Statement(
        ((_SOME_BLOCK, 1 <= block_size), ("the length lies between two block edges", between)),
        not_(is_multiple(alignment, block_size)),
    )


@obligation(
    "boundary_in_tokens_is_one_in_blocks",
    "A multiple of the alignment fills a multiple of the segment of blocks, and none is left over.",
    one_token_more=("So does a token more.", {"slip": 1}),
)
def _length_in_blocks(at: Interpretation, slip: int = 0) -> Statement:
    count, segment, block_size = (at.integer(n) for n in ("count", "segment", "block_size"))
    boundary = count * segment
    length = boundary * block_size + slip
    blocks = whole_blocks(length, block_size)
    return Statement(
        ((_SOME_BLOCK, 1 <= block_size), ("a segment is at least one block", 1 <= segment)),
        (blocks == boundary) & is_multiple(blocks, segment) & (blocks * block_size == length),
    )


@obligation(
    "lookup_in_blocks_is_longest_in_tokens",
    "A group's lookup in blocks, given a candidate and a horizon rounded down to blocks, returns "
    "no negative length, none above the candidate and none below a hit that is valid in tokens: "
    "what the common hit of several groups asks of it.",
    [(kind,) for kind in KINDS],
)
def _conditions_in_tokens(at: Interpretation, kind: GroupKind) -> Statement:
    lookahead, block_size = at.integer("lookahead"), at.integer("block_size")
    group, sizes = any_group(at, kind, lookahead)
    given, horizon = at.integer("given"), at.integer("horizon")
    found, other = at.integer("boundary"), at.integer("other")
    cap_blocks = whole_blocks(given, block_size)

    def valid(boundary: Term) -> Formula:
        blocks = whole_blocks(horizon, block_size)
        return hits.valid_boundary(group, boundary, cap_blocks, blocks, at.block_set("cached"))

    returned, length = found * block_size, other * block_size
    return Statement(
        (
            *sizes,
            (_SOME_BLOCK, 1 <= block_size),
            ("a lookahead is not negative", 0 <= lookahead),
            ("the candidate is not negative", 0 <= given),
            ("what lookup finds is a hit or none", 0 <= found),
            ("what it finds is valid", implies(1 <= found, valid(found))),
            ("no valid hit is longer", implies((1 <= other) & valid(other), other <= found)),
            ("the other hit is not empty", 1 <= other),
            ("its run is cached", hits.has_required_run(group, other, at.block_set("cached"))),
            ("it is no longer than the candidate", length <= given),
            ("its run ends within the horizon", hits.run_end(group, other) * block_size <= horizon),
        ),
        (0 <= returned) & (returned <= given) & (length <= returned),
    )


OBLIGATIONS = (
    *_difference_of_edges,
    *_alignments_are_edges,
    *_common_edge_is_a_boundary,
    *_least_is_one,
    *_segment_blocks,
    *_alignment_off_the_edges,
    *_length_in_blocks,
    *_conditions_in_tokens,
)
"""What the alignment is to lengths in tokens."""
