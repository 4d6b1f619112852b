"""Every pair of properties is covered, and a pair that is not is noticed."""

from dataclasses import replace
from itertools import combinations

import pytest

from hitproof.conformance.scope import coverage, grid
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.coverage import PROPERTIES, missing, pairs, properties
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind


@pytest.mark.parametrize("profile", Profile)
def test_every_possible_pair_is_covered(profile: Profile) -> None:
    assert missing(profile) == []


def test_what_is_called_impossible_is_nowhere() -> None:
    possible = set(pairs())
    judged: list[Configuration | Layout] = [
        *configurations(Profile.DEFAULT),
        *layouts(Profile.DEFAULT),
    ]
    for each in judged:
        for looked_up in each.looked_up:
            found = properties(each, looked_up)
            assert all(value in PROPERTIES[name] for name, value in found.items())
            for pair in combinations(found.items(), 2):
                assert frozenset(pair) in possible, (each.describe(), pair)


def test_a_missing_pair_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    without = tuple(
        c
        for c in configurations(Profile.QUICK)
        if not (c.group.kind is GroupKind.MAMBA and c.shape.segment > 2)
    )
    monkeypatch.setattr(coverage, "configurations", lambda _: without)
    pair = {("kind", str(GroupKind.MAMBA)), ("alignment", "3 or more blocks")}
    assert frozenset(pair) in missing(Profile.QUICK)


def test_of_a_window_that_is_left_out_the_other_eagle_setting_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for profile in (Profile.QUICK, Profile.DEFAULT):
        judged = _windows(profile)
        with monkeypatch.context() as patched:
            patched.setitem(grid._GRIDS, profile, replace(grid._GRIDS[profile], every=1))
            every = _windows(profile)
        assert judged < every
        for window, eagle in every - judged:
            assert (window, not eagle) in judged


def _windows(profile: Profile) -> set[tuple[Configuration, bool]]:
    """The windows of the grid: without EAGLE, and whether it is on."""
    return {
        (replace(each, group=replace(each.group, eagle=False)), each.group.eagle)
        for each in grid.grid(profile)
        if each.group.kind is GroupKind.SLIDING_WINDOW and each.shape.segment > 1
    }
