"""A statement about a function, proved on all of its paths."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

import z3

from hitproof.proofs.errors import PathError
from hitproof.proofs.unbounded.knowledge import GivenUp, Values
from hitproof.proofs.unbounded.loops import Again, Loops, PathEnds, Shapes
from hitproof.proofs.unbounded.machine import Decisions, Machine, Path, Standing
from hitproof.proofs.unbounded.reading import digest
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Broken, Contract, Raised
from hitproof.spec.terms import Formula

_MOST_PATHS = 3000

Conclusion: TypeAlias = tuple[str, Callable[[], Formula]]
"""What holds of a result, in words and as a formula."""


@dataclass(frozen=True)
class Statement:
    """What holds of every call of a function.

    Attributes:
        function: the function, as the program has it.
        arguments: the values of its parameters, by name.
        premises: what is taken for granted of them.
        conclusions: what holds of a result.
        shapes: what invariants of its loops may speak of.
        sizes: the symbols whose values a counterexample consists of, by name.
        in_short: whether paths that may be impossible are followed rather than to ask for long.
        contracts: functions that are not executed, by what is proved of them elsewhere.
        counting: whether conclusions are about how often a block is in a list.
        stands_for: chooses one result of a called function, if it is as good as all others.
        reads: what of the program its contracts and conclusions depend on, beside its function and
            arguments; None if that is not known.
    """

    function: Any
    arguments: Mapping[str, Any]
    premises: tuple[Formula, ...]
    conclusions: Callable[[Any], Iterator[Conclusion]]
    shapes: Shapes = field(default_factory=Shapes)
    sizes: Mapping[str, Any] = field(default_factory=dict)
    in_short: bool = False
    contracts: Mapping[Any, Contract] = field(default_factory=dict)
    counting: bool = False
    stands_for: Standing | None = None
    reads: tuple[Any, ...] | None = None

    def digest(self, *more: Any) -> str:
        """What is the same for this and ``more`` only if the same is stated of the same code.

        "" if that is not known.
        """
        if self.reads is None:
            return ""
        own = self.function, dict(self.arguments), self.premises, tuple(self.contracts), self.reads
        versions = sys.version, z3.get_version_string()
        try:
            return digest(*own, *more, *versions)
        except Unsupported:
            return ""


class Verdict(StrEnum):
    """How a proof ended."""

    PROVED = "proved"
    FAILED = "failed"
    """Some condition does not follow. It may hold all the same."""
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Proof:
    """The end of a proof.

    Attributes:
        verdict: how it ended.
        detail: what fails, or why nothing can be said.
        sizes: where it fails: values of the statement's sizes.
        paths: how many paths were followed.
        queries: how often Z3 was asked.
    """

    verdict: Verdict
    detail: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    paths: int = 0
    queries: int = 0


@dataclass(frozen=True)
class End:
    """How one path ended: what fails, if anything, and where."""

    fails: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    returns: bool = False

    @classmethod
    def failing(cls, why: str, sizes: Mapping[str, Any], values: Values | None) -> "End":
        """What fails with these values; a path that none have is none."""
        if values is None:
            return cls()
        return cls(why, {name: values.of_atoms(number) for name, number in sizes.items()})


@dataclass(frozen=True)
class Searched:
    """What is executed on every path.

    Attributes:
        premises: what is taken for granted.
        sizes: what a counterexample consists of.
        loops: what is known of the loops.
        follow: executes it on one path; what it raises beside `Again` and `PathEnds` ends the
            search.
        in_short: whether paths that may be impossible are followed rather than to ask for long.
    """

    premises: tuple[Formula, ...]
    sizes: Mapping[str, Any]
    loops: Loops
    follow: Callable[[Arithmetic, Path], End]
    in_short: bool = False


def prove(state: Callable[[Arithmetic], Statement], seconds: float = 60.0) -> Proof:
    """Prove a statement on every path of its function, within a CPU time."""

    def search(here: Arithmetic) -> Searched:
        made = state(here)
        loops = Loops(here, made.shapes)
        follow = partial(_followed, made, loops)
        return Searched(made.premises, made.sizes, loops, follow, made.in_short)

    return followed_all(search, seconds)


def followed_all(search: Callable[[Arithmetic], Searched], seconds: float) -> Proof:
    """Prove that no path fails, within a CPU time."""
    here = Arithmetic()
    try:
        ends = _ends(here, search(here), time.process_time() + seconds)
    except (Unsupported, GivenUp) as error:
        return Proof(Verdict.INCONCLUSIVE, str(error), queries=here.queries)
    verdict, detail, sizes = Verdict.PROVED, "", {}
    failed = [end for end in ends if end.fails]
    if failed:
        verdict, detail, sizes = Verdict.FAILED, failed[0].fails, dict(failed[0].sizes)
    elif not any(end.returns for end in ends):
        verdict, detail = Verdict.INCONCLUSIVE, "no path returns"
    return Proof(verdict, detail, sizes, len(ends), here.queries)


def _ends(here: Arithmetic, searched: Searched, deadline: float) -> list[End]:
    """The ends of all paths.

    Iterations of a loop come before what follows it, so that its invariants are settled then. If
    they change, what was executed since the loop began counts no more.
    """
    ends: dict[Decisions, End] = {}
    beginnings: list[Decisions] = [()]
    impossible: set[Decisions] = set()
    executed = 0
    while beginnings:
        executed += 1
        if time.process_time() > deadline:
            raise Unsupported("not finished in time")
        if executed > _MOST_PATHS:
            raise Unsupported(f"more than {_MOST_PATHS} paths")
        path = Path(here, beginnings.pop(), searched.in_short)
        for premise in searched.premises:
            path.suppose(premise)
        searched.loops.begin_path()
        again: Decisions | None = None
        last = False
        try:
            ends[path.decisions] = searched.follow(here, path)
        except PathEnds:
            ends[path.decisions] = End()
        except Again as loop:
            again, last = loop.decisions, loop.last
        beginnings += path.others
        impossible |= path.impossible
        if again is not None:
            beginnings = [each for each in beginnings if each[: len(again)] != again]
            impossible = {each for each in impossible if each[: len(again)] != again}
            ends = {each: end for each, end in ends.items() if each[: len(again)] != again}
            beginnings.insert(0 if last else len(beginnings), again)
    _check_complete(ends, impossible)
    return list(ends.values())


def _check_complete(ends: Collection[Decisions], impossible: Collection[Decisions]) -> None:
    """Raise `PathError` unless both answers to each question were followed, or impossible."""
    known = {end[:length] for end in ends for length in range(len(end) + 1)}
    for each in known:
        if each and (*each[:-1], not each[-1]) not in known | set(impossible):
            raise PathError(f"a path was not followed: {each}")


def _followed(statement: Statement, loops: Loops, here: Arithmetic, path: Path) -> End:
    told = statement.contracts, statement.counting, statement.stands_for
    machine = Machine(here, path, loops.cut, *told)
    sizes = statement.sizes
    try:
        result = machine.call(statement.function, (), statement.arguments)
    except Raised as raised:
        return End.failing(f"it raises {raised}", sizes, path.knowledge.values(exact=True))
    except Broken as broken:
        return End.failing(f"it fails that {broken.sentence}", sizes, broken.values)
    for sentence, conclusion in statement.conclusions(result):
        values = path.knowledge.fails(conclusion)
        if values is not None:
            return End.failing(f"it fails that {sentence}", sizes, values)
    loops.returns = loops.returns or path.knowledge.values() is not None
    return End(returns=loops.returns)
