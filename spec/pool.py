"""The block pool: the invariants of each block, and what each operation does to it.

Blocks do not interact: an operation on a block changes that block and the count of free blocks,
and nothing else. So each clause is about one arbitrary block, and what is proved of it holds for
every pool, however many blocks it has. The null block is the placeholder in block tables where no
block is needed. Here it is a block like the others, distinguished by a flag.

Three things are recorded twice and must agree: the block-table entries and the reference count;
the free queue and the reference count; the keys that a block carries and the entries of the cache
that point to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hitproof.spec.terms import Formula, Term, implies, max, not_


@dataclass(frozen=True)
class BlockState:
    """One block of a pool. Each field is a term. vLLM: ``KVCacheBlock``.

    Attributes:
        null: whether it is the null block.
        ref_count: its reference count (``ref_cnt``).
        holders: the block-table entries that hold it.
        queued: how many times it is in the free queue.
        keys: how many keys (block hash and group) it carries (``block_hash``).
        named: how many entries of the cache point to it (``cached_block_hash_to_block``).
        stale: how many of these keys and entries describe content that the block does not hold.
    """

    null: Formula
    ref_count: Term
    holders: Term
    queued: Term
    keys: Term
    named: Term
    stale: Term


# --- invariants of each block --------------------------------------------------------------


def counts_holders(block: BlockState) -> Formula:
    """Whether the reference count is the number of block-table entries that hold the block.

    The null block is not reference-counted.
    """
    return block.null | ((0 <= block.holders) & (block.ref_count == block.holders))


def is_unused(block: BlockState) -> Formula:
    """Whether the block may be allocated: its reference count is 0, and it is not null."""
    return not_(block.null) & (block.ref_count == 0)


def is_queued_when_unused(block: BlockState) -> Formula:
    """Whether the free queue holds the block exactly once if it is unused, and otherwise never."""
    once = (block.queued == 1) & is_unused(block)
    return once | ((block.queued == 0) & not_(is_unused(block)))


def is_named_for_its_content(block: BlockState) -> Formula:
    """Whether the cache finds the block by the keys that it carries, and these describe it."""
    return (block.named == block.keys) & (block.stale == 0)


def is_kept_apart(block: BlockState) -> Formula:
    """Whether the block, if it is the null block, is neither in the free queue nor cached."""
    nowhere = (block.queued == 0) & (block.keys == 0) & (block.named == 0)
    return implies(block.null, nowhere)


def is_sound(block: BlockState) -> Formula:
    """Whether the block satisfies all of the above."""
    counted = counts_holders(block) & is_queued_when_unused(block)
    return counted & is_named_for_its_content(block) & is_kept_apart(block)


def keeps_its_keys(before: BlockState, after: BlockState) -> Formula:
    """Whether a key that found the block still finds it, with the same content."""
    return (before.named <= after.named) & (after.stale <= before.stale)


# --- what each operation does to a block ---------------------------------------------------


def vacancy(block: BlockState) -> Term:
    """1 when the block's reference count is 0, else 0; the block is not the null block."""
    return max(1 - block.ref_count, 0)


def rewritten(block: BlockState) -> BlockState:
    """The block with new content: entries that still point to it describe the old content."""
    return replace(block, stale=block.named)


def can_be_taken(block: BlockState) -> Formula:
    """Whether the block can be allocated from the free queue."""
    return 1 <= block.queued


def taken(block: BlockState) -> BlockState:
    """The block once it is allocated: its old keys are gone, and its holder writes to it."""
    ref_count, holders, queued = block.ref_count + 1, block.holders + 1, block.queued - 1
    held = replace(block, ref_count=ref_count, holders=holders, queued=queued)
    return rewritten(replace(held, keys=0, named=0))


def is_real(block: BlockState) -> Formula:
    """Whether it is not the null block."""
    return not_(block.null)


def touched(block: BlockState) -> BlockState:
    """The block once one more table holds it; if it was unused, it leaves the free queue."""
    ref_count, holders = block.ref_count + 1, block.holders + 1
    queued = block.queued - vacancy(block)
    return replace(block, ref_count=ref_count, holders=holders, queued=queued)


def can_be_freed(block: BlockState) -> Formula:
    """Whether a table holds the block, and it is not the null block, which is never freed."""
    return not_(block.null) & (1 <= block.holders)


def freed(block: BlockState) -> BlockState:
    """The block once a table gives it back; if now unused, it is queued as free, with its keys."""
    left = replace(block, ref_count=block.ref_count - 1, holders=block.holders - 1)
    return replace(left, queued=block.queued + vacancy(left))


def can_be_registered(block: BlockState) -> Formula:
    """Whether a holder may register the block: it is in use and has no key yet."""
    return not_(block.null) & (1 <= block.ref_count) & (block.keys == 0)


def registered(block: BlockState) -> BlockState:
    """The block once it is cached under a key that describes its content."""
    return replace(block, keys=block.keys + 1, named=block.named + 1)


def can_be_reset(block: BlockState) -> Formula:
    """Whether this block allows a reset of the whole cache: it is not in use."""
    return block.null | (block.ref_count == 0)


def invalidated(block: BlockState) -> BlockState:
    """The block once its content is declared invalid: no key finds it, its holders keep it."""
    return replace(block, keys=0, named=0, stale=0)


# --- how many blocks are free --------------------------------------------------------------


def free_count_decrease(before: BlockState, after: BlockState) -> Term:
    """The decrease in the count of free blocks by an operation on one block; may be negative.

    The count follows the reference count, not the number of calls: a second holder of a block
    does not lower it, and only the last one to leave raises it.
    """
    return vacancy(before) - vacancy(after)


def is_free_queue_length(free_count: Term, queue_length: Term) -> Formula:
    """Whether the count of free blocks is the length of the free queue."""
    return free_count == queue_length


# --- the operations ------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """An operation of the pool on one block.

    Attributes:
        name: the method of vLLM's ``BlockPool``.
        possible: its precondition.
        after: the block afterwards.
    """

    name: str
    possible: Callable[[BlockState], Formula]
    after: Callable[[BlockState], BlockState]


GET = Operation("get_new_blocks", can_be_taken, taken)
TOUCH = Operation("touch", is_real, touched)
FREE = Operation("free_blocks", can_be_freed, freed)
CACHE = Operation("cache_full_blocks", can_be_registered, registered)
EVICT = Operation("evict_blocks", is_real, invalidated)
RESET = Operation("reset_prefix_cache", can_be_reset, invalidated)

OPERATIONS = (GET, TOUCH, FREE, CACHE, EVICT, RESET)
"""The operations of a pool."""
