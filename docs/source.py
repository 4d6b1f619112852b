"""Code, as it stands in the source itself: what pages show and refer to is looked up, by name."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from types import FunctionType
from typing import Any

from hitproof.spec import terms

ROOT = Path(__file__).resolve().parent.parent
OURS = "hitproof"
"""The package that has the folders of the repository; names leave it out."""


class NoSuchCode(LookupError):
    """A name that is not in the source; the message names it."""


def find(name: str) -> Any:
    """What a dotted name stands for, a module, a class or a function. Raises `NoSuchCode`."""
    module, _, rest = name.partition(".")
    module = f"{OURS}.{module}" if (ROOT / module).is_dir() else module
    try:
        thing: Any = importlib.import_module(module)
        for part in filter(None, rest.split(".")):
            module = f"{module}.{part}"
            thing = getattr(thing, part, None) or importlib.import_module(module)
    except ImportError:
        raise NoSuchCode(f"{name} is not in the source (there is no {module})") from None
    return inspect.unwrap(thing)


def text(thing: Any) -> str:
    """Its source text. Raises `NoSuchCode` where it has none."""
    try:
        return inspect.getsource(thing).rstrip()
    except (TypeError, OSError) as error:
        raise NoSuchCode(f"{thing!r} has no source text ({error})") from None


def place(thing: Any) -> str:
    """The file and line where it starts, from the root of the repository."""
    file = Path(inspect.getsourcefile(thing) or "").resolve().relative_to(ROOT)
    return f"{file}:{inspect.getsourcelines(thing)[1] or 1}"


def listing(thing: Any) -> str:
    """Its source as a block of code in Markdown, under its place."""
    return f'```python title="{place(thing)}"\n{text(thing)}\n```\n'


def folded(title: str, text: str) -> str:
    """Markdown that is shown when its title is clicked."""
    return f'??? note "{title}"\n\n{indent(text, "    ")}\n'


def rests_on(clause: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The functions of the spec that a clause calls, and those that they call, once each."""
    seen = {clause}
    waiting = [clause]
    while waiting:
        current = waiting.pop(0)
        for other in _called(current):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
                yield other


def _called(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    function = inspect.unwrap(function)
    assert isinstance(function, FunctionType)
    for code in (function.__code__, *filter(inspect.iscode, function.__code__.co_consts)):
        for name in code.co_names:
            other = function.__globals__.get(name)
            if not isinstance(other, FunctionType) or other.__module__ == terms.__name__:
                continue  # what stands for an operator is no clause
            if other.__module__.startswith("hitproof.spec."):
                yield other
