"""The theorems on the block pool: each operation keeps what must hold of each block.

Statements speak of one arbitrary block, ``seen``; 0 stands for the null block. An operation leaves
all other blocks as they were, so what is kept there is kept in the whole pool, however large. The
length of the free queue is a sum over the blocks, and changes by what its one changed term does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

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

After = Callable[[BlockState, Operation], BlockState]
Holds = Callable[[BlockState, BlockState], Formula]


def _right(block: BlockState, operation: Operation) -> BlockState:
    return operation.after(block)


def _any_block(at: Interpretation) -> BlockState:
    fields = ("ref_count", "holders", "queued", "keys", "named", "stale")
    null = at.integer("seen") == 0
    return BlockState(null, **{name: at.integer(name) for name in fields})


def _possible(operation: Operation, block: BlockState, anyhow: bool) -> Hypotheses:
    """A sound block that the operation may be asked for; with ``anyhow``, or may not."""
    sound = ("all that must hold of the block holds before", pool.is_sound(block))
    if anyhow:
        return (sound,)
    return (sound, ("the operation is possible", operation.possible(block)))


def _holds_after(
    at: Interpretation,
    operation: Operation,
    holds: Holds,
    after: After = _right,
    anyhow: bool = False,
) -> Statement:
    block = _any_block(at)
    changed = after(block, operation)
    return Statement(_possible(operation, block, anyhow), holds(block, changed))


def _count_is_kept(
    at: Interpretation, operation: Operation, before: After | None = None, after: After = _right
) -> Statement:
    """``before`` and ``after``: the block as the free count sees it."""
    block, free_count, length = _any_block(at), at.integer("free_count"), at.integer("length")
    counted = block if before is None else before(block, operation)
    decrease = pool.free_count_decrease(counted, after(block, operation))
    length_then = length + operation.after(block).queued - block.queued
    return Statement(
        (
            *_possible(operation, block, anyhow=False),
            ("the count is right before", pool.is_free_queue_length(free_count, length)),
            ("the queue is as long as what it holds of the block", block.queued <= length),
        ),
        pool.is_free_queue_length(free_count - decrease, length_then),
    )


def _found_is_real(at: Interpretation, apart: bool) -> Statement:
    block = _any_block(at)
    holds = pool.is_kept_apart(block) if apart else pool.is_named_for_its_content(block)
    return Statement(
        (
            ("what must hold of the block holds", holds),
            ("a key finds the block, or it carries one", (1 <= block.named) | (1 <= block.keys)),
        ),
        not_(block.null),
    )


# --- what the invariants and the preconditions say of a block -------------------------------


def _sound_by_cases(at: Interpretation, leaks: bool = False, stale: bool = True) -> Statement:
    """``leaks``: an unused block need not be queued. ``stale``: no entry describes old content."""
    block = _any_block(at)
    nowhere = (block.queued == 0) & (block.keys == 0) & (block.named == 0)
    unused = (block.holders == 0) & (block.queued == 1)
    if leaks:
        unused = unused | ((block.holders == 0) & (block.queued == 0))
    queued = unused | ((1 <= block.holders) & (block.queued == 0))
    other = not_(block.null) & (block.ref_count == block.holders) & queued
    cases = (block.null & nowhere) | (other & (block.named == block.keys))
    if stale:
        cases = cases & (block.stale == 0)
    return Statement((), pool.is_sound(block) == cases)


def _resets(at: Interpretation, held: bool = False) -> Statement:
    block = _any_block(at)
    free = block.null | pool.is_unused(block)
    if held:
        free = free | (1 <= block.holders)
    sound = ("all that must hold of the block holds", pool.is_sound(block))
    return Statement((sound,), pool.can_be_reset(block) == free)


def _comes_next(at: Interpretation, first: Operation, then: Operation, sound: bool) -> Statement:
    """What one operation leaves, another one may be asked for."""
    block = _any_block(at)
    hypotheses: Hypotheses = (("the first is possible", first.possible(block)),)
    if sound:
        hypotheses += (("all that must hold of the block holds before", pool.is_sound(block)),)
    return Statement(hypotheses, then.possible(first.after(block)))


def _registers_once(at: Interpretation, again: bool = False) -> Statement:
    """Neither an unused block is registered, nor one that has a key."""
    block = _any_block(at)
    possible = pool.can_be_registered(block)
    after = block if again else pool.registered(block)
    twice = possible & pool.can_be_registered(after)
    sound = ("all that must hold of the block holds", pool.is_sound(block))
    return Statement((sound,), not_(twice | (possible & pool.is_unused(block))))


def _unused_can_be_taken(at: Interpretation, unused: bool = True) -> Statement:
    block = _any_block(at)
    hypotheses: Hypotheses = (("all that must hold of the block holds", pool.is_sound(block)),)
    if unused:
        hypotheses += (("the block is unused", pool.is_unused(block)),)
    return Statement(hypotheses, pool.can_be_taken(block))


def _empty_counts_nothing(at: Interpretation, length: int = 0) -> Statement:
    count = at.integer("free_count")
    hypothesis = ("the count of free blocks is right", pool.is_free_queue_length(count, length))
    return Statement((hypothesis,), count == 0)


def _goes_on_finding(at: Interpretation, kept: bool = True) -> Statement:
    before = _any_block(at)
    after = replace(before, named=at.integer("named_then"), stale=at.integer("stale_then"))
    hypotheses: Hypotheses = (
        ("a key finds the block", 1 <= before.named),
        ("it describes the content", before.stale == 0),
    )
    if kept:
        hypotheses += (("keys are kept", pool.keeps_its_keys(before, after)),)
    return Statement(hypotheses, (1 <= after.named) & (after.stale <= 0))


# --- what is shown of a block before and after an operation --------------------------------


def _counts_holders(_: BlockState, after: BlockState) -> Formula:
    return pool.counts_holders(after)


def _is_queued_when_unused(_: BlockState, after: BlockState) -> Formula:
    return pool.is_queued_when_unused(after)


def _is_kept_apart(_: BlockState, after: BlockState) -> Formula:
    return pool.is_kept_apart(after)


def _is_named_for_its_content(_: BlockState, after: BlockState) -> Formula:
    return pool.is_named_for_its_content(after)


def _keeps_its_keys(before: BlockState, after: BlockState) -> Formula:
    return pool.keeps_its_keys(before, after)


def _nobody_holds_it(before: BlockState, after: BlockState) -> Formula:
    del after
    return before.null | (before.holders == 0)


def _is_real(before: BlockState, after: BlockState) -> Formula:
    del after
    return not_(before.null)


# --- what broken operations do -------------------------------------------------------------


def _not_counted(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), ref_count=block.ref_count)


def _counted_once_more(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), ref_count=block.ref_count + 1)


def _left_in_queue(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), queued=block.queued)


def _put_in_queue(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), queued=block.queued + 1)


def _twice(block: BlockState, operation: Operation) -> BlockState:
    return operation.after(operation.after(block))


def _with_its_old_keys(block: BlockState, operation: Operation) -> BlockState:
    after = replace(operation.after(block), keys=block.keys, named=block.named)
    return pool.rewritten(after)


def _written_to(block: BlockState, operation: Operation) -> BlockState:
    return pool.rewritten(operation.after(block))


def _without_its_hash(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), keys=0)


def _named_as_before(block: BlockState, operation: Operation) -> BlockState:
    return replace(operation.after(block), named=block.named)


def _without_its_keys(block: BlockState, operation: Operation) -> BlockState:
    return pool.invalidated(operation.after(block))


def _unchanged(block: BlockState, operation: Operation) -> BlockState:
    del operation
    return block


def _unused(block: BlockState, operation: Operation) -> BlockState:
    del operation
    return replace(block, ref_count=0)


def _used(block: BlockState, operation: Operation) -> BlockState:
    del operation
    return replace(block, ref_count=1)


@dataclass(frozen=True)
class _Fault:
    """A broken operation: what it does in words, and what that changes in the statement."""

    operation: Operation
    name: str
    sentence: str
    after: After = _right
    before: After | None = None
    anyhow: bool = False


_MISCOUNTS = (
    _Fault(GET, "not_counted", "it does not count the new holder", _not_counted),
    _Fault(TOUCH, "not_counted", "it does not count the new holder", _not_counted),
    _Fault(FREE, "not_counted", "it does not count one holder less", _not_counted),
    *(
        _Fault(o, "counted_once_more", "it counts a holder", _counted_once_more)
        for o in (CACHE, EVICT, RESET)
    ),
)
_TAKES_WHAT_IS_HELD = (
    _Fault(GET, "any_block", "it hands out any block", anyhow=True),
    _Fault(RESET, "at_any_time", "it does not ask who holds blocks", anyhow=True),
)
_MISQUEUES = (
    _Fault(GET, "left_in_queue", "it leaves the block in the queue", _left_in_queue),
    _Fault(TOUCH, "left_in_queue", "it leaves the block in the queue", _left_in_queue),
    _Fault(FREE, "freed_twice", "it is done twice", _twice),
    _Fault(FREE, "given_back_by_each", "each holder gives the block back", _put_in_queue),
    *(
        _Fault(o, "put_in_queue", "it puts the block into the queue", _put_in_queue)
        for o in (CACHE, EVICT, RESET)
    ),
)
_COUNTS_WRONG = (
    _Fault(GET, "not_taken_off", "it takes nothing off the count", _unchanged),
    _Fault(TOUCH, "taken_off_by_each", "each holder takes one off the count", before=_unused),
    _Fault(FREE, "added_by_each", "each holder adds one to the count", _unused),
    _Fault(CACHE, "added", "it adds one to the count", _unused),
    _Fault(EVICT, "added", "it adds one to the count", _unused),
    _Fault(RESET, "taken_off", "it takes one off the count", _used),
)
_TREATS_NULL_AS_ANY = (
    *(
        _Fault(o, "null_as_any", "it treats the null block as any other", anyhow=True)
        for o in (GET, TOUCH, FREE, CACHE)
    ),
    _Fault(EVICT, "null_is_freed", "it frees the null block", _put_in_queue, anyhow=True),
    _Fault(RESET, "null_is_freed", "it frees the null block", _put_in_queue),
)
_MISNAMES = (
    _Fault(GET, "old_keys", "the block goes by its old keys", _with_its_old_keys),
    _Fault(TOUCH, "written_to", "the new holder writes to the block", _written_to),
    _Fault(FREE, "without_hash", "the block forgets its hash", _without_its_hash),
    _Fault(CACHE, "not_in_cache", "the cache does not learn of the key", _named_as_before),
    _Fault(EVICT, "still_in_cache", "the cache goes on naming the block", _named_as_before),
    _Fault(RESET, "still_in_cache", "the cache goes on naming the block", _named_as_before),
)
_LOSES_KEYS = tuple(
    _Fault(o, "evicted_as_well", "it evicts the block as well", _without_its_keys)
    for o in (TOUCH, FREE)  # before it is registered a block has no key to lose
)


def _each(
    name: str,
    sentence: str,
    holds: Holds | None,
    faults: tuple[_Fault, ...],
) -> Iterable[Obligation]:
    """One obligation for each operation that has faults; without ``holds``, of the count."""
    for operation in OPERATIONS:
        if holds is None:
            state = partial(_count_is_kept, operation=operation)
        else:
            state = partial(_holds_after, operation=operation, holds=holds)
        mutants = []
        for fault in faults:
            if fault.operation is not operation:
                continue
            wrong = partial(state, after=fault.after)
            if holds is None:
                wrong = partial(wrong, before=fault.before)
            else:
                wrong = partial(wrong, anyhow=fault.anyhow)
            mutants.append(Mutant(fault.name, f"So it is when {fault.sentence}.", wrong))
        if mutants:
            full = sentence.format(operation.name)
            yield Obligation(f"{name}[{operation.name}]", full, state, tuple(mutants))


def _what_follows(first: Operation, then: Operation, sentence: str) -> Iterable[Obligation]:
    state = partial(_comes_next, first=first, then=then, sound=True)
    wrong = Mutant(
        "in_turn", "So it is the other way round.", partial(state, first=then, then=first)
    )
    yield Obligation(f"{then.name}_after_{first.name}", sentence, state, (wrong,))


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "block_in_use_is_never_evicted": (
        *_each(
            "reference_count_is_kept",
            "After {}, the reference count is the number of block-table entries that hold the "
            "block.",
            _counts_holders,
            _MISCOUNTS,
        ),
        *_each(
            "nobody_holds_it",
            "No table holds a block on {}.",
            _nobody_holds_it,
            _TAKES_WHAT_IS_HELD,
        ),
        Obligation(
            "sound_blocks_are_of_two_kinds",
            "All that must hold of a block holds just when it is the null block, not queued and "
            "not cached, or another one that is counted, queued when no table holds it and not "
            "otherwise, and named by its keys, which describe it.",
            _sound_by_cases,
            (
                Mutant(
                    "leaked",
                    "Or one that no table holds and that is not queued.",
                    partial(_sound_by_cases, leaks=True),
                ),
                Mutant(
                    "stale",
                    "So it is when keys describe old content.",
                    partial(_sound_by_cases, stale=False),
                ),
            ),
        ),
        Obligation(
            "reset_waits_for_holders",
            "A block allows a reset just when it is unused or the null block.",
            _resets,
            (Mutant("held", "Or when a table holds it.", partial(_resets, held=True)),),
        ),
        *_what_follows(GET, FREE, "What has just been handed out can be given back."),
    ),
    "free_count_is_free_queue_length": (
        *_each(
            "free_queue_is_kept",
            "After {}, the free queue holds the block once if it is unused, and else not at all.",
            _is_queued_when_unused,
            _MISQUEUES,
        ),
        *_each(
            "free_count_is_kept",
            "After {}, the count of free blocks is the length of the free queue.",
            None,
            _COUNTS_WRONG,
        ),
        Obligation(
            "unused_block_can_be_taken",
            "A block that is unused can be handed out.",
            _unused_can_be_taken,
            (Mutant("any", "So can any other.", partial(_unused_can_be_taken, unused=False)),),
        ),
        Obligation(
            "empty_queue_counts_nothing",
            "When the free queue is empty, no block is counted as free.",
            _empty_counts_nothing,
            (
                Mutant(
                    "one_left",
                    "None is when it holds one.",
                    partial(_empty_counts_nothing, length=1),
                ),
            ),
        ),
    ),
    "null_block_is_never_served": (
        *_each(
            "null_block_is_kept_apart",
            "After {}, the null block is neither in the free queue nor cached.",
            _is_kept_apart,
            _TREATS_NULL_AS_ANY,
        ),
        *_each(
            "null_block_is_not_handed_out",
            "What {} hands out is not the null block.",
            _is_real,
            _TAKES_WHAT_IS_HELD[:1],
        ),
        Obligation(
            "null_block_is_not_found",
            "What a key finds is not the null block, nor is what carries a key.",
            partial(_found_is_real, apart=True),
            (
                Mutant(
                    "not_kept_apart",
                    "Nor is it when the null block may be cached.",
                    partial(_found_is_real, apart=False),
                ),
            ),
        ),
    ),
    "cached_key_names_its_content": (
        *_each(
            "names_are_kept",
            "After {}, the cache names the block by the keys it carries, and these describe it.",
            _is_named_for_its_content,
            _MISNAMES,
        ),
        *_each(
            "keys_are_kept",
            "After {}, a key that found the block finds it, with the same content.",
            _keeps_its_keys,
            _LOSES_KEYS,
        ),
        Obligation(
            "kept_key_finds_the_content",
            "Where keys are kept, what a key found it finds, and no entry describes old content.",
            _goes_on_finding,
            (Mutant("not_kept", "So it is anyway.", partial(_goes_on_finding, kept=False)),),
        ),
        Obligation(
            "block_is_registered_once",
            "No block is registered that is unused, nor twice.",
            _registers_once,
            (Mutant("at_all", "No block is registered.", partial(_registers_once, again=True)),),
        ),
        *_what_follows(GET, CACHE, "What has just been handed out can be registered."),
    ),
}
"""The obligations of each claim on the block pool, by its name."""
