"""Footprints: how far a divergence reaches, exactly.

A signature says what diverges, not how much. The footprint of a signature in one place, that is on
one configuration, layout or history, has how many cases diverge there and a digest of what the
subject answers in them. Two runs of the same code have equal footprints on any machine.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.corpus import corpus
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.words import count

Judged: TypeAlias = Configuration | Layout | Play
"""What a divergence can be found on."""

Row: TypeAlias = tuple[Any, ...]
"""What the subject answers in some diverging cases, as values that JSON has."""

_DIGITS = 12
_WITH_EAGLE = " with EAGLE"


@dataclass(frozen=True)
class Footprint:
    """How far a signature reaches in one place.

    Attributes:
        size: cases that diverge: cache states of lookups, blocks registered or left out, prompts,
            operations on the pool; violations at the steps of a history.
        digest: of what the subject answers in them.
    """

    size: int
    digest: str

    @staticmethod
    def of(rows: Mapping[Row, int] | Iterable[Row]) -> "Footprint":
        """The footprint of those answers, each with its number of cases, or each for one case."""
        counted = rows if isinstance(rows, Mapping) else Counter(rows)
        lines = sorted(json.dumps([*row, number]) for row, number in counted.items())
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:_DIGITS]
        return Footprint(sum(counted.values()), digest)

    def as_json(self) -> list[Any]:
        """The footprint as JSON; `from_json` reads it."""
        return [self.size, self.digest]

    @staticmethod
    def from_json(data: Any) -> "Footprint":
        """Inverse of `as_json`; raises TypeError or ValueError on anything else."""
        size, digest = data
        if not isinstance(size, int) or not isinstance(digest, str):
            raise TypeError(f"{data} is not a footprint")
        return Footprint(size, digest)


class Growth(StrEnum):
    """How a footprint differs from the one on record.

    Attributes:
        MORE: more cases diverge.
        ELSEWHERE: there is none on record for this place.
        OTHERWISE: as many diverge, and the subject answers otherwise in some.
        LESS: fewer diverge, or none.
    """

    MORE = "more"
    ELSEWHERE = "elsewhere"
    OTHERWISE = "otherwise"
    LESS = "less"


def growth(recorded: Footprint | None, now: Footprint | None) -> Growth | None:
    """How ``now`` differs from what is on record for its place; None where it does not."""
    if recorded == now:
        return None
    if recorded is None:
        return Growth.ELSEWHERE
    if now is None or now.size < recorded.size:
        return Growth.LESS
    return Growth.MORE if now.size > recorded.size else Growth.OTHERWISE


def place_of(judged: Judged) -> str:
    """The name of a place: in words, with a digest of all that makes it up."""
    if isinstance(judged, Play):
        if judged.origin is not Origin.WRITTEN:
            return judged.describe()
        return f"{judged.describe()} [{_short(judged.text)}]"
    exact = json.dumps(judged.as_json(), sort_keys=True)
    return f"{judged.describe()}, {judged.bound_in_words} [{_short(exact)}]"


def play_at(place: str) -> Play | None:
    """The history of a place; None where it is written out, or none at all."""
    for origin in Origin:
        name = place.removeprefix(f"{origin} history ")
        if name != place and origin is not Origin.WRITTEN:
            text = corpus().get(name) if origin is Origin.CORPUS else ""
            return None if text is None else Play(origin, name, text)
    return None


def is_history(place: str) -> bool:
    """Whether a place is a history."""
    return any(place.startswith(f"{origin} history ") for origin in Origin)


def name_of(signature: Signature) -> str:
    """The name of a signature: all that makes it up, in a line."""
    whose = f"{signature.kind}{_WITH_EAGLE if signature.eagle else ''}"
    return f"{signature.claim}: {signature.divergence}: {whose}: {signature.defect}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def in_words(recorded: Footprint | None, now: Footprint | None) -> str:
    """How two footprints of one place differ, in a sentence."""
    before = recorded.size if recorded else 0
    after = now.size if now else 0
    if recorded and now and before == after:
        return f"as many cases diverge here as are on record ({after}), and some answers differ"
    return f"{count(before, 'diverging case')} here on record, now {after}"
