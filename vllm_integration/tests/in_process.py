"""Checks of a subject in this process, as the gate runs them on a target."""

from contextlib import closing
from functools import partial
from typing import Any

from packaging.specifiers import SpecifierSet

from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.subjects import Subject
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject, no_lookahead
from hitproof.spec.claims import Status
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.policies import expected_value
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted
from hitproof.vllm_integration.gate.sessions import Session, Sessions
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.worker import main

KEEPS, ONLY = "mask_keeps_every_reachable_block", "mask_keeps_only_reachable_blocks"
WINDOWS = "sliding window, block size 4, window [2569], * EAGLE on"
TARGET = Target("fork", None, "0.33.0")


class InProcess:
    """A worker whose target is a subject of this process."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.asked: list[Any] = []

    def ask(self, timeout: float, **message: Any) -> dict[str, Any]:
        assert timeout
        op = message["op"]
        if op == "policies":
            shown = {name: expected_value(each, "0.33.0") for name, each in POLICIES.items()}
            return {"policies": shown, "detail": ""}
        if op == "reads":
            return {"reads": [], "varied": []}
        if op == "finding":
            raise WorkerGone("it shows nothing in full")
        self.asked.append(message)
        if op == "replay":
            return {"steps": ["done"], "lookups": [], "findings": [], "footprints": []}
        return main._check(self.subject, message)  # type: ignore[arg-type]  # any subject will do

    def close(self) -> None:
        pass


BROKEN = BrokenSubject(mask=no_lookahead)


def judged(
    *only: str,
    configurations: tuple[str, ...] = (WINDOWS,),
    subject: Subject = BROKEN,
    entries: tuple[Entry, ...] = (),
    record: Record | None = None,
    cases: tuple[Entry, ...] = (),
    **wanted: Any,
) -> Report:
    selection = Selection(only, configurations)
    session = partial(Session, lambda: InProcess(subject), 60.0)
    with closing(Sessions(1, session)) as sessions:
        run = Run(
            TARGET,
            Profile.QUICK,
            entries,
            record=record,
            accepted_reads={},
            wanted=Wanted(selection, **wanted),
            cases=cases,
        )
        return gate.judged(sessions, run, lambda *_: None)


def known(shown: Report) -> Entry:
    """An entry that the subject does not show, of a configuration that is judged."""
    finding = shown.judgement.new[0]
    configuration = next(
        each.configuration for each in shown.obligations if each.status is Status.REFUTED
    )
    reason = "it was so"
    return Entry(finding.signature, configuration, SpecifierSet(""), reason, "", reason)
