"""One theorem for each claim of the spec, for all sizes and positions, without bounds.

Statements call the spec's own functions; they add only the unknowns, the hypotheses and, where
something exists, a witness for it. Names of unknowns: positions and windows are in tokens,
``block``, ``boundary``, ``segment``, ``tail`` and ``contiguous`` in blocks, ``count`` and
``other`` in segments; ``block_size``, ``window`` and ``chunk`` are in tokens.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from proofs import joint, policies, pool, retention, scans, sharing
from proofs.cases import (
    CASES,
    CHUNKED,
    FULL,
    KINDS,
    MAMBA,
    SLIDING,
    any_group,
    case_name,
    chunks,
    lookaheads,
)
from proofs.interpretation import Interpretation
from proofs.obligation import Hypotheses, Mutant, Obligation, Statement, Theorem
from spec import attention, hits, mask
from spec.groups import BlockGeometry, GroupKind
from spec.terms import Formula, Term

# --- hit_has_every_block_attention_reads ---------------------------------------------------


def _attending_group(
    at: Interpretation, kind: GroupKind, window_slip: int
) -> tuple[BlockGeometry, Term, Callable[[Term, Term], Formula], Hypotheses]:
    """Any group of that kind, seen in tokens: also its block size and what attends to what."""
    # The run before one boundary does not depend on where the next one is.
    if kind is CHUNKED:
        block_size, chunk, sizes = chunks(at)
        group = BlockGeometry(kind, 1, 0, 0, block_size, chunk)
        return group, block_size, _attends(at, None, chunk), sizes
    block_size = at.integer("block_size")
    some_block = ("a block holds at least one token", 1 <= block_size)
    if kind is FULL:
        return BlockGeometry(kind, 1, 0, 0), block_size, _attends(at, None, None), (some_block,)
    window = at.integer("window")
    tail = attention.tail_blocks(window + window_slip, block_size, at)
    some_window = ("a window holds at least the token itself", 1 <= window)
    group = BlockGeometry(kind, 1, tail, 0)
    return group, block_size, _attends(at, window, None), (some_block, some_window)


def _attends(
    at: Interpretation, window: Term | None, chunk: Term | None
) -> Callable[[Term, Term], Formula]:
    return partial(attention.attends, window=window, chunk=chunk, arithmetic=at)


def _holds(at: Interpretation, block: Term, token: Term, block_size: Term) -> Formula:
    return (at.times(block, block_size) <= token) & (token < at.times(block + 1, block_size))


def _read_is_required(
    at: Interpretation, kind: GroupKind, window_slip: int = 0, boundary_slip: int = 0
) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, block_size, attends, sizes = _attending_group(at, kind, window_slip)
    query, token = at.integer("query"), at.integer("token")
    first = at.times(boundary, block_size)
    return Statement(
        (
            *sizes,
            ("positions start at 0", 0 <= token),
            ("the block holds the token", _holds(at, block, token, block_size)),
            ("the token is part of the hit", token < first),
            ("the query is computed after the hit", first <= query),
            ("the query reads the token", attends(query, token)),
        ),
        hits.in_required_run(group, block, boundary + boundary_slip, at),
    )


def _required_is_read(
    at: Interpretation, kind: GroupKind, window_slip: int = 0, boundary_slip: int = 0
) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, block_size, attends, sizes = _attending_group(at, kind, window_slip)
    required = hits.in_required_run(group, block, boundary + boundary_slip, at)
    first, last_token = at.times(boundary, block_size), at.times(block + 1, block_size) - 1
    return Statement(
        (*sizes, ("the block is in the required run", required)),
        (0 <= last_token)
        & _holds(at, block, last_token, block_size)
        & (last_token < first)
        & attends(first, last_token),
    )


def _first_query_suffices(at: Interpretation, kind: GroupKind, first_slip: int = 0) -> Statement:
    first, query, token = at.integer("length"), at.integer("query"), at.integer("token")
    *_, attends, sizes = _attending_group(at, kind, window_slip=0)
    return Statement(
        (
            *sizes,
            ("the token is part of the hit", token < first),
            ("the query is computed after the hit", first <= query),
            ("the query reads the token", attends(query, token)),
        ),
        attends(first + first_slip, token),
    )


def _read_state_is_required(at: Interpretation, boundary_slip: int = 0) -> Statement:
    boundary, block, block_size = (at.integer(n) for n in ("boundary", "block", "block_size"))
    last_token = at.times(block + 1, block_size) - 1
    length = at.times(boundary, block_size)
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("positions start at 0", 0 <= last_token),
            (
                "the state is as of the block's last token",
                attention.reads_state(length, last_token),
            ),
        ),
        hits.in_required_run(BlockGeometry(MAMBA, 1, 0, 0), block, boundary + boundary_slip, at),
    )


def _required_state_is_read(at: Interpretation, boundary_slip: int = 0) -> Statement:
    boundary, block, block_size = (at.integer(n) for n in ("boundary", "block", "block_size"))
    group = BlockGeometry(MAMBA, 1, 0, 0)
    required = hits.in_required_run(group, block, boundary + boundary_slip, at)
    last_token = at.times(block + 1, block_size) - 1
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("the block is in the required run", required),
        ),
        (0 <= last_token) & attention.reads_state(at.times(boundary, block_size), last_token),
    )


def _hit_has_required_block(
    at: Interpretation, kind: GroupKind, lookahead: int, boundary_slip: int = 0
) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")
    required = hits.in_required_run(group, block, boundary + boundary_slip, at)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("the required run is cached", hits.has_required_run(group, boundary, cached, at)),
            ("the block is in the required run", required),
        ),
        cached(block),
    )


def _hit_has_every_block_attention_reads() -> Iterable[Obligation]:
    yield Obligation(
        case_name("read_state_is_required", MAMBA),
        "The block that keeps the state to resume from is in the required run.",
        _read_state_is_required,
        (
            Mutant(
                "earlier_boundary",
                "It is in that of a hit one block shorter.",
                partial(_read_state_is_required, boundary_slip=-1),
            ),
        ),
    )
    yield Obligation(
        case_name("required_state_is_read", MAMBA),
        "Resuming reads the state in each block of the required run.",
        _required_state_is_read,
        (
            Mutant(
                "later_boundary",
                "It reads the state in each block of that of a hit one block longer.",
                partial(_required_state_is_read, boundary_slip=1),
            ),
        ),
    )
    for kind in (FULL, SLIDING, CHUNKED):
        sliding = kind is SLIDING
        yield Obligation(
            case_name("every_read_block_is_required", kind),
            "A block that holds a token of the hit that some later query reads is in the "
            "required run.",
            partial(_read_is_required, kind=kind),
            (
                Mutant(
                    "smaller_window",
                    "The required run of a window one token smaller is enough.",
                    partial(_read_is_required, kind=kind, window_slip=-1),
                )
                if sliding
                else Mutant(
                    "earlier_boundary",
                    "The required run of a hit one block shorter is enough.",
                    partial(_read_is_required, kind=kind, boundary_slip=-1),
                ),
            ),
        )
        yield Obligation(
            case_name("every_required_block_is_read", kind),
            "The first query after the hit reads the last token of each block in the required run.",
            partial(_required_is_read, kind=kind),
            (
                Mutant(
                    "larger_window",
                    "All of the required run of a window one token larger is read.",
                    partial(_required_is_read, kind=kind, window_slip=1),
                )
                if sliding
                else Mutant(
                    "later_boundary",
                    "All of the required run of a hit one block longer is read.",
                    partial(_required_is_read, kind=kind, boundary_slip=1),
                ),
            ),
        )
        yield Obligation(
            case_name("first_query_reads_the_most", kind),
            "A token of the hit that some later query reads is read by the first one.",
            partial(_first_query_suffices, kind=kind),
            (
                Mutant(
                    "second_query",
                    "A token of the hit that some later query reads is read by the second one.",
                    partial(_first_query_suffices, kind=kind, first_slip=1),
                )
                if kind is not FULL
                else Mutant(
                    "query_within_the_hit",
                    "A token of the hit that some later query reads is read by the query two "
                    "tokens before the first one.",
                    partial(_first_query_suffices, kind=kind, first_slip=-2),
                ),
            ),
        )
    for kind, lookahead in CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        yield Obligation(
            case_name("hit_has_each_required_block", kind, lookahead),
            "When the required run is cached, so is each block in it.",
            partial(_hit_has_required_block, **case),
            (
                Mutant(
                    "later_boundary",
                    "When the required run is cached, so is each block in that of the next block "
                    "edge.",
                    partial(_hit_has_required_block, **case, boundary_slip=1),
                ),
            ),
        )


# --- eagle_needs_tail_plus_one -------------------------------------------------------------


def _group_and_need(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool
) -> tuple[BlockGeometry, Term, Term, Hypotheses]:
    """Any group and boundary, and how many blocks a hit there needs."""
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    sizes = (*sizes, ("the hit is not empty", 1 <= boundary))
    if kind is FULL:
        return group, boundary, boundary + lookahead, sizes
    if kind is MAMBA:
        return group, boundary, 1, sizes
    if kind is CHUNKED:
        first_block = at.integer("first_block")
        first_token = at.multiple_at_most(
            at.times(boundary, group.block_size), group.chunk
        )  # of the chunk that the boundary lies in
        holds = _holds(at, first_block, first_token, group.block_size)
        begins = ("the block holds the first token of the boundary's chunk", holds)
        return group, boundary, boundary - first_block + lookahead, (*sizes, begins)
    if near_start:
        cut = ("the tail reaches past the start of the request", boundary < group.tail)
        return group, boundary, boundary + lookahead, (*sizes, cut)
    uncut = ("the request holds the whole tail", group.tail <= boundary)
    return group, boundary, group.tail + lookahead, (*sizes, uncut)


def _among_last(group: BlockGeometry, boundary: Term, count: Term, block: Term) -> Formula:
    """Whether the block is one of the ``count`` that end just past the lookahead block."""
    end = boundary + group.lookahead
    return (end - count <= block) & (block < end)


def _need_suffices(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool, slip: int = 0
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    count = at.integer("contiguous")
    among_last = partial(_among_last, group, boundary, count)
    return Statement(
        (*sizes, ("as many blocks as needed are contiguous", need + slip <= count)),
        hits.has_required_run(group, boundary, among_last, at),
    )


def _less_does_not_suffice(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool, slip: int = 0
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    count = at.integer("contiguous")
    first = at.maximum(hits.run_start(group, boundary, at), 0)
    return Statement(
        (
            *sizes,
            ("a count is not negative", 0 <= count),
            ("fewer blocks than needed are contiguous", count < need + slip),
        ),
        hits.in_required_run(group, first, boundary, at)
        & at.negation(_among_last(group, boundary, count, first)),
    )


def _run_is_exact(
    at: Interpretation, kind: GroupKind, lookahead: int, near_start: bool, slip: int = 0
) -> Statement:
    group, boundary, need, sizes = _group_and_need(at, kind, lookahead, near_start)
    block = at.integer("block")
    return Statement(
        sizes,
        hits.in_required_run(group, block, boundary, at)
        == _among_last(group, boundary, need + slip, block),
    )


def _eagle_needs_tail_plus_one() -> Iterable[Obligation]:
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
                (
                    Mutant(
                        "one_block_less",
                        "One block less contains it too.",
                        partial(_need_suffices, **case, slip=-1),
                    ),
                ),
            )
            yield Obligation(
                case_name(f"less_than_{where}_does_not_suffice", kind, lookahead),
                f"Fewer contiguous blocks than {need} leave out a block of the required run.",
                partial(_less_does_not_suffice, **case),
                (
                    Mutant(
                        "one_block_more",
                        "So do as many.",
                        partial(_less_does_not_suffice, **case, slip=1),
                    ),
                ),
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


# --- lookup_returns_longest_valid_hit ------------------------------------------------------


def _more_stays_valid(
    at: Interpretation, kind: GroupKind, lookahead: int, turned_round: bool = False
) -> Statement:
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    cached, more = at.block_set("cached"), at.block_set("more")
    fewer, greater = (more, cached) if turned_round else (cached, more)
    every_block = hits.run_end(group, boundary)
    grows = at.for_all(0, every_block, lambda i: at.implies(fewer(i), greater(i)))
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("the required run is cached", hits.has_required_run(group, boundary, cached, at)),
            ("what is cached stays cached", grows),
        ),
        hits.has_required_run(group, boundary, more, at),
    )


def _required_suffices(
    at: Interpretation, kind: GroupKind, lookahead: int, boundary_slip: int = 0
) -> Statement:
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")

    def cached_if_required(block: Term) -> Formula:
        required = hits.in_required_run(group, block, boundary + boundary_slip, at)
        return at.implies(required, cached(block))

    every_block = hits.run_end(group, boundary)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("each required block is cached", at.for_all(0, every_block, cached_if_required)),
        ),
        hits.has_required_run(group, boundary, cached, at),
    )


def _less_is_invalid(
    at: Interpretation, kind: GroupKind, lookahead: int, boundary_slip: int = 0
) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")
    required = hits.in_required_run(group, block, boundary + boundary_slip, at)
    without = hits.has_required_run(group, boundary, lambda i: cached(i) & (i != block), at)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("the block is in the required run", required),
            ("the block was cached", cached(block)),
        ),
        at.negation(without),
    )


def _reach_in_tokens(
    at: Interpretation, kind: GroupKind, lookahead: int, rounded_up: bool = False
) -> Statement:
    boundary, block_size = at.integer("boundary"), at.integer("block_size")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group, sizes = any_group(at, kind, lookahead)
    in_blocks = at.ceil_div if rounded_up else at.floor_div
    reach = hits.within_reach(
        group, boundary, in_blocks(cap, block_size), in_blocks(horizon, block_size)
    )
    return Statement(
        (*sizes, ("a block holds at least one token", 1 <= block_size)),
        reach
        == (
            (at.times(boundary, block_size) <= cap)
            & (at.times(boundary + lookahead, block_size) <= horizon)
        ),
    )


def _scan_starts_high_enough(
    at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0
) -> Statement:
    count, boundary = at.integer("count"), at.integer("boundary")
    block_size, alignment = at.integer("block_size"), at.integer("alignment")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group, sizes = any_group(at, kind, lookahead)
    reach = hits.within_reach(
        group, boundary, at.floor_div(cap, block_size), at.floor_div(horizon, block_size)
    )
    length = at.times(count, alignment)
    return Statement(
        (
            *sizes,
            ("a block holds at least one token", 1 <= block_size),
            ("the alignment is at least one token", 1 <= alignment),
            ("a hit ends on a block edge", length == at.times(boundary, block_size)),
            ("lookup may serve the hit", reach),
        ),
        length <= at.multiple_at_most(cap, alignment) - slip,
    )


def _two_hits(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[Term, Formula, Term, Formula, Hypotheses]:
    """Two hits of any group, in segments, each with whether it is valid."""
    count, other = at.integer("count"), at.integer("other")
    group, sizes = any_group(at, kind, lookahead)
    cap, horizon, cached = at.integer("cap"), at.integer("horizon"), at.block_set("cached")

    def valid(segments: Term) -> Formula:
        boundary = at.times(segments, group.segment)
        return hits.valid_boundary(group, boundary, cap, horizon, cached, at)

    some_hits = ("neither hit is empty", (1 <= count) & (1 <= other))
    return count, valid(count), other, valid(other), (*sizes, some_hits)


def _scan_goes_on(at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0) -> Statement:
    count, valid, other, other_is_valid, sizes = _two_hits(at, kind, lookahead)
    return Statement(
        (
            *sizes,
            ("no other valid hit is longer", at.implies(other_is_valid, other <= count)),
            ("the hit is not valid", at.negation(valid)),
        ),
        at.implies(other_is_valid, other <= count - 1 - slip),
    )


def _longest_is_one(
    at: Interpretation, kind: GroupKind, lookahead: int, other_is_longest: bool = True
) -> Statement:
    count, valid, other, other_is_valid, sizes = _two_hits(at, kind, lookahead)
    hypotheses = (
        *sizes,
        ("the hit is valid", valid),
        ("the other hit is valid", other_is_valid),
        ("no valid hit is longer than the one", at.implies(other_is_valid, other <= count)),
    )
    if other_is_longest:
        hypotheses += (("nor than the other", at.implies(valid, count <= other)),)
    return Statement(hypotheses, count == other)


def _lookup_returns_longest_valid_hit() -> Iterable[Obligation]:
    for kind, lookahead in CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        yield Obligation(
            case_name("more_cached_blocks_keep_a_hit_valid", kind, lookahead),
            "A required run stays cached when more blocks are cached.",
            partial(_more_stays_valid, **case),
            (
                Mutant(
                    "fewer_cached_blocks",
                    "A required run stays cached when fewer blocks are cached.",
                    partial(_more_stays_valid, **case, turned_round=True),
                ),
            ),
        )
        yield Obligation(
            case_name("required_blocks_are_enough", kind, lookahead),
            "A required run is cached when each of its blocks is, whatever else is not.",
            partial(_required_suffices, **case),
            (
                Mutant(
                    "earlier_boundary",
                    "It is when each block in that of the block edge before is.",
                    partial(_required_suffices, **case, boundary_slip=-1),
                ),
            ),
        )
        yield Obligation(
            case_name("each_required_block_is_needed", kind, lookahead),
            "Without any one of its blocks a required run is not cached.",
            partial(_less_is_invalid, **case),
            (
                Mutant(
                    "later_boundary",
                    "Without any one block of that of the next block edge it is not cached.",
                    partial(_less_is_invalid, **case, boundary_slip=1),
                ),
            ),
        )
        yield Obligation(
            case_name("reach_in_blocks_is_reach_in_tokens", kind, lookahead),
            "With cap and lookahead horizon rounded down to blocks, lookup may serve just the "
            "hits that end within the cap and whose lookahead block ends within the horizon.",
            partial(_reach_in_tokens, **case),
            (
                Mutant(
                    "rounded_up",
                    "So it may with both rounded up.",
                    partial(_reach_in_tokens, **case, rounded_up=True),
                ),
            ),
        )
        yield Obligation(
            case_name("scan_starts_high_enough", kind, lookahead),
            "No hit that lookup may serve is longer than the cap rounded down to the alignment.",
            partial(_scan_starts_high_enough, **case),
            (
                Mutant(
                    "one_token_lower",
                    "None is as long either.",
                    partial(_scan_starts_high_enough, **case, slip=1),
                ),
            ),
        )
        yield Obligation(
            case_name("scan_skips_no_valid_hit", kind, lookahead),
            "When no valid hit is longer than this one and this one is not valid, then no valid "
            "hit is longer than the next shorter one. So, by induction, a scan from above stops "
            "at the longest valid hit, at 0 at the latest.",
            partial(_scan_goes_on, **case),
            (
                Mutant(
                    "skips_one",
                    "Then the next shorter one is not valid either.",
                    partial(_scan_goes_on, **case, slip=1),
                ),
            ),
        )
        yield Obligation(
            case_name("longest_valid_hit_is_one", kind, lookahead),
            "Two valid hits that are both longest are the same.",
            partial(_longest_is_one, **case),
            (
                Mutant(
                    "one_is_longest",
                    "Two valid hits, one of them longest, are the same.",
                    partial(_longest_is_one, **case, other_is_longest=False),
                ),
            ),
        )
    yield from scans.obligations(KINDS, any_group)
    yield from joint.obligations(KINDS, any_group)
    yield from policies.no_margin()


# --- mask_keeps_every_reachable_block ------------------------------------------------------


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
    boundary = at.times(count, group.segment)
    masked = _altered(
        group, tail_slip, lookahead=lookahead if mask_lookahead is None else mask_lookahead
    )
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= count),
            ("the block is in its required run", hits.in_required_run(group, block, boundary, at)),
        ),
        mask.in_mask(masked, block + block_slip, at),
    )


def _mask_keeps_every_reachable_block() -> Iterable[Obligation]:
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


# --- mask_keeps_only_reachable_blocks ------------------------------------------------------


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
        lookahead=lookahead if mask_lookahead is None else mask_lookahead,
    )
    # The boundary that shows it: the first whose run ends after the block.
    passed = at.floor_div(block - group.lookahead, group.segment)
    count = at.maximum(passed + 1, 1) + count_slip
    return Statement(
        (*sizes, ("the block is in the mask", mask.in_mask(masked, block, at))),
        (1 <= count) & hits.in_required_run(group, block, at.times(count, group.segment), at),
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


THEOREMS: dict[str, Theorem] = {
    name: Theorem(name, tuple(obligations))
    for name, obligations in (
        ("hit_has_every_block_attention_reads", _hit_has_every_block_attention_reads()),
        ("eagle_needs_tail_plus_one", _eagle_needs_tail_plus_one()),
        ("lookup_returns_longest_valid_hit", _lookup_returns_longest_valid_hit()),
        ("mask_keeps_every_reachable_block", _mask_keeps_every_reachable_block()),
        ("mask_keeps_only_reachable_blocks", _mask_keeps_only_reachable_blocks()),
        *retention.OBLIGATIONS.items(),
        *pool.OBLIGATIONS.items(),
        *sharing.OBLIGATIONS.items(),
        *policies.OBLIGATIONS.items(),
    )
}
"""Every theorem, by the name of its claim."""
