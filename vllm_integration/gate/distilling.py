"""Distilling: small histories that run branches of the target which nothing else runs.

Histories of the larger profiles and generated ones are played in turn. Each that goes from
one line to another for the first time is kept, as small as it gets while it still does.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from hitproof.conformance.histories.plays import Abilities, Origin, Play, plays
from hitproof.conformance.histories.schema import History
from hitproof.conformance.playing.shrinking import shrink
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.releases.fine import HitGranularity
from hitproof.vllm_integration.gate.sessions import Sessions
from hitproof.vllm_integration.sandbox.driver import WorkerGone

Arcs: TypeAlias = dict[str, set[tuple[int, int]]]
"""Branches by module, each as the line that it leaves and the line that it goes to."""

_TRIES = 300
"""Histories that are played to make one smaller."""


def candidates(granularity: str, seed: str, number: int) -> Iterator[Play]:
    """The histories of managers of the default profile, and ``number`` generated from a seed.

    ``granularity`` is where hits of the target may end, a value of `HitGranularity`.
    """
    fine = granularity == HitGranularity.FINE
    yield from (play for play in plays(Profile.DEFAULT, fine) if not play.of_scheduler)
    for each in range(number):
        yield Play(Origin.GENERATED, f"{seed}:{each}")
        if fine:
            yield Play(Origin.FINE_GENERATED, f"{seed}:{each}")


def distil(
    sessions: Sessions,
    ran: Arcs,
    tried: Iterable[Play],
    release: str,
    progress: Callable[[int, int], None],
) -> list[History]:
    """Small histories that run branches beyond those that ``ran``, to which theirs are added.

    The sessions report the branches that run (`vllm_integration.gate.branches.measure`).
    """
    abilities = Abilities.from_json(sessions.ask(op="abilities")["abilities"])
    kept, every = [], list(tried)
    seen = {(name, *arc) for name, arcs in ran.items() for arc in arcs}

    def reached(play: Play) -> set[tuple[str, int, int]]:
        try:
            answer = sessions.ask(op="replay", play=play.as_json())
        except WorkerGone:
            return set()
        arcs = {} if "cannot" in answer else answer["arcs"]
        return {(name, *arc) for name, of in arcs.items() for arc in of}

    for done, play in enumerate(every):
        progress(done, len(every))
        if new := reached(play) - seen:
            wanted = frozenset(new)

            def runs(history: History, wanted: frozenset[object] = wanted) -> bool:
                return wanted <= reached(Play.written(history, "distilled"))

            small = shrink(play.history(abilities), runs, _TRIES)
            seen |= reached(Play.written(small, "distilled"))
            kept.append(replace(small, about=f"distilled on {release}"))
    for name, *arc in seen:
        ran.setdefault(str(name), set()).add((int(arc[0]), int(arc[1])))
    return kept
