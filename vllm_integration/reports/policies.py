"""Policies of a target, as people and as programs read them."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.judge.policy_costs import Cost, LostHit, Who
from hitproof.conformance.picking import picked
from hitproof.vllm_integration.gate.policies import Standing, costs_of
from hitproof.vllm_integration.reports.printing import print_text, sentence

_LATER = {
    Who.RESEND: "repeating it",
    Who.EXTENSION: "extending it",
    Who.NEXT_TURN: "the next turn",
    Who.SIBLING: "a request that shares {shared} of them",
    Who.SECOND_SIBLING: "a second request that shares the same {shared} of them",
}


def cost_json(cost: Cost | None) -> dict[str, Any] | None:
    """What a policy costs; None where it is at its best value, or has none."""
    if cost is None:
        return None
    lost = cost.example
    example = None
    if lost is not None:
        example = picked(lost, "layout", "prompt", "hit", best_hit="best", later="later.who")
        example |= picked(lost.later, "shared", "num_tokens")
        example["history"] = as_json(lost.history)
    costs = picked(cost, "best", "lost", "hits", "lost_tokens", "tokens", "gained")
    return costs | {"example": example}


def costs_in_words(standings: Sequence[Standing]) -> list[str]:
    """A line for each policy that costs hits."""
    every = costs_of(standings).values()
    return [_cost(cost, cost.example) for cost in every if cost.example is not None]


def _cost(cost: Cost, lost: LostHit) -> str:
    later = _LATER[lost.later.who].format(shared=lost.later.shared)
    return sentence("cost", cost, lost, later)


def policies_json(standings: list[Standing]) -> list[dict[str, Any]]:
    """What `hitproof policies --format json` prints."""
    found = costs_of(standings)
    return [
        {
            **picked(standing.policy, "sentence", "symbols", policy="name"),
            "values": [picked(era, "value", "releases") for era in standing.policy.eras],
            **(
                {}
                if standing.actual is None
                else {
                    **picked(standing, "expected", "actual"),
                    "cost": cost_json(found.get(standing.policy.name)),
                }
            ),
        }
        for standing in standings
    ]


def print_policies(standings: list[Standing], console: Console) -> None:
    """What `hitproof policies` prints: a line for each value of each policy, and what they cost."""
    probed = any(standing.actual is not None for standing in standings)
    told = {"standings": standings, "probed": probed, "costs": costs_in_words(standings)}
    print_text(console, "policies.txt", **told)
