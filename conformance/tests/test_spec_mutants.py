"""Whatever single point of the spec is changed, a test, a theorem or a check notices.

The mutants are generated from the spec's text, so a new clause brings its own. What catches
them: the token-level tests of `spec` and the tests of `reference`, then the theorems, then the
checks on the reference, cheapest first. A mutant that nothing catches must be listed in
`conformance.spec_mutants`, with the reason why it means the same.

A clause that is called proved has no mutant that the theorems alone let pass.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from time import process_time

import pytest

from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.mutation import Mutant
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.spec_mutants import (
    EQUIVALENT,
    SAME_WHERE_ASKED,
    Line,
    all_mutants,
    lines_changed,
    lines_run,
    noticed_by,
)
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.proofs.obligation import Obligation
from hitproof.proofs.prover import DEFAULTS, Solver
from hitproof.proofs.theorems import THEOREMS
from hitproof.reference.tests import test_lookup
from hitproof.spec.claims import CLAIMS, Basis, Clause, Status, basis
from hitproof.spec.groups import GroupKind
from hitproof.spec.terms import TESTED
from hitproof.spec.tests import (
    test_admission,
    test_attention,
    test_connector,
    test_eviction,
    test_fine,
    test_groups,
    test_hits,
    test_mask,
    test_pool,
    test_retention,
    test_sequential,
    test_sharing,
    test_terms,
    test_tiers,
)

pytestmark = pytest.mark.slow

TESTS = (
    test_terms,
    test_pool,
    test_eviction,
    test_admission,
    test_sharing,
    test_attention,
    test_groups,
    test_hits,
    test_mask,
    test_retention,
    test_sequential,
    test_fine,
    test_connector,
    test_tiers,
    test_lookup,
)

PARTS = 16
"""The number of tests that the mutants are split into."""


@cache
def exhaustive_tests() -> list[tuple[str, Callable[[], object]]]:
    """The tests of the spec and the reference, the quickest first. None draws at random.

    The one that failed last is moved to the front: it is likely to notice the next mutant, too.
    """

    def seconds(named: tuple[str, Callable[[], object]]) -> float:
        start = process_time()
        named[1]()
        return process_time() - start

    tests = [
        (name, test)
        for module in TESTS
        for name, test in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and not hasattr(test, "hypothesis")
    ]
    return sorted(tests, key=seconds)


@cache
def lines_tested() -> dict[Callable[[], object], set[Line]]:
    """The lines of the spec that each test runs, with their files."""
    return {test: lines_run(test) for _, test in exhaustive_tests()}


def broken_test(mutant: Mutant | None = None) -> str | None:
    """The first test that fails. One that does not run the line of the mutant cannot."""
    tests = exhaustive_tests()
    changed = set[Line]() if mutant is None else lines_changed(mutant)
    for position, (name, test) in enumerate(tests):
        if changed and changed.isdisjoint(lines_tested()[test]):
            continue
        try:
            test()
        except (Exception, pytest.fail.Exception):
            tests.insert(0, tests.pop(position))
            return name
    return None


@cache
def obligations() -> list[Obligation]:
    """What the theorems state. The one that was lost last is moved to the front."""
    return [obligation for theorem in THEOREMS.values() for obligation in theorem.obligations]


def lost_theorem() -> str | None:
    """The first obligation that is not proved any more."""
    solver, stated = Solver(DEFAULTS), obligations()
    for position, obligation in enumerate(stated):
        try:
            proved, _ = solver.proves(obligation.state, obligation.interpretation)
        except Exception:
            proved = False
        if not proved:
            stated.insert(0, stated.pop(position))
            return obligation.name
    return None


def small_grid() -> Iterator[Configuration]:
    """New configurations each time: one keeps the geometry that it has once computed."""
    for eagle in (False, True):
        for segment in (1, 2):
            yield single_group(GroupKind.FULL_ATTENTION, 2, segment, None, eagle, 6)
            for window in (2, 3, 5):
                yield single_group(GroupKind.SLIDING_WINDOW, 2, segment, window, eagle, 6)


def diverging_check() -> str | None:
    """The first check that finds something wrong with the reference."""
    try:
        for configuration in small_grid():
            for check in (check_lookup, check_mask):
                result = check(ReferenceSubject(), configuration)
                if set(result.statuses.values()) != {Status.PROVED}:
                    return check.__name__
    except Exception:
        return "small_grid"
    return None


def caught_by(mutant: Mutant) -> str | None:
    """What notices the mutant. One that is said to mean the same is spared the slow ones."""
    lines_tested()  # while nothing is wrong
    with mutant.applied():
        noticed = broken_test(mutant)
        if noticed or mutant.name in EQUIVALENT:
            return noticed
        return lost_theorem() or diverging_check()


@pytest.mark.long
def test_nothing_is_wrong_with_the_spec_itself() -> None:
    assert broken_test() is None
    assert lost_theorem() is None
    assert diverging_check() is None


def complaints(caught: dict[str, str | None], equivalent: dict[str, str]) -> list[str]:
    """What is wrong with what was caught, or with the list of mutants that mean the same."""
    survivors = {name for name, catcher in caught.items() if catcher is None}
    return [
        *(f"nothing catches {name}" for name in sorted(survivors - equivalent.keys())),
        *(
            f"listed, but caught: {name}"
            for name in sorted(equivalent.keys() & (caught.keys() - survivors))
        ),
        *(f"listed, but gone: {name}" for name in sorted(equivalent.keys() - caught.keys())),
    ]


def test_each_way_to_be_wrong_is_a_complaint() -> None:
    caught = {"a": "a test", "b": None, "c": None}
    assert complaints(caught, {"b": "same", "c": "same"}) == []
    assert complaints(caught, {"b": "same"}) == ["nothing catches c"]
    assert complaints(caught, dict.fromkeys("abc", "same")) == ["listed, but caught: a"]
    assert complaints(caught, dict.fromkeys("bcd", "same")) == ["listed, but gone: d"]


def test_mutants_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in all_mutants()]
    assert len(names) >= 40
    assert len(set(names)) == len(names)
    assert EQUIVALENT.keys() | SAME_WHERE_ASKED.keys() <= set(names)
    assert EQUIVALENT.keys().isdisjoint(SAME_WHERE_ASKED)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_each_mutant_is_caught_or_means_the_same(part: int) -> None:
    generated = list(all_mutants())[part::PARTS]
    caught = {mutant.name: caught_by(mutant) for mutant in generated}
    catchers = Counter(caught.values())
    print(f"{len(generated)} mutants, {catchers.pop(None, 0)} not caught; caught by {catchers}")
    same = {name: reason for name, reason in EQUIVALENT.items() if name in caught}
    assert complaints(caught, same) == []


CITED: dict[str, Clause] = {
    clause.__name__: clause for claim in CLAIMS.values() for clause in claim.clauses
}


def unlike_its_label(clause: str, survivors: list[str]) -> str:
    """What is wrong with the label of a clause, given the mutants that no theorem notices."""
    differing = [name for name in survivors if name not in EQUIVALENT | SAME_WHERE_ASKED]
    label = basis(CITED[clause])
    if label is Basis.PROVED and differing:
        return f"{clause} is called proved, but no theorem notices {differing[0]}"
    if label is Basis.TESTED and not differing:
        return f"{clause} is called tested, but theorems notice each change of it"
    return ""


def mutants_of(clause: str) -> list[Mutant]:
    stated = inspect.unwrap(CITED[clause])
    return [each for each in all_mutants({clause}) if each.function is stated]


@pytest.mark.long
@pytest.mark.parametrize("clause", sorted(CITED))
def test_a_clause_is_called_proved_if_theorems_notice_each_change_of_it(clause: str) -> None:
    generated = mutants_of(clause)
    assert generated or clause == "is_real"  # which has nothing to change
    survivors = [mutant.name for mutant in generated if noticed_by(mutant) is None]
    assert unlike_its_label(clause, survivors) == ""


@pytest.mark.parametrize("clause", ["fits", "can_be_reset"])
def test_a_sample_of_the_same(clause: str) -> None:
    for mutant in mutants_of(clause):
        assert noticed_by(mutant) or mutant.name in EQUIVALENT


def test_theorems_notice_a_hit_that_is_valid_for_some_group() -> None:
    """What is said of all groups is proved of any number of them."""
    (mutant,) = (each for each in mutants_of("valid_hit") if "-> for_some(" in each.name)
    assert noticed_by(mutant) is not None
    assert basis(CITED["valid_hit"]) is Basis.PROVED


def test_a_change_that_no_theorem_notices_makes_a_clause_tested() -> None:
    unnoticed = [each for each in mutants_of("horizon") if noticed_by(each) is None]
    assert not EQUIVALENT.keys() >= {each.name for each in unnoticed}
    assert basis(CITED["horizon"]) is Basis.TESTED


def test_a_wrong_label_is_a_complaint() -> None:
    (proved, tested) = ("within_reach", min(clause.__name__ for clause in TESTED))
    assert unlike_its_label(proved, []) == unlike_its_label(tested, ["other"]) == ""
    assert "is called proved, but no theorem notices other" in unlike_its_label(proved, ["other"])
    assert unlike_its_label(proved, [next(iter(EQUIVALENT))]) == ""
    assert "is called tested, but theorems notice" in unlike_its_label(tested, [])
