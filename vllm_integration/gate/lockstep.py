"""Lockstep of a target with the reference: histories are played in a worker, findings judged."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from packaging.version import Version

from hitproof.conformance.emulation import releases
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.places import Location, Passed
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.lockstep.outcome import FIELDS
from hitproof.conformance.scope.limits import refusal
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.target import Target, TargetError
from hitproof.vllm_integration.verdict import Verdict

_BATCH_SECONDS = 5.0
_POLICIES = {
    Version(f"{name.removeprefix('VLLM_').replace('_', '.')}.dev0"): name
    for name in vars(releases)
    if name.startswith("VLLM_")
}
"""The names of policies, by the first version that has them."""


@dataclass
class LockstepFinding:
    """One finding or fault, and how often it was seen.

    Attributes:
        what: the signature of a finding as JSON, or the call and field of a fault.
        times: in how many histories.
        history: the number of the first of them.
        smallest: the smallest history that shows it, as JSON text, and what it shows.
        shown: the evidence, as `vllm_integration.worker.lockstep` reports it.
        case: the finding on the target's manager alone.
        location: the line of the target's source that decides; None where it is not known.
        trace: the smallest history on the target's manager, step by step, as JSON.
    """

    what: Any
    times: int
    history: int
    shown: dict[str, Any]
    smallest: str = ""
    case: Demonstration = field(default_factory=Demonstration)
    location: Location | None = None
    trace: dict[str, Any] | None = None


@dataclass
class LockstepReport:
    """What became of a run.

    Attributes:
        target: the target.
        seed: the seed.
        histories: histories that were played.
        steps: their steps.
        calls: calls after which the two were compared.
        findings: where the target breaks the spec and the ledger does not say so.
        known: where it does, with the ledger's entry.
        faults: differences at which the reference breaks the spec.
        unsettled: why the run ended early, "" when it did not.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    seed: str
    histories: int = 0
    steps: int = 0
    calls: int = 0
    findings: list[LockstepFinding] = field(default_factory=list)
    known: list[tuple[LockstepFinding, Entry]] = field(default_factory=list)
    faults: list[LockstepFinding] = field(default_factory=list)
    unsettled: str = ""
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict. Where the reference breaks the spec, hitproof is wrong."""
        if self.faults:
            return Verdict.INTERNAL
        if self.findings:
            return Verdict.DIVERGES
        return Verdict.INCONCLUSIVE if self.unsettled else Verdict.CONFORMS


def policies_of(target: Target) -> str:
    """The name of the target's policies in `emulation.releases`. Raises `TargetError`."""
    name = policies_name(target.version)
    if name is None:
        raise TargetError(refusal("lockstep-releases").format(target=target.name))
    return name


def policies_name(version: str | None) -> str | None:
    """The name of a release's policies in `emulation.releases`; None when it is too old.

    ``version`` None is newer than any.
    """
    known = (since for since in _POLICIES if version is None or Version(version) >= since)
    return _POLICIES.get(max(known, default=Version("0")))


def run(
    of: Run,
    *,
    histories: int,
    seed: str,
    progress: Callable[[int, int], None],
    shrink_budget: int = 2_000,
    compared: Sequence[str] = FIELDS,
) -> LockstepReport:
    """Play ``histories`` generated histories on target and reference.

    That known divergences are there still is for `vllm_integration.gate.gate` to say.

    ``shrink_budget`` is how many histories are tried to shrink one finding. ``progress`` is called
    with the histories played and their number. Raises the exceptions of `Worker` and `TargetError`.
    """
    target = of.target
    report = LockstepReport(target, seed)
    message = {"seed": seed, "policies": policies_of(target), "compared": list(compared)}
    applicable = [entry for entry in of.entries if entry.applies_to(target.version)]
    with closing(Session.of(target, of.limits)) as session:
        found: dict[str, LockstepFinding] = {}
        try:
            for answer in _batches(partial(session.ask, **message), histories, report, progress):
                _gather(answer, found)
        except WorkerGone as gone:
            report.unsettled = str(gone)
        _judge(found, applicable, report)
        for item in (*report.findings, *report.faults):
            shown, item.case = session.demonstrated(
                "lockstep",
                _name(item.what),
                shrink_budget,
                history=item.history,
                shows=item.what,
                **message,
            )
            if shown is not None:
                passed = shown.pop("passed", None)
                item.location = None if passed is None else Passed.from_json(passed).location
                item.trace = shown.pop("trace", None)
                item.smallest, item.shown = shown.pop("history"), shown
    return report


def _name(what: Any) -> str:
    """The name of the test that shows a finding."""
    if isinstance(what, list):
        return "fault " + " ".join(what)
    return " ".join([what["claim"], what["kind"], what["pattern"]] + what["eagle"] * ["with eagle"])


def _batches(
    ask: Callable[..., dict[str, Any]],
    histories: int,
    report: LockstepReport,
    progress: Callable[[int, int], None],
) -> Iterator[dict[str, Any]]:
    """Play in batches, so that progress is seen and a worker that hangs is noticed."""
    while report.histories < histories:
        progress(report.histories, histories)
        answer = ask(
            op="lockstep",
            first=report.histories,
            count=histories - report.histories,
            seconds=_BATCH_SECONDS,
        )
        if "cannot" in answer:
            raise WorkerGone(answer["cannot"])
        report.histories = answer["next"]
        report.steps += answer["steps"]
        report.calls += answer["calls"]
        yield answer
    progress(histories, histories)


def _gather(answer: dict[str, Any], found: dict[str, LockstepFinding]) -> None:
    for outcome in answer["found"]:
        shown = [finding["signature"] for finding in outcome["findings"]]
        if outcome["fault"] is not None:
            shown.append([outcome["fault"]["call"], outcome["fault"]["field"]])
        for key in dict.fromkeys(json.dumps(what, sort_keys=True) for what in shown):
            if key in found:
                found[key].times += 1
            else:
                what = json.loads(key)
                found[key] = LockstepFinding(what, 1, outcome["history"], _evidence(outcome, what))


def _evidence(outcome: dict[str, Any], what: Any) -> dict[str, Any]:
    """The part of an outcome that shows ``what``."""
    fault: dict[str, Any] | None = outcome["fault"]
    return next((f for f in outcome["findings"] if f["signature"] == what), fault or {})


def _judge(
    found: dict[str, LockstepFinding], entries: Sequence[Entry], report: LockstepReport
) -> None:
    by_signature = {entry.signature: entry for entry in entries}
    for item in sorted(found.values(), key=_severity):
        if isinstance(item.what, list):
            report.faults.append(item)
        elif (entry := by_signature.get(Signature.from_json(item.what))) is not None:
            report.known.append((item, entry))
        else:
            report.findings.append(item)


def _severity(item: LockstepFinding) -> tuple[Any, ...]:
    return () if isinstance(item.what, list) else Signature.from_json(item.what).severity
