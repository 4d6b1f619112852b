"""What the configurations and layouts of a profile cover: every possible pair of properties.

Each group counts where it is checked, alone or in a layout. Properties are classes, since sizes
differ between the grids and the real models; see `PROPERTIES`.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import TypeAlias

from hitproof.conformance.scope.configurations import Configuration, LookedUp
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind

Property: TypeAlias = tuple[str, str]
"""The name of a property, and the class that a group has."""

PROPERTIES: dict[str, tuple[str, ...]] = {
    "kind": tuple(map(str, GroupKind)),
    "block size": ("1", "2 to 8", "16 or more"),
    "window or chunk": ("none", "shorter than a segment", "a segment", "longer than a segment"),
    "EAGLE": ("off", "on"),
    "hash block size": ("a block", "less than a block"),
    "alignment": ("1 block", "2 blocks", "3 or more blocks"),
    "groups": ("one set", "first of several sets", "after others"),
}
"""Every property and its classes. Windows count by their tails, groups as they are looked up."""


def pairs() -> Iterator[frozenset[Property]]:
    """Every pair of properties that an engine can have."""
    for (one, values), (other, others) in combinations(PROPERTIES.items(), 2):
        for value in values:
            for other_value in others:
                pair = {one: value, other: other_value}
                if not _is_impossible(pair):
                    yield frozenset(pair.items())


def missing(profile: Profile) -> list[frozenset[Property]]:
    """The pairs that no configuration or layout of the profile covers."""
    judged: list[Configuration | Layout] = [*configurations(profile), *layouts(profile)]
    covered = {
        frozenset(pair)
        for each in judged
        for looked_up in each.looked_up
        for pair in combinations(properties(each, looked_up).items(), 2)
    }
    return [pair for pair in pairs() if pair not in covered]


def properties(judged: Configuration | Layout, looked_up: LookedUp) -> dict[str, str]:
    """The properties of a set of groups that are looked up together."""
    group, segment = looked_up.group, looked_up.shape.segment
    size = group.block_size
    reach = looked_up.shape.tail if group.chunk is None else group.chunk // size
    unbounded = group.window is None and group.chunk is None
    # Mamba never drops a block, but may be combined with groups that do.
    engine_drafts = isinstance(judged, Layout) and judged.use_eagle
    drafts = group.eagle or (group.kind is GroupKind.MAMBA and engine_drafts)
    return {
        "kind": str(group.kind),
        "block size": "1" if size == 1 else "2 to 8" if size <= 8 else "16 or more",
        "window or chunk": "none"
        if unbounded
        else "a segment"
        if reach == segment
        else "shorter than a segment"
        if reach < segment
        else "longer than a segment",
        "EAGLE": "on" if drafts else "off",
        "hash block size": "a block" if judged.hash_block_size == size else "less than a block",
        "alignment": {1: "1 block", 2: "2 blocks"}.get(segment, "3 or more blocks"),
        "groups": "one set"
        if len(judged.looked_up) == 1
        else "first of several sets"
        if looked_up == judged.looked_up[0]
        else "after others",
    }


def _is_impossible(pair: dict[str, str]) -> bool:
    """Whether no engine can have the two; see `conformance.scope.configurations.is_possible`."""
    kind, reach = pair.get("kind"), pair.get("window or chunk")
    if kind in (GroupKind.FULL_ATTENTION, GroupKind.MAMBA) and reach is not None:
        return reach != "none"
    if kind in (GroupKind.SLIDING_WINDOW, GroupKind.CHUNKED_LOCAL) and reach == "none":
        return True
    if kind == GroupKind.CHUNKED_LOCAL:  # chunks of whole blocks, one block size, no EAGLE
        return (
            reach == "shorter than a segment"
            or pair.get("EAGLE") == "on"
            or pair.get("hash block size") == "less than a block"
            or pair.get("alignment") in ("2 blocks", "3 or more blocks")
        )
    if reach == "shorter than a segment" and pair.get("alignment") == "1 block":
        return True
    return pair.get("block size") == "1" and pair.get("hash block size") == "less than a block"
