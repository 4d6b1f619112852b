"""Two versions of a function, proved to do the same for all arguments.

Both are executed on the same symbols, from loop to loop in turn: where both have come to a loop,
one iteration of each stands for all, and the invariants say what their states have in common. No
spec is involved. Each execution has a thread of its own, since it waits in the middle of a
function; only one of them runs at a time.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hitproof.proofs.unbounded.loops import Arrival, Head, Loops, Shapes
from hitproof.proofs.unbounded.machine import Machine, Path
from hitproof.proofs.unbounded.proving import End, Proof, Searched, followed_all
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import BEYOND, Items, Listing, Raised, Record, equal
from hitproof.spec.terms import Formula

_MOST_AHEAD = 2
"""How many iterations one loop may go through after the other has ended."""


@dataclass(frozen=True)
class Pair:
    """Two versions of a function, with equal arguments, of which each may change its own.

    Attributes:
        functions: the versions.
        arguments: gives their arguments by name, anew for each path. It may ask whether a formula
            holds: both answers are followed.
        types: classes of which the second version has its own.
        premises: what is taken for granted of them.
        shapes: `Shapes.origin` is what a list's items may be numbered from.
        sizes: the symbols whose values a counterexample consists of, by name.
    """

    functions: tuple[Any, Any]
    arguments: Callable[[Callable[[Formula], bool]], Mapping[str, Any]]
    types: Mapping[type, type] = field(default_factory=dict)
    premises: tuple[Formula, ...] = ()
    shapes: Shapes = field(default_factory=Shapes)
    sizes: Mapping[str, Any] = field(default_factory=dict)


def prove_equal(state: Callable[[Arithmetic], Pair], seconds: float = 60.0) -> Proof:
    """Prove that two versions return or raise the same, and leave their arguments equal."""

    def search(here: Arithmetic) -> Searched:
        made = state(here)
        loops = Loops(here, made.shapes)
        return Searched(made.premises, made.sizes, loops, partial(_together, made, loops), True)

    return followed_all(search, seconds)


class _Ended(BaseException):
    """The path ends while an execution waits."""


class _Side:
    """One of the two executions, which waits at each loop and after each iteration.

    Attributes:
        at: the loop that it has come to, the one that it has gone through once more, or None once
            it has ended.
        failure: an exception that is no result.
    """

    def __init__(self, machine: Machine, function: Any, arguments: Mapping[str, Any]) -> None:
        self.machine = machine
        self.at: Arrival | Head | None = None
        self.result: Any = None
        self.failure: BaseException | None = None
        self.ahead = 0
        self._ends = False
        self._head: Head | None = None
        self._mine, self._other = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(function, arguments), daemon=True)
        self._thread.start()

    def _run(self, function: Any, arguments: Mapping[str, Any]) -> None:
        self._mine.acquire()
        try:
            if not self._ends:
                returned = self.machine.call(function, (), arguments)
                self.result = (True, returned, tuple(arguments.values()))
        except Raised as raised:
            self.result = (False, raised.what, tuple(arguments.values()))
        except _Ended:
            pass
        except BaseException as failure:
            self.failure = failure
        self.at = None
        self._other.release()

    def cut(self, frame: Any, node: Any, items: Items | None) -> None:
        """Wait at a loop, and go on from where `go_on` puts it."""
        arrival = Arrival(self.machine, frame, node, items)
        self._wait(arrival)
        head = self._head
        assert head is not None
        arrival.execute(head, lambda: self._wait(head))

    def _wait(self, at: "Arrival | Head") -> None:
        self.at = at
        self._other.release()
        self._mine.acquire()
        if self._ends:
            raise _Ended

    def go_on(self, head: Head | None = None) -> None:
        """Let it run to where it waits next."""
        self._head = head
        self._mine.release()
        self._other.acquire()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """End it."""
        self._ends = True
        self._mine.release()
        self._thread.join()


def _together(made: Pair, loops: Loops, here: Arithmetic, path: Path) -> End:
    sides: list[_Side] = []
    given = made.arguments(path.decide)
    for function, types in zip(made.functions, ({}, made.types), strict=True):
        number = len(sides)
        machine = Machine(here, path, lambda _, *at, number=number: sides[number].cut(*at))
        own = {name: _own(value, types) for name, value in given.items()}
        sides.append(_Side(machine, function, own))
    try:
        for each in sides:
            each.go_on()
        while any(each.at is not None for each in sides):
            fails = _step(sides, loops)
            if fails:
                return End.failing(fails, made.sizes, path.knowledge.values(exact=True))
        return _compared(sides, made, loops, path)
    finally:
        for each in sides:
            each.end()


def _own(value: Any, types: Mapping[type, type]) -> Any:
    """An argument for one version, which may change it."""
    if isinstance(value, Listing):
        items = None if value.items is None else [_own(each, types) for each in value.items]
        return replace(value, items=items)
    if isinstance(value, Record):
        attributes = {name: _own(each, types) for name, each in value.attributes.items()}
        return Record(types.get(value.python_type, value.python_type), attributes, value.born)
    return value


def _step(sides: Sequence[_Side], loops: Loops) -> str:
    """Let the executions go on to the next loop or its end; why they cannot, or ""."""
    one, other = sides
    if isinstance(one.at, Arrival) and isinstance(other.at, Arrival):
        head = loops.enter(one.at, other.at)
        for each in sides:
            each.go_on(head)
        return ""
    for each in sides:
        if isinstance(each.at, Arrival):
            each.go_on(loops.enter(each.at))
            return ""
    heads = [each.at for each in sides if isinstance(each.at, Head)]
    for head in heads:
        if heads.count(head) == len(head.arrivals):
            loops.close(head)
    ahead = next(each for each in sides if each.at is not None)
    ahead.ahead += 1
    if len(heads) == len(sides) or ahead.ahead > _MOST_AHEAD:
        return "one of two loops goes on when the other has ended"
    ahead.go_on()
    return ""


def _compared(sides: Sequence[_Side], made: Pair, loops: Loops, path: Path) -> End:
    """Whether both have ended in the same way."""
    one, other = (each.result for each in sides)
    what = "whether they return", "what they return or raise", "what they change"
    same = [_same(sides[0].machine, *each) for each in zip(one, other, strict=True)]
    same.append(_shared(one) == _shared(other))
    for named, holds in zip((*what, "which lists are the same one"), same, strict=True):
        if holds is True:
            continue
        values = path.knowledge.fails(lambda holds=holds: holds)  # type: ignore[misc]
        if values is not None:
            return End.failing(f"the versions differ in {named}", made.sizes, values)
    loops.returns = loops.returns or (bool(one[0]) and path.knowledge.values() is not None)
    return End(returns=loops.returns)


def _shared(value: Any) -> list[int]:
    """Which lists in a value are one object: for each list, the index of the first of these."""
    found: list[Listing] = []

    def look_through(each: Any) -> None:
        if isinstance(each, Listing):
            found.append(each)
            look_through(tuple(each.items or ()))
        elif isinstance(each, tuple):
            for item in each:
                look_through(item)

    look_through(value)
    return [next(n for n, other in enumerate(found) if other is each) for each in found]


def _same(machine: Machine, left: Any, right: Any) -> Formula:
    """Whether two results are the same, lists at the position."""
    here = machine.arithmetic
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        holds: Formula = True
        for one, other in zip(left, right, strict=True):
            holds = holds & _same(machine, one, other)
        return holds
    if isinstance(left, Record) and isinstance(right, Record):
        if left.attributes.keys() != right.attributes.keys():
            return False
        return _same(machine, tuple(left.attributes.values()), tuple(right.attributes.values()))
    if not (isinstance(left, Listing) and isinstance(right, Listing)):
        return equal(here, left, right)
    if left.items is not None and right.items is not None:
        return _same(machine, tuple(left.items), tuple(right.items))
    for each in (left, right):
        machine.symbolic(each)
    inside = (0 <= here.position) & (here.position < left.length)
    same = left.cell is right.cell is BEYOND or equal(here, left.cell, right.cell)
    return (left.length == right.length) & here.implies(inside, same)
