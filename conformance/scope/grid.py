"""What is checked of a profile: the grid of configurations, and those of real models.

Together with the layouts they cover every possible pair of properties
(`conformance.scope.coverage`).
Coverage of the grid: the cross product of the kinds, of P (blocks from one boundary to the
next), of tails shorter than, equal to and longer than P, of the smallest and the largest
window that gives that tail, of EAGLE on and off, and of two block sizes; one or two groups that
share the lookup alternate over it; the windows of segments of two blocks have hash blocks of
half a block. Of windows, every other element of the product is judged, so that each combination
of all these parameters but one is; the thorough profile judges them all. Full attention is also
checked on context parallel ranks. Windows start at two tokens: a layer that sees one token reads
nothing from the cache. Chunks of local attention are of one block, shorter and longer than the
request. The group layouts of real models are added to the grid.
Every configuration is one that a vLLM engine can have (`is_possible`).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from hitproof.conformance.scope.configurations import Configuration, single_group, windows_with_tail
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind


@dataclass(frozen=True)
class _Grid:
    """The values of each parameter, in blocks or tokens; of ``every`` windows one is judged."""

    block_sizes: tuple[int, ...]
    segments: tuple[int, ...]
    tails: tuple[int, ...]
    chunks: tuple[int, ...]
    num_blocks: int
    every: int = 2


_GRIDS = {
    Profile.QUICK: _Grid((4,), (1, 2, 3), (1, 2, 4), (1, 5, 30), 16),
    Profile.DEFAULT: _Grid((2, 16), (1, 2, 3, 4), (1, 2, 3, 4, 6, 9), (1, 2, 3, 5, 8, 30), 24),
    Profile.THOROUGH: _Grid(
        (1, 2, 5, 16),
        (1, 2, 3, 4, 5, 6, 8),
        (1, 2, 3, 4, 5, 6, 7, 9, 12, 17, 31),
        (1, 2, 3, 4, 5, 7, 8, 12, 16, 30),
        48,
        every=1,
    ),
}


def grid(profile: Profile) -> Iterator[Configuration]:
    """The grid of one-group configurations, smallest parameters first."""
    sizes = _GRIDS[profile]
    for of_size, block_size in enumerate(sizes.block_sizes):
        for number, blocks in enumerate(sizes.chunks):
            yield single_group(
                GroupKind.CHUNKED_LOCAL,
                block_size,
                1,
                None,
                False,
                sizes.num_blocks,
                1 + number % 2,
                blocks * block_size,
            )
        for of_segment, segment in enumerate(sizes.segments):
            for eagle in (False, True):
                yield single_group(
                    GroupKind.FULL_ATTENTION, block_size, segment, None, eagle, sizes.num_blocks
                )
                yield single_group(
                    GroupKind.MAMBA, block_size, segment, None, eagle, sizes.num_blocks, 1 + eagle
                )
                for of_tail, tail in enumerate(sizes.tails):
                    for members, window in enumerate(windows_with_tail(tail, block_size), 1):
                        if (of_size + of_segment + eagle + of_tail + members) % sizes.every:
                            continue
                        configuration = single_group(
                            GroupKind.SLIDING_WINDOW,
                            block_size,
                            segment,
                            window,
                            eagle,
                            sizes.num_blocks,
                            members,
                        )
                        halved = segment == 2 and block_size % 2 == 0
                        unit = block_size // 2 if halved else block_size
                        yield replace(configuration, hash_block_size=unit)
    yield single_group(GroupKind.SLIDING_WINDOW, 1, 2, 3, True, sizes.num_blocks)
    yield single_group(GroupKind.CHUNKED_LOCAL, 1, 1, None, False, sizes.num_blocks, chunk=1)
    yield single_group(GroupKind.SLIDING_WINDOW, 16, 1, 17, False, sizes.num_blocks)
    for segment, eagle, ranks in (
        (1, False, (2, 1)),
        (2, True, (3, 1)),
        (1, True, (1, 2)),
        (2, False, (2, 3)),
    ):
        whole = single_group(GroupKind.FULL_ATTENTION, 12, segment, None, eagle, sizes.num_blocks)
        yield replace(whole, ranks=ranks)


def configurations(profile: Profile) -> tuple[Configuration, ...]:
    """Every configuration of a profile: the grid, then the real models with and without EAGLE.

    Those of one kind are of different variants, with EAGLE and without.
    """
    models = (
        configuration
        for model in MODELS
        for use_eagle in (False, True)
        for configuration in model.configurations(use_eagle, profile)
    )
    numbers: dict[tuple[GroupKind, bool], Iterator[int]] = defaultdict(count)
    return tuple(
        replace(each, variant=next(numbers[each.group.kind, each.group.eagle]))
        for each in dict.fromkeys((*grid(profile), *models))
    )
