"""What survives a call: cached blocks that are not taken keep their keys.

Only blocks that are handed out lose what they held, so what is hit later depends on the order of
the free queue alone (`spec.eviction`).
"""

from collections.abc import Iterator
from typing import TypeAlias

from hitproof.conformance.histories.naming import Name
from hitproof.conformance.subject.managers import Observation, Tables

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
