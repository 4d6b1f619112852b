"""Policies of a target, as people and as programs read them."""

from typing import Any

from rich.console import Console
from rich.table import Table

from hitproof.vllm_integration.gate.policies import Standing


def print_policy_change(standing: Standing, console: Console) -> None:
    """A policy of the target that is not its release's."""
    policy = standing.policy
    console.print(f"[bold red]policy change[/]: {policy.name}", highlight=False)
    console.print(f"          {policy.sentence}", highlight=False)
    whose = "as the release has it" if standing.chosen is None else "as was asked for"
    console.print(f"  spec  : {standing.asked_for}, {whose}", highlight=False)
    console.print(f"  vllm  : {standing.actual}", highlight=False)
    console.print(f"  {', '.join(policy.symbols)}", highlight=False)
    if standing.chosen is None:
        console.print(
            f"  Judged by the target's own policy; --policy '{policy.name}={standing.expected}' "
            f"judges by the release's, --policy '{policy.name}={standing.actual}' accepts the "
            "change.",
            highlight=False,
        )
    console.print()


def policies_json(standings: list[Standing]) -> list[dict[str, Any]]:
    """What `hitproof policies --format json` prints."""
    return [
        {
            "policy": standing.policy.name,
            "sentence": standing.policy.sentence,
            "symbols": list(standing.policy.symbols),
            "values": [
                {"value": era.value, "releases": era.releases} for era in standing.policy.eras
            ],
            **(
                {}
                if standing.actual is None
                else {"expected": standing.expected, "actual": standing.actual}
            ),
        }
        for standing in standings
    ]


def print_policies(standings: list[Standing], console: Console) -> None:
    """What `hitproof policies` prints: a line for each value of each policy."""
    probed = any(standing.actual is not None for standing in standings)
    table = Table("policy", "value", "releases", *(["the target"] if probed else []))
    for standing in standings:
        name = standing.policy.name
        for era in standing.policy.eras:
            here = "as expected" if standing.agrees else "[red]not expected[/red]"
            shown = here if era.value == standing.actual else ""
            table.add_row(name, era.value, era.releases, *([shown] if probed else []))
            name = ""
    console.print(table)
