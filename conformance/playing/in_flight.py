"""Steps in flight: requests that were scheduled, and whose results are not known yet.

As vLLM's ``AsyncScheduler`` counts them: what is in flight counts as computed at once, and drafts
as if all were right. When the results arrive, rejected drafts are taken back.

Beside them: blocks that something outside holds, such as a KV connector that stores or sends them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hitproof.conformance.subject.managers import Manager, Progress, SharingManager, sharing


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


@dataclass
class Pass:
    """One request in one step.

    Attributes:
        step: the number of the engine's step.
        request: the request.
        num_tokens: its tokens in the step, drafts included.
        sampled: the tokens that are sampled, accepted drafts included.
        rejected: how many drafts are rejected.
        alone: whether nothing is scheduled before the results arrive.
        stale: whether the request was preempted since: its tokens are kept, its count is not.
    """

    step: int
    request: str
    num_tokens: int
    sampled: tuple[int, ...]
    rejected: int
    alone: bool
    stale: bool = False


@dataclass
class InFlight:
    """The passes in flight, in the order in which they are scheduled, executed and answered."""

    _passes: list[Pass] = field(default_factory=list)

    def add(self, scheduled: Pass) -> None:
        """A request is scheduled."""
        self._passes.append(scheduled)

    @property
    def num_steps(self) -> int:
        """How many of the engine's steps are in flight."""
        return len({each.step for each in self._passes})

    def take_oldest(self) -> list[Pass]:
        """The passes of the oldest step; each counts until it is removed."""
        return [each for each in self._passes if each.step == self._passes[0].step]

    def remove(self, known: Pass) -> None:
        """The results of a pass are known."""
        self._passes = [each for each in self._passes if each is not known]

    def forget(self, request: str) -> None:
        """The request is gone: its results are not awaited."""
        self._passes = [each for each in self._passes if each.request != request]

    def make_stale(self, request: str) -> None:
        """The request is preempted: its computed tokens start from 0 again."""
        for each in self._of(request):
            each.stale = True

    def tokens(self, request: str) -> int:
        """vLLM: ``Request.num_in_flight_tokens``."""
        return sum(each.num_tokens for each in self._of(request))

    def placeholders(self, request: str) -> int:
        """vLLM: ``Request.num_output_placeholders``."""
        return sum(len(p.sampled) + p.rejected for p in self._of(request) if not p.stale)

    def progress(self, request: str, computed: int, preemptions: int, running: bool) -> Progress:
        """What the scheduler writes into a request that has ``computed`` computed tokens."""
        passes = self._of(request)
        return Progress(
            computed,
            preemptions,
            running,
            self.tokens(request),
            self.placeholders(request),
            sum(each.rejected for each in passes if not each.stale),
            sum(len(each.sampled) for each in passes),
        )

    def _of(self, request: str) -> list[Pass]:
        return [each for each in self._passes if each.request == request]
