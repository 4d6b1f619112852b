"""What attention reads after a hit is what the hit requires, in the style of `proofs.theorems`."""

from collections.abc import Callable, Iterable
from functools import partial

from hitproof.proofs.cases import (
    CASES,
    CHUNKED,
    FULL,
    MAMBA,
    SLIDING,
    any_group,
    case_name,
    chunks,
    holds_token,
    obligation,
)
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement
from hitproof.spec import attention, hits
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term


def _attending_group(
    at: Interpretation, kind: GroupKind
) -> tuple[BlockGeometry, Term, Callable[[Term, Term], Formula], Hypotheses]:
    """Any group of that kind, seen in tokens: also its block size and what attends to what."""
    window: Term | None = None
    chunk: Term | None = None
    tail: Term = 0
    if kind is CHUNKED:
        block_size, chunk, sizes = chunks(at)
    else:
        block_size = at.integer("block_size")
        sizes = (("a block holds at least one token", 1 <= block_size),)
    if kind is SLIDING:
        window = at.integer("window")
        tail = attention.tail_blocks(window, block_size)
        sizes += (("a window holds at least the token itself", 1 <= window),)
    # The run before one boundary does not depend on where the next one is.
    group = BlockGeometry(kind, 1, tail, 0, block_size, chunk)
    return group, block_size, partial(attention.attends, window=window, chunk=chunk), sizes


@obligation(
    "every_read_block_is_required",
    "A block that holds a token of the hit that some later query reads is in the required run.",
    [(kind,) for kind in (FULL, SLIDING, CHUNKED)],
)
def _read_is_required(at: Interpretation, kind: GroupKind) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, block_size, attends, sizes = _attending_group(at, kind)
    query, token = at.integer("query"), at.integer("token")
    first = boundary * block_size
    return Statement(
        (
            *sizes,
            ("positions start at 0", 0 <= token),
            ("the block holds the token", holds_token(block, token, block_size)),
            ("the token is part of the hit", token < first),
            ("the query is computed after the hit", first <= query),
            ("the query reads the token", attends(query, token)),
        ),
        hits.in_required_run(group, block, boundary),
    )


@obligation(
    "every_required_block_is_read",
    "The first query after the hit reads the last token of each block in the required run.",
    [(kind,) for kind in (FULL, SLIDING, CHUNKED)],
)
def _required_is_read(at: Interpretation, kind: GroupKind) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, block_size, attends, sizes = _attending_group(at, kind)
    required = hits.in_required_run(group, block, boundary)
    first, last_token = boundary * block_size, (block + 1) * block_size - 1
    return Statement(
        (*sizes, ("the block is in the required run", required)),
        (0 <= last_token)
        & holds_token(block, last_token, block_size)
        & (last_token < first)
        & attends(first, last_token),
    )


@obligation(
    "first_query_reads_the_most",
    "A token of the hit that some later query reads is read by the first one.",
    [(kind,) for kind in (FULL, SLIDING, CHUNKED)],
    query_within_the_hit=("So it is by the query two tokens before that.", {"later": -2}),
)
def _first_query_suffices(at: Interpretation, kind: GroupKind, later: int = 0) -> Statement:
    """``later``: how many tokens after the first query the reading query is."""
    first, query, token = at.integer("length"), at.integer("query"), at.integer("token")
    *_, attends, sizes = _attending_group(at, kind)
    return Statement(
        (
            *sizes,
            ("the token is part of the hit", token < first),
            ("the query is computed after the hit", first <= query),
            ("the query reads the token", attends(query, token)),
        ),
        attends(first + later, token),
    )


@obligation(
    "no_query_reads_ahead",
    "A query reads no token after itself.",
    [(kind,) for kind in (FULL, SLIDING, CHUNKED)],
)
def _never_ahead(at: Interpretation, kind: GroupKind) -> Statement:
    query, token = at.integer("query"), at.integer("token")
    *_, attends, sizes = _attending_group(at, kind)
    return Statement((*sizes, ("the query reads the token", attends(query, token))), token <= query)


@obligation(
    "every_query_reads_itself",
    "A query reads its own token.",
    [(kind,) for kind in (FULL, SLIDING, CHUNKED)],
    next_token=("So it does the next.", {"ahead": 1}),
)
def _reads_itself(at: Interpretation, kind: GroupKind, ahead: int = 0) -> Statement:
    """``ahead``: how many tokens after its own it reads."""
    query = at.integer("query")
    *_, attends, sizes = _attending_group(at, kind)
    return Statement(sizes, attends(query, query + ahead))


def _one_state(at: Interpretation) -> Statement:
    length, token, other = at.integer("length"), at.integer("token"), at.integer("other")
    return Statement(
        (
            ("resuming reads the state as of the token", attention.reads_state(length, token)),
            ("and as of the other", attention.reads_state(length, other)),
        ),
        (token == other) & (token < length) & (length <= token + 1),
    )


def _read_state_is_required(at: Interpretation) -> Statement:
    boundary, block, block_size = (at.integer(n) for n in ("boundary", "block", "block_size"))
    last_token = (block + 1) * block_size - 1
    length = boundary * block_size
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("positions start at 0", 0 <= last_token),
            (
                "the state is as of the block's last token",
                attention.reads_state(length, last_token),
            ),
        ),
        hits.in_required_run(BlockGeometry(MAMBA, 1, 0, 0), block, boundary),
    )


def _required_state_is_read(at: Interpretation) -> Statement:
    boundary, block, block_size = (at.integer(n) for n in ("boundary", "block", "block_size"))
    group = BlockGeometry(MAMBA, 1, 0, 0)
    required = hits.in_required_run(group, block, boundary)
    last_token = (block + 1) * block_size - 1
    return Statement(
        (
            ("a block holds at least one token", 1 <= block_size),
            ("the block is in the required run", required),
        ),
        (0 <= last_token) & attention.reads_state(boundary * block_size, last_token),
    )


@obligation(
    "hit_has_each_required_block", "When the required run is cached, so is each block in it.", CASES
)
def _hit_has_required_block(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    boundary, block = at.integer("boundary"), at.integer("block")
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")
    required = hits.in_required_run(group, block, boundary)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("the required run is cached", hits.has_required_run(group, boundary, cached)),
            ("the block is in the required run", required),
        ),
        cached(block),
    )


def _replayed(at: Interpretation) -> tuple[Term, Term, Term, Hypotheses]:
    """A token of a hit, and a window outside the prefix cache."""
    hit, window, token = at.integer("hit"), at.integer("window"), at.integer("token")
    hypotheses = (
        ("a window holds at least the token itself", 1 <= window),
        ("the token is of the hit", (0 <= token) & (token < hit)),
    )
    return hit, window, token, hypotheses


@obligation(
    "what_an_uncached_window_reads_is_replayed",
    "A token of a hit that some later query reads through a window outside the prefix cache is "
    "computed again.",
)
def _read_is_replayed(at: Interpretation) -> Statement:
    hit, window, token, hypotheses = _replayed(at)
    query = at.integer("query")
    return Statement(
        (
            *hypotheses,
            ("the query comes after the hit", hit <= query),
            ("it reads the token", attention.attends(query, token, window, None)),
        ),
        attention.replay_start(hit, window) <= token,
    )


@obligation(
    "what_is_replayed_is_read",
    "Each token of a hit that is computed again is read by the token after the hit.",
)
def _replayed_is_read(at: Interpretation) -> Statement:
    hit, window, token, hypotheses = _replayed(at)
    start = attention.replay_start(hit, window)
    return Statement(
        (*hypotheses, ("it is computed again", start <= token)),
        attention.attends(hit, token, window, None),
    )


@obligation(
    "a_hit_within_the_window_is_replayed_whole",
    "Of a hit that the token after it reads all of, all is computed again.",
)
def _replay_of_whole_hits(at: Interpretation) -> Statement:
    hit, window = at.integer("hit"), at.integer("window")
    return Statement(
        (
            ("a window holds at least the token itself", 1 <= window),
            ("the hit is no longer than what the next token reads", hit <= window - 1),
        ),
        attention.replay_start(hit, window) == 0,
    )


def _hit_has_every_block_attention_reads() -> Iterable[Obligation]:
    yield from _read_is_replayed
    yield from _replayed_is_read
    yield from _replay_of_whole_hits
    yield Obligation(
        case_name("read_state_is_required", MAMBA),
        "The block that keeps the state to resume from is in the required run.",
        _read_state_is_required,
    )
    yield Obligation(
        case_name("required_state_is_read", MAMBA),
        "Resuming reads the state in each block of the required run.",
        _required_state_is_read,
    )
    yield Obligation(
        case_name("one_state_is_read", MAMBA),
        "Resuming reads the state as of one token, the last one of the hit.",
        _one_state,
    )
    yield from _never_ahead
    yield from _reads_itself
    yield from _read_is_required
    yield from _required_is_read
    yield from _first_query_suffices
    yield from _hit_has_required_block


OBLIGATIONS = {"hit_has_every_block_attention_reads": tuple(_hit_has_every_block_attention_reads())}
"""The obligations of each claim on what is read, by its name."""
