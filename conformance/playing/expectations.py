"""Expectations: what the spec demands of a manager at the end of a history.

Each can be stated on what the manager's public methods return, so that a test of a few lines can
assert it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import (
    AccountableManager,
    ConnectorManager,
    FineManager,
    Hit,
    Manager,
    Stored,
)


@dataclass(frozen=True)
class Served:
    """The last lookup of a request serves exactly, or at least, a number of tokens."""

    request: str
    tokens: int
    or_more: bool = False


@dataclass(frozen=True)
class LocalPrefix:
    """The local prefix reported to a KV connector that loads Mamba states has ``tokens`` tokens.

    It is flagged if it ``lacks_state`` (`spec.connector`).
    """

    request: str
    tokens: int
    lacks_state: bool


@dataclass(frozen=True)
class TableLengths:
    """The last lookup of a request returns block tables of these lengths, one per group."""

    request: str
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Registered:
    """A full block of a request is registered, or is not registered."""

    request: str
    group: int
    block: int
    is_registered: bool


@dataclass(frozen=True)
class RegisteredInside:
    """One of some prefixes of a request that end inside a block is registered.

    Attributes:
        request: the request.
        group: the group.
        units: the places of their keys among those of its hash units.
    """

    request: str
    group: int
    units: tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """The block table of a request has no null block from position ``first`` on."""

    request: str
    group: int
    first: int


@dataclass(frozen=True)
class HeldOnce:
    """No block occurs twice in the block tables of a request."""

    request: str


@dataclass(frozen=True)
class Reported:
    """The events about the hit of a request name, or do not name, a prefix of it.

    Attributes:
        request: the request.
        group: the group that the events are about.
        key: the place of the prefix's key among the request's keys.
        of_unit: whether these are its keys of hash units, not of the group's blocks.
        is_reported: whether events name the prefix.
    """

    request: str
    group: int
    key: int
    of_unit: bool
    is_reported: bool


@dataclass(frozen=True)
class ReportReturns:
    """The events about the hit of a request can be asked for."""

    request: str


@dataclass(frozen=True)
class Allocated:
    """The first allocation of a request in the last step gets slots, or is refused."""

    request: str
    gets: bool


@dataclass(frozen=True)
class Admitted:
    """A scheduler admits a request for the first time before it does another one."""

    request: str
    before: str


@dataclass(frozen=True)
class Returns:
    """No call of the history raises."""


Expected: TypeAlias = (
    Served
    | LocalPrefix
    | TableLengths
    | Registered
    | RegisteredInside
    | Held
    | HeldOnce
    | Reported
    | ReportReturns
    | Allocated
    | Admitted
    | Returns
)


def holds(expected: Expected, manager: Manager, hits: Mapping[str, Hit]) -> bool:
    """Whether the expectation holds after a history; ``hits`` has each request's last lookup.

    A history that is over has raised no exception, so `Returns` holds.
    """
    match expected:
        case Served(request, tokens, or_more):
            length = hits[request].length
            return length >= tokens if or_more else length == tokens
        case LocalPrefix(request, tokens, lacks_state):
            found, flagged = local_prefix(manager, request)
            return found == tokens and flagged >= lacks_state
        case TableLengths(request, lengths):
            return tuple(map(len, hits[request].tables)) == lengths
        case Registered(request, group, block, is_registered):
            key = manager.block_keys(request, group)[block]
            return bool(manager.cached_blocks(group, key)) == is_registered
        case RegisteredInside(request, group, units):
            if not isinstance(manager, FineManager):
                raise CannotJudge("the manager has no keys of hash units")
            keys = manager.unit_keys(request)
            return any(manager.cached_blocks(group, keys[unit]) for unit in units)
        case Held(request, group, first):
            return 0 not in manager.observe().tables[request][group][first:]
        case HeldOnce(request):
            tables = manager.observe().tables[request]
            times = Counter(block for table in tables for block in table if block)
            return max(times.values(), default=0) <= 1
        case Reported(request, group, place, of_unit, is_reported):
            keys = manager.block_keys(request, group)
            if of_unit and isinstance(manager, FineManager):
                keys = manager.unit_keys(request)
            events = report(manager, request)
            named = {each for e in events if (e.group or 0) == group for each in e.keys}
            return (keys[place] in named) == is_reported
        case ReportReturns(request):
            report(manager, request)
            return True
        case Allocated() | Admitted():
            raise CannotJudge("what a call returned is not seen when the history is over")
        case Returns():
            return True


def local_prefix(manager: Manager, request: str) -> tuple[int, bool]:
    """The local prefix reported to a KV connector: its tokens, and whether it is flagged."""
    found = None
    if isinstance(manager, ConnectorManager):
        found = manager.get_computed_blocks_for_connector(request)
    if found is None:
        raise CannotJudge("the manager has no lookups for KV connectors")
    hit, flagged = found
    return hit.length, flagged


def report(manager: Manager, request: str) -> Sequence[Stored]:
    """The events about the hit of a request. Raises what the manager raises, and `CannotJudge`."""
    found = None
    if isinstance(manager, AccountableManager):
        found = manager.reported_hit(request)
    if found is None:
        raise CannotJudge("the manager has no events about hits")
    return found
