"""The theorems on the block pool: each operation keeps what must hold of each block.

Statements speak of one arbitrary block, ``seen``; 0 stands for the null block. An operation leaves
all other blocks as they were, so what is kept there is kept in the whole pool, however large. The
length of the free queue is a sum over the blocks, and changes by what its one changed term does.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from hitproof.proofs.cases import obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import pool
from hitproof.spec.pool import (
    CACHE,
    EVICT,
    FREE,
    GET,
    OPERATIONS,
    RESET,
    TOUCH,
    BlockState,
    Operation,
)
from hitproof.spec.terms import Formula, not_

Holds = Callable[[BlockState, BlockState], Formula]
"""What is shown of a block before and after an operation."""


def _any_block(at: Interpretation) -> BlockState:
    fields = ("ref_count", "holders", "queued", "keys", "named", "stale")
    null = at.integer("seen") == 0
    return BlockState(null, **{name: at.integer(name) for name in fields})


def _sound_block(at: Interpretation) -> tuple[BlockState, Hypotheses]:
    block = _any_block(at)
    return block, (("all that must hold of the block holds", pool.is_sound(block)),)


def _holds_after(at: Interpretation, operation: Operation, holds: Holds) -> Statement:
    block, sound = _sound_block(at)
    possible = ("the operation is possible", operation.possible(block))
    return Statement((*sound, possible), holds(block, operation.after(block)))


def _count_is_kept(at: Interpretation, operation: Operation) -> Statement:
    block, sound = _sound_block(at)
    free_count, length = at.integer("free_count"), at.integer("length")
    after = operation.after(block)
    return Statement(
        (
            *sound,
            ("the operation is possible", operation.possible(block)),
            ("the count is right before", pool.is_free_queue_length(free_count, length)),
            ("the queue is as long as what it holds of the block", block.queued <= length),
        ),
        pool.is_free_queue_length(
            free_count - pool.free_count_decrease(block, after),
            length + after.queued - block.queued,
        ),
    )


@obligation(
    "null_block_is_not_found", "What a key finds is not the null block, nor is what carries a key."
)
def _found_is_real(at: Interpretation) -> Statement:
    block = _any_block(at)
    return Statement(
        (
            ("what must hold of the block holds", pool.is_kept_apart(block)),
            ("a key finds the block, or it carries one", (1 <= block.named) | (1 <= block.keys)),
        ),
        not_(block.null),
    )


# --- what the invariants and the preconditions say of a block -------------------------------


@obligation(
    "sound_blocks_are_of_two_kinds",
    "All that must hold of a block holds if and only if it is the null block, not queued and not "
    "cached, or another one that is counted, queued when no table holds it and not otherwise, and"
    " named by its keys, which describe it.",
    leaked=("Or one that no table holds and that is not queued.", {"leaks": True}),
)
def _sound_by_cases(at: Interpretation, leaks: bool = False) -> Statement:
    """``leaks``: an unused block need not be queued."""
    block = _any_block(at)
    nowhere = (block.queued == 0) & (block.keys == 0) & (block.named == 0)
    unused = (block.holders == 0) & (block.queued == 1)
    if leaks:
        unused = unused | ((block.holders == 0) & (block.queued == 0))
    queued = unused | ((1 <= block.holders) & (block.queued == 0))
    other = not_(block.null) & (block.ref_count == block.holders) & queued
    cases = (block.null & nowhere) | (other & (block.named == block.keys))
    return Statement((), pool.is_sound(block) == (cases & (block.stale == 0)))


@obligation(
    "reset_waits_for_holders",
    "A block allows a reset if and only if it is unused or the null block.",
    held=("Or when a table holds it.", {"held": True}),
)
def _resets(at: Interpretation, held: bool = False) -> Statement:
    block, sound = _sound_block(at)
    free = block.null | pool.is_unused(block)
    if held:
        free = free | (1 <= block.holders)
    return Statement(sound, pool.can_be_reset(block) == free)


def _comes_next(at: Interpretation, first: Operation, then: Operation) -> Statement:
    """What one operation leaves, another one may be asked for."""
    block, sound = _sound_block(at)
    possible = ("the first is possible", first.possible(block))
    return Statement((*sound, possible), then.possible(first.after(block)))


@obligation(
    "block_is_registered_once",
    "No block is registered that is unused, nor twice.",
    at_all=("No block is registered.", {"ever": False}),
)
def _registers_once(at: Interpretation, ever: bool = True) -> Statement:
    """Neither an unused block is registered, nor one that has a key; if not ``ever``, none is."""
    block, sound = _sound_block(at)
    possible = pool.can_be_registered(block)
    again = pool.can_be_registered(pool.registered(block) if ever else block)
    return Statement(sound, not_(possible & (again | pool.is_unused(block))))


@obligation("unused_block_can_be_taken", "A block that is unused can be handed out.")
def _unused_can_be_taken(at: Interpretation) -> Statement:
    block, sound = _sound_block(at)
    unused = ("the block is unused", pool.is_unused(block))
    return Statement((*sound, unused), pool.can_be_taken(block))


@obligation(
    "empty_queue_counts_nothing", "When the free queue is empty, no block is counted as free."
)
def _empty_counts_nothing(at: Interpretation) -> Statement:
    count = at.integer("free_count")
    hypothesis = ("the count of free blocks is right", pool.is_free_queue_length(count, 0))
    return Statement((hypothesis,), count == 0)


@obligation(
    "kept_key_finds_the_content",
    "Where keys are kept, what a key found it finds, and no entry describes old content.",
)
def _goes_on_finding(at: Interpretation) -> Statement:
    before = _any_block(at)
    after = replace(before, named=at.integer("named_then"), stale=at.integer("stale_then"))
    return Statement(
        (
            ("a key finds the block", 1 <= before.named),
            ("it describes the content", before.stale == 0),
            ("keys are kept", pool.keeps_its_keys(before, after)),
        ),
        (1 <= after.named) & (after.stale <= 0),
    )


# --- what broken operations do, where no slip shows that a proof is not vacuous --------------


def _with_its_old_keys(block: BlockState) -> BlockState:
    return pool.rewritten(replace(pool.taken(block), keys=block.keys, named=block.named))


def _still_in_cache(block: BlockState) -> BlockState:
    return replace(pool.invalidated(block), named=block.named)


_NULL_AS_ANY = ("it treats the null block as any other", replace(GET, possible=pool.is_sound))
_MISNAMES = (
    ("the block goes by its old keys", replace(GET, after=_with_its_old_keys)),
    ("the cache goes on naming the block", replace(EVICT, after=_still_in_cache)),
    ("the cache goes on naming the block", replace(RESET, after=_still_in_cache)),
)
_LOSES_KEYS = tuple(
    ("it evicts the block", replace(operation, after=pool.invalidated))
    for operation in (TOUCH, FREE)
)


def _each(
    name: str,
    sentence: str,
    holds: Holds,
    operations: tuple[Operation, ...] = OPERATIONS,
    faults: Iterable[tuple[str, Operation]] = (),
) -> Iterable[Obligation]:
    """One obligation for each operation."""
    for operation in operations:
        yield Obligation(
            f"{name}[{operation.name}]",
            sentence.format(operation.name),
            partial(_holds_after, operation=operation, holds=holds),
            tuple(
                Mutant(
                    "broken",
                    f"So it is when {fault}.",
                    partial(_holds_after, operation=broken, holds=holds),
                )
                for fault, broken in faults
                if broken.name == operation.name
            ),
        )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "block_in_use_is_never_evicted": (
        *_each(
            "reference_count_is_kept",
            "After {}, the reference count is the number of block-table entries that hold the "
            "block.",
            lambda _, after: pool.counts_holders(after),
        ),
        *_each(
            "nobody_holds_it",
            "No table holds a block on {}.",
            lambda before, _: before.null | (before.holders == 0),
            (GET, RESET),
        ),
        *_sound_by_cases,
        *_resets,
        Obligation(
            "free_blocks_after_get_new_blocks",
            "What has just been handed out can be given back.",
            partial(_comes_next, first=GET, then=FREE),
        ),
    ),
    "free_count_is_free_queue_length": (
        *_each(
            "free_queue_is_kept",
            "After {}, the free queue holds the block once if it is unused, and else not at all.",
            lambda _, after: pool.is_queued_when_unused(after),
        ),
        *(
            Obligation(
                f"free_count_is_kept[{operation.name}]",
                f"After {operation.name}, the count of free blocks is the length of the free "
                "queue.",
                partial(_count_is_kept, operation=operation),
            )
            for operation in OPERATIONS
        ),
        *_unused_can_be_taken,
        *_empty_counts_nothing,
    ),
    "null_block_is_never_served": (
        *_each(
            "null_block_is_kept_apart",
            "After {}, the null block is neither in the free queue nor cached.",
            lambda _, after: pool.is_kept_apart(after),
            faults=(_NULL_AS_ANY,),
        ),
        *_each(
            "null_block_is_not_handed_out",
            "What {} hands out is not the null block.",
            lambda before, _: not_(before.null),
            (GET,),
        ),
        *_found_is_real,
    ),
    "cached_key_names_its_content": (
        *_each(
            "names_are_kept",
            "After {}, the cache names the block by the keys it carries, and these describe it.",
            lambda _, after: pool.is_named_for_its_content(after),
            faults=_MISNAMES,
        ),
        *_each(
            "keys_are_kept",
            "After {}, a key that found the block finds it, with the same content.",
            lambda before, after: pool.keeps_its_keys(before, after),
            (TOUCH, FREE),  # before it is registered a block has no key to lose
            _LOSES_KEYS,
        ),
        *_goes_on_finding,
        *_registers_once,
        Obligation(
            "cache_full_blocks_after_get_new_blocks",
            "What has just been handed out can be registered.",
            partial(_comes_next, first=GET, then=CACHE),
        ),
    ),
}
"""The obligations of each claim on the block pool, by its name."""
