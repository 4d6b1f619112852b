"""A target's ``KVCacheConfig`` for a layout of groups, under a retention interval."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from conformance.subjects import CannotJudge
from spec.groups import Group
from vllm_integration.inspection import attribute, call

_INTERVAL = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"


class Layouts:
    """Makes the configurations that a target's managers are set up with.

    ``interface`` is the target's module ``kv_cache_interface``; ``spec_of`` makes the
    ``KVCacheSpec`` of a group.
    """

    def __init__(self, interface: ModuleType, spec_of: Callable[[Group], Any]) -> None:
        self._interface = interface
        self._spec_of = spec_of

    def config(self, groups: Sequence[Group], num_blocks: int, interval: int | None) -> Any:
        """A ``KVCacheConfig``; the interval is in it where the target keeps it there."""
        group_spec = attribute(self._interface, "KVCacheGroupSpec")
        laid_out = [
            call(
                group_spec,
                {
                    "layer_names": [f"layer {i}"],
                    "kv_cache_spec": self._spec_of(group),
                    "is_eagle_group": group.eagle,
                },
                "KVCacheGroupSpec",
            )
            for i, group in enumerate(groups)
        ]
        values = {
            "num_blocks": num_blocks,
            "kv_cache_tensors": [],
            "kv_cache_groups": laid_out,
            "prefix_cache_retention_interval": interval,
        }
        return call(self._config_class, values, "KVCacheConfig")

    @contextmanager
    def retention(self, interval: int | None) -> Iterator[None]:
        """Before it became part of ``KVCacheConfig``, the interval was an environment variable."""
        by_config = (
            "prefix_cache_retention_interval" in inspect.signature(self._config_class).parameters
        )
        if by_config or interval is None:
            yield
            return
        os.environ[_INTERVAL] = str(interval)
        try:
            yield
        finally:
            del os.environ[_INTERVAL]

    @property
    def _config_class(self) -> Any:
        return attribute(self._interface, "KVCacheConfig")


def check_taken_up(coordinator: Any, interval: int | None) -> None:
    """Refuse a coordinator that does not work with the interval that it was given."""
    if getattr(coordinator, "retention_interval", None) != interval:
        raise CannotJudge("the coordinator does not take up the retention interval")
