"""Real objects of a target as the source that makes them, and the imports that it needs.

Imported in the worker process only.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from hitproof.conformance.subject.failures import CannotJudge
from hitproof.vllm_integration.adapter.inspection import Made
from hitproof.vllm_integration.reproduce.source_text import (
    WIDTH,
    Bracketed,
    Node,
    call,
    laid_out,
    listed,
    literal,
    one_line,
    sequence,
)

_ATTRIBUTES = {
    "SamplingParams": (
        "max_tokens",
        "min_tokens",
        "ignore_eos",
        "stop_token_ids",
        "skip_reading_prefix_cache",
        "structured_outputs",
    ),
    "LoRARequest": ("lora_name", "lora_int_id", "lora_path"),
    "PlaceholderRange": ("offset", "length"),
    "KVCacheMetricsCollector": ("sample_rate",),
}
"""Plain vLLM objects that requests consist of, and the fields that the adapter sets."""
_DEFAULTS = {"min_tokens": 0}


@dataclass
class Values:
    """Writes values, and records their imports.

    Attributes:
        made: the objects that the adapter set up, by their ``id``.
        variable: the variable that holds an object, if there is one.
        left_out: the arguments that need not be written.
        hasher: the source of a request's block hasher.
        imports: names to import, by module.
    """

    made: dict[int, Made]
    variable: Callable[[Any], str | None] = lambda _: None
    left_out: Collection[str] = ()
    hasher: Callable[[str], Node] | None = None
    imports: dict[str, set[str]] = field(default_factory=dict)

    def of(self, value: Any) -> Node:
        """The source of a value: a literal, a variable, or the call that made it.

        Raises `CannotJudge` when it has none.
        """
        if (variable := self.variable(value)) is not None:
            return variable
        if id(value) in self.made:
            return self.call_of(self.made[id(value)])
        if isinstance(value, (list, tuple)):
            return sequence(value, [self.of(item) for item in value])
        if isinstance(value, dict):
            named = ((f"{one_line(self.of(key))}: ", self.of(item)) for key, item in value.items())
            return Bracketed("{", tuple(named), "}")
        if type(value).__name__ in _ATTRIBUTES:
            return self._plain(value)
        if inspect.isfunction(value):
            return self._function(value)
        if isinstance(value, Enum):
            return f"{self.imported(type(value))}.{value.name}"
        if type(value).__module__ == "torch":
            self.imports["torch"] = set()
            if type(value).__name__ == "Tensor":
                return call("torch.tensor", self.of(value.tolist()))
            return repr(value)
        if is_dataclass(value) and not isinstance(value, type):
            return self._fields(value)
        try:
            return literal(value)
        except TypeError as error:
            raise CannotJudge(str(error)) from error

    def call_of(self, made: Made) -> Node:
        """The call that made an object, without arguments that are as by default."""
        parameters = inspect.signature(made.function).parameters
        given = {
            name: value
            for name, value in made.keywords.items()
            if name not in parameters
            or parameters[name].default is inspect.Parameter.empty
            or not (_same(parameters[name].default, value) or name in self.left_out)
        }
        return call(
            self.imported(made.function), **{name: self.of(value) for name, value in given.items()}
        )

    def imported(self, thing: Any) -> str:
        """The name of a class or function, which is imported."""
        self.import_(thing.__module__, thing.__name__)
        return str(thing.__name__)

    def import_(self, module: str, name: str) -> None:
        """Import a name from a module."""
        self.imports.setdefault(module, set()).add(name)

    def lines(self) -> list[str]:
        """The import statements, those of torch apart."""
        lines = ["import torch", ""] if "torch" in self.imports else []
        for module, names in sorted(self.imports.items()):
            if module == "torch":
                continue
            line = f"from {module} import {', '.join(_sorted(names))}"
            wrapped = laid_out(f"from {module} import ", listed("(", _sorted(names), ")"), depth=0)
            lines.append(line if len(line) <= WIDTH else wrapped)
        return lines

    def _fields(self, value: Any) -> Node:
        """A dataclass that was made from another."""
        given = {
            each.name: found
            for each in fields(value)
            if each.init and not _same(_default(each), found := getattr(value, each.name))
        }
        named = {name: self.of(found) for name, found in given.items()}
        return call(self.imported(type(value)), **named)

    def _plain(self, value: Any) -> Node:
        given = {
            name: self.of(found)
            for name in _ATTRIBUTES[type(value).__name__]
            # An image may be at 0, which equals False.
            if (found := getattr(value, name, None)) not in (_DEFAULTS.get(name), None, [])
            and found is not False
        }
        return call(self.imported(type(value)), **given)

    def _function(self, value: Any) -> Node:
        maker, _, local = value.__qualname__.partition(".<locals>")
        if not local:
            return self.imported(value)
        if maker != "get_request_block_hasher" or self.hasher is None:
            raise CannotJudge(f"{value.__qualname__} has no source in a test")
        self.import_(value.__module__, maker)
        return self.hasher(maker)


def _default(item: Any) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _sorted(names: Sequence[str] | set[str]) -> list[str]:
    """Sorted like isort: constants, classes, then functions."""
    return sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))


def _same(default: Any, value: Any) -> bool:
    return type(default) is type(value) and bool(default == value)
