"""A manager observed with names: block keys are replaced by the prefixes that they stand for."""

from collections.abc import Sequence
from dataclasses import replace

from hitproof.conformance.histories.naming import Name, Names, Prefixes
from hitproof.conformance.histories.schema import History
from hitproof.conformance.subject.failures import REFUSALS, CannotJudge, Refuses
from hitproof.conformance.subject.managers import (
    AccountableManager,
    CappedManager,
    ConnectorManager,
    FineManager,
    GroupwiseManager,
    HandingManager,
    Manager,
    ManagerSubject,
    Observation,
    QueueingManager,
    Stored,
    ZeroingManager,
    named_event,
    named_stored,
)
from hitproof.spec.claims import Divergence


class NamedManager:
    """A running manager and its last observation, with names instead of keys.

    Each attribute of a protocol, such as ``capped``, is the manager if it has that, or None.
    ``fine`` is whether entries at prefixes that end inside blocks are also named. Raises
    `conformance.subject.failures.CannotJudge` when the subject lacks an entry point.
    """

    def __init__(
        self, subject: ManagerSubject, history: History, prefixes: Prefixes, fine: bool = False
    ) -> None:
        self.manager = _started(subject, history)
        # One that records its answers has only those that are recorded.
        own = getattr(self.manager, "unrecorded", self.manager)
        # To find out whether it has the methods of a protocol takes long.
        self.accountable = own if isinstance(own, AccountableManager) else None
        self.handing = own if isinstance(own, HandingManager) else None
        self.groupwise = own if isinstance(own, GroupwiseManager) else None
        self.queueing = own if isinstance(own, QueueingManager) else None
        self.zeroing = own if isinstance(own, ZeroingManager) else None
        self.capped = self.manager if isinstance(self.manager, CappedManager) else None
        self.connecting = self.manager if isinstance(self.manager, ConnectorManager) else None
        self.names = Names(prefixes)
        self._groups = history.engine.groups
        self._unit = history.engine.hash_block_size
        self._fine: FineManager | None = None
        if fine:
            if not isinstance(self.manager, FineManager):
                raise CannotJudge(
                    "hits of this layout may end inside blocks, which this subject does not show; "
                    "use a hash block size as large as the Mamba blocks"
                )
            self._fine = self.manager
        self.seen = self.observe()

    def learn(self, request: str) -> tuple[Divergence, Name, Name] | None:
        """Learn the request's new keys; see `Names.learn`."""
        wrong = None
        for index, group in enumerate(self._groups):
            keys = self.manager.block_keys(request, index)
            wrong = self.names.learn(request, group.block_size, keys) or wrong
        if self._fine is not None:
            keys = self._fine.unit_keys(request)
            wrong = self.names.learn(request, self._unit, keys) or wrong
        return wrong

    def reported_hit(self, request: str) -> list[Stored] | None:
        """The events about the blocks of the request's hit, where it can ask for them."""
        if self.accountable is None:
            return None
        found = self.accountable.reported_hit(request)
        return None if found is None else [named_stored(event, self.names.name) for event in found]

    def take_block_copies(self) -> Sequence[tuple[int, int]]:
        """Copies that come before the next step; none where hits end on block edges."""
        return () if self._fine is None else self._fine.take_block_copies()

    def observe(self, takes_events: bool = True) -> Observation:
        """What is observable about the manager now, with names instead of keys.

        ``takes_events`` is whether the events are taken, where they wait for it.
        """
        if self.queueing is not None:
            self.queueing.hold_events(not takes_events)
        seen, name = self.manager.observe(), self.names.name
        cached: dict[tuple[int, Name], tuple[int, ...]] = {}
        for (group, key), ids in seen.cached.items():
            # Of two keys for one content, either finds it.
            named = group, name(key)
            cached[named] = (*cached[named], *ids) if named in cached else ids
        self.seen = replace(
            seen,
            cached=cached,
            events=seen.events and tuple(named_event(event, name) for event in seen.events),
        )
        return self.seen


def _started(subject: ManagerSubject, history: History) -> Manager:
    """A new manager. Raises `Refuses` where the subject's own validation does."""
    try:
        return subject.start(history.engine)
    except REFUSALS as error:
        raise Refuses.of(error) from error
