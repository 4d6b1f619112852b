"""Which clauses of the spec a solver sees: those that return its terms in a theorem.

A clause that only takes or gives Python values, a whole configuration say, leaves nothing in the
formulas that a solver is asked about, whatever a theorem does with it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from inspect import unwrap
from types import CodeType, FrameType, FunctionType
from typing import Any

from hitproof.proofs.obligation import Theorem, refutation
from hitproof.spec.claims import CLAIMS, Clause
from hitproof.spec.terms import Symbol


def _clauses() -> dict[CodeType, Clause]:
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    stated = {unwrap(clause): clause for clause in cited}
    return {own.__code__: clause for own, clause in stated.items() if isinstance(own, FunctionType)}


@contextmanager
def watched() -> Iterator[set[Clause]]:
    """The clauses that return a term of a solver meanwhile; the set grows as they do."""
    seen: set[Clause] = set()
    clauses = _clauses()

    def note(frame: FrameType, event: str, returned: Any) -> None:
        if event == "return" and frame.f_code in clauses and _has_term(returned):
            seen.add(clauses[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def seen_in(theorem: Theorem) -> set[Clause]:
    """The clauses that a solver sees when the theorem is put to it."""
    with watched() as seen:
        for obligation in theorem.obligations:
            refutation(obligation.state, obligation.interpretation())
    return seen


def _has_term(value: Any) -> bool:
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_term(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, Symbol)
