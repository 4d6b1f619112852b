"""Where objects of the target still name requests that have ended."""

from collections import deque
from collections.abc import Collection
from typing import Any

_BARE = "vllm.config", "vllm.v1.kv_cache_interface", "vllm.v1.core.kv_cache_utils"
"""Modules whose objects name no requests: configurations, and blocks with their free queue."""
_COLLECTIONS = (list, tuple, set, frozenset, deque)


def leftovers(owner: Any, ids: Collection[str], request: type) -> set[str]:
    """The attributes of ``owner``, and of all objects of the target that it has, in which ids are.

    They are named as ``class.attribute``, and have an id, or such a ``request``, in a dict, set or
    sequence at any depth.
    """
    found: set[str] = set()
    seen: dict[int, Any] = {}

    def is_named(each: Any) -> bool:
        if isinstance(each, tuple):
            return any(map(is_named, each))
        return (isinstance(each, str) and each in ids) or (
            isinstance(each, request) and getattr(each, "request_id", None) in ids
        )

    def walk(value: Any, where: str) -> None:
        if isinstance(value, (str, bytes, int, float, type, request)) or id(value) in seen:
            return
        seen[id(value)] = value  # what is made meanwhile gets no id of it
        if isinstance(value, dict):
            entries = [each for pair in value.items() for each in pair]
        elif isinstance(value, _COLLECTIONS):
            entries = [*value]
        else:
            module = type(value).__module__
            if module.startswith("vllm.") and not module.startswith(_BARE):
                for name, each in getattr(value, "__dict__", {}).items():
                    if is_named(each):
                        found.add(f"{type(value).__name__}.{name}")
                    walk(each, f"{type(value).__name__}.{name}")
            return
        if any(map(is_named, entries)):
            found.add(where)
        for each in entries:
            walk(each, where)

    walk(owner, type(owner).__name__)
    return found
