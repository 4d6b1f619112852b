"""The memory of the content model: blocks, their slots, and which step wrote them."""

from collections.abc import Set
from dataclasses import dataclass, field, replace

ANYTHING = "anything"
"""The content of a slot that is not judged."""
INVALID_LOAD = "an invalid load"
"""The content of a slot that a KV connector reports invalid, and of those computed from it."""
MISSING = -1
"""Stands for the block of a position that a block table does not have."""


@dataclass(frozen=True)
class Entry:
    """The content of a slot: of target layers, and of draft layers if the group has any."""

    target: str
    draft: str = ""


@dataclass
class _Block:
    """One block: the group that wrote it last, and its slots, of which a Mamba block has one.

    Slots that are not written may have bytes of the groups ``under`` it.
    """

    group: int
    slots: dict[int, Entry] = field(default_factory=dict)
    writer: str = ""
    step: int = -1
    under: frozenset[int] = frozenset()


class ContentStore:
    """Blocks by their ids; 0 is the null block, which holds nothing.

    Attributes:
        written: the blocks that were written since this set was last cleared.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._step = 0
        self._copied: dict[int, _Block] = {}
        self._before: dict[int, _Block | None] = {}
        """Of blocks that this step copied to or computed, what was there before; None: nothing."""
        self.written: set[int] = set()

    def new_step_starts(self) -> None:
        """A step starts: what earlier steps computed can be read."""
        self._step += 1
        self._copied.clear()
        self._before.clear()

    def write(
        self, group: int, block_id: int, slot: int, entry: Entry, writer: str, loaded: bool = False
    ) -> None:
        """Write a slot; another group's content of the block is destroyed.

        ``loaded`` is whether the content was there before the step began.
        """
        if block_id in (0, MISSING):
            return
        self._keep_before(block_id)
        block = self._blocks.get(block_id)
        if block is None or block.group != group:
            under = frozenset[int]() if block is None else block.under | {block.group}
            block = self._blocks[block_id] = _Block(group, under=under - {group})
        if block.slots.get(slot) not in (entry, Entry(ANYTHING)):
            block.writer, block.step = writer, -1 if loaded else self._step
        block.slots[slot] = entry
        self.written.add(block_id)

    def keep_only(self, used: Set[int]) -> None:
        """Forget the content of all other blocks."""
        for block_id in self._blocks.keys() - used:
            del self._blocks[block_id]

    def zero(self, block_id: int) -> None:
        """All bytes of the block are 0 before this step."""
        self._blocks.pop(block_id, None)

    def fill(self, block_id: int) -> None:
        """All bytes of the block are written by now."""
        if block_id in self._blocks:
            self._blocks[block_id].under = frozenset()

    def under(self, block_id: int, size: int) -> frozenset[int]:
        """The groups whose bytes may be in the block, unless all its ``size`` slots are written."""
        block = self._blocks.get(block_id)
        return frozenset() if block is None or len(block.slots) >= size else block.under

    def copy(self, source: int, target: int) -> None:
        """Copy what a block held before this step, whatever the step computes or copies there.

        The worker makes all copies of a step at once, before it computes: it reads all sources
        before it writes a target. vLLM: ``copy_kv_cache_blocks_inplace``.
        """
        held = self._before.get(source, self._blocks.get(source))
        self._keep_before(target)
        self.written.add(target)
        if held is None:
            self._blocks.pop(target, None)
            return
        self._blocks[target] = _Block(held.group, dict(held.slots), under=held.under)
        self._copied[target] = _Block(held.group, dict(held.slots))

    def copy_from(self, other: "ContentStore", source: int, target: int) -> None:
        """Copy a block of another memory as it is now."""
        block = other._blocks.get(source)
        if block is None:
            self._blocks.pop(target, None)
            return
        self._blocks[target] = _Block(block.group, dict(block.slots))
        self.written.add(target)

    def copied(self, group: int, block_id: int, slot: int) -> Entry | None:
        """What a copy of this step put into the slot, even if the block has a new holder by now."""
        block = self._copied.get(block_id)
        return None if block is None or block.group != group else block.slots.get(slot)

    def read(self, group: int, block_id: int, slot: int) -> Entry | str:
        """What the slot holds; in words, when the block is the null block or missing."""
        if block_id in (0, MISSING):
            return "missing" if block_id else "the null block"
        block = self._blocks.get(block_id)
        if block is None or block.group != group or slot not in block.slots:
            return Entry(f"block {block_id}, which the group has not written there")
        return block.slots[slot]

    def computed_now_by(self, block_id: int) -> str | None:
        """The request that computes the block's content in this very step, or None."""
        block = self._blocks[block_id]
        return block.writer if block.step == self._step else None

    def _keep_before(self, block_id: int) -> None:
        if block_id not in self._before:
            block = self._blocks.get(block_id)
            self._before[block_id] = block and replace(block, slots=dict(block.slots))
