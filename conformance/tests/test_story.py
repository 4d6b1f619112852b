"""Stories of findings, told from their JSON alone."""

import json
from typing import Any

import pytest

from hitproof.conformance.explain.explanation import ExplanationError
from hitproof.conformance.explain.story import Story, choose, tell
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import (
    Evidence,
    FineLookupEvidence,
    LookupEvidence,
    PoolEvidence,
    RetentionEvidence,
    SharedPrefixEvidence,
)
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.tests.test_checks import BROKEN, evidence_of
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import Group, GroupKind

CONFIGURATION = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, True, 6)
CLAIM = "eagle_needs_tail_plus_one"


DEFECT = Defect(Code.HIT_OFF_BOUNDARY)


def as_json(evidence: Evidence) -> dict[str, Any]:
    return json.loads(json.dumps(finding(evidence, "f:1").as_json()))  # type: ignore[no-any-return]


def printed(name: str) -> dict[str, Any]:
    subject, claim = BROKEN[name]
    return as_json(evidence_of(subject, CONFIGURATION, claim))


SIGNATURE = Signature(CLAIM, "unsound", "sliding_window", True, DEFECT)
PLAIN = SIGNATURE, CONFIGURATION, "due", "done"


def told(shown: dict[str, Any]) -> Story:
    story = tell(choose(json.dumps(shown), "f.json", None))
    reasons = [reason for chapter in story.chapters for reason in chapter.reasons]
    assert all(reason.claim in CLAIMS for reason in reasons)
    assert story.finding.strip == shown["strip"]
    return story


def said(shown: dict[str, Any]) -> dict[str, str]:
    return {
        chapter.title: "\n".join(reason.text for reason in chapter.reasons)
        for chapter in told(shown).chapters
    }


def test_an_unsound_hit_lacks_a_block() -> None:
    story = said(printed("no lookahead"))
    asked = story["what longer hits would have needed"]
    assert asked == "4 tokens: needs blocks 1 to 2; block 2 is not cached"
    assert story["what that means"].startswith("a hit of 4 tokens lacks block 2")
    assert list(story) == [
        "what was given",
        "what longer hits would have needed",
        "what the spec says",
        "what vLLM did",
        "what that means",
    ]


def test_a_lost_hit_is_shown_to_be_valid() -> None:
    story = said(printed("tail one long"))
    valid = story["why a hit of 4 tokens is valid: all of this is cached"]
    assert "need = 1 + 1 = 2 blocks: blocks 1 to 2" in valid
    assert story["what that means"].startswith("4 tokens are computed again")


@pytest.mark.parametrize(
    ("name", "block", "conclusion"),
    [
        ("mask without lookahead", 2, "so that hit needs block 2"),
        ("mask of every block", 0, "so that hit does not need block 0"),
    ],
)
def test_a_mask_is_told_by_the_hit_that_decides(name: str, block: int, conclusion: str) -> None:
    story = said(printed(name))
    deciding = story[f"which hits need block {block}"]
    assert f"the hit that decides on block {block} is that of 4 tokens" in deciding
    assert conclusion in deciding


@pytest.mark.parametrize(
    ("registered", "promised"), [({1}, "does not promise"), (set(), "promises")]
)
def test_retention_is_told_by_its_promise(registered: set[int], promised: str) -> None:
    shown = as_json(
        RetentionEvidence(
            *PLAIN,
            num_tokens=8,
            interval=0,
            registered=frozenset(registered),
            block=1,
            decisive_hit=4,
        )
    )
    deciding = said(shown)["which hits need block 1"]
    assert f"which retention {promised} to keep" in deciding
    assert "so that hit needs block 1" in deciding


def test_a_waste_that_only_no_hit_needs_has_no_deciding_hit() -> None:
    shown = as_json(RetentionEvidence(*PLAIN, 8, 0, frozenset({1}), block=0, decisive_hit=0))
    assert said(shown)["which hits need block 0"] == "registered: block 1"


def test_groups_are_told_apart() -> None:
    groups = (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.SLIDING_WINDOW, 2, 3))
    shown = as_json(
        LookupEvidence(
            SIGNATURE,
            Layout(groups, 12, True, 2),
            "due",
            "done",
            cached=(frozenset({0, 1, 2}), frozenset({1, 2, 3, 4})),
            max_length=11,
            spec_hit=4,
            actual_hit=8,
        )
    )
    story = said(shown)
    assert "needs block 5" not in story["what longer hits would have needed"]
    assert (
        story["what longer hits would have needed"]
        == "8 tokens: every required block is cached, but the lookup may not peek that far "
        "(lookahead horizon)"
    )
    assert "what that means" not in story
    shown["evidence"]["cached"][1] = [1, 2, 3]
    story = said(shown)
    assert (
        story["what longer hits would have needed"]
        == "8 tokens: needs blocks 3 to 4 of group 1; block 4 is not cached"
    )


def test_many_longer_hits_are_summed_up() -> None:
    configuration = single_group(GroupKind.SLIDING_WINDOW, 1, 1, 3, False, 30)
    shown = as_json(
        LookupEvidence(SIGNATURE, configuration, "due", "done", (frozenset({1}),), 30, 0, 3)
    )
    asked = said(shown)["what longer hits would have needed"].splitlines()
    assert (len(asked), asked[-1]) == (6, "and 25 shorter ones")


@pytest.mark.parametrize(
    "evidence",
    [
        PoolEvidence(*PLAIN, steps=("get 1 block",), picture=("#",)),
        FineLookupEvidence(*PLAIN, frozenset({1}), 4, 0, None),
        SharedPrefixEvidence(*PLAIN, 8, 4, None, 4, 0),
    ],
)
def test_other_findings_are_told_by_their_own_sentences(evidence: Evidence) -> None:
    shown = as_json(evidence)
    assert said(shown) == {
        "what was given": "\n".join(shown["given"]),
        "what the spec says": "due",
        "what vLLM did": f"done\n{DEFECT.sentence}",
    }


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
