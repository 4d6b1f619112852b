"""The groups that theorems are about: any group of each kind, seen in blocks."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hitproof.proofs.interpretation import Abstract, Interpretation, Z3Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.terms import Formula, Term

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA
KINDS = (FULL, SLIDING, CHUNKED, MAMBA)
"""The kinds of group that the theorems are about."""


def lookaheads(kind: GroupKind) -> tuple[int, ...]:
    """Whether groups of the kind look ahead, with EAGLE off and on; then by one block or more."""
    window = 1 if kind is SLIDING else None
    chunk = 1 if kind is CHUNKED else None
    groups = (Group(kind, 1, window, eagle, chunk) for eagle in (False, True))
    return tuple(dict.fromkeys(geometry(group, 1).lookahead for group in groups))


CASES = tuple((kind, lookahead) for kind in KINDS for lookahead in lookaheads(kind))
"""Each kind with each lookahead that it can have."""


def case_name(name: str, kind: GroupKind, lookahead: int | None = None) -> str:
    """The name of an obligation that exists for several kinds of group."""
    if lookahead is None:
        return f"{name}[{kind}]"
    return f"{name}[{kind}, {'with' if lookahead else 'without'} lookahead]"


def chunks(at: Interpretation) -> tuple[Term, Term, Hypotheses]:
    """Any block size and any chunk; neither need divide the other."""
    block_size, chunk = at.integer("block_size"), at.integer("chunk")
    some_block = ("a block holds at least one token", 1 <= block_size)
    some_chunk = ("a chunk holds at least one token", 1 <= chunk)
    return block_size, chunk, (some_block, some_chunk)


def any_group(
    at: Interpretation, kind: GroupKind, lookahead: Term
) -> tuple[BlockGeometry, Hypotheses]:
    """Any group of that kind, seen in blocks.

    With a lookahead it is of any number of blocks, as the draft layers need them.
    """
    if isinstance(lookahead, int) and lookahead == 1:
        ahead = at.integer("lookahead")
        group, sizes = _any_group(at, kind, ahead)
        return group, (*sizes, ("draft layers look ahead by one block at least", 1 <= ahead))
    return _any_group(at, kind, lookahead)


def _any_group(
    at: Interpretation, kind: GroupKind, lookahead: Term
) -> tuple[BlockGeometry, Hypotheses]:
    segment = at.integer("segment")
    some_segment = ("a segment is at least one block", 1 <= segment)
    if kind in (FULL, MAMBA):
        return BlockGeometry(kind, segment, 0, lookahead), (some_segment,)
    if kind is CHUNKED:
        block_size, chunk, some_tokens = chunks(at)
        group = BlockGeometry(kind, segment, 0, lookahead, block_size, chunk)
        return group, (some_segment, *some_tokens)
    tail = at.integer("tail")
    some_tail = ("a tail is not negative", 0 <= tail)
    return BlockGeometry(kind, segment, tail, lookahead), (some_segment, some_tail)


def holds_token(block: Term, token: Term, block_size: Term) -> Formula:
    """Whether the block holds the token."""
    return (block * block_size <= token) & (token < (block + 1) * block_size)


def obligation(
    name: str,
    sentence: str,
    cases: Iterable[tuple[Any, ...]] = ((),),
    interpretation: Callable[[], Z3Interpretation] = Abstract,
    **mutants: tuple[str, dict[str, Any]],
) -> Callable[[Callable[..., Statement]], tuple[Obligation, ...]]:
    """Make a statement an obligation, or one for each of some kinds, or kinds with lookaheads.

    A mutant has its sentence, and the arguments that break the statement.
    """

    def made(state: Callable[..., Statement]) -> tuple[Obligation, ...]:
        found = []
        for case in cases:
            of = partial(state, **dict(zip(("kind", "lookahead"), case, strict=False)))
            broken = (Mutant(each, s, partial(of, **how)) for each, (s, how) in mutants.items())
            full = case_name(name, *case) if case else name
            found.append(Obligation(full, sentence, of, tuple(broken), interpretation))
        return tuple(found)

    return made
