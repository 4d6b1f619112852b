"""The check of the lookup over several groups, on the reference and on broken coordinators."""

import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.lookup import check_common_hit
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.findings.evidence import Evidence, LookupEvidence, smallest
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import (
    Layout,
    grid,
    is_possible,
    judged_from_json,
    layouts,
    of_model,
)
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.editing import CASES, function
from hitproof.conformance.tests.reference_subject import ReferenceCommonLookup, ReferenceSubject
from hitproof.reference.lookup import Lookup as GroupLookup
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
GPT_OSS = next(model for model in MODELS if model.name == "gpt-oss-like")
VALID, LONGEST = "common_hit_is_valid_for_every_group", "common_hit_is_the_longest"

Ask = Callable[[LookedUp, int, int], int]
"""The hit of one set of groups within a number of tokens, with a number of lookahead blocks."""

Distortion = Callable[[LookupAnswer, Any], LookupAnswer]

Iterate = Callable[[Layout, int, int, Ask], int]
"""How a coordinator comes to the common hit, given the cap and the lookahead horizon."""


class Coordinator(ReferenceCommonLookup):
    """A coordinator that iterates as it is told to."""

    def __init__(self, layout: Layout, policy: LookaheadHorizon, iterate: Iterate) -> None:
        super().__init__(layout, policy)
        self._iterate = iterate

    @property
    def inputs(self) -> Sequence[object]:
        return (*super().inputs, self._iterate)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        layout = self._layout
        cap, horizon = layout.reach(max_length, self._policy)
        tables: dict[int, list[Any]] = {}

        def ask(looked_up: LookedUp, limit: int, lookahead: int) -> int:
            number, size = layout.looked_up.index(looked_up), looked_up.group.block_size
            shape = replace(looked_up.shape, lookahead=lookahead)
            lookup = GroupLookup(shape)
            found = lookup(self.keys[number], limit // size, looked_up.group_ids, pool)
            tables.update(zip(looked_up.group_ids, found, strict=True))
            return len(found[0]) * size

        hit_length = self._iterate(layout, cap, horizon, ask)
        for looked_up in layout.looked_up:
            for group_id in looked_up.group_ids:
                del tables[group_id][hit_length // looked_up.group.block_size :]
        return LookupAnswer(
            hit_length, [tables.get(number, []) for number in range(len(layout.groups))]
        )


class DistortedLookup(ReferenceCommonLookup):
    """The reference's lookup with a distorted answer."""

    def __init__(self, layout: Layout, policy: LookaheadHorizon, answer: Distortion) -> None:
        super().__init__(layout, policy)
        self._distort = answer

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        return self._distort(super().__call__(pool, max_length), pool)


class BrokenCoordinator(ReferenceSubject):
    """The reference with another way to come to the common hit, or another answer."""

    def __init__(self, iterate: Iterate | None = None, answer: Distortion | None = None) -> None:
        super().__init__()
        self.iterate = iterate
        self._answer = answer

    def lookup(self, judged: Any) -> Lookup:
        if isinstance(judged, Layout) and self.iterate is not None:
            return Coordinator(judged, self.lookahead_horizon, self.iterate)
        assert self._answer is not None
        return DistortedLookup(judged, self.lookahead_horizon, self._answer)


def right(layout: Layout, cap: int, horizon: int, ask: Ask) -> int:
    candidate = cap
    while True:
        start = candidate
        for each in layout.looked_up:
            e = each.shape.lookahead
            limit = min(candidate // each.group.block_size + e, horizon // each.group.block_size)
            candidate = ask(each, limit * each.group.block_size, e)
        if candidate == start:
            return candidate


def broken(row: Mapping[str, str]) -> BrokenCoordinator:
    """The subject of a row of ``cases/lookups.toml``."""
    if "iterate" in row:
        given = "layout, cap, horizon, ask"
        return BrokenCoordinator(function("iterate", given, row["iterate"], globals()))
    return BrokenCoordinator(answer=function("answer", "answer, pool", row["answer"], globals()))


LOOKUPS = tomllib.loads((CASES / "lookups.toml").read_text("utf-8"))
COMMON_BROKEN = {
    name: (broken(row), row["claim"], Code(row["code"])) for name, row in LOOKUPS["common"].items()
}


def iterating(name: str) -> Iterate:
    """How a broken coordinator iterates."""
    iterate = COMMON_BROKEN[name][0].iterate
    assert iterate is not None
    return iterate


def sliding(window: int, eagle: bool = False, block_size: int = 1) -> Group:
    return Group(SLIDING, block_size, window, eagle)


def small_layouts() -> list[Layout]:
    return [layout for layout in grid(Profile.QUICK) if len(layout.groups) > 1]


def test_the_reference_conforms() -> None:
    for layout in layouts(Profile.QUICK):
        result = check_common_hit(ReferenceSubject(), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, (layout.describe(), result)
        assert result.paths


@pytest.mark.long
def test_a_right_iteration_of_another_make_conforms() -> None:
    for layout in small_layouts():
        result = check_common_hit(BrokenCoordinator(right), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, layout.describe()


@pytest.mark.long
@pytest.mark.parametrize("name", COMMON_BROKEN)
def test_each_fault_is_refuted_shrunk_and_shown(name: str) -> None:
    subject, claim, code = COMMON_BROKEN[name]
    for layout in small_layouts():
        result = check_common_hit(subject, layout)
        if result.statuses[claim] is Status.REFUTED:
            found = smallest(result.evidence)
            assert code in {key.code for key in found}
            evidence = next(item for key, item in found.items() if key.claim == claim)
            assert Evidence.from_json(evidence.as_json()) == evidence
            small = shrink(subject, evidence)
            assert small.signature == evidence.signature
            assert small.size <= evidence.size
            shown = finding(small, "f:1")
            assert shown.sentence == CLAIMS[claim].sentence
            assert isinstance(small, LookupEvidence)
            assert shown.strip.count("cached ") == len(small.cached)
            return
    pytest.fail("not refuted")


def test_the_known_fault_of_0_33_is_found_at_its_smallest() -> None:
    layout = Layout((sliding(2), sliding(3)), 5, True, 1)
    result = check_common_hit(COMMON_BROKEN["drops only once"][0], layout)
    (evidence,) = result.evidence
    assert evidence.signature.divergence == Divergence.WRONG_DRAFTS  # only EAGLE looks at block 1
    small = shrink(COMMON_BROKEN["drops only once"][0], evidence)
    assert isinstance(small, LookupEvidence)
    assert (small.configuration, small.max_length) == (replace(layout, num_tokens=4), 3)
    assert [*map(sorted, small.cached)] == [[0, 2, 3], [0, 1]]
    assert (small.spec, small.actual) == ("hit of 0 tokens", "hit of 1 token")


class WithoutMargin(BrokenCoordinator):
    """A coordinator of a release whose groups all drop a block within the candidate."""

    lookahead_horizon = LookaheadHorizon.CANDIDATE
    eagle_groups = EagleGroups.ALL


def one_turn_each(layout: Layout, cap: int, horizon: int, ask: Ask) -> int:
    """As vLLM up to 0.19 with full attention and one other group."""
    del horizon
    for each in sorted(layout.looked_up, key=lambda each: each.group.kind is not FULL):
        cap = ask(each, cap, each.shape.lookahead)
    return cap


def two_turns_each(layout: Layout, cap: int, horizon: int, ask: Ask) -> int:
    return one_turn_each(layout, one_turn_each(layout, cap, horizon, ask), horizon, ask)


def test_without_a_margin_one_turn_each_is_due_with_full_attention_and_another_group() -> None:
    pair = Layout((Group(FULL, 1), sliding(3)), 5, True, 1)
    statuses = check_common_hit(WithoutMargin(one_turn_each), pair).statuses
    assert set(statuses.values()) == {Status.PROVED}
    for layout, iterate in (
        (pair, two_turns_each),
        (Layout((sliding(2), sliding(3)), 5, True, 1), iterating("horizon shrinks")),
    ):
        assert check_common_hit(WithoutMargin(iterate), layout).statuses[LONGEST] is Status.REFUTED
    unsound = check_common_hit(WithoutMargin(iterating("no lookahead")), pair)
    assert unsound.statuses[VALID] is Status.REFUTED
    long = check_common_hit(WithoutMargin(one_turn_each), of_model(GPT_OSS, True))
    assert set(long.statuses.values()) == {Status.NOT_APPLICABLE}


def test_where_all_drop_flags_mean_nothing() -> None:
    flagged = Layout((Group(FULL, 1, eagle=True), sliding(3)), 4, True, 1)
    local = replace(flagged, groups=(flagged.groups[0], Group(GroupKind.CHUNKED_LOCAL, 1, chunk=2)))
    assert is_possible(local)
    assert check_common_hit(WithoutMargin(one_turn_each), local).statuses == {}
    result = check_common_hit(WithoutMargin(one_turn_each), flagged)
    assert set(result.statuses.values()) == {Status.PROVED}


def test_a_policy_that_cannot_be_told_leaves_its_layouts_unsettled() -> None:
    class Crashing(ReferenceSubject):
        @property
        def eagle_groups(self) -> EagleGroups:  # type: ignore[override]
            raise CannotJudge("the set of groups with EAGLE cannot be determined")

    result = check_common_hit(Crashing(), Layout((Group(FULL, 1), sliding(3)), 4, True, 1))
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert result.detail


def test_layouts_cover_what_they_say_and_survive_json() -> None:
    for profile in Profile:
        covered = layouts(profile)
        assert len(set(covered)) == len(covered)
        assert all(map(is_possible, covered))
        assert {len(layout.groups) for layout in covered} >= {1, 2, 3, 4}
        kinds = {group.kind for layout in covered for group in layout.groups}
        assert kinds == set(GroupKind)
        pairs: set[tuple[GroupKind, ...]] = {
            tuple(sorted({group.kind for group in layout.groups}))
            for layout in covered
            if len(layout.groups) == 2
        }
        assert len(pairs) >= len(kinds) * (len(kinds) - 1) / 2
        assert any(not group.prefix_cacheable for layout in covered for group in layout.groups)
        names = {layout.model.split(" ")[0] for layout in covered} - {""}
        assert names == {model.name for model in MODELS}
        for layout in covered:
            assert judged_from_json(layout.as_json()) == layout
            assert layout.num_tokens % layout.hash_block_size == 0 or not layout.model


def test_windows_of_models_are_cut_by_whole_blocks() -> None:
    for model in MODELS:
        layout = of_model(model, False)
        for group, cut in zip(model.groups, layout.groups, strict=True):
            assert ((group.window or 0) - (cut.window or 0)) % group.block_size == 0
            assert cut.block_size == group.block_size


def in_order(items: Sequence[Layout]) -> bool:
    return all(a <= b for a, b in itertools.pairwise(items))


def test_fewer_groups_then_fewer_tokens_come_first() -> None:
    one, two = (sliding(3),), (sliding(2), sliding(3))
    assert in_order([Layout(one, 9, False, 1), Layout(two, 4, False, 1), Layout(two, 5, False, 1)])
