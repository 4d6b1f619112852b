"""A kind of campaign that needs no vLLM: ``count`` waits a moment in each of 40 jobs."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.kinds import KINDS
from hitproof.vllm_integration.campaign.plans import Ended, Given, Kind, Rounds, Summary, Table
from hitproof.vllm_integration.campaign.serving import Place


def prepare(_: Sequence[str], given: Given, __: Callable[[str], None]) -> Given:
    return given


def plan(_: Given) -> Rounds:
    yield [Job("count", "", "", {"number": number}) for number in range(40)]


def work(question: Mapping[str, int], _: Place) -> Result:
    time.sleep(0.05)
    return dict(question)


def seen(_: Given, __: Result) -> Iterable[str]:
    return ["numbers"]


def fold(_: Given, ended: Ended) -> Summary:
    rows = [(str(result["number"]),) for _, result in ended]
    return Summary("numbers were counted", [Table("Numbers", ("number",), rows)])


KINDS["count"] = Kind("count", prepare, plan, work, seen, fold)
