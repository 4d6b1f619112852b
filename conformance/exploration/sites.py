"""What each instruction that may matter does to a lookup's state, looked at before it is done."""

import sys
from collections import defaultdict
from collections.abc import Callable, Container
from dis import Instruction
from types import CodeType, FrameType, FunctionType
from typing import TypeAlias

from hitproof.conformance.exploration import frames
from hitproof.conformance.exploration.bytecode import instructions, of_code
from hitproof.conformance.exploration.calls import LOCK, call, consumed, visited
from hitproof.conformance.exploration.canonical import is_computed_in_c, is_plain_class
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.exploration.symbolic import SymbolicBlock
from hitproof.conformance.exploration.values import (
    IMMUTABLE,
    SCALARS,
    holds_block,
    shows_address,
)

Site: TypeAlias = Callable[[Notes, FrameType], None]
"""What is noted before an instruction is done."""

_Make: TypeAlias = Callable[[Instruction, Instruction | None, CodeType], Site | None]

_NEWER = sys.version_info >= (3, 13)  # what is called comes first on the stack
_SINGLE = frozenset({type(None), bool, type(Ellipsis)})
_INNER = frozenset({"question", "index", "group_id", "is_null_block", "__class__", "_watch"})
"""Attributes by which a block could be told from another."""


@of_code
def sites_of(code: CodeType) -> dict[int, Site]:
    """What to do before which instruction of ``code``."""
    sites: dict[int, Site] = {}
    before, start = None, None
    for offset, instruction in instructions(code).items():
        if instruction.opname == "EXTENDED_ARG":  # done, and traced, as one with what follows
            start = offset if start is None else start
            continue
        make = _MAKERS.get(instruction.opname)
        site = make(instruction, before, code) if make is not None else None
        if site is not None:
            sites[offset] = sites[offset if start is None else start] = site
        before, start = instruction, None
    return sites


def _is(notes: Notes, frame: FrameType) -> None:
    one, other = frames.top(frame, 2)
    kinds = type(one), type(other)
    if kinds[0] in _SINGLE or kinds[1] in _SINGLE:
        return
    if any(kind in IMMUTABLE or issubclass(kind, SymbolicBlock) for kind in kinds):
        notes.refuse("it compares objects by identity")


def _equal(notes: Notes, frame: FrameType) -> None:
    one, other = frames.top(frame, 2)
    if (
        type(one) not in SCALARS
        and type(other) not in SCALARS
        and (holds_block(one) or holds_block(other))
    ):
        notes.refuse("it compares blocks")


def _contains(notes: Notes, frame: FrameType) -> None:
    needle, container = frames.top(frame, 2)
    kind = type(container)
    if kind in (dict, set, str, bytes, range, frozenset):
        return
    if holds_block(needle) or holds_block(container):
        notes.refuse("it compares blocks")
    consumed(notes, container)


def _changes(place: int) -> Site:
    """An instruction that changes the object at that place on the stack, 1 the uppermost."""

    def site(notes: Notes, frame: FrameType) -> None:
        notes.change(frames.top(frame, place)[0])

    return site


def _changes_in_place(notes: Notes, frame: FrameType) -> None:
    left, right = frames.top(frame, 2)
    if type(left) not in IMMUTABLE:
        notes.change(left)
        consumed(notes, right)


def _fills_in(notes: Notes, frame: FrameType) -> None:
    text, values = frames.top(frame, 2)
    if isinstance(text, str | bytes) and shows_address(values):
        notes.depend("it makes a text of an address")


def _iterates(notes: Notes, frame: FrameType) -> None:
    visited(notes, frames.top(frame, 1)[0])


def _consumes(notes: Notes, frame: FrameType) -> None:
    consumed(notes, frames.top(frame, 1)[0])


def _subscripts(notes: Notes, frame: FrameType) -> None:
    container = frames.top(frame, 2)[0]
    if isinstance(container, defaultdict):
        notes.change(container)
        if container.default_factory is not None:
            call(notes, container.default_factory, [])


def _changes_globals(notes: Notes, frame: FrameType) -> None:
    notes.change(frame.f_globals)


def _enters(notes: Notes, frame: FrameType) -> None:
    (manager,) = frames.top(frame, 1)
    if type(manager) is not LOCK and not is_plain_class(type(manager)):
        notes.depend(f"it enters a {type(manager).__qualname__}")


def _formats(place: int) -> Site:
    def site(notes: Notes, frame: FrameType) -> None:
        if shows_address(frames.top(frame, place)[0]):
            notes.depend("it makes a text of an address")

    return site


def _calls(arguments: int, more: int, code: CodeType) -> Site:
    places = arguments + more
    hashes = code.co_name == "__hash__"  # for C code, which shows it in the order of sets only

    def site(notes: Notes, frame: FrameType) -> None:
        first, second, *given = frames.top(frame, places)
        if _NEWER:
            called, given = first, given if second is frames.NULL else [second, *given]
        elif first is frames.NULL:
            called = second
        else:
            called, given = first, [second, *given]
        kind = type(called)
        if kind is not FunctionType and not (hashes and called is hash):
            call(notes, called, given)

    return site


def _calls_with_all(places: int) -> Site:
    def site(notes: Notes, frame: FrameType) -> None:
        values = frames.top(frame, places)
        called = values[0]
        positional = values[1 + _NEWER]
        given = list(positional) if type(positional) in (list, tuple) else [positional]
        visited(notes, positional)
        call(notes, called, given)

    return site


def _unless(site: Site, harmless: Container[type]) -> _Make:
    """The site, unless what comes before it puts a constant of those types on the stack."""

    def make(_: Instruction, before: Instruction | None, __: CodeType) -> Site | None:
        if before is None or before.opname != "LOAD_CONST":
            return site
        return None if type(before.argval) in harmless else site

    return make


def _always(site: Site) -> _Make:
    return lambda *_: site


def _if_in_place(instruction: Instruction, *_: object) -> Site | None:
    if instruction.argrepr.endswith("="):
        return _changes_in_place
    return _fills_in if instruction.argrepr == "%" else None


def _store_site(instruction: Instruction, *_: object) -> Site:
    name = instruction.argval

    def site(notes: Notes, frame: FrameType) -> None:
        value, obj = frames.top(frame, 2)
        notes.store(obj, name, value)

    return site


def _loads(instruction: Instruction, *_: object) -> Site:
    """An attribute is read, of whatever class."""
    name = instruction.argval
    inner = name in _INNER
    seen: set[type] = set()  # classes whose attribute of that name does no harm

    def site(notes: Notes, frame: FrameType) -> None:
        kind = type(frames.top(frame, 1)[0])
        if kind in seen:
            return
        if inner and issubclass(kind, SymbolicBlock):
            notes.refuse("it looks at what kind of block it has")
        elif is_computed_in_c(kind, name):
            notes.depend(f"it reads {kind.__qualname__}.{name}, which C code computes")
        else:
            seen.add(kind)

    return site


def _if_shared(instruction: Instruction, _: Instruction | None, code: CodeType) -> Site | None:
    """A variable of an outer function is set."""
    place = instruction.arg
    if instruction.argval not in code.co_freevars or place is None:
        return None
    return lambda notes, frame: notes.change(frames.cell(frame, place))


def _call_site(instruction: Instruction, _: Instruction | None, code: CodeType) -> Site:
    return _calls(instruction.arg or 0, 2 + (instruction.opname == "CALL_KW"), code)


def _call_all_site(instruction: Instruction, *_: object) -> Site:
    return _calls_with_all(2 + _NEWER + ((instruction.arg or 0) & 1))


def _format_site(instruction: Instruction, *_: object) -> Site:
    return _formats(2 if (instruction.arg or 0) & 4 else 1)


_MAKERS: dict[str, _Make] = {
    "IS_OP": _unless(_is, _SINGLE),
    "COMPARE_OP": _unless(_equal, SCALARS),
    "CONTAINS_OP": _always(_contains),
    "CALL": _call_site,
    "CALL_KW": _call_site,
    "CALL_FUNCTION_EX": _call_all_site,
    "STORE_ATTR": _store_site,
    "DELETE_ATTR": _always(_changes(1)),
    "STORE_SUBSCR": _always(_changes(2)),
    "DELETE_SUBSCR": _always(_changes(2)),
    "STORE_SLICE": _always(_changes(3)),
    "STORE_GLOBAL": _always(_changes_globals),
    "DELETE_GLOBAL": _always(_changes_globals),
    "STORE_DEREF": _if_shared,
    "DELETE_DEREF": _if_shared,
    "BINARY_OP": _if_in_place,
    "BINARY_SUBSCR": _always(_subscripts),
    "GET_ITER": _always(_iterates),
    "GET_YIELD_FROM_ITER": _always(_iterates),
    "LIST_EXTEND": _always(_iterates),
    "SET_UPDATE": _always(_consumes),
    "UNPACK_SEQUENCE": _always(_iterates),
    "UNPACK_EX": _always(_iterates),
    "BEFORE_WITH": _always(_enters),
    "FORMAT_VALUE": _format_site,
    "FORMAT_SIMPLE": _always(_formats(1)),
    "FORMAT_WITH_SPEC": _always(_formats(2)),
    "CONVERT_VALUE": _always(_formats(1)),
    "LOAD_ATTR": _loads,
    "LOAD_METHOD": _loads,
}
