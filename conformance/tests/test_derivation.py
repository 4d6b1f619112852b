"""Each rule of derived configurations, on one that breaks it."""

from dataclasses import replace
from typing import Any

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
PLACES = {"a": Place(0, PAGE, PAGE), "b": Place(10 * PAGE, PAGE, PAGE), "c": Place(0, PAGE, PAGE)}
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


def setup(derived: Derived = RIGHT, **changes: Any) -> Derived:
    return replace(derived, setup=replace(derived.setup, **changes))


def sized(derived: Derived, *sizes: int) -> Derived:
    """With blocks of these sizes."""
    groups = zip(derived.setup.groups, sizes, strict=True)
    made = tuple(replace(group, block_size=size) for group, size in groups)
    return setup(derived, groups=made)


def layers(derived: Derived = RIGHT, **changed: Layer) -> Derived:
    return replace(derived, layers={**RIGHT.layers, **changed})


def placed(*own: str, **places: Place) -> Derived:
    """With pages elsewhere; ``own`` are the rank's own layers."""
    rank = Rank(10, POOL, POOL, {**PLACES, **places}, frozenset(own))
    return replace(LAID_OUT, ranks=(rank,))


STATES = replace(layers(c=Layer(STATE, PAGE, False)), kept=(PROBED, 0))
ONE_GROUP = replace(LAID_OUT, members=(tuple("abc"),), pages=(PAGE,), unit=8)
FIVE = CacheSetup((FULL, FULL, FULL, WINDOW, WINDOW), 16, 16, num_blocks=10)
WIDER = CacheSetup((FULL, replace(WINDOW, block_size=32)), 32, 16, num_blocks=10)
RIGHTS = [
    RIGHT,
    LAID_OUT,
    SPREAD,
    DRAFTING,
    WINDOW_DRAFTS,
    replace(RIGHT, kept=(PROBED, 31), again=3),
    # Blocks of 32 tokens hold 16 twice, but not their padding.
    layers(replace(LAID_OUT, setup=WIDER), c=Layer(WINDOW, PAGE // 2 + 8, padding=8, alignment=64)),
    # A window may be kept whole.
    replace(RIGHT, members=(("a", "b", "c"), ()), pool_bytes=30 * PAGE, available=None),
]
WRONG: dict[Rule, list[Derived]] = {
    Rule.LAYERS: [
        replace(RIGHT, members=(("a",), ("c",))),
        replace(RIGHT, members=(("a", "b", "c"), ("c",)), pool_bytes=30 * PAGE),
        replace(RIGHT, members=(("a", "b"), ("c", "d"))),
    ],
    Rule.READS: [
        replace(RIGHT, members=(("a",), ("b", "c"))),
        layers(c=Layer(replace(WINDOW, window=64), PAGE)),
        layers(a=Layer(STATE, PAGE, False)),
    ],
    Rule.READ_AGAIN: [
        replace(RIGHT, kept=(PROBED, 30)),
        replace(RIGHT, kept=(PROBED - 1, 31)),
        replace(WINDOW_DRAFTS, again=2),
        replace(WINDOW_DRAFTS, kept=(PROBED, 31)),
        setup(STATES, groups=(FULL, STATE)),
    ],
    Rule.PAGES: [
        replace(RIGHT, pages=(PAGE, PAGE // 2)),
        setup(sized(RIGHT, 16, 32), scheduler_block_size=32),
        layers(c=Layer(WINDOW, PAGE - 8, whole_rows=True)),
    ],
    Rule.POOL: [replace(RIGHT, pool_bytes=19 * PAGE), replace(RIGHT, available=19 * PAGE)],
    Rule.SCHEDULER_BLOCK: [setup(scheduler_block_size=32)],
    Rule.HASH_BLOCK: [setup(hash_block_size=6)],
    Rule.DRAFTS: [replace(DRAFTING, layers=RIGHT.layers), setup(DRAFTING, groups=(FULL, WINDOW))],
    Rule.HASH_UNIT: [
        setup(LAID_OUT, hash_block_size=8),
        replace(LAID_OUT, unit=4),
        # One group, whose hits end at blocks, whatever a hash covers.
        replace(ONE_GROUP, setup=CacheSetup((FULL,), 16, 8, num_blocks=10)),
    ],
    Rule.BLOCKS: [sized(LAID_OUT, 8, 16), replace(LAID_OUT, pages=(PAGE, 2 * PAGE)), HIDDEN],
    Rule.PAGE_SIZE: [replace(LAID_OUT, pages=(2 * PAGE, PAGE))],
    Rule.APART: [
        placed(b=PLACES["a"]),
        placed(b=Place(11 * PAGE, PAGE, PAGE)),
        placed(c=Place(-7, PAGE, 7)),
        placed(c=Place(7, PAGE, PAGE)),  # blocks of two groups that are not the same
    ],
    Rule.ALIGNED: [layers(LAID_OUT, c=Layer(WINDOW, PAGE, alignment=96))],
    Rule.RANKS: [replace(LAID_OUT, ranks=(LAID_OUT.ranks[0], Rank(9, POOL, POOL, {})))],
    Rule.MEMORY: [replace(LAID_OUT, ranks=(Rank(10, POOL, 22 * PAGE, {}),))],
    Rule.PADDING: [SINGLE],
    Rule.FILLED_BLOCKS: [NARROW],
    Rule.LONG_REQUESTS: [WIDE],
    Rule.DEALT: [RUNS],
    Rule.OWN_LAYERS: [placed(*"ab"), placed(*"abcd")],
    Rule.FEW_GROUPS: [
        replace(
            SINGLE,
            setup=FIVE,
            layers={**ALIKE, "x": Layer(WINDOW, PAGE, False)},
            members=(("a", "b"), ("c", "d"), ("e", "f"), ("w",), ("x",)),
            pages=(PAGE,) * 5,
        )
    ],
}


@pytest.mark.parametrize("derived", RIGHTS)
def test_a_right_configuration_breaks_none(derived: Derived) -> None:
    assert not list(broken_rules(derived))


@pytest.mark.parametrize("rule", Rule)
def test_each_rule(rule: Rule) -> None:
    for derived in WRONG[rule]:
        assert rule in {broken.rule for broken in broken_rules(derived)}
