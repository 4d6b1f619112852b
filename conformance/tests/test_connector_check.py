"""The check of what KV connectors are told, on the reference and on broken subjects."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.connector import check_local_prefix, is_judged
from hitproof.conformance.checks.registry import is_about
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.explain.story import ToldFinding, tell
from hitproof.conformance.findings.evidence import Evidence, smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.playing.expectations import LocalPrefix
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.reproduce.attempts import Rules
from hitproof.conformance.reproduce.reproduction import reproduce
from hitproof.conformance.scope.layouts import Layout, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.managers import Hit
from hitproof.conformance.tests.broken_managers import (
    Broken,
    ConnectorFlagsNothing,
    Wrapped,
    patched,
)
from hitproof.conformance.tests.editing import CASES, function
from hitproof.conformance.tests.reference_subject import ReferenceConnectorLookup, ReferenceSubject
from hitproof.reference.spec_groups import find_hit
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
STATES_ONLY, LONGEST = "local_prefix_lacks_states_only", "local_prefix_is_the_longest"
PAIR = Layout((Group(FULL, 1), Group(MAMBA, 1)), 4, False, 1)
THREE = Layout((Group(FULL, 1), Group(SLIDING, 1, 2), Group(MAMBA, 1)), 4, False, 1)
RULES = Rules(LookaheadHorizon.HASHED, EagleGroups.FLAGGED)

Told = Callable[["Telling", Any, int], LookupAnswer]
"""Another answer for connectors, given a pool and how many tokens may be served."""


class Telling(ReferenceConnectorLookup):
    """A lookup that tells connectors something else."""

    def __init__(self, layout: Layout, told: Told) -> None:
        super().__init__(layout, LookaheadHorizon.HASHED)
        self._told = told

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        return self._told(self, pool, max_length)

    def right(self, pool: Any, max_length: int) -> LookupAnswer:
        """What the reference tells."""
        return super().__call__(pool, max_length)

    def shared_hit(self, pool: Any, max_length: int) -> LookupAnswer:
        """The hit that all groups share."""
        hit = find_hit(*self._arguments(max_length), pool)
        return LookupAnswer(hit.length, hit.blocks)

    def alone(self, pool: Any, max_length: int) -> tuple[list[int], list[Sequence[Any]]]:
        """The hit and the table of each group by itself."""
        groups, count, hashes, cap, horizon = self._arguments(max_length)
        tables: list[Sequence[Any]] = [()] * count
        hits = [0] * count
        for group in groups:
            for group_id, table in zip(
                group.group_ids, group.tables(hashes, cap, horizon, pool), strict=True
            ):
                tables[group_id], hits[group_id] = table, len(table) * group.block_size
        return hits, tables


class Teller(ReferenceSubject):
    """The reference that tells connectors something else."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def connector_lookup(self, layout: Layout) -> Lookup:
        return Telling(layout, self._told)


ROWS = tomllib.loads((CASES / "lookups.toml").read_text("utf-8"))["connector"]
TOLD: dict[str, Told] = {
    name: function("told", "lookup, pool, max_length", row["told"], globals())
    for name, row in ROWS.items()
}
CONNECTOR_BROKEN = {
    name: (Teller(TOLD[name]), row["claim"], Code(row["code"])) for name, row in ROWS.items()
}


def judged(profile: Profile) -> list[Layout]:
    return [layout for layout in layouts(profile) if is_judged(layout)]


def test_the_reference_conforms() -> None:
    for layout in judged(Profile.QUICK):
        result = check_local_prefix(ReferenceSubject(), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, (layout.describe(), result)
        assert result.paths


@pytest.mark.parametrize("name", CONNECTOR_BROKEN)
def test_each_fault_is_refuted_shrunk_shown_and_told(name: str) -> None:
    subject, claim, code = CONNECTOR_BROKEN[name]
    for layout in judged(Profile.QUICK):
        result = check_local_prefix(subject, layout)
        if result.statuses[claim] is Status.REFUTED:
            found = smallest(result.evidence)
            assert code in {key.code for key in found}
            evidence = next(item for key, item in found.items() if key.claim == claim)
            assert Evidence.from_json(evidence.as_json()) == evidence
            small = shrink(subject, evidence)
            assert small.signature == evidence.signature
            assert small.size <= evidence.size
            shown = finding(small, "f:1")
            assert shown.sentence == CLAIMS[claim].sentence
            assert shown.given[-1].startswith("a KV connector loads")
            story = tell(ToldFinding.model_validate(shown.as_json()))
            assert "hit" not in " ".join(chapter.title for chapter in story.chapters)
            return
    pytest.fail("not refuted")


def codes(told: Told, layout: Layout) -> set[str]:
    return {str(e.signature.defect) for e in check_local_prefix(Teller(told), layout).evidence}


def test_the_faults_of_0_33_are_told_apart() -> None:
    longer, shorter = (f"local-prefix-too-short(alone={alone})" for alone in ("yes", "no"))
    assert codes(TOLD["the first group decides"], PAIR) == {longer}
    assert codes(TOLD["the shared hit"], PAIR) == {longer, shorter}
    lacking = "local-prefix-lacks-block(block=required, flagged=yes)"
    assert codes(TOLD["the first group decides"], THREE) == {longer, lacking}


def keeping_count(told: Told) -> Told:
    """The same answers, by a lookup that counts its calls, so that it cannot be explored."""
    calls: list[int] = []

    def counting(lookup: Telling, pool: Any, max_length: int) -> LookupAnswer:
        calls.append(max_length)
        return told(lookup, pool, max_length)

    return counting


def test_wrong_answers_are_found_where_the_lookup_cannot_be_explored() -> None:
    for told, found in (
        (TOLD["never flagged"], {STATES_ONLY}),
        (TOLD["one token less"], {LONGEST}),
    ):
        result = check_local_prefix(Teller(keeping_count(told)), PAIR)
        assert {claim for claim, s in result.statuses.items() if s is Status.REFUTED} == found
        assert Status.PROVED not in result.statuses.values()
        assert (bool(result.runs), result.paths, bool(result.detail)) == (True, 0, True)
    result = check_local_prefix(Teller(keeping_count(Telling.right)), PAIR)
    assert (set(result.statuses.values()), result.evidence) == ({Status.INCONCLUSIVE}, ())


def test_layouts_without_a_state_or_with_hits_inside_blocks_settle_nothing() -> None:
    fine = Layout((Group(FULL, 1), Group(MAMBA, 2)), 4, False, 1)
    without, alone = Layout(THREE.groups[:2], 4, False, 1), Layout(PAIR.groups[1:], 4, False, 1)
    for layout in (fine, without, alone):
        assert check_local_prefix(ReferenceSubject(), layout).statuses == {}
        assert not is_about(LONGEST, layout)
    assert is_about(LONGEST, PAIR)
    assert any(layout.model for layout in judged(Profile.DEFAULT))


TellsTheSharedHit = patched(
    "TellsTheSharedHit",
    get_computed_blocks_for_connector=lambda m, name: (m.inner.get_computed_blocks(name), False),
)


class FullAttentionDecides(Wrapped):
    """A manager that tells connectors of what full attention, its first group, holds."""

    def get_computed_blocks_for_connector(self, name: str) -> tuple[Hit, bool]:
        held = 0
        for key in self.inner.block_keys(name, 0)[:-1]:
            if not self.inner.cached_blocks(0, key):
                break
            held += self.inner._engine.groups[0].block_size
        return Hit(held, ()), True


def smallest_against(told: Told, claim: str, layout: Layout) -> Evidence:
    found = check_local_prefix(Teller(told), layout).evidence
    return min((e for e in found if e.signature.claim == claim), key=lambda e: e.size)


SHOWN = {
    "too short": (smallest_against(TOLD["the shared hit"], LONGEST, PAIR), TellsTheSharedHit),
    "not flagged": (
        smallest_against(TOLD["never flagged"], STATES_ONLY, PAIR),
        ConnectorFlagsNothing,
    ),
    "a window lacks blocks": (
        smallest_against(TOLD["the first group decides"], STATES_ONLY, THREE),
        FullAttentionDecides,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_fault_is_shown_on_a_manager_that_has_it_and_on_no_other(name: str) -> None:
    evidence, manager = SHOWN[name]
    found = reproduce(evidence, Broken(manager), RULES)
    assert (found.detail, type(found.expected)) == ("", LocalPrefix)
    right = reproduce(evidence, ReferenceManagers(), RULES)
    assert right.history is None
    assert right.detail == "the manager does what the spec demands there"


def test_another_fault_is_not_taken_for_this_one() -> None:
    evidence, _ = SHOWN["a window lacks blocks"]
    lost = replace(evidence, signature=SHOWN["too short"][0].signature)
    found = reproduce(lost, Broken(FullAttentionDecides), RULES)
    assert "wrong in another way" in found.detail
