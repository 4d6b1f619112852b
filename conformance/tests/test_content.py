"""The pages tell right content from every kind of wrong content."""

from collections.abc import Iterable
from copy import deepcopy
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
WIDE = Group(GroupKind.SLIDING_WINDOW, 2, window=20)
DRAFTING = replace(FULL, eagle=True)
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


def inside_blocks(checkpoint: int | None = None) -> ContentModel:
    groups = Group(GroupKind.FULL_ATTENTION, 4), MAMBA
    engine = EngineConfiguration(groups, 50, 2, 32, mamba_checkpoint_alignment=checkpoint)
    return ContentModel(engine, REQUESTS, sign)


CASES: dict[str, tuple[ContentModel, str]] = {
    "what a request computed, it reads": (content(FULL), "a 1,2 0:4; a 1,2,3,4 4:8"),
    "a hit on an equal prefix is right, and on another is not": (content(FULL), """
        a 1,2,3,4 0:8; b 1,2,3,5 6:8;
        b 1,2,3,4,5 8:9 -> other-content-read: block 3 of its table: a[0:7];
        c 1,2,3,6,7 6:8 10 -> other-content-read
    """),
    "the null block holds nothing": (
        content(FULL), "a 1,2,3 0:6; a 1,0,3,4 6:8 -> null-block-read"
    ),
    "nor does a missing block": (content(FULL), "a 1,2,3 0:6; a 1,2,3 6:8 -> null-block-read"),
    "a block that another group wrote holds nothing of this one": (content(FULL, WIDE), """
        a 1,2,3,4|5,6,7,8 0:8; b 9|4 0:2;
        a 1,2,3,4,10|5,6,7,8,11 8:9 9 -> other-content-read: which the group has not written
    """),
    "rejected drafts leave garbage that is overwritten": (content(FULL, drafts=3), """
        a 1,2,3,4 0:8; settle a 8; a 1,2,3,4,5,6 8:12 9; settle a 9; a 1,2,3,4,5,6 9:10 12
    """),
    "or that is read": (content(FULL, drafts=3), """
        a 1,2,3,4 0:8; settle a 8; a 1,2,3,4,5,6 8:12 9; settle a 9;
        a 1,2,3,4,5,6 10:11 12 -> other-content-read
    """),
    "tokens that are computed again have entries behind them": (
        content(DRAFTING, drafts=2), "a 1,2,3,4 0:8; a 1,2,3,4 0:4; settle a 4; hold 0 3 a[0:6]"
    ),
    "into which draft layers that propose write guesses": (content(DRAFTING, drafts=2), """
        a 1,2,3,4 0:8; a 1,2,3,4 0:4; settle a 4 proposes; lack 0 3 a[0:6]
    """),
    "accepted drafts are right": (content(FULL, drafts=3), """
        a 1,2,3,4,5,6 0:8; settle a 8; a 1,2,3,4,5,6 8:12 9; settle a 11;
        a 1,2,3,4,5,6,7 11:12 12
    """),
    "token 5 is the same in both": (content(FULL), "a 1,2,3,4 0:8; b 1,2,3,5 6:8"),
    "the token after it is not, on which a draft layer's entry hangs": (content(FULL, drafts=1), """
        a 1,2,3,4 0:8;
        b 1,2,3,5 6:8 -> draft-entry-of-other-token: reused_content_is_determined_by_the_hit;
        b 1,2,6,7 4:8
    """),
    "only flagged groups have draft layers": (
        content(FULL, replace(WIDE, eagle=True), drafts=1), """
        a 1,2,3,4|5,6,7,8 0:8; b 1,2,3,9|5,6,7,10 6:8 -> draft-entry-of-other-token: group 1
    """),
    "a state is in the block that the step ends in": (content(MAMBA), """
        a 0,2 0:8; settle a 8; free a; step; a 0,2,3 8:9 9; c 0,2,3 8:9 10 -> other-content-read
    """),
    "in align mode a block has no state from inside a step": (
        content(MAMBA), "a 1,2 0:8; free a; step; b 1,3 4:8 -> other-content-read"
    ),
    "before it, every block keeps its state": (
        content(MAMBA, every_state=True), "a 1,2 0:8; free a; step; b 1,3 4:8"
    ),
    "a state is there in the next step": (content(MAMBA), "a 1 0:4; settle a 4; step; b 1,2 4:8"),
    "but not in the step that computes it": (
        content(MAMBA), "a 1 0:4; settle a 4; b 1,2 4:8 -> state-read-too-early"
    ),
    # One of two drafts was right; the step after ends in the fourth block, and the third is filled
    # from the state of its first draft.
    "the state of what was accepted fills the block": (content(MAMBA, drafts=2), """
        a 0,1,0,0 0:8; settle a 8; a 0,1,2,3,4 8:11 9; settle a 10; hold 0 2 a[0:9];
        hold 0 3 a[0:10]; lack 0 4 a[0:11]; a 0,1,2,5,6,7 10:13 11; settle a 13;
        hold 0 2 a[0:12]; a 0,1,2,5,6,7 13:14 14
    """),
    "a key is wrong once its block is written again": (content(FULL), """
        a 1,2 0:4; key 0 2 a[0:4]; c 2 0:2 10; key 0 2 a[0:4] -> key-names-other-content
    """),
    "a key covers a draft layer's entries but the last": (content(FULL, drafts=1), """
        a 1,2,3 0:6; hold 0 3 a[0:6]; b 4,5,6 0:6; hold 0 6 a[0:6]; settle a 5; lack 0 3 a[0:6]
    """),
    # Copies are made before a step computes, and are not of what another writes in their step.
    "a copy is of what was there before the step": (inside_blocks(), """
        a 1,2|0,3 0:6; copy 2 4; copy 3 5;
        b 1,4|0,5 6:8 -> other-content-read, other-content-read; free b; step; copy 2 6;
        copy 3 7; b 1,6|0,7 6:8; step; a 1,2|0,3 6:8; copy 3 8; hold 1 8 a[0:6]; lack 1 3 a[0:6]
    """),
    # The worker reads all sources before it writes, so a copy of a copy is of the old content.
    "all copies of a step are of what was there before it": (inside_blocks(), """
        a 1,2|0,3 0:6; c 5,6|0,7 0:6 10; step; copy 2 6; copy 6 8; copy 9 5; hold 0 6 a[0:6];
        hold 0 8 c[0:6]; lack 0 8 a[0:6]; lack 0 5 c[0:4]; b 1,8|0,3 6:8 -> other-content-read;
        step; copy 6 8; hold 0 8 a[0:6]
    """),
    # Both go on: what a block of full attention held stays, a state is written over.
    "a name may end inside a block": (inside_blocks(), """
        a 1,2|0,3 0:6; hold 0 2 a[0:6]; lack 0 2 a[0:8]; key 0 2 a[0:6]; key 1 3 a[0:6];
        a 1,2|0,3 6:8; key 0 2 a[0:6]; key 1 3 a[0:6] -> key-names-other-content: group 1
    """),
    "a state is exported from inside a chunk": (
        inside_blocks(checkpoint=2), "c 1,2,3|0,4,5 0:10 10; hold 1 4 c[0:8]; hold 1 5 c[0:10]"
    ),
    "and is not where none is": (inside_blocks(), "c 1,2,3|0,4,5 0:10 10; lack 1 4 c[0:8]"),
    "the target of a copy holds what the step writes there": (content(MAMBA), """
        a 1 0:2; step; copy 1 5; a 5 2:4; hold_in_step 0 5 a[0:2]; hold_in_step 0 5 a[0:4];
        lack_in_step 0 5 a[0:3]
    """),
}  # fmt: skip
"""What is done with the content. A request with its tables computes tokens, of which a number is
known, 8 by default; a block has, or lacks, what a name says, or has a key of that name. Behind an
arrow: the codes of what is wrong, and words of its description."""


def done(model: ContentModel, line: str) -> Iterable[Violation]:
    """Do what a line says; what is wrong."""
    match line.split():
        case "settle", name, tokens, *proposes:
            model.settle(name, int(tokens), bool(proposes))
        case "free", name:
            model.free(name)
        case ["step"]:
            model.new_step_starts()
        case "copy", source, target:
            model.copy(int(source), int(target))
        case ("hold" | "lack") as how, group, block, name:
            assert model.keys.hold(int(group), int(block), name) is (how == "hold")
        case ("hold_in_step" | "lack_in_step") as how, group, block, name:
            held = model.keys.hold_in_step(int(group), int(block), name)
            assert held is (how == "hold_in_step")
        case "key", group, block, name:
            return model.keys.wrong({(int(group), name): (int(block),)})
        case name, tables, tokens, *known:
            start, end = map(int, tokens.split(":"))
            each = tuple(tuple(map(int, table.split(","))) for table in tables.split("|"))
            return model.compute(name, each, start, end - start, int(known[0]) if known else 8)
        case _:
            raise ValueError(line)
    return ()


@pytest.mark.parametrize("name", CASES)
def test_content(name: str) -> None:
    model, script = deepcopy(CASES[name])
    for line in filter(None, map(str.strip, script.split(";"))):
        act, _, expected = line.partition(" -> ")
        wanted, _, words = expected.partition(": ")
        found = [*done(model, act)]
        assert codes(found) == [each for each in wanted.split(", ") if each], line
        for each in found:
            said = f"{each.actual}; {each.signature.claim}; {each.signature.kind}"
            assert words in said, line


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


def test_what_is_loaded_is_there_when_the_load_is_done() -> None:
    model = content(FULL)
    cached = {(0, "a[0:2]"): (1,), (0, "a[0:4]"): (2,)}
    wrong = [*model.keys.wrong(cached)]
    assert [each.spec.split(" as ")[1].split()[0] for each in wrong] == ["a[0:2]", "a[0:4]"]
    assert wrong[0].signature.claim == "cached_key_names_its_content"
    model.load("a", ((1, 2),), 0, 4, 8)
    assert not [*model.keys.wrong(cached)]
    assert not [*model.compute("a", ((1, 2, 3),), 4, 2, 8)]


def test_the_target_of_a_copy_holds_it_until_the_step_ends() -> None:
    """Even if the block has a new holder, as a manager that is played gives it back at once."""
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


def test_a_state_that_moved_on_is_told_apart_where_modules_compute_tokens_again() -> None:
    for ahead, several in ((1, False), (2, True)):
        model = content(replace(MAMBA, prefill_lookahead=ahead), drafts=ahead)
        assert not [*model.compute("a", ((1,),), 0, 2, 8)]
        assert not [*model.compute("a", ((1,),), 2, 1, 8)]
        [wrong] = model.keys.wrong({(0, "a[0:2]"): (1,)})
        assert (("modules", "several") in wrong.signature.defect.parameters) is several
        [early] = model.keys.wrong({(0, "a[0:4]"): (1,)})
        assert ("modules", "several") not in early.signature.defect.parameters
