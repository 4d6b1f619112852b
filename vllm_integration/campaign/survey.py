"""Campaigns of checks: of releases, or of the commits between two of them.

Of commits, both ends are checked first. Where the findings of two checked commits differ, the one
in the middle is checked next, until those that differ are neighbours: the later one introduced or
fixed it. What came and went between two that do not differ is not seen.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger import records
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.campaign.causes import is_known, told_cause
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.plans import (
    CampaignError,
    Ended,
    Given,
    Rounds,
    Summary,
    Table,
    named,
)
from hitproof.vllm_integration.campaign.serving import Place
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure
from hitproof.vllm_integration.survey.survey import of_report, to_json
from hitproof.vllm_integration.survey.survey import survey as judge
from hitproof.vllm_integration.targets.commits import CommitError, commits_between, find_commit
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict

_RANGE = ".."


def prepare(words: Sequence[str], given: Given, announce: Callable[[str], None]) -> Given:
    """Releases and other targets in order, or ``PATH@BASE..HEAD``."""
    if len(words) != 1 or _RANGE not in words[0]:
        words = list(dict.fromkeys(words))
        if len(words) < 2:
            raise CampaignError("name several targets, oldest first, or PATH@BASE..HEAD")
        named_so = [(word, word) for word in words]
    else:
        repository, _, commits = words[0].rpartition("@")
        base, _, head = commits.partition(_RANGE)
        repository = repository or "."
        try:
            first = find_commit(repository, base)
            later = commits_between(repository, base, head, "vllm")
        except CommitError as error:
            raise CampaignError(str(error)) from error
        if not later:
            raise CampaignError(f"no commit of {commits} changes vllm; name an older one first")
        named_so = [
            (f"{repository}@{commit}", f"{commit[:12]} {subject}".strip())
            for commit, subject in [(first, base), *later]
        ]
    facts = {"places": named_so, "halves": _RANGE in words[0], "announce": announce}
    return replace(given, targets={}, facts=facts)


def plan(given: Given) -> Rounds:
    """All releases at once; of commits, halves of what differs."""
    places = given.facts["places"]
    known: dict[int, frozenset[str]] = {}
    todo = [0, len(places) - 1] if given.facts["halves"] else list(range(len(places)))
    while todo:
        asked = {place: _job(given, place) for place in todo}
        unique = {job.name: job for job in asked.values()}
        results = dict(zip(unique, (yield list(unique.values())), strict=True))
        known |= {place: _found(results[job.name]) for place, job in asked.items()}
        todo = [
            (one + other) // 2
            for one, other in pairwise(sorted(known))
            if other - one > 1 and known[one] != known[other]
        ]


def _job(given: Given, place: int) -> Job:
    target = resolve(given.facts["places"][place][0], announce=given.facts["announce"])
    content, target = named(target)
    given.targets[content] = target
    return Job.of("survey", content, target, profile=given.options["profile"])


def _found(result: Result) -> frozenset[str]:
    if "cannot" in result:
        return frozenset({"cannot"})
    return frozenset(str(Signature.from_json(each["signature"])) for each in result["findings"])


def work(question: Mapping[str, Any], place: Place) -> Result:
    """Check one target."""
    assert place.target is not None
    record = records.choose(records.read(LEDGER), place.target.version)
    profile = Profile(question["profile"])
    run = Run(place.target, profile, limits=place.limits, record=record)
    try:
        report = judge(run, lambda *_: None)
    except EnvironmentFailure as failure:
        return {"cannot": str(failure)}
    (raw,) = to_json([of_report(report)])
    found = [
        {name: each[name] for name in ("signature", "spec", "vllm", "source")}
        for each in raw["findings"]
    ]
    # Whether an entry of the ledger is stale says nothing of a commit.
    unsettled = raw["check"]["detail"] if raw["verdict"] == Verdict.INCONCLUSIVE.label else ""
    return {"findings": found} | ({"cannot": unsettled} if unsettled else {})


def seen(given: Given, result: Result) -> Iterable[str]:
    """Findings."""
    del given
    return ["findings"] * len(result.get("findings", ()))


def fold(given: Given, ended: Ended) -> Summary:
    """Which commit, or which release, brought or fixed what."""
    results = {job.name: (job, result) for job, result in ended}
    places = given.facts["places"]
    summary, checked = Summary(""), list[tuple[int, str, Mapping[Signature, str]]]()
    for place in range(len(places)):
        job = _kept(given, place)
        if job is None or job.name not in results:
            continue
        result = results[job.name][1]
        if "cannot" in result:
            summary.cannot[f"{places[place][1]}: {result['cannot']}"] += 1
            continue
        found = {Signature.from_json(e["signature"]): e["vllm"] for e in result["findings"]}
        checked.append((place, job.release, found))
        for signature, actual in found.items():
            if not is_known(signature, job.release or None):
                line = f"{signature.headline}: {actual}"
                summary.new.append(f"{places[place][1]}: {line}")
    rows = [row for pair in pairwise(checked) for row in _changes(places, *pair)]
    summary.about = (
        f"{len(checked)} of {count(places, 'commit' if given.facts['halves'] else 'target')} from "
        f"{places[0][1]} to {places[-1][1]} are checked"
    )
    summary.tables = [Table("Changes", ("where", "", "cause", "what"), rows)]
    return summary


def _kept(given: Given, place: int) -> Job | None:
    """The job of a place, if the plan had one."""
    for content, target in given.targets.items():
        if target.name == given.facts["places"][place][0]:
            return Job.of("survey", content, target, profile=given.options["profile"])
    return None


def _changes(
    places: Sequence[tuple[str, str]],
    before: tuple[int, str, Mapping[Signature, str]],
    after: tuple[int, str, Mapping[Signature, str]],
) -> Iterator[tuple[str, str, str, str]]:
    (first, old, had), (last, new, has) = before, after
    where = places[last][1]
    if last - first > 1:
        where = f"after {places[first][1]}, by {where}"
    for how, here, there, release in (("brought", has, had, new), ("fixed", had, has, old)):
        for signature in sorted(here.keys() - there.keys(), key=str):
            yield where, how, told_cause(signature, release or None), signature.headline
