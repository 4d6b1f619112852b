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
)
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
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


def _first_query_suffices(at: Interpretation, kind: GroupKind, later: int = 0) -> Statement:
    """``later``: so many tokens after the first query is the one that reads the token."""
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


def _never_ahead(at: Interpretation, kind: GroupKind) -> Statement:
    query, token = at.integer("query"), at.integer("token")
    *_, attends, sizes = _attending_group(at, kind)
    return Statement((*sizes, ("the query reads the token", attends(query, token))), token <= query)


def _reads_itself(at: Interpretation, kind: GroupKind, ahead: int = 0) -> Statement:
    """``ahead``: it reads the token so many after its own."""
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


def _replayed_is_read(at: Interpretation) -> Statement:
    hit, window, token, hypotheses = _replayed(at)
    start = attention.replay_start(hit, window)
    return Statement(
        (*hypotheses, ("it is computed again", start <= token)),
        attention.attends(hit, token, window, None),
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
    yield Obligation(
        "what_an_uncached_window_reads_is_replayed",
        "A token of a hit that some later query reads through a window outside the prefix cache is "
        "computed again.",
        _read_is_replayed,
    )
    yield Obligation(
        "what_is_replayed_is_read",
        "Each token of a hit that is computed again is read by the token after the hit.",
        _replayed_is_read,
    )
    yield Obligation(
        "a_hit_within_the_window_is_replayed_whole",
        "Of a hit that the token after it reads all of, all is computed again.",
        _replay_of_whole_hits,
    )
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
    for kind in (FULL, SLIDING, CHUNKED):
        yield Obligation(
            case_name("no_query_reads_ahead", kind),
            "A query reads no token after itself.",
            partial(_never_ahead, kind=kind),
        )
        next_token = partial(_reads_itself, kind=kind, ahead=1)
        yield Obligation(
            case_name("every_query_reads_itself", kind),
            "A query reads its own token.",
            partial(_reads_itself, kind=kind),
            (Mutant("next_token", "So it does the next.", next_token),),
        )
        yield Obligation(
            case_name("every_read_block_is_required", kind),
            "A block that holds a token of the hit that some later query reads is in the "
            "required run.",
            partial(_read_is_required, kind=kind),
        )
        yield Obligation(
            case_name("every_required_block_is_read", kind),
            "The first query after the hit reads the last token of each block in the required run.",
            partial(_required_is_read, kind=kind),
        )
        within_the_hit = Mutant(
            "query_within_the_hit",
            "So it is by the query two tokens before that.",
            partial(_first_query_suffices, kind=kind, later=-2),
        )
        yield Obligation(
            case_name("first_query_reads_the_most", kind),
            "A token of the hit that some later query reads is read by the first one.",
            partial(_first_query_suffices, kind=kind),
            (within_the_hit,),
        )
    for kind, lookahead in CASES:
        yield Obligation(
            case_name("hit_has_each_required_block", kind, lookahead),
            "When the required run is cached, so is each block in it.",
            partial(_hit_has_required_block, kind=kind, lookahead=lookahead),
        )


OBLIGATIONS = {
    "hit_has_every_block_attention_reads": tuple(_hit_has_every_block_attention_reads()),
}
"""The obligations of each claim on what is read, by its name."""
