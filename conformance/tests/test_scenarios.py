"""Scenarios have all features of the table, in all pairs that go together."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

from hitproof.conformance.histories import scenarios
from hitproof.conformance.histories.plays import Origin, plays
from hitproof.conformance.histories.scenarios import (
    FEATURES,
    features,
    go_together,
    scenario,
    with_features,
)
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.histories.workloads import Deployment, SchedulerHistory
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.drawn import MADE_UP
from hitproof.spec.groups import Group, GroupKind

_MANY = 12_000


def test_each_feature_comes_first_in_turn() -> None:
    drawn = [features(f"1:{number}")[0] for number in range(len(FEATURES))]
    assert drawn == list(FEATURES)
    assert len({each.name for each in FEATURES}) == len(FEATURES)


def test_each_pair_that_goes_together_is_drawn() -> None:
    pairs = {
        frozenset((one.name, other.name))
        for one, other in combinations(FEATURES, 2)
        if go_together(one, other)
    }
    drawn = {
        frozenset(pair)
        for number in range(_MANY)
        for pair in combinations([each.name for each in features(f"1:{number}")], 2)
    }
    assert drawn == pairs


def test_the_default_profile_has_each_pair_that_the_schema_allows() -> None:
    """What it has never is refused in nearly all draws."""
    had = {
        frozenset(pair)
        for play in plays(Profile.DEFAULT, fine=True)
        if play.origin is Origin.SCENARIOS
        for pair in combinations([each.name for each in with_features(play.name)[1]], 2)
    }
    for one, other in combinations(FEATURES, 2):
        if go_together(one, other) and frozenset((one.name, other.name)) not in had:
            tried = [with_features(f"{n} with {one.name}, {other.name}")[1] for n in range(8)]
            assert not any(len(each) == 2 for each in tried), (one.name, other.name)


def test_what_a_feature_does_not_go_with_is_a_feature() -> None:
    names = {each.name for each in FEATURES}
    assert {name for each in FEATURES for name in each.without} <= names


def test_a_seed_makes_the_same_scenario_again_and_it_can_be_written() -> None:
    for number in range(3 * len(FEATURES)):
        made = scenario(f"1:{number}")
        assert made == scenario(f"1:{number}") == read_workload(write_workload(made))
        assert made != scenario(f"2:{number}")


def test_features_show_in_what_is_made() -> None:
    """Most scenarios have what they were drawn for, whatever the schema refuses."""
    shown: dict[str, Callable[[SchedulerHistory], object]] = {
        "drafts": lambda made: made.deployment.speculative_method,
        "planned ahead": lambda made: made.deployment.async_scheduling,
        "host pool": lambda made: made.deployment.host,
        "session": lambda made: made.sessions,
        "images": lambda made: any(each.images for each in made.requests.values()),
        "stops": lambda made: any(each.past_end for each in made.requests.values()),
        "resets": lambda made: made.resets,
    }
    for name, has in shown.items():
        first = next(n for n, each in enumerate(FEATURES) if each.name == name)
        made = [scenario(f"1:{first + turn * len(FEATURES)}") for turn in range(20)]
        assert sum(bool(has(each)) for each in made) >= 15, name


def test_no_window_outside_the_cache_has_blocks_of_one_token() -> None:
    full = Group(GroupKind.FULL_ATTENTION, 2)
    kept = Group(GroupKind.SLIDING_WINDOW, 2, 4, prefix_cacheable=False)
    assert Deployment((full, kept), 20, 32, 8)
    with pytest.raises(HistoryError, match="raise block_size"):
        Deployment((full, replace(kept, block_size=1)), 20, 32, 8)


def test_whole_prompts_have_room_for_their_images() -> None:
    for seed in range(40):
        history, has = with_features(f"{seed} with whole prompts, images")
        encoder, most = history.deployment.encoder, history.deployment.max_num_batched_tokens
        assert len(has) == 2
        assert encoder is not None
        assert min(encoder.budget, encoder.cache_size) >= most


def test_a_row_is_all_that_a_feature_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "FEATURES", (*FEATURES, MADE_UP))
    mine = [n for n in range(2_000) if MADE_UP in features(f"1:{n}")]
    assert len(mine) > 2_000 // (len(FEATURES) + 1)
    with_drafts = [n for n in mine if any(each.name == "drafts" for each in features(f"1:{n}"))]
    assert with_drafts
    made = [scenario(f"1:{number}") for number in mine]
    assert all(read_workload(write_workload(each)) == each for each in made)
    alike = [len({request.prompt[0] for request in each.requests.values()}) == 1 for each in made]
    # What the schema refuses of five features at once is left out.
    assert sum(alike) > 0.9 * len(mine)
