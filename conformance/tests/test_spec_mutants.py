"""Whatever single point of the spec is changed, a test, a theorem or a check notices.

The mutants are generated from the spec's text, so a new clause brings its own. What catches
them: the token-level tests of `spec` and the tests of `reference`, then the theorems, then the
checks on the reference, cheapest first. A mutant that nothing catches must be listed below, with
the reason why it means the same.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from time import process_time
from types import FrameType
from typing import Any, TypeAlias

import pytest

from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.mutation import Mutant, mutants
from hitproof.conformance.reference.subject import ReferenceSubject
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.proofs.obligation import Obligation
from hitproof.proofs.prover import DEFAULTS, Solver
from hitproof.proofs.theorems import THEOREMS
from hitproof.reference.tests import test_lookup
from hitproof.spec import (
    admission,
    attention,
    connector,
    eviction,
    groups,
    hits,
    mask,
    pool,
    retention,
    sharing,
    terms,
)
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases import fine, horizons, sequential
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
)

pytestmark = pytest.mark.slow

MUTATED = (
    terms,
    attention,
    groups,
    hits,
    mask,
    retention,
    sharing,
    pool,
    eviction,
    admission,
    horizons,
    sequential,
    fine,
    connector,
)
"""All of the spec but the registry, which states no predicate."""

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
    test_lookup,
)

ORDER = (
    "the greater, the lesser, the sum, the product and either of two do not depend on their order"
)
NOT_LOOKED_AT = "no clause reads the tail or the chunk of a kind that has none"
SAME = "the two are the same"
ZERO_IS_PAST = "length 0 is handled before"
TOO_HIGH = "the scan starts higher, at lengths that are beyond the cap and so not valid"

PARTS = 16
"""Into so many tests the mutants are split."""

EQUIVALENT: dict[str, str] = {
    "spec.admission.first_token_read: arithmetic.maximum(0, query - window + 1) -> "
    "arithmetic.maximum(query - window + 1, 0)": ORDER,
    "spec.admission.blocks_at_once: states_at_once(drafts, exports) -> "
    "states_at_once(exports, drafts)": ORDER,
    "spec.admission.blocks_at_once: "
    "min(tokens_at_once(step + again, group.window, group.chunk), num_tokens) -> "
    "min(num_tokens, tokens_at_once(step + again, group.window, group.chunk))": ORDER,
    "spec.retention.resend_cap: arithmetic.maximum(1, hash_lookahead_tokens) -> "
    "arithmetic.maximum(hash_lookahead_tokens, 1)": ORDER,
    "spec.retention.serves_follow_ups: arithmetic.maximum(next_boundary(group, block, arithmetic), "
    "extension + group.segment) -> arithmetic.maximum(extension + group.segment, "
    "next_boundary(group, block, arithmetic))": ORDER,
    "spec.releases.fine.witness_unit: "
    "arithmetic.times(block, units) -> arithmetic.times(units, block)": (ORDER),
    "spec.releases.fine.witness_end: "
    "arithmetic.times(block_of(unit, units, arithmetic) + 1, units) -> "
    "arithmetic.times(units, block_of(unit, units, arithmetic) + 1)": ORDER,
    "spec.releases.fine.witness_entries: min(end, horizon // hash_block_size) -> "
    "min(horizon // hash_block_size, end)": ORDER,
    "spec.releases.fine.is_held: "
    "arithmetic.minimum(witness_end(kind, unit, units, arithmetic), horizon_units) -> "
    "arithmetic.minimum(horizon_units, witness_end(kind, unit, units, arithmetic))": ORDER,
    "spec.releases.sequential.valid_without_margin: "
    "valid_boundary(group, boundary, candidate, candidate, cached, arithmetic) -> "
    "valid_boundary(group, boundary, candidate, candidate, cached, arithmetic)": SAME,
    "spec.releases.sequential.longest_joint_hit: horizon(policy, num_tokens, candidate) -> "
    "horizon(num_tokens, policy, candidate)": "only one policy gets there, and its horizon is the "
    "candidate, whatever the request",
    "spec.releases.sequential.longest_joint_hit: "
    "policy is not LookaheadHorizon.CANDIDATE or not one_pass_suffices(groups) -> "
    "not one_pass_suffices(groups)": "with a fixed horizon, one pass leaves the longest valid hit, "
    "too",
    "spec.releases.sequential.longest_joint_hit: "
    "longest_valid_hit(asked, alignment_tokens, candidate, peek, cached) -> "
    "longest_valid_hit(asked, alignment_tokens, peek, candidate, cached)": SAME,
    "spec.retention.junction_boundary: "
    "replay_boundary(shared, shared, lookahead_tokens, alignment_tokens, arithmetic) -> "
    "replay_boundary(shared, shared, lookahead_tokens, alignment_tokens, arithmetic)": SAME,
    "spec.terms.IntegerArithmetic.maximum: max(left, right) -> max(right, left)": ORDER,
    "spec.hits.required_run: max(run_start(group, boundary), 0) -> "
    "max(0, run_start(group, boundary))": ORDER,
    "spec.terms.IntegerArithmetic.minimum: min(left, right) -> min(right, left)": ORDER,
    "spec.hits.run_start: arithmetic.times(boundary, group.block_size) -> "
    "arithmetic.times(group.block_size, boundary)": ORDER,
    "spec.hits.has_required_run: arithmetic.maximum(run_start(group, boundary, arithmetic), 0) -> "
    "arithmetic.maximum(0, run_start(group, boundary, arithmetic))": ORDER,
    "spec.retention.replay_boundary: arithmetic.minimum(cap, horizon_tokens - lookahead_tokens) -> "
    "arithmetic.minimum(horizon_tokens - lookahead_tokens, cap)": ORDER,
    "spec.retention.replay_boundary: "
    "arithmetic.maximum(arithmetic.multiple_at_most(limit, alignment_tokens), 0) -> "
    "arithmetic.maximum(0, arithmetic.multiple_at_most(limit, alignment_tokens))": ORDER,
    "spec.pool.vacancy: arithmetic.maximum(1 - block.ref_count, 0) -> "
    "arithmetic.maximum(0, 1 - block.ref_count)": ORDER,
    "spec.mask.next_boundary: arithmetic.maximum(passed + group.segment, group.segment) -> "
    "arithmetic.maximum(group.segment, passed + group.segment)": ORDER,
    "spec.groups.share_eagle: drops_block(use_eagle, group in flagged, none_flagged) -> "
    "drops_block(use_eagle, none_flagged, group in flagged)": ORDER,
    "spec.groups.geometry: 0 -> 1": NOT_LOOKED_AT,
    "spec.groups.geometry: 0 -> -1": NOT_LOOKED_AT,
    "spec.groups.geometry: 1 if group.chunk is None else group.chunk -> group.chunk": NOT_LOOKED_AT,
    "spec.groups.geometry: 1 -> 2 #2": NOT_LOOKED_AT,
    "spec.groups.geometry: 1 -> 0 #2": NOT_LOOKED_AT,
    "spec.hits.run_start: 0 -> -1": "a start below 0 means from block 0",
    "spec.hits.valid_hit: length < 0 -> length <= 0": ZERO_IS_PAST,
    "spec.hits.valid_hit: 0 -> 1 #2": ZERO_IS_PAST,
    "spec.hits.longest_valid_hit: cap // alignment_tokens -> cap * alignment_tokens": TOO_HIGH,
    "spec.hits.longest_valid_hit: cap // alignment_tokens -> cap": TOO_HIGH,
    "spec.hits.longest_valid_hit: 0 -> -1": "the scan also tries length 0, which is valid",
}
"""Mutants that mean the same as the spec, and why."""


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


Line: TypeAlias = tuple[str, int]


@cache
def lines_run() -> dict[Callable[[], object], set[Line]]:
    """The lines of the spec that each test runs, with their files."""
    files = {module.__file__ for module in MUTATED}
    run: dict[Callable[[], object], set[Line]] = {}
    for _, test in exhaustive_tests():
        lines = run[test] = set()

        def in_spec(frame: FrameType, event: str, _: Any, lines: set[Line] = lines) -> Any:
            if event == "line":
                lines.add((frame.f_code.co_filename, frame.f_lineno))
            return in_spec

        def in_any(frame: FrameType, _: str, __: Any, here: Any = in_spec) -> Any:
            return here if frame.f_code.co_filename in files else None

        before = sys.gettrace()
        sys.settrace(in_any)
        try:
            test()
        finally:
            sys.settrace(before)
    return run


def broken_test(mutant: Mutant | None = None) -> str | None:
    """The first test that fails. One that does not run the line of the mutant cannot."""
    tests = exhaustive_tests()
    changed: set[Line] = set()
    if mutant is not None:
        first, last = mutant.lines
        file = mutant.function.__code__.co_filename
        changed = {(file, line) for line in range(first, last + 1)}
    for position, (name, test) in enumerate(tests):
        if changed and changed.isdisjoint(lines_run()[test]):
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
    lines_run()  # while nothing is wrong
    with mutant.applied():
        noticed = broken_test(mutant)
        if noticed or mutant.name in EQUIVALENT:
            return noticed
        return lost_theorem() or diverging_check()


def all_mutants() -> list[Mutant]:
    return [mutant for module in MUTATED for mutant in mutants(module)]


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
    assert EQUIVALENT.keys() <= set(names)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_each_mutant_is_caught_or_means_the_same(part: int) -> None:
    generated = all_mutants()[part::PARTS]
    caught = {mutant.name: caught_by(mutant) for mutant in generated}
    catchers = Counter(caught.values())
    print(f"{len(generated)} mutants, {catchers.pop(None, 0)} not caught; caught by {catchers}")
    same = {name: reason for name, reason in EQUIVALENT.items() if name in caught}
    assert complaints(caught, same) == []
