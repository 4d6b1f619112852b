"""The problems of a report that every format has, each with its rule, its text and its place."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import Any

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import CauseStatus, Entry
from hitproof.conformance.ledger.records import Shrunk
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.gate.policies import Standing
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.unbounded import Unbounded
from hitproof.vllm_integration.reports.causes import Cause, causes
from hitproof.vllm_integration.reports.printing import plain, readable, said
from hitproof.vllm_integration.survey.faults import status_of

POLICY_CHANGE = "policy_change"
STALE_ENTRY = "stale_ledger_entry"
SHRUNK = "footprint_too_large"
DISPROVED = "statement_refuted"
WORSE = "behaviour_made_worse"
RULES = {
    POLICY_CHANGE: "The target behaves as its release does where releases differ.",
    STALE_ENTRY: "Every entry of the ledger that speaks of the target reproduces.",
    SHRUNK: "Every known divergence reaches as far as its footprint on record.",
    DISPROVED: "What is stated of the target's functions for all lengths holds.",
    WORSE: "What requests get from the head of a comparison is no worse than from its base.",
}
"""What is judged beside the claims and the sanity rules, by the name of its rule."""


@dataclass(frozen=True)
class Problem:
    """Something that makes a target diverge, or would if it were not known.

    Attributes:
        rule: the claim or the sanity rule that is broken, or one of `RULES`.
        divergence: the class; None for a stale entry, a footprint that is too large, a statement.
        title: one line.
        text: all that the text report says of it below that line.
        path: the file of the judged code, relative to the target's root unless it lies elsewhere;
            empty if not known.
        line: the line in it, from 1; 0 if not known.
        identity: what is the same for it in every run, as JSON.
        pytest: a test that fails for it, as the text of a module; may be empty.
        code: the code of a finding; empty for anything else.
        accepted: why it is tolerated; empty if it is new.
        status: what the cause of something known is; None if it is new.
        steps: what is done until it shows, a step each; empty where no history shows it.
    """

    rule: str
    divergence: Divergence | None
    title: str
    text: str
    path: str = ""
    line: int = 0
    identity: str = ""
    pytest: str = ""
    accepted: str = ""
    status: CauseStatus | None = None
    code: str = ""
    steps: tuple[str, ...] = ()


def new_problems(report: Report) -> Iterator[Problem]:
    """What makes the target diverge, findings first, the most severe first."""
    yield from map(of_cause, causes(report.judgement.new, report.target.version))
    yield from map(of_policy, report.policy_changes)
    if not report.judgement.new:  # what is new may hide what is known
        yield from map(of_stale, report.judgement.stale)
        yield from map(of_shrunk, report.shrunk)
        yield from map(of_disproved, report.disproved)


def known_problems(report: Report) -> Iterator[Problem]:
    """The divergences that the ledger has."""
    return (of_finding(finding, entry) for finding, entry in report.judgement.known)


def of_cause(cause: Cause) -> Problem:
    """The findings of one cause: the worst of them, and how many others there are."""
    return replace(_problem(cause.worst, said("cause", cause)), steps=steps(cause.worst))


def of_finding(finding: Finding, entry: Entry | None = None) -> Problem:
    """A finding, with its ledger entry if it is known."""
    return _problem(finding, said("finding", finding), entry)


def steps(finding: Finding) -> tuple[str, ...]:
    """What is done until it shows on a whole manager, a step each; empty where none shows it."""
    data = finding.demonstration.vector
    if data is None and finding.configuration.get("text"):
        data = json.loads(finding.configuration["text"])
    return tuple(readable(json.dumps(step)) for step in (data or {}).get("steps", ()))


def _problem(finding: Finding, told: str, entry: Entry | None = None) -> Problem:
    where = finding.location
    path, line = place(finding.source) if where is None else (readable(where.path), where.line)
    return Problem(
        finding.signature.claim,
        Divergence(finding.signature.divergence),
        *_title_and_text(told),
        path,
        line,
        _canonical(_identity(finding.signature)),
        readable(finding.demonstration.pytest),
        "" if entry is None else readable(entry.reason.strip()),
        None if entry is None else status_of(entry),
        finding.signature.code,
    )


def of_policy(standing: Standing) -> Problem:
    """A policy of the target that is not its release's."""
    identity = {"policy": standing.policy.name, "actual": standing.actual}
    told = said("policy_change", standing)
    return _beside(POLICY_CHANGE, told, identity, Divergence.POLICY_CHANGE)


def of_stale(entry: Entry) -> Problem:
    """A ledger entry that did not reproduce."""
    return _beside(STALE_ENTRY, said("stale", entry), {"stale": _identity(entry.signature)})


def of_shrunk(shrunk: Shrunk) -> Problem:
    """A known divergence that does not reach as far as its record says."""
    identity = {"shrunk": _identity(shrunk.entry.signature)}
    return _beside(SHRUNK, said("shrunk", shrunk), identity)


def of_disproved(statement: Unbounded) -> Problem:
    """A statement about all lengths that is refuted, other than by what is known."""
    told = f"refuted for all lengths: {statement.describe()}\n{statement.detail}"
    return _beside(DISPROVED, told, {"statement": statement.name})


def _beside(
    rule: str, told: str, identity: dict[str, Any], divergence: Divergence | None = None
) -> Problem:
    """What is judged beside the claims."""
    return Problem(rule, divergence, *_title_and_text(told), identity=_canonical(identity))


def place(source: str) -> tuple[str, int]:
    """File and line of ``file:line``; an empty path and 0 for anything else."""
    found = re.fullmatch(r"(.+):([1-9]\d*)", source)
    return (readable(found[1]), int(found[2])) if found else ("", 0)


def _title_and_text(told: str) -> tuple[str, str]:
    title, _, text = plain(told).partition("\n")
    return title, dedent(text)


def _identity(signature: Signature) -> dict[str, Any]:
    """A signature as JSON, without the sentence, whose wording may change."""
    return {name: value for name, value in signature.as_json().items() if name != "pattern"}


def _canonical(data: dict[str, Any]) -> str:
    return json.dumps(data, sort_keys=True)
