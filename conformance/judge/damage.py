"""Damage: which parts of a manager's state earlier violations left wrong, and what they explain.

Every step is judged on the manager's own state, so a step's own error shows as a violation of that
step. What is wrong already can make a later step look wrong, too. A violation is *inherited* when
the damage of earlier ones explains all of its evidence. In doubt it is not.

Only blocks that are handed out lose what they held (`lost_keys`), so what is hit later depends on
the order of the free queue alone (`spec.eviction`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from hitproof.conformance.findings.footprints import name_of
from hitproof.conformance.findings.parts import Block, Books, Key, Part, Table
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name
from hitproof.conformance.subject.managers import Observation, Tables
from hitproof.spec.claims import Divergence

_Place: TypeAlias = tuple[str, int, int, int]
"""An entry of a table: the request, the group, the position and the block."""


def lost_keys(
    before: Observation, seen: Observation, touched: Tables, request: str
) -> Iterator[tuple[int, Name]]:
    """The blocks that lost a key in a call which has not handed them out, with that key.

    ``touched`` are the tables of the hit with which a ``request`` is admitted, or of blocks that
    are held from outside, for no request.
    """
    if before.cached == seen.cached:
        return
    gone = [
        (block, name)
        for key, ids in before.cached.items()
        if ids != (left := seen.cached.get(key, ()))
        for name in key[1:]
        for block in set(ids).difference(left)
    ]
    if not gone:
        return
    free, stays = set(seen.free_queue), set(before.free_queue).intersection(seen.free_queue)
    # A block can be given up and handed out again in one call: then it has another place.
    # The same goes for a block of a hit that leaves the window.
    now, hit = _places(seen), _places_in(request, touched)
    held = {block for *_, block in (hit | _places(before)) & now}
    if not request:
        held |= {block for *_, block in hit}
    for block, name in gone:
        given_up = block in before.ref_counts and block in free
        if block in stays or given_up or block in held:
            yield block, name


def _places(seen: Observation) -> set[_Place]:
    return {
        place for request, tables in seen.tables.items() for place in _places_in(request, tables)
    }


def _places_in(request: str, tables: Tables) -> set[_Place]:
    return {
        (request, group, place, block)
        for group, table in enumerate(tables)
        for place, block in enumerate(table)
        if block
    }


class Damage:
    """The wrong parts of one manager's state, each with the finding that left it wrong."""

    def __init__(self) -> None:
        self._parts: dict[Part, Signature] = {}

    def cause(self, violation: Violation) -> Signature | None:
        """The earlier finding that a violation is a consequence of; None if it is its own."""
        causes = [self._first(parts, violation.signature) for parts in violation.evidence]
        return causes[0] if causes and all(causes) else None

    def _first(self, parts: Iterable[Part], signature: Signature) -> Signature | None:
        """The most severe finding that explains one of the parts, whatever their order."""
        found = (self._cause(part, signature) for part in parts)
        return min(filter(None, found), key=_by_severity, default=None)

    def _cause(self, part: Part, signature: Signature) -> Signature | None:
        found = filter(None, map(self._parts.get, self._candidates(part)))
        able = (cause for cause in found if _can_explain(cause, signature))
        return min(able, key=_by_severity, default=None)

    def _candidates(self, part: Part) -> Iterable[Part]:
        """The parts that contain ``part``, as they are kept."""
        if not isinstance(part, Table):
            return (part,)
        return (
            wrong
            for wrong in self._parts
            if isinstance(wrong, Table)
            and (wrong.request, wrong.group) == (part.request, part.group)
            and (wrong.until is None or (part.until is not None and part.until <= wrong.until))
        )

    def add(self, parts: Iterable[Part], cause: Signature) -> None:
        """Those parts are wrong from now on. The most severe finding stays the cause."""
        for part in parts:
            known = self._parts.get(part)
            if known is None or _rank(cause) < _rank(known):
                self._parts[part] = cause

    def freed(self, request: str) -> None:
        """A request gave up its block tables."""
        for part in [*self._parts]:
            if isinstance(part, Table) and part.request == request:
                del self._parts[part]

    def observed(self, seen: Observation, wrong: Collection[Part]) -> None:
        """Forget blocks that can no longer be read; ``wrong`` parts are wrong right now."""
        used = {block for tables in seen.tables.values() for table in tables for block in table}
        used.update(block for ids in seen.cached.values() for block in ids)
        for part in [*self._parts]:
            unused = isinstance(part, Block) and part.block_id not in used
            if part not in wrong and (unused or isinstance(part, Books)):
                del self._parts[part]


def _rank(signature: Signature) -> int:
    return SEVERITY.index(Divergence(signature.divergence))


def _by_severity(signature: Signature) -> tuple[int, str]:
    """Sorts the most severe first, in an order that no run changes."""
    return _rank(signature), name_of(signature)


def _can_explain(cause: Signature, signature: Signature) -> bool:
    """Whether one finding can lead to another: wrong drafts, say, never to wrong outputs."""
    return cause.divergence == Divergence.CRASH or _rank(cause) <= _rank(signature)


def key_parts(names: Iterable[str]) -> frozenset[Part]:
    """The keys of prefixes, as parts."""
    return frozenset(map(Key, names))


def explained_by_keys(
    wrong: Violation, sizes: Sequence[int], known: int, name: Callable[[int], str]
) -> Violation:
    """A violation of what a request reads, which the keys of the blocks explain, too.

    ``sizes`` are the block sizes of the groups, ``known`` is how many tokens the request has, and
    ``name`` names its prefixes by their ends (all in tokens).
    """
    keys = [
        Key(name(end))
        for parts in wrong.evidence
        for part in parts
        if isinstance(part, Table) and part.until
        for end in [-(-part.until // sizes[part.group]) * sizes[part.group]]
        if end <= known
    ]
    return replace(wrong, evidence=tuple(parts.union(keys) for parts in wrong.evidence))


def explained_by_holders(wrong: Violation, seen: Observation) -> Violation:
    """A violation of blocks, which wrong tables of their holders explain, too."""
    blocks = {part.block_id for part in wrong.damages if isinstance(part, Block)}
    tables = (
        Table(request, group)
        for request, of_all in seen.tables.items()
        for group, table in enumerate(of_all)
        if blocks & {*table}
    )
    (parts,) = wrong.evidence
    return replace(wrong, evidence=(parts.union(tables),))
