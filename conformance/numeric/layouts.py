"""What is tried in numbers: layouts of every shape, and the presets scaled down.

Numbers are for what the theorems take for granted, so small sizes are enough: what required runs
are, given that, is proved of one group for all sizes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hitproof.conformance.numeric.resuming import Experiment
from hitproof.conformance.scope.layouts import grid
from hitproof.conformance.scope.models import MODELS, Model, cut
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import Group, GroupKind, alignment

_FULL, _MAMBA, _WINDOW = GroupKind.FULL_ATTENTION, GroupKind.MAMBA, GroupKind.SLIDING_WINDOW
_LONGEST_RUN = 4
"""Blocks that the windows and chunks of presets are cut to."""


def small() -> Iterator[Experiment]:
    """The gate's own grid of layouts, of blocks of up to three tokens, with several MTP modules."""
    for layout in grid(Profile.DEFAULT):
        yield Experiment.of(layout.groups, layout.use_eagle, layout.num_tokens)


def windows() -> Iterator[Experiment]:
    """Every window up to two blocks and more, and every chunk, with larger blocks."""
    for size in (3, 4):
        for segment in (1, 2):
            for window in range(1, 2 * size + 3):
                for ahead in (0, 1, size + 1):
                    groups = Group(_FULL, segment * size), Group(_WINDOW, size, window)
                    yield _of(groups, ahead)
        for chunk in (size, 3 * size):
            yield _of((Group(_FULL, size), Group(GroupKind.CHUNKED_LOCAL, size, chunk=chunk)), 0)


def inside_blocks() -> Iterator[Experiment]:
    """Layouts whose hits end on hash units, inside blocks of full attention and Mamba."""
    for groups, unit in (
        ((Group(_FULL, 8), Group(_MAMBA, 8)), 2),
        ((Group(_FULL, 4), Group(_MAMBA, 6)), 2),
        ((Group(_FULL, 2), Group(_MAMBA, 6), Group(_WINDOW, 2, 4)), 2),
        ((Group(_FULL, 6), Group(_MAMBA, 3)), 1),
    ):
        for ahead in (0, 1, unit + 1):
            yield replace(_of(groups, ahead), num_tokens=19, hash_block_size=unit)


def presets() -> Iterator[tuple[str, Experiment]]:
    """The models of `conformance.scope.models`, with blocks of two tokens at least, by name."""
    for model in MODELS:
        for eagle in (False, True):
            scaled = _scaled(model)
            groups = tuple(replace(group, eagle=group.eagle and eagle) for group in scaled)
            if all(group.chunk is None for group in groups) or not eagle:
                tokens = 2 * alignment(groups) + _LONGEST_RUN * 2 + 1
                name = f"{model.name}{' + EAGLE' if eagle else ''}"
                yield name, Experiment.of(groups, eagle, tokens)


def _of(groups: Sequence[Group], ahead: int) -> Experiment:
    """Groups without draft layers, or with those of ``ahead`` modules."""
    looking = [replace(group, prefill_lookahead=max(ahead, 1)) for group in groups]
    size = min(group.block_size for group in groups)
    return Experiment.of(looking, ahead > 0, 2 * alignment(looking) + size + ahead + 1)


def _scaled(model: Model) -> list[Group]:
    """The groups of a model with everything divided alike, and long windows and chunks cut."""
    common = math.gcd(*(group.block_size for group in model.groups))
    by = max(common // 2, 1)
    return [
        cut(
            replace(
                group,
                block_size=group.block_size // by,
                window=group.window and group.window // by,
                chunk=group.chunk and group.chunk // by,
            ),
            _LONGEST_RUN,
        )
        for group in model.groups
    ]
