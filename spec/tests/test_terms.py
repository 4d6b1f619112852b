"""The arithmetic on ints does what `Arithmetic` says."""

from functools import partial
from itertools import product
from operator import ne

from hitproof.spec.terms import INTEGERS
from hitproof.spec.tests.token_level import Asked


def test_ceil_div_is_the_least_that_covers() -> None:
    for dividend, divisor in product(range(-9, 10), range(1, 5)):
        least = next(q for q in range(-99, 99) if dividend <= q * divisor)
        assert INTEGERS.ceil_div(dividend, divisor) == least


def test_multiple_at_most_is_the_greatest() -> None:
    for position, step in product(range(-9, 10), range(1, 5)):
        greatest = max(m for m in range(-99, 99) if m % step == 0 and m <= position)
        assert INTEGERS.multiple_at_most(position, step) == greatest


def test_maximum_is_the_greater() -> None:
    for left, right in product(range(-2, 3), repeat=2):
        assert INTEGERS.maximum(left, right) == sorted((left, right))[1]


def test_for_all_asks_about_the_whole_range_and_no_more() -> None:
    for start, end in product(range(-2, 5), repeat=2):
        asked = Asked()
        assert INTEGERS.for_all(start, end, asked) is True
        assert asked.blocks == list(range(start, end))
        for miss in range(start, end):
            assert INTEGERS.for_all(start, end, partial(ne, miss)) is False


def test_implication_and_negation() -> None:
    for premise, conclusion in product((False, True), repeat=2):
        assert INTEGERS.implies(premise, conclusion) is (premise <= conclusion)
        assert INTEGERS.negation(premise) is (not premise)
