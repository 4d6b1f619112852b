"""Branches: how much of the target's manager code runs while something is judged.

`measure` plays what a profile of `check` plays, in workers that trace branches, and looks up the
reasons why branches did not run. A `Share` is the record of a release, for `check` to report.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.histories.plays import Origin
from hitproof.conformance.ledger.ledger import Entry, read_entries, speaks_of
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.distilling import Arcs, Ran, candidates, distil, excused
from hitproof.vllm_integration.gate.obligations import Played, Task, histories, tasks
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.sessions import Outcome, Session, Sessions
from hitproof.vllm_integration.sandbox.driver import Answers, Workers
from hitproof.vllm_integration.targets.target import Target

_JUDGED = ("check", "replay")
"""The operations whose branches count: what they run is judged."""


@dataclass(frozen=True)
class Branch:
    """A branch in a function of a module of the target's managers.

    Attributes:
        module: the module of ``vllm.v1.core``.
        function: the qualified name of the function.
        line: the line that it leaves.
        to: the line that it goes to; negative where it leaves the function.
        text: the first of these lines.
        to_text: the second; `LEAVES` where it leaves the function.
        occurrence: which of the function's branches with these texts, from 1.
        run: whether it ran while something was judged.
    """

    module: str
    function: str
    line: int
    to: int
    text: str
    to_text: str
    occurrence: int
    run: bool

    def describe(self) -> str:
        """A description in one line."""
        return f"{self.module}.py:{self.line} {self.function}: {self.text} -> {self.to_text}"


LEAVES = "leaves the function"


@dataclass(frozen=True)
class Reason:
    """Why no history and no check runs some branches.

    Attributes:
        function: a glob for the functions that it speaks of.
        text: the line that the branches leave; any if empty.
        to: the line that they go to; any if empty.
        occurrence: which of several with these texts, from 1; all if 0.
        releases: the releases that it speaks of, as a version specifier (PEP 440).
        reason: why they do not run.
    """

    function: str
    text: str
    to: str
    occurrence: int
    releases: SpecifierSet
    reason: str

    def is_about(self, branch: Branch) -> bool:
        """Whether it speaks of a branch."""
        return (
            fnmatchcase(branch.function, self.function)
            and self.text in ("", branch.text)
            and self.to in ("", branch.to_text)
            and self.occurrence in (0, branch.occurrence)
        )

    def describe(self) -> str:
        """Which branches it speaks of."""
        lines = " -> ".join(filter(None, (self.text, self.to)))
        return f"{self.function}: {lines}" if lines else self.function


def reasons(path: Path, version: str | None) -> list[Reason]:
    """The reasons of a file that speak of a release. Raises `LedgerError`."""
    every = read_entries(path, "not_run", "install hitproof again", _reason)
    return [each for each in every if speaks_of(each.releases, version)]


def _reason(raw: Mapping[str, Any]) -> Reason:
    releases = SpecifierSet(raw.get("releases", ""))
    text, to = raw.get("text", ""), raw.get("to", "")
    occurrence = int(raw.get("occurrence", 0))
    return Reason(raw["function"], text, to, occurrence, releases, raw["reason"])


@dataclass(frozen=True)
class Share:
    """What is kept of a measurement.

    Attributes:
        release: the release that was measured.
        profile: the profile whose checks and histories ran.
        digests: the digest of the source of each module.
        counts: for each module, how many branches there are, and how many of them ran.
        not_run: the other branches, each with the reason, "" where there is none.
        undecided: the codes of divergences that no case could have shown, since the condition
            that decides each did not run; None where that was not measured.
    """

    release: str
    profile: Profile
    digests: Mapping[str, str]
    counts: Mapping[str, tuple[int, int]]
    not_run: Sequence[tuple[Branch, str]]
    undecided: Sequence[str] | None = None

    @property
    def total(self) -> int:
        """How many branches there are."""
        return sum(total for total, _ in self.counts.values())

    @property
    def run(self) -> int:
        """How many of them ran."""
        return sum(run for _, run in self.counts.values())

    @property
    def unexplained(self) -> list[Branch]:
        """Branches that did not run, without a reason."""
        return [branch for branch, reason in self.not_run if not reason]

    def describe(self) -> str:
        """A description in one line."""
        rest = len(self.not_run) - len(self.unexplained)
        return (
            f"{self.run} of {self.total} branches of vLLM's managers run under the {self.profile} "
            f"profile ({percent(self.run, self.total)}), {rest} are excluded with a reason"
            + (f", {len(self.unexplained)} have none" if self.unexplained else "")
        )

    def as_json(self) -> dict[str, Any]:
        """JSON, which `from_json` reads."""
        return {
            "profile": str(self.profile),
            "modules": {
                name: {"digest": self.digests[name], "branches": total, "run": run}
                for name, (total, run) in self.counts.items()
            },
            "not_run": [picked(each, *_PLACE) | {"reason": why} for each, why in self.not_run],
        } | ({} if self.undecided is None else {"undecided": list(self.undecided)})

    @staticmethod
    def from_json(release: str, data: Mapping[str, Any]) -> "Share":
        """Inverse of `as_json`."""
        modules = data["modules"]
        not_run = [dict(raw) for raw in data["not_run"]]
        found = [(raw.pop("reason"), Branch(**raw, run=False)) for raw in not_run]
        return Share(
            release,
            Profile(data["profile"]),
            {name: each["digest"] for name, each in modules.items()},
            {name: (each["branches"], each["run"]) for name, each in modules.items()},
            [(branch, reason) for reason, branch in found],
            data.get("undecided"),
        )


_PLACE = "module", "function", "line", "to", "text", "to_text", "occurrence"


def percent(run: int, total: int) -> str:
    """A share of branches, rounded down."""
    return f"{1000 * run // max(total, 1) / 10} %"


@dataclass(frozen=True)
class Measured:
    """What a measurement gives.

    Attributes:
        share: what ran.
        stale: reasons that speak of a branch that runs.
        unused: reasons that speak of no branch of this release.
        open_questions: why not everything could be judged.
        new: how many branches ran in each check and history that had not run in those before, by
            place; only those with some.
        distilled: histories that ran or showed more, as lines of JSON, where they were searched
            for; the share has what all that were tried ran.
        unlisted: findings that no entry of the ledger has, by headline, with the history of each.
            No history with one is distilled. Those of other targets, `excused_on`, begin with the
            target's name, and one that cannot be judged there counts as well.
    """

    share: Share
    stale: Sequence[Reason]
    unused: Sequence[Reason]
    open_questions: Sequence[str]
    new: Mapping[str, int]
    distilled: Sequence[str] = ()
    unlisted: Mapping[str, str] = field(default_factory=dict)

    def excused_on(
        self,
        target: str,
        sessions: Sessions,
        entries: Sequence[Entry],
        progress: Callable[[int, int], None],
    ) -> "Measured":
        """The same without those distilled that show on ``target`` what no entry of it has."""
        listed = {entry.signature for entry in entries}
        lines, new = excused(sessions, self.distilled, listed, progress)
        unlisted = {**self.unlisted, **{f"{target}: {what}": place for what, place in new.items()}}
        return replace(self, distilled=lines, unlisted=unlisted)


class _Measuring:
    """A worker that reports what runs while it judges: branches to ``noted``, and codes."""

    def __init__(
        self, worker: Answers, noted: Callable[[Mapping[str, Any], Arcs], None], decided: set[str]
    ) -> None:
        self._worker = worker
        self._noted = noted
        self._decided = decided

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        """The answer; raises what a worker raises."""
        if message["op"] not in _JUDGED:
            return self._worker.ask(timeout, **message)
        answer = self._worker.ask(timeout, **message, branches=True)
        arcs = {name: set(map(tuple, each)) for name, each in answer["arcs"].items()}
        if "cannot" not in answer:
            self._noted(message, arcs)
            self._decided.update(answer["decided"])
        return answer

    def close(self) -> None:
        """End the worker."""
        self._worker.close()


def measure(
    run: Run,
    known: Sequence[Reason],
    progress: Callable[[int, int], None],
    search: tuple[str, int] | None = None,
) -> Measured:
    """Measure which branches run under a profile; arguments and exceptions as for `gate.check`.

    ``known`` are the reasons that speak of the target. ``search`` is a seed, and how many histories
    to try in search of few that run and show as much (`gate.distilling`).
    """
    target, profile, entries, limits = run.target, run.profile, run.entries, run.limits
    todo = tasks(profile, entries)
    ran: Arcs = {}
    by_question: dict[str, Arcs] = {}
    searched: Ran | None = None
    decided: set[str] = set()

    def noted(message: Mapping[str, Any], arcs: Arcs) -> None:
        if searched is None:
            by_question[_question(message)] = arcs
        else:
            searched.note(_question(message), arcs)

    with Workers(target, limits) as workers:

        def start() -> Session:
            return Session(lambda: _Measuring(workers.start(), noted, decided), limits.timeout)

        with closing(Sessions(limits.jobs, start)) as sessions:
            actual, detail = sessions.policies()
            granularity = actual.get("hit_granularity", "")
            replays = histories(profile, entries, granularity)
            settled, played = sessions.settle(todo, replays, progress)
            new: dict[str, int] = {}
            for place, question in _in_order(todo, replays):
                before = sum(map(len, ran.values()))
                for name, arcs in by_question.get(question, {}).items():
                    ran.setdefault(name, set()).update(arcs)
                if more := sum(map(len, ran.values())) - before:
                    new[place] = more
            distilled: list[str] = []
            unlisted: dict[str, str] = {}
            if search is not None:
                searched = Ran()
                own = [play for play in replays if play.origin is Origin.WRITTEN]
                tried = candidates(granularity, *search)
                listed = {entry.signature for entry in entries}
                distilled, unlisted = distil(
                    sessions, searched, _question, own, tried, listed, progress
                )
                for name, *arc in searched.arcs():
                    ran.setdefault(name, set()).add((arc[0], arc[1]))
            asked = {name: sorted(arcs) for name, arcs in ran.items()}
            answer = sessions.ask(op="branches", arcs=asked)
    questions = _open_questions(detail, settled, played)
    name, undecided = target.version or target.name, sorted({*answer["codes"]} - decided)
    found = _held(name, profile, answer["modules"], undecided, known, questions, new)
    return replace(found, distilled=distilled, unlisted=unlisted)


def _question(message: Mapping[str, Any]) -> str:
    judged = message["play"] if message["op"] == "replay" else message["configuration"]
    return json.dumps([message.get("claim"), judged])


def _in_order(todo: Sequence[Task], replays: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The place and the question of each check and history, so that it depends on no timing."""
    for task in todo:
        message = {
            "op": "check",
            "claim": task.claim,
            "configuration": task.configuration.as_json(),
        }
        yield place_of(task.configuration), _question(message)
    for play in replays:
        yield place_of(play), _question({"op": "replay", "play": play.as_json()})


def _open_questions(detail: str, settled: Iterable[Outcome], played: Iterable[Played]) -> list[str]:
    unsettled = (
        each.detail
        for outcome in settled
        for each in outcome.obligations
        if each.status is Status.INCONCLUSIVE
    )
    unplayed = (each.reason for each in played)
    return list(dict.fromkeys(filter(None, [detail, *unsettled, *unplayed])))


def _held(
    release: str,
    profile: Profile,
    modules: Mapping[str, Any],
    undecided: Sequence[str],
    known: Sequence[Reason],
    questions: Sequence[str],
    new: Mapping[str, int],
) -> Measured:
    """The branches of the worker's answer, with the reasons."""
    seen: Counter[tuple[str, str, str]] = Counter()
    branches = []
    for name, module in modules.items():
        for each in module["branches"]:
            texts = each["function"], each["text"], each["to_text"]
            seen[texts] += 1
            number = seen[texts]
            branches.append(Branch(name, **each | {"occurrence": number}))
    of = {reason: [each for each in branches if reason.is_about(each)] for reason in known}
    not_run = [
        (each, next((reason.reason for reason in known if each in of[reason]), ""))
        for each in branches
        if not each.run
    ]
    counts = {
        name: (
            sum(each.module == name for each in branches),
            sum(each.module == name and each.run for each in branches),
        )
        for name in modules
    }
    digests = {name: each["digest"] for name, each in modules.items()}
    share = Share(release, profile, digests, counts, not_run, undecided)
    stale = [reason for reason, about in of.items() if any(each.run for each in about)]
    return Measured(share, stale, [each for each in known if not of[each]], questions, new)


def shares(path: Path) -> dict[str, Share]:
    """What is on record, by release."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return {release: Share.from_json(release, raw) for release, raw in data.items()}


def keep(path: Path, share: Share) -> None:
    """Put a share on record, in place of that of the same release."""
    known = {release: each.as_json() for release, each in shares(path).items()}
    known[share.release] = share.as_json()
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def on_record(path: Path, target: Target) -> Share | None:
    """What is on record of code like that of the target; None where it was not measured."""
    if target.root is None or target.managers or target.coordinators:
        return None
    core = target.root / "vllm" / "v1" / "core"
    for share in shares(path).values():
        if all(_digest(core / f"{name}.py") == each for name, each in share.digests.items()):
            return share
    return None


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()[:12] if file.is_file() else ""
