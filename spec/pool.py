"""The block pool: what must hold of each block, and what each operation does to it.

Blocks do not interact: an operation on one of them changes that one and the count of free blocks,
and nothing else. So a clause speaks of one arbitrary block, and what is proved of it holds of
every pool, however many blocks it has. The null block, which stands in block tables where nothing
is needed, is a block like the others here, kept apart by its flag.

Three things are counted in two places each, and must agree: block-table entries and the reference
count; the free queue and the reference count; the keys that a block carries and the entries of the
cache that name it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hitproof.spec.terms import INTEGERS, Arithmetic, Formula, Term


@dataclass(frozen=True)
class BlockState:
    """One block of a pool. Each field is a term. vLLM: ``KVCacheBlock``.

    Attributes:
        null: whether it is the null block.
        ref_count: its reference count (``ref_cnt``).
        holders: the block-table entries that hold it.
        queued: how many times it is in the free queue.
        keys: how many keys (block hash and group) it carries (``block_hash``).
        named: how many entries of the cache name it (``cached_block_hash_to_block``).
        stale: how many of these keys and entries describe other content than the block holds.
    """

    null: Formula
    ref_count: Term
    holders: Term
    queued: Term
    keys: Term
    named: Term
    stale: Term


# --- what must hold of each block ----------------------------------------------------------


def counts_holders(block: BlockState) -> Formula:
    """Whether the reference count is the number of block-table entries that hold the block.

    Nobody counts for the null block.
    """
    return block.null | ((0 <= block.holders) & (block.ref_count == block.holders))


def is_unused(block: BlockState, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether the block may be handed out: nobody refers to it, and it is not the null block."""
    return arithmetic.negation(block.null) & (block.ref_count == 0)


def is_queued_when_unused(block: BlockState, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether the free queue holds the block once when it is unused, and else not at all."""
    once = (block.queued == 1) & is_unused(block, arithmetic)
    return once | ((block.queued == 0) & arithmetic.negation(is_unused(block, arithmetic)))


def is_named_for_its_content(block: BlockState) -> Formula:
    """Whether the cache names the block by the keys that it carries, and these describe it."""
    return (block.named == block.keys) & (block.stale == 0)


def is_kept_apart(block: BlockState, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether the block, if it is the null block, is neither in the free queue nor cached."""
    nowhere = (block.queued == 0) & (block.keys == 0) & (block.named == 0)
    return arithmetic.implies(block.null, nowhere)


def is_sound(block: BlockState, arithmetic: Arithmetic = INTEGERS) -> Formula:
    """Whether all of the above hold of the block."""
    counted = counts_holders(block) & is_queued_when_unused(block, arithmetic)
    return counted & is_named_for_its_content(block) & is_kept_apart(block, arithmetic)


def keeps_its_keys(before: BlockState, after: BlockState) -> Formula:
    """Whether a key that found the block still does, and finds the same content."""
    return (before.named <= after.named) & (after.stale <= before.stale)


# --- what each operation does to a block ---------------------------------------------------


def vacancy(block: BlockState, arithmetic: Arithmetic = INTEGERS) -> Term:
    """1 when nobody refers to the block, which is not the null block, and 0 otherwise."""
    return arithmetic.maximum(1 - block.ref_count, 0)


def rewritten(block: BlockState) -> BlockState:
    """The block once it holds new content: what still names it describes the old one."""
    return replace(block, stale=block.named)


def can_be_taken(block: BlockState, arithmetic: Arithmetic) -> Formula:
    """Whether the free queue has the block to hand out."""
    del arithmetic
    return 1 <= block.queued


def taken(block: BlockState, arithmetic: Arithmetic) -> BlockState:
    """The block once it is handed out: its old keys are gone, and its holder writes to it."""
    del arithmetic
    ref_count, holders, queued = block.ref_count + 1, block.holders + 1, block.queued - 1
    held = replace(block, ref_count=ref_count, holders=holders, queued=queued)
    return rewritten(replace(held, keys=0, named=0))


def is_real(block: BlockState, arithmetic: Arithmetic) -> Formula:
    """Whether it is any block but the null block, held or not."""
    return arithmetic.negation(block.null)


def touched(block: BlockState, arithmetic: Arithmetic) -> BlockState:
    """The block once one more table holds it; if it was unused it leaves the free queue."""
    ref_count, holders = block.ref_count + 1, block.holders + 1
    queued = block.queued - vacancy(block, arithmetic)
    return replace(block, ref_count=ref_count, holders=holders, queued=queued)


def can_be_freed(block: BlockState, arithmetic: Arithmetic) -> Formula:
    """Whether a table holds the block, and it is not the null block, which stays as it is."""
    return arithmetic.negation(block.null) & (1 <= block.holders)


def freed(block: BlockState, arithmetic: Arithmetic) -> BlockState:
    """The block once a table gives it back: unused, it joins the free queue, keys and all."""
    left = replace(block, ref_count=block.ref_count - 1, holders=block.holders - 1)
    return replace(left, queued=block.queued + vacancy(left, arithmetic))


def can_be_registered(block: BlockState, arithmetic: Arithmetic) -> Formula:
    """Whether its holder may register the block, full and under no key yet."""
    return arithmetic.negation(block.null) & (1 <= block.ref_count) & (block.keys == 0)


def registered(block: BlockState, arithmetic: Arithmetic) -> BlockState:
    """The block once it is cached under a key that describes its content."""
    del arithmetic
    return replace(block, keys=block.keys + 1, named=block.named + 1)


def can_be_reset(block: BlockState, arithmetic: Arithmetic) -> Formula:
    """Whether the whole cache may be reset, as far as this block is concerned: it is not held."""
    del arithmetic
    return block.null | (block.ref_count == 0)


def invalidated(block: BlockState, arithmetic: Arithmetic) -> BlockState:
    """The block once its content is declared invalid: no key finds it, holders go on holding it."""
    del arithmetic
    return replace(block, keys=0, named=0, stale=0)


# --- how many blocks are free --------------------------------------------------------------


def taken_off(before: BlockState, after: BlockState, arithmetic: Arithmetic) -> Term:
    """By how much an operation on one block lowers the count of free blocks; below 0, raises it.

    The count follows the reference count, not the calls: a second holder of a block takes
    nothing off, and only the last one gives it back.
    """
    return vacancy(before, arithmetic) - vacancy(after, arithmetic)


def is_free_queue_length(free_count: Term, queue_length: Term) -> Formula:
    """Whether the count of free blocks is the length of the free queue."""
    return free_count == queue_length


# --- the operations ------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """An operation of the pool on one block.

    Attributes:
        name: of the method of vLLM's ``BlockPool``.
        possible: whether a caller may ask for it.
        after: the block afterwards.
    """

    name: str
    possible: Callable[[BlockState, Arithmetic], Formula]
    after: Callable[[BlockState, Arithmetic], BlockState]


GET = Operation("get_new_blocks", can_be_taken, taken)
TOUCH = Operation("touch", is_real, touched)
FREE = Operation("free_blocks", can_be_freed, freed)
CACHE = Operation("cache_full_blocks", can_be_registered, registered)
EVICT = Operation("evict_blocks", is_real, invalidated)
RESET = Operation("reset_prefix_cache", can_be_reset, invalidated)

OPERATIONS = (GET, TOUCH, FREE, CACHE, EVICT, RESET)
"""The operations of a pool."""
