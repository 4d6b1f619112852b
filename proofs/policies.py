"""The theorems on policies that releases differ in: no margin, junctions, fine-grained hits.

``boundary``, ``candidate`` and ``block`` are in blocks of the group, ``unit`` in hash units,
``units`` is the number of hash units in a block; the rest as in `proofs.retention`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from hitproof.proofs.cases import (
    CASES,
    FULL,
    KINDS,
    MAMBA,
    SLIDING,
    any_group,
    case_name,
    lookaheads,
)
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import hits, retention
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.releases import fine, sequential
from hitproof.spec.terms import Term

_SPARSE = tuple((kind, n) for kind, n in CASES if kind in retention.SPARSE_KINDS)

# --- lookup_returns_longest_valid_hit, without a margin ------------------------------------


def _no_full_candidate(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    candidate = at.integer("candidate")
    served = sequential.valid_without_margin(
        group, candidate, candidate, at.block_set("cached"), at
    )
    return Statement((*sizes, ("the candidate is not empty", 1 <= candidate)), at.negation(served))


def _only_loses(
    at: Interpretation, kind: GroupKind, lookahead: int, converse: bool = False
) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    boundary, candidate = at.integer("boundary"), at.integer("candidate")
    cap = at.integer("cap")
    cached = at.block_set("cached")
    in_sequence = sequential.valid_without_margin(group, boundary, candidate, cached, at)
    with_margin = hits.valid_boundary(group, boundary, cap, cap, cached, at)
    premise, conclusion = (with_margin, in_sequence) if converse else (in_sequence, with_margin)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("and no longer than the candidate", boundary <= candidate),
            ("the candidate is within the cap", candidate <= cap),
            ("the hit may be served", premise),
        ),
        conclusion,
    )


def _stays_valid(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    group, sizes = any_group(at, kind, lookahead)
    boundary, shorter, candidate = (at.integer(n) for n in ("boundary", "shorter", "candidate"))
    valid = partial(
        sequential.valid_without_margin,
        group,
        candidate=candidate,
        cached=at.block_set("cached"),
        arithmetic=at,
    )
    return Statement(
        (
            *sizes,
            ("a later group's hit is not empty", 1 <= shorter),
            ("and no longer than this group's", shorter <= boundary),
            ("this group may serve its hit", valid(boundary)),
        ),
        valid(shorter),
    )


def _turn_costs(at: Interpretation, least: int = 1) -> Statement:
    lookahead, alignment = at.integer("lookahead_tokens"), at.integer("alignment")
    count = at.integer("count")
    left = at.multiple_at_most(at.times(count, alignment) - lookahead, alignment)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("the group looks ahead", least <= lookahead),
            ("by one of its blocks, which is no longer than the alignment", lookahead <= alignment),
        ),
        left == at.times(count - 1, alignment),
    )


def no_margin() -> Iterable[Obligation]:
    """What holds when the candidate is the horizon, and `proofs.joint` does not apply."""
    looking_ahead = [(kind, n) for kind in KINDS for n in lookaheads(kind) if n]
    for kind, lookahead in looking_ahead:
        yield Obligation(
            case_name("no_candidate_survives_a_turn", kind),
            "Without a margin a group that looks ahead never serves the whole candidate. So turns "
            "that are repeated until nothing shrinks leave no hit.",
            partial(_no_full_candidate, kind=kind, lookahead=lookahead),
            (
                Mutant(
                    "no_lookahead",
                    "Nor does a group that does not look ahead.",
                    partial(_no_full_candidate, kind=kind, lookahead=0),
                ),
            ),
        )
    for kind, lookahead in looking_ahead:
        state = partial(_only_loses, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("no_margin_only_loses_hits", kind),
            "What a group may serve without a margin it may serve when the horizon stays at the "
            "cap. So nothing unsound is served.",
            state,
            (
                Mutant(
                    "loses_none",
                    "What it may serve when the horizon stays, it may serve without a margin.",
                    partial(state, converse=True),
                ),
            ),
        )
    for lookahead in lookaheads(FULL):
        yield Obligation(
            case_name("full_attention_serves_what_later_turns_leave", FULL, lookahead),
            "A hit that full attention may serve in its turn it may also serve when a later group "
            "shortens it. So one turn each of it and of one other group ends at a valid hit.",
            partial(_stays_valid, kind=FULL, lookahead=lookahead),
            tuple(
                Mutant(
                    f"{kind}_first",
                    "So may a group of another kind that has its turn first.",
                    partial(_stays_valid, kind=kind, lookahead=0),
                )
                for kind in (SLIDING, MAMBA)
            ),
        )
    yield Obligation(
        "a_turn_costs_one_alignment",
        "When everything is cached, a turn of a group that looks ahead makes a candidate that is "
        "a boundary shorter by one alignment, no more and no less.",
        _turn_costs,
        (
            Mutant(
                "no_lookahead",
                "So does the turn of one that does not look ahead.",
                partial(_turn_costs, least=0),
            ),
        ),
    )


# --- retention_keeps_junctions -------------------------------------------------------------


def _no_sibling_hits_more(at: Interpretation, slip: int = 0) -> Statement:
    length, alignment = at.integer("length"), at.integer("alignment")
    shared, lookahead = at.integer("shared"), at.integer("lookahead_tokens")
    junction = retention.junction_boundary(shared, lookahead + slip, alignment, at)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("a hit is not negative", 0 <= length),
            ("a hit ends on a boundary", at.multiple_at_most(length, alignment) == length),
            ("the hit and its lookahead are shared", length + lookahead <= shared),
        ),
        length <= junction,
    )


def _junction_is_shared(at: Interpretation, slip: int = 0) -> Statement:
    alignment, shared = at.integer("alignment"), at.integer("shared")
    lookahead = at.integer("lookahead_tokens")
    junction = retention.junction_boundary(shared, lookahead + slip, alignment, at)
    return Statement(
        (
            ("the alignment is at least one token", 1 <= alignment),
            ("a lookahead is not negative", 0 <= lookahead),
            ("there is a junction", 1 <= junction),
        ),
        (at.multiple_at_most(junction, alignment) == junction) & (junction + lookahead <= shared),
    )


def _junction_run_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, forgotten: bool = False
) -> Statement:
    block = at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    replays: list[Term] = [at.integer(n) for n in ("resend", "extension", "junction")]
    kept = replays[:2] if forgotten else replays
    return Statement(
        (
            *sizes,
            ("there is a junction", 1 <= replays[2]),
            ("the block is in its run", hits.in_required_run(group, block, replays[2], at)),
        ),
        retention.in_retained_mask(group, block, kept, None, at),
    )


def junctions() -> Iterable[Obligation]:
    """That a junction is the hit of the next sibling, and that its run is kept."""
    yield Obligation(
        "no_sibling_hits_past_the_junction",
        "No sibling hits more of a shared prefix than its junction.",
        _no_sibling_hits_more,
        (
            Mutant(
                "lookahead_too_long",
                "Nor more than the junction of a longer lookahead.",
                partial(_no_sibling_hits_more, slip=1),
            ),
        ),
    )
    yield Obligation(
        "junction_is_within_the_shared_prefix",
        "The junction is a boundary, and all that its run asks for is shared.",
        _junction_is_shared,
        (
            Mutant(
                "lookahead_too_short",
                "So is that of a shorter lookahead.",
                partial(_junction_is_shared, slip=-1),
            ),
        ),
    )
    for kind, lookahead in _SPARSE:
        state = partial(_junction_run_is_kept, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("run_of_junction_is_kept", kind, lookahead),
            "Each block in the required run of a junction is kept.",
            state,
            (
                Mutant(
                    "junction_forgotten",
                    "So it is when only the prompts' own boundaries are kept, as before vLLM 0.26.",
                    partial(state, forgotten=True),
                ),
            ),
        )


# --- fine_grained_hit_is_vouched_for -------------------------------------------------------


def _both_views(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, BlockGeometry, Term, Term]:
    """A group in blocks and in hash units, with a boundary in each."""
    units = at.integer("units")
    blocks = BlockGeometry(kind, 1, 0, lookahead)
    in_units = BlockGeometry(kind, 1, 0, lookahead)
    boundary = at.integer("boundary")
    at.times(boundary - 1, units)  # named, so that the axioms of products speak of it
    return blocks, in_units, boundary, at.times(boundary, units)


def _asks_for_no_other_block(
    at: Interpretation, kind: GroupKind, lookahead: int, inside: int = 0
) -> Statement:
    unit, units = at.integer("unit"), at.integer("units")
    blocks, in_units, boundary, length = _both_views(at, kind, lookahead)
    required = hits.in_required_run(in_units, unit, length + inside, at)
    return Statement(
        (
            ("a block is at least one hash unit", 1 <= units),
            ("the hit is not empty", 1 <= boundary),
            ("the unit is required for the fine-grained hit", required),
        ),
        hits.in_required_run(blocks, fine.block_of(unit, units, at), boundary, at),
    )


def _asks_for_each_block(
    at: Interpretation, kind: GroupKind, lookahead: int, asked_kind: GroupKind
) -> Statement:
    block, units = at.integer("block"), at.integer("units")
    blocks, in_units, boundary, length = _both_views(at, kind, lookahead)
    proof = fine.witness_unit(asked_kind, block, units, at)
    return Statement(
        (
            ("a block is at least one hash unit", 1 <= units),
            ("the hit is not empty", 1 <= boundary),
            ("the block is required", hits.in_required_run(blocks, block, boundary, at)),
        ),
        hits.in_required_run(in_units, proof, length, at),
    )


def _peeks_no_further(
    at: Interpretation, kind: GroupKind, lookahead: int, converse: bool = False
) -> Statement:
    units = at.integer("units")
    blocks, in_units, boundary, length = _both_views(at, kind, lookahead)
    in_blocks, fine_end = hits.run_end(blocks, boundary), hits.run_end(in_units, length)
    aligned_end = at.times(in_blocks, units)
    return Statement(
        (("a block is at least one hash unit", 1 <= units), ("a hit", 0 <= boundary)),
        aligned_end <= fine_end if converse else fine_end <= aligned_end,
    )


def fine_grained() -> Iterable[Obligation]:
    """That on block edges fine-grained hits are the aligned ones, when only blocks are entered."""
    for kind, lookahead in CASES:
        if kind not in fine.FINE_KINDS:
            continue
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        yield Obligation(
            case_name("fine_hit_on_a_block_edge_asks_for_no_other_block", kind, lookahead),
            "Each hash unit that a fine-grained hit on a block edge requires lies in a block that "
            "the aligned hit requires. So an aligned hit is a fine-grained one.",
            partial(_asks_for_no_other_block, **case),
            (
                Mutant(
                    "inside_a_block",
                    "So it is when the hit ends one hash unit past the edge.",
                    partial(_asks_for_no_other_block, **case, inside=1),
                ),
            ),
        )
        other = MAMBA if kind is FULL else FULL
        yield Obligation(
            case_name("fine_hit_on_a_block_edge_asks_for_each_block", kind, lookahead),
            "Of each block that an aligned hit requires, a fine-grained hit on the same block edge "
            "asks for a hash unit. So where only whole blocks are entered it is an aligned one.",
            partial(_asks_for_each_block, **case, asked_kind=kind),
            (
                Mutant(
                    "unit_of_another_kind",
                    "It asks for the unit that another kind is asked for.",
                    partial(_asks_for_each_block, **case, asked_kind=other),
                ),
            )
            if kind is MAMBA or lookahead
            else (
                Mutant(
                    "unit_of_the_block_past_it",
                    "It asks for a unit of the lookahead block, too.",
                    partial(_asks_past, **case),
                ),
            ),
        )
        if lookahead:
            yield Obligation(
                case_name("fine_hit_peeks_no_further", kind, lookahead),
                "On a block edge a fine-grained hit peeks no further than the aligned one.",
                partial(_peeks_no_further, **case),
                (
                    Mutant(
                        "as_far",
                        "It peeks as far.",
                        partial(_peeks_no_further, **case, converse=True),
                    ),
                ),
            )


def _asks_past(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    units = at.integer("units")
    _, in_units, boundary, length = _both_views(at, kind, lookahead)
    proof = fine.witness_unit(kind, boundary, units, at)
    return Statement(
        (("a block is at least one hash unit", 1 <= units), ("a hit", 1 <= boundary)),
        hits.in_required_run(in_units, proof, length, at),
    )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "retention_keeps_junctions": tuple(junctions()),
    "fine_grained_hit_is_vouched_for": tuple(fine_grained()),
}
"""The obligations of each claim that is about a policy, by its name."""
