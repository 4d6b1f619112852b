"""JUnit XML, which test reporters read: a test suite a claim, a test case an obligation."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from hitproof.conformance.findings.footprints import Judged, place_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.spec.claims import CLAIMS, Status
from hitproof.vllm_integration.gate.obligations import Obligation, Played
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci.problems import (
    DISPROVED,
    POLICY_CHANGE,
    RULES,
    SHRUNK,
    STALE_ENTRY,
    Problem,
    of_disproved,
    of_finding,
    of_policy,
    of_shrunk,
    of_stale,
)
from hitproof.vllm_integration.reports.printing import readable
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class _Case:
    """A test case; ``outcome`` is failure, error, skipped, or empty where it passes.

    ``path`` and ``line`` are where a failure is in the target.
    """

    name: str
    outcome: str = ""
    message: str = ""
    text: str = ""
    output: str = ""
    path: str = ""
    line: int = 0


def junit(report: Report) -> str:
    """The report of `hitproof check`.

    An obligation fails where a finding that is not in the ledger refutes it, is an error where it
    is inconclusive, and is skipped where it is not applicable; known divergences are its output. So
    does every history that was replayed.
    """
    new = {f.signature: of_finding(f) for f in report.judgement.new}
    known = {f.signature: of_finding(f, entry) for f, entry in report.judgement.known}
    grown = {
        (f.grown.of, place): f.signature
        for f in report.judgement.new
        if f.grown is not None
        for place in f.grown.places
    }

    def in_place(signatures: Sequence[Signature], judged: Judged) -> tuple[Signature, ...]:
        """What was found, with what has grown there in the place of what is known."""
        place = place_of(judged) if grown else ""
        return tuple(grown.get((signature, place), signature) for signature in signatures)

    obligations = [
        replace(o, signatures=in_place(o.signatures, o.configuration)) for o in report.obligations
    ]
    histories = [
        replace(each, signatures=in_place(each.signatures, each.play)) for each in report.played
    ]
    if report.restricted is not None:  # other findings of the same obligations are not shown
        shown = {*new, *known}
        obligations = [_of_shown(o, shown) for o in obligations]
        histories = [replace(each, signatures=_among(each.signatures, shown)) for each in histories]
    suites = {
        claim: [_of_obligation(o, new, known) for o in obligations if o.claim == claim]
        or [_not_judged(report, "judged", "no check of this claim was run")]
        for claim in CLAIMS
    }
    suites[_REPLAYED] = [_of_history(each, new, known) for each in histories] or [
        _not_judged(report, "replayed", "no history was replayed")
    ]
    suites[POLICY_CHANGE] = list(_of_policies(report))
    # What is new may hide what is known.
    stale, shrunk = ((), ()) if new else (report.judgement.stale, report.shrunk)
    suites[STALE_ENTRY] = [_failure(p.title, [p]) for p in map(of_stale, stale)]
    suites[SHRUNK] = [_failure(p.title, [p]) for p in map(of_shrunk, shrunk)]
    suites[DISPROVED] = [
        _failure(p.title, [p]) for p in map(of_disproved, () if new else report.disproved)
    ]
    if report.unrecorded:
        suites[SHRUNK].append(_Case("on record", "error", readable(report.unrecorded)))
    return _document(suites, report.seconds)


def refusal(verdict: Verdict, sentence: str) -> str:
    """State that there is no report, and why."""
    return _document({"hitproof": [_Case(verdict.label, "error", readable(sentence))]}, 0)


def _not_judged(report: Report, name: str, message: str) -> _Case:
    """A missing part, which is an error unless it was left out on request."""
    if report.restricted is None:
        return _Case(name, "error", message)
    return _Case(name, "skipped", readable(report.restricted.describe()))


def _of_shown(obligation: Obligation, shown: Set[Signature]) -> Obligation:
    left = replace(obligation, signatures=_among(obligation.signatures, shown))
    if left.status is not Status.REFUTED or left.signatures:
        return left
    return replace(left, status=Status.NOT_APPLICABLE, detail="refuted by what is not shown")


def _among(signatures: Sequence[Signature], shown: Set[Signature]) -> tuple[Signature, ...]:
    return tuple(signature for signature in signatures if signature in shown)


def _of_obligation(
    obligation: Obligation, new: dict[Signature, Problem], known: dict[Signature, Problem]
) -> _Case:
    judged = obligation.configuration
    name = readable(f"{judged.describe()}, {judged.bound_in_words}")
    if obligation.status is Status.REFUTED:
        return _refuted(name, obligation.signatures, new, known)
    outcome = {Status.INCONCLUSIVE: "error", Status.NOT_APPLICABLE: "skipped"}
    return _Case(name, outcome.get(obligation.status, ""), readable(obligation.detail))


def _of_history(
    played: Played, new: dict[Signature, Problem], known: dict[Signature, Problem]
) -> _Case:
    name = readable(played.play.describe())
    if played.unsettled:
        return _Case(name, "error", readable(played.unsettled))
    return _refuted(name, played.signatures, new, known) if played.signatures else _Case(name)


def _refuted(
    name: str,
    signatures: Sequence[Signature],
    new: dict[Signature, Problem],
    known: dict[Signature, Problem],
) -> _Case:
    unknown = [signature for signature in signatures if signature not in known]
    if unknown or not signatures:
        return _failure(name, [new[s] for s in unknown if s in new])
    told = dict.fromkeys(f"known {known[s].status}: {known[s].accepted}" for s in signatures)
    return _Case(name, output="\n".join(told))


def _of_policies(report: Report) -> Iterator[_Case]:
    if report.policies_detail:
        yield _Case("policies", "error", readable(report.policies_detail))
    if report.reads.detail:
        yield _Case("reads", "error", readable(report.reads.detail))
    for standing in report.policies:
        if standing in report.policy_changes:
            yield _failure(standing.policy.name, [of_policy(standing)])
        else:
            yield _Case(standing.policy.name)


def _failure(name: str, problems: Sequence[Problem]) -> _Case:
    titles = "; ".join(problem.title for problem in problems) or "refuted"
    text = "\n\n".join(f"{problem.title}\n{problem.text}".rstrip() for problem in problems)
    path, line = next(((p.path, p.line) for p in problems if p.path), ("", 0))
    return _Case(name, "failure", titles, text, path=path, line=line)


_REPLAYED = "replayed_history"
_OF_REPLAYED = "Every step of a history is as the claims and the sanity rules have it."


def _document(suites: dict[str, list[_Case]], seconds: float) -> str:
    total = _counts([case for cases in suites.values() for case in cases])
    attributes = {"name": "hitproof", "time": f"{seconds:.1f}"} | total
    root = ElementTree.Element("testsuites", attributes)
    sentences = {name: claim.sentence for name, claim in CLAIMS.items()} | RULES
    sentences[_REPLAYED] = _OF_REPLAYED
    for name, cases in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": name} | _counts(cases))
        if name in sentences:
            properties = ElementTree.SubElement(suite, "properties")
            ElementTree.SubElement(properties, "property", name="claim", value=sentences[name])
        for case in cases:
            place = {"file": case.path, "line": str(case.line)} if case.path else {}
            named = {"classname": name, "name": case.name} | place
            element = ElementTree.SubElement(suite, "testcase", named)
            if case.outcome:
                ElementTree.SubElement(element, case.outcome, message=case.message).text = case.text
            if case.output:
                ElementTree.SubElement(element, "system-out").text = case.output
    ElementTree.indent(root)
    # In ASCII, so that it is what its declaration says however standard output is encoded.
    text: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True)
    return text.decode() + "\n"


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    outcomes = [case.outcome for case in cases]
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(outcomes))} | {
        attribute: str(outcomes.count(outcome)) for attribute, outcome in counted.items()
    }
