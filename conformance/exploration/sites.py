"""The table of instructions: what is looked at before each of them is done.

Those that move values, or make containers of them, are done unseen. What is in no row is a reason
not to merge: so nothing that handles exceptions is merged, since the one that is handled is on no
stack.
"""

import sys
from collections.abc import Callable, Container
from dis import Instruction
from types import CodeType, FrameType, FunctionType, MethodType, UnionType
from typing import Any, TypeAlias

from hitproof.conformance.exploration import frames
from hitproof.conformance.exploration.attributes import is_readable
from hitproof.conformance.exploration.bytecode import instructions, of_code
from hitproof.conformance.exploration.calls import LOCK, call, iterated
from hitproof.conformance.exploration.canonical import METACLASSES, is_enumeration, is_plain_class
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.exploration.symbolic import OF_POOLS, SymbolicBlock, SymbolicPool
from hitproof.conformance.exploration.values import (
    CONTAINERS,
    NUMBERS,
    SCALARS,
    has_text,
    holds_block,
    is_known,
)

Site: TypeAlias = Callable[[Notes, FrameType], None]
"""What is noted before an instruction is done."""

_Make: TypeAlias = Callable[[Instruction, Instruction | None, CodeType], Site | None]

_NEWER = sys.version_info >= (3, 13)  # what is called comes first on the stack
_SINGLE = frozenset({type(None), bool, type(Ellipsis)})
_OF_BLOCKS = frozenset({"block_id", "is_null"})
"""Attributes of blocks that say when they are read, and those that vLLM's have."""
_NAMED = object()
"""What stands for arguments whose names are not known."""


@of_code
def sites_of(code: CodeType) -> dict[int, Site]:
    """What to do before which instruction of ``code``."""
    sites: dict[int, Site] = {}
    before, start = None, None
    for offset, instruction in instructions(code).items():
        if instruction.opname == "EXTENDED_ARG":  # done, and traced, as one with what follows
            start = offset if start is None else start
            continue
        make = _ALLOWED.get(instruction.opname, _not_allowed)
        site = make(instruction, before, code) if make is not None else None
        if site is not None:
            sites[offset] = sites[offset if start is None else start] = site
        before, start = instruction, None
    return sites


def _not_allowed(instruction: Instruction, *_: object) -> Site:
    reason = f"it does {instruction.opname}"
    return lambda notes, _: notes.refuse(reason)


def _is(notes: Notes, frame: FrameType) -> None:
    one, other = map(type, frames.top(frame, 2))
    if one in _SINGLE or other in _SINGLE:
        return
    if not (_is_one_object(one) and _is_one_object(other)):
        notes.refuse("it compares objects by identity")


def _is_one_object(kind: type) -> bool:
    """Whether states show which object of that type it is.

    For objects compared by value, they do not show whether the lookup has made the object.
    """
    return kind is object or kind in METACLASSES or is_enumeration(kind)


def _compares(notes: Notes, frame: FrameType) -> None:
    pair = frames.top(frame, 2)
    if type(pair[0]) in SCALARS and type(pair[1]) in SCALARS:
        return
    if any(map(holds_block, pair)):
        # A scalar is equal to no block, and to no list of blocks.
        if type(pair[0]) not in SCALARS and type(pair[1]) not in SCALARS:
            notes.refuse("it compares blocks")
    elif not all(map(is_known, pair)):
        notes.depend(f"it compares a {_unknown(pair)}")


def _contains(notes: Notes, frame: FrameType) -> None:
    needle, container = frames.top(frame, 2)
    if type(needle) in SCALARS and type(container) in (dict, set, frozenset, str, bytes, range):
        return
    if holds_block(needle) or holds_block(container):
        notes.refuse("it compares blocks")
    elif not (is_known(needle) and is_known(container)):
        notes.depend(f"it looks for something in a {_unknown((needle, container))}")


def _computes(places: int) -> Site:
    """An operator of numbers, of sequences or of objects of classes written in Python."""

    def site(notes: Notes, frame: FrameType) -> None:
        operands = frames.top(frame, places)
        for each in operands:
            if type(each) not in NUMBERS:
                break
        else:
            return
        for each in operands:
            kind = type(each)
            if kind in (list, tuple) or (kind in SCALARS and not _is_template(operands)):
                continue
            if not is_plain_class(kind) and kind not in METACLASSES and kind is not UnionType:
                notes.depend(f"it computes with a {kind.__qualname__}")

    return site


_computes_with_two = _computes(2)


def _is_template(operands: list[Any]) -> bool:
    """Whether ``%`` fills a text with a value of which it makes a text."""
    return type(operands[0]) in (str, bytes) and not has_text(operands[-1])


def _computes_in_place(notes: Notes, frame: FrameType) -> None:
    left, right = frames.top(frame, 2)
    if type(left) is list:
        notes.change(left)
        iterated(notes, right) if type(right) is not int else None
    elif type(left) not in SCALARS and type(left) is not tuple:
        notes.change(left)
        if not is_plain_class(type(left)):
            notes.depend(f"it changes a {type(left).__qualname__}")
    else:
        _computes_with_two(notes, frame)


def _truth(notes: Notes, frame: FrameType) -> None:
    (obj,) = frames.top(frame, 1)
    kind = type(obj)
    if kind in SCALARS or kind in CONTAINERS or is_plain_class(kind):
        return
    if hasattr(kind, "__bool__") or hasattr(kind, "__len__"):
        notes.depend(f"it asks whether a {kind.__qualname__} is true")


def _unknown(objects: Any) -> str:
    return next(type(each).__qualname__ for each in objects if not is_known(each))


def _subscripts(count: int, changes: bool) -> Site:
    """An entry is read, set or deleted: the container is the first of ``count`` values."""

    def site(notes: Notes, frame: FrameType) -> None:
        container, *keys = frames.top(frame, count)
        kind = type(container)
        if changes:
            notes.change(container)
        if any(map(holds_block, keys)):
            notes.refuse("it looks into blocks")
        elif not all(map(is_known, keys)):
            notes.depend(f"it looks up a {_unknown(keys)}")
        elif kind in METACLASSES and not changes:
            return  # as in an annotation
        elif kind not in (list, tuple, dict, str, bytes, range) and not is_plain_class(kind):
            notes.depend(f"it looks into a {kind.__qualname__}")

    return site


def _stores_entry(count: int) -> Site:
    """An entry is set: the value is below the container, and is not looked at."""
    looks = _subscripts(count - 1, True)

    def site(notes: Notes, frame: FrameType) -> None:
        if count == 4 and (value := frames.top(frame, 4)[0]) is not None:
            iterated(notes, value)
        elif type(frames.top(frame, 1)[0]) is slice:
            iterated(notes, frames.top(frame, 3)[0])
        looks(notes, frame)

    return site


def _changes_globals(notes: Notes, frame: FrameType) -> None:
    notes.change(frame.f_globals)


def _enters(notes: Notes, frame: FrameType) -> None:
    (manager,) = frames.top(frame, 1)
    if type(manager) is not LOCK and not is_plain_class(type(manager)):
        notes.depend(f"it enters a {type(manager).__qualname__}")


def _iterates(notes: Notes, frame: FrameType) -> None:
    iterated(notes, frames.top(frame, 1)[0])


def _merges(notes: Notes, frame: FrameType) -> None:
    (mapping,) = frames.top(frame, 1)
    if type(mapping) is not dict:
        notes.depend(f"it takes arguments out of a {type(mapping).__qualname__}")


def _formats(place: int) -> Site:
    def site(notes: Notes, frame: FrameType) -> None:
        if not has_text(frames.top(frame, place)[0]):
            notes.depend("it makes a text of an address")

    return site


def _calls(arguments: int, more: int, code: CodeType) -> Site:
    places = arguments + more
    hashes = code.co_name == "__hash__"

    def site(notes: Notes, frame: FrameType) -> None:
        first, second, *given = frames.top(frame, places)
        if _NEWER:
            called, given = first, given if second is frames.NULL else [second, *given]
        elif first is frames.NULL:
            called = second
        else:
            called, given = first, [second, *given]
        kind = type(called)
        if kind is not FunctionType and not (hashes and called is hash and _is_for_c(frame)):
            call(notes, called, given)

    return site


def _is_for_c(frame: FrameType) -> bool:
    """Whether a frame gives what it calls for to C code; a hash shows in the order of sets only."""
    after = [at for at in instructions(frame.f_code) if at > frame.f_lasti]
    caller = frame.f_back
    if not after or caller is None or frames.is_direct_call(caller, frame):
        return False
    return instructions(frame.f_code)[after[0]].opname == "RETURN_VALUE"


def _calls_with_all(places: int) -> Site:
    def site(notes: Notes, frame: FrameType) -> None:
        values = frames.top(frame, places)
        called = values[0]
        positional, *named = values[1 + _NEWER :]
        iterated(notes, positional)
        given = list(positional) if type(positional) in (list, tuple) else [positional]
        if any(named) and type(called) not in (FunctionType, MethodType):
            given.append(_NAMED)  # which no row allows
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


def _operator(instruction: Instruction, *_: object) -> Site:
    return _computes_in_place if instruction.argrepr.endswith("=") else _computes_with_two


def _truth_site(_: Instruction, before: Instruction | None, __: CodeType) -> Site | None:
    known = before is not None and before.opname in ("COMPARE_OP", "CONTAINS_OP", "IS_OP")
    return None if known else _truth


def _store_site(instruction: Instruction, *_: object) -> Site:
    name = instruction.argval

    def site(notes: Notes, frame: FrameType) -> None:
        value, obj = frames.top(frame, 2)
        notes.store(obj, name, value)
        _refuse_odd(notes, obj, name)

    return site


def _delete_site(instruction: Instruction, *_: object) -> Site:
    name = instruction.argval

    def site(notes: Notes, frame: FrameType) -> None:
        (obj,) = frames.top(frame, 1)
        notes.change(obj)
        _refuse_odd(notes, obj, name)

    return site


def _refuse_odd(notes: Notes, obj: Any, name: str) -> None:
    """A function, say, has attributes that are not compared."""
    if not is_plain_class(type(obj)) or (name.startswith("__") and name.endswith("__")):
        notes.refuse(f"it stores {name} on a {type(obj).__qualname__}")


def _loads(instruction: Instruction, *_: object) -> Site:
    """An attribute is read, of whatever class."""
    name = instruction.argval
    seen: set[Any] = set()  # classes whose attribute of that name does no harm

    def site(notes: Notes, frame: FrameType) -> None:
        obj = frames.top(frame, 1)[0]
        kind = type(obj)
        if kind in seen:
            return
        if name not in _OF_BLOCKS and issubclass(kind, SymbolicBlock):
            notes.refuse("it looks at what kind of block it has")
        elif issubclass(kind, SymbolicPool) and name not in OF_POOLS:
            notes.depend(f"it reads {name} of the pool")
        elif not is_readable(obj, name):
            notes.depend(f"it reads {kind.__qualname__}.{name}, which C code computes")
        elif kind is not super and not issubclass(kind, type):
            seen.add(kind)

    return site


def _loads_of_super(instruction: Instruction, *_: object) -> Site:
    name = instruction.argval

    def site(notes: Notes, frame: FrameType) -> None:
        called, _, obj = frames.top(frame, 3)
        if called is not super or not is_readable(obj, name):
            notes.depend(f"it reads {name} of what is above a {type(obj).__qualname__}")

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


def _intrinsic(instruction: Instruction, *_: object) -> Site | None:
    if instruction.argrepr in ("INTRINSIC_LIST_TO_TUPLE", "INTRINSIC_STOPITERATION_ERROR"):
        return None
    return _not_allowed(instruction)


_UNSEEN = (
    "NOP CACHE RESUME PRECALL KW_NAMES PUSH_NULL POP_TOP COPY SWAP COPY_FREE_VARS MAKE_CELL "
    "LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST STORE_FAST "
    "STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST DELETE_FAST LOAD_DEREF LOAD_CLOSURE LOAD_GLOBAL "
    "LOAD_ASSERTION_ERROR RETURN_VALUE RETURN_CONST RETURN_GENERATOR YIELD_VALUE SEND END_SEND "
    "JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT POP_JUMP_FORWARD_IF_NONE "
    "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE "
    "POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE FOR_ITER END_FOR BUILD_LIST BUILD_TUPLE BUILD_SLICE "
    "BUILD_STRING BUILD_MAP BUILD_CONST_KEY_MAP BUILD_SET LIST_APPEND SET_ADD MAP_ADD "
    "LIST_TO_TUPLE MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE RAISE_VARARGS"
)
"""Instructions that move values, make containers of them, or jump by a value that is single."""
_JUMPS = (
    "POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE "
    "POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE JUMP_IF_TRUE_OR_POP "
    "JUMP_IF_FALSE_OR_POP UNARY_NOT TO_BOOL"
)

_ALLOWED: dict[str, _Make | None] = {
    **dict.fromkeys(_UNSEEN.split()),
    **dict.fromkeys(_JUMPS.split(), _truth_site),
    "IS_OP": _unless(_is, _SINGLE),
    "COMPARE_OP": _always(_compares),
    "CONTAINS_OP": _always(_contains),
    "BINARY_OP": _operator,
    "UNARY_NEGATIVE": _always(_computes(1)),
    "UNARY_INVERT": _always(_computes(1)),
    "UNARY_POSITIVE": _always(_computes(1)),
    "CALL": _call_site,
    "CALL_KW": _call_site,
    "CALL_FUNCTION_EX": _call_all_site,
    "CALL_INTRINSIC_1": _intrinsic,
    "LOAD_ATTR": _loads,
    "LOAD_METHOD": _loads,
    "LOAD_SUPER_ATTR": _loads_of_super,
    "STORE_ATTR": _store_site,
    "DELETE_ATTR": _delete_site,
    "BINARY_SUBSCR": _always(_subscripts(2, False)),
    "BINARY_SLICE": _always(_subscripts(3, False)),
    "DELETE_SUBSCR": _always(_subscripts(2, True)),
    "STORE_SUBSCR": _always(_stores_entry(3)),
    "STORE_SLICE": _always(_stores_entry(4)),
    "STORE_GLOBAL": _always(_changes_globals),
    "DELETE_GLOBAL": _always(_changes_globals),
    "STORE_DEREF": _if_shared,
    "DELETE_DEREF": _if_shared,
    "GET_ITER": _always(_iterates),
    "GET_YIELD_FROM_ITER": _always(_iterates),
    "LIST_EXTEND": _always(_iterates),
    "SET_UPDATE": _always(_iterates),
    "UNPACK_SEQUENCE": _always(_iterates),
    "UNPACK_EX": _always(_iterates),
    "DICT_UPDATE": _always(_merges),
    "DICT_MERGE": _always(_merges),
    "BEFORE_WITH": _always(_enters),
    "FORMAT_VALUE": _format_site,
    "FORMAT_SIMPLE": _always(_formats(1)),
    "FORMAT_WITH_SPEC": _always(_formats(2)),
    "CONVERT_VALUE": _always(_formats(1)),
}
"""What makes the site of an instruction; None for those that are done unseen."""
