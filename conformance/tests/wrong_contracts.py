"""Contracts that do not hold, or say nothing: CrossHair must notice each. For `test_crosshair`."""

from hitproof.spec.attention import tail_blocks
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.mask import in_mask


def a_tail_covers_one_token_more(window: int, block_size: int) -> None:
    """It is the tail of a larger window that does."""
    assert 1 <= window
    assert 1 <= block_size
    assert window <= tail_blocks(window, block_size) * block_size


def the_mask_of_a_window_is_everything(segment: int, tail: int, block: int) -> None:
    """It is where the tail fills a segment."""
    assert 1 <= segment
    assert 0 <= tail
    assert 0 <= block
    assert in_mask(BlockGeometry(GroupKind.SLIDING_WINDOW, segment, tail, 0), block)


def crashes_without_a_segment(segment: int, block: int) -> None:
    """A segment of no blocks is no geometry."""
    assert 0 <= block
    assert in_mask(BlockGeometry(GroupKind.FULL_ATTENTION, segment, 0, 0), block) in (True, False)


def premises_contradict(window: int, block_size: int) -> None:
    """Whatever is claimed of no value holds."""
    assert window < block_size
    assert block_size < window
    assert tail_blocks(window, block_size) == 17
