"""Reports of every sort, made without any target."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from packaging.specifiers import SpecifierSet

from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import Finding, finding
from hitproof.conformance.findings.footprints import Footprint
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.replayed import replayed
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.judge.tracing import traced
from hitproof.conformance.ledger.ledger import Entry, Judgement
from hitproof.conformance.ledger.records import Reach, Record
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import judged_from_json
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.subjects_for_tests import BrokenSubject, no_lookahead
from hitproof.conformance.tests.test_traces import TWICE
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate.growth import hold
from hitproof.vllm_integration.gate.obligations import Obligation, Played, Task
from hitproof.vllm_integration.gate.policies import Standing
from hitproof.vllm_integration.gate.replay import ReplayReport
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.gate.unbounded import Unbounded
from hitproof.vllm_integration.targets.target import Target

CONFIGURATION = single_group(GroupKind.SLIDING_WINDOW, 1, 2, 2, True, 3)
PLAY, OTHER = Play(Origin.GENERATED, "1:0"), Play(Origin.GENERATED, "1:1")
SOURCE = "vllm/v1/core/single_type_kv_cache_manager.py:641"


def obligations(result: CheckResult) -> list[Obligation]:
    return [
        Obligation(
            claim,
            CONFIGURATION,
            status,
            result.paths,
            result.states,
            result.detail,
            result.refuting.get(claim, ()),
        )
        for claim, status in result.statuses.items()
    ]


def conforming() -> Report:
    proved = [Obligation(c, CONFIGURATION, Status.PROVED, 1, 1, "") for c in CLAIMS]
    fork = Target("fork", Path("/fork"), None)
    return Report(fork, Profile.QUICK, proved, played=[Played(PLAY, 3, 1)])


def found(source: str = SOURCE) -> tuple[list[Obligation], list[Finding]]:
    result = check_mask(BrokenSubject(mask=no_lookahead), CONFIGURATION)
    assert result.evidence
    return obligations(result), [finding(evidence, source) for evidence in result.evidence]


def diverging(source: str = SOURCE) -> Report:
    broken, findings = found(source)
    report = conforming()
    others = [o for o in report.obligations if CHECKS[o.claim] is not check_mask]
    judgement = Judgement(new=tuple(findings), known=(), stale=())
    return replace(report, obligations=[*broken, *others], judgement=judgement)


def known() -> Report:
    report = diverging()
    entries = tuple((f, entry(f)) for f in report.judgement.new)
    return replace(report, judgement=Judgement((), entries, ()))


def entry(of: Finding) -> Entry:
    reason = "tolerated, 100 % sure"
    configuration = judged_from_json(of.configuration)
    return Entry(of.signature, configuration, SpecifierSet(""), reason, "", reason)


def stale() -> Report:
    (shown, *_) = found()[1]
    return replace(conforming(), judgement=Judgement((), (), (entry(shown),)))


def changed_policy() -> Report:
    policy = next(iter(POLICIES.values()))
    expected, other = policy.eras[-1].value, policy.eras[0].value
    return replace(conforming(), policies=[Standing(policy, expected, other)])


def inconclusive() -> Report:
    report = conforming()
    (first, second, *others) = report.obligations
    crashed = replace(first, status=Status.INCONCLUSIVE, detail="it said \x1b[31m\x00, ::error::")
    absent = replace(second, status=Status.NOT_APPLICABLE, detail="the code is older")
    return replace(report, obligations=[crashed, absent, *others])


def unprobed() -> Report:
    return replace(conforming(), policies_detail="the policies cannot be determined: it hangs")


def nothing() -> Report:
    return replace(conforming(), obligations=[])


def replayed_history() -> Report:
    raises = Defect.of(Code.RAISES_EXCEPTION, error="<ValueError>")
    signature = Signature("allowed_call_raises_nothing", "crash", "mamba", False, raises)
    history = Play.written(TWICE, "smallest")
    shown = Demonstration("allocates", reproduced=True, pytest="def test_allocates(): ...\n")
    crash = replayed(signature, history, "it returns", "it raises <ValueError>", 0, shown)
    played = [Played(PLAY, 3, 1, (signature,)), Played(OTHER, 2, 0)]
    return replace(conforming(), played=played, judgement=Judgement((crash,), (), ()))


def unplayed() -> Report:
    hung = Played(OTHER, unsettled="generated history 1:1 failed: it does not return")
    return replace(conforming(), played=[Played(PLAY, 3, 1), hung])


def not_replayed() -> Report:
    return replace(conforming(), played=[])


class AsFound:
    """Sessions that show evidence as it is."""

    def as_found(self, shown: Sequence[Evidence]) -> list[Finding]:
        return [finding(each, SOURCE) for each in shown]


def held(
    recorded: Callable[[Footprint], Footprint | None],
    profile: str = "quick",
    place: Configuration = CONFIGURATION,
) -> Report:
    """A report on a known divergence of a mask, whose footprint on record is another.

    ``place`` is the configuration of the task, which a policy may have judged as another.
    """
    report = known()
    result = check_mask(BrokenSubject(mask=no_lookahead), CONFIGURATION)
    report.reached = [Reach(s, place, each) for s, each in result.footprints.items()]
    entries = [entry for _, entry in report.judgement.known]
    before = [(each, recorded(each.footprint)) for each in report.reached]
    record = Record.of(
        "0.33.0", profile, [replace(each, footprint=was) for each, was in before if was]
    )
    sessions = cast("Sessions", AsFound())
    evidence = [(Task(each.signature.claim, place), each) for each in result.evidence]
    grown = hold(report, record, entries, evidence, sessions, "record it")
    report.judgement = replace(report.judgement, new=tuple(grown))
    return report


def grown() -> Report:
    return held(lambda now: Footprint(now.size - 1, now.digest))


def grown_elsewhere() -> Report:
    return held(lambda _: None)


def answers_otherwise() -> Report:
    return held(lambda now: Footprint(now.size, "other"))


def unrecorded_profile() -> Report:
    return held(lambda _: None, profile="default")


def disproved() -> Report:
    proved = Unbounded("mask mamba dense", Status.PROVED, outside={"a fault": "where block == 0"})
    refuted = Unbounded("mask sliding_window dense", Status.REFUTED, "block 100 is not kept")
    return replace(conforming(), unbounded=[proved, refuted])


def some_left_out() -> Report:
    return replace(conforming(), played=[Played(PLAY, 3, 1), Played(OTHER, left_out=True)])


def shrunk() -> Report:
    return held(lambda now: Footprint(now.size + 1, now.digest))


def unrecorded() -> Report:
    report = held(lambda now: now)
    entries = [entry for _, entry in report.judgement.known]
    hold(report, None, entries, (), cast("Sessions", AsFound()), "record it")
    return report


def replay_of(subject: Callable[[Any], Any], with_trace: bool = True) -> ReplayReport:
    outcome, trace = traced(TWICE, broken.Broken(subject))
    report = ReplayReport(
        target=Target("here", None, None),
        history=TWICE,
        steps=outcome.steps,
        findings=outcome.findings,
    )
    report.lookups, report.policies = [*map(asdict, outcome.lookups)], {"horizon": "capped"}
    if with_trace:
        report.trace = trace
    else:
        found = [each.signature for each in outcome.findings]
        report.reasons = {each: trace.why(each.claim, str(each.defect)) for each in found}
    return report


REPORTS = {
    make.__name__: make
    for make in (
        conforming,
        diverging,
        known,
        stale,
        changed_policy,
        inconclusive,
        unprobed,
        nothing,
        replayed_history,
        unplayed,
        not_replayed,
        grown,
        grown_elsewhere,
        answers_otherwise,
        shrunk,
        unrecorded,
        unrecorded_profile,
        some_left_out,
        disproved,
    )
}
