"""The worker's side of the self-test: mutants of the imported vLLM, each in a process of its own.

First every check and every history runs on the unmodified target, and its findings and the lines of
the mutated functions that it executes are recorded. A mutant is then judged by those that execute
its line, quickest first, until one reports what it does not report for the target: a new finding,
or a known divergence that has grown. Reports that show no divergence count where there is no other.
"""

import gc
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.footprints import Footprint, Growth, growth
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.mutation import Mutant
from hitproof.conformance.scope.layouts import judged_from_json
from hitproof.conformance.structured.faults import EFFECTIVE
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.sandbox.forks import Forks, allow
from hitproof.vllm_integration.worker import doctor, equivalence, schedulers, upstream
from hitproof.vllm_integration.worker.mutants import looks_up, of_target, sampled
from hitproof.vllm_integration.worker.replay import played

_POLICIES = "policies"
_REPLAY = "replay"
_DERIVATION = "derivation"
_INCONCLUSIVE, _NO_MORE = "inconclusive", "known no more"
_WEAK = (_INCONCLUSIVE, _NO_MORE)
"""Reports that show no divergence: what shows one is preferred, and looked for."""
_UPSTREAM_SECONDS = 300.0
_SECONDS_OF_PROOF = 120.0
"""For a proof that a mutant is equivalent, for each way of calling the function."""
_MOST_OF_PROOF = 600.0
_PIECE = 25
"""Checks that one copy of the worker runs on the unmodified target."""


@dataclass(frozen=True)
class _Said:
    """The result of one check: the findings, what is inconclusive, and why.

    Attributes:
        footprints: of the findings' signatures.
        unsettled: claims that are inconclusive; "" where the check itself fails.
        detail: why they are.
        policies: for the probes of policies, what they show.
        internal: whether the fault is hitproof's own.
        broken: rules that a derived deployment breaks.
    """

    footprints: Mapping[Signature, Footprint] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()
    detail: str = ""
    policies: tuple[tuple[str, str], ...] = ()
    internal: bool = False
    broken: frozenset[str] = frozenset()

    @property
    def signatures(self) -> frozenset[Signature]:
        """What was found."""
        return frozenset(self.footprints)


@dataclass(frozen=True)
class Deployed:
    """A model that start-up derives groups of: its name, config.json and vLLM's arguments."""

    name: str
    config: str
    arguments: list[str]

    def describe(self) -> str:
        """In words."""
        return f"the groups of {self.name}"


@dataclass
class _Normal:
    """One check on the unmodified target."""

    said: _Said
    lines: frozenset[tuple[int, int]]
    seconds: float


def _occurrences(mutants: Sequence[Mutant]) -> dict[int, int]:
    """Numbers mutants with the same text in the same function, from 1; by their ``id``."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = {}
    for mutant in mutants:
        text = (mutant.function.__qualname__, mutant.before, mutant.after)
        seen[text] += 1
        found[id(mutant)] = seen[text]
    return found


class SelfTest:
    """The self-test of one subject."""

    def __init__(self, subject: VllmSubject, message: dict[str, Any]) -> None:
        self._subject = subject
        self._tasks: list[tuple[str, Any]] = [
            (_POLICIES, None),
            *((t["claim"], judged_from_json(t["configuration"])) for t in message["tasks"]),
        ]
        self._tasks += [(_REPLAY, Play.from_json(raw)) for raw in message["histories"]]
        self._tasks += [(_DERIVATION, Deployed(**raw)) for raw in message["deployments"]]
        self._known = [Signature.from_json(raw) for raw in message["known"]]
        self._limit = float(message["limit"])
        self._jobs = int(message["jobs"])
        self._beside = _symbols(self._known)
        self._family = Family(message["family"])
        every = of_target(self._family, self._beside)
        wanted = message["functions"]
        chosen = [m for m in every if not wanted or m.function.__qualname__ in wanted]
        self._occurrences = _occurrences(every)
        sample = message["sample"] or len(chosen)
        self.mutants = sampled(chosen, sample, message["seed"])
        self.functions = list(dict.fromkeys(mutant.function.__qualname__ for mutant in every))
        self._functions = list(dict.fromkeys(mutant.function for mutant in self.mutants))
        self._normal: list[_Normal | None] = [None] * len(self._tasks)
        self._unfinished = 0
        pieces = range(0, len(self._tasks), _PIECE)
        gc.freeze()  # so that copies share the memory
        self._baseline = Forks(len(pieces), self._jobs, self._normal_piece)
        self._wanted: Sequence[int] = ()
        self._judging = Forks(0, 1, self._mutant)
        self._testing: Forks | None = None
        self._left_out: list[str] | None = None

    def described(self) -> list[dict[str, Any]]:
        """The mutants as JSON."""
        return [
            {
                "function": mutant.function.__qualname__,
                "line": mutant.lines[0],
                "file": mutant.code.co_filename,
                "change": str(mutant.change),
                "beside_known": mutant.function.__qualname__ in self._beside,
                "looks_up": looks_up(self._family, mutant.function),
                "before": mutant.before,
                "after": mutant.after,
                "occurrence": self._occurrences[id(mutant)],
            }
            for mutant in self.mutants
        ]

    def baseline(self, seconds: float) -> dict[str, Any]:
        """Continue with the checks on the unmodified target."""
        for piece, answer in self._baseline.results(seconds):
            first = piece * _PIECE
            if isinstance(answer, int):  # the copy died; what it had is not used
                self._unfinished += len(self._tasks[first : first + _PIECE])
                continue
            for number, raw in enumerate(answer, first):
                self._normal[number] = _Normal(
                    _said_from_json(raw["said"]),
                    frozenset((f, line) for f, line in raw["lines"]),
                    raw["seconds"],
                )
        done = sum(normal is not None for normal in self._normal)
        return {
            "done": done + self._unfinished,
            "total": len(self._tasks),
            "unfinished": self._unfinished,
        }

    def judge(self, mutants: Sequence[int] | None, seconds: float) -> dict[str, Any]:
        """Begin with these mutants, or continue with those before."""
        if mutants is not None:
            normal = [n.said.signatures for n in self._normal if n is not None]
            self._shown = frozenset[Signature]().union(*normal)
            self._wanted = mutants
            self._judging = Forks(len(mutants), self._jobs, lambda n: self._mutant(mutants[n]))
        return {
            "results": [
                {
                    "mutant": self._wanted[number],
                    **(_death(answer) if isinstance(answer, int) else answer),
                }
                for number, answer in self._judging.results(seconds)
            ]
        }

    def upstream(self, mutants: Sequence[int], seconds: float) -> dict[str, Any]:
        """Continue with vLLM's own tests on mutants, after the unmodified target.

        The results have the first test that fails, "" where none does.
        """
        if self._left_out is None:
            if self._testing is None:
                self._testing = Forks(1, 1, lambda _: upstream.failures())
            for _, answer in self._testing.results(seconds):
                if not isinstance(answer, list):
                    return {"runs": False, "results": []}
                self._left_out, self._testing = answer, None
            return {"runs": True, "results": []}
        if self._testing is None:
            self._testing = Forks(
                len(mutants), self._jobs, lambda number: self._tested(mutants[number])
            )
        return {
            "runs": True,
            "results": [
                {"mutant": mutants[number], "killed_by": _killer(answer)}
                for number, answer in self._testing.results(seconds)
            ],
        }

    def _tested(self, number: int) -> list[str]:
        mutant = self.mutants[number]
        mutant.function.__code__ = mutant.code
        allow(_UPSTREAM_SECONDS)
        return upstream.failures(self._left_out or [], first=True)

    def _normal_piece(self, piece: int) -> list[dict[str, Any]]:
        numbers = {
            id(code): number
            for number, function in enumerate(self._functions)
            for code in _codes(function.__code__)
        }
        answer = []
        if piece:
            self._ask(_POLICIES, None)  # the subject remembers them, so no check finds them out
        for claim, judged in self._tasks[piece * _PIECE : (piece + 1) * _PIECE]:
            started = time.process_time()
            with _lines_run(numbers) as lines:
                said = self._ask(claim, judged)
            answer.append(
                {
                    "said": _said_json(said),
                    "lines": sorted(lines),
                    "seconds": time.process_time() - started,
                }
            )
        return answer

    def _mutant(self, number: int) -> dict[str, Any]:
        mutant = self.mutants[number]
        relevant = self._reaching(mutant)
        run = f"{len(relevant)} checks and histories run this line"
        if not relevant:
            return {"caught": "", "by": "", "detail": "nothing runs this line"}
        if mutant.probe is not None and not self._condition_holds(mutant, mutant.probe(), relevant):
            return {"caught": "", "by": "", "detail": f"{run}; the condition never holds"}
        weak = None
        for index in relevant:
            claim, judged = self._tasks[index]
            allow(self._limit)
            with mutant.applied():
                said = self._ask(claim, judged)
            normal = self._normal[index]
            assert normal is not None
            where = "the policies" if judged is None else judged.describe()
            if caught := self._difference(normal.said, said):
                # The subject remembers its policies; of all else the mutant must be the cause.
                if judged is not None and self._difference(normal.said, self._ask(claim, judged)):
                    continue
                found = {"caught": caught[0], "by": claim, "detail": f"{caught[1]} ({where})"}
                if caught[0] not in _WEAK:
                    return found
                weak = weak or found
        if weak is not None:
            return weak
        try:
            proved = self._is_same(mutant)
        except Exception as error:  # a fault of the prover catches nothing
            return {"caught": "", "by": "", "detail": f"{run}; its proof fails: {error!r:.200}"}
        return {"caught": "", "by": "", "detail": run, "proved": proved}

    def _is_same(self, mutant: Mutant) -> bool:
        """Whether the solver proves that the mutant does what its function does."""
        if mutant.text is None:
            return False
        allow(_MOST_OF_PROOF)
        module, name = mutant.function.__module__, mutant.function.__qualname__
        asked = {"texts": {module: mutant.text()}, "module": module, "name": name}
        known = equivalence.settled(self._subject, {**asked, "seconds": _SECONDS_OF_PROOF})
        of_all = not known["detail"]  # else of some kinds of groups only
        return bool(known["status"] == Status.PROVED) and of_all

    def _condition_holds(self, mutant: Mutant, probe: CodeType, relevant: Sequence[int]) -> bool:
        """Whether the condition of the fault holds in any of these checks."""
        kept = mutant.function.__globals__
        before = set(kept)
        mutant.function.__code__ = probe
        for index in relevant:
            allow(self._limit)
            self._ask(*self._tasks[index])
            if EFFECTIVE in kept:
                break
        held = EFFECTIVE in kept
        for name in set(kept) - before:
            del kept[name]
        return held

    def _reaching(self, mutant: Mutant) -> list[int]:
        """The checks that run the line of the mutant: the quickest of each claim, and so on."""
        function, (first, last) = self._functions.index(mutant.function), mutant.lines
        wanted = {(function, line) for line in range(first, last + 1)}
        found = sorted(
            (normal.seconds, index)
            for index, normal in enumerate(self._normal)
            if normal is not None and not wanted.isdisjoint(normal.lines)
        )
        turns: Counter[str] = Counter()
        order = []
        for seconds, index in found:
            claim = self._tasks[index][0]
            turns[claim] += 1
            # Histories reach the most, and there are as many of them as of all else.
            turn = turns[claim] / 4 if claim == _REPLAY else turns[claim]
            # An engine that starts has vLLM keep the environment's variables: nothing follows it.
            order.append((claim == _DERIVATION, turn, seconds, index))
        return [index for *_, index in sorted(order)]

    def _difference(self, normal: _Said, said: _Said) -> tuple[str, str] | None:
        """What the gate would report for the mutant but does not for the target."""
        if said.internal:
            return "internal error", said.detail
        if said.policies != normal.policies and not said.unsettled:
            return "policy change", str(dict(set(said.policies) - set(normal.policies)))
        if broken := said.broken - normal.broken:
            return "broken rule", ", ".join(sorted(broken))
        new = sorted(said.signatures - self._shown, key=lambda signature: signature.severity)
        if new:
            return new[0].divergence, new[0].pattern
        changed = {
            signature: how
            for signature in self._known
            if (how := growth(normal.footprints.get(signature), said.footprints.get(signature)))
        }
        for signature, how in changed.items():
            if how is not Growth.LESS:
                return signature.divergence, f"grown ({how}): {signature.pattern}"
        if said.unsettled - normal.unsettled:
            return _INCONCLUSIVE, said.detail
        for signature in changed:
            return _NO_MORE, f"fewer cases: {signature.pattern}"
        return None

    def _ask(self, claim: str, judged: Any) -> _Said:
        try:
            if claim == _POLICIES:
                return _Said(policies=tuple(sorted(self._subject.policies().items())))
            if claim == _REPLAY:
                return self._play(judged)
            if claim == _DERIVATION:
                return _Said(broken=doctor.broken_by(judged.config, judged.arguments))
            result = CHECKS[claim](self._subject, judged)
        except BaseException as error:  # in the gate, a crash that no check expects ends the worker
            if classify(error) is FailureKind.INTERNAL:
                return _Said(detail=str(error)[:500], internal=True)
            return _Said(unsettled=frozenset({""}), detail=f"{error!r:.200}")
        return _Said(
            result.footprints,
            frozenset(c for c, s in result.statuses.items() if s is Status.INCONCLUSIVE),
            result.detail,
        )

    def _play(self, play: Play) -> _Said:
        try:
            if play.of_scheduler:
                causes = schedulers.played(self._subject, play).causes
            else:
                causes = played(self._subject, play).causes
        except Exception as error:
            return _Said(unsettled=frozenset({_REPLAY}), detail=refusal_of(error))
        return _Said({cause.signature: cause.footprint for cause in causes})


def _symbols(known: Iterable[Signature]) -> frozenset[str]:
    """The functions that known divergences are about, by qualified name."""
    claims = {signature.claim for signature in known}
    return frozenset(s for name in claims & CLAIMS.keys() for s in CLAIMS[name].symbols)


def _killer(answer: Any) -> str:
    """The first test that fails, from what a copy answers."""
    if isinstance(answer, int):
        return f"the tests end with signal {answer}" if answer else "the tests end the process"
    return str(answer[0]) if answer else ""


def _death(number: int) -> dict[str, Any]:
    if number == signal.SIGPROF:
        return {"caught": "time-out", "by": "", "detail": "a check does not return"}
    return {"caught": _INCONCLUSIVE, "by": "", "detail": f"the process died of signal {number}"}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@contextmanager
def _lines_run(numbers: dict[int, int]) -> Iterator[set[tuple[int, int]]]:
    """The lines that are executed in the meantime, with the number of their function."""
    lines: set[tuple[int, int]] = set()

    def in_function(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((numbers[id(frame.f_code)], frame.f_lineno))
        return in_function

    def in_any(frame: FrameType, _: str, __: Any) -> Any:
        return in_function if id(frame.f_code) in numbers else None

    sys.settrace(in_any)
    try:
        yield lines
    finally:
        sys.settrace(None)


def _said_json(said: _Said) -> dict[str, Any]:
    return {
        "footprints": [
            [signature.as_json(), footprint.as_json()]
            for signature, footprint in said.footprints.items()
        ],
        "unsettled": sorted(said.unsettled),
        "detail": said.detail,
        "policies": said.policies,
        "internal": said.internal,
        "broken": sorted(said.broken),
    }


def _said_from_json(data: dict[str, Any]) -> _Said:
    return _Said(
        {
            Signature.from_json(signature): Footprint.from_json(footprint)
            for signature, footprint in data["footprints"]
        },
        frozenset(data["unsettled"]),
        data["detail"],
        tuple((name, value) for name, value in data["policies"]),
        data["internal"],
        frozenset(data["broken"]),
    )


_running: SelfTest | None = None


def operation(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """``selftest`` starts; ``_baseline``, ``_judge`` and ``_upstream`` go on for ``seconds``.

    The first ``_judge`` names the numbers of the ``mutants`` that are judged.
    """
    global _running
    if message["op"] == "selftest":
        _running = SelfTest(subject, message)
        return {
            "mutants": _running.described(),
            "functions": _running.functions,
            "upstream": [path.name for path in upstream.present()],
        }
    assert _running is not None
    if message["op"] == "selftest_upstream":
        return _running.upstream(message["mutants"], message["seconds"])
    if message["op"] == "selftest_baseline":
        return _running.baseline(message["seconds"])
    return _running.judge(message.get("mutants"), message["seconds"])
