"""The code that the self-test mutates: lookups, masks, ``cache_blocks`` and the coordinators.

The entry points are those that the gate judges; functions of vLLM's core that they call by name
are mutated with them.
"""

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hitproof.conformance.mutation import Change, Mutant, mutants
from hitproof.vllm_integration.adapter.groups import NAMES

ENTRIES = (
    "find_longest_cache_hit",
    "reachable_block_mask",
    "_cache_block_mask",
    "cache_blocks",
    "verify_and_split_kv_cache_groups",
)
"""The entry points, in whichever manager or coordinator defines them."""

CHANGES = frozenset(Change) - {Change.ARGUMENTS, Change.FIELD}
"""The kinds of change. Wrong arguments mostly raise TypeError, which says little about checks."""

_CORE = "vllm.v1.core."
_COORDINATORS = ("KVCacheCoordinator", "UnitaryKVCacheCoordinator", "HybridKVCacheCoordinator")


def of_target(managers: ModuleType, coordinators: ModuleType) -> list[Mutant]:
    """The mutants of the target with these modules, without duplicates."""
    wanted: dict[str, set[str]] = {}
    for function in functions(managers, coordinators):
        wanted.setdefault(function.__module__, set()).add(function.__qualname__)
    found: list[Mutant] = []
    for module, names in wanted.items():
        codes: dict[FunctionType, list[CodeType]] = {}
        for mutant in mutants(sys.modules[module], names):
            same = codes.setdefault(mutant.function, [mutant.function.__code__])
            fits = len(mutant.code.co_freevars) == len(mutant.function.__code__.co_freevars)
            if mutant.change in CHANGES and fits and mutant.code not in same:
                same.append(mutant.code)
                found.append(mutant)
    return found


def functions(managers: ModuleType, coordinators: ModuleType) -> list[FunctionType]:
    """The entry points of the target, and what they call, transitively."""
    kinds = [getattr(managers, name, None) for name, _ in NAMES.values()]
    base = getattr(managers, "SingleTypeKVCacheManager", None)
    owners = [base, *kinds, *(getattr(coordinators, name, None) for name in _COORDINATORS)]
    classes = [owner for owner in owners if isinstance(owner, type)]
    found = {f: None for owner in classes for name in ENTRIES for f in _defined(owner, name)}
    pending = list(found)
    while pending:
        function = pending.pop()
        for name in _names(function.__code__):
            called = [f for owner in classes for f in _defined(owner, name)]
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
