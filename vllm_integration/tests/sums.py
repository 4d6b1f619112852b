"""A kind of campaign without vLLM, for tests: each job adds two numbers, or does what breaks it."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.plans import Ended, Given, Kind, Rounds, Summary
from hitproof.vllm_integration.campaign.serving import Place, Setting

GIVEN = Given({}, Setting(seconds=20.0))


def work(question: Mapping[str, Any], place: Place) -> Result:
    """The sum; a ``sleep`` comes first, and a ``mark`` says that the job was begun."""
    del place
    if "mark" in question:
        with Path(question["mark"]).open("a") as file:
            file.write(f"{question['numbers']}\n")
    time.sleep(question.get("sleep", 0))
    if question.get("ends"):
        os._exit(3)
    return {"sum": sum(question["numbers"])}


def plan(given: Given) -> Rounds:
    """A round of ``each`` jobs, then rounds whose numbers are the sum of the round before."""
    total = 0
    for number in range(int(given.options.get("rounds", "2"))):
        jobs = [
            question(each, number, total, **_more(given))
            for each in range(int(given.options.get("each", "10")))
        ]
        total = sum(result.get("sum", 0) for result in (yield jobs))


def question(*numbers: int, **more: Any) -> Job:
    """The job that adds these."""
    return Job("sum", "", "", {"numbers": list(numbers), **more})


def fold(given: Given, ended: Ended) -> Summary:
    """The sum of all."""
    del given
    summary = Summary(f"{sum(result.get('sum', 0) for _, result in ended)} in all")
    summary.cannot.update(result["cannot"] for _, result in ended if "cannot" in result)
    return summary


def _more(given: Given) -> dict[str, Any]:
    return {name: given.options[name] for name in ("mark",) if name in given.options} | {
        name: float(given.options[name]) for name in ("sleep",) if name in given.options
    }


SUMS = Kind(
    "sum",
    lambda _, given, __: given,
    plan,
    work,
    lambda _, result: ["sum" if "sum" in result else "cannot"],
    fold,
)
