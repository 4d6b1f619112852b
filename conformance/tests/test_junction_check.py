"""The check of junctions: nothing on the reference, and each fault found."""

from collections.abc import Sequence
from typing import Any

import pytest

from hitproof.conformance.checks.junctions import check_junctions
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.reference_history import ReferenceHistory
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS

SLIDING = GroupKind.SLIDING_WINDOW
CLAIM = "retention_keeps_junctions"


class Forgetful(ReferenceSubject):
    """The reference, but what prompts are seen to share is not kept."""

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        history = ReferenceHistory(configuration, self.lookahead_horizon, interval, False)
        return [history.serve(prompt) for prompt in prompts]


def test_the_reference_conforms() -> None:
    for configuration in configurations(Profile.QUICK):
        result = check_junctions(ReferenceSubject(), configuration)
        assert set(result.statuses.values()) <= {Status.PROVED}, configuration.describe()
        assert bool(result.statuses) == (configuration.group.kind in SPARSE_KINDS)


@pytest.mark.parametrize("policy", [LookaheadHorizon.CAPPED, LookaheadHorizon.HASHED])
@pytest.mark.parametrize("eagle", [False, True])
def test_the_third_prompt_hits_the_junction(policy: LookaheadHorizon, eagle: bool) -> None:
    """And the second does not, but for what the interval keeps of the first."""
    configuration = single_group(SLIDING, 2, 2, 4, eagle, 24)
    prompts = [[*range(9), *range(first, first + 12)] for first in (100, 200, 300)]
    for interval, hits in ((None, [0, 4, 4] if eagle else [0, 8, 8]),):
        history = ReferenceHistory(configuration, policy, interval)
        assert [history.serve(prompt) for prompt in prompts] == hits
    history = ReferenceHistory(configuration, policy, 0)
    assert [history.serve(prompt) for prompt in prompts] == [0, 0, 4 if eagle else 8]
    history = ReferenceHistory(configuration, policy, 0, keeps_junctions=False)
    assert [history.serve(prompt) for prompt in prompts] == [0, 0, 0]


@pytest.mark.parametrize("kind", SPARSE_KINDS)
@pytest.mark.parametrize("eagle", [False, True])
def test_a_forgotten_junction_is_found(kind: GroupKind, eagle: bool) -> None:
    window = 3 if kind is SLIDING else None
    configuration = single_group(kind, 2, 2, window, eagle, 24)
    result = check_junctions(Forgetful(), configuration)
    assert result.statuses == {CLAIM: Status.REFUTED}
    assert {e.signature.divergence for e in result.evidence} == {Divergence.LOST_HIT}
    assert {e.signature.eagle for e in result.evidence} == {eagle}
    assert {e.signature.code for e in result.evidence} == {Code.JUNCTION_NOT_HIT}


def test_a_finding_shrinks_and_tells_the_story() -> None:
    result = check_junctions(Forgetful(), single_group(SLIDING, 4, 3, 9, True, 24))
    for evidence in smallest(result.evidence).values():
        small = shrink(Forgetful(), evidence)
        assert small.signature == evidence.signature
        assert small.size < evidence.size
        shown = finding(small, "")
        assert "three prompts" in shown.given[1]
        assert "as where every block is kept" in shown.spec
        assert "spec hit" in shown.strip


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ([0], Status.INCONCLUSIVE),
        ([0, 0, 0], Status.INCONCLUSIVE),
        (KeyError("a fault"), Status.REFUTED),
    ],
)
def test_answers_that_are_none_and_crashes(answer: Any, status: Status) -> None:
    class Subject(ReferenceSubject):
        def hits(self, _: Any, prompts: Any, __: Any) -> Any:
            if isinstance(answer, KeyError) and len(prompts) > 1:
                raise answer
            return answer

    result = check_junctions(Subject(), single_group(SLIDING, 2, 2, 3, True, 24))
    assert result.statuses == {CLAIM: status}
    assert result.detail or status is Status.REFUTED
