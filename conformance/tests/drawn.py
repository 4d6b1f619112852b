"""Scenarios that tests play, by what they have."""

from collections.abc import Iterator
from itertools import count, islice

from hitproof.conformance.histories.scenarios import FEATURES, features, scenario
from hitproof.conformance.histories.workloads import SchedulerHistory


def drawn(many: int, *names: str) -> Iterator[SchedulerHistory]:
    """The first scenarios for which these features were drawn, that of the first name first."""
    place = [each.name for each in FEATURES].index(names[0])
    seeds = (f"1:{number}" for number in count(place, len(FEATURES)))
    wanted = (each for each in seeds if {one.name for one in features(each)} >= {*names})
    return map(scenario, islice(wanted, many))
