"""Several MTP modules: draft layers look further ahead than the next token."""

import json
from dataclasses import replace

import pytest

from hitproof.conformance.checks.lookup import check_common_hit
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.reference.subject import ReferenceCommonLookup, ReferenceSubject
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.lookups import Lookup
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.groups import ConfigurationError, Group, GroupKind, geometry

LAYOUTS = [layout for layout in layouts(Profile.QUICK) if layout.prefill_lookahead > 1]


class DropsOneBlock(ReferenceSubject):
    """The reference, but a group drops one block however far its draft layers look ahead."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Layout)
        groups = tuple(replace(group, prefill_lookahead=1) for group in judged.groups)
        return ReferenceCommonLookup(replace(judged, groups=groups), self.lookahead_horizon)


@pytest.mark.parametrize(
    ("ahead", "size", "blocks"),
    [(1, 1, 1), (1, 16, 1), (2, 2, 1), (2, 1, 2), (5, 4, 2), (16, 16, 1)],
)
def test_a_group_drops_the_blocks_that_its_draft_layers_look_ahead(
    ahead: int, size: int, blocks: int
) -> None:
    group = Group(GroupKind.FULL_ATTENTION, size, eagle=True, prefill_lookahead=ahead)
    assert geometry(group, size).lookahead == blocks
    assert geometry(replace(group, eagle=False), size).lookahead == 0


def test_draft_layers_look_ahead() -> None:
    with pytest.raises(ConfigurationError, match="prefill_lookahead"):
        Group(GroupKind.FULL_ATTENTION, 1, prefill_lookahead=0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=Layout.describe)
def test_one_block_is_too_little_where_it_is_shorter(layout: Layout) -> None:
    assert Layout.from_json(json.loads(json.dumps(layout.as_json()))) == layout
    assert "2 MTP modules" in layout.describe()
    right = check_common_hit(ReferenceSubject(), layout)
    assert set(right.statuses.values()) == {Status.PROVED}
    result = check_common_hit(DropsOneBlock(), layout)
    short = any(2 > each.group.block_size for each in layout.looked_up if each.group.eagle)
    assert (Status.REFUTED in result.statuses.values()) is short
    for evidence in result.evidence:
        assert dict(evidence.signature.defect.parameters)["modules"] == "several"
        assert Evidence.from_json(json.loads(json.dumps(evidence.as_json()))) == evidence
    kinds = {(e.signature.code, e.signature.divergence) for e in result.evidence}
    lacking = {(Code.GROUP_LACKS_BLOCK, Divergence.WRONG_DRAFTS)}
    assert kinds - {(Code.HIT_TOO_SHORT, Divergence.LOST_HIT)} == (lacking if short else set())
