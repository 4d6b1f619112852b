"""Admission: how many blocks a request takes, and when a manager must give them, or refuse.

A step computes the tokens from ``start`` up to ``end``. It reads what the first of them attends to,
and what comes after, and it writes its own tokens. The blocks that hold all these tokens are what
the request needs at this step; later steps read nothing before them, so earlier blocks can be
freed. Where attention has a limited range, the number of blocks held at once therefore has a bound
that does not depend on the length. A request that is admitted because this many blocks are free
gets the blocks of each of its steps, as long as no other request takes any.

Positions are in tokens, from 0; ``end`` is the position after the last token, slots for drafts
included.
"""

from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import (
    Blocks,
    Formula,
    Term,
    Tokens,
    ceil_div,
    choose,
    implies,
    is_multiple,
    max,
    min,
    not_,
    tested,
)


def first_token_read(query: Tokens, window: Tokens | None, chunk: Tokens | None = None) -> Tokens:
    """The first token to which the token at position ``query`` attends."""
    if chunk is not None:
        return query // chunk * chunk
    return 0 if window is None else max(0, query - window + 1)


def blocks_between(first: Tokens, end: Tokens, block_size: Tokens) -> Blocks:
    """How many blocks hold the tokens from ``first`` up to ``end``."""
    return ceil_div(end, block_size) - first // block_size


def tokens_at_once(step: Tokens, window: Tokens, chunk: Tokens | None = None) -> Tokens:
    """The most tokens that a step of up to ``step`` tokens reads and writes.

    With a limited range of attention only: a ``chunk``, or else a ``window``.
    """
    return step + window - 1 if chunk is None else step + chunk


def most_between(tokens: Tokens, block_size: Tokens) -> Blocks:
    """Maximum number of blocks spanned by up to ``tokens`` consecutive tokens at any offset."""
    return ceil_div(tokens, block_size) + 1


def fits(needed: Blocks, free: Blocks, reserved: Blocks = 0) -> Formula:
    """Whether ``needed`` blocks can be taken, if ``reserved`` ones are left to others."""
    return needed + reserved <= free


def is_answered_right(
    granted: Formula, least: Blocks, most: Blocks, free: Blocks, reserved: Blocks = 0
) -> Formula:
    """Whether a manager may grant an allocation, or refuse it, with ``free`` blocks free.

    No manager can do with fewer than ``least`` blocks, and none needs more than ``most``.
    """
    refused = not_(granted)
    enough = implies(granted, fits(least, free))
    return enough & implies(refused, not_(fits(most, free, reserved)))


def states_at_once(drafts: Term, exports: Term = 0) -> Term:
    """The most states that a Mamba group holds for a request at once, each in a block.

    These are the states that a step starts from and ends in, one for each draft, and those that it
    exports from inside its chunk.
    """
    return 2 + drafts + exports


@tested
def blocks_at_once(
    group: Group, step: Tokens, num_tokens: Tokens, drafts: Term = 0, exports: Term = 0
) -> Blocks:
    """The most blocks that a request of ``num_tokens`` tokens holds at once in a group.

    Each step computes up to ``step`` tokens; several steps in flight count as one. Draft layers of
    several MTP modules compute the last tokens again.
    """
    if group.kind is GroupKind.MAMBA:
        return states_at_once(drafts, exports)
    if group.kind is GroupKind.FULL_ATTENTION:
        return blocks_between(0, num_tokens, group.block_size)
    again = group.prefill_lookahead - 1 if group.chunk is None else 0
    tokens = min(tokens_at_once(step + again, group.window, group.chunk), num_tokens)
    anywhere = most_between(tokens, group.block_size)
    if group.chunk is None:
        return anywhere
    return choose(
        is_multiple(group.chunk, group.block_size),
        lambda: blocks_between(0, tokens, group.block_size),
        lambda: anywhere,
    )
