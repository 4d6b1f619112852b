"""The self-test: how many mutants of a target the gate notices."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.histories.plays import Play
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate.doctor import bundled_models, read_model
from hitproof.vllm_integration.gate.equivalents import Change, Equivalent
from hitproof.vllm_integration.gate.obligations import histories, tasks
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import Worker
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

BATCH_SECONDS = 5.0
"""How long a worker goes on before it says what it has."""


class NoTests(Exception):
    """The target comes without vLLM's own tests; the message says so."""


class UnknownFunction(Exception):
    """No function of that name is mutated; the message names those that are."""


@dataclass(frozen=True)
class Judged:
    """A mutant and what became of it.

    Attributes:
        change: what identifies it.
        line: where the statement is in its file.
        file: that file, from ``vllm/`` on.
        kind: the sort of change.
        caught: how the gate notices it, as a class of divergence or "policy change", "known no
            more", "inconclusive", "time-out" or "internal error"; "" when it does not.
        by: the claim whose check notices it, or "replay" for a history; "" when that is not known.
        detail: more about it.
        beside_known: whether known divergences are about the function.
        killed_by: the first of vLLM's own tests that fails, where the gate lets the mutant pass and
            they are run; else "".
        looks_up: whether the function is one of a tier that looks up, or a mask.
        proved: whether the solver proves that it does what the function does.
    """

    change: Change
    line: int
    file: str
    kind: str
    caught: str
    by: str
    detail: str
    beside_known: bool = False
    killed_by: str = ""
    looks_up: bool = False
    proved: bool = False


@dataclass(frozen=True)
class Chosen:
    """Which mutants are judged.

    Attributes:
        family: the family of mutants.
        functions: the qualified names of the functions that are mutated, where it is not all.
        sample: how many of the mutants are judged, where it is not all.
        seed: the seed by which they are chosen.
        upstream: whether vLLM's own tests are run on those that the gate lets pass.
    """

    family: Family = Family.SINGLE_POINT
    functions: Collection[str] = ()
    sample: int | None = None
    seed: int = 0
    upstream: bool = False

    def covers(self, function: str) -> bool:
        """Whether all mutants of the function are among them."""
        return not self.sample and (not self.functions or function in self.functions)


@dataclass
class SelfTestReport:
    """What became of all mutants.

    Attributes:
        target: the target.
        profile: how much the checks covered.
        chosen: which mutants are judged.
        judged: every mutant, in the order of the target's text.
        equivalents: equivalent mutants, with the entry that gives the reason, unless it is proved.
        stale: entries whose mutant is caught, proved equivalent, or not there.
        unfinished: checks that could not be run on the target as it is.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    profile: Profile
    chosen: Chosen = field(default_factory=Chosen)
    judged: list[Judged] = field(default_factory=list)
    equivalents: list[tuple[Judged, Equivalent | None]] = field(default_factory=list)
    stale: list[Equivalent] = field(default_factory=list)
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def caught(self) -> list[Judged]:
        """The mutants that the gate notices."""
        return [mutant for mutant in self.judged if mutant.caught]

    @property
    def survivors(self) -> list[Judged]:
        """The mutants that nothing notices, except equivalent ones."""
        same = {mutant.change for mutant, _ in self.equivalents}
        return [m for m in self.judged if not m.caught and m.change not in same]

    @property
    def killed(self) -> list[Judged]:
        """The mutants that the gate lets pass and vLLM's own tests notice.

        Equivalent ones are not, where the test is known to look at how the same is said.
        """
        excused = {m.change for m, e in self.equivalents if e and e.excuses(m.killed_by)}
        return [m for m in self.judged if m.killed_by and m.change not in excused]

    @property
    def proved(self) -> int:
        """How many mutants the solver proves equivalent."""
        return sum(mutant.proved for mutant in self.judged)

    @property
    def counted(self) -> int:
        """How many mutants are not equivalent."""
        return len(self.judged) - len(self.equivalents)

    @property
    def share(self) -> float:
        """The share of the mutants, equivalent ones excepted, that the gate notices, in percent."""
        return 100.0 * len(self.caught) / self.counted if self.counted else 0.0

    @property
    def looking_up(self) -> tuple[int, int]:
        """How many mutants of lookups and masks of tiers are caught, and how many that is of."""
        same = {mutant.change for mutant, _ in self.equivalents}
        counted = [m for m in self.judged if m.looks_up and m.change not in same]
        return sum(bool(m.caught) for m in counted), len(counted)

    def verdict(self, at_least: float) -> Verdict:
        """Whether ``at_least`` percent are caught, no entry is stale, and no survivor is killed."""
        if self.unfinished or not self.judged:
            return Verdict.INCONCLUSIVE
        good = self.share >= at_least and not self.stale and not self.killed
        return Verdict.CONFORMS if good else Verdict.DIVERGES


def run(
    of: Run, equivalents: Sequence[Equivalent], chosen: Chosen, progress: Callable[[int, int], None]
) -> SelfTestReport:
    """Judge the chosen mutants of a target by the checks and histories of its profile.

    As many mutants are judged at once as there may be workers, and the time limit is the seconds of
    processor time that a check may take on a mutant. ``progress`` is called with what is done and
    the total. Raises the exceptions of `Worker`, and `WorkerGone` when the worker ends before all
    is judged, and `UnknownFunction`.
    """
    target, limits = of.target, of.limits
    report = SelfTestReport(target, of.profile, chosen)
    with Worker(target, limits) as worker:
        patience = limits.timeout + 12 * BATCH_SECONDS
        granularity = worker.ask(patience, op="policies")["policies"].get("hit_granularity", "")
        answer = worker.ask(patience, **question(of, chosen, granularity))
        if unknown := set(chosen.functions) - set(answer["functions"]):
            raise UnknownFunction(
                f"no function called {' or '.join(sorted(unknown))} is mutated; name some of "
                + ", ".join(answer["functions"])
            )
        if chosen.upstream and not answer["upstream"]:
            raise NoTests(f"{target.label} has no tests of its own; leave out --upstream")
        described = answer["mutants"]
        while True:
            answer = worker.ask(patience, op="selftest_baseline", seconds=BATCH_SECONDS)
            progress(answer["done"], answer["total"] + len(described))
            if answer["done"] == answer["total"]:
                break
        report.unfinished = answer["unfinished"]
        outcomes: dict[int, dict[str, Any]] = {}
        begin: dict[str, Any] = {"mutants": list(range(len(described)))}
        while len(outcomes) < len(described):
            asked = {"op": "selftest_judge", "seconds": BATCH_SECONDS, **begin}
            results, begin = worker.ask(patience, **asked)["results"], {}
            outcomes |= {result.pop("mutant"): result for result in results}
            progress(answer["total"] + len(outcomes), answer["total"] + len(described))
        passed = [number for number, outcome in outcomes.items() if not outcome["caught"]]
        while chosen.upstream and (
            left := [number for number in passed if "killed_by" not in outcomes[number]]
        ):
            answer = worker.ask(
                patience, op="selftest_upstream", mutants=passed, seconds=BATCH_SECONDS
            )
            if not answer["runs"]:
                raise NoTests(f"the tests of {target.label} do not run; leave out --upstream")
            for result in answer["results"]:
                outcomes[result["mutant"]]["killed_by"] = result["killed_by"]
            progress(len(passed) - len(left), len(passed))
    fill(report, described, outcomes, equivalents)
    return report


def question(of: Run, chosen: Chosen, granularity: str) -> dict[str, Any]:
    """What a worker is asked to begin with, for a target whose hits may end there."""
    version = of.target.version
    of_scheduler = chosen.family in (Family.SCHEDULER, Family.LIFECYCLE)
    of_tiers = chosen.family is Family.TIERS
    speaking = [entry for entry in of.entries if entry.is_judged_on(version)]
    todo = [] if of_scheduler else tasks(of.profile, speaking)
    if of_tiers:
        todo = [task for task in todo if task.claim.startswith("tier_")]
    replays = [
        play
        for play in histories(of.profile, speaking, granularity)
        if (_offloads(play) if of_tiers else play.of_scheduler or not of_scheduler)
    ]
    return {
        "op": "selftest",
        "jobs": of.limits.jobs,
        "limit": of.limits.timeout,
        "histories": [play.as_json() for play in replays],
        "deployments": _deployments() if chosen.family is Family.SCHEDULER else [],
        "family": chosen.family,
        "functions": list(chosen.functions),
        "sample": chosen.sample,
        "seed": chosen.seed,
        "tasks": [{"claim": t.claim, "configuration": t.configuration.as_json()} for t in todo],
        "known": [e.signature.as_json() for e in of.entries if e.applies_to(version)],
    }


def _offloads(play: Play) -> bool:
    """Whether a connector keeps in the history what was computed."""
    connector = play.workload().deployment.connector if play.of_scheduler else None
    return connector is not None and connector.keeps


def _deployments() -> list[dict[str, Any]]:
    """The models whose groups are derived anew from each mutant."""
    return [
        {"name": name, "config": read_model(name).config, "arguments": []}
        for name in bundled_models()
    ]


def fill(
    report: SelfTestReport,
    described: list[dict[str, Any]],
    outcomes: dict[int, dict[str, Any]],
    equivalents: Sequence[Equivalent],
) -> None:
    """Put the outcomes of mutants into the report, and compare them with the equivalents."""
    for number, raw in enumerate(described):
        report.judged.append(
            Judged(
                Change(raw["function"], raw["before"], raw["after"], raw["occurrence"]),
                raw["line"],
                "vllm/" + raw["file"].rpartition("/vllm/")[2],
                raw["change"],
                beside_known=raw["beside_known"],
                looks_up=raw["looks_up"],
                **outcomes[number],
            )
        )
    report.equivalents += [(mutant, None) for mutant in report.judged if mutant.proved]
    judged = {mutant.change: mutant for mutant in report.judged}
    chosen = report.chosen
    for entry in equivalents:
        if not entry.applies_to(report.target.version) or entry.family != chosen.family:
            continue
        mutant = judged.get(entry.change)
        if mutant is not None and not mutant.caught and not mutant.proved:
            report.equivalents.append((mutant, entry))
        elif mutant is not None or chosen.covers(entry.change.function):
            report.stale.append(entry)
