"""Blocks that something outside holds, such as a KV connector that stores or sends them."""

from collections.abc import Sequence

from hitproof.conformance.subject.managers import Manager, SharingManager, sharing


class Outside:
    """The blocks of a manager that are held from outside, by holder."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._held: dict[str, list[Sequence[int]]] = {}

    @property
    def manager(self) -> SharingManager:
        """The manager. Raises `CannotJudge` where nothing outside can hold its blocks."""
        return sharing(self._manager)

    def take(self, holder: str, count: int | None) -> str:
        """Take free blocks; returns how that deviates from what was asked."""
        taken = self.manager.take_free_blocks(count)
        if taken:
            self._held.setdefault(holder, []).append(taken)
        return "" if count in (None, len(taken)) else f"{len(taken)} blocks are taken, not {count}"

    def hold(self, holder: str, block_ids: Sequence[int]) -> str:
        """Hold registered blocks; returns how that deviates from what was asked."""
        if not block_ids:
            return "skipped: none of the blocks is cached"
        self.manager.hold_blocks(block_ids)
        self._held.setdefault(holder, []).append(block_ids)
        return ""

    def release(self, holder: str) -> str:
        """Give everything back, what was got last first; returns how that deviates."""
        held = self._held.pop(holder, [])
        if not held:
            return "skipped: nothing is held"
        for block_ids in reversed(held):
            self.manager.release_blocks(block_ids)
        return ""
