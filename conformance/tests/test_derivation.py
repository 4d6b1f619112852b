"""Each rule of derived configurations, on one that breaks it."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.derivation import (
    PROBED,
    Derived,
    Layer,
    Place,
    Rank,
    broken_rules,
)
from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.conformance.findings.rules import Rule
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 16)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 16, 32)
STATE = Group(GroupKind.MAMBA, 16)
PAGE = 1024
RIGHT = Derived(
    CacheSetup((FULL, WINDOW), 16, 16, num_blocks=10),
    {name: Layer(needs, PAGE, False) for name, needs in (("a", FULL), ("b", FULL), ("c", WINDOW))},
    (("a", "b"), ("c",)),
    (PAGE, PAGE),
    20 * PAGE,
    20 * PAGE,
)
DRAFTING = replace(
    RIGHT,
    setup=replace(RIGHT.setup, groups=(replace(FULL, eagle=True), WINDOW), use_eagle=True),
    layers={**RIGHT.layers, "b": Layer(FULL, PAGE, True)},
)
POOL = 20 * PAGE
PLACES = {
    "a": Place(0, PAGE, PAGE),
    "b": Place(10 * PAGE, PAGE, PAGE),
    "c": Place(0, PAGE, PAGE),
}
WINDOW_DRAFTS = replace(
    RIGHT,
    setup=replace(RIGHT.setup, groups=(FULL, replace(WINDOW, eagle=True)), use_eagle=True),
    layers={**RIGHT.layers, "c": Layer(WINDOW, PAGE, True)},
    kept=(PROBED, 32),
    again=1,
)
"""Two modules, so that the layer with the window computes the last token again."""
LAID_OUT = replace(RIGHT, ranks=(Rank(10, POOL, POOL + 3, PLACES),), unit=None)
ALIKE = {name: Layer(FULL, PAGE, False) for name in "abcdef"} | {"w": Layer(WINDOW, PAGE, False)}
SINGLE = replace(
    LAID_OUT,
    layers=ALIKE,
    members=(tuple("abcdef"), ("w",)),
    pool_bytes=60 * PAGE,
    ranks=(Rank(10, 60 * PAGE, 60 * PAGE, {}),),
    available=None,
)
HIDDEN = replace(
    LAID_OUT,
    setup=CacheSetup((FULL, replace(FULL, block_size=4)), 16, 4, num_blocks=10),
    layers={"a": Layer(FULL, PAGE, False), "h": Layer(FULL, 2 * PAGE, False, any_block=True)},
    members=(("a",), ("h",)),
    ranks=(Rank(10, 10 * PAGE, 10 * PAGE, {}),),
    unit=4,
    available=None,
    pool_bytes=20 * PAGE,
)


NARROW = replace(
    LAID_OUT,
    layers={
        **RIGHT.layers,
        "x": Layer(WINDOW, PAGE // 4, False),
        "c": Layer(WINDOW, PAGE // 4, False),
    },
    members=(("a", "b"), ("c",), ("x",)),
    setup=CacheSetup((FULL, WINDOW, WINDOW), 16, 16, num_blocks=10),
    pages=(PAGE, PAGE // 4, PAGE // 4),
    ranks=(Rank(10, 20 * PAGE, 20 * PAGE, {}),),
    available=None,
)
"""Two windows in groups of their own, and room for both beside each other."""
WIDE = replace(
    NARROW,
    layers={"a": Layer(FULL, PAGE // 8, False), "b": Layer(WINDOW, PAGE), "c": Layer(WINDOW, PAGE)},
    members=(("a",), ("b", "c")),
    setup=CacheSetup((FULL, WINDOW), 16, 16, num_blocks=10),
    pages=(PAGE // 8, PAGE),
)
"""Two windows side by side, so that the one layer of full attention has a sixteenth of a block."""


WINDOWS = {name: Layer(WINDOW, PAGE, False) for name in "wxyz"}
SPREAD = replace(
    LAID_OUT,
    setup=CacheSetup((FULL, WINDOW, WINDOW), 16, 16, num_blocks=10),
    layers={"a": Layer(FULL, PAGE, False), "b": Layer(FULL, PAGE, False), **WINDOWS},
    members=(("a", "b"), ("w", "y"), ("x", "z")),
    pages=(PAGE,) * 3,
    ranks=tuple(Rank(10, 10 * PAGE, 10 * PAGE, {}, frozenset(has)) for has in ("awx", "byz")),
    available=None,
)
"""Each rank has one layer of each group, so that a block has one page there."""
RUNS = replace(
    SPREAD,
    members=(("a", "b"), ("w", "x"), ("y", "z")),
    ranks=tuple(replace(each, pool_bytes=20 * PAGE, available=20 * PAGE) for each in SPREAD.ranks),
)
"""Each rank has both layers of one group with windows, and none of the other."""


def sized(derived: Derived, *sizes: int) -> Derived:
    """With blocks of these sizes."""
    groups = zip(derived.setup.groups, sizes, strict=True)
    made = tuple(replace(group, block_size=size) for group, size in groups)
    return replace(derived, setup=replace(derived.setup, groups=made))


@pytest.mark.parametrize(
    "derived",
    [
        RIGHT,
        LAID_OUT,
        SPREAD,
        DRAFTING,
        WINDOW_DRAFTS,
        replace(RIGHT, kept=(PROBED, 31), again=3),
        # Blocks of 32 tokens hold 16 twice, but not their padding.
        replace(
            LAID_OUT,
            setup=CacheSetup((FULL, replace(WINDOW, block_size=32)), 32, 16, num_blocks=10),
            layers={**RIGHT.layers, "c": Layer(WINDOW, PAGE // 2 + 8, padding=8, alignment=64)},
        ),
        # A window may be kept whole.
        replace(RIGHT, members=(("a", "b", "c"), ()), pool_bytes=30 * PAGE, available=None),
    ],
)
def test_a_right_configuration_breaks_none(derived: Derived) -> None:
    assert not list(broken_rules(derived))


@pytest.mark.parametrize(
    ("derived", "rule"),
    [
        (replace(RIGHT, members=(("a",), ("c",))), Rule.LAYERS),
        (replace(RIGHT, members=(("a", "b", "c"), ("c",)), pool_bytes=30 * PAGE), Rule.LAYERS),
        (replace(RIGHT, members=(("a", "b"), ("c", "d"))), Rule.LAYERS),
        (replace(RIGHT, members=(("a",), ("b", "c"))), Rule.READS),
        (
            replace(RIGHT, layers={**RIGHT.layers, "c": Layer(replace(WINDOW, window=64), PAGE)}),
            Rule.READS,
        ),
        (replace(RIGHT, layers={**RIGHT.layers, "a": Layer(STATE, PAGE, False)}), Rule.READS),
        (replace(RIGHT, kept=(PROBED, 30)), Rule.READ_AGAIN),
        (replace(RIGHT, kept=(PROBED - 1, 31)), Rule.READ_AGAIN),
        (replace(WINDOW_DRAFTS, again=2), Rule.READ_AGAIN),
        (replace(WINDOW_DRAFTS, kept=(PROBED, 31)), Rule.READ_AGAIN),
        (
            replace(
                RIGHT,
                setup=replace(RIGHT.setup, groups=(FULL, STATE)),
                layers={**RIGHT.layers, "c": Layer(STATE, PAGE, False)},
                kept=(PROBED, 0),
            ),
            Rule.READ_AGAIN,
        ),
        (replace(RIGHT, pages=(PAGE, PAGE // 2)), Rule.PAGES),
        (
            replace(
                RIGHT,
                setup=replace(
                    RIGHT.setup,
                    groups=(FULL, replace(WINDOW, block_size=32)),
                    scheduler_block_size=32,
                ),
            ),
            Rule.PAGES,
        ),
        (replace(RIGHT, pool_bytes=19 * PAGE), Rule.POOL),
        (replace(RIGHT, available=19 * PAGE), Rule.POOL),
        (replace(RIGHT, setup=replace(RIGHT.setup, scheduler_block_size=32)), Rule.SCHEDULER_BLOCK),
        (replace(RIGHT, setup=replace(RIGHT.setup, hash_block_size=6)), Rule.HASH_BLOCK),
        (replace(DRAFTING, layers=RIGHT.layers), Rule.DRAFTS),
        (replace(DRAFTING, setup=replace(DRAFTING.setup, groups=(FULL, WINDOW))), Rule.DRAFTS),
        (replace(LAID_OUT, setup=replace(RIGHT.setup, hash_block_size=8)), Rule.HASH_UNIT),
        (replace(LAID_OUT, unit=4), Rule.HASH_UNIT),
        (sized(LAID_OUT, 8, 16), Rule.BLOCKS),
        (sized(replace(LAID_OUT, pages=(PAGE, 2 * PAGE)), 16, 16), Rule.BLOCKS),
        (HIDDEN, Rule.BLOCKS),
        (replace(LAID_OUT, pages=(2 * PAGE, PAGE)), Rule.PAGE_SIZE),
        (
            replace(LAID_OUT, ranks=(Rank(10, POOL, POOL, {**PLACES, "b": PLACES["a"]}),)),
            Rule.APART,
        ),
        (
            replace(
                LAID_OUT,
                ranks=(Rank(10, POOL, POOL, {**PLACES, "b": Place(11 * PAGE, PAGE, PAGE)}),),
            ),
            Rule.APART,
        ),
        (
            replace(LAID_OUT, ranks=(Rank(10, POOL, POOL, {**PLACES, "c": Place(-7, PAGE, 7)}),)),
            Rule.APART,
        ),
        (
            replace(LAID_OUT, layers={**RIGHT.layers, "c": Layer(WINDOW, PAGE, alignment=96)}),
            Rule.ALIGNED,
        ),
        (
            replace(RIGHT, layers={**RIGHT.layers, "c": Layer(WINDOW, PAGE - 8, whole_rows=True)}),
            Rule.PAGES,
        ),
        (
            # Blocks of two groups that are not the same.
            replace(LAID_OUT, ranks=(Rank(10, POOL, POOL, {**PLACES, "c": Place(7, PAGE, PAGE)}),)),
            Rule.APART,
        ),
        (replace(LAID_OUT, ranks=(LAID_OUT.ranks[0], Rank(9, POOL, POOL, {}))), Rule.RANKS),
        (replace(LAID_OUT, ranks=(Rank(10, POOL, 22 * PAGE, {}),)), Rule.MEMORY),
        (SINGLE, Rule.PADDING),
        (NARROW, Rule.FILLED_BLOCKS),
        (WIDE, Rule.LONG_REQUESTS),
        (RUNS, Rule.DEALT),
        (
            # One group, whose hits end at blocks, whatever a hash covers.
            replace(
                LAID_OUT,
                setup=CacheSetup((FULL,), 16, 8, num_blocks=10),
                members=(tuple("abc"),),
                pages=(PAGE,),
                unit=8,
            ),
            Rule.HASH_UNIT,
        ),
        (
            replace(LAID_OUT, ranks=(Rank(10, POOL, POOL, PLACES, frozenset("ab")),)),
            Rule.OWN_LAYERS,
        ),
        (
            replace(LAID_OUT, ranks=(Rank(10, POOL, POOL, PLACES, frozenset("abcd")),)),
            Rule.OWN_LAYERS,
        ),
        (
            replace(
                SINGLE,
                setup=CacheSetup((FULL, FULL, FULL, WINDOW, WINDOW), 16, 16, num_blocks=10),
                layers={**ALIKE, "x": Layer(WINDOW, PAGE, False)},
                members=(("a", "b"), ("c", "d"), ("e", "f"), ("w",), ("x",)),
                pages=(PAGE,) * 5,
            ),
            Rule.FEW_GROUPS,
        ),
    ],
)
def test_each_rule(derived: Derived, rule: Rule) -> None:
    assert rule in {broken.rule for broken in broken_rules(derived)}
