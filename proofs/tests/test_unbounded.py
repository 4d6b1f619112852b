"""What is proved of functions is true of them, and what cannot be followed is said."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.proofs.errors import PathError
from hitproof.proofs.tests import unbounded_subjects as subjects
from hitproof.proofs.unbounded.equality import Pair, prove_equal, told
from hitproof.proofs.unbounded.knowledge import GivenUp, Knowledge
from hitproof.proofs.unbounded.lookups import AnyLookup
from hitproof.proofs.unbounded.machine import Path, Standing
from hitproof.proofs.unbounded.proving import Conclusion, Proof, Statement, Verdict, prove
from hitproof.proofs.unbounded.skipping import skips_right
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import NULL, Listing, Record, is_same
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import Formula, Term

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """Two numbers, and what a function gives of them."""

    x: Any
    y: Any
    result: Any = None


def positive(case: Case) -> tuple[Formula, ...]:
    return (case.x >= 1, case.y >= 1)


def anything(case: Case) -> Formula:
    return case is not None


def on_numbers(
    function: Any,
    holds: Callable[[Case], Formula],
    premises: Callable[[Case], tuple[Formula, ...]] = positive,
    stands_for: Standing | None = None,
) -> Proof:
    """Prove what holds of two numbers and the result."""

    def state(here: Arithmetic) -> Statement:
        x, y = here.atom("x"), here.atom("y")

        def conclusions(result: Any) -> Iterator[Conclusion]:
            yield "it holds", lambda: holds(Case(x, y, result))

        names = function.__code__.co_varnames
        arguments = {names[0]: x, names[1]: y}
        return Statement(
            function,
            arguments,
            premises(Case(x, y)),
            conclusions,
            sizes=arguments,
            stands_for=stands_for,
        )

    return prove(state)


# --- numbers and lists


def test_rounding_is_proved_for_all_numbers() -> None:
    def fits(case: Case) -> Formula:
        rounded = case.result * case.y
        return (case.x <= rounded) & (rounded < case.x + case.y)

    assert on_numbers(subjects.cdiv, fits).verdict is Verdict.PROVED
    assert on_numbers(subjects.quotient, fits).verdict is Verdict.FAILED
    kept = on_numbers(subjects.rounded, lambda case: case.result == case.x)
    assert kept.verdict is Verdict.PROVED
    negative = on_numbers(
        subjects.remainder,
        lambda case: (case.y < case.result) & (case.result <= 0),
        lambda case: (case.y <= -1,),
    )
    assert negative.verdict is Verdict.PROVED


def test_lists_of_any_length_are_followed() -> None:
    shorter = on_numbers(
        subjects.shortened, lambda case: (case.result <= case.x) & (case.result <= case.y)
    )
    assert shorter.verdict is Verdict.PROVED
    longer = on_numbers(subjects.shortened, lambda case: case.result == case.x)
    assert longer.verdict is Verdict.FAILED
    same = on_numbers(subjects.aliased, lambda case: case.result == case.x)
    assert same.verdict is Verdict.PROVED
    empty = on_numbers(subjects.aliased, lambda case: case.result == 0)
    assert empty.verdict is Verdict.FAILED


@pytest.mark.parametrize(
    ("stands_for", "paths"), [(None, 2), (lambda _: None, 2), (lambda found: found[-1][0], 1)]
)
def test_one_value_may_stand_for_all_that_a_function_in_a_function_gives(
    stands_for: Standing | None, paths: int
) -> None:
    def is_more(case: Case) -> Formula:
        return case.result > case.y

    proof = on_numbers(subjects.with_either, is_more, stands_for=stands_for)
    assert (proof.verdict, proof.paths) == (Verdict.PROVED, paths)


def test_what_a_product_is_equal_to_divides_it_exactly() -> None:
    here = Arithmetic()
    a, b, c, d, n = (here.atom(name, 1) for name in "abcdn")
    assert not is_same(n * a * b // c, n * d)
    here.equal_products(a * b, c * d)
    assert is_same(n * a * b // c, n * d)
    assert is_same((n * c * d + a) // b, n * a + a // b)
    assert not is_same(n * a // c, n * d)


# --- what cannot be followed


@pytest.mark.parametrize("function", subjects.UNSUPPORTED, ids=lambda each: each.__name__)
def test_unsupported_constructs_are_named_with_their_line(function: Any) -> None:
    proof = on_numbers(function, anything)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert proof.detail.startswith(subjects.UNSUPPORTED[function])
    assert "(unbounded_subjects.py:" in proof.detail


def test_code_that_is_not_in_the_file_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects.cdiv, "__code__", subjects.quotient.__code__.replace())
    as_it_is = on_numbers(subjects.cdiv, lambda case: case.result * case.y <= case.x)
    assert as_it_is.verdict is Verdict.PROVED
    changed = subjects.quotient.__code__.replace(co_consts=(None, 1))
    monkeypatch.setattr(subjects.cdiv, "__code__", changed)
    proof = on_numbers(subjects.cdiv, anything)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "whose code is not that of its file" in proof.detail


def test_defaults_and_globals_are_those_that_the_function_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_positive(case: Case) -> Formula:
        return case.result >= 0

    assert on_numbers(subjects.extremes, is_positive).verdict is Verdict.PROVED
    monkeypatch.setattr(subjects, "abs", lambda number: number, raising=False)
    assert on_numbers(subjects.extremes, is_positive).verdict is Verdict.INCONCLUSIVE
    monkeypatch.setattr(subjects, "abs", subjects.quotient, raising=False)
    monkeypatch.setattr(subjects.quotient, "__defaults__", (-1,))
    assert on_numbers(subjects.extremes, is_positive).verdict is Verdict.FAILED


def test_path_that_is_not_followed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that gets lost would be taken for proved."""
    decide = Path.decide

    def losing(path: Path, formula: Formula) -> bool:
        holds = decide(path, formula)
        path.others.clear()
        return holds

    monkeypatch.setattr(Path, "decide", losing)
    with pytest.raises(PathError, match="a path was not followed"):
        on_numbers(subjects.between, anything)


# --- lookups


def lookup(function: Any, kind: GroupKind = GroupKind.FULL_ATTENTION) -> Proof:
    """Prove that a function is the lookup of a kind, without EAGLE."""

    def state(here: Arithmetic) -> Statement:
        any_ = AnyLookup(here, kind, False)
        sizes = {"block_size": any_.block_size}
        arguments = {
            "hashes": any_.hashes,
            "most": any_.max_length,
            "pool": Record(subjects.Pool, {"get_cached_block": any_.get_cached_block()}),
            "spec": Record(subjects.Spec, sizes),
            "alignment": any_.alignment,
            "ids": Listing([0]),
        }
        return Statement(
            function, arguments, any_.premises, any_.conclusions, any_.shapes, any_.sizes
        )

    return prove(state)


def test_a_path_comes_to_the_same_decisions_again(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Arithmetic()
    number = here.atom("number")

    def executed() -> tuple[object, object]:
        path = Path(here, (), in_short=True)
        path.suppose(1 <= number)
        path.decide(1 <= 2 * number)
        return path.others, path.impossible

    def give_up(*_: object, **__: object) -> None:
        raise GivenUp("soon")

    before = executed()
    monkeypatch.setattr(Knowledge, "values", give_up)
    assert executed() == before == ([], {(False,)})


@pytest.mark.parametrize(("times", "ends"), [(1, None), (3, None), (4, GivenUp)])
def test_a_question_is_put_in_several_ways(
    monkeypatch: pytest.MonkeyPatch, times: int, ends: type[Exception] | None
) -> None:
    here = Arithmetic()
    number, known = here.atom("number"), Knowledge(here)
    known.add(1 <= number)
    check, left = z3.Solver.check, [z3.unknown] * times

    def tired(solver: Any) -> Any:
        return left.pop() if left else check(solver)

    monkeypatch.setattr(z3.Solver, "check", tired)
    with pytest.raises(ends) if ends else nullcontext():
        assert known.follows(0 <= number)


def test_lookup_is_proved_for_all_lengths() -> None:
    proof = lookup(subjects.prefix)
    assert proof.verdict is Verdict.PROVED


FAULTS = {
    subjects.off_above_64: "it fails that no longer hit is valid",
    subjects.unaligned: "it fails that the hit is valid",
    subjects.not_past_100: "it fails that",  # which conclusion depends on what Z3 was asked before
    subjects.unchecked: "it fails that the hit is valid",
    subjects.past_the_end: "it raises IndexError",
    subjects.endless: "a while loop that is not seen to end",
}


@pytest.mark.parametrize("function", FAULTS, ids=lambda each: each.__name__)
def test_faults_are_not_proved(function: Any) -> None:
    proof = lookup(function)
    assert proof.verdict is not Verdict.PROVED
    assert proof.detail.startswith(FAULTS[function])


def test_fault_past_any_bound_comes_with_sizes_that_reach_it() -> None:
    assert lookup(subjects.not_past_100).sizes["max_length"] > 100
    assert lookup(subjects.off_above_64).sizes["block_size"] > 64


def test_lookup_of_another_kind_is_not_proved() -> None:
    assert lookup(subjects.prefix, GroupKind.MAMBA).verdict is Verdict.FAILED


def test_proofs_are_the_same_with_each_hash_seed() -> None:
    """In which order sets of texts are gone through is up to that."""
    both = "(subjects.prefix, subjects.unaligned)"
    program = f"from {__name__} import lookup, subjects; print(*map(lookup, {both}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "123"
    }
    assert len(printed) == 1


# --- two versions


@pytest.mark.parametrize(
    ("one", "other", "same"),
    subjects.VERSIONS,
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_versions_are_proved_equal_only_if_they_are(one: Any, other: Any, same: bool) -> None:
    def state(here: Arithmetic) -> Pair:
        sizes = {"x": here.atom("x", 0), "y": here.atom("y", 1)}
        result = lambda machine, name: machine.arithmetic.atom(name)  # noqa: E731
        contracts = {each: told(each, result) for each in (subjects.note, subjects.note_all)}
        return Pair((one, other), lambda _: sizes, contracts=contracts, sizes=sizes)

    proof = prove_equal(state)
    assert proof.verdict is (Verdict.PROVED if same else Verdict.FAILED), proof


# --- terms


def test_quotients_and_products_have_one_form() -> None:
    here = Arithmetic()
    b, p, n = here.atom("b", 1), here.atom("p", 1), here.atom("n")
    assert (n * b // (p * b)).key == (n // p).key
    assert (n // (b * p)).key == (n // b // p).key
    assert ((n * b + b) % b, n * b // b - n, -1 // b) == (0, 0, -1)
    assert ((n * b <= b).key, b * p >= b, b + p >= 2) == ((n <= 1).key, True, True)


@given(st.integers(-20, 20), st.integers(1, 9), st.integers(-20, 20), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_facts_about_terms_hold_of_real_numbers(x: int, b: int, y: int, p: int) -> None:
    """With values for all atoms, quotients and products are what they are of ints."""
    here = Arithmetic()
    known = Knowledge(here)
    atoms: list[Term] = [here.atom("x"), here.atom("b", 1), here.atom("y"), here.atom("p", 1)]
    for atom, value in zip(atoms, (x, b, y, p), strict=True):
        known.add(atom == value)
    at_x, at_b, at_y, at_p = atoms
    pairs = [
        (at_x // at_b, x // b),
        (here.ceil_div(at_x, at_b), -(-x // b)),
        (at_x * at_b // (at_b * at_p), x // p),
        ((at_x + at_y) % at_b, (x + y) % b),
        (here.max(at_x, at_y), max(x, y)),
        (here.min(at_x, at_y), min(x, y)),
        (at_x // 3 - at_y // -2, x // 3 - y // -2) if y % 2 == 0 else (at_x, x),
    ]
    assert known.values(*(term == value for term, value in pairs)) is not None


@pytest.mark.parametrize("kind", GroupKind)
def test_skipped_tokens_are_told_from_others(kind: GroupKind) -> None:
    limit = None if kind in (GroupKind.FULL_ATTENTION, GroupKind.MAMBA) else 4
    right = {
        GroupKind.FULL_ATTENTION: 0,
        GroupKind.SLIDING_WINDOW: 7,
        GroupKind.CHUNKED_LOCAL: 8,
        GroupKind.MAMBA: 9,
    }[kind]
    holds = partial(skips_right, kind, 10)
    for skipped in range(11):
        fits = all(holds(skipped, token, limit) for token in range(10))
        assert fits is (skipped == right)


def test_null_block_is_no_block_of_a_request() -> None:
    assert NULL.place == -1
