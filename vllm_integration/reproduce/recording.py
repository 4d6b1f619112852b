"""A recording of a target's manager: the calls that a test would make.

Imported in the worker process only.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeAlias

from hitproof.conformance.histories.schema import EngineConfiguration, Evict, RequestInput
from hitproof.conformance.subject.managers import Progress
from hitproof.vllm_integration.adapter.managers import IN_FLIGHT, VllmManager, VllmManagers

_NOT_ASKED = ("record_prefix_cache_stats", "make_prefix_cache_stats", "take_events")
"""Methods that only count or report: they change nothing that a test could observe."""


@dataclass(frozen=True)
class Arrived:
    """A request was made."""

    request: str


@dataclass(frozen=True)
class Appended:
    """The model sampled tokens."""

    request: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Counted:
    """The scheduler set a count of a request's tokens, an attribute of it."""

    request: str
    attribute: str
    tokens: int


@dataclass(frozen=True)
class Evicted:
    """Blocks of a request's prefix were to be evicted, registered or not.

    Attributes:
        request: the request.
        group: the group.
        blocks: the blocks, by position.
        in_table: whether the request's block table holds them all.
    """

    request: str
    group: int
    blocks: tuple[int, ...]
    in_table: bool


@dataclass(frozen=True)
class Called:
    """A method of the manager was called; ``error`` is what it raised."""

    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True)
class Pooled:
    """A method of the block pool was called, for something outside.

    Attributes:
        method: the method.
        blocks: the blocks that it is called with, by their numbers.
        count: for ``get_new_blocks``, how many; all that are free if None.
    """

    method: str
    blocks: tuple[int, ...] = ()
    count: int | None = None


Statement: TypeAlias = Arrived | Appended | Counted | Evicted | Called | Pooled


@dataclass
class Log:
    """The recorded calls of one manager, in order.

    Attributes:
        statements: the calls.
        requests: the real requests, by name.
        manager: the real manager, once it is made.
    """

    statements: list[Statement] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    manager: Any = None
    evicts: bool = False
    """Whether the next eviction is recorded already."""

    def evicted(self, step: Evict) -> None:
        """Record an eviction that is about to be played.

        The record names the requested blocks, not those that happen to be registered, so that the
        cache reaches the same state on a target that registers others.
        """
        tables = self.manager.get_blocks(step.request).blocks
        table = tables[step.group] if step.group < len(tables) else ()
        in_table = all(b < len(table) and not table[b].is_null for b in step.blocks)
        self.statements.append(Evicted(step.request, step.group, step.blocks, in_table))
        self.evicts = True


class _Spy:
    """The real ``KVCacheManager``; calls of its methods are logged."""

    def __init__(self, manager: Any, log: Log) -> None:
        self._real = manager
        self._log = log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name == "evict_blocks" and self._log.evicts:
            self._log.evicts = False
            return found
        if not inspect.ismethod(found) or name in _NOT_ASKED:
            return found
        return self._logged(name, found)

    def _logged(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)  # the adapter asks for its parameters
        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                result = method(*arguments, **keywords)
            except Exception as error:
                self._log.statements.append(Called(name, arguments, keywords, None, error))
                raise
            self._log.statements.append(Called(name, arguments, keywords, result))
            return result

        return call


class RecordedManagers(VllmManagers):
    """`VllmManagers` whose managers log their calls; ``log`` is that of the latest one."""

    def start(self, engine: EngineConfiguration) -> "RecordedManager":
        self.log = Log()
        return RecordedManager(self, engine)

    def make(self, engine: EngineConfiguration, **watched: bool) -> Any:
        """A real ``KVCacheManager`` behind a spy."""
        self.log.manager = super().make(engine, **watched)
        return _Spy(self.log.manager, self.log)


class RecordedManager(VllmManager):
    """A running manager with a log; see `RecordedManagers`."""

    def __init__(self, vllm: RecordedManagers, engine: EngineConfiguration) -> None:
        super().__init__(vllm, engine)
        self._log = vllm.log

    def add_request(self, name: str, request: RequestInput) -> None:
        super().add_request(name, request)
        self._log.requests[name] = self._requests[name]
        self._log.statements.append(Arrived(name))

    def append_output(self, name: str, token_ids: Sequence[int]) -> None:
        super().append_output(name, token_ids)
        self._log.statements.append(Appended(name, tuple(token_ids)))

    def set_progress(self, name: str, progress: Progress) -> None:
        counts = ("num_computed_tokens", *IN_FLIGHT)
        before = [getattr(self._requests[name], count, 0) for count in counts]
        super().set_progress(name, progress)
        for count, was in zip(counts, before, strict=True):
            if (now := getattr(self._requests[name], count, 0)) != was:
                self._log.statements.append(Counted(name, count, now))

    def take_free_blocks(self, count: int | None) -> Sequence[int]:
        taken = super().take_free_blocks(count)
        asked = None if count is None else len(taken)
        self._log.statements.append(Pooled("get_new_blocks", count=asked))
        return taken

    def hold_blocks(self, block_ids: Sequence[int]) -> None:
        super().hold_blocks(block_ids)
        self._log.statements.append(Pooled("touch", tuple(block_ids)))

    def release_blocks(self, block_ids: Sequence[int]) -> None:
        super().release_blocks(block_ids)
        self._log.statements.append(Pooled("free_blocks", tuple(reversed(block_ids))))
