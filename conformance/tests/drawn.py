"""Scenarios that tests play, by what they have."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

from hitproof.conformance.histories.scenarios import FEATURES, Feature, Scenario, features, scenario
from hitproof.conformance.histories.workloads import SchedulerHistory


def drawn(many: int, *names: str) -> Iterator[SchedulerHistory]:
    """The first scenarios for which these features were drawn, that of the first name first."""
    place = [each.name for each in FEATURES].index(names[0])
    seeds = (f"1:{number}" for number in count(place, len(FEATURES)))
    wanted = (each for each in seeds if {one.name for one in features(each)} >= {*names})
    return map(scenario, islice(wanted, many))


def _begin_alike(made: Scenario) -> None:
    system = made.new_tokens(made.size)
    for name, each in made.requests.items():
        made.requests[name] = replace(each, prompt=system + each.prompt)


MADE_UP = Feature("system prompt", ask=_begin_alike, without=("embeddings", "session", "images"))
"""A feature that is not in the table: every prompt begins with the same system prompt."""
