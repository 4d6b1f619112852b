"""Which attributes of its inputs the target's code reads while it is judged.

The classes of specs, requests, the pool and the configuration get a ``__getattribute__`` that
notes the name, for a few checks and histories only; the objects stay of their own classes.
Imported in the worker process only.
"""

import ast
import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import hitproof
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, noting_defaults, parameters_of
from hitproof.vllm_integration.adapter.parts import Parts

_CONFIGURATIONS = (
    "CacheConfig",
    "KVEventsConfig",
    "KVTransferConfig",
    "ModelConfig",
    "ParallelConfig",
    "SchedulerConfig",
    "SpeculativeConfig",
    "VllmConfig",
)

_NAMED = {
    "request": "Request",
    "kv_cache_spec": "KVCacheSpec",
    "spec": "KVCacheSpec",
    "kv_cache_config": "KVCacheConfig",
    "kv_cache_group": "KVCacheGroupSpec",
    "lora_request": "LoRARequest",
    "sampling_params": "SamplingParams",
    "pooling_params": "PoolingParams",
    "vllm_config": "VllmConfig",
    "envs": "environment",
}
"""What vLLM calls its inputs."""

_CONSTRUCTORS = ("__init__", "__post_init__", "__new__")
_OURS = os.path.dirname(hitproof.__file__) + os.sep


class Reads:
    """What the target's code reads of its inputs, as ``class.attribute``.

    Inputs are specs, requests, the configuration and the environment, and what the pool, the
    managers and the coordinators keep of the arguments of their constructors. What an input reads
    of itself while hitproof sets it up is not counted.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._root = inspect.getfile(parts.whole).split(f"v1{os.sep}")[0]
        self.found: set[str] = set()
        self._defaults: dict[str, set[str]] = {}
        inputs = [*_inputs(parts)]
        self._inputs = {each.__name__ for _, each in inputs}
        self._input_files = {
            file for _, each in inputs if (file := inspect.getsourcefile(each)) is not None
        }
        self._traced: list[tuple[str, Any, frozenset[str] | None]] = [
            (role, each, None) for role, each in inputs
        ]
        judged = [*_judged(parts)]
        self._traced += [(role, each, frozenset(parameters_of(each))) for role, each in judged]
        # A fork's class, whatever its module, goes by the name of vLLM's class that it subclasses.
        lines = [each.__mro__[:-1] for _, each in judged]
        self._judged_files = {inspect.getsourcefile(each) for line in lines for each in line}
        self._vllm_names = {line[0].__name__: _vllm_name(line) for line in lines}

    def names(self) -> set[str]:
        """All that was read, by what is traced and by what the text of the target names.

        With them the parameters that hitproof leaves at their defaults, as ``function(parameter)``,
        and the ``KVCacheSpec`` classes that no variant is of, as ``class KVCacheSpec: name``.
        """
        covered = self._parts.spec_classes.covered
        defaults = {
            f"{self._vllm_names.get(owner, owner)}{dot}{function}({name})"
            for where, names in self._defaults.items()
            for owner, dot, function in [where.partition(".")]
            if where not in self._inputs
            for name in names
        }
        uncovered = {
            f"class KVCacheSpec: {each.__name__}"
            for role, each in _inputs(self._parts)
            if role == "KVCacheSpec" and each.__name__ not in covered
        }
        return self.found | defaults | uncovered | self._named()

    def _named(self) -> set[str]:
        """The attributes that the managers' text reads of inputs, in branches never taken, too."""
        parts = self._parts
        modules = parts.managers, parts.coordinators, parts.whole, parts.pools
        trees = [ast.parse(inspect.getsource(module)) for module in modules]
        found = set()
        for node in (node for tree in trees for node in ast.walk(tree)):
            match node:
                case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
                    pass
                case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(name)), *_]):
                    pass
                case _:
                    continue
            match owner:
                case ast.Name(known) | ast.Attribute(attr=known):
                    role = _NAMED.get(known)
                case _:
                    role = None
            if role is not None and not name.startswith("__"):
                found.add(f"{role}.{name}")
        return found

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Note what is read inside the context."""
        undo: list[Any] = []
        try:
            for role, traced, names in self._traced:
                if "__getattribute__" not in vars(traced):
                    self._trace(role, traced, names)
                    undo.append(traced)
            with self._environment(), noting_defaults() as left_out:
                yield
            self._defaults |= left_out
        finally:
            for traced in undo:
                del traced.__getattribute__

    def _trace(self, role: str, traced: Any, names: frozenset[str] | None) -> None:
        plain, known = traced.__getattribute__, set[tuple[str, CodeType]]()
        unread = {n for each in traced.__mro__ for n, v in vars(each).items() if callable(v)}
        unread.add("__class__")

        def noting(owner: Any, name: str) -> Any:
            if name not in unread if names is None else name in names:
                frame = sys._getframe(1)
                reading = name, frame.f_code
                if reading not in known and self._is_read(frame):
                    known.add(reading)
                    self.found.add(f"{role}.{name}")
            return plain(owner, name)

        traced.__getattribute__ = noting

    def _is_read(self, frame: FrameType | None) -> bool:
        """Whether the code that is judged reads, by itself or through an input's own method."""
        while frame is not None:
            file, name = frame.f_code.co_filename, frame.f_code.co_name
            own = file in self._input_files
            if (own and name in _CONSTRUCTORS) or file.startswith(_OURS) or file == "<string>":
                return False
            if not own and (file.startswith(self._root) or file in self._judged_files):
                return True
            frame = frame.f_back
        return False

    @contextmanager
    def _environment(self) -> Iterator[None]:
        """Note which environment variables are asked for with ``vllm.envs``."""
        import vllm.envs

        own = vars(vllm.envs)
        plain = own.get("__getattr__")

        def traced(name: str) -> Any:
            if self._is_read(sys._getframe(1)):
                self.found.add(f"environment.{name}")
            assert plain is not None
            return plain(name)

        if plain is not None:
            own["__getattr__"] = traced
        try:
            yield
        finally:
            if plain is not None:
                own["__getattr__"] = plain


def _inputs(parts: Parts) -> Iterator[tuple[str, Any]]:
    """The classes of inputs, by the names that reads have."""
    pending = [attribute(parts.interface, "KVCacheSpec")]
    while pending:
        pending += (spec_class := pending.pop()).__subclasses__()
        yield "KVCacheSpec", spec_class
    yield "Request", attribute(parts.requests, "Request")
    for module, names in (
        (parts.interface.__name__, ("KVCacheConfig", "KVCacheGroupSpec")),
        ("vllm.sampling_params", ("SamplingParams",)),
        ("vllm.pooling_params", ("PoolingParams",)),
        ("vllm.lora.request", ("LoRARequest",)),
        ("vllm.multimodal.inputs", ("MultiModalFeatureSpec", "PlaceholderRange")),
        ("vllm.config", _CONFIGURATIONS),
    ):
        for name in names:
            found = getattr(importlib.import_module(module), name, None)
            if inspect.isclass(found):
                yield name, found


def _vllm_name(line: tuple[type, ...]) -> str:
    """The first class of vLLM's own in a class's resolution order."""
    return next((each for each in line if each.__module__.startswith("vllm.")), line[0]).__name__


def _judged(parts: Parts) -> Iterator[tuple[str, Any]]:
    """The classes whose constructors take inputs; of each the lowest that have one."""
    yield "BlockPool", attribute(parts.pools, "BlockPool")
    yield "KVCacheManager", attribute(parts.whole, "KVCacheManager")
    for name in ("HybridKVCacheCoordinator", "UnitaryKVCacheCoordinator"):
        yield "KVCacheCoordinator", attribute(parts.coordinators, name)
    for kind in GroupKind:
        yield "SingleTypeKVCacheManager", parts.manager_class(kind)
