"""Single-point mutants of the spec, and which of them the theorems notice.

A clause is proved only if no change of it that means something else leaves every theorem proved.
``python -m hitproof.conformance.spec_mutants [CLAUSE...]`` prints what notices each mutant, and for
each clause how many are generated and how many a theorem notices. It takes minutes for all.
"""

import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any, TypeAlias

from hitproof.conformance.mutation import Mutant, mutants
from hitproof.proofs.lemmas import LEMMAS
from hitproof.proofs.obligation import Obligation, refutation
from hitproof.proofs.prover import DEFAULTS, Solver, prove_obligation
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec import (
    admission,
    attention,
    connector,
    eviction,
    groups,
    hits,
    mask,
    pool,
    retention,
    sharing,
    terms,
    tiers,
)
from hitproof.spec.claims import Status
from hitproof.spec.releases import fine, horizons, sequential

MUTATED = (
    terms,
    attention,
    groups,
    hits,
    mask,
    retention,
    sharing,
    pool,
    eviction,
    admission,
    horizons,
    sequential,
    fine,
    connector,
    tiers,
)
"""All of the spec but the registry, which states no predicate."""

_SAME = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _reasons(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {mutant: row["reason"] for row in rows for mutant in row["mutants"]}


EQUIVALENT = _reasons(_SAME["equivalent"])
"""Mutants that mean the same as the spec, and why."""
SAME_WHERE_ASKED = _reasons(_SAME["same_where_asked"])
"""Mutants that mean the same wherever the clause is asked, though not elsewhere, and why."""

Line: TypeAlias = tuple[str, int]


def lines_run(run: Callable[[], object]) -> set[Line]:
    """The lines of the spec that are run, with their files."""
    files, lines = {module.__file__ for module in MUTATED}, set[Line]()

    def in_spec(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return in_spec

    def in_any(frame: FrameType, _: str, __: Any) -> Any:
        return in_spec if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(in_any)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines


def lines_changed(mutant: Mutant) -> set[Line]:
    """The lines of the statement that the mutant changes."""
    first, last = mutant.lines
    return {(mutant.function.__code__.co_filename, line) for line in range(first, last + 1)}


@cache
def _lines_stated() -> list[tuple[str, Obligation, set[Line]]]:
    """Each obligation with the lines of the spec that state it, the quickest to state first."""
    stated: list[tuple[float, str, Obligation, set[Line]]] = []
    for theorem in (LEMMAS, *THEOREMS.values()):
        for each in theorem.obligations:
            start = process_time()
            lines = lines_run(partial(refutation, each.state, each.interpretation()))
            name = f"{theorem.name}: {each.name}"
            stated.append((process_time() - start, name, each, lines))
    return [(name, each, lines) for _, name, each, lines in sorted(stated, key=lambda s: s[0])]


def noticed_by(mutant: Mutant) -> str | None:
    """The first obligation that is not proved of the mutant, with its claim; None if all are.

    First it is looked for one that does not hold of the mutant; then for one whose premises cannot
    hold any more, or one of whose own mutants is not refuted.
    """
    changed = lines_changed(mutant)
    asked = [(name, each) for name, each, lines in _lines_stated() if changed & lines]
    with mutant.applied():
        for proves in (_holds, _is_proved):
            for name, obligation in asked:
                try:
                    proved = proves(obligation)
                except Exception:  # the mutant makes no sense of some terms, or of ints
                    proved = False
                if not proved:
                    return name
    return None


def _holds(obligation: Obligation) -> bool:
    return Solver(DEFAULTS).proves(obligation.state, obligation.interpretation)[0]


def _is_proved(obligation: Obligation) -> bool:
    return prove_obligation("", obligation, DEFAULTS, twice=False).status is Status.PROVED


def all_mutants(clauses: Collection[str] | None = None) -> Iterator[Mutant]:
    """All of the spec, or of the functions of these names."""
    for module in MUTATED:
        yield from mutants(module, clauses)


def _main(clauses: list[str]) -> None:
    generated: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    same: Counter[str] = Counter()
    for mutant in all_mutants(clauses or None):
        if mutant.function.__module__ == terms.__name__:
            continue  # no clauses: tests notice what is wrong with what stands for operators
        clause = mutant.function.__qualname__
        generated[clause] += 1
        by = noticed_by(mutant)
        noticed[clause] += by is not None
        reason = (EQUIVALENT | SAME_WHERE_ASKED).get(mutant.name, "")
        same[clause] += by is None and bool(reason)
        print(f"{mutant.name}: {by or reason or 'NOT NOTICED'}", flush=True)
    for clause, count in sorted(generated.items()):
        means_more = count - same[clause]
        print(f"{clause}: {noticed[clause]} of {means_more} mutants are noticed by a theorem")


if __name__ == "__main__":
    _main(sys.argv[1:])
