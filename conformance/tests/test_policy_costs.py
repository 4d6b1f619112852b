"""What policies cost, compared with what the reference serves under the same policies."""

from dataclasses import replace

import pytest

from hitproof.conformance.emulation.releases import Policies, ReplayPolicy
from hitproof.conformance.judge.policy_costs import Later, Who, costs, history, later_hits, layouts
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.playing.player import Player
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.releases.fine import FineTail, HitGranularity, is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import (
    POLICIES,
    DefaultRetention,
    EagleGroups,
    Junctions,
    SparseRetention,
)
from hitproof.spec.retention import check_interval

BEST = {name: str(policy.best or policy.eras[-1].value) for name, policy in POLICIES.items()}

LESSER = [
    ("lookahead_horizon", LookaheadHorizon.CANDIDATE),
    ("lookahead_horizon", LookaheadHorizon.CAPPED),
    ("eagle_groups", EagleGroups.ALL),
    ("hit_granularity", HitGranularity.ALIGNED),
    ("junctions", Junctions.DROPPED),
    ("default_retention", DefaultRetention.LATEST),
]
"""Every value of a policy that is not the best one."""

UNDER = {
    "0.33": (JudgedPolicies(), Policies()),
    "0.24": (
        JudgedPolicies(horizon=LookaheadHorizon.CAPPED, junctions=Junctions.DROPPED),
        Policies(horizon=LookaheadHorizon.CAPPED, junctions=False),
    ),
}
"""Policies as judges and as the reference have them."""


def _layouts() -> list[Layout]:
    wanted = ("Mistral", "gpt-oss", "Qwen3")
    return [layout for layout in layouts() if layout.model.startswith(wanted)]


def _served(
    layout: Layout, interval: int | None, prompt: int, later: Later, policies: Policies
) -> int:
    played = history(layout, interval, prompt, later)
    player = Player(played, ReferenceManagers(policies).start(played.engine))
    for step in played.steps:
        player.play(step)  # a hit leaves fewer chunks: the last steps are skipped
    return player.hits[[*played.requests][-1]].length


def _interval(layout: Layout, mode: str) -> int | None:
    return {"dense": None, "latest": 0, "interval": 2 * layout.alignment}[mode]


def test_nothing_is_lost_at_the_best_values() -> None:
    assert costs(BEST) == {}


@pytest.mark.parametrize(("name", "value"), LESSER)
def test_any_other_value_costs_hits(name: str, value: str) -> None:
    (cost,) = costs(BEST | {name: value}).values()
    assert (cost.policy, cost.value, cost.best) == (name, value, POLICIES[name].best)
    assert 0 < cost.lost < cost.hits
    assert 0 < cost.lost_tokens < cost.tokens
    example = cost.example
    assert example is not None
    assert example.hit < example.best < example.later.num_tokens


def test_every_other_value_is_among_them() -> None:
    others = {
        (name, era.value)
        for name, policy in POLICIES.items()
        for era in policy.eras
        if policy.best not in (None, era.value)
    }
    assert others == set(LESSER)


def test_what_depends_on_sparse_retention_costs_nothing_without() -> None:
    without = {"sparse_retention": SparseRetention.NONE, "junctions": Junctions.DROPPED}
    (cost,) = costs(BEST | without).values()
    assert (cost.lost, cost.lost_tokens, cost.gained, cost.example) == (0, 0, 0, None)
    assert cost.hits > 0


@pytest.mark.parametrize(("name", "value"), LESSER)
def test_where_all_that_is_reachable_is_kept_nobody_hits_more(name: str, value: str) -> None:
    ends_only = {"hit_granularity": HitGranularity.ALIGNED, "fine_tail": FineTail.NONE}
    values = BEST | ends_only | {name: value, "sparse_retention": SparseRetention.NONE}
    assert costs(values)[name].gained == 0


def test_hits_inside_blocks_come_with_the_ends_of_prompts() -> None:
    aligned = {"hit_granularity": HitGranularity.ALIGNED, "fine_tail": FineTail.NONE}
    assert costs(BEST | aligned)["hit_granularity"].lost > 0


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("mode", ["dense", "latest", "interval"])
@pytest.mark.parametrize("release", UNDER)
def test_the_reference_serves_the_hits(release: str, mode: str) -> None:
    judged, policies = UNDER[release]
    for layout in _layouts():
        interval = _interval(layout, mode)
        check_interval(interval, layout.alignment)
        for (prompt, later), hit in later_hits(layout, interval, judged).items():
            if prompt % layout.alignment == 0 or later.who is Who.RESEND:
                served = _served(layout, interval, prompt, later, policies)
                assert served == hit, (layout.describe(), interval, prompt, later)


def test_a_reference_that_keeps_less_serves_less() -> None:
    broken = replace(UNDER["0.33"][1], replays=ReplayPolicy.LAST_TOKEN_RECOMPUTED)
    lost = 0
    for layout in _layouts():
        found = later_hits(layout, 0, UNDER["0.33"][0])
        for (prompt, later), hit in found.items():
            if later.who is Who.EXTENSION:
                lost += _served(layout, 0, prompt, later, broken) < hit
    assert lost > 0


def test_there_are_layouts_whose_hits_may_end_inside_blocks() -> None:
    fine = [each for each in layouts() if is_fine_grained(each.groups, each.hash_block_size)]
    assert {layout.use_eagle for layout in fine} == {False, True}
