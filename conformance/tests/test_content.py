"""The pages tell right content from every kind of wrong content."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content import ContentModel
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 2)
SLIDING = Group(GroupKind.SLIDING_WINDOW, 2, window=3)
CHUNKED = Group(GroupKind.CHUNKED_LOCAL, 2, chunk=4)
MAMBA = Group(GroupKind.MAMBA, 4)
REQUESTS = {
    "a": RequestInput(prompt=tuple(range(8)), output=(8, 9, 10, 11, 12, 13)),
    "b": RequestInput(prompt=(*range(6), 99, 98)),
    "c": RequestInput(prompt=tuple(range(10)), lora_name="poet"),
}


def sign(group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
    return Signature(claim, divergence, f"group {group}", False, defect)


def content(
    *groups: Group, drafts: int = 0, every_state: bool = False, replays: bool = False
) -> ContentModel:
    size = groups[0].block_size
    engine = EngineConfiguration(
        groups, 50, size, 32, use_eagle=drafts > 0, num_speculative_tokens=drafts
    )
    return ContentModel(engine, REQUESTS, sign, every_state, replays=replays)


def codes(found: Iterable[Violation]) -> list[str]:
    return [str(wrong.signature.defect) for wrong in found]


def test_what_a_request_computed_it_reads() -> None:
    model = content(FULL)
    assert not [*model.compute("a", ((1, 2),), 0, 4, 8)]
    assert not [*model.compute("a", ((1, 2, 3, 4),), 4, 4, 8)]


def test_a_hit_on_an_equal_prefix_is_right_and_on_another_is_not() -> None:
    model = content(FULL)
    assert not [*model.compute("a", ((1, 2, 3, 4),), 0, 8, 8)]
    assert not [*model.compute("b", ((1, 2, 3, 5),), 6, 2, 8)]
    wrong = [*model.compute("b", ((1, 2, 3, 4, 5),), 8, 1, 8)]
    assert codes(wrong) == ["other-content-read"]
    assert wrong[0].actual == "block 3 of its table: a[0:7]"
    assert codes(model.compute("c", ((1, 2, 3, 6, 7),), 6, 2, 10)) == codes(wrong)


@pytest.mark.parametrize(
    ("replay", "steps", "found"),
    [
        (range(4, 6), [(4, 4)], []),
        (range(4, 6), [(4, 1), (5, 1), (6, 2)], []),
        (range(3, 6), [(3, 5)], []),
        (range(0), [(6, 2)], ["other-content-read"]),
        (range(5, 6), [(5, 3)], ["other-content-read"]),
        (range(4, 6), [(5, 3)], ["other-content-read"]),
        (range(4, 7), [(4, 4)], ["other-content-read"]),
    ],
    ids=["exact", "in steps", "more", "left out", "short", "started late", "hit not so long"],
)
def test_a_window_outside_the_cache_is_computed_again(
    replay: range, steps: list[tuple[int, int]], found: list[str]
) -> None:
    """A hit of 6 tokens and a window of 3, of which the next token reads 4 and 5."""
    window = replace(SLIDING, prefix_cacheable=False)
    model = content(FULL, window, replays=True)
    assert not [*model.compute("a", ((1, 2, 3, 4), (5, 6, 7, 8)), 0, 8, 8)]
    model.replay("b", replay)
    tables = (1, 2, 3, 9), (0, 10, 11, 12)
    wrong = [each for step in steps for each in model.compute("b", tables, *step, 8)]
    assert codes(wrong) == found
    # What is computed again writes nothing to the blocks that it hits.
    assert model.store.computed_now_by(3) == "a"


@pytest.mark.parametrize("table", [(1, 0, 3, 4), (1, 2, 3)])
def test_the_null_block_and_a_missing_block_hold_nothing(table: tuple[int, ...]) -> None:
    model = content(FULL)
    assert not [*model.compute("a", ((1, 2, 3),), 0, 6, 8)]
    found = model.compute("a", (table,), 6, 2, 8)
    assert codes(found) == ["null-block-read"]


@pytest.mark.parametrize(
    ("group", "start", "right", "wrong"),
    [
        (SLIDING, 6, (0, 0, 3, 4), (0, 0, 0, 4)),
        (SLIDING, 7, (0, 0, 3, 4), (0, 0, 0, 4)),
        (CHUNKED, 4, (0, 0, 3, 4), (0, 0, 0, 4)),
        (CHUNKED, 6, (0, 0, 3, 4), (0, 0, 0, 4)),
    ],
)
def test_what_is_not_attended_to_need_not_be_there(
    group: Group, start: int, right: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    for table, found in ((right, []), (wrong, ["null-block-read"])):
        model = content(group)
        assert not [*model.compute("a", ((1, 2, 3, 4),), 0, start, 8)]
        assert codes(model.compute("a", (table,), start, 8 - start, 8)) == found


def test_a_block_that_another_group_wrote_holds_nothing_of_this_one() -> None:
    model = content(FULL, Group(GroupKind.SLIDING_WINDOW, 2, window=20))
    tables = ((1, 2, 3, 4), (5, 6, 7, 8))
    assert not [*model.compute("a", tables, 0, 8, 8)]
    assert not [*model.compute("b", ((9,), (4,)), 0, 2, 8)]
    found = [*model.compute("a", ((1, 2, 3, 4, 10), (5, 6, 7, 8, 11)), 8, 1, 9)]
    assert codes(found) == ["other-content-read"]
    assert "which the group has not written" in found[0].actual


def test_rejected_drafts_leave_garbage_that_must_be_overwritten() -> None:
    for kept, start, found in ((9, 9, []), (9, 10, ["other-content-read"])):
        model = content(FULL, drafts=3)
        assert not [*model.compute("a", ((1, 2, 3, 4),), 0, 8, 8)]
        model.settle("a", 8)
        table = ((1, 2, 3, 4, 5, 6),)
        assert not [*model.compute("a", table, 8, 4, 9)]
        model.settle("a", kept)
        assert codes(model.compute("a", table, start, 1, 12)) == found


@pytest.mark.parametrize("proposes", [True, False])
def test_draft_layers_that_propose_write_guesses_behind_a_chunk(proposes: bool) -> None:
    """Tokens that are computed again have entries behind them, as after a failed load."""
    model = content(replace(FULL, eagle=True), drafts=2)
    table = ((1, 2, 3, 4),)
    assert not [*model.compute("a", table, 0, 8, 8)]
    assert not [*model.compute("a", table, 0, 4, 8)]
    model.settle("a", 4, proposes)
    assert model.keys.hold(0, 3, "a[0:6]") != proposes


def test_accepted_drafts_are_right() -> None:
    model = content(FULL, drafts=3)
    assert not [*model.compute("a", ((1, 2, 3, 4, 5, 6),), 0, 8, 8)]
    model.settle("a", 8)
    assert not [*model.compute("a", ((1, 2, 3, 4, 5, 6),), 8, 4, 9)]
    model.settle("a", 11)
    assert not [*model.compute("a", ((1, 2, 3, 4, 5, 6, 7),), 11, 1, 12)]


def test_a_draft_layers_entry_hangs_on_the_next_token() -> None:
    """Token 5 is the same in both, the token after it is not."""
    without, with_drafts = content(FULL), content(FULL, drafts=1)
    for model in (without, with_drafts):
        assert not [*model.compute("a", ((1, 2, 3, 4),), 0, 8, 8)]
    assert not [*without.compute("b", ((1, 2, 3, 5),), 6, 2, 8)]
    found = [*with_drafts.compute("b", ((1, 2, 3, 5),), 6, 2, 8)]
    assert codes(found) == ["draft-entry-of-other-token"]
    assert found[0].signature.claim == "reused_content_is_determined_by_the_hit"
    # One block earlier the next token is part of the prefix that both have.
    assert not [*with_drafts.compute("b", ((1, 2, 6, 7),), 4, 4, 8)]


def test_only_flagged_groups_have_draft_layers() -> None:
    flagged = Group(GroupKind.SLIDING_WINDOW, 2, window=20, eagle=True)
    model = content(FULL, flagged, drafts=1)
    assert not [*model.compute("a", ((1, 2, 3, 4), (5, 6, 7, 8)), 0, 8, 8)]
    found = [*model.compute("b", ((1, 2, 3, 9), (5, 6, 7, 10)), 6, 2, 8)]
    assert [wrong.signature.kind for wrong in found] == ["group 1"]


def test_a_state_is_in_the_block_that_the_step_ends_in() -> None:
    model = content(MAMBA)
    assert not [*model.compute("a", ((0, 2),), 0, 8, 8)]
    model.settle("a", 8)
    model.free("a")
    model.new_step_starts()
    assert not [*model.compute("a", ((0, 2, 3),), 8, 1, 9)]
    # No step ended on token 4, so no block has its state.
    found = [*model.compute("c", ((0, 2, 3),), 8, 1, 10)]
    assert codes(found) == ["other-content-read"]


def test_before_align_mode_every_block_keeps_its_state() -> None:
    for every_state, found in ((False, ["other-content-read"]), (True, [])):
        model = content(MAMBA, every_state=every_state)
        assert not [*model.compute("a", ((1, 2),), 0, 8, 8)]
        model.free("a")
        model.new_step_starts()
        assert codes(model.compute("b", ((1, 3),), 4, 4, 8)) == found


def test_a_state_is_not_there_in_the_step_that_computes_it() -> None:
    for new_step, found in ((True, []), (False, ["state-read-too-early"])):
        model = content(MAMBA)
        assert not [*model.compute("a", ((1,),), 0, 4, 8)]
        model.settle("a", 4)
        if new_step:
            model.new_step_starts()
        assert codes(model.compute("b", ((1, 2),), 4, 4, 8)) == found


def test_states_of_drafts() -> None:
    """The state of what was accepted fills the block; garbage is never gone on from."""
    model = content(MAMBA, drafts=2)
    assert not [*model.compute("a", ((0, 1, 0, 0),), 0, 8, 8)]
    model.settle("a", 8)
    table = ((0, 1, 2, 3, 4),)
    assert not [*model.compute("a", table, 8, 3, 9)]
    model.settle("a", 10)  # one of two drafts was right
    assert model.keys.hold(0, 2, "a[0:9]")
    assert model.keys.hold(0, 3, "a[0:10]")
    assert not model.keys.hold(0, 4, "a[0:11]")
    assert not [*model.compute("a", ((0, 1, 2, 5, 6, 7),), 10, 3, 11)]
    model.settle("a", 13)
    # The step ended in the fourth block; the third is filled from the state of the first draft.
    assert model.keys.hold(0, 2, "a[0:12]")
    assert not [*model.compute("a", ((0, 1, 2, 5, 6, 7),), 13, 1, 14)]


def test_what_is_loaded_is_there_when_the_load_is_done() -> None:
    model = content(FULL)
    cached = {(0, "a[0:2]"): (1,), (0, "a[0:4]"): (2,)}
    wrong = [*model.keys.wrong(cached)]
    assert [each.spec.split(" as ")[1].split()[0] for each in wrong] == ["a[0:2]", "a[0:4]"]
    assert wrong[0].signature.claim == "cached_key_names_its_content"
    model.load("a", ((1, 2),), 0, 4, 8)
    assert not [*model.keys.wrong(cached)]
    assert not [*model.compute("a", ((1, 2, 3),), 4, 2, 8)]


def test_a_key_is_wrong_once_its_block_is_written_again() -> None:
    model = content(FULL)
    assert not [*model.compute("a", ((1, 2),), 0, 4, 8)]
    cached = {(0, "a[0:4]"): (2,)}
    assert not [*model.keys.wrong(cached)]
    assert not [*model.compute("c", ((2,),), 0, 2, 10)]
    assert codes(model.keys.wrong(cached)) == ["key-names-other-content"]


def test_a_key_vouches_for_a_draft_layers_entries_but_the_last() -> None:
    model = content(FULL, drafts=1)
    assert not [*model.compute("a", ((1, 2, 3),), 0, 6, 8)]
    assert model.keys.hold(0, 3, "a[0:6]")
    assert not [*model.compute("b", ((4, 5, 6),), 0, 6, 8)]
    assert model.keys.hold(0, 6, "a[0:6]")
    model.settle("a", 5)
    assert not model.keys.hold(0, 3, "a[0:6]")


def inside_blocks(checkpoint: int | None = None) -> ContentModel:
    groups = Group(GroupKind.FULL_ATTENTION, 4), MAMBA
    engine = EngineConfiguration(groups, 50, 2, 32, mamba_checkpoint_alignment=checkpoint)
    return ContentModel(engine, REQUESTS, sign)


def test_a_copy_is_of_what_was_there_before_the_step() -> None:
    model = inside_blocks()
    assert not [*model.compute("a", ((1, 2), (0, 3)), 0, 6, 8)]
    # In the same step the copies have nothing of it: they are made before it computes.
    model.copy(2, 4)
    model.copy(3, 5)
    assert len(codes(model.compute("b", ((1, 4), (0, 5)), 6, 2, 8))) == 2
    model.free("b")
    model.new_step_starts()
    model.copy(2, 6)
    model.copy(3, 7)
    assert not [*model.compute("b", ((1, 6), (0, 7)), 6, 2, 8)]
    # Nor are they of what another request writes in their step.
    model.new_step_starts()
    assert not [*model.compute("a", ((1, 2), (0, 3)), 6, 2, 8)]
    model.copy(3, 8)
    assert model.keys.hold(1, 8, "a[0:6]")
    assert not model.keys.hold(1, 3, "a[0:6]")


def test_all_copies_of_a_step_are_of_what_was_there_before_it() -> None:
    """The worker reads all sources before it writes, so a copy of a copy is of the old content."""
    model = inside_blocks()
    assert not [*model.compute("a", ((1, 2), (0, 3)), 0, 6, 8)]
    assert not [*model.compute("c", ((5, 6), (0, 7)), 0, 6, 10)]
    model.new_step_starts()
    model.copy(2, 6)
    model.copy(6, 8)
    model.copy(9, 5)
    assert model.keys.hold(0, 6, "a[0:6]")
    assert model.keys.hold(0, 8, "c[0:6]")
    assert not model.keys.hold(0, 8, "a[0:6]")
    assert not model.keys.hold(0, 5, "c[0:4]")  # nothing was in its source
    [read] = codes(model.compute("b", ((1, 8), (0, 3)), 6, 2, 8))
    assert read == "other-content-read"
    model.new_step_starts()
    model.copy(6, 8)
    assert model.keys.hold(0, 8, "a[0:6]")


def test_a_name_may_end_inside_a_block() -> None:
    model = inside_blocks()
    assert not [*model.compute("a", ((1, 2), (0, 3)), 0, 6, 8)]
    assert model.keys.hold(0, 2, "a[0:6]")
    assert not model.keys.hold(0, 2, "a[0:8]")
    assert not [*model.keys.wrong({(0, "a[0:6]"): (2,), (1, "a[0:6]"): (3,)})]
    # Both go on: what a block of full attention held stays, a state is written over.
    assert not [*model.compute("a", ((1, 2), (0, 3)), 6, 2, 8)]
    (wrong,) = model.keys.wrong({(0, "a[0:6]"): (2,), (1, "a[0:6]"): (3,)})
    assert wrong.signature.kind == "group 1"


def test_a_state_is_exported_from_inside_a_chunk() -> None:
    model = inside_blocks(checkpoint=2)
    assert not [*model.compute("c", ((1, 2, 3), (0, 4, 5)), 0, 10, 10)]
    assert model.keys.hold(1, 4, "c[0:8]")
    assert model.keys.hold(1, 5, "c[0:10]")
    without = inside_blocks()
    assert not [*without.compute("c", ((1, 2, 3), (0, 4, 5)), 0, 10, 10)]
    assert not without.keys.hold(1, 4, "c[0:8]")


def test_the_target_of_a_copy_holds_it_until_the_step_ends() -> None:
    """Whoever has the block by then, as a manager that is played gives it back at once."""
    model = content(MAMBA)
    assert not [*model.compute("a", ((1,),), 0, 4, 8)]
    assert not [*model.compute("c", ((2,),), 0, 4, 8)]
    state = "a[0:4]"
    model.new_step_starts()
    for source, held in (1, True), (2, False):
        model.copy(source, 5)
        model.store.keep_only({1, 2})
        assert not model.keys.hold(0, 5, state)
        assert model.keys.hold_in_step(0, 5, state) is held
        model.new_step_starts()
        assert not model.keys.hold_in_step(0, 5, state)


def test_the_target_of_a_copy_holds_what_the_step_writes_there() -> None:
    model = content(MAMBA)
    assert not [*model.compute("a", ((1,),), 0, 2, 8)]
    model.new_step_starts()
    model.copy(1, 5)
    assert not [*model.compute("a", ((5,),), 2, 2, 8)]
    assert model.keys.hold_in_step(0, 5, "a[0:2]")
    assert model.keys.hold_in_step(0, 5, "a[0:4]")
    assert not model.keys.hold_in_step(0, 5, "a[0:3]")


def test_a_state_that_moved_on_is_told_apart_where_modules_compute_tokens_again() -> None:
    for ahead, several in ((1, False), (2, True)):
        model = content(replace(MAMBA, prefill_lookahead=ahead), drafts=ahead)
        assert not [*model.compute("a", ((1,),), 0, 2, 8)]
        assert not [*model.compute("a", ((1,),), 2, 1, 8)]
        [wrong] = model.keys.wrong({(0, "a[0:2]"): (1,)})
        assert (("modules", "several") in wrong.signature.defect.parameters) is several
        [early] = model.keys.wrong({(0, "a[0:4]"): (1,)})
        assert ("modules", "several") not in early.signature.defect.parameters
