"""Distilling: few histories that together run and show what thousands do.

The histories of the ledger are always replayed. Histories are added that run a branch of the target
which no history of the same mix of groups has run, or have a finding that none has shown: first
those that add most for their number of steps.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, TypeAlias

from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.corpus import named
from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.histories.plays import Abilities, Origin, Play, distilled, plays
from hitproof.conformance.histories.workload_json import workload_as_json
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.releases.fine import HitGranularity
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.gate.sessions import Sessions

Arcs: TypeAlias = dict[str, set[tuple[int, int]]]
"""Branches by module, each as the line that it leaves and the line that it goes to."""

_SET_UP = 10
"""What it takes to set a manager or a scheduler up, in steps."""


def candidates(granularity: str, seed: str, number: int) -> list[Play]:
    """About ``number`` histories, evenly spread over those of the thorough profile.

    What is generated is generated from ``seed``. ``granularity`` is where hits of the target may
    end, a value of `HitGranularity`.
    """
    every = [
        play
        for play in plays(Profile.THOROUGH, granularity == HitGranularity.FINE, seed)
        if play.origin is not Origin.CORPUS
    ]
    return every[:: max(1, len(every) // number)] if number else []


@dataclass
class Ran:
    """The branches that each history ran, by the question that asked to replay it."""

    _numbers: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _bits: dict[str, int] = field(default_factory=dict)

    def note(self, question: str, arcs: Arcs) -> None:
        """Record that these ran."""
        bits = 0
        for name, each in arcs.items():
            for line, to in each:
                bits |= 1 << self._numbers.setdefault((name, line, to), len(self._numbers))
        self._bits[question] = bits

    def bits(self, question: str) -> int:
        """The branches that ran, one bit for each."""
        return self._bits.get(question, 0)

    def arcs(self) -> Iterable[tuple[str, int, int]]:
        """All branches that ran."""
        return self._numbers.keys()


@dataclass(frozen=True)
class _Candidate:
    """A history with its mix of groups, what it ran, its findings, and what it takes to play."""

    play: Play
    mix: str
    bits: int
    signatures: frozenset[Signature]
    cost: int


class _Kept:
    """What the histories that are kept have run and shown together."""

    def __init__(self) -> None:
        self._bits: dict[str, int] = defaultdict(int)
        self._signatures: set[Signature] = set()

    def adds(self, one: _Candidate) -> int:
        """How much a history would add."""
        return (one.bits & ~self._bits[one.mix]).bit_count() + len(
            one.signatures - self._signatures
        )

    def keep(self, one: _Candidate) -> None:
        """Keep it."""
        self._bits[one.mix] |= one.bits
        self._signatures |= one.signatures


def distil(
    sessions: Sessions,
    ran: Ran,
    question: Callable[[Mapping[str, Any]], str],
    known: Iterable[Play],
    tried: Sequence[Play],
    listed: Collection[Signature],
    progress: Callable[[int, int], None],
) -> tuple[list[str], dict[str, str]]:
    """Select the histories of ``tried`` that add to the ``known`` ones, as lines of JSON.

    Those with a finding that is not ``listed`` are left out; the findings come with them, by their
    headlines, each with the place of the first that shows it. The sessions note in ``ran`` which
    branches run, under the ``question`` of each message.
    """
    abilities = Abilities.from_json(sessions.ask(op="abilities")["abilities"])
    _, played = sessions.settle([], list(dict.fromkeys([*known, *tried])), progress)

    def candidate(each: Played) -> _Candidate:
        bits = ran.bits(question({"op": "replay", "play": each.play.as_json()}))
        found = frozenset(each.signatures)
        return _Candidate(each.play, _mix(each.play, abilities), bits, found, each.steps + _SET_UP)

    kept, chosen, before = _Kept(), [], set(known)
    rest, unlisted = [], dict[str, str]()
    for one in (candidate(each) for each in played if not each.unsettled):
        if one.play in before:
            kept.keep(one)
        elif new := one.signatures.difference(listed):
            for signature in new:
                unlisted.setdefault(signature.headline, place_of(one.play))
        else:
            rest.append(one)
    # What a history adds only gets less, so what heads the queue with an up-to-date value is best.
    queue = [(-kept.adds(one) / one.cost, number) for number, one in enumerate(rest)]
    heapify(queue)
    while queue:
        value, number = queue[0]
        now = -kept.adds(rest[number]) / rest[number].cost
        if now == 0:
            heappop(queue)
        elif now > value:
            heapreplace(queue, (now, number))
        else:
            kept.keep(rest[number])
            chosen.append(_line(rest[number].play, abilities))
            heappop(queue)
    return chosen, dict(sorted(unlisted.items()))


def excused(
    sessions: Sessions,
    lines: Sequence[str],
    listed: Collection[Signature],
    progress: Callable[[int, int], None],
) -> tuple[list[str], dict[str, str]]:
    """Select the distilled ``lines`` whose findings on this target are ``listed``, if any.

    The findings of the others come with them, as from `distil`; of one that cannot be judged here,
    the reason.
    """
    actual, _ = sessions.policies()
    fine = actual.get("hit_granularity", "") == HitGranularity.FINE
    _, played = sessions.settle([], list(distilled(named(lines).items(), fine)), progress)
    wrong, unlisted = set[str](), dict[str, str]()
    for each in played:
        new = [signature.headline for signature in set(each.signatures).difference(listed)]
        for what in [*new, *([each.unsettled] if each.unsettled else [])]:
            wrong.add(each.play.text)
            unlisted.setdefault(what, place_of(each.play))
    return [line for line in lines if line not in wrong], dict(sorted(unlisted.items()))


def _mix(play: Play, abilities: Abilities) -> str:
    if play.of_scheduler:
        deployment = play.workload().deployment
        return f"scheduler {sorted({group.kind for group in deployment.groups})}"
    engine = play.history(abilities).engine
    return f"{engine.use_eagle} {sorted({group.kind for group in engine.groups})}"


def _line(play: Play, abilities: Abilities) -> str:
    if play.of_scheduler:
        return json.dumps(workload_as_json(play.workload()))
    return json.dumps(as_json(play.history(abilities)))
