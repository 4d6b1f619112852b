"""The checks of tiers, on the reference and on wrong tiers."""

import itertools
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.checks.shrinking import shrink
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks
from hitproof.conformance.explain.story import ToldFinding, tell
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.findings.evidence import (
    Evidence,
    TierLookupEvidence,
    TierMaskEvidence,
    smallest,
)
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.reproduce.attempts import OutOfReach, Rules, attempts
from hitproof.conformance.scope.layouts import Layout, layouts, offloaded
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.tiers import Load, TierMasks, TierPlays
from hitproof.conformance.tests.reference_subject import (
    ReferenceSubject,
    ReferenceTierLookup,
    ReferenceTierMasks,
    ReferenceTierPlays,
)
from hitproof.spec.claims import CLAIMS, Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.tiers import longest_tier_hit

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
KEPT, ONLY = "tier_keeps_every_reachable_block", "tier_keeps_only_reachable_blocks"
LONGEST, LOADS = "tier_hit_is_the_longest", "tier_loads_the_served_run"

DRAFTS = Layout((Group(FULL, 2), Group(SLIDING, 1, 3, eagle=True)), 6, True, 1)
FINE = Layout((Group(FULL, 1), Group(MAMBA, 2)), 4, False, 1)

Told = Callable[[Layout, Any, int, LookupAnswer], LookupAnswer]
"""Another answer of a lookup than the right one, given the layout, the pool and the cap."""

Masks = Sequence[Sequence[bool] | None]
Marked = Callable[[Layout, int, int, Masks], Masks]
"""Other masks than the right ones, given the layout and, in tokens, where a step starts and ends,
or 0 and the length."""


class Telling(ReferenceTierLookup):
    """A lookup that answers something else."""

    def __init__(self, layout: Layout, told: Told, local: int) -> None:
        super().__init__(layout, LookaheadHorizon.HASHED, local)
        self._told = told

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        right = super().__call__(pool, max_length)
        return self._told(self._layout, pool, max_length, right)


class Marking(ReferenceTierMasks):
    """Masks that are something else."""

    def __init__(self, layout: Layout, marked: dict[str, Marked]) -> None:
        super().__init__(layout)
        self._layout = layout
        self._marked = marked

    def _wrong(self, mask: str, start: int, end: int, right: Masks) -> Masks:
        marked = self._marked.get(mask)
        return right if marked is None else marked(self._layout, start, end, right)

    def stored(self, start: int, end: int) -> Masks:
        return self._wrong("store", start, end, super().stored(start, end))

    def asked_for(self, length: int) -> Masks:
        return self._wrong("lookup", 0, length, super().asked_for(length))

    def loaded(self, hit: int) -> Masks:
        return self._wrong("load", 0, hit, super().loaded(hit))


class WrongTier(ReferenceSubject):
    """The reference with a tier that is wrong in some way."""

    def __init__(self, told: Told | None = None, **marked: Marked) -> None:
        super().__init__()
        self._told = told
        self._marked = marked

    def tier_lookup(self, layout: Layout, local: int = 0) -> Lookup:
        if self._told is None:
            return super().tier_lookup(layout, local)
        return Telling(layout, self._told, local)

    def tier_masks(self, layout: Layout) -> TierMasks:
        return Marking(layout, self._marked)


def altered(change: Callable[[Group], Group]) -> Told:
    """The lookup of a tier that takes groups for others."""

    def told(layout: Layout, pool: Any, max_length: int, _: LookupAnswer) -> LookupAnswer:
        others = tuple(map(change, layout.groups))
        return ReferenceTierLookup(replace(layout, groups=others), LookaheadHorizon.HASHED)(
            pool, max_length
        )

    return told


def masked(change: Callable[[Group], Group], mask: str) -> Marked:
    """The masks of a tier that takes groups for others."""

    def marked(layout: Layout, start: int, end: int, _: Masks) -> Masks:
        others = ReferenceTierMasks(replace(layout, groups=tuple(map(change, layout.groups))))
        if mask == "store":
            return others.stored(start, end)
        return others.asked_for(end) if mask == "lookup" else others.loaded(end)

    return marked


def without_window(group: Group) -> Group:
    return replace(group, kind=FULL, window=None) if group.kind is SLIDING else group


def shorter_window(group: Group) -> Group:
    return group if group.window is None else replace(group, window=max(group.window - 1, 1))


def longer_window(group: Group) -> Group:
    return group if group.window is None else replace(group, window=group.window + 1)


def ignores_drafts(layout: Layout, pool: Any, most: int, _: LookupAnswer) -> LookupAnswer:
    groups = tuple(replace(group, eagle=False) for group in layout.groups)
    plain = replace(layout, groups=groups, use_eagle=False)
    return ReferenceTierLookup(plain, LookaheadHorizon.HASHED)(pool, most)


def drops_twice(layout: Layout, _: Any, __: int, right: LookupAnswer) -> LookupAnswer:
    dropped = layout.alignment if layout.drops_block else 0
    return replace(right, hit_length=max(right.hit_length - dropped, 0))


def first_group_decides(layout: Layout, pool: Any, most: int, _: LookupAnswer) -> LookupAnswer:
    """What the first group has, whatever the others lack."""
    groups = tuple(
        replace(group, prefix_cacheable=not number) for number, group in enumerate(layout.shared)
    )
    try:
        alone = replace(layout, groups=groups, use_eagle=False)
        return ReferenceTierLookup(alone, LookaheadHorizon.HASHED)(pool, most)
    except ValueError:
        return LookupAnswer(0, ())


def gives_up(layout: Layout, pool: Any, most: int, right: LookupAnswer) -> LookupAnswer:
    """Nothing unless the longest hit is there, as where a lookup ends at a group without one."""
    longest = most // layout.alignment * layout.alignment
    del pool
    return right if right.hit_length == longest else replace(right, hit_length=0)


def counts_in_blocks(layout: Layout, _: Any, __: int, right: LookupAnswer) -> LookupAnswer:
    return replace(right, hit_length=right.hit_length // layout.alignment)


def one_token_more(_: Layout, __: Any, ___: int, right: LookupAnswer) -> LookupAnswer:
    return replace(right, hit_length=right.hit_length + 1)


def lookup_raises(_: Layout, __: Any, ___: int, right: LookupAnswer) -> LookupAnswer:
    assert not right.hit_length, "made to fail"
    return right


def of_each(change: Callable[[list[bool]], list[bool]]) -> Marked:
    """Masks in which that of each group is changed."""
    return lambda _, __, ___, right: [mask and change([*mask]) for mask in right]


def not_the_drafts(mask: str) -> Marked:
    def marked(layout: Layout, start: int, end: int, _: Masks) -> Masks:
        groups = tuple(replace(group, eagle=False) for group in layout.groups)
        plain = ReferenceTierMasks(replace(layout, groups=groups, use_eagle=False))
        return plain.stored(start, end) if mask == "store" else plain.asked_for(end)

    return marked


def from_the_last_step(_: Layout, start: int, __: int, right: Masks) -> Masks:
    """Leaves out the first block of each step but the first."""
    return [[each and not (start and not n) for n, each in enumerate(m or ())] for m in right]


def in_tokens(layout: Layout, start: int, end: int, _: Masks) -> Masks:
    """Takes tokens for blocks."""
    plain = ReferenceTierMasks(layout)
    size = max(group.block_size for group in layout.groups)
    return [mask and mask[: max((end - start) // size, 0)] for mask in plain.stored(start, end)]


def a_block_late(mask: list[bool]) -> list[bool]:
    return [False, *mask[:-1]]


def mask_raises(_: Layout, __: int, end: int, right: Masks) -> Masks:
    assert end < 3, "made to fail"
    return right


def in_chunks(change: Callable[[LookupAnswer], LookupAnswer]) -> Told:
    """Lookups that are wrong in a tier of chunks only."""
    return lambda layout, _, __, right: change(right) if layout.blocks_per_chunk else right


def longer(right: LookupAnswer) -> LookupAnswer:
    return replace(right, hit_length=right.hit_length + 4)


def shorter(right: LookupAnswer) -> LookupAnswer:
    return replace(right, hit_length=right.hit_length // 8 * 8)


class Playing(ReferenceTierPlays):
    """Requests of which something else is stored, or loaded."""

    def __init__(
        self,
        layout: Layout,
        num_tokens: int,
        stores: Callable[[set[int]], set[int]],
        loads: Callable[[set[int]], set[int]],
    ) -> None:
        super().__init__(layout, num_tokens)
        self._stores, self._loads = stores, loads

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        return [None if each is None else self._stores({*each}) for each in super().stored(ends)]

    def loaded(self, local: int, length: int) -> Load | None:
        right = super().loaded(local, length)
        if right is None:
            return None
        return replace(right, blocks=[self._loads({*each}) for each in right.blocks])


class WrongChunks(ReferenceSubject):
    """The reference with a tier of chunks that is wrong in some way."""

    def __init__(
        self,
        stores: Callable[[set[int]], set[int]] = set,
        loads: Callable[[set[int]], set[int]] = set,
    ) -> None:
        super().__init__()
        self._stores, self._loads = stores, loads

    def tier_plays(self, layout: Layout, num_tokens: int) -> TierPlays:
        return Playing(layout, num_tokens, self._stores, self._loads)


def raises(blocks: set[int]) -> set[int]:
    assert len(blocks) < 2, "made to fail"
    return blocks


Wrong = tuple[ReferenceSubject, str, Code]

LOOKUPS: dict[str, Wrong] = {
    "ignores drafts": (WrongTier(ignores_drafts), LONGEST, Code.GROUP_LACKS_BLOCK),
    "a shorter window": (WrongTier(altered(shorter_window)), LONGEST, Code.GROUP_LACKS_BLOCK),
    "a longer window": (WrongTier(altered(longer_window)), LONGEST, Code.HIT_TOO_SHORT),
    "a window taken for full": (WrongTier(altered(without_window)), LONGEST, Code.HIT_TOO_SHORT),
    "the lookahead dropped twice": (WrongTier(drops_twice), LONGEST, Code.HIT_TOO_SHORT),
    "the first group decides": (
        WrongTier(first_group_decides),
        LONGEST,
        Code.GROUP_LACKS_BLOCK,
    ),
    "ends at a group without a hit": (WrongTier(gives_up), LONGEST, Code.HIT_TOO_SHORT),
    "counts blocks for tokens": (WrongTier(counts_in_blocks), LONGEST, Code.HIT_OFF_BOUNDARY),
    "one token more": (WrongTier(one_token_more), LONGEST, Code.HIT_OFF_BOUNDARY),
    "the lookup raises": (WrongTier(lookup_raises), LONGEST, Code.RAISES_EXCEPTION),
}

MASKS: dict[str, Wrong] = {
    "stores no lookahead block": (
        WrongTier(store=not_the_drafts("store")),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "stores a shorter tail": (
        WrongTier(store=masked(shorter_window, "store")),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "stores a block late": (
        WrongTier(store=of_each(a_block_late)),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "leaves out where steps start": (
        WrongTier(store=from_the_last_step),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "takes tokens for blocks": (WrongTier(store=in_tokens), KEPT, Code.TIER_BLOCK_LEFT_OUT),
    "stores every block": (
        WrongTier(store=of_each(lambda mask: [True] * len(mask))),
        ONLY,
        Code.TIER_BLOCK_UNREACHABLE,
    ),
    "stores past the step": (
        WrongTier(store=of_each(lambda mask: [*mask, True])),
        ONLY,
        Code.TIER_BLOCK_UNREACHABLE,
    ),
    "storing raises": (WrongTier(store=mask_raises), KEPT, Code.RAISES_EXCEPTION),
    "asks for no lookahead block": (
        WrongTier(lookup=not_the_drafts("lookup")),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "asks for every block": (
        WrongTier(lookup=of_each(lambda mask: [True] * len(mask))),
        ONLY,
        Code.TIER_BLOCK_UNREACHABLE,
    ),
    "drops a block of the load": (
        WrongTier(load=of_each(lambda mask: mask[:-1])),
        LOADS,
        Code.TIER_BLOCK_NOT_LOADED,
    ),
    "loads a shorter tail": (
        WrongTier(load=masked(shorter_window, "load")),
        LOADS,
        Code.TIER_BLOCK_NOT_LOADED,
    ),
    "loads the lookahead block": (
        WrongTier(load=of_each(lambda mask: [*mask, True])),
        LOADS,
        Code.TIER_BLOCK_LOADED_UNREAD,
    ),
    "loads the whole prefix": (
        WrongTier(load=of_each(lambda mask: [True] * len(mask))),
        LOADS,
        Code.TIER_BLOCK_LOADED_UNREAD,
    ),
    "loading raises": (WrongTier(load=mask_raises), LOADS, Code.RAISES_EXCEPTION),
}
CHUNKS: dict[str, Wrong] = {
    "serves a chunk more": (WrongTier(in_chunks(longer)), LONGEST, Code.TIER_HIT_LACKS_BLOCK),
    "serves a chunk less": (WrongTier(in_chunks(shorter)), LONGEST, Code.TIER_HIT_TOO_SHORT),
    "the last chunk is never stored": (
        WrongChunks(stores=lambda chunks: chunks - {max(chunks, default=0)}),
        KEPT,
        Code.TIER_BLOCK_LEFT_OUT,
    ),
    "the last block is not loaded": (
        WrongChunks(loads=lambda blocks: blocks - {max(blocks, default=0)}),
        LOADS,
        Code.TIER_BLOCK_NOT_LOADED,
    ),
    "a block past the hit is loaded": (
        WrongChunks(loads=lambda blocks: blocks | {max(blocks, default=0) + 1}),
        LOADS,
        Code.TIER_BLOCK_LOADED_UNREAD,
    ),
    "storing chunks raises": (WrongChunks(stores=raises), KEPT, Code.RAISES_EXCEPTION),
    "loading chunks raises": (WrongChunks(loads=raises), LOADS, Code.RAISES_EXCEPTION),
}
TIERS_BROKEN = LOOKUPS | MASKS | CHUNKS


def judged(claim: str) -> list[Layout]:
    every = *layouts(Profile.QUICK), *offloaded(Profile.QUICK)
    return [layout for layout in every if is_about(claim, layout)]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("claim", [KEPT, LONGEST])
def test_the_reference_conforms(claim: str) -> None:
    for layout in judged(claim):
        if layout.model and claim == LONGEST:
            continue  # takes long
        result = CHECKS[claim](ReferenceSubject(), layout)
        assert set(result.statuses.values()) == {Status.PROVED}, (layout.describe(), result)
        assert result.paths


@pytest.mark.parametrize("name", TIERS_BROKEN)
def test_each_wrong_tier_is_found_shrunk_shown_and_told(name: str) -> None:
    subject, claim, code = TIERS_BROKEN[name]
    for layout in judged(claim):
        if bool(layout.blocks_per_chunk) != (name in CHUNKS):
            continue
        result = CHECKS[claim](subject, layout)
        found = smallest(result.evidence)
        if code not in {key.code for key in found if key.claim == claim}:
            continue
        assert result.statuses[claim] is Status.REFUTED
        evidence = next(e for key, e in found.items() if (key.claim, key.code) == (claim, code))
        assert isinstance(evidence, TierLookupEvidence | TierMaskEvidence)
        assert Evidence.from_json(evidence.as_json()) == evidence
        small = shrink(subject, evidence)
        assert small.signature == evidence.signature
        assert small.size <= evidence.size
        shown = finding(small, "f:1")
        assert shown.sentence == CLAIMS[claim].sentence
        assert any("tier behind a KV connector" in line for line in shown.given)
        assert shown.strip
        assert tell(ToldFinding.model_validate(shown.as_json())).chapters
        return
    pytest.fail("not refuted")


def wrong_states(subject: Any, layout: Layout, max_length: int) -> set[tuple[frozenset[int], ...]]:
    """The sets of stored blocks at which the answer is not the spec's, by brute force."""
    lookup, policy = subject.tier_lookup(layout), subject.lookahead_horizon
    cap, horizon = layout.reach(max_length, policy)
    space = space_of(layout, lookup, max_length, policy)
    questions = sorted(set(space.keys.values()))
    wrong = set()
    for held in itertools.product((False, True), repeat=len(questions)):
        stored = frozenset(itertools.compress(questions, held))

        def holds(number: int, block: int, stored: frozenset[Any] = stored) -> bool:
            return (number, block) in stored

        due = longest_tier_hit(
            tuple(each.group for each in layout.looked_up),
            layout.alignment,
            cap,
            horizon,
            holds,
            lambda *_: False,
        )
        answer = replay(space, lookup, max_length, stored)
        assert isinstance(answer, LookupAnswer)
        if answer.hit_length != due:
            wrong.add(
                tuple(
                    frozenset(block for owner, block in stored if owner == number)
                    for number in range(len(layout.looked_up))
                )
            )
    return wrong


@pytest.mark.parametrize(
    "name", ["the lookahead dropped twice", "ends at a group without a hit", "one token more"]
)
def test_the_check_agrees_with_brute_force(name: str) -> None:
    layout = replace(DRAFTS, num_tokens=4)
    for subject in (TIERS_BROKEN[name][0], ReferenceSubject()):
        wrong = {length: wrong_states(subject, layout, length) for length in layout.max_lengths}
        result = check_tier_lookup(subject, layout)
        assert bool(result.evidence) == any(wrong.values())
        for evidence in result.evidence:
            assert isinstance(evidence, TierLookupEvidence)
            assert evidence.cached in wrong[evidence.max_length]


def test_masks_are_judged_up_to_whole_runs_and_a_segment_more() -> None:
    result = check_tier_masks(ReferenceSubject(), DRAFTS)
    # Tail 2 and one lookahead block in segments of 2 blocks: 4 boundaries, of as many steps each.
    assert result.paths == 1 + 2 + 3 + 4 + 4 + 4


def test_layouts_with_hits_inside_blocks_settle_nothing() -> None:
    for check in (check_tier_lookup, check_tier_masks):
        assert check(ReferenceSubject(), FINE).statuses == {}
    assert not is_about(LONGEST, FINE)
    assert is_about(LONGEST, DRAFTS)


def test_a_group_that_is_taken_over_elsewhere_is_not_judged() -> None:
    layout = Layout((Group(FULL, 1), Group(MAMBA, 1)), 4, False, 1)

    def handed_over(_: Layout, __: int, ___: int, right: Masks) -> Masks:
        return [right[0], None]

    def left_out(_: Layout, __: int, ___: int, right: Masks) -> Masks:
        return [right[0], []]

    for store, status in ((handed_over, Status.PROVED), (left_out, Status.REFUTED)):
        assert check_tier_masks(WrongTier(store=store), layout).statuses[KEPT] is status


def test_what_cannot_be_judged_is_said() -> None:
    class Without(ReferenceSubject):
        def tier_lookup(self, *_: Any) -> Lookup:
            raise Predates("no tiers")

        def tier_masks(self, *_: Any) -> TierMasks:
            raise Predates("no tiers")

    class Odd(ReferenceSubject):
        def tier_lookup(self, *_: Any) -> Lookup:
            raise CannotJudge("no lookup")

        def tier_masks(self, *_: Any) -> TierMasks:
            raise CannotJudge("no masks")

    for subject, status in ((Without(), Status.NOT_APPLICABLE), (Odd(), Status.INCONCLUSIVE)):
        for check in (check_tier_lookup, check_tier_masks):
            result = check(subject, DRAFTS)
            assert set(result.statuses.values()) == {status}
            assert result.detail


def test_a_mask_for_another_number_of_groups_is_inconclusive() -> None:
    fewer = WrongTier(store=lambda _, __, ___, right: right[:1])
    result = check_tier_masks(fewer, DRAFTS)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "1 masks for 2 groups" in result.detail


def test_a_tier_that_keeps_state_is_inconclusive() -> None:
    calls = itertools.count()

    def forgets(_: Layout, __: int, ___: int, right: Masks) -> Masks:
        return right if next(calls) < 11 else [[] for _ in right]

    result = check_tier_masks(WrongTier(store=forgets), DRAFTS)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "keeps state" in result.detail


def test_older_tiers_are_judged_by_what_they_have() -> None:
    class Old(ReferenceTierMasks):
        def asked_for(self, _: int) -> Masks:
            raise Predates("no masks of what is looked up")

    class OldTier(ReferenceSubject):
        def tier_masks(self, layout: Layout) -> TierMasks:
            return Old(layout)

    result = check_tier_masks(OldTier(), DRAFTS)
    assert set(result.statuses.values()) == {Status.PROVED}


def test_it_is_not_shown_on_a_whole_manager() -> None:
    rules = Rules(LookaheadHorizon.HASHED, ReferenceSubject.eagle_groups)
    for name in ("one token more", "stores every block"):
        subject, claim, _ = TIERS_BROKEN[name]
        evidence = next(
            each for layout in judged(claim) for each in CHECKS[claim](subject, layout).evidence
        )
        with pytest.raises(OutOfReach, match="tier behind a KV connector"):
            list(attempts(evidence, rules))
