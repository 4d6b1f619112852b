"""Campaigns of mutants: all of a family on one target, some a job.

A worker judges the unmodified target once, for all of its jobs. Which check notices a mutant first
depends on how fast each is, so a result says whether it is noticed, and of a survivor what ran.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import EQUIVALENTS, LEDGER
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.plans import Ended, Given, Rounds, Summary, Table
from hitproof.vllm_integration.campaign.serving import Place
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate import equivalents
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selftest import (
    BATCH_SECONDS,
    Chosen,
    SelfTestReport,
    fill,
    question,
)
from hitproof.vllm_integration.sandbox.driver import WorkerGone

_MUTANTS = 10
"""Mutants of a job."""
_CHECK_SECONDS = 20.0
"""Processor time that a check may take on a mutant."""
_BEGUN = "selftest"


def facts(given: Given, place: Place) -> dict[str, Any]:
    """The mutants of the target."""
    family, profile = given.options["family"], given.options["profile"]
    nothing: dict[str, Any] = {"tasks": [], "histories": [], "deployments": []}
    answer = place.session().ask(**_question(place, family, profile) | nothing)
    return {"mutants": answer["mutants"]}


def plan(given: Given) -> Rounds:
    """All mutants, in one round."""
    ((content, target),) = given.targets.items()
    asked = {name: given.options[name] for name in ("family", "profile")}
    numbers = range(len(given.facts["mutants"]))
    yield [
        Job.of("selftest", content, target, **asked, mutants=list(numbers[first:][:_MUTANTS]))
        for first in numbers[::_MUTANTS]
    ]


def work(question: Mapping[str, Any], place: Place) -> Result:
    """Judge some mutants."""
    session, wanted = place.session(), question["mutants"]
    asked = question["family"], question["profile"]
    try:
        if place.notes.get(_BEGUN) != asked:
            session.ask(**_question(place, *asked))
            done = {"done": 0, "total": 1}
            while done["done"] < done["total"]:
                done = session.ask(op="selftest_baseline", seconds=BATCH_SECONDS)
            if done["unfinished"]:
                return {"cannot": f"{done['unfinished']} checks do not end on the target itself"}
            place.notes[_BEGUN] = asked
        begin, outcomes = {"mutants": wanted}, dict[int, dict[str, Any]]()
        while len(outcomes) < len(wanted):
            answer = session.ask(op="selftest_judge", seconds=BATCH_SECONDS, **begin)
            outcomes |= {each["mutant"]: each for each in answer["results"]}
            begin = {}
    except WorkerGone as gone:
        place.renew()
        return {"cannot": str(gone)}
    return {
        "survivors": {
            str(number): outcomes[number]["detail"]
            for number in wanted
            if not outcomes[number]["caught"]
        },
        "proved": [number for number in wanted if outcomes[number].get("proved")],
    }


def _question(place: Place, family: str, profile: str) -> dict[str, Any]:
    assert place.target is not None
    policies, _ = place.session().policies()
    run = Run(place.target, Profile(profile), load(LEDGER), place.limits)
    chosen = Chosen(Family(family))
    return question(run, chosen, policies.get("hit_granularity", "")) | {"limit": _CHECK_SECONDS}


def seen(_: Given, result: Result) -> Iterable[str]:
    """Survivors."""
    return ["survivors"] * len(result.get("survivors", ()))


def fold(given: Given, ended: Ended) -> Summary:
    """Survivors, and how many mutants of each function are noticed."""
    (target,) = given.targets.values()
    summary = Summary("")
    described, outcomes = list[dict[str, Any]](), dict[int, dict[str, Any]]()
    for job, result in ended:
        survivors = result.get("survivors", {})
        if "cannot" in result:
            summary.cannot[result["cannot"]] += 1
            continue
        for number in job.question["mutants"]:
            detail = survivors.get(str(number))
            caught = "caught" if detail is None else ""
            proved = number in result.get("proved", ())
            told = {"caught": caught, "by": "", "detail": detail or "", "proved": proved}
            outcomes[len(described)] = told
            described.append(given.facts["mutants"][number])
    every = len(given.facts["mutants"])
    sample = None if len(described) == every else len(described)
    chosen = Chosen(Family(given.options["family"]), sample=sample)
    report = SelfTestReport(target, Profile(given.options["profile"]), chosen)
    fill(report, described, outcomes, equivalents.load(EQUIVALENTS))
    summary.about = (
        f"{len(report.judged)} of {every} {chosen.family} mutants of vLLM {target.label}, "
        f"{len(report.equivalents)} of them equivalent ({report.proved} proved): "
        f"{len(report.caught)} caught "
        f"({report.share:.2f} %)"
    )
    rows = [
        (
            f"{m.file}:{m.line}",
            *map(str, (m.change.function, m.change.original)),
            m.change.mutant,
            m.detail,
        )
        for m in report.survivors
    ]
    summary.tables = [
        Table(
            "Mutants", ("function", "mutants", "caught", "equivalent"), list(_by_function(report))
        ),
        Table("Survivors", ("place", "function", "statement", "mutant", "why"), rows),
    ]
    if rows:
        known = "that equivalents.toml does not have; read each, and fix the check or declare it"
        summary.new.append(f"{count(rows, 'survivor')} {known}")
    summary.new += [
        f"the entry of the equivalent mutant {entry.change.mutant!r} of {entry.change.function} is "
        "stale"
        for entry in report.stale
    ]
    return summary


def _by_function(report: SelfTestReport) -> Iterator[tuple[str, ...]]:
    every, caught, same = (
        Counter(mutant.change.function for mutant in mutants)
        for mutants in (report.judged, report.caught, [m for m, _ in report.equivalents])
    )
    for function, number in every.items():
        yield function, *map(str, (number, caught[function], same[function]))
