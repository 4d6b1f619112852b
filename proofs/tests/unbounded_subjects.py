"""Functions that are executed symbolically in tests. pytest rewrites asserts of test modules."""
# ruff: noqa: ARG001 (all take the same arguments)

import functools
from itertools import islice
from typing import Any

SIZES = [1, 2]


class Spec:
    """A group, by its sizes."""

    block_size: int
    window: int

    @property
    def tail(self) -> int:
        return -(-(self.window - 1) // self.block_size)


class Pool:
    """A block pool."""

    def get_cached_block(self, block_hash: Any, ids: list[int]) -> list[Any] | None:
        raise NotImplementedError


# --- lookups


def prefix(hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]) -> Any:
    table: list[Any] = []
    for block_hash in islice(hashes, most // spec.block_size):
        if found := pool.get_cached_block(block_hash, ids):
            table.append(found[0])
        else:
            break
    while len(table) * spec.block_size % alignment != 0:
        table.pop()
    return (table,), len(table) * spec.block_size


def not_past_100(
    hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]
) -> Any:
    """It looks at a hundred blocks at most."""
    return prefix(hashes, min(most, 100 * spec.block_size), pool, spec, alignment, ids)


def off_above_64(
    hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]
) -> Any:
    """It serves nothing with large blocks."""
    if spec.block_size > 64:
        return ([],), 0
    return prefix(hashes, most, pool, spec, alignment, ids)


def unaligned(hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]) -> Any:
    table: list[Any] = []
    for block_hash in islice(hashes, most // spec.block_size):
        if found := pool.get_cached_block(block_hash, ids):
            table.append(found[0])
        else:
            break
    return (table,), len(table) * spec.block_size


def unchecked(hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]) -> Any:
    """It skips blocks that are not cached."""
    table: list[Any] = []
    for block_hash in islice(hashes, most // spec.block_size):
        if found := pool.get_cached_block(block_hash, ids):
            table.append(found[0])
    while len(table) * spec.block_size % alignment != 0:
        table.pop()
    return (table,), len(table) * spec.block_size


def past_the_end(
    hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]
) -> Any:
    pool.get_cached_block(hashes[most // spec.block_size], ids)
    return prefix(hashes, most, pool, spec, alignment, ids)


def endless(hashes: Any, most: int, pool: Any, spec: Any, alignment: int, ids: list[int]) -> Any:
    count = 0
    while count < most:
        if pool.get_cached_block(hashes[0], ids):
            count += 1
    return ([],), 0


# --- numbers


def rounded(x: int, y: int) -> int:
    return x // y * y + x % y


def cdiv(x: int, y: int) -> int:
    return -(-x // y)


def quotient(x: int, y: int) -> int:
    return x // y


def remainder(x: int, y: int) -> int:
    return x % y


def between(x: int, y: int) -> int:
    return 1 if 0 <= x < y != 3 else 0


def extremes(x: int, y: int) -> int:
    return max(x, y, 0) - min(x, y) + abs(x)


def shortened(x: int, y: int) -> int:
    of = [0] * x
    del of[y:]
    return len(of)


def aliased(x: int, y: int) -> int:
    one: list[int] = []
    other = one
    for _ in range(x):
        other.append(y)
    return len(one)


def with_either(x: int, y: int) -> int:
    def at_least_three(number: int) -> int:
        if number > 3:
            return number
        return 3

    return at_least_three(x) + y


# --- what is not supported


def with_try(x: int, y: int) -> int:
    try:
        return x
    except ValueError:
        return y


def with_lambda(x: int, y: int) -> int:
    return (lambda: x)()


def with_generator(x: int, y: int) -> int:
    return sum(each for each in (x, y))


def with_text(x: int, y: int) -> int:
    return len(f"{x}")


def with_global(x: int, y: int) -> int:
    return len(SIZES)


def with_starred(x: int, y: int) -> int:
    return max(*(x, y))


def with_bits(x: int, y: int) -> int:
    return x ^ y


def with_changing_list(x: int, y: int) -> int:
    numbers = [x]
    for number in numbers:
        if number > y:
            numbers.append(number - 1)
    return len(numbers)


@functools.lru_cache
def with_cache(x: int, y: int) -> int:
    return x


def calls_cache(x: int, y: int) -> int:
    return with_cache(x, y)


def with_loop_variable(x: int, y: int) -> int:
    for number in range(x):
        y += number
    return number


UNSUPPORTED = {
    with_try: "Try",
    with_lambda: "Lambda",
    with_generator: "a generator expression",
    with_text: "JoinedStr",
    with_global: "SIZES, which is a list",
    with_starred: "a starred argument",
    with_bits: "the operator BitXor",
    with_changing_list: "a change of a list while it is iterated",
    calls_cache: "a call of <functools._lru_cache_wrapper object",
    with_loop_variable: "number, which is changed by a loop",
}


# --- two versions


def total(x: int, y: int) -> int:
    found = 0
    for number in range(x):
        if number % y == 0:
            found += number
    return found


def total_by_while(x: int, y: int) -> int:
    number = found = 0
    while number < x:
        found += 0 if number % y else number
        number += 1
    return found


def total_of_one_more(x: int, y: int) -> int:
    found = 0
    for number in range(x + 1):
        if number % y == 0:
            found += number
    return found


def total_that_ends(x: int, y: int) -> int:
    found = 0
    for number in range(x):
        if number % y == 0:
            found += number
        if found > 100:
            break
    return found


def marked(x: int, y: int) -> list[bool]:
    marks = [False] * x
    for number in range(x):
        if number % y == 0:
            marks[number] = True
    return marks


def marked_at_once(x: int, y: int) -> list[bool]:
    return [number % y == 0 for number in range(x)]


def marked_but_the_last(x: int, y: int) -> list[bool]:
    return [number % y == 0 and number < x - 1 for number in range(x)]


def shared(x: int, y: int) -> tuple[list[int], list[int]]:
    one = [y] * x
    return one, one


def apart(x: int, y: int) -> tuple[list[int], list[int]]:
    return [y] * x, [y] * x


def filled_together(x: int, y: int) -> int:
    one: list[int] = []
    other: list[int] = []
    for number in range(x):
        if number % y:
            break
        one.append(number)
        other.append(y)
    return len(one)


def filled_together_as_the_other(x: int, y: int) -> int:
    one: list[int] = []
    other: list[int] = []
    for number in range(x):
        if number % y:
            break
        one.append(number)
        other.append(y)
    return len(other)


def filled_one_more(x: int, y: int) -> int:
    one: list[int] = []
    other: list[int] = []
    for number in range(x):
        one.append(number)
        if number % y:
            break
        other.append(y)
    return len(one)


def from_a_start(x: int, y: int) -> list[int]:
    start = x // y if x > 0 else 0
    found = [y] * start
    for number in range(start, x):
        if number % y:
            break
        found.append(y)
    return found


def from_a_start_always(x: int, y: int) -> list[int]:
    start = x // y if x > -1 else 0
    found = [y] * start
    for number in range(start, x):
        if number % y:
            break
        found.append(y)
    return found


def note(item: int) -> int:
    """What is not executed: of the same calls the same comes."""
    raise NotImplementedError(item)


def notes(x: int, y: int) -> int:
    for number in range(x):
        if number % y:
            note(number + y)
    return note(y)


def notes_from_a_start(x: int, y: int) -> int:
    for number in range(y, x + y):
        if (number - y) % y:
            note(item=number)
    return note(item=y)


def notes_another(x: int, y: int) -> int:
    for number in range(x):
        if number % y:
            note(number)
    return note(y)


def notes_before(x: int, y: int) -> int:
    last = note(y)
    for number in range(x):
        if number % y:
            note(number + y)
    return last


def notes_in_a_loop_that_another_has_not(x: int, y: int) -> int:
    if x == 1:
        return note(y)
    for _ in range(x):
        note(y)
    return 0


def notes_once(x: int, y: int) -> int:
    if x > 0:
        note(y)
    return 0


def notes_what_is_changed_later(x: int, y: int) -> list[int]:
    numbers = [x]
    note_all(numbers)
    numbers.append(y)
    return numbers


def notes_what_is_changed_before(x: int, y: int) -> list[int]:
    numbers = [x]
    numbers.append(y)
    note_all(numbers)
    return numbers


def note_all(items: list[int]) -> None:
    """The same of a list, which it does not change."""
    raise NotImplementedError(items)


VERSIONS = (
    (filled_together, filled_together_as_the_other, True),
    (filled_together, filled_one_more, False),
    (from_a_start, from_a_start_always, True),
    (total, total, True),
    (total, total_by_while, True),
    (total, total_of_one_more, False),
    (total, total_that_ends, False),
    (marked, marked_at_once, True),
    (marked, marked_but_the_last, False),
    (shared, shared, True),
    (shared, apart, False),
    (notes, notes_from_a_start, True),
    (notes, notes_another, False),
    (notes, notes_before, False),
    (notes_once, notes_in_a_loop_that_another_has_not, False),
    (notes_what_is_changed_later, notes_what_is_changed_later, True),
    (notes_what_is_changed_later, notes_what_is_changed_before, False),
)
"""Two functions, and whether they do the same."""
