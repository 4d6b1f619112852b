"""Two versions of a function, proved to do the same for all arguments.

Both are executed on the same symbols, from loop to loop in turn: where both have come to a loop,
one iteration of each stands for all, and the invariants say what their states have in common. No
spec is involved. Functions that both call need not be executed: both must call them in the same
order, with the same arguments and in the same state, and get the same. Each execution has a thread
of its own, since it waits in the middle of a function; only one of them runs at a time.
"""

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from hitproof.proofs.unbounded.knowledge import Values
from hitproof.proofs.unbounded.loops import Arrival, Head, Loops, Shapes
from hitproof.proofs.unbounded.machine import Machine, Path
from hitproof.proofs.unbounded.proving import End, Proof, Searched, followed_all
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    BEYOND,
    Contract,
    Entries,
    Items,
    Listing,
    Marks,
    Raised,
    Record,
    equal,
)
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
        contracts: functions that are not executed; see `told`.
        premises: what is taken for granted of them.
        shapes: `Shapes.origin` is what a list's items may be numbered from.
        sizes: the symbols whose values a counterexample consists of, by name.
    """

    functions: tuple[Any, Any]
    arguments: Callable[[Callable[[Formula], bool]], Mapping[str, Any]]
    types: Mapping[type, type] = field(default_factory=dict)
    contracts: Mapping[Any, Contract] = field(default_factory=dict)
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


class _Differs(Exception):
    """The versions do something else before they end, with these values."""

    def __init__(self, what: str, values: Values | None) -> None:
        super().__init__(what)
        self.what, self.values = what, values


class _Watched(Machine):
    """Executes a version.

    Attributes:
        given: its arguments.
        names: for classes of its own, those of the first version.
        calls: what it has called that is not executed, since both versions were compared last.
        called: how often it has done so in all.
    """

    given: tuple[Any, ...] = ()
    called = 0

    def __init__(self, names: Mapping[type, type], *of: Any) -> None:
        super().__init__(*of)
        self.names = names
        self.calls: list[tuple[Any, ...]] = []


Result: TypeAlias = Callable[[Machine, str], Any]
"""Gives any result of a call, with symbols that have this name."""


def told(
    function: Callable[..., Any], result: Result = lambda *_: None, number: int = 0
) -> Contract:
    """A function that is not executed: of the same calls in the same state the same comes.

    It changes nothing that the versions see but the hashes of blocks, if ``result`` says so.
    ``number`` tells it from others of that name.
    """
    name, signature = f"{function.__name__} {number}", inspect.signature(function)

    def call(machine: Machine, *given: Any, **named: Any) -> Any:
        assert isinstance(machine, _Watched)
        try:
            bound = signature.bind(*given, **named)
        except TypeError:
            raise Raised("TypeError") from None
        bound.apply_defaults()
        arguments = tuple(bound.arguments.values())
        state = tuple(_changeable((machine.given, arguments)))
        machine.calls.append(_own((name, arguments, state), machine.names, {}))
        machine.called += 1
        return result(machine, f"{name}@{machine.called}")

    return Contract(call)


class _Side:
    """One of the two executions, which waits at each loop and after each iteration.

    Attributes:
        at: the loop that it has come to, the one that it has gone through once more, or None once
            it has ended.
        failure: an exception that is no result.
        before: for loops that the other is not in, how many calls came before.
    """

    def __init__(self, machine: _Watched, function: Any, arguments: Mapping[str, Any]) -> None:
        self.machine = machine
        machine.given = tuple(arguments.values())
        self.before: dict[Head, int] = {}
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
                self.result = (True, returned, tuple(_changeable(self.machine.given)))
        except Raised as raised:
            self.result = (False, raised.what, tuple(_changeable(self.machine.given)))
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
        while self._head is None:
            if not arrival.once():
                return
            self._wait(arrival)
        head = self._head
        arrival.execute(head, lambda: self._wait(head))

    def _wait(self, at: "Arrival | Head") -> None:
        self.at = at
        self._other.release()
        self._mine.acquire()
        if self._ends:
            raise _Ended

    def go_on(self, head: Head | None = None) -> None:
        """Let it run to where it waits next, without a head after one iteration of its loop."""
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
        cut = lambda _, *at, number=number: sides[number].cut(*at)  # noqa: E731
        names = {of_second: of_first for of_first, of_second in types.items()}
        machine = _Watched(names, here, path, cut, made.contracts)
        known: dict[int, Any] = {}
        own = {name: _own(value, types, known) for name, value in given.items()}
        sides.append(_Side(machine, function, own))
    try:
        for each in sides:
            each.go_on()
        while any(each.at is not None for each in sides):
            _step(sides, loops, path)
        return _compared(sides, made, loops, path)
    except _Differs as differs:
        return End.failing(differs.what, made.sizes, differs.values)
    finally:
        for each in sides:
            each.end()


def _own(value: Any, types: Mapping[type, type], known: dict[int, Any]) -> Any:
    """An argument for one version, which may change it; ``known`` are those that there are."""
    if id(value) in known:
        return known[id(value)]

    def own(each: Any) -> Any:
        return _own(each, types, known)

    made: Any = value
    match value:
        case Listing():
            made = known[id(value)] = replace(value)
            made.items = None if value.items is None else list(map(own, value.items))
        case Marks():
            made = known[id(value)] = replace(value, members=list(value.members))
        case Entries():
            made = known[id(value)] = replace(value, entries={})
            made.entries.update((name, own(each)) for name, each in value.entries.items())
        case Record():
            of = types.get(value.python_type, value.python_type)
            made = known[id(value)] = Record(of, {}, value.born, value.origin or value)
            made.attributes.update((name, own(each)) for name, each in value.attributes.items())
        case type():
            made = types.get(value, value)
        case tuple():
            items = map(own, value)
            made = type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return made


def _changeable(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """The lists, sets and dicts that a value holds."""
    seen = set() if seen is None else seen
    inside: Iterable[Any] = ()
    match value:
        case tuple():
            inside = value
        case Listing() | Marks() | Entries() | Record() if id(value) not in seen:
            seen.add(id(value))
            if not isinstance(value, Record):
                yield value
            inside = _inside(value)
    for each in inside:
        yield from _changeable(each, seen)


def _inside(value: Any) -> Iterable[Any]:
    """What a list, a dict or an object holds."""
    match value:
        case Listing():
            return value.items or ()
        case Entries():
            return value.entries.values()
        case Record():
            return value.attributes.values()
    return ()


def _step(sides: Sequence[_Side], loops: Loops, path: Path) -> None:
    """Let the executions go on to the next loop or its end. Raises `_Differs` if they cannot."""
    one, other = sides
    if isinstance(one.at, Arrival) and isinstance(other.at, Arrival):
        _compare_calls(sides, path)
        apart = loops.first_apart(one.at, other.at)
        head = None if apart else loops.enter(one.at, other.at)
        for each in sides:
            each.go_on(head)
        return
    for each in sides:
        if isinstance(each.at, Arrival):
            head = loops.enter(each.at)
            each.before[head] = len(each.machine.calls)
            each.go_on(head)
            return
    heads = [each.at for each in sides if isinstance(each.at, Head)]
    for head in heads:
        if heads.count(head) == len(head.arrivals):
            if len(head.arrivals) > 1:
                _compare_calls(sides, path)
            elif any(each.before.get(head, n) < n for each, n in _numbers_of_calls(sides)):
                values = path.knowledge.values(exact=True)
                raise _Differs("a loop that only one version has makes calls", values)
            loops.close(head)
    ahead = next(each for each in sides if each.at is not None)
    ahead.ahead += 1
    if len(heads) == len(sides) or ahead.ahead > _MOST_AHEAD:
        values = path.knowledge.values(exact=True)
        raise _Differs("one of two loops goes on when the other has ended", values)
    ahead.go_on()


def _numbers_of_calls(sides: Sequence[_Side]) -> list[tuple[_Side, int]]:
    return [(each, len(each.machine.calls)) for each in sides]


def _compare_calls(sides: Sequence[_Side], path: Path) -> None:
    """Raise `_Differs` unless both have called the same, which is forgotten then."""
    one, other = (each.machine.calls for each in sides)
    alike = len(one) == len(other) and _same(sides[0].machine, tuple(one), tuple(other))
    values = None if alike is True else path.knowledge.fails(lambda: alike)
    if values is not None:
        raise _Differs("the versions differ in the calls that they make", values)
    one.clear()
    other.clear()


def _compared(sides: Sequence[_Side], made: Pair, loops: Loops, path: Path) -> End:
    """Whether both have ended in the same way."""
    _compare_calls(sides, path)
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
        elif isinstance(each, Entries):
            look_through(tuple(each.entries.values()))
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
    if isinstance(left, Marks) and isinstance(right, Marks):
        return _same(machine, tuple(left.members), tuple(right.members))
    if isinstance(left, Entries) and isinstance(right, Entries):
        if left.entries.keys() != right.entries.keys():
            return False
        return _same(
            machine, *(tuple(v for _, v in sorted(e.entries.items())) for e in (left, right))
        )
    if isinstance(left, Record) and isinstance(right, Record):
        if left.origin is not None and left.origin is right.origin:
            return True  # what it holds is compared apart
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
