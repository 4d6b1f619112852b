"""Stories of findings, told from their JSON alone."""

import json
from typing import Any

import pytest

from hitproof.conformance.explain.explanation import ExplanationError
from hitproof.conformance.explain.story import Story, choose, tell
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.tests.test_checks import BROKEN, evidence_of
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import GroupKind

CONFIGURATION = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, True, 6)


def as_json(evidence: Evidence) -> dict[str, Any]:
    return json.loads(json.dumps(finding(evidence, "f:1").as_json()))  # type: ignore[no-any-return]


def printed(name: str) -> dict[str, Any]:
    subject, claim, _ = BROKEN[name]
    return as_json(evidence_of(subject, CONFIGURATION, claim))


def told(shown: dict[str, Any]) -> Story:
    story = tell(choose(json.dumps(shown), "f.json", None))
    reasons = [reason for chapter in story.chapters for reason in chapter.reasons]
    assert all(reason.claim in CLAIMS for reason in reasons)
    assert story.finding.strip == shown["strip"]
    return story


def test_a_finding_without_evidence_is_told_by_its_own_sentences() -> None:
    shown = printed("no lookahead")
    wanted = told(shown).chapters[0]
    del shown["evidence"]
    assert told(shown).chapters[0] == wanted
    assert len(told(shown).chapters) == 3


def test_findings_of_replay_have_no_strip() -> None:
    shown = printed("no lookahead")
    del shown["evidence"], shown["strip"]
    assert tell(choose(json.dumps(shown), "f.json", None)).finding.strip == []


def test_a_finding_of_a_report_is_chosen_by_number() -> None:
    first, second = printed("no lookahead"), printed("mask of no block")
    report = json.dumps({"findings": [first], "known_divergences": [second | {"cause": "c"}]})
    assert choose(report, "r", 1).claim == first["claim"]
    assert choose(report, "r", 2).claim == second["claim"]
    with pytest.raises(ExplanationError, match="2 findings; choose one with --number"):
        choose(report, "r", None)
    with pytest.raises(ExplanationError, match="2 findings; there is no --number 3"):
        choose(report, "r", 3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        (b"\xff\xfe\xfa", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "no finding"),
        ('"findings"', "no finding"),
        ("{}", "no finding"),
        ('{"findings": []}', "nothing to explain"),
        ('{"findings": {}}', "not a report"),
        ('{"findings": [3]}', "no finding"),
    ],
)
def test_what_is_no_finding_is_refused(text: str | bytes, sentence: str) -> None:
    with pytest.raises(ExplanationError, match=sentence):
        choose(text, "f.json", None)


@pytest.mark.parametrize(
    "change",
    [
        {"configuration": {}},
        {"configuration": {"groups": 3}},
        {"cached": 7},
        {"cached": [[1], [2]]},
        {"max_length": "four"},
        {"signature": None},
        {"no_such_key": 1},
    ],
)
def test_evidence_that_cannot_be_read_is_refused(change: dict[str, Any]) -> None:
    shown = printed("no lookahead")
    shown["evidence"] |= change
    with pytest.raises(ExplanationError, match="evidence cannot be read"):
        told(shown)
