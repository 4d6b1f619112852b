"""Several MTP modules: draft layers look further ahead than the next token."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import pytest

from hitproof.conformance.checks.lookup import check_common_hit
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.plays import Abilities, possible
from hitproof.conformance.histories.schema import EngineConfiguration, History, HistoryError
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.lookups import Lookup
from hitproof.conformance.subject.managers import ManagerSubject
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.reference_subject import ReferenceCommonLookup, ReferenceSubject
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import ConfigurationError, Group, GroupKind, geometry
from hitproof.spec.releases.fine import is_fine_grained

LAYOUTS = [layout for layout in layouts(Profile.QUICK) if layout.prefill_lookahead > 1]


class DropsOneBlock(ReferenceSubject):
    """The reference, but a group drops one block however far its draft layers look ahead."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Layout)
        groups = tuple(replace(group, prefill_lookahead=1) for group in judged.groups)
        return ReferenceCommonLookup(replace(judged, groups=groups), self.lookahead_horizon)


@pytest.mark.parametrize(
    ("ahead", "size", "blocks"),
    [(1, 1, 1), (1, 16, 1), (2, 2, 1), (2, 1, 2), (5, 4, 2), (16, 16, 1)],
)
def test_a_group_drops_the_blocks_that_its_draft_layers_look_ahead(
    ahead: int, size: int, blocks: int
) -> None:
    group = Group(GroupKind.FULL_ATTENTION, size, eagle=True, prefill_lookahead=ahead)
    assert geometry(group, size).lookahead == blocks
    assert geometry(replace(group, eagle=False), size).lookahead == 0


def test_draft_layers_look_ahead() -> None:
    with pytest.raises(ConfigurationError, match="prefill_lookahead"):
        Group(GroupKind.FULL_ATTENTION, 1, prefill_lookahead=0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.describe)
def test_one_block_is_too_little_where_it_is_shorter(layout: Layout) -> None:
    assert Layout.from_json(json.loads(json.dumps(layout.as_json()))) == layout
    assert "2 MTP modules" in layout.describe()
    right = check_common_hit(ReferenceSubject(), layout)
    assert set(right.statuses.values()) == {Status.PROVED}
    result = check_common_hit(DropsOneBlock(), layout)
    short = any(2 > each.group.block_size for each in layout.looked_up if each.group.eagle)
    assert (Status.REFUTED in result.statuses.values()) is short
    for evidence in result.evidence:
        assert dict(evidence.signature.defect.parameters)["modules"] == "several"
        assert Evidence.from_json(json.loads(json.dumps(evidence.as_json()))) == evidence
    kinds = {(e.signature.code, e.signature.divergence) for e in result.evidence}
    lacking = {(Code.GROUP_LACKS_BLOCK, Divergence.WRONG_DRAFTS)}
    assert kinds - {(Code.HIT_TOO_SHORT, Divergence.LOST_HIT)} == (lacking if short else set())


@cache
def histories() -> tuple[History, ...]:
    """Those of hits that end on boundaries, which the reference can play."""
    return tuple(
        history
        for history in series("modules")
        if not is_fine_grained(history.engine.groups, history.engine.hash_block_size)
    )


def shown(played: Iterable[History], subject: ManagerSubject) -> set[tuple[str, str, bool]]:
    """Classes and codes of what breaks by itself, and whether several modules are part of it."""
    return {
        (
            str(found.signature.divergence),
            str(found.signature.code),
            "modules" in dict(found.signature.defect.parameters),
        )
        for history in played
        for found in replay(history, subject).findings
        if found.cause is None
    }


def test_engines_look_ahead_less_than_a_block_as_much_and_more() -> None:
    engines = [history.engine for history in series("modules")]
    assert {1, 2, 3} <= {engine.num_prefill_lookahead for engine in engines}
    dropped = {
        group.block_size - group.prefill_lookahead
        for engine in engines
        for group in engine.groups
        if group.eagle and engine.use_eagle_block_drop
    }
    assert {0, -1} < dropped
    fine = [e for e in engines if is_fine_grained(e.groups, e.hash_block_size)]
    assert {e.hash_block_size - e.num_prefill_lookahead for e in fine} >= {0, -1}
    assert all(engine.num_prefill_lookahead <= engine.alignment for engine in engines)


def test_the_reference_conforms() -> None:
    assert not shown(histories(), ReferenceManagers())
    judged = [replay(history, ReferenceManagers()).lookups for history in histories()]
    assert all(any(lookup.due for lookup in lookups) for lookups in judged)


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("subject", "found"),
    [
        (broken.LooksOneTokenAhead(), ("wrong drafts", "hit-too-long", True)),
        (broken.RegistersDrafts(), ("wrong drafts", "draft-entry-of-other-token", False)),
        (broken.RegistersLate(), ("lost hit", "lookahead-block-unregistered", False)),
        (broken.FreesTheWindowOfDrafts(), ("wrong drafts", "null-block-read", False)),
    ],
)
def test_a_broken_manager_is_noticed(subject: ManagerSubject, found: tuple[str, str, bool]) -> None:
    assert found in shown(histories(), subject)


def test_entries_of_drafts_are_told_apart() -> None:
    found = {
        dict(each.signature.defect.parameters).get("of")
        for history in histories()
        for each in replay(history, broken.RegistersDrafts()).findings
        if each.signature.code is Code.DRAFT_ENTRY_OF_OTHER_TOKEN
    }
    assert found == {"drafts"}


def test_where_there_is_one_module_they_are_histories_of_one() -> None:
    for history in series("modules"):
        engine = possible(history, Abilities(looks_ahead=False)).engine
        assert engine.num_prefill_lookahead == 1


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"use_eagle": False}, "set use_eagle"),
        ({"num_hash_lookahead_tokens": 1}, "to 2, or to 0"),
        ({"groups": (Group(GroupKind.FULL_ATTENTION, 2, prefill_lookahead=2),) * 2}, ""),
        (
            {
                "groups": (
                    Group(GroupKind.FULL_ATTENTION, 2, prefill_lookahead=2),
                    Group(GroupKind.SLIDING_WINDOW, 2, 3),
                )
            },
            "the same prefill_lookahead",
        ),
    ],
)
def test_engines_that_cannot_be(changes: dict[str, object], remedy: str) -> None:
    group = Group(GroupKind.FULL_ATTENTION, 2, prefill_lookahead=2)
    engine = EngineConfiguration((group,), 10, 2, 16, use_eagle=True)
    if not remedy:
        assert replace(engine, **changes).num_prefill_lookahead == 2  # type: ignore[arg-type]  # by name
        return
    with pytest.raises(HistoryError, match=remedy):
        replace(engine, **changes)  # type: ignore[arg-type]  # by name
