"""Classes of a fork that replace vLLM's own managers and coordinators.

Imported in the worker process only.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hitproof.conformance.subject.failures import CannotJudge
from hitproof.vllm_integration.adapter.groups import NAMES
from hitproof.vllm_integration.adapter.inspection import attribute

_COORDINATORS = ("UnitaryKVCacheCoordinator", "HybridKVCacheCoordinator")
_MANAGER = "KVCacheManager"

in_place: dict[str, type] = {}
"""What is built, by the name of vLLM's class."""

_replaced: dict[type, type] = {}


class OverrideError(Exception):
    """The class cannot replace one of vLLM's; the message is one sentence."""


def put_in_place(managers: Sequence[str], coordinators: Sequence[str]) -> None:
    """Build these classes, each written ``module:Class``, instead of the classes they subclass.

    A manager is a ``KVCacheManager`` or the manager of one kind of groups; a coordinator is that
    of a single group or of several. Raises `OverrideError`.
    """
    import vllm.v1.core.kv_cache_manager as whole
    from vllm.v1.core import kv_cache_coordinator, single_type_kv_cache_manager

    kinds = {name: single_type_kv_cache_manager for name, _ in NAMES.values()}
    for texts, option, owners in (
        (managers, "--manager", {_MANAGER: whole} | kinds),
        (coordinators, "--coordinator", dict.fromkeys(_COORDINATORS, kv_cache_coordinator)),
    ):
        for text in texts:
            _put(text, option, owners)
    _have_kinds_built(single_type_kv_cache_manager)


def _put(text: str, option: str, owners: dict[str, ModuleType]) -> None:
    chosen = _imported(text, option)
    taken = [name for name in owners if name in in_place]
    bases = {vars(owner).get(name): name for name, owner in owners.items() if name not in taken}
    original = next((base for base in chosen.__mro__ if base in bases), None)
    if original is None:
        raise OverrideError(
            f"{text} is not a subclass of {', '.join(bases.values())}"
            + (f", and {', '.join(taken)} was replaced before" if taken else "")
            + f"; name another class with {option}"
        )
    name = bases[original]
    setattr(owners[name], name, chosen)
    in_place[name] = chosen
    _replaced[original] = chosen


def _imported(text: str, option: str) -> type:
    module_name, _, name = text.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:200]
        raise OverrideError(
            f"{text} cannot be imported ({reason}); name a class of the target as module:Class "
            f"with {option}"
        ) from error
    if not isinstance(found, type):
        raise OverrideError(f"{text} is not a class; name one as module:Class with {option}")
    return found


def _have_kinds_built(managers: ModuleType) -> None:
    """A registry (from 0.23 on) or a table says which manager a ``KVCacheSpec`` has."""
    if hasattr(managers, "spec_manager_map"):
        table = managers.spec_manager_map
        table.update({spec: _replaced.get(manager, manager) for spec, manager in table.items()})
        return
    try:
        from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry
    except ImportError:  # `check_taken_up` tells whether the classes are built
        return
    found = attribute(KVCacheSpecRegistry, "get_manager_class")

    def get_manager_class(_cls: Any, *arguments: Any, **keywords: Any) -> Any:
        manager = found(*arguments, **keywords)
        return _replaced.get(manager, manager)

    KVCacheSpecRegistry.get_manager_class = classmethod(get_manager_class)


def check_taken_up(coordinator: Any, interval: int | None) -> None:
    """Refuse a coordinator that is not what was asked for, in its interval or its classes."""
    if getattr(coordinator, "retention_interval", None) != interval:
        raise CannotJudge("the coordinator ignores the retention interval")
    for built in (coordinator, *attribute(coordinator, "single_type_managers")):
        chosen = _replaced.get(type(built))
        if chosen is not None:
            raise CannotJudge(
                f"the target builds a {type(built).__name__}, not the {chosen.__name__} that was "
                f"named instead"
            )
