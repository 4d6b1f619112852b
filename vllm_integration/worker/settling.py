"""How statements about the target's functions end: proved, refuted by values, or inconclusive."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.unbounded.proving import Proof, Statement, Verdict, prove
from hitproof.proofs.unbounded.source import literals
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.spec.claims import Status
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Blocks, Formula

AGREEING = 150
"""On how many values a function runs beside its proof."""

TRIES = 4000
"""On how many values it runs to show what fails."""


@dataclass(frozen=True)
class Departure:
    """A known fault, with the exact condition under which a lookup is not affected.

    Attributes:
        cause: the title of the fault in ``survey/faults.toml``.
        spares: whether a valid hit that ends at a block is served all the same.
    """

    cause: str
    spares: Callable[[BlockGeometry, Blocks], Formula]


DEPARTURES: Mapping[tuple[GroupKind, bool], tuple[Departure, ...]] = {
    (GroupKind.SLIDING_WINDOW, True): (
        Departure(
            "With EAGLE, boundaries near the start of a request are lost where blocks are smaller "
            "than the alignment",
            lambda shape, hit: (shape.segment == 1) | (hit >= shape.tail),
        ),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What is known of one statement.

    Attributes:
        status: proved for all lengths, refuted by values, or inconclusive.
        detail: what fails, with the values, or why nothing is known.
        outside: the causes of known divergences, outside of which it is proved.
        evidence: the counterexample, where it is one of a lookup.
        proof: the proof.
    """

    status: Status
    detail: str = ""
    outside: tuple[str, ...] = ()
    evidence: LookupEvidence | None = None
    proof: Proof | None = None


@dataclass(frozen=True)
class Shown:
    """Where the real function, on some values, is not what its statement says.

    ``evidence`` is what a lookup served there.
    """

    detail: str
    evidence: LookupEvidence | None = None


@dataclass(frozen=True)
class Trial:
    """On which values a function runs.

    Attributes:
        chance: what they are drawn by.
        sizes: those for which a proof failed, which some of the values are to be like.
        known: divergences outside of which the values are to be.
        tries: how many times it runs.
    """

    chance: random.Random
    sizes: Mapping[str, int]
    known: tuple[Departure, ...]
    tries: int


class Settling(ABC):
    """A statement about a function of the target, of any sizes.

    Attributes:
        assumptions: outside of which known divergences it is to be proved, the fewest first.
    """

    assumptions: tuple[tuple[Departure, ...], ...] = ((),)

    @abstractmethod
    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of the function outside of these divergences."""

    @abstractmethod
    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where the real function runs."""

    def settle(self, seconds: float) -> Outcome:
        """Prove it, or prove it but for known divergences, or refute it."""
        first: Proof | None = None
        for known in self.assumptions:
            proof = prove(partial(self.statement, known=known), seconds)
            if proof.verdict is Verdict.INCONCLUSIVE:
                return Outcome(Status.INCONCLUSIVE, proof.detail, proof=proof)
            first = first or proof
            if proof.verdict is Verdict.PROVED:
                break
        assert first is not None
        causes = tuple(dict.fromkeys(each.cause for each in known))
        if proof.verdict is Verdict.PROVED:
            for shown in self.natively(Trial(random.Random(0), {}, known, AGREEING)):
                raise InternalError(f"proved, but wrong: {shown.detail}")
            return Outcome(Status.PROVED, outside=causes, proof=proof)
        failed = proof.detail or first.detail
        sizes = proof.sizes or first.sizes
        for shown in self.natively(Trial(random.Random(1), sizes, known, TRIES)):
            detail = f"{failed}: {shown.detail}"
            return Outcome(Status.REFUTED, detail, causes, shown.evidence, proof)
        detail = f"{failed}; no values were found that show it"
        return Outcome(Status.INCONCLUSIVE, detail, proof=proof)


def numbers_in(function: Any) -> set[int]:
    """The numbers that are written in a function or method."""
    function = getattr(function, "__func__", function)
    return literals(function) if isinstance(function, FunctionType) else set()
