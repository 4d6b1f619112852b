"""What policies cost is shown, and it is what real managers lose."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from hitproof.conformance.histories.plays import Play
from hitproof.conformance.judge.policy_costs import LostHit, history
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate.policies import Standing, best_values, costs_of, expected_value
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.reports.policies import cost_json, costs_in_words, policies_json
from hitproof.vllm_integration.sandbox.driver import Worker
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import limits
from hitproof.vllm_integration.tests.reports import conforming


def of_release(version: str, chosen: dict[str, str] | None = None) -> list[Standing]:
    """The policies of a release that behaves as the table says."""
    values = {name: expected_value(policy, version) for name, policy in POLICIES.items()}
    return [
        Standing(policy, values[name], values[name], (chosen or {}).get(name))
        for name, policy in POLICIES.items()
    ]


def printed(show: Callable[[Console], None]) -> list[str]:
    """The lines that are printed."""
    console = Console(width=1000, color_system=None)
    with console.capture() as captured:
        show(console)
    return captured.get().splitlines()


def shown(standings: list[Standing]) -> list[str]:
    """The lines on what they cost."""
    return costs_in_words(standings)


def test_a_line_for_each_policy_that_costs_something() -> None:
    (line,) = shown(of_release("0.33.0"))
    (cost,) = costs_of(of_release("0.33.0")).values()
    counted = f"default_retention=latest loses {cost.lost} of {cost.hits} hits compared with dense"
    assert line.startswith(counted)
    assert cost.example is not None
    assert f"hits {cost.example.hit} tokens ({cost.example.best} possible)" in line
    older = shown(of_release("0.24.0"))
    assert [line.split("=")[0] for line in older] == [
        "lookahead_horizon",
        "hit_granularity",
        "junctions",
    ]


def test_no_line_where_the_best_values_are_judged_by() -> None:
    assert shown(of_release("0.24.0", best_values())) == []


def test_no_line_without_a_target_or_with_unknown_policies() -> None:
    assert shown([Standing(policy) for policy in POLICIES.values()]) == []
    assert shown(of_release("0.33.0")[:-1]) == []


def test_the_json_has_the_cost_of_what_is_not_at_its_best() -> None:
    costs = {each["policy"]: each["cost"] for each in policies_json(of_release("0.24.0"))}
    assert costs["fine_tail"] is costs["eagle_groups"] is costs["default_retention"] is None
    assert 0 < costs["junctions"]["lost"] < costs["junctions"]["hits"]
    example = costs["junctions"]["example"]
    assert example["hit"] < example["best_hit"] <= example["shared"]
    without = cost_json(costs_of(of_release("0.22.1"))["junctions"])
    assert without is not None
    assert (without["lost"], without["example"]) == (0, None)


def test_a_check_shows_what_policies_cost() -> None:
    standings = of_release("0.33.0")
    report = replace(conforming(), policies=standings)
    assert set(shown(standings)) <= set(printed(lambda at: print_report(report, at, False)))
    costs = {each["policy"]: each["cost"] for each in report_json(report)["policies"]}
    assert [name for name, cost in costs.items() if cost] == ["default_retention"]


def served(worker: Worker, lost: LostHit, interval: int | None) -> int:
    """What the target serves the later request under a retention interval."""
    played = history(lost.layout, interval, lost.prompt, lost.later)
    answer = worker.ask(120, op="replay", play=Play.written(played, "").as_json())
    return int(answer["lookups"][-1]["served"])


@pytest.mark.long
@pytest.mark.release
def test_0_33_loses_what_its_default_retention_is_said_to_cost() -> None:
    (cost,) = costs_of(of_release("0.33.0")).values()
    lost = cost.example
    assert cost.policy == "default_retention"
    assert lost is not None
    assert (lost.interval, lost.best_interval) == (0, None)
    target = resolve("0.33.0", announce=lambda *_: None)
    with Worker(target, limits()) as worker:
        assert served(worker, lost, lost.interval) == lost.hit
        assert served(worker, lost, lost.best_interval) == lost.best


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("version", ["0.19.0", "0.24.0"])
def test_a_release_loses_what_its_policies_are_said_to_cost(version: str) -> None:
    examples = [cost.example for cost in costs_of(of_release(version)).values() if cost.example]
    assert len(examples) == 3
    for name, best in ((version, False), ("0.33.0", True)):
        target = resolve(name, announce=lambda *_: None)
        with Worker(target, limits()) as worker:
            for lost in examples:
                hit = lost.best if best else lost.hit
                assert served(worker, lost, lost.interval) == hit
