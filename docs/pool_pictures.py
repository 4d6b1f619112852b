"""Pictures of a block pool: a row of blocks, each with what was done with it."""

from docs.drawing import Picture
from hitproof.conformance.findings.strips import Row, figure
from hitproof.spec.admission import blocks_between, first_token_read, most_between, tokens_at_once
from hitproof.spec.eviction import Queued, is_least_recently_used_first, joins_before_cached
from hitproof.spec.pool import CACHE, FREE, GET, TOUCH, BlockState, Operation


def states() -> dict[str, BlockState]:
    """Blocks of a pool, by what was done with them."""
    fresh = BlockState(False, 0, 0, 1, 0, 0, 0)

    def after(*operations: Operation) -> BlockState:
        block = fresh
        for operation in operations:
            assert operation.possible(block)
            block = operation.after(block)
        return block

    return {
        "null": BlockState(True, 0, 0, 0, 0, 0, 0),
        "fresh": fresh,
        "taken": after(GET),
        "cached": after(GET, CACHE),
        "shared": after(GET, CACHE, TOUCH),
        "freed": after(GET, CACHE, FREE),
        "taken again": after(GET, CACHE, FREE, GET),
    }


def of_pool(caption: str, **shown: str) -> Picture:
    """A row for each attribute, under its label; ``{}`` is how many blocks are free."""
    shown_states = states()
    rows = [
        Row(
            label.replace("_", " "),
            {i: str(getattr(s, name)) for i, s in enumerate(shown_states.values())},
        )
        for label, name in shown.items()
    ]
    told = "; ".join(f"{number} {what}" for number, what in enumerate(shown_states))
    said = caption.format(sum(block.queued for block in shown_states.values()))
    return Picture(f"{said} Blocks: {told}.", (figure(range(len(shown_states)), 99, *rows),))


def eviction_order() -> Picture:
    """Which free block is handed out next."""
    used = {False: (5,), True: (1, 2, 3, 4)}
    given_up = [(keyed, time) for keyed, times in used.items() for time in times]
    queue = [Queued(True, place, keyed, time) for place, (keyed, time) in enumerate(given_up)]
    for number, first in enumerate(queue):
        for second in queue[number + 1 :]:
            assert is_least_recently_used_first(first, second)
            assert joins_before_cached(first, second)
    blocks = range(len(queue))
    rows = (
        Row("has a key", {each.place: str(int(each.keyed)) for each in queue}),
        Row("given up", {each.place: str(each.used) for each in queue}),
    )
    return Picture(
        "The block in place 0 is handed out next: lookup cannot find it. Behind it are the tail, "
        "the middle and the head of a prompt, given up in this order, and a block used last.",
        (figure(blocks, 99, *rows, label="place"),),
    )


def admission() -> Picture:
    """What each step of a request with a window takes."""
    window, block_size, step, num_tokens = 6, 4, 5, 20
    rows, most = [], 0
    for start in range(0, num_tokens, step):
        first, end = first_token_read(start, window), start + step
        taken = blocks_between(first, end, block_size)
        held = range(first // block_size, first // block_size + taken)
        rows.append(Row(f"tokens {start} to {end - 1}", dict.fromkeys(held, "#")))
        most = max(most, taken)
    bound = most_between(tokens_at_once(step, window), block_size)
    assert most <= bound
    blocks = range(num_tokens // block_size)
    return Picture(
        f"The blocks (#) that each step of {step} tokens reads and writes, with a window of "
        f"{window} tokens and {block_size} tokens a block: {most} at most, and {bound} are enough "
        "for a request of any length.",
        (figure(blocks, 99, *rows),),
    )
