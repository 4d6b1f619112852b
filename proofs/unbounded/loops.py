"""Loops of any number of iterations, cut at invariants that are found by their shape and checked.

What a loop changes is replaced by unknown values, of which only the invariants are known: so one
execution of its body stands for all iterations. Invariants begin as every candidate of a few
shapes. Those that do not hold when the loop begins, or after an iteration that began with all of
them, are dropped, until none is: what is left holds by induction. Nothing is trusted.

The shapes are beside the loops that they are for: the module has more than 400 lines.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, takewhile
from typing import Any, NoReturn, TypeAlias

from hitproof.proofs.unbounded.knowledge import Knowledge
from hitproof.proofs.unbounded.machine import Frame, Machine
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import (
    NULL,
    Block,
    Entries,
    Filled,
    Items,
    Listing,
    Marks,
    Record,
    Unknown,
    equal,
    is_number,
    is_same,
    is_truth,
)
from hitproof.spec.terms import Formula, Term

Place: TypeAlias = tuple[Any, ...]
"""Where a value is: the number of the frame, the variable, and the way from there."""

_POSITION = "position"
AT: Place = (_POSITION, 0)
"""The place of the position of a loop; there are two if two loops are cut together."""
_ITERATIONS: Place = (_POSITION, -1)
"""How many iterations of two loops there were."""
_VARIABLE = 2


class PathEnds(Exception):
    """An iteration has ended; the next one is like it."""


@dataclass
class Again(Exception):
    """What is known of a loop has changed; what was executed since it began has to be again.

    Attributes:
        decisions: those before the loop.
        last: whether all other paths come first.
    """

    decisions: tuple[bool, ...]
    last: bool = False


@dataclass(frozen=True)
class Shapes:
    """What invariants may speak of beside what a loop changes.

    Attributes:
        numbers: numbers that matter, such as the end of a hit.
        facts: formulas about `Arithmetic.position`.
        block: the place of the block that a list may have at the position, if it is another one.
        suppositions: pairs of a formula and a number that may be bounded if the formula holds.
        steps: pairs of a number d and a number p: what may be a multiple of p, less d.
        origin: what the position counts from, where the function counts from 0.
        units: numbers of which what a loop changes may be multiples, those that are equal
            together, with what makes a multiple.
        own: invariants instead of those that are made of the rest.
    """

    numbers: tuple[Term, ...] = ()
    facts: tuple[Formula, ...] = ()
    block: Term | None = None
    suppositions: tuple[tuple[Formula, Term], ...] = ()
    steps: tuple[tuple[Term, Term], ...] = ()
    origin: Term = 0
    units: tuple[tuple[tuple[Term, ...], Callable[[Term], Term]], ...] = ()
    own: "Callable[[Values], Iterator[Family]] | None" = None

    def kind(self, old: Term, new: Term) -> str:
        """The unit that two numbers are multiples of."""
        for number, (equal_ones, _) in enumerate(self.units):
            if all(
                any(is_same(each // unit * unit, each) for unit in equal_ones)
                for each in (old, new)
            ):
                return f"multiple {number}"
        return "number"


Values: TypeAlias = dict[Place, Any]
Candidate: TypeAlias = Callable[[Values], Formula]
Family: TypeAlias = list[Candidate]
"""Candidates each of which implies the next one."""


@dataclass
class _Loop:
    """What is known of one loop, after the decisions before it.

    Attributes:
        kinds: the places that it changes, each with what is there.
        candidates: invariants that are not dropped, the strongest of each family first; None
            until they are known.
        holds_first: for which candidates of the loops before it was seen that these hold first.
        variants: numbers that may show that the loop ends: each iteration makes them less.
        twins: for two loops, the other places with which a place may share its value.
        entries: where several paths reach the loop and continue as one, what is known on each and
            what is where, by its decisions; the first of them continues.
        first_apart: whether its first iteration is executed before it is cut.
        used: the number variables that an iteration or what follows needs; where paths continue
            as one, the others are not known.
        told: some values and what candidates say of them, by the decisions before these values: a
            repeated execution gives the same.
    """

    kinds: dict[Place, str] = field(default_factory=dict)
    candidates: list[Family] | None = None
    holds_first: tuple[int, ...] | None = None
    variants: list[Place] | None = None
    twins: dict[Place, list[Place]] = field(default_factory=dict)
    entries: dict[tuple[bool, ...], tuple[Knowledge, Values]] = field(default_factory=dict)
    first_apart: bool = False
    used: set[Place] = field(default_factory=set)
    told: "dict[object, tuple[Values, dict[Candidate, Formula]]]" = field(default_factory=dict)

    def says(self, at: object, values: Values) -> "Callable[[Candidate], Formula]":
        """What candidates say of values."""
        before, formulas = self.told.get(at, ({}, {}))
        same = before.keys() == values.keys()
        if not same or not all(is_same(value, before[place]) for place, value in values.items()):
            formulas = {}
            self.told[at] = values, formulas

        def told(candidate: Candidate) -> Formula:
            if candidate not in formulas:
                formulas[candidate] = candidate(values)
            return formulas[candidate]

        return told


@dataclass(frozen=True)
class _Leaf:
    """A value that a loop may change, and how to set it."""

    value: Any
    put: Callable[[Any], None]


@dataclass
class Arrival:
    """A loop that an execution has come to, or is in.

    Attributes:
        machine, frame, node, items: the execution, and the loop in it.
        number: how many iterations of it came before.
    """

    machine: Machine
    frame: Frame
    node: "ast.For | ast.While"
    items: Items | None
    number: Term = 0

    @property
    def position(self) -> Term:
        """The next number of a range, else the place of the next item."""
        assert self.items is not None
        if self.items.python_type is not range:
            return self.number
        number: Term = self.items.at(self.number)
        return number

    def execute(self, head: "Head", back: Callable[[], None]) -> None:
        """Go through the loop, with ``back`` after each iteration that is not the last."""
        values = (leaf.value for leaf in head.leaves.values())
        listings = {id(each) for each in values if isinstance(each, (Listing, Filled, Marks))}
        self.machine.active.append((listings, self.machine.tick()))
        try:
            while goes_on := self._goes_on():
                if not self.machine.iteration(self.node, self.frame):
                    break
                self.number = self.number + 1
                back()
        finally:
            self.machine.active.pop()
        if not goes_on:
            self.machine.block(self.node.orelse, self.frame)

    def once(self) -> bool:
        """Execute the first iteration of a ``while`` loop; whether there may be another."""
        if not self._goes_on():
            self.machine.block(self.node.orelse, self.frame)
            return False
        return self.machine.iteration(self.node, self.frame)

    def _goes_on(self) -> bool:
        machine, node = self.machine, self.node
        if isinstance(node, ast.While):
            return machine.truth(machine.value(node.test, self.frame))
        assert self.items is not None
        machine.path.suppose(self.number <= self.items.length)
        goes_on = machine.decide(self.number < self.items.length)
        if goes_on:
            machine.assign(node.target, self.items.at(self.number), self.frame)
        return goes_on


@dataclass(frozen=True, eq=False)
class Head:
    """A loop at the beginning of any iteration, or two loops of two executions.

    Attributes:
        loop: what is known of it.
        before: the decisions before it.
        arrivals: the executions that are there.
        frames: their calls.
        unknown: the values that it changes.
        leaves: all values.
    """

    loop: _Loop
    before: tuple[bool, ...]
    arrivals: Sequence[Arrival]
    frames: Sequence[Frame]
    unknown: Values
    leaves: "dict[Place, _Leaf]"


class Loops:
    """Cuts loops at their invariants, path by path, and keeps the facts known about each loop.

    Attributes:
        returns: whether some path was seen to return.
    """

    returns = False

    def __init__(self, arithmetic: Arithmetic, shapes: Shapes) -> None:
        self._arithmetic = arithmetic
        self._shapes = shapes
        self._loops: dict[tuple[tuple[bool, ...], int, tuple[int, ...]], _Loop] = {}
        self._latest: dict[tuple[int, ...], _Loop] = {}
        self._passed: list[_Loop] = []

    def begin_path(self) -> None:
        """Another path is executed, from the start."""
        self._passed = []

    def cut(
        self, machine: Machine, frame: Frame, node: "ast.For | ast.While", items: Items | None
    ) -> None:
        """Execute a loop: none of its iterations, or any one of them and what comes after it."""
        arrival = Arrival(machine, frame, node, items)
        loop = self._known(machine.path.decisions, (node.lineno,))
        if loop.first_apart:
            if not arrival.once():
                return
            self._gather(loop, machine)
        head = self.enter(arrival, loop=loop)
        arrival.execute(head, lambda: self.close(head))

    def first_apart(self, *arrivals: Arrival) -> bool:
        """Whether the first iteration of two loops is executed before they are cut."""
        lines = tuple(each.node.lineno for each in arrivals)
        return self._known(arrivals[0].machine.path.decisions, lines).first_apart

    def _gather(self, loop: _Loop, machine: Machine) -> None:
        """Let one path stand for all that come to a loop; it knows what all of them know."""
        path = machine.path
        leaves = dict(_leaves(machine.frames))
        if path.decisions not in loop.entries:
            if loop.candidates is not None:
                raise Unsupported("a loop that other paths come to late")
            values = {place: leaf.value for place, leaf in leaves.items()}
            loop.entries[path.decisions] = path.knowledge, values
            if len(loop.entries) == 1:
                raise Again(path.decisions, last=True)
        if path.decisions != next(iter(loop.entries)):
            raise PathEnds
        path.forget(_beginning(min(loop.entries), max(loop.entries)))
        own = loop.entries[path.decisions][1]
        missing = Unknown("not set")
        for _, values in loop.entries.values():
            names, others = _first_names(own), _first_names(values)
            for place in {**own, **values}:
                old, new = own.get(place, missing), values.get(place, missing)
                named = names.get(id(old)), others.get(id(new))
                if not (is_same(old, new) or (named[0] is not None and named[0] == named[1])):
                    self._note(loop, place, old, new)

    def enter(self, *arrivals: Arrival, loop: _Loop | None = None) -> Head:
        """Let the state be that of any iteration; two loops are in the same iteration of both."""
        path = arrivals[0].machine.path
        before, lines = path.decisions, tuple(each.node.lineno for each in arrivals)
        loop = loop or self._known(before, lines)
        frames = [frame for each in arrivals for frame in each.machine.frames]
        for place, leaf in list(_leaves(frames)):
            if (*place, "list") in loop.kinds and isinstance(leaf.value, Listing):
                arrivals[0].machine.symbolic(leaf.value)
            if loop.kinds.get(place) == "listing" and not _is_lost(loop, place):
                leaf.put(replace(leaf.value))
        unknown = self._forget(loop, arrivals, frames, before)
        self._passed.append(loop)
        says = loop.says(("enters", before), unknown)
        for family in loop.candidates or ():
            path.suppose(says(family[0]))
        leaves = dict(_leaves(frames))
        return Head(loop, before, arrivals, frames, unknown, leaves)

    def _known(self, before: tuple[bool, ...], lines: tuple[int, ...]) -> _Loop:
        """What is known of a loop; of two at first what is known of them after other decisions."""
        key = before, len(self._passed), lines
        if key not in self._loops:
            known = self._loops[key] = _Loop()
            if len(lines) > 1 and lines in self._latest:
                latest = self._latest[lines]
                known.kinds = dict(latest.kinds)
                known.twins = {place: list(twins) for place, twins in latest.twins.items()}
        if len(lines) > 1:
            self._latest[lines] = self._loops[key]
        return self._loops[key]

    def close(self, head: Head) -> NoReturn:
        """End the path after an iteration, of which the invariants have to hold again."""
        loop = head.loop
        after = dict(_leaves(head.frames))
        is_while = all(each.items is None for each in head.arrivals)
        self._note_changes(loop, head.before, head.leaves, after, is_while)
        values = {place: after[place].value for place in head.unknown if place in after}
        values |= {(_POSITION, n): each.position for n, each in _numbered(head.arrivals)}
        machine = head.arrivals[0].machine
        if _ITERATIONS in head.unknown:
            values[_ITERATIONS] = head.arrivals[0].number
        if self._part(loop, machine.path.knowledge, values):
            loop.candidates = loop.holds_first = None
            raise Again(head.before)
        if is_while and len(head.arrivals) == 1:
            self._check_ends(loop, machine, head.unknown, values)
        _check_apart(loop, {place: leaf.value for place, leaf in after.items()})
        if self._drop(loop, machine.path.decisions, machine.path.knowledge, values):
            raise Again(head.before)
        raise PathEnds

    def _forget(
        self,
        loop: _Loop,
        arrivals: Sequence[Arrival],
        frames: Sequence[Frame],
        before: tuple[bool, ...],
    ) -> Values:
        """Put unknown values where the loop changes some, once its invariants hold first."""
        lines = "&".join(str(each.node.lineno) for each in arrivals)
        name = f"@{lines}/{len(self._passed)}{''.join('ny'[each] for each in before)}"
        leaves = dict(_leaves(frames))
        kinds = {
            place: kind
            for place, kind in loop.kinds.items()
            if kind not in ("list", "listing")
            and (place in leaves or len(place) == _VARIABLE)
            and not _is_lost(loop, place)
        }
        unused = [
            place
            for place, kind in kinds.items()
            if loop.entries and len(place) == _VARIABLE and place not in loop.used
        ]
        for place in unused:
            del kinds[place]
            needed = partial(self._use, loop, place, before)
            frames[place[0]].variables[place[1]] = Unknown("changed by a loop", needed)
        first = {place: leaves[place].value for place in kinds if place in leaves}
        unknown = {
            place: self._unknown(kind, f"{_shown(place)}{name}") for place, kind in kinds.items()
        }
        if loop.entries:  # what is the same on all paths is not known to be what it was
            kept = {
                place: leaf.value
                for place, leaf in leaves.items()
                if leaf.put is not _fixed and place not in loop.kinds and _is_symbol(leaf.value)
            }
            first |= kept
            unknown |= kept
        entry = [value for value in first.values() if is_number(value)]
        ranges = _numbered(arrivals)
        for number, each in ranges:
            assert each.items is not None
            first[_POSITION, number] = each.position
            entry += [each.items.length, each.position]
        iterations = self._arithmetic.atom(f"iterations{name}", 0)
        for each in arrivals:
            each.number = iterations  # of two loops it is the same
        unknown |= {(_POSITION, number): each.position for number, each in ranges}
        path = arrivals[0].machine.path
        second = len(arrivals[0].machine.frames)
        if len(arrivals) > 1:
            first[_ITERATIONS], unknown[_ITERATIONS] = 0, iterations
            self._pair(loop, path.knowledge, second, first, unknown)
        if loop.candidates is None:
            if len(arrivals) == 1:
                loop.candidates = list(self._candidates(unknown, entry))
            else:
                alone = any(
                    place[0] >= second and kind != "unknown" and not loop.twins.get(place)
                    for place, kind in kinds.items()
                )
                found = self._relations(unknown, entry, second) if alone else ()
                loop.candidates = list(found)
        counts = tuple(sum(map(len, each.candidates or ())) for each in self._passed)
        if loop.holds_first != counts:
            for at, (known, values) in loop.entries.items():
                _check_apart(loop, values)
                self._drop(loop, at, known, {place: values.get(place) for place in first})
            if not loop.entries:
                self._drop(loop, before, path.knowledge, first)
            loop.holds_first = counts
        for place in kinds:
            if place in leaves:
                leaves[place].put(unknown[place])
            elif len(place) == _VARIABLE:  # it is set by an iteration first
                frames[place[0]].variables[place[1]] = unknown[place]
        return unknown

    def _use(self, loop: _Loop, place: Place, before: tuple[bool, ...]) -> NoReturn:
        """A variable is needed, unless nothing is known of it anyway."""
        if loop.kinds[place] == "unknown":
            raise Unsupported(f"{place[1]}, which is changed by a loop")
        loop.used.add(place)
        loop.candidates = loop.holds_first = loop.variants = None
        raise Again(before)

    def _pair(
        self, loop: _Loop, known: Knowledge, second: int, first: Values, unknown: Values
    ) -> None:
        """Give what is equal in both loops, or counts their iterations, the same unknown value."""
        own = [place for place in first if place[0] != _POSITION]
        own.sort(key=lambda place: bool(place[0] >= second))
        for place in own:
            value = first[place]
            if place not in loop.twins:
                others = [each for each in first if each[0] == _POSITION]
                if place[0] >= second:
                    others += [p for p in first if p[0] != _POSITION and p[0] < second]
                elif place[-1] == "length":  # lists that are filled together
                    others += [p for p in own[: own.index(place)] if p[-1] == "length"]
                loop.twins[place] = sorted(
                    others,
                    key=lambda each, place=place: each[1:] != place[1:],  # type: ignore[misc]
                )
            twins = loop.twins[place]
            while twins and not self._are_equal(known, value, first.get(twins[0])):
                del twins[0]
            if twins:
                unknown[place] = unknown[twins[0]]

    def _are_equal(self, known: Knowledge, left: Any, right: Any) -> bool:
        holds = equal(self._arithmetic, left, right)
        return holds is True or (holds is not False and known.fails(lambda: holds) is None)

    def _part(self, loop: _Loop, known: Knowledge, values: Values) -> bool:
        """Find out what is no more equal after an iteration; whether there is something."""
        parted = False
        for place, twins in loop.twins.items():
            if (
                twins
                and place in values
                and not self._are_equal(known, values[place], values.get(twins[0]))
            ):
                del twins[0]
                parted = True
        return parted

    def _unknown(self, kind: str, name: str) -> Any:
        match kind:
            case "number":
                return self._arithmetic.atom(name)
            case "length":
                return self._arithmetic.atom(name, 0)
            case "truth":
                return self._arithmetic.flag(name)
            case "unknown":
                return Unknown("changed by a loop")
        what, number = kind.split()
        if what == "block":
            return Block(self._arithmetic.atom(name, -1), int(number))
        return self._shapes.units[int(number)][1](self._arithmetic.atom(name))

    def _note_changes(
        self,
        loop: _Loop,
        before: tuple[bool, ...],
        head: dict[Place, _Leaf],
        after: dict[Place, _Leaf],
        is_while: bool,
    ) -> None:
        found = False
        for place in head:
            if place[-1] == "list" and place not in after and place not in loop.kinds:
                loop.kinds[place] = "list"  # an iteration makes it one of any length
                found = True
        names = _first_names({place: leaf.value for place, leaf in after.items()})
        for place, leaf in after.items():
            if (*place[:-1], "list") in head and place[-1] in ("length", "cell", "count"):
                continue
            old = head[place].value if place in head else Unknown("not set")
            if is_same(old, leaf.value):
                continue
            named, _ = names.get(id(leaf.value), (place, True))
            new = leaf.value if named == place else Unknown("a second name of a list")
            found = self._note(loop, place, old, new) or found
        for place, kind in loop.kinds.items():
            if kind not in ("list", "unknown") and place not in after:
                loop.kinds[place] = "unknown"
                found = True
        whole = any(
            head[place].value is None and isinstance(after[place].value, Listing)
            for place in head.keys() & after.keys()
        )
        if whole and is_while and not loop.first_apart:  # what is set first is not None then
            loop.first_apart = True
            loop.kinds.clear()
        if found:
            loop.candidates = loop.holds_first = loop.variants = None
            raise Again(before)

    def _note(self, loop: _Loop, place: Place, old: Any, new: Any) -> bool:
        """Note that a value may be another one; whether that is new."""
        kind = _kind(place, old, new)
        if kind in ("number", "length") and self._shapes.units and is_number(old):
            kind = self._shapes.kind(old, new)
        known = loop.kinds.get(place)
        weaker = known in ("number", "length") and kind.startswith("multiple")
        if known in (kind, "unknown") or weaker:
            return False
        if known is None or (known.startswith("multiple") and kind == "number"):
            loop.kinds[place] = kind
        else:
            loop.kinds[place] = "unknown"
        return True

    def _drop(self, loop: _Loop, at: object, known: Knowledge, values: Values) -> bool:
        """Drop the candidates that need not hold of these values; whether there were any."""
        assert loop.candidates is not None
        says = loop.says(at, values)
        formulas = [[partial(says, each) for each in family] for family in loop.candidates]
        dropped = known.weakened(formulas)
        for family, times in zip(loop.candidates, dropped, strict=True):
            del family[:times]
        loop.candidates = [family for family in loop.candidates if family]
        return any(dropped)

    def _check_ends(self, loop: _Loop, machine: Machine, old: Values, new: Values) -> None:
        numbers = [place for place, value in new.items() if is_number(value)]
        if loop.variants is None:
            loop.variants = [place for place in numbers if is_number(old[place])]

        def is_less(place: Place) -> bool:
            less = (new[place] >= 0) & (new[place] < old[place])
            return machine.path.knowledge.follows(less)

        loop.variants = [place for place in loop.variants if is_less(place)]
        if not loop.variants:
            raise Unsupported("a while loop that is not seen to end")

    def _candidates(self, unknown: Values, entry: Sequence[Term]) -> Iterator[Family]:
        """Every invariant of these shapes."""
        shapes = self._shapes
        if shapes.own is not None:
            yield from shapes.own(unknown)
            return
        places = [place for place, value in unknown.items() if is_number(value)]
        sums = [_Sum(place) for place in places]
        for one, other in combinations(places, 2):
            sums += [_Sum(one, other), _Sum(one, other, -1)]
        numbers = _distinct([0, *entry, *shapes.numbers])
        if AT in unknown:
            # A list may grow as the position does.
            sums += [_Sum(AT, place, -1) for place in places if place[-1] == "length"]
            for place in places:
                for less, step in shapes.steps:
                    yield [partial(_ends_segment, place, less, step)]
        for each in sums:
            for number in numbers:
                yield [partial(_at_least, each, number, apart) for apart in (1, 0, -1)]
                yield [partial(_at_most, each, number, apart) for apart in (-1, 0, 1)]
            for premise, number in shapes.suppositions:
                yield [
                    partial(_supposed, self._arithmetic, premise, number, each, apart)
                    for apart in (-1, 0, 1)
                ]
        starts = [_Sum(None, None, 0, number) for number in _distinct([0, *entry])]
        if AT in unknown:
            starts += [_Sum(AT), _Sum(AT, None, 0, 1)]
        ends = [*sums, *(_Sum(None, None, 0, number) for number in numbers)]
        facts = list(self._facts(unknown))
        at = self._arithmetic.position + shapes.origin
        for start in starts:
            for end in ends:
                for fact in facts:
                    yield [
                        partial(_between, at, self._arithmetic, start, end, more, fact)
                        for more in (1, 0)
                    ]

    def _relations(self, unknown: Values, entry: Sequence[Term], second: int) -> Iterator[Family]:
        """What two loops may have in common: equal numbers, truth values and items.

        ``second`` is the number of the first frame of the second execution.
        """
        here = self._arithmetic
        sides: tuple[list[Place], list[Place]] = ([], [])
        for place in unknown:
            of_second = place[1] == 1 if place[0] == _POSITION else place[0] >= second
            sides[of_second].append(place)
        facts: list[Candidate] = [
            partial(_alike, here, one, other)
            for one in sides[0]
            for other in sides[1]
            if _has_kind(unknown[one]) and _has_kind(unknown[one]) is _has_kind(unknown[other])
        ]
        numbers = [place for place, value in unknown.items() if is_number(value)]
        entries = _distinct([0, *entry])
        for one in numbers:
            for number in entries:
                yield [partial(_at_least, _Sum(one), number, apart) for apart in (1, 0, -1)]
                yield [partial(_at_most, _Sum(one), number, apart) for apart in (-1, 0, 1)]
        for one, other in combinations(numbers, 2):
            apart = _Sum(one, other, -1)
            for number in _distinct([*entries, 1, -1]):
                yield [partial(_at_least, apart, number, 0)]
                yield [partial(_at_most, apart, number, 0)]
        yield from ([fact] for fact in facts)
        facts += self._constants(unknown)
        starts = [_Sum(None, None, 0, number) for number in entries]
        starts += [_Sum(place) for place in numbers]
        for start in starts:
            for fact in facts:
                for origin in _distinct([0, self._shapes.origin]):
                    at = here.position + origin
                    yield [partial(_from, at, here, start, fact)]
                    yield [partial(_below_it, at, here, start, fact)]

    def _constants(self, unknown: Values) -> Iterator[Candidate]:
        """A value is one that many are first."""
        here = self._arithmetic
        for place, value in unknown.items():
            if isinstance(value, Block):
                yield partial(_is_block, place, (-1,))
            elif is_truth(value):
                yield partial(_equal, here, place, True)
                yield partial(_equal, here, place, False)

    def _facts(self, unknown: Values) -> Iterator[Candidate]:
        """What may hold at the arbitrary position."""
        here, facts, block = self._arithmetic, self._shapes.facts, self._shapes.block
        at = here.position if block is None else block
        for fact in facts:
            yield partial(_always, fact)
        for place, value in unknown.items():
            if isinstance(value, Block):
                yield partial(_is_block, place, (at,))
                yield partial(_is_block, place, (-1,))
                yield partial(_is_block, place, (-1, at))
            elif is_truth(value):
                for formula in (True, False, *facts):
                    yield partial(_equal, here, place, formula)


@dataclass(frozen=True)
class _Sum:
    """One place, the sum or difference of two, or a number."""

    one: Place | None
    other: Place | None = None
    times: int = 1
    number: Term = 0

    def __call__(self, values: Values) -> Term:
        total = self.number
        if self.one is not None:
            total = total + values[self.one]
        return total if self.other is None else total + self.times * values[self.other]


def _at_least(each: _Sum, number: Term, apart: int, values: Values) -> Formula:
    return each(values) - number >= apart


def _at_most(each: _Sum, number: Term, apart: int, values: Values) -> Formula:
    return each(values) - number <= apart


def _supposed(
    here: Arithmetic, premise: Formula, number: Term, each: _Sum, apart: int, values: Values
) -> Formula:
    return here.implies(premise, number - each(values) <= apart)


def _ends_segment(place: Place, less: Term, step: Term, values: Values) -> Formula:
    """Whether a run of blocks after the position ends on a segment edge, or has no block."""
    end = values[AT] + 1 + values[place] - less
    return (values[place] == 0) | (end % step == 0)


def _between(
    at: Term,
    here: Arithmetic,
    start: _Sum,
    end: _Sum,
    more: int,
    fact: Candidate,
    values: Values,
) -> Formula:
    inside = (start(values) <= at) & (at < end(values) + more)
    return here.implies(inside, fact(values))


def _always(fact: Formula, _values: Values) -> Formula:
    return fact


def _is_block(place: Place, blocks: tuple[Term, ...], values: Values) -> Formula:
    """Whether it is one of these blocks; what is beyond the end of a list is anything."""
    value = values[place]
    holds: Formula = False
    for block in blocks if isinstance(value, Block) else ():
        holds = holds | (value.place == block)
    return holds


def _equal(here: Arithmetic, place: Place, right: Formula, values: Values) -> Formula:
    """Whether two formulas are both true or both false."""
    return equal(here, values[place], right)


def _has_kind(value: Any) -> type | None:
    """The kind of values with which one may be equal; of numbers nothing is said here."""
    return Block if isinstance(value, Block) else bool if is_truth(value) else None


def _alike(here: Arithmetic, one: Place, other: Place, values: Values) -> Formula:
    """Whether two blocks or truth values are equal."""
    return equal(here, values.get(one), values.get(other))


def _from(at: Term, here: Arithmetic, start: _Sum, fact: Candidate, values: Values) -> Formula:
    return here.implies((0 <= here.position) & (start(values) <= at), fact(values))


def _below_it(at: Term, here: Arithmetic, end: _Sum, fact: Candidate, values: Values) -> Formula:
    return here.implies((0 <= here.position) & (at < end(values)), fact(values))


def _distinct(numbers: Sequence[Term]) -> list[Term]:
    return list({getattr(each, "key", each): each for each in numbers}.values())


def _numbered(arrivals: Sequence[Arrival]) -> list[tuple[int, Arrival]]:
    """The arrivals in a ``for`` loop, with their numbers."""
    return [(n, each) for n, each in enumerate(arrivals) if each.items is not None]


def _kind(place: Place, old: Any, new: Any) -> str:
    if place[-1] == "list":
        return "list"
    if place[-1] == "length":
        return "length"
    if is_number(old) and is_number(new):
        return "number"
    if is_truth(old) and is_truth(new):
        return "truth"
    beyond = place[-1] == "cell" and isinstance(old, Unknown)
    if isinstance(new, Block) and (beyond or isinstance(old, Block)):
        found = [each for each in (old, new) if isinstance(each, Block) and not is_same(each, NULL)]
        groups = {each.group for each in found}  # the null block is one of any group
        return "unknown" if len(groups) > 1 else f"block {max(groups, default=0)}"
    if isinstance(old, Listing) and isinstance(new, Listing):
        return "listing" if old.items is None and new.items is None else "unknown"
    return "truth" if beyond and is_truth(new) else "unknown"


def _beginning(one: tuple[bool, ...], other: tuple[bool, ...]) -> tuple[bool, ...]:
    """The decisions that two paths begin with."""
    same = takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False))
    return tuple(each for each, _ in same)


def _first_names(values: Values) -> dict[int, tuple[Place, bool]]:
    """The first place that holds each list or set, by identity, and whether it is of any length.

    Those that two paths have made are alike if they have the same names on both.
    """
    names: dict[int, tuple[Place, bool]] = {}
    for place, value in values.items():
        if isinstance(value, (Listing, Marks)):
            symbolic = isinstance(value, Listing) and value.items is None
            names.setdefault(id(value), (place, symbolic))
    return names


def _check_apart(loop: _Loop, values: Values) -> None:
    """Raise `Unsupported` where a list that a loop replaces has another name, too."""
    for place, kind in loop.kinds.items():
        if kind == "listing" and not _is_lost(loop, place):
            held = [p for p, v in values.items() if v is values.get(place) and p != place]
            if any(loop.kinds.get(p) != "unknown" and not _is_lost(loop, p) for p in held):
                raise Unsupported(f"{place[1]}, a list that has two names in a loop")


def _is_lost(loop: _Loop, place: Place) -> bool:
    """Whether a value is part of one that nothing is known about in the loop."""
    return any(
        loop.kinds.get(place[:length]) == "unknown" for length in range(_VARIABLE, len(place))
    )


def _is_symbol(value: Any) -> bool:
    return not isinstance(value, int) and (
        is_number(value) or is_truth(value) or isinstance(value, Block)
    )


def _shown(place: Place) -> str:
    return ".".join(map(str, (*place[1:], *place[:1])))


def _leaves(frames: Sequence[Frame]) -> Iterator[tuple[Place, _Leaf]]:
    """All values that variables hold, lists with their length and the item at the position."""
    seen: set[int] = set()
    for place, value, put in _roots(frames):
        yield from _below(place, value, put, seen)


def _roots(frames: Sequence[Frame]) -> Iterator[tuple[Place, Any, Callable[[Any], None]]]:
    for number, frame in enumerate(frames):
        for name in list(frame.variables):  # a list is named after the first that held it
            yield (
                (number, name),
                frame.variables[name],
                partial(frame.variables.__setitem__, name),
            )


def _below(
    place: Place, value: Any, put: Callable[[Any], None], seen: set[int]
) -> Iterator[tuple[Place, _Leaf]]:
    yield place, _Leaf(value, put)
    if id(value) in seen:
        return
    if isinstance(value, tuple):
        for number, each in enumerate(value):
            yield from _below((*place, number), each, _fixed, seen)
    elif isinstance(value, Marks):
        seen.add(id(value))
        for number, each in enumerate(value.members):
            yield (*place, number), _Leaf(each, partial(value.members.__setitem__, number))
    elif isinstance(value, Record):
        seen.add(id(value))
        for name, each in value.attributes.items():
            yield from _below((*place, name), each, _fixed, seen)
    elif isinstance(value, Entries):
        seen.add(id(value))
        for name, each in value.entries.items():
            yield from _below((*place, name), each, _fixed, seen)
    elif isinstance(value, Filled):
        seen.add(id(value))
        for name in ("low", "high", "cell"):
            yield (*place, name), _Leaf(getattr(value, name), partial(setattr, value, name))
    elif isinstance(value, Listing):
        seen.add(id(value))
        if value.items is not None:
            yield (*place, "list"), _Leaf(len(value.items), _fixed)
            for number, each in enumerate(value.items):
                put = partial(value.items.__setitem__, number)
                yield from _below((*place, number), each, put, seen)
        else:
            yield (*place, "length"), _Leaf(value.length, partial(setattr, value, "length"))
            yield (*place, "cell"), _Leaf(value.cell, partial(setattr, value, "cell"))
            if value.count is not None:
                yield (*place, "count"), _Leaf(value.count, partial(setattr, value, "count"))


def _fixed(_value: Any) -> None:
    raise Unsupported("a change of what a loop holds")
