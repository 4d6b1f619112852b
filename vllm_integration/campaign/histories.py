"""Campaigns of histories: random ones, and more of the kind that reached something new.

A job plays some histories, each named by a seed, and reports what each shows and which branches run
that none before it in the job has run. A history that reaches a new branch, or a new pair of
features, is kept: the rounds after that draw others with its features, or on its engine. Some of
those that reach new branches are shrunk, and so is the first history of each finding that is new.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, count
from random import Random
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Abilities, Origin, Play
from hitproof.conformance.histories.scenarios import FEATURES, go_together, with_features
from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.scheduling.shrinking import shrink as shrink_workload
from hitproof.spec.releases.fine import HitGranularity
from hitproof.vllm_integration.campaign.causes import NEW, is_known, told_cause
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.plans import Ended, Given, Rounds, Summary, Table
from hitproof.vllm_integration.campaign.serving import Place
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.content import expanded, shortened

_MODULES = (
    "kv_cache_manager",
    "kv_cache_coordinator",
    "single_type_kv_cache_manager",
    "block_pool",
    "encoder_cache_manager",
    "sched.scheduler",
    "sched.async_scheduler",
)
"""The modules of ``vllm.v1.core`` whose branches guide the campaign."""
_HISTORIES = 10
"""Histories of a job, which take seconds."""
_JOBS = 100
"""Jobs of a process of the target: it grows by some megabytes with each, and is restarted."""
_FIRST_ROUND, _LARGEST_ROUND = 16, 1024
"""Jobs of a round: twice as many each time, so that many workers have enough to do."""
_SHRUNK = 4
"""Histories that are shrunk of those that a round keeps for the branches that they reach."""
_TRIES = {"branches": 40, "finding": 300}
"""Histories that are played to shrink one."""


@dataclass
class Known:
    """What the results so far have reached and shown, in the campaign's order."""

    branches: set[int] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    signatures: dict[Signature, Play] = field(default_factory=dict)

    def take(
        self, job: Job, result: Result
    ) -> Iterator[tuple[Play, set[int], int, set[Signature]]]:
        """Each history of a job that adds something: branches, pairs of features, signatures."""
        for play, told in zip(_plays(job.question), result.get("histories", ()), strict=False):
            branches = set(expanded(told.get("ran", ""))) - self.branches
            pairs = _pairs(play) - self.pairs if "cannot" not in told else set()
            found = {Signature.from_json(raw) for raw in told.get("found", ())}
            new = found - self.signatures.keys()
            self.branches |= branches
            self.pairs |= pairs
            self.signatures |= dict.fromkeys(sorted(new, key=str), play)
            if branches or pairs or new:
                yield play, branches, len(pairs), new


def plan(given: Given) -> Rounds:
    """See the module."""
    ((content, target),) = given.targets.items()
    fine = given.facts["granularity"] == HitGranularity.FINE
    origins = [Origin.SCENARIOS, Origin.GENERATED]
    origins += [Origin.SCENARIOS, Origin.FINE_GENERATED] if fine else []
    known, kept, shrunk = Known(), dict[Origin, list[Play]](), list[Job]()
    drawn = Counter[Origin]()
    seed = given.options["seed"]
    for number in count():
        jobs = shrunk
        for each in range(min(_FIRST_ROUND << number, _LARGEST_ROUND)):
            origin = origins[each % len(origins)]
            parents = kept.get(origin, [])
            if number and parents and each // len(origins) % 2:
                names = [
                    _offspring(
                        parents[-1 - (each + n) % len(parents)], f"{seed}.{number}.{each}:{n}"
                    )
                    for n in range(_HISTORIES)
                ]
            else:
                first = drawn[origin]
                names = [f"{seed}:{n}" for n in range(first, first + _HISTORIES)]
                drawn[origin] += _HISTORIES
            jobs.append(Job.of("histories", content, target, origin=str(origin), histories=names))
        shrunk = []
        for job, result in zip(jobs, (yield jobs), strict=True):
            for play, branches, _, new in known.take(job, result):
                kept.setdefault(play.origin, []).append(play)
                if number and branches and len(shrunk) < _SHRUNK:
                    ran = shortened(sorted(branches))
                    asked = {"play": play.as_json(), "branches": ran}
                    shrunk.append(Job.of("histories", content, target, shrink=asked))
                for signature in sorted(new, key=str):
                    if not is_known(signature, target.version):
                        asked = {"play": play.as_json(), "finding": signature.as_json()}
                        shrunk.append(Job.of("histories", content, target, shrink=asked))


def _offspring(parent: Play, name: str) -> str:
    """A seed of a history like a kept one: on its engine, or with its features but for one."""
    if parent.origin is not Origin.SCENARIOS:
        return f"{name} as {parent.name.rpartition(' as ')[2]}"
    random = Random(f"hitproof offspring {name} of {parent.name}")
    chosen = list(_features(parent.name))
    others = [each for each in FEATURES if all(go_together(each, one) for one in chosen)]
    match random.choice(("same", "more", "other")):
        case "more" if others:
            chosen.append(random.choice(others))
        case "other" if others and len(chosen) > 1:
            chosen[random.randrange(len(chosen))] = random.choice(others)
    return f"{name} with {', '.join(each.name for each in chosen)}"


@cache
def _features(seed: str) -> tuple[Any, ...]:
    return tuple(with_features(seed)[1])


def _pairs(play: Play) -> set[tuple[str, str]]:
    """The pairs of features that a scenario has, and those that it has alone."""
    if play.origin is not Origin.SCENARIOS:
        return set()
    names = sorted(each.name for each in _features(play.name))
    return {*combinations(names, 2), *((name, name) for name in names)}


def _plays(question: Mapping[str, Any]) -> list[Play]:
    return [Play(Origin(question["origin"]), name) for name in question.get("histories", ())]


# --- in a worker


def facts(given: Given, place: Place) -> dict[str, Any]:
    """What is asked of the target once: where its hits may end, and its branches by module."""
    del given
    policies, _ = place.session().policies()
    modules = _branches(place)
    return {"granularity": policies.get("hit_granularity", ""), "modules": modules}


def work(question: Mapping[str, Any], place: Place) -> Result:
    """Play the histories of a job, or shrink one."""
    if "shrink" in question:
        asked = question["shrink"]
        play = Play.from_json(asked["play"])
        if "finding" in asked:
            return _shown(place, play, asked["finding"])
        return _smaller(place, play, set(expanded(asked["branches"])))
    ran: set[int] = set()
    told = []
    for play in _plays(question):
        each = _played(place, play)
        more = each.pop("ran", set()) - ran
        ran |= more
        told.append(each | ({"ran": shortened(sorted(more))} if more else {}))
    place.notes["jobs"] = place.notes.get("jobs", 0) + 1
    if place.notes["jobs"] == _JOBS:
        place.renew()
    return {"histories": told}


def _played(place: Place, play: Play) -> dict[str, Any]:
    """What a history shows, and the branches that it runs, as numbers."""
    try:
        answer = place.session().ask(op="replay", play=play.as_json(), branches=_MODULES)
    except WorkerGone as gone:
        return {"cannot": str(gone)}
    if "cannot" in answer:
        return {"cannot": answer["cannot"]}
    if answer["left_out"]:
        return {"left out": True}
    numbers = _numbers(place)
    ran = {
        number
        for module, arcs in answer["arcs"].items()
        for line, to in arcs
        if (number := numbers.get((module, line, to))) is not None
    }
    found = [each["signature"] for each in answer["findings"] if each["cause"] is None]
    return {"ran": ran} | ({"found": found} if found else {})


def _smaller(place: Place, play: Play, branches: set[int]) -> Result:
    """The smallest history found that still runs some branches."""

    def shows(small: Any) -> bool:
        made = Play.written_workload if play.of_scheduler else Play.written
        ran: set[int] = _played(place, made(small, "")).get("ran", set())
        return branches <= ran

    try:
        session = place.session()
        if play.of_scheduler:
            text = session.ask(op="replay", play=play.as_json(), record=True)["history"]
            workload = shrink_workload(read_workload(text), shows, _TRIES["branches"])
            return {"history": Play.written_workload(workload, "").text}
        abilities = Abilities.from_json(session.ask(op="abilities")["abilities"])
        history = shrink(play.history(abilities), shows, _TRIES["branches"])
        return {"history": Play.written(history, "").text}
    except WorkerGone as gone:
        return {"cannot": f"{play.describe()} cannot be shrunk: {gone}"}


def _shown(place: Place, play: Play, signature: dict[str, Any]) -> Result:
    """A finding, as small as it gets."""
    found, shown = place.session().demonstrated(
        "replay", "", _TRIES["finding"], play=play.as_json(), signature=signature
    )
    if found is None:
        return {"cannot": f"{play.describe()} cannot be shrunk: {shown.detail}"}
    return {name: found[name] for name in ("spec", "actual", "history")}


def _branches(place: Place) -> dict[str, list[tuple[int, int]]]:
    answer = place.session().ask(op="branches", arcs={}, modules=_MODULES)
    return {
        name: [(each["line"], each["to"]) for each in module["branches"]]
        for name, module in answer["modules"].items()
    }


def _numbers(place: Place) -> dict[tuple[str, int, int], int]:
    if "branches" not in place.notes:
        listed = [(name, *arc) for name, arcs in _branches(place).items() for arc in arcs]
        place.notes["branches"] = {arc: number for number, arc in enumerate(listed)}
    found: dict[tuple[str, int, int], int] = place.notes["branches"]
    return found


# --- what the results say


def seen(given: Given, result: Result) -> Iterable[str]:
    """Known and new findings by history."""
    (target,) = given.targets.values()
    for told in result.get("histories", ()):
        for raw in told.get("found", ()):
            known = is_known(Signature.from_json(raw), target.version)
            yield "known" if known else NEW
        if "cannot" in told:
            yield "not judged"


def fold(given: Given, ended: Ended) -> Summary:
    """Branches, pairs of features, and what was found by cause."""
    (target,) = given.targets.values()
    known, summary = Known(), Summary("")
    shown: dict[Signature, Result] = {}
    histories, small = Counter[str](), 0
    found = Counter[Signature]()
    for job, result in ended:
        if "shrink" in job.question:
            asked = job.question["shrink"]
            if "finding" in asked:
                shown[Signature.from_json(asked["finding"])] = result
            elif "history" in result:
                small += 1
                summary.files[f"histories/branches-{job.name}.json"] = result["history"]
            continue
        gains = {"branches": 0, "causes": 0}
        for _, branches, _, new in known.take(job, result):
            gains["branches"] += len(branches)
            gains["causes"] += len(new)
        summary.gains[job.name] = gains
        for told in result.get("histories", ()):
            histories[job.question["origin"]] += 1
            found.update(Signature.from_json(raw) for raw in told.get("found", ()))
            if "cannot" in told:
                summary.cannot[told["cannot"]] += 1
        if "cannot" in result:
            summary.cannot[result["cannot"]] += 1
    total = sum(map(len, given.facts["modules"].values()))
    told = ", ".join(f"{number} {origin}" for origin, number in histories.items())
    summary.about = (
        f"{histories.total()} histories ({told}) on vLLM {target.label} ran "
        f"{len(known.branches)} of {total} branches and had {len(known.pairs)} features and pairs "
        f"of features; {small} that reached new branches are shrunk"
    )
    summary.tables = [
        Table("Branches", ("module", "branches", "run"), list(_by_module(given, known.branches))),
        Table(
            "Findings",
            ("cause", "what", "histories", "first"),
            [
                (told_cause(each, target.version), each.headline, str(number), place.describe())
                for each, number, place in _sorted(found, known.signatures)
            ],
        ),
    ]
    for signature, play in known.signatures.items():
        if not is_known(signature, target.version):
            line, small_one = f"{signature.headline} ({play.describe()})", shown.get(signature, {})
            if "history" in small_one:
                path = f"histories/{signature.code}-{len(summary.new) + 1}.json"
                summary.files[path] = small_one["history"]
                line += f"; spec: {small_one['spec']}; vllm: {small_one['actual']}; {path}"
            summary.new.append(line)
    return summary


def _sorted(
    found: Counter[Signature], first: Mapping[Signature, Play]
) -> Iterator[tuple[Signature, int, Play]]:
    for signature, number in sorted(found.items(), key=lambda each: (-each[1], str(each[0]))):
        yield signature, number, first[signature]


def _by_module(given: Given, ran: set[int]) -> Iterator[tuple[str, str, str]]:
    first = 0
    for name, arcs in given.facts["modules"].items():
        numbers: Sequence[int] = range(first, first + len(arcs))
        yield name, str(len(arcs)), str(len(ran.intersection(numbers)))
        first += len(arcs)
