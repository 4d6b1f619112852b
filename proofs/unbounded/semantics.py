"""Which semantics of Python the symbolic run assumes: a sentence each, and code that needs it.

The documentation shows the sentences as the trusted base. Tests run the code symbolically and
by CPython on the same random numbers, and see that all that the machine executes is in some row.
Rows with a third parameter get the two numbers in a dict.

PYTEST_DONT_REWRITE: the code that runs has to be that of the file, with its assertion.
"""
# ruff: noqa: E711 (None is compared on purpose)

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeAlias

Row: TypeAlias = Callable[..., int]

_THREE = 3


def _add(numbers: list[int], number: int) -> int:
    numbers.append(number)
    return number


def _less(left: int, right: int = _THREE, *, by: int = 0) -> int:
    return left - right - by


def _if_positive(x: int) -> Any:
    if x > 0:
        return x
    return None


def integers(x: int, y: int) -> int:
    """Integers have no bounds; `True` and `False` count as 1 and 0."""
    return x * 1_000_000_007 * y + -x - y * y + (x > y) + int(x == y) + abs(y)


def division(x: int, y: int) -> int:
    """`//` rounds down and `%` has the sign of the divisor; a divisor of 0 raises."""
    return 1000 * (x // y) + 50 * (x % y) + x // -4 + x % -4


def comparisons(x: int, y: int) -> int:
    """A chain evaluates each operand once, from the left, and none past the first that fails."""
    seen: list[int] = []
    chain = _add(seen, x) < _add(seen, y) <= _add(seen, 3) != _add(seen, x + 2)
    ends = (x >= y) + 2 * (x > 3) + 4 * (y == x)
    return 100 * len(seen) + 10 * chain + ends


def operands(x: int, y: int) -> int:
    """`and` and `or` give the operand that decides, and evaluate none past it."""
    seen: list[int] = []
    found = (_add(seen, x - 1) and _add(seen, y - 1)) or (_add(seen, x) and _add(seen, 5))
    return 100 * found + len(seen)


def truth(x: int, y: int) -> int:
    """False are 0, `None`, and empty texts, tuples and lists; all others are true."""
    numbers = [0]
    if y > 0:
        numbers.pop()
    known = (1 if None else 0) + (2 if "" else 0) + (4 if (0,) else 0) + (8 if () else 0)
    return 100 * known + (16 if x else 0) + (32 if numbers else 0) + (64 if not y else 0) + bool(x)


def identity(x: int, y: int) -> int:
    """`is` tells `None`, truth values, and lists from each other; `==` texts and `None`, too."""
    numbers, others = [x], [x]
    same = numbers if x > y else others
    text = "x" if x > 0 else None
    told = (same is numbers) + 2 * (numbers is not others) + 4 * (text is None)
    told += 8 * ((x > 0) is True) + 16 * (x is None) + 32 * (text == "x")
    return told + 64 * (text != None)


def conditions(x: int, y: int) -> int:
    """`if` and `... if ... else ...` execute one of their branches."""
    seen: list[int] = []
    if x > y:
        _add(seen, x)
    elif x == y:
        pass
    else:
        _add(seen, x)
        _add(seen, y)
    return 10 * len(seen) + (_add(seen, y) if x > 0 else len(seen))


def assignments(x: int, y: int) -> int:
    """Names share what is assigned; what is unpacked has as many items as names, else it raises."""
    first = again = [x]
    again.append(y)
    (left, [right, last]), total = ((y, (x, 3)), 1)
    total += left
    total *= right
    annotated: int = last
    if (more := x + 1) > y:
        first, again = again, []
    one, other = first if x != 7 else [x]
    del last
    return total + annotated + more + 10 * len(first) + 100 * len(again) + one - other


def lists(x: int, y: int) -> int:
    """Lists are changed in place, also at places from the end; beyond either end it raises."""
    numbers = [x, *(y, 3), *[y]]
    numbers.append(x - y)
    numbers.extend([1, 2])
    last = numbers.pop()
    numbers[-2] = 7
    numbers[0] = numbers[1] - last
    del numbers[5:]
    at = -6 if x > 7 else 4 if x > 0 else -5
    return 100 * numbers[at] + 10 * numbers[-1] + numbers[0] + len(numbers)


def spreading(x: int, y: int) -> int:
    """`[*...]` and `list(...)` have each item once, however many there are."""
    numbers, others = [*range(x)], list(range(y))
    others.append(x)
    return 10 * len(numbers) + len(others) + len([x, *(y, 3)])


def repetition(x: int, y: int) -> int:
    """`[item] * n` has n items, or none; a slice to the end may be deleted from anywhere."""
    numbers = [0] * x
    del numbers[y:]
    numbers.extend([1] * y)
    return 10 * len(numbers) + len([1, 2] * 3)


def shared(x: int, y: int) -> int:
    """What a loop changes, all names of it see."""
    numbers: list[int] = []
    others = numbers
    for _ in range(x):
        others.append(y)
    return len(numbers)


def slices(x: int, y: int) -> int:
    """A slice without a step counts places below 0 from the end, and is cut at both ends."""
    part = range(10, 17)[x:y]
    rest = range(10, 17)[x:]
    return 100 * len(part) + (part[0] + part[-1] if len(part) else 0) + len(rest)


def places(x: int, y: int) -> int:
    """A place below 0 counts from the end; beyond either end it raises."""
    return range(0, 6, 2)[y] + (5, x, 6)[-2]


def ranges(x: int, y: int) -> int:
    """A range leaves out its end, may go down, and may be empty; a step of 0 raises."""
    up, down, any_ = range(x, y, 2), range(x, y, -2), range(3, 9, y)
    return 100 * len(up) + 10 * len(down) + len(any_) + len(range(x))


def loops(x: int, y: int) -> int:
    """`break` ends a loop, `continue` an iteration; `else` follows a loop without `break`."""
    total = 0
    for number in [x, y, x + y]:
        if number == 0:
            continue
        if number < -5:
            break
        total += number
    else:
        total += 100
    return 10 * total + number


def any_number_of_iterations(x: int, y: int) -> int:
    """A loop of unknown length executes its body while its condition holds, or for each item."""
    number, count, ended = x, 0, 0
    while number > 0:
        number -= 1
    else:
        ended = 100
    for each in range(x):
        if each >= y:
            break
        count += 1
    return 1000 * number + ended + count


def comprehensions(x: int, y: int) -> int:
    """A comprehension is a loop that appends what passes its conditions, with its own variable."""
    number = 50
    squares = [number * number for number in (x, y, 3) if number > 0 if number != x]
    pairs = tuple(number + 1 for number in squares)
    return number + sum_of(squares) + 10 * sum_of(list(pairs))


def sum_of(numbers: list[int]) -> int:
    """A sum by a loop."""
    total = 0
    for number in numbers:
        total = 2 * total + number
    return total


def extremes(x: int, y: int) -> int:
    """`min` and `max` give the least and the greatest number."""
    return 100 * max(x, y, 0) - min(x, y) + abs(x)


def pairs(x: int, y: int) -> int:
    """`zip` ends with the shortest, `enumerate` counts from 0, `islice` ends after some items."""
    total = 0
    for left, right in zip((x, y, 3), [y, 3], strict=False):
        total = 2 * total + left * right
    for place, number in enumerate((x, y)):
        total += (place + 1) * number
    count = 0
    for _ in islice(range(5), abs(x)):
        count += 1
    return 10 * total + count


def order(x: int, y: int) -> int:
    """A set of numbers has each once, and `sorted` has them in ascending order."""
    found = tuple(sorted({max(x - y, 0), max(y - x, 0), 2}))
    return 100 * found[0] + 10 * found[-1] + len(found)


def marks(x: int, y: int) -> int:
    """A set has what was added since it was empty."""
    seen: set[int] = set()
    if x > y:
        seen.add(1)
    if y > 0:
        seen.clear()
    seen.add(2)
    return (1 in seen) + 2 * (2 in seen) + 4 * (3 not in seen)


def dicts(x: int, y: int, of: dict[str, int]) -> int:
    """A dict has what was last put under a text; `get` of what is not there gives the default."""
    before = of["x"]
    of["x"] = y
    if x > 0:
        of["more"] = 7
    return 100 * before + 10 * of["x"] + of.get("more", 3) + ("more" in of) + ("y" not in of)


def calls(x: int, y: int) -> int:
    """Arguments are bound as Python does it, defaults included, and the called code is executed."""

    def at_least_three(number: int) -> int:
        if number > x:
            return number
        return 3

    return (
        100 * at_least_three(y)
        + _less(x)
        + _less(right=x, left=y, by=_THREE)
        + (_if_positive(y) is None)
    )


class _Base:
    number: int
    constant = 5

    @classmethod
    def least(cls, x: int, y: int) -> int:
        return min(x, y) + cls.constant

    @staticmethod
    def twice(x: int) -> int:
        return 2 * x

    @property
    def next(self) -> int:
        return self.number + 1

    def total(self, y: int) -> int:
        return self.number + y


class _Extended(_Base):
    constant = 6

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def least(cls, x: int, y: int) -> int:
        return super().least(x, y) - 1

    def total(self, y: int) -> int:
        return 10 * super().total(y) + self.least(self.number, y) + self.twice(y) + self.next

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> int:
        return place + self.number

    def __iter__(self) -> Iterator[int]:
        for place in range(self.number):
            yield self[place]


def objects(x: int, y: int) -> int:
    """An attribute is of the instance, else of its classes in order; reading changes nothing."""
    made = _Extended(x)
    before = made.number
    made.number = y
    total = 0
    for number in _Extended(3):
        total = 2 * total + number * x
    return 1000 * made.total(x) + 100 * before + made[x] + len(_Extended(3)) + total


def types(x: int, y: int) -> int:
    """`isinstance` goes by the class and those that it extends; a truth value is an `int`."""
    made: Any = _Extended(x)
    known = isinstance(made, _Base) + 2 * isinstance(made, (int, str))
    known += 4 * isinstance(x > y, int) + 8 * isinstance(x, bool) + 16 * isinstance([x], list)
    return known + 32 * isinstance(None, int | str) + 64 * isinstance(x, int | str)


def exceptions(x: int, y: int) -> int:
    """`raise` and a failing `assert` end the call; no exception is ever caught."""
    assert x != y
    if x == y + 1:
        raise LookupError(x)
    return x


ROWS: tuple[Row, ...] = (
    integers,
    division,
    comparisons,
    operands,
    truth,
    identity,
    conditions,
    assignments,
    lists,
    spreading,
    repetition,
    shared,
    slices,
    places,
    ranges,
    loops,
    any_number_of_iterations,
    comprehensions,
    extremes,
    pairs,
    order,
    marks,
    dicts,
    calls,
    objects,
    types,
    exceptions,
)
"""What is assumed, each as code whose docstring says it."""
