"""What a lookup does between two questions, watched instruction by instruction.

Merging compares what a suspended run holds (`conformance.exploration.canonical`). That is enough if
nothing else decides what it does next. So each instruction is looked at before it is done that may

- change an object: those that it changes must be compared by value, or gone, when it asks again,
  and gone when it is finished. A lookup that changes what outlives it keeps state;
- call code that is not written in Python: only functions that depend on their arguments alone, and
  of which is known what they change, are let pass;
- tell block tables apart by what merging forgets, through ``is`` or an equality that asks ``is``.

What is let pass is listed; all else is a reason not to merge.
"""

import builtins
import functools
import gc
import itertools
import math
import operator
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container
from dis import Instruction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NewType, TypeAlias

from hitproof.conformance.exploration import frames
from hitproof.conformance.exploration.bytecode import instructions, is_generator
from hitproof.conformance.exploration.canonical import ITERATORS, PLAIN, is_plain_class
from hitproof.conformance.exploration.symbolic import SymbolicBlock

_Site: TypeAlias = Callable[["Watch", FrameType], None]

_Make: TypeAlias = Callable[[Instruction, Instruction | None, CodeType], _Site | None]

_NEWER = sys.version_info >= (3, 13)  # what is called comes first on the stack

_SCALARS = PLAIN | {float, complex}
_SINGLE = frozenset({type(None), bool, type(Ellipsis)})
_MUTABLE = frozenset({list, dict, set, bytearray, deque, defaultdict, OrderedDict})
_IMMUTABLE = _SCALARS | {tuple, frozenset, range, slice}

_READERS = frozenset(
    [
        "get",
        "keys",
        "values",
        "items",
        "copy",
        "index",
        "count",
        "issubset",
        "issuperset",
        "isdisjoint",
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
        "__len__",
        "__getitem__",
        "__contains__",
        "__iter__",
        "__reversed__",
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__sizeof__",
        "__reduce__",
        "__init_subclass__",
    ]
)
"""Methods of builtin containers that change nothing."""
_BY_IDENTITY = frozenset({"index", "count", "remove", "__contains__", "__eq__", "__ne__"})
"""Those that take an object for equal to itself without asking it."""

_LOCK = type(threading.RLock())
"""Locks that a thread may always enter again: with one thread they decide nothing."""

_PURE_TYPES: frozenset[type] = frozenset(
    {
        *(bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range, slice),
        *(zip, enumerate, reversed, map, filter, object, super, type, bytearray, memoryview),
        *(property, classmethod, staticmethod, deque, defaultdict, OrderedDict),
        functools.partial,
        *(each for each in vars(itertools).values() if isinstance(each, type)),
    }
)
_PURE_NAMES = (
    "abs all any ascii bin callable chr divmod format getattr hasattr hash hex isinstance "
    "issubclass iter len max min next oct ord pow repr round sorted sum vars"
)
_PURE = {id(getattr(builtins, name)) for name in _PURE_NAMES.split()}
_PURE |= {id(each) for each in vars(math).values() if callable(each)}
_PURE |= {
    id(each)
    for name, each in vars(operator).items()
    if callable(each) and name not in ("is_", "is_not") and not name.startswith(("i", "set", "del"))
}
_PURE |= {id(operator.itemgetter), id(operator.attrgetter), id(functools.reduce)}
# What `isinstance` and `issubclass` of an abstract class do; the memo decides nothing.
_PURE |= {
    id(getattr(sys.modules["_abc"], f"_abc_{name}check")) for name in ("instance", "subclass")
}
_CHANGES_FIRST = {id(each) for each in (setattr, delattr, operator.setitem, operator.delitem)}
_INNER = frozenset({"question", "index", "group_id", "is_null_block", "__class__", "_watch"})
"""Attributes by which a block could be told from another."""


class Watch:
    """Watches a run of what ``entry`` calls, once begun.

    Attributes:
        changed: the objects that were changed.
        reason: why states cannot be merged; "" while they can.
        depends: on what the lookup depends that no state has; "" while it does not.
    """

    def __init__(self, entry: CodeType) -> None:
        self._entry = entry
        self.changed: list[Any] = []
        self.reason = ""
        self.depends = ""
        self._active = False
        self._collects = False
        self._addresses: set[int] = set()
        self._memos: dict[int, tuple[Any, int]] = {}
        self._before = sys.gettrace()
        self._tracers: dict[CodeType, Any] = {}

    def begin(self, innermost: FrameType | None = None) -> None:
        """Watch from now on, beside what will be called the frames from ``innermost`` outwards."""
        self._active = True
        self._collects = gc.isenabled()
        gc.disable()  # it would run callbacks and finalizers that are not the lookup's
        if innermost is None:
            self.resume()
        while innermost is not None and innermost.f_code is not self._entry:
            if innermost.f_code not in UNWATCHED:
                innermost.f_trace = self._follow(innermost)
            innermost = innermost.f_back

    def resume(self) -> None:
        """Go on watching, once begun."""
        if self._active:
            sys.settrace(self._entered)

    def pause(self) -> None:
        """Stop watching for now."""
        sys.settrace(None)

    def end(self) -> None:
        """Watch no longer; whoever traced before goes on."""
        self._active = False
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        if frame.f_code.co_filename in _OURS or frame.f_code in UNWATCHED:
            return None
        if is_generator(frame.f_code):
            self.change(frame)
        return self._follow(frame)

    def _follow(self, frame: FrameType) -> Any:
        code = frame.f_code
        known = self._tracers.get(code)
        if known is not None:
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
            return known
        sites = _sites(code)
        if not sites:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        find = sites.get

        def follow(running: FrameType, event: str, argument: Any) -> Any:
            del argument
            site = find(running.f_lasti)
            if site is not None and event == "opcode":
                site(self, running)
            return follow

        self._tracers[code] = follow
        return follow

    def change(self, obj: Any) -> None:
        """Note that an object is changed."""
        if id(obj) not in self._addresses:
            self._addresses.add(id(obj))
            self.changed.append(obj)

    def refuse(self, reason: str) -> None:
        """Note why states cannot be merged."""
        self.reason = self.reason or reason

    def depend(self, reason: str) -> None:
        """Note on what the lookup depends that no state has."""
        self.depends = self.depends or reason

    def memo(self, function: Any) -> None:
        """Note a call of a function with a memo, which changes it when the answer is new."""
        self._memos.setdefault(id(function), (function, function.cache_info().misses))

    def outliving(self, walked: Container[int]) -> Any:
        """An object that was changed, is not among the ``walked`` addresses, and still exists.

        Returns None if there is none. What is gone is forgotten.
        """
        for function, misses in self._memos.values():
            if function.cache_info().misses != misses:
                return function
        progress = True
        while progress:
            progress = False
            for place in range(len(self.changed) - 1, -1, -1):
                obj = self.changed[place]
                if id(obj) in walked:
                    continue
                if sys.getrefcount(obj) <= _UNUSED:
                    self._addresses.discard(id(obj))
                    del obj, self.changed[place]
                    progress = True
        return next((each for each in self.changed if id(each) not in walked), None)


UNWATCHED: set[CodeType] = set()
"""Code of hitproof's own between the entry and the target."""

_UNUSED = 3  # ours: the list's, the variable's and the argument's

_OURS = frozenset(map(str, Path(__file__).parent.glob("*.py")))
"""Files whose code is not the lookup's."""


@functools.cache
def _sites(code: CodeType) -> dict[int, _Site]:
    """What to do before which instruction of ``code``."""
    sites: dict[int, _Site] = {}
    before = None
    for offset, instruction in instructions(code).items():
        make = _MAKERS.get(instruction.opname)
        site = make(instruction, before, code) if make is not None else None
        if site is not None:
            sites[offset] = site
        if instruction.opname != "EXTENDED_ARG":
            before = instruction
    return sites


def _is(watch: Watch, frame: FrameType) -> None:
    one, other = frames.top(frame, 2)
    kinds = type(one), type(other)
    if kinds[0] in _SINGLE or kinds[1] in _SINGLE:
        return
    if any(kind in _IMMUTABLE or issubclass(kind, SymbolicBlock) for kind in kinds):
        watch.refuse("it compares objects by identity")


def _equal(watch: Watch, frame: FrameType) -> None:
    one, other = frames.top(frame, 2)
    if type(one) not in _SCALARS and type(other) not in _SCALARS and (_holds(one) or _holds(other)):
        watch.refuse("it compares blocks")


def _contains(watch: Watch, frame: FrameType) -> None:
    needle, container = frames.top(frame, 2)
    kind = type(container)
    if kind in (dict, set, str, bytes, range, frozenset):
        return
    if _holds(needle) or _holds(container):
        watch.refuse("it compares blocks")
    _consumed(watch, container)


def _holds(obj: Any, depth: int = 4) -> bool:
    """Whether the object is a block or has one."""
    kind = type(obj)
    if issubclass(kind, SymbolicBlock):
        return True
    if depth and issubclass(kind, list | tuple | dict | deque):
        entries = obj.values() if issubclass(kind, dict) else obj
        return any(_holds(each, depth - 1) for each in entries if type(each) not in _SCALARS)
    return False


def _consumed(watch: Watch, obj: Any) -> None:
    """An object is iterated over, which moves it if it is an iterator."""
    kind = type(obj)
    if kind in _IMMUTABLE or kind in _MUTABLE:
        return
    if kind in ITERATORS or (hasattr(kind, "__next__") and kind is not types.GeneratorType):
        watch.change(obj)


def _changes(place: int) -> _Site:
    """An instruction that changes the object at that place on the stack, 1 the uppermost."""

    def site(watch: Watch, frame: FrameType) -> None:
        watch.change(frames.top(frame, place)[0])

    return site


def _changes_in_place(watch: Watch, frame: FrameType) -> None:
    left, right = frames.top(frame, 2)
    if type(left) not in _IMMUTABLE:
        watch.change(left)
        _consumed(watch, right)


def _iterates(watch: Watch, frame: FrameType) -> None:
    _consumed(watch, frames.top(frame, 1)[0])


def _subscripts(watch: Watch, frame: FrameType) -> None:
    container = frames.top(frame, 2)[0]
    if type(container) is defaultdict:
        watch.change(container)


def _changes_globals(watch: Watch, frame: FrameType) -> None:
    watch.change(frame.f_globals)


def _enters(watch: Watch, frame: FrameType) -> None:
    (manager,) = frames.top(frame, 1)
    if type(manager) is not _LOCK and not is_plain_class(type(manager)):
        watch.depend(f"it enters a {type(manager).__qualname__}")


def _formats(place: int) -> _Site:
    def site(watch: Watch, frame: FrameType) -> None:
        if _shows_address(frames.top(frame, place)[0]):
            watch.depend("it makes a text of an address")

    return site


def _shows_address(obj: Any) -> bool:
    kind = type(obj)
    if kind in _SCALARS:
        return False
    if kind in (list, tuple):
        return any(_shows_address(each) for each in obj)
    return all(getattr(kind, name) is getattr(object, name) for name in ("__str__", "__repr__"))


def _reads_inside(watch: Watch, frame: FrameType) -> None:
    if isinstance(frames.top(frame, 1)[0], SymbolicBlock):
        watch.refuse("it looks at what kind of block it has")


def _calls(arguments: int, more: int) -> _Site:
    places = arguments + more

    def site(watch: Watch, frame: FrameType) -> None:
        first, second, *given = frames.top(frame, places)
        if _NEWER:
            called, given = first, given if second is frames.NULL else [second, *given]
        elif first is frames.NULL:
            called = second
        else:
            called, given = first, [second, *given]
        kind = type(called)
        if kind is not types.FunctionType and kind is not types.MethodType:
            _call(watch, called, given)

    return site


def _calls_with_all(places: int) -> _Site:
    def site(watch: Watch, frame: FrameType) -> None:
        values = frames.top(frame, places)
        called = values[0]
        positional = values[1 + _NEWER]
        given = list(positional) if type(positional) in (list, tuple) else [positional]
        _call(watch, called, given)

    return site


def _call(watch: Watch, called: Any, given: list[Any]) -> None:
    """A call of something that may not be written in Python."""
    kind = type(called)
    if kind in (types.FunctionType, types.MethodType, NewType):  # which gives its argument back
        return
    if isinstance(called, type):
        _call_type(watch, called, given)
    elif kind is types.BuiltinFunctionType:
        _call_builtin(watch, called, given)
    elif kind is types.MethodDescriptorType and given:
        _call_method(watch, called.__objclass__, called.__name__, given[0], given[1:])
    elif kind is types.MethodWrapperType:
        _call_method(watch, called.__objclass__, called.__name__, called.__self__, given)
    elif kind is types.WrapperDescriptorType and given:
        _call_method(watch, called.__objclass__, called.__name__, given[0], given[1:])
    elif kind is functools.partial:
        _call(watch, called.func, [*called.args, *given])
    elif kind is functools._lru_cache_wrapper:
        watch.memo(called)
    elif not _is_called_in_python(kind) and id(called) not in _PURE:
        watch.depend(f"it calls {_name(called)}")


def _is_called_in_python(kind: type) -> bool:
    return any(
        isinstance(vars(base)["__call__"], types.FunctionType)
        for base in kind.__mro__
        if "__call__" in vars(base)
    )


def _are_blocks(given: list[Any]) -> bool:
    """Whether one of them is a block."""
    for each in given:
        kind = type(each)
        if kind not in _IMMUTABLE and issubclass(kind, SymbolicBlock):
            return True
    return False


def _call_type(watch: Watch, called: type, given: list[Any]) -> None:
    if _are_blocks(given):
        watch.refuse("it looks at what kind of block it has")
    elif called in _PURE_TYPES or issubclass(called, BaseException):
        for each in given:
            _consumed(watch, each)
            if called in (str, bytes) and _shows_address(each):
                watch.depend("it makes a text of an address")
    elif not is_plain_class(called) and not _is_called_in_python(type(called)):
        watch.depend(f"it calls {called.__qualname__}")


def _call_builtin(watch: Watch, called: Any, given: list[Any]) -> None:
    owner = called.__self__
    if isinstance(owner, types.ModuleType) or owner is None:
        if _are_blocks(given):
            watch.refuse(f"it gives a block to {called.__name__}")
        if id(called) in _CHANGES_FIRST:
            watch.change(given[0])
        elif id(called) not in _PURE:
            watch.depend(f"it calls {_name(called)}")
        elif called.__name__ == "hash" and type(given[0]) not in _IMMUTABLE:
            watch.depend("it hashes an address")
        elif called.__name__ in ("repr", "format", "ascii") and _shows_address(given[0]):
            watch.depend("it makes a text of an address")
        for each in given:
            _consumed(watch, each)
            if called.__name__ == "next":
                watch.change(each)
    elif isinstance(owner, type):
        if called.__name__ not in ("__new__", "fromkeys", "__init_subclass__", "from_bytes"):
            watch.depend(f"it calls {_name(called)}")
    else:
        _call_method(watch, type(owner), called.__name__, owner, given)


def _call_method(watch: Watch, kind: type, name: str, owner: Any, given: list[Any]) -> None:
    """A call of a method of a builtin type."""
    for each in given:
        _consumed(watch, each)
    if name in _BY_IDENTITY and (_holds(owner) or any(map(_holds, given))):
        watch.refuse("it compares blocks")
    if name in ("__init__", "__new__") or kind in _IMMUTABLE or kind is type:
        return
    if kind is _LOCK and name == "__exit__":
        return
    if kind in _MUTABLE or kind in ITERATORS or kind is types.GeneratorType:
        if name not in _READERS:
            watch.change(owner)
    elif kind is object and name in ("__setattr__", "__delattr__"):
        watch.change(owner)
    elif kind is not object or name not in ("__getattribute__", "__eq__", "__ne__"):
        watch.depend(f"it calls {kind.__qualname__}.{name}")


def _name(called: Any) -> str:
    name = getattr(called, "__qualname__", "")
    module = getattr(called, "__module__", None)
    return f"{module}.{name}" if module and name else name or f"a {type(called).__qualname__}"


def _unless(site: _Site, harmless: Container[type]) -> _Make:
    """The site, unless what comes before it puts a constant of those types on the stack."""

    def make(_: Instruction, before: Instruction | None, __: CodeType) -> _Site | None:
        if before is None or before.opname != "LOAD_CONST":
            return site
        return None if type(before.argval) in harmless else site

    return make


def _always(site: _Site) -> _Make:
    return lambda *_: site


def _if_in_place(instruction: Instruction, *_: object) -> _Site | None:
    return _changes_in_place if instruction.argrepr.endswith("=") else None


def _if_inside(instruction: Instruction, *_: object) -> _Site | None:
    return _reads_inside if instruction.argval in _INNER else None


def _if_shared(instruction: Instruction, _: Instruction | None, code: CodeType) -> _Site | None:
    """A variable of an outer function is set."""
    place = instruction.arg
    if instruction.argval not in code.co_freevars or place is None:
        return None
    return lambda watch, frame: watch.change(frames.cell(frame, place))


def _call_site(instruction: Instruction, *_: object) -> _Site:
    return _calls(instruction.arg or 0, 2 + (instruction.opname == "CALL_KW"))


def _call_all_site(instruction: Instruction, *_: object) -> _Site:
    return _calls_with_all(2 + _NEWER + ((instruction.arg or 0) & 1))


def _format_site(instruction: Instruction, *_: object) -> _Site:
    return _formats(2 if (instruction.arg or 0) & 4 else 1)


_MAKERS: dict[str, _Make] = {
    "IS_OP": _unless(_is, _SINGLE),
    "COMPARE_OP": _unless(_equal, _SCALARS),
    "CONTAINS_OP": _always(_contains),
    "CALL": _call_site,
    "CALL_KW": _call_site,
    "CALL_FUNCTION_EX": _call_all_site,
    "STORE_ATTR": _always(_changes(1)),
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
    "LIST_EXTEND": _always(_iterates),
    "SET_UPDATE": _always(_iterates),
    "UNPACK_SEQUENCE": _always(_iterates),
    "UNPACK_EX": _always(_iterates),
    "BEFORE_WITH": _always(_enters),
    "FORMAT_VALUE": _format_site,
    "FORMAT_SIMPLE": _always(_formats(1)),
    "LOAD_ATTR": _if_inside,
    "LOAD_METHOD": _if_inside,
}
