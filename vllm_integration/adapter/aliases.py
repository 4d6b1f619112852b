"""Names that the target has changed: what the user says a new name stands for.

Imported only where vLLM is: in the worker's process, and in that of a shadow.
"""

import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from hitproof.vllm_integration.adapter.inspection import RENAMED

_JUDGED = ("vllm.v1.core.", "vllm.v1.kv_cache_interface", "vllm.v1.request")


class AliasError(Exception):
    """The target has nothing of that name; the message is one sentence."""


def take_up(aliases: Sequence[str]) -> None:
    """Let what the target has under new names be found under the old ones, too.

    Each is written ``new=old``. A class or module gets its function, class or constant under the
    old name, and objects their attribute; a parameter is filled as the old one. The target's own
    code runs as it is. Raises `AliasError`.
    """
    import vllm.v1.core.kv_cache_manager
    import vllm.v1.kv_cache_interface
    import vllm.v1.request  # noqa: F401  # so that all modules are there

    for text in aliases:
        new, _, old = text.partition("=")
        owners = list(_owners())
        found = [owner for owner in owners if new in vars(owner)]
        for owner in found:
            if old not in vars(owner):
                setattr(owner, old, vars(owner)[new])
        for owner in owners:
            if isinstance(owner, type) and _sets(owner, new) and not hasattr(owner, old):
                setattr(owner, old, _attribute(new))
                found.append(owner)
        if any(new in inspect.signature(each).parameters for each in _functions(owners)):
            RENAMED[new] = old
        elif not found:
            raise AliasError(
                f"the target has nothing named {new} in vllm/v1/core; write the new name first, "
                f"as --alias NEW=OLD"
            )


def _owners() -> Iterator[Any]:
    """The modules that are judged, and the classes that they define."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_JUDGED):
            yield module
            yield from (
                each
                for each in vars(module).values()
                if isinstance(each, type) and each.__module__ == name
            )


def _functions(owners: Sequence[Any]) -> Iterator[Any]:
    for owner in owners:
        for each in vars(owner).values():
            function = inspect.unwrap(getattr(each, "__func__", each))
            if inspect.isfunction(function) and function.__module__.startswith("vllm."):
                yield function


def _sets(owner: type, name: str) -> bool:
    """Whether the methods of a class set that attribute of their object."""
    constructor = vars(owner).get("__init__")
    return inspect.isfunction(constructor) and name in constructor.__code__.co_names


def _attribute(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self, name)

    def put(self: Any, value: Any) -> None:
        setattr(self, name, value)

    return property(get, put)
