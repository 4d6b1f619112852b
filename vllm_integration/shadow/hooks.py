"""The calls of every ``KVCacheManager`` in a process, shown to a watcher; what they return stays.

`install` replaces the public methods of the imported class by wrappers. Each wrapper calls the
method with the very arguments it was given and returns the very object it returned, or lets pass
what it raised.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from hitproof.vllm_integration.adapter.inspection import RENAMED

Method = Callable[..., Any]
_LOOKUP = "find_longest_cache_hit"


class Watcher(Protocol):
    """What is called before and after each call. `Guard` handles what it raises."""

    def made(self, manager: Any, overridden: list[str]) -> None:
        """A manager was made; ``overridden`` names the methods that its class has of its own."""

    def around(self, manager: Any, name: str, method: Method, given: Any) -> Any:
        """Call ``method`` and return what it returns; ``given`` binds the arguments on demand."""

    def around_lookup(self, owner: Any, method: Method, arguments: Any, keywords: Any) -> Any:
        """The same for a single-type manager's ``find_longest_cache_hit``."""


class Given:
    """The arguments of a call."""

    __slots__ = ("_signature", "arguments", "keywords")

    def __init__(
        self, signature: inspect.Signature, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        self._signature = signature
        self.arguments = arguments
        self.keywords = keywords

    def values(self) -> dict[str, Any]:
        """The arguments by name, those left out by their defaults; without the manager."""
        bound = self._signature.bind(*self.arguments, **self.keywords)
        bound.apply_defaults()
        return old_names(dict(list(bound.arguments.items())[1:]))


def old_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that hitproof knows (`adapter.aliases`)."""
    return {RENAMED.get(name, name): value for name, value in values.items()}


class Hooks:
    """The wrappers in the imported vLLM; `remove` takes them off again.

    ``renamed`` has new names of methods, each with the one that the watcher knows.
    """

    def __init__(self, watcher: Watcher, renamed: Mapping[str, str] = MappingProxyType({})) -> None:
        # The whole manager first: imported alone, its parts run into circular imports.
        import vllm.v1.core.kv_cache_manager as kv_cache_manager
        from vllm.v1.core import single_type_kv_cache_manager

        self._watcher = watcher
        self._undo: list[Callable[[], None]] = []
        manager_class = kv_cache_manager.KVCacheManager
        wrapped = [
            name
            for name, found in vars(manager_class).items()
            if inspect.isfunction(found) and not name.startswith("_")
        ]
        for name in wrapped:
            method = vars(manager_class)[name]
            self._replace(manager_class, name, self._wrapper(renamed.get(name, name), method))
        self._replace(
            manager_class, "__init__", self._maker(manager_class, manager_class.__init__, wrapped)
        )
        for found in vars(single_type_kv_cache_manager).values():
            if inspect.isclass(found) and found.__module__ == single_type_kv_cache_manager.__name__:
                for name in (_LOOKUP, *(new for new, old in renamed.items() if old == _LOOKUP)):
                    lookup = vars(found).get(name)
                    if isinstance(lookup, classmethod):
                        wrapper: Any = classmethod(self._lookup_wrapper(lookup.__func__))
                        self._replace(found, name, wrapper)

    def remove(self) -> None:
        """Put the original methods back."""
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, wrapper: Any) -> None:
        original = vars(owner)[name]
        setattr(owner, name, wrapper)

        def undo() -> None:
            if vars(owner).get(name) is wrapper:  # else another patch covers it
                setattr(owner, name, original)

        self._undo.append(undo)

    def _wrapper(self, name: str, method: Method) -> Method:
        watcher, signature = self._watcher, inspect.signature(method)

        @functools.wraps(method)
        def wrapper(manager: Any, /, *arguments: Any, **keywords: Any) -> Any:
            given = Given(signature, (manager, *arguments), keywords)
            return watcher.around(manager, name, method, given)

        return wrapper

    def _maker(self, manager_class: Any, make: Method, wrapped: list[str]) -> Method:
        watcher = self._watcher

        @functools.wraps(make)
        def wrapper(self: Any, *arguments: Any, **keywords: Any) -> None:
            make(self, *arguments, **keywords)
            own = [
                name
                for name in wrapped
                if getattr(type(self), name, None) is not getattr(manager_class, name)
            ]
            watcher.made(self, own)

        return wrapper

    def _lookup_wrapper(self, method: Method) -> Method:
        watcher = self._watcher

        @functools.wraps(method)
        def wrapper(cls: Any, *arguments: Any, **keywords: Any) -> Any:
            return watcher.around_lookup(cls, method, arguments, keywords)

        return wrapper
