"""JUnit XML, which test reporters read: a test suite a claim, a test case an obligation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
    found = _Found(report)
    suites = {
        claim: [found.obligation(each) for each in report.obligations if each.claim == claim]
        or [_not_judged(report, "judged", "no check of this claim was run")]
        for claim in CLAIMS
    }
    suites[_REPLAYED] = [found.history(each) for each in report.played] or [
        _not_judged(report, "replayed", "no history was replayed")
    ]
    suites[POLICY_CHANGE] = list(_of_policies(report))
    # What is new may hide what is known.
    stale, shrunk = ((), ()) if found.new else (report.judgement.stale, report.shrunk)
    suites[STALE_ENTRY] = [_failure(p.title, [p]) for p in map(of_stale, stale)]
    suites[SHRUNK] = [_failure(p.title, [p]) for p in map(of_shrunk, shrunk)]
    suites[DISPROVED] = [
        _failure(p.title, [p]) for p in map(of_disproved, () if found.new else report.disproved)
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


class _Found:
    """The findings of a report by their signatures."""

    def __init__(self, report: Report) -> None:
        self.new = {f.signature: of_finding(f) for f in report.judgement.new}
        self._known = {f.signature: of_finding(f, entry) for f, entry in report.judgement.known}
        self._grown = {
            (f.grown.of, place): f.signature
            for f in report.judgement.new
            if f.grown is not None
            for place in f.grown.places
        }
        # Other findings of the same obligations are not shown in a restricted run.
        self._shown = None if report.restricted is None else {*self.new, *self._known}

    def obligation(self, obligation: Obligation) -> _Case:
        """How an obligation ended."""
        judged = obligation.configuration
        name = readable(f"{judged.describe()}, {judged.bound_in_words}")
        if obligation.status is not Status.REFUTED:
            outcome = {Status.INCONCLUSIVE: "error", Status.NOT_APPLICABLE: "skipped"}
            return _Case(name, outcome.get(obligation.status, ""), readable(obligation.detail))
        signatures = self._in_place(obligation.signatures, judged)
        if self._shown is not None and not signatures:
            return _Case(name, "skipped", "refuted by what is not shown")
        return self._refuted(name, signatures)

    def history(self, played: Played) -> _Case:
        """How a history ended."""
        name = readable(played.play.describe())
        if played.unsettled:
            return _Case(name, "error", readable(played.unsettled))
        signatures = self._in_place(played.signatures, played.play)
        return self._refuted(name, signatures) if signatures else _Case(name)

    def _in_place(self, signatures: Sequence[Signature], judged: Judged) -> list[Signature]:
        """What was found, with what has grown there in the place of what is known."""
        place = place_of(judged) if self._grown else ""
        found = [self._grown.get((signature, place), signature) for signature in signatures]
        return [each for each in found if self._shown is None or each in self._shown]

    def _refuted(self, name: str, signatures: Sequence[Signature]) -> _Case:
        unknown = [signature for signature in signatures if signature not in self._known]
        if unknown or not signatures:
            return _failure(name, [self.new[each] for each in unknown if each in self.new])
        known = (self._known[each] for each in signatures)
        told = dict.fromkeys(f"known {each.status}: {each.accepted}" for each in known)
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
