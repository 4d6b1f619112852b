"""`hitproof diff`: what changes between real releases, and for one line of a checkout."""

from functools import cache

import pytest

from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.diff import Diff, difference
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, limits
from hitproof.vllm_integration.verdict import Verdict

pytestmark = pytest.mark.release


SOME = ("window 5", "window 9", "Gemma", "family history 0.0")
"""Windows in one group, a model that has them beside full attention, and a history."""


@cache
def report(target: str) -> Report:
    """What a target does, as `hitproof diff --quick` finds it on some configurations."""
    wanted = Wanted(Selection(configurations=SOME))
    run = Run(resolve(target), Profile.QUICK, limits=limits(300.0), keep_facts=True, wanted=wanted)
    return gate.check(run, lambda *_: None)


def between(base: str, head: str) -> Diff:
    return difference(report(base), report(head))


def effects(diff: Diff) -> set[Effect]:
    return {group.smallest.effect for group in diff.groups}


@pytest.mark.long
def test_the_repair_of_eagle_gains_hits_and_brings_retention() -> None:
    diff = between("0.22.1", "0.23.0")
    gained = [group for group in diff.groups if group.smallest.effect is Effect.GAINED]
    assert gained
    assert all(group.smallest.judged.drops_block for group in gained)
    assert any("EAGLE" in model for group in gained for model in group.models)
    assert ("sparse_retention", "none", "windows") in diff.policies
    assert not effects(diff) & {Effect.LOST, Effect.UNSOUND, Effect.CRASH}


@pytest.mark.long
def test_the_way_back_loses_hits() -> None:
    diff = between("0.23.0", "0.22.1")
    assert Effect.LOST in effects(diff)
    assert diff.verdict is Verdict.DIVERGES
    assert diff.brought


@pytest.mark.long
def test_a_release_does_what_it_does() -> None:
    known = report("0.23.0")
    diff = difference(known, known)
    assert not diff.changed
    assert diff.open_questions == []
    assert diff.verdict is Verdict.CONFORMS
    assert diff.proved
    assert diff.shared


@pytest.mark.long
def test_one_line_of_the_mask_changes_just_what_it_decides(broken_copy: Copy) -> None:
    """The mask of sliding windows leaves the lookahead block out again."""
    edits = {"shift = 1 if use_eagle else 0": "shift = 0"}
    root = broken_copy("0.23.0", edits)
    diff = between("0.23.0", str(root))
    assert diff.verdict is Verdict.DIVERGES
    assert {group.smallest.judged.kinds for group in diff.groups} == {"sliding_window"}
    assert all(group.smallest.judged.drops_block for group in diff.groups)
    assert Effect.LOST in effects(diff)
    assert not diff.policies
