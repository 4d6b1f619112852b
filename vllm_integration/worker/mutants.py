"""The code that the self-test mutates, by family; its names are in ``mutants.toml``.

Single points are changed in lookups, masks, ``cache_blocks`` and what they call by name. Structured
faults are put in everything that the gate judges: what a scheduler calls of ``KVCacheManager``, the
managers, coordinator and pool behind it, and the hashes of requests. For the family of schedulers
single points are changed where a scheduler decides how many tokens a step computes, and where
start-up derives groups, block sizes and the pool; for that of lifecycles, where it does something
with requests before and after a step; for that of tiers, where the Mooncake store's
coordinator and the offloading scheduler look up, store and load.
"""

import hashlib
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hitproof.conformance.mutation import Change, Mutant, mutants
from hitproof.conformance.structured.faults import faults
from hitproof.conformance.structured.scopes import Vocabulary
from hitproof.vllm_integration.adapter.groups import NAMES
from hitproof.vllm_integration.families import Family

_TOLD: dict[str, Any] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""Names and patterns of the target's code."""

CHANGES = frozenset(Change) - {Change.ARGUMENTS, Change.FIELD}
"""The kinds of change. Wrong arguments mostly raise TypeError, which says little about checks."""

_CORE = "vllm.v1.core."

_MOST = 1
_MOST_BESIDE = 4
"""Structured faults of one kind in one function: in general, and in those that known divergences
are about."""


def _pattern(alternatives: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(alternatives))


_CHUNKS, _ELSEWHERE = (_pattern(_TOLD[name]) for name in ("chunks", "elsewhere"))
_LEFT_OUT = {
    Family.LIFECYCLE: _pattern(_TOLD["not_of_requests"]),
    Family.TIERS: _pattern(_TOLD["not_in_tiers"]),
}
"""Statements of these families that nothing that is judged depends on."""
_PATTERNS = ("unjudged", "certain", "never_at_first", "idempotent")


def _vocabulary(told: Mapping[str, Any]) -> Vocabulary:
    patterns: dict[str, Any] = {name: _pattern(told[name]) for name in _PATTERNS}
    patterns["never"] = {name: _pattern(each) for name, each in told["never"].items()}
    return Vocabulary(**{**told, **patterns})


def looks_up(family: Family, function: FunctionType) -> bool:
    """Whether a function of a tier looks up, or says what is stored and loaded."""
    return family is Family.TIERS and function.__name__ in _TOLD["looking_up"]


def sampled(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """``count`` of the mutants, chosen by a hash of their text, in their order."""

    def rank(number: int) -> str:
        return hashlib.sha256(f"{seed} {found[number].name}".encode()).hexdigest()

    return [found[number] for number in sorted(sorted(range(len(found)), key=rank)[:count])]


def of_target(family: Family, beside: Collection[str] = ()) -> list[Mutant]:
    """The mutants of the target, without duplicates.

    ``beside`` are functions, by qualified name, that known divergences are about; they get more
    structured faults.
    """
    wanted: dict[str, set[str]] = {}
    for function in _FUNCTIONS[family]():
        wanted.setdefault(function.__module__, set()).add(function.__qualname__)
    found: list[Mutant] = []
    for module, names in wanted.items():
        codes: dict[FunctionType, list[CodeType]] = {}
        for mutant in _made(family, module, names, beside):
            same = codes.setdefault(mutant.function, [mutant.function.__code__])
            fits = len(mutant.code.co_freevars) == len(mutant.function.__code__.co_freevars)
            if fits and mutant.code not in same:
                same.append(mutant.code)
                found.append(mutant)
    return found


def _made(
    family: Family, module: str, names: Collection[str], beside: Collection[str]
) -> Iterator[Mutant]:
    if family is Family.STRUCTURED:
        sources = [inspect.getsource(_module(name)) for name in _MODULES]
        vocabulary = replace(_vocabulary(_TOLD["vocabulary"]), sources=sources)
        wanted = {name: _MOST_BESIDE if name in beside else _MOST for name in names}
        yield from faults(sys.modules[module], wanted, vocabulary)
        return
    for mutant in mutants(sys.modules[module], names):
        judged = family is not Family.SCHEDULER or decides(mutant.function.__name__, mutant.before)
        left_out = _LEFT_OUT.get(family)
        if left_out is not None:
            judged = left_out.search(mutant.before) is None
        if mutant.change in CHANGES and judged:
            yield mutant


def decides(function: str, statement: str) -> bool:
    """Whether a statement of a scheduler or of start-up decides what histories can show.

    Of ``schedule`` only what is about the number of tokens that are computed.
    """
    in_chunks = function != "schedule" or _CHUNKS.search(statement) is not None
    return in_chunks and _ELSEWHERE.search(statement) is None


_MODULES = (
    "kv_cache_interface",
    "request",
    "core.kv_cache_utils",
    "core.block_pool",
    "core.single_type_kv_cache_manager",
    "core.kv_cache_coordinator",
    "core.kv_cache_manager",
)


def _module(name: str) -> ModuleType:
    return import_module(f"vllm.v1.{name}")


def _named(module: str, names: Iterable[str]) -> list[type]:
    """The classes of these names that the target has."""
    found = (getattr(_module(module), name, None) for name in names)
    return [each for each in found if isinstance(each, type)]


def _owners() -> list[type]:
    kinds = ["SingleTypeKVCacheManager", *(name for name, _ in NAMES.values())]
    return [
        *_named("core.single_type_kv_cache_manager", kinds),
        *_named("core.kv_cache_coordinator", _TOLD["coordinators"]),
    ]


def _methods(owners: Iterable[type], names: Iterable[str]) -> list[FunctionType]:
    """The methods of these names that the classes themselves define."""
    return [f for owner in owners for name in names for f in _defined(owner, name)]


def _entry_points() -> list[FunctionType]:
    """Lookups, masks and producers, and what they call, transitively."""
    owners = _owners()
    return _reached(_methods(owners, _TOLD["entries"]), owners)


def _judged() -> list[FunctionType]:
    """All that the gate judges: what a scheduler calls and what that calls, transitively."""
    behind = [
        *_owners(),
        *_named("core.block_pool", _TOLD["pool"]),
        *_named("core.kv_cache_utils", _TOLD["blocks"]),
    ]
    whole = _named("core.kv_cache_manager", ["KVCacheManager"])
    first = [
        *_methods(whole, _TOLD["scheduler_calls"]),
        *_methods(behind, ["unpin_blocks"]),
        *_methods(behind, ["__init__"]),
        *_methods(_named("request", ["Request"]), _TOLD["request"]),
        *_of_module("core.kv_cache_utils", _TOLD["hashing"]),
    ]
    return [f for f in _reached(first, [*behind, *whole]) if _is_called(f, behind)]


def _of_schedulers(names: Iterable[str]) -> list[FunctionType]:
    """The methods of these names of schedulers."""
    owners = [
        *_named("core.sched.scheduler", ["Scheduler"]),
        *_named("core.sched.async_scheduler", ["AsyncScheduler"]),
    ]
    return list(dict.fromkeys(_methods(owners, names)))


def _scheduling() -> list[FunctionType]:
    """What decides chunks, and what derives groups and block sizes from layers."""
    derive = [
        *_of_module("kv_cache_interface", _TOLD["boundaries"]),
        *_of_module("core.kv_cache_utils", _TOLD["sizes"]),
        *_of_module("core.kv_cache_planning", _TOLD["plans"]),
        *_of_module("core.kv_cache_utils", _TOLD["plans"]),
    ]
    return [*_of_schedulers(_TOLD["splits"]), *_reached(derive, [])]


def _of_module(name: str, functions: Iterable[str]) -> list[FunctionType]:
    """The functions of these names; not all releases have every module."""
    try:
        module = _module(name)
    except ModuleNotFoundError:
        return []
    found = (getattr(module, function, None) for function in functions)
    return [each for each in found if isinstance(each, FunctionType)]


def _is_called(function: FunctionType, owners: Sequence[type]) -> bool:
    """Whether histories call the function; releases without cascade attention share no blocks."""
    shares = any(hasattr(owner, "get_num_common_prefix_blocks") for owner in owners)
    return function.__qualname__ not in _TOLD["not_called"] and (
        shares or function.__name__ != "get_num_common_prefix_blocks"
    )


def _of_tiers() -> list[FunctionType]:
    """What looks up, stores and loads in tiers that the target has."""
    found: list[FunctionType] = []
    for name, wanted in _TOLD["tiers"].items():
        try:
            module = import_module(f"vllm.{name}")
        except ModuleNotFoundError:
            continue
        of_module = [
            v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__
        ]
        found += [v for v in of_module if isinstance(v, FunctionType) and v.__name__ in wanted]
        classes = [each for each in of_module if isinstance(each, type)]
        found += _methods(classes, wanted)
    return found


_FUNCTIONS: dict[Family, Callable[[], list[FunctionType]]] = {
    Family.SINGLE_POINT: _entry_points,
    Family.STRUCTURED: _judged,
    Family.SCHEDULER: _scheduling,
    Family.LIFECYCLE: lambda: _of_schedulers(_TOLD["lifecycle"]),
    Family.TIERS: _of_tiers,
}


def _reached(first: Iterable[FunctionType], owners: Sequence[type]) -> list[FunctionType]:
    """The functions, and what they call by name of the owners and of vLLM's core."""
    found = dict.fromkeys(first)
    pending = list(found)
    while pending:
        function = pending.pop()
        for name in _names(function.__code__):
            called = [f for owner in owners for f in _defined(owner, name)]
            by_name = function.__globals__.get(name)
            if isinstance(by_name, FunctionType) and by_name.__module__.startswith(_CORE):
                called.append(by_name)
            new = [f for f in called if f not in found]
            found |= dict.fromkeys(new)
            pending += new
    return list(found)


def _defined(owner: type, name: str) -> Iterator[FunctionType]:
    """The function that the class itself defines under that name."""
    found: Any = vars(owner).get(name)
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if isinstance(found, FunctionType):
        yield found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
