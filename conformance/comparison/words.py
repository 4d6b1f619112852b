"""What a step of a history shows of one observable, in words."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from hitproof.conformance.comparison.records import NULL, Observable
from hitproof.conformance.words import count, in_blocks, in_tokens

_MOST = 300
"""Characters of one value."""


def shown(observable: Observable, values: Sequence[Any], others: Sequence[Any]) -> str:
    """What a step shows of one observable where it first differs from what the ``others`` show."""
    for number, value in enumerate(values):
        other = others[number] if number < len(others) else None
        if value != other:
            words = _WORDS[observable](value, other)
            return words if len(words) <= _MOST else words[: _MOST - 3] + "..."
    return "nothing" if not values else "nothing more"


def _of_hit_tables(value: Any, other: Any) -> str:
    return f"the hit's {_of_tables(dict([value]), other and dict([other]))}"


def _of_capped(value: Any, _: Any) -> str:
    request, cap, length, tables = value
    within = _of_hit_tables([request, tables], None)
    return f"hit of {in_tokens(length)} for {request}, at most {cap}: {within}"


def _of_local_prefix(value: Any, _: Any) -> str:
    request, cap, length, flagged, tables = value
    capped = "" if cap is None else f", at most {cap}"
    flag = ", flagged" if flagged else ""
    within = _of_hit_tables([request, tables], None)
    return f"local prefix of {in_tokens(length)} for {request}{capped}{flag}: {within}"


def _of_copies(value: Any, _: Any) -> str:
    return f"copies {', '.join(f'{_in_group(a)} to {_in_group(b)}' for a, b in value)}"


def _of_tables(value: Any, other: Any) -> str:
    differing = (
        f"block table of {request} in group {group}: [{', '.join(map(_block, table))}]"
        for request, tables in value.items()
        for group, table in enumerate(tables)
        if not other or request not in other or other[request][group] != table
    )
    gone = ", ".join(sorted((other or {}).keys() - value.keys()))
    return next(differing, f"no block table of {gone}" if gone else "no block tables")


def _of_counts(value: Any, other: Any) -> str:
    mine = [f"{_in_group(label)} {number}" for label, number in _only(value, other)]
    return f"reference counts that differ: {', '.join(mine) or 'none above 0'}"


def _of_cached(value: Any, other: Any) -> str:
    mine = [f"{name} in group {group}" for group, name, _ in _only(value, other)]
    return f"registered only here: {', '.join(mine) or 'nothing'}"


def _of_queue(value: Any, other: Any) -> str:
    pairs = zip(value, other or (), strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    rest = [in_blocks(n) if isinstance(n, int) else _in_group(n) for n in value[same:]]
    after = f", after {count(same, 'equal entry', 'equal entries')}" if same else ""
    return f"evicted next{after}: {', '.join(rest) or 'none'}"


def _of_common(value: Any, other: Any) -> str:
    mine = [f"{name} {counts}" for name, counts in _only(list(value.items()), _items(other))]
    return f"common prefix blocks in each group: {', '.join(mine) or 'none'}"


def _of_events(value: Any, other: Any) -> str:
    if other and sorted(map(str, value)) == sorted(map(str, other)):
        return f"{'; '.join(map(_event, value))}, in this order"
    return "; ".join(map(_event, _only(value, other))) or "no further event"


def _event(event: Any) -> str:
    if event[0] == "cleared":
        return "all blocks cleared"
    where = "" if event[1] is None else f" in group {event[1]}"
    more = ""
    if event[0] == "stored":
        parent, tokens, size, adapter, extra = event[3:]
        more = f" after {parent or 'nothing'}, {in_tokens(len(tokens))}, block size {size}"
        more += f", adapter {adapter}, extra keys {extra}"
    return f"{event[0]}{where}: {', '.join(event[2])}{more}"


def _of_statistics(value: Any, other: Any) -> str:
    mine = _only(list(value.items()), _items(other))
    return f"statistics: {', '.join(f'{name} {number}' for name, number in mine) or 'less'}"


def _items(value: Any) -> list[Any]:
    return list((value or {}).items())


def _only(mine: Sequence[Any], others: Sequence[Any] | None) -> list[Any]:
    return [each for each in mine if each not in (others or ())]


def _block(label: str) -> str:
    """A block in a table: the request it was allocated for, and its position there."""
    request, _, rest = label.partition("/")
    return f"{request}:{_position(rest)}" if rest else label or "an unused block"


def _in_group(label: str) -> str:
    request, _, rest = label.partition("/")
    if label == NULL or not rest:
        return label or "an unused block"
    return f"{request}:{_position(rest)} of group {rest.partition('/')[0]}"


def _position(rest: str) -> str:
    return rest.partition("/")[2].partition("@")[0]


_WORDS: dict[Observable, Callable[[Any, Any], str]] = {
    Observable.CRASHES: lambda value, _: f"{value[0]} raises {value[1]}",
    Observable.HITS: lambda value, _: f"request {value[0]} has a hit of {in_tokens(value[1])}",
    Observable.HIT_TABLES: _of_hit_tables,
    Observable.SHARED: lambda value, _: (
        f"request {value[0]} has a shared prefix of {in_tokens(value[1])}"
    ),
    Observable.CAPPED_HITS: _of_capped,
    Observable.LOCAL_PREFIXES: _of_local_prefix,
    Observable.ADMISSION: lambda value, _: (
        f"request {value[0]} gets {'its' if value[1] else 'no'} blocks"
    ),
    Observable.RESETS: lambda value, _: f"the reset is {'done' if value[1] else 'refused'}",
    Observable.COPIES: _of_copies,
    Observable.TABLES: _of_tables,
    Observable.REF_COUNTS: _of_counts,
    Observable.CACHED: _of_cached,
    Observable.FREE_BLOCKS: lambda value, _: count(value, "free block"),
    Observable.POOL_ORDER: _of_queue,
    Observable.USAGE: lambda value, _: f"usage {value:.4f}",
    Observable.COMMON_PREFIX: _of_common,
    Observable.EVENTS: _of_events,
    Observable.STATISTICS: _of_statistics,
}
