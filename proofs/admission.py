"""The theorem on admission: what each step takes is bounded, and what was promised is there.

Positions, steps, windows and chunks are in tokens. ``end`` is the position after the last token of
a step.
"""

from collections.abc import Iterable
from functools import partial

from hitproof.proofs.cases import CHUNKED, FULL, SLIDING, case_name, holds_token, obligation
from hitproof.proofs.interpretation import Interpretation, Products
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement, taken
from hitproof.spec import admission, attention
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import Formula, Term, ceil_div, implies, max, not_

_KINDS = (FULL, SLIDING, CHUNKED)


def _range(at: Interpretation, kind: GroupKind) -> tuple[Term | None, Term | None, Hypotheses]:
    """Any window or chunk of the kind."""
    if kind is SLIDING:
        window = at.integer("window")
        return window, None, (("a token sees itself", 1 <= window),)
    if kind is CHUNKED:
        chunk = at.integer("chunk")
        return None, chunk, (("a chunk holds at least one token", 1 <= chunk),)
    return None, None, ()


def _block_size(at: Interpretation) -> tuple[Term, Hypotheses]:
    size = at.integer("block_size")
    return size, (("a block holds at least one token", 1 <= size),)


def _is_read(at: Interpretation, kind: GroupKind) -> Statement:
    """The tokens that are read are those from the first one on."""
    query, token = at.integer("query"), at.integer("token")
    window, chunk, sizes = _range(at, kind)
    first = admission.first_token_read(query, window, chunk)
    reads = attention.attends(query, token, window, chunk)
    from_there = (first <= token) & (token <= query)
    both = implies(reads, from_there) & implies(from_there, reads)
    return Statement(
        (*sizes, ("positions are counted from 0", (0 <= token) & (0 <= query))), both & (0 <= first)
    )


@obligation(
    "reserved_blocks_are_left",
    "When the blocks that a request needs are taken, those that are reserved are left.",
)
def _leaves_reserved(at: Interpretation) -> Statement:
    needed, free, reserved = (at.integer(name) for name in ("needed", "free", "reserved"))
    return Statement(
        (("the blocks can be taken", admission.fits(needed, free, reserved)),),
        reserved <= free - needed,
    )


def _never_again(at: Interpretation, kind: GroupKind) -> Statement:
    query, other = at.integer("query"), at.integer("other")
    window, chunk, sizes = _range(at, kind)
    first = partial(admission.first_token_read, window=window, chunk=chunk)
    return Statement(
        (
            *sizes,
            ("positions are counted from 0", (0 <= query) & (0 <= other)),
            ("the other query is later", query <= other),
        ),
        first(query) <= first(other),
    )


@obligation(
    "blocks_hold_the_tokens", "Each of the tokens is in one of the blocks that are counted."
)
def _holds(at: Interpretation) -> Statement:
    """A token between them is in one of that many blocks, counted from the first."""
    first, end, token, block = (at.integer(name) for name in ("first", "end", "token", "block"))
    size, some = _block_size(at)
    from_block = first // size
    count = admission.blocks_between(first, end, size)
    return Statement(
        (
            *some,
            ("the token is one of them", (first <= token) & (token < end)),
            ("the block holds the token", holds_token(block, token, size)),
        ),
        (from_block <= block) & (block < from_block + count),
    )


def _spans(at: Interpretation, kind: GroupKind, fewer: int = 0) -> Statement:
    """A step reads and writes no more tokens than the bound, or than ``fewer``."""
    start, end, step = at.integer("start"), at.integer("end"), at.integer("step")
    window, chunk, sizes = _range(at, kind)
    first = admission.first_token_read(start, window, chunk)
    most = admission.tokens_at_once(step, window, chunk) - fewer
    return Statement(
        (
            *sizes,
            ("positions are counted from 0", 0 <= start),
            ("a step computes at most step tokens", (start < end) & (end <= start + step)),
        ),
        end - first <= most,
    )


def _on_edge(at: Interpretation, whole: bool = True) -> Statement:
    """A chunk of whole blocks starts on a block edge."""
    blocks, number = at.integer("blocks"), at.integer("number")
    size, some = _block_size(at)
    chunk = blocks * size if whole else at.integer("chunk")
    return Statement(
        (
            *some,
            ("a chunk holds at least one block", 1 <= blocks),
            ("and so at least one token", 1 <= chunk),
        ),
        number * chunk == (number * blocks) * size,
    )


_ON_EDGE = Obligation(
    "chunks_of_whole_blocks_start_on_edges",
    "A chunk of whole blocks starts on a block edge.",
    _on_edge,
    (Mutant("any", "So does any other chunk.", partial(_on_edge, whole=False)),),
    Products,
)


def _at_once(at: Interpretation, kind: GroupKind, fewer: int = 0) -> Statement:
    """A step reads and writes no more blocks of a group than the bound.

    Several MTP modules compute tokens again, but in no group with chunks. ``fewer`` is subtracted
    from the bound, for windows of sizes for which a bound on one token more would differ.
    """
    start, end, step, num_tokens, modules = (
        at.integer(name) for name in ("start", "end", "step", "num_tokens", "modules")
    )
    window, chunk, sizes = _range(at, kind)
    size, some = _block_size(at)
    group = Group(kind, size, window, chunk=chunk, prefill_lookahead=modules)
    most = admission.blocks_at_once(group, step, num_tokens)
    first = admission.first_token_read(start, window, chunk)
    again = 0 if kind is CHUNKED else modules - 1
    first_block, last_block = first // size, ceil_div(end, size) - 1
    where: Hypotheses = ()
    if kind is CHUNKED:
        where = (taken(at, _ON_EDGE, blocks=chunk // size, number=start // chunk),)
    if fewer:
        long = step + window + modules <= num_tokens
        where = ("the request is long", long), ("blocks hold two tokens", size == 2)
    return Statement(
        (
            *sizes,
            *some,
            ("there is a module, or none", 1 <= modules),
            ("positions are counted from 0", 0 <= start),
            ("the step ends within the request", (start < end) & (end <= num_tokens)),
            ("it computes at most step tokens, and some again", end <= start + step + again),
            *where,
            # Both follow, and name products that the proof needs.
            ("the first token is before the second block", first < (first_block + 1) * size),
            ("the last block starts before the end", last_block * size < end),
        ),
        admission.blocks_between(first, end, size) <= most - fewer,
    )


@obligation(
    "states_at_once",
    "A step holds no more states than the bound: the one that it starts from, the one that "
    "it ends in, those of drafts and those that it exports.",
)
def _states(at: Interpretation) -> Statement:
    """A Mamba group holds no more states than the bound."""
    names = ("started_from", "ended_in", "of_drafts", "exported", "drafts", "exports")
    started_from, ended_in, of_drafts, exported, drafts, exports = map(at.integer, names)
    group = Group(GroupKind.MAMBA, 1)
    return Statement(
        (
            ("a step starts from at most one state", started_from <= 1),
            ("it ends in at most one", ended_in <= 1),
            ("there is at most one for each draft", of_drafts <= drafts),
            ("and one for each that it exports", exported <= exports),
        ),
        started_from + ended_in + of_drafts + exported
        <= admission.blocks_at_once(group, 1, 1, drafts, exports),
    )


@obligation(
    "promise_is_kept",
    "A request for which the most blocks that a step needs were free gets those of each step, if "
    "no other request takes any and it gives up what is no longer read.",
    nothing_is_given_up=(
        "It gets them though it keeps what is no longer read.",
        {"gives_up": False},
    ),
)
def _promise(at: Interpretation, gives_up: bool = True) -> Statement:
    """A request that was admitted gets the blocks of a step.

    ``gives_up``: it has given up what is no longer read.
    """
    most, room, free, held, table = (
        at.integer(name) for name in ("most", "room", "free", "held", "table")
    )
    first, end = at.integer("first"), at.integer("end")
    size, some = _block_size(at)
    first_block, required = first // size, ceil_div(end, size)
    needed = max(0, required - table)
    kept = table - first_block
    return Statement(
        (
            *some,
            ("it was admitted", admission.fits(most, room)),
            ("its blocks come out of that room", free + held == room),
            ("no count is below 0", (0 <= free) & (0 <= held) & (0 <= first)),
            ("the tokens of the step come after what is read", first < end),
            ("its table goes as far as what the step reads, or further", first_block <= table),
            ("what it holds", held == kept if gives_up else kept <= held),
            (
                "the step needs no more than that",
                admission.blocks_between(first, end, size) <= most,
            ),
        ),
        admission.fits(needed, free),
    )


@obligation(
    "one_answer_is_right",
    "A manager can always answer rightly: where it must not grant, it may refuse, and where it "
    "must not refuse, it may grant.",
)
def _some_answer(at: Interpretation) -> Statement:
    names = ("least", "most", "free", "reserved")
    least, most, free, reserved = map(at.integer, names)
    granted = at.integer("granted") == 1

    def right(granted: Formula) -> Formula:
        return admission.is_answered_right(granted, least, most, free, reserved)

    return Statement(
        (
            ("blocks are reserved, or none", 0 <= reserved),
            ("the least is no more than the most", least <= most),
            ("one answer is wrong", not_(right(granted))),
        ),
        right(not_(granted)),
    )


def _obligations() -> Iterable[Obligation]:
    for kind in _KINDS:
        yield Obligation(
            case_name("first_token_read", kind),
            "A token reads itself and all before it back to the first one that it reads, and "
            "no others.",
            partial(_is_read, kind=kind),
        )
        if kind is FULL:
            continue
        yield Obligation(
            case_name("what_is_given_up_is_not_read", kind),
            "Later tokens read none before the first one that a token reads.",
            partial(_never_again, kind=kind),
        )
        yield Obligation(
            case_name("tokens_at_once", kind),
            "A step reads and writes no more tokens in a row than the bound says.",
            partial(_spans, kind=kind),
            # The bound on chunks is one token more than any step needs.
            (Mutant("fewer", "It needs two fewer.", partial(_spans, kind=kind, fewer=2)),),
        )
    yield from _holds
    yield _ON_EDGE
    for kind in _KINDS:
        fewer = Mutant(
            "one_fewer", "One block fewer is enough.", partial(_at_once, kind=kind, fewer=1)
        )
        yield Obligation(
            case_name("blocks_at_once", kind),
            "A step reads and writes no more blocks than the bound says.",
            partial(_at_once, kind=kind),
            (fewer,) if kind is SLIDING else (),
        )
    yield from _states
    yield from _leaves_reserved
    yield from _promise
    yield from _some_answer


OBLIGATIONS = {"admitted_request_gets_its_blocks": tuple(_obligations())}
"""The obligations of the claim on admission."""
