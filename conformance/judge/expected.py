"""What a history itself expects (`Expect`), compared with what there is."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from hitproof.conformance.histories.schema import Expect
from hitproof.conformance.judge.judged_manager import JudgedManager
from hitproof.conformance.judge.outcome import Comparison
from hitproof.conformance.playing.player import Player

_NAMES = {field.name for field in fields(Expect)} - {"request", "do"}


def compared(
    number: int, step: Expect, player: Player, manager: JudgedManager
) -> Iterator[Comparison]:
    """What the step ``number`` expects, each with what there is."""
    for what in sorted(_NAMES):
        expected = getattr(step, what)
        if expected is not None:
            actual = _actual(what, step, player, manager)
            yield Comparison(number, step.request, what, expected, actual)


def _actual(what: str, step: Expect, player: Player, manager: JudgedManager) -> Any:
    name, seen = step.request, manager.observe()
    match what:
        case "hit":
            return player.hits[name].length if name in player.hits else None
        case "state":
            return player.standing()[name][0]
        case "computed":
            return player.num_computed_tokens(name)
        case "tables":
            return seen.tables.get(name)
        case "cached":
            keys = [manager.block_keys(name, group) for group in range(len(step.cached or ()))]
            return tuple(
                tuple(n for n, key in enumerate(of) if manager.cached_blocks(group, key))
                for group, of in enumerate(keys)
            )
        case "free":
            return seen.free_queue[: len(step.free or ())]
        case _:
            return manager.counted.get(what, 0)
