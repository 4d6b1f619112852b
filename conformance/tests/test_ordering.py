"""Groups come in any order, and a history says the same of each in either."""

from collections.abc import Iterable, Sequence

import pytest

from hitproof.conformance.histories.plays import Abilities, Play, plays, turned, turned_workload
from hitproof.conformance.histories.schema import Evict, Expect, History, Hold
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManager
from hitproof.conformance.scope.layouts import layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.managers import Manager
from hitproof.conformance.tests.broken_managers import Broken, ShorterHit
from hitproof.conformance.tests.test_replay import REFERENCE, shown
from hitproof.spec.groups import Group, GroupKind

MANAGERS = [p.history(Abilities()) for p in plays(Profile.QUICK, True) if not p.of_scheduler]
SEVERAL = [h for h in MANAGERS if len({group.kind for group in h.engine.groups}) > 1]
PLAIN = [h for h in SEVERAL if h.engine.mamba_checkpoint_alignment is None]


def test_turning_twice_changes_nothing() -> None:
    for history in SEVERAL:
        assert turned(turned(history)) == history
    for play in plays(Profile.QUICK, True):
        if play.of_scheduler:
            made = play.workload()
            assert turned_workload(turned_workload(made)) == made


def test_a_step_names_the_same_group() -> None:
    named = [(h, s) for h in SEVERAL for s in h.steps if isinstance(s, Evict | Hold)]
    assert named
    for history, step in named:
        after = turned(history)
        other = after.steps[history.steps.index(step)]
        assert isinstance(other, Evict | Hold)
        assert after.engine.groups[other.group] == history.engine.groups[step.group]
    history = SEVERAL[0]
    said = tuple((number,) for number, _ in enumerate(history.engine.groups))
    history = type(history)(
        history.engine,
        history.requests,
        (Expect(next(iter(history.requests)), tables=said, cached=said),),
    )
    (expected,) = turned(history).steps
    assert expected == Expect(next(iter(history.requests)), tables=said[::-1], cached=said[::-1])


@pytest.mark.parametrize("history", PLAIN[::20])
def test_the_reference_conforms_in_either_order(history: History) -> None:
    for each in (history, turned(history)):
        assert shown(replay(each, REFERENCE)) == []


@pytest.mark.parametrize("profile", [Profile.QUICK, Profile.DEFAULT])
def test_any_kind_comes_first(profile: Profile) -> None:
    replayed = groups_of(plays(profile, True))
    assert comes_first_often(replayed)
    for groups in (replayed, [layout.groups for layout in layouts(profile) if not layout.model]):
        mixed = [each for each in groups if GroupKind.FULL_ATTENTION in {g.kind for g in each[1:]}]
        kinds = {each[0].kind for each in mixed}
        assert kinds >= {GroupKind.SLIDING_WINDOW, GroupKind.MAMBA}


def test_that_full_attention_comes_first_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitproof.conformance.histories.plays.is_turned", lambda _: False)
    assert not comes_first_often(groups_of(plays(Profile.QUICK, True)))


def test_a_manager_that_wants_full_attention_first_is_caught() -> None:
    def wrap(manager: ReferenceManager) -> Manager:
        first = manager._engine.groups[0]
        return ShorterHit(manager) if first.kind is not GroupKind.FULL_ATTENTION else manager

    # From generated histories, which hit something.
    seen = {
        order.__name__: {
            each.split("(")[0]
            for history in PLAIN[:40]
            if history.engine.groups[0].kind is GroupKind.FULL_ATTENTION
            for each in shown(replay(order(history), Broken(wrap)))
        }
        for order in (as_it_is, turned)
    }
    assert seen["as_it_is"] == set()
    assert "lost hit: hit-too-short" in seen["turned"]


def as_it_is(history: History) -> History:
    return history


def groups_of(every: Iterable[Play]) -> list[tuple[Group, ...]]:
    return [
        play.workload().deployment.groups
        if play.of_scheduler
        else play.history(Abilities()).engine.groups
        for play in every
    ]


def comes_first_often(replayed: Sequence[tuple[Group, ...]]) -> bool:
    """Whether another kind than full attention comes first in a third of those with both."""
    kinds = [[group.kind for group in groups] for groups in replayed]
    mixed = [each for each in kinds if len(set(each)) > 1 and GroupKind.FULL_ATTENTION in each]
    return 3 * sum(each[0] is not GroupKind.FULL_ATTENTION for each in mixed) > len(mixed)


def test_a_history_that_is_written_out_keeps_its_order() -> None:
    assert Play.written(SEVERAL[0], "x").history(Abilities()).engine == SEVERAL[0].engine
