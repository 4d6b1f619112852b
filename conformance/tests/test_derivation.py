"""Each rule of derived configurations, on one that breaks it."""

from dataclasses import replace

import pytest

from hitproof.conformance.explain.derivation import Derived, Layer, Rule, broken_rules
from hitproof.conformance.explain.reuse import CacheSetup
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


@pytest.mark.parametrize(
    "derived",
    [
        RIGHT,
        DRAFTING,
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
        (
            replace(DRAFTING, setup=replace(DRAFTING.setup, groups=(FULL, WINDOW))),
            Rule.DRAFTS,
        ),
    ],
)
def test_each_rule(derived: Derived, rule: Rule) -> None:
    assert rule in {broken.rule for broken in broken_rules(derived)}
