"""Sessions of workers: obligations are distributed to them, and dead workers are replaced."""

import itertools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from hitproof.conformance.comparison.facts import Fact
from hitproof.conformance.comparison.histories import ManagerRun
from hitproof.conformance.comparison.schedules import ScheduleRun
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.evidence import Evidence, smallest
from hitproof.conformance.findings.findings import Finding, finding
from hitproof.conformance.findings.footprints import Footprint, place_of
from hitproof.conformance.findings.places import NOT_RUN, Passed
from hitproof.conformance.findings.replayed import replayed
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.obligations import Obligation, Played, Task, unsettled
from hitproof.vllm_integration.gate.proved import Proved
from hitproof.vllm_integration.gate.reads import ReadsReport
from hitproof.vllm_integration.gate.unbounded import Unbounded, seconds_for
from hitproof.vllm_integration.sandbox.driver import (
    Answers,
    EnvironmentFailure,
    Limits,
    Worker,
    WorkerGone,
    WorkerRaised,
)
from hitproof.vllm_integration.targets.target import Target

_CHECKS_TO_SHRINK = 2_000
"""Checks that are run to shrink the evidence of one finding."""
_HISTORIES_TO_SHRINK = 400
"""Histories that are replayed to shrink one finding."""

_PROOFS = 3
"""A proof gets the time for an answer divided by this; there may be two proofs."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Outcome:
    """How a task ended.

    Attributes:
        obligations: those that it settles, or fails to.
        facts: what the target did, if that was asked for.
        evidence: where it diverges.
        footprints: how far each signature of the evidence reaches.
        skipped: whether it was not begun.
    """

    obligations: list[Obligation]
    facts: list[Fact] = field(default_factory=list)
    evidence: Sequence[Evidence] = ()
    footprints: Mapping[Signature, Footprint] = field(default_factory=dict)
    skipped: bool = False


Around: TypeAlias = Callable[[Task, Callable[[], Outcome]], Outcome]


class Session:
    """One worker after the other, made by ``start``; ``timeout`` (seconds) bounds each question.

    A worker that ends or hangs is replaced before the next question. ``around`` each task may take
    an outcome from elsewhere, or keep it.
    """

    def __init__(
        self, start: Callable[[], Answers], timeout: float, around: Around | None = None
    ) -> None:
        self._around = around
        self._start = start
        self._timeout = timeout
        self._worker: Answers | None = start()
        self._gone = ""
        self._fatal: dict[tuple[str, str], str] = {}

    @staticmethod
    def of(target: Target, limits: Limits, policies: Mapping[str, str] | None = None) -> "Session":
        """A session of a target with workers of its own; arguments and exceptions as `Worker`."""
        return Session(lambda: Worker(target, limits, policies), limits.timeout)

    def close(self) -> None:
        """End the worker; there is none after it."""
        self._gone = "it was ended"
        self._end()

    def policies(self) -> tuple[dict[str, str], str]:
        """How the target behaves where releases differ, or why that cannot be determined."""
        try:
            answer = self.ask(op="policies")
        except WorkerGone as gone:
            return {}, f"the policies cannot be determined: {gone}"
        detail = str(answer["detail"])
        return answer["policies"], detail and f"the policies cannot be determined: {detail}"

    def reads(self, accepted: Mapping[str, str]) -> ReadsReport:
        """What the target reads of its inputs."""
        try:
            answer = self.ask(op="reads")
        except WorkerGone as gone:
            return ReadsReport(cannot=f"what the target reads cannot be found out: {gone}")
        return ReadsReport(answer["reads"], answer["varied"], accepted)

    def unbounded(self, name: str, proved: Proved) -> Unbounded:
        """Put one statement to the target, for all lengths, unless it is proved already."""
        asked = {
            "name": name,
            "seconds": min(seconds_for(name), self._timeout / _PROOFS),
            "proved": proved.of(name),
        }
        try:
            answer = self.ask(op="unbounded", **asked)
        except WorkerGone as gone:
            return Unbounded(name, Status.INCONCLUSIVE, str(gone))
        proved.add(name, answer["proved"])
        return Unbounded.from_answer(name, answer)

    def settle(self, task: Task, keep_facts: bool) -> Outcome:
        """Run one task; ``keep_facts`` asks for what the target did, too.

        Once an entry point has ended a worker it is not run again.
        """
        if self._around is None:
            return self._settle(task, keep_facts)
        return self._around(task, lambda: self._settle(task, keep_facts))

    def _settle(self, task: Task, keep_facts: bool) -> Outcome:
        known_fatal = self._fatal.get(task.entry)
        if known_fatal is not None:
            reason = f"not run, since on an earlier configuration {known_fatal}"
            return Outcome(unsettled(task, reason))
        try:
            answer = self.ask(
                op="check",
                claim=task.claim,
                configuration=task.configuration.as_json(),
                facts=keep_facts,
            )
        except WorkerGone as gone:
            check_name, kind = task.entry
            reason = f"{check_name.replace('_', ' ')} of {kind.replace('_', ' ')} failed: {gone}"
            self._fatal[task.entry] = reason
            return Outcome(unsettled(task, reason))
        evidence = [Evidence.from_json(raw) for raw in answer["evidence"]]
        refuting = answer.get("refuting", {})
        obligations = [
            Obligation(
                claim,
                task.configuration,
                Status(status),
                int(answer["paths"]),
                int(answer["states"]),
                str(answer["detail"]),
                tuple(map(Signature.from_json, refuting.get(claim, ()))),
                int(answer["runs"]),
            )
            for claim, status in answer["statuses"].items()
        ]
        facts = [Fact.from_json(raw) for raw in answer.get("facts", ())]
        reach = map(Footprint.from_json, answer["footprints"])
        footprints = dict(zip((e.signature for e in evidence), reach, strict=True))
        return Outcome(obligations, facts, evidence, footprints)

    def play(self, play: Play, record: bool = False) -> Played:
        """Replay one history; ``record`` asks for what was observed of it, too.

        Once one of an origin has ended a worker no other of it is replayed.
        """
        entry = "replay", str(play.origin)
        if (known_fatal := self._fatal.get(entry)) is not None:
            return Played(play, unsettled=f"not replayed, since {known_fatal}")
        try:
            answer = self.ask(op="replay", play=play.as_json(), record=record)
        except WorkerRaised as crash:
            return Played(play, unsettled=f"{play.describe()}: {crash}")
        except WorkerGone as gone:
            self._fatal[entry] = f"{play.describe()} failed: {gone}"
            return Played(play, unsettled=self._fatal[entry])
        if "cannot" in answer:
            return Played(play, unsettled=f"{play.describe()}: {answer['cannot']}")
        causes = [found for found in answer["findings"] if found["cause"] is None]
        signatures = tuple(Signature.from_json(found["signature"]) for found in causes)
        footprints = tuple(map(Footprint.from_json, answer["footprints"]))
        played = Played(
            play,
            len(answer["steps"]),
            len(answer["lookups"]),
            signatures,
            footprints,
            left_out=answer.get("left_out", False),
            refused=answer.get("scheduler", {}).get("refused", ""),
        )
        if record and play.of_scheduler:
            return replace(played, schedule=ScheduleRun.from_answer(answer))
        return replace(played, run=ManagerRun.from_answer(answer)) if record else played

    def replay(self, play: Play, **asked: Any) -> tuple[dict[str, Any], str]:
        """What became of a history that is written out, and why it could not be judged, or ""."""
        try:
            answer = self.ask(op="replay", play=play.as_json(), **asked)
        except WorkerGone as gone:
            return {}, str(gone)
        return answer, answer.get("cannot", "")

    def finding(
        self, shown: Evidence | tuple[Signature, Play], name: str, small: bool = True
    ) -> Finding:
        """The finding that is shown, as small as it gets if ``small``. ``name`` is its test's."""
        if isinstance(shown, Evidence):
            return self._found_by_check(shown, name, _CHECKS_TO_SHRINK if small else 0)
        written = shown[1].origin is Origin.WRITTEN
        return self._found_by_replay(
            *shown, name, _HISTORIES_TO_SHRINK if small and not written else 0
        )

    def _found_by_check(self, evidence: Evidence, name: str, budget: int) -> Finding:
        found, shown = self.demonstrated("check", name, budget, evidence=evidence.as_json())
        if found is None:  # shown as it was found, larger than need be
            return finding(evidence, "", shown)
        evidence, source = Evidence.from_json(found["evidence"]), str(found["source"])
        return finding(evidence, source, shown, _passed(found), found.get("trace"))

    def _found_by_replay(self, signature: Signature, play: Play, name: str, budget: int) -> Finding:
        found, shown = self.demonstrated(
            "replay", name, budget, play=play.as_json(), signature=signature.as_json()
        )
        if found is None:
            return replayed(signature, play, "", "", 0, shown)
        small = Play(Origin.WRITTEN, play.name, found["history"])
        told = found["spec"], found["actual"], found["step"]
        return replayed(signature, small, *told, shown, _passed(found), found.get("trace"))

    def demonstrated(
        self, by: str, name: str, budget: int, **divergence: Any
    ) -> tuple[dict[str, Any] | None, Demonstration]:
        """A divergence as the worker's operation ``finding`` shows it; arguments as there.

        What ends the worker is left out on the next try: the demonstration, then the shrinking.
        After the last there is no finding, and the demonstration says why.
        """
        reason = ""
        for tried in dict.fromkeys([(name, budget), ("", budget), (name, 0)]):
            wanted = dict(zip(("name", "budget"), tried, strict=True))
            try:
                answer = self.ask(op="finding", by=by, **wanted, **divergence)
            except WorkerGone as gone:
                reason = str(gone)
                continue
            shown = answer["demonstration"] or {"name": name, "detail": reason}
            return answer["finding"], Demonstration(**shown)
        return None, Demonstration(name, detail=reason)

    def ask(self, **message: Any) -> dict[str, Any]:
        """Ask the worker one question; see `vllm_integration.sandbox.protocol`.

        Raises `WorkerGone`, and what `Worker` raises but for `EnvironmentFailure`.
        """
        if self._gone:
            raise WorkerGone(self._gone)
        try:
            if self._worker is None:
                self._worker = self._start()
        except EnvironmentFailure as failure:  # it could be imported before
            self._gone = str(failure)
            raise WorkerGone(self._gone) from failure
        try:
            return self._worker.ask(self._timeout, **message)
        except WorkerRaised:
            raise
        except WorkerGone:
            self._end()
            raise

    def _end(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


class Sessions:
    """Up to ``jobs`` sessions side by side. What they give does not depend on how many there are.

    The first starts at once. `close` ends them.
    """

    def __init__(self, jobs: int, start: Callable[[], Session]) -> None:
        self._jobs = jobs
        self._start = start
        self._all = [start()]
        self._idle: queue.SimpleQueue[Session] = queue.SimpleQueue()
        self._idle.put(self._all[0])

    def close(self) -> None:
        """End all of them."""
        for session in self._all:
            session.close()

    def policies(self) -> tuple[dict[str, str], str]:
        """See `Session.policies`."""
        return self._all[0].policies()

    def ask(self, **message: Any) -> dict[str, Any]:
        """Ask one of them while none is at work; see `Session.ask`."""
        return self._all[0].ask(**message)

    def reads(self, accepted: Mapping[str, str]) -> ReadsReport:
        """See `Session.reads`; others may be at work meanwhile."""
        return self._each(lambda session, names: session.reads(names), [accepted])[0]

    def unbounded(self, names: Sequence[str], proved: Proved) -> list[Unbounded]:
        """See `Session.unbounded`."""
        return self._each(lambda session, name: session.unbounded(name, proved), names)

    def settle(
        self,
        todo: Sequence[Task],
        histories: Sequence[Play],
        progress: Callable[[int, int], None],
        keep_facts: bool = False,
        *,
        first: Collection[str] = (),
        ends: Callable[[Task, Outcome], bool] = lambda *_: False,
        ends_at: Callable[[Played], bool] = lambda _: False,
    ) -> tuple[list[Outcome], list[Played]]:
        """The outcome of each task, and what became of each history.

        Tasks of one entry point stay in one session, in order: what ends the worker on the first
        of them is not tried on the others. So do histories of one origin. Those in the places
        ``first`` come before the others. Once ``ends`` says so of an outcome, or ``ends_at`` of a
        history, nothing more is begun; histories that were not are left out.
        """
        together: dict[object, list[Task | Play]] = {}
        earlier: dict[object, list[Task | Play]] = {}
        for task in todo:
            early = first and place_of(task.configuration) in first
            (earlier if early else together).setdefault(task.entry, []).append(task)
        for play in histories:
            early = first and place_of(play) in first
            (earlier if early else together).setdefault(play.origin, []).append(play)
        outcomes: dict[Task, Outcome] = {}
        played: dict[Play, Played] = {}
        done, total = itertools.count(), len(todo) + len(histories)
        counting, ended = threading.Lock(), threading.Event()
        progress(next(done), total)

        def settle(session: Session, some: list[Task | Play]) -> None:
            for each in some:
                if ended.is_set():
                    return
                if isinstance(each, Task):
                    outcomes[each] = session.settle(each, keep_facts)
                    is_last = ends(each, outcomes[each])
                else:
                    played[each] = session.play(each, keep_facts)
                    is_last = ends_at(played[each])
                if is_last:
                    ended.set()
                with counting:
                    progress(next(done), total)

        # The longest first, so that all sessions have work to the end.
        longest = sorted(together.values(), key=_length, reverse=True)
        self._each(settle, [*earlier.values(), *longest])
        skipped = Outcome([], skipped=True)
        settled = [outcomes.get(task, skipped) for task in todo]
        return settled, [played[play] for play in histories if play in played]

    def findings(
        self,
        evidence: Sequence[Evidence],
        played: Sequence[Played],
        unshown: Collection[Signature] = (),
    ) -> list[Finding]:
        """The findings, shrunk, the most severe first; those that are ``unshown`` as they are.

        What a check has shown need not be shown by a history, and what one history shows, by
        another.
        """
        shown: dict[Signature, Evidence | tuple[Signature, Play]] = dict(smallest(evidence))
        for each in played:
            for signature in each.signatures:
                shown.setdefault(signature, (signature, each.play))
        found = sorted(shown.items(), key=lambda pair: pair[0].severity)
        names = _names(signature for signature, _ in found)
        named = [(each, name) for (_, each), name in zip(found, names, strict=True)]
        worked_out = [(each, name) for each, name in named if _signature(each) not in unshown]
        shrunk = iter(self._each(lambda session, about: session.finding(*about), worked_out))
        return [
            _as_it_is(each) if _signature(each) in unshown else next(shrunk) for each, _ in named
        ]

    def as_found(self, shown: Sequence[Evidence | tuple[Signature, Play]]) -> list[Finding]:
        """The findings that these show, as they are: a smaller case may be a known one."""
        claims = map(_signature, shown)
        named = [(each, f"grown_{name}") for each, name in zip(shown, _names(claims), strict=True)]
        return self._each(lambda session, about: session.finding(*about, small=False), named)

    def _another(self) -> Session:
        """A new session, or the next that is idle where the target does not import any more."""
        try:
            session = self._start()
        except EnvironmentFailure:
            return self._idle.get()
        self._all.append(session)
        return session

    def _each(
        self, work: Callable[[Session, _Item], _Result], items: Sequence[_Item]
    ) -> list[_Result]:
        def on_some(item: _Item) -> _Result:
            try:
                session = self._idle.get_nowait()
            except queue.Empty:
                session = self._another()
            try:
                return work(session, item)
            finally:
                self._idle.put(session)

        with ThreadPoolExecutor(self._jobs) as threads:
            running = [threads.submit(on_some, item) for item in items]
            try:
                return [each.result() for each in running]
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise


def _length(some: list[Task | Play]) -> tuple[bool, int]:
    """About how long it takes.

    A check of one configuration alone looks at many states of it, and groups that are looked up
    together take longer than one.
    """
    alone = len(some) == 1 and isinstance(some[0], Task)
    return alone, sum(
        8 if isinstance(each, Task) and isinstance(each.configuration, Layout) else 1
        for each in some
    )


def _passed(found: Mapping[str, Any]) -> Passed:
    return Passed.from_json(found["passed"]) if "passed" in found else NOT_RUN


def _signature(shown: Evidence | tuple[Signature, Play]) -> Signature:
    return shown.signature if isinstance(shown, Evidence) else shown[0]


def _as_it_is(shown: Evidence | tuple[Signature, Play]) -> Finding:
    if isinstance(shown, Evidence):
        return finding(shown, "")
    return replayed(*shown, "", "", 0, Demonstration())


def _names(found: Iterable[Signature]) -> Iterator[str]:
    """A name for the test of each finding: its claim, numbered."""
    numbers: Counter[str] = Counter()
    for signature in found:
        numbers[signature.claim] += 1
        yield f"{signature.claim}_{numbers[signature.claim]}"
