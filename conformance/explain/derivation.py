"""Derivation: whether the groups and block sizes of an engine serve the layers that it has.

The layers say what they need; how they are grouped, sized and aligned is the target's decision.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.spec.groups import Group, GroupKind


class Rule(StrEnum):
    """What a derived configuration must obey."""

    LAYERS = "every layer is in one group"
    READS = "a group keeps what its layers read"
    PAGES = "a page holds the block of its group"
    POOL = "the pool fits into the memory"
    SCHEDULER_BLOCK = "the scheduler's block is the least common multiple of the groups' blocks"
    HASH_BLOCK = "every block is a whole number of hash blocks"
    DRAFTS = "the groups with draft layers are flagged"


@dataclass(frozen=True)
class Layer:
    """What one layer needs.

    Attributes:
        needs: its kind, window and chunk, with the block size of its own.
        page_bytes: bytes of a block of that size.
        draft: whether it drafts; None where the target does not say.
    """

    needs: Group
    page_bytes: int
    draft: bool | None = None


@dataclass(frozen=True)
class Derived:
    """What the target made of them.

    Attributes:
        setup: groups and block sizes.
        layers: the layers by name.
        members: the names of the layers of each group.
        pages: bytes that each group has for a block of one of its layers.
        pool_bytes: bytes of the whole pool.
        available: bytes that were available; None where the number of blocks was said instead.
    """

    setup: CacheSetup
    layers: Mapping[str, Layer]
    members: tuple[tuple[str, ...], ...]
    pages: tuple[int, ...]
    pool_bytes: int
    available: int | None = None


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a configuration breaks, and how."""

    rule: Rule
    sentence: str


def broken_rules(derived: Derived) -> Iterator[BrokenRule]:
    """The rules that a configuration breaks, each with the first case of it."""
    for rule, cases in _RULES.items():
        sentence = next(cases(derived), None)
        if sentence is not None:
            yield BrokenRule(rule, sentence)


def _layers(derived: Derived) -> Iterator[str]:
    places = Counter(name for members in derived.members for name in members)
    for name in derived.layers.keys() | places.keys():
        if name not in derived.layers:
            yield f"{name} is in a group, but no layer"
        elif places[name] != 1:
            yield f"{name} is in {places[name]} groups"


def _placed(derived: Derived) -> Iterator[tuple[int, Group, str, Layer]]:
    for index, members in enumerate(derived.members):
        for name in members:
            if name in derived.layers:
                yield index, derived.setup.groups[index], name, derived.layers[name]


def _reads(derived: Derived) -> Iterator[str]:
    for index, group, name, layer in _placed(derived):
        needs = layer.needs
        # Keeping all that comes before serves windows and chunks, too.
        serves = group.kind is GroupKind.FULL_ATTENTION and needs.kind is not GroupKind.MAMBA
        same = (group.kind, group.window, group.chunk) == (needs.kind, needs.window, needs.chunk)
        if needs.prefix_cacheable and not (same or serves):
            yield (
                f"{name} is a layer of {_words(needs)}, and group {index}, where it is, has "
                f"{_words(group)}"
            )


def _words(group: Group) -> str:
    size = group.window or group.chunk
    return group.kind.replace("_", " ") + (f" of {size} tokens" if size else "")


def _pages(derived: Derived) -> Iterator[str]:
    for index, group, name, layer in _placed(derived):
        needed = layer.page_bytes
        if layer.needs.kind is not GroupKind.MAMBA:
            needed = needed * group.block_size // layer.needs.block_size
        beside = (derived.layers.get(each) for each in derived.members[index])
        of_one_size = len({each.page_bytes for each in beside if each is not None}) == 1
        if of_one_size and needed > derived.pages[index]:
            yield (
                f"a block of {group.block_size} tokens of {name} takes {needed} bytes, and a page "
                f"of group {index} has {derived.pages[index]}"
            )


def _pool(derived: Derived) -> Iterator[str]:
    blocks = derived.setup.num_blocks
    for index, members in enumerate(derived.members):
        needed = blocks * sum(
            min(derived.layers[name].page_bytes, derived.pages[index])
            for name in members
            if name in derived.layers
        )
        if needed > derived.pool_bytes:
            yield f"{blocks} blocks of group {index} take {needed} of {derived.pool_bytes} bytes"
    if derived.available is not None and derived.pool_bytes > derived.available:
        yield f"it takes {derived.pool_bytes} bytes, and there are {derived.available}"


def _sizes(derived: Derived) -> list[int]:
    groups = derived.setup.groups if derived.setup.caching else ()
    return [group.block_size for group in groups if group.prefix_cacheable]


def _scheduler_block(derived: Derived) -> Iterator[str]:
    sizes = _sizes(derived)
    aligned = math.lcm(*sizes)
    block = derived.setup.scheduler_block_size
    every = math.lcm(*(group.block_size for group in derived.setup.groups))
    if sizes and block not in (aligned, every):
        yield f"it has {block} tokens, and the groups' blocks have {sizes}"


def _hash_block(derived: Derived) -> Iterator[str]:
    for size in _sizes(derived):
        if size % derived.setup.hash_block_size:
            yield f"a block has {size} tokens, and a hash block {derived.setup.hash_block_size}"


def _drafts(derived: Derived) -> Iterator[str]:
    if not derived.setup.use_eagle or any(each.draft is None for each in derived.layers.values()):
        return
    for index, members in enumerate(derived.members):
        drafting = [n for n in members if n in derived.layers and derived.layers[n].draft]
        flagged = derived.setup.groups[index].eagle
        if bool(drafting) != flagged:
            what = f"{drafting[0]} drafts" if drafting else "none of its layers drafts"
            yield f"group {index} is {'' if flagged else 'not '}flagged, and {what}"


_RULES = {
    Rule.LAYERS: _layers,
    Rule.READS: _reads,
    Rule.PAGES: _pages,
    Rule.POOL: _pool,
    Rule.SCHEDULER_BLOCK: _scheduler_block,
    Rule.HASH_BLOCK: _hash_block,
    Rule.DRAFTS: _drafts,
}
