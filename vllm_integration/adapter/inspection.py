"""Calls into a target whose signatures are not known in advance."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Self, TypeVar

from hitproof.conformance.subject.failures import CannotJudge, crash_of, instead, like


@dataclass(frozen=True)
class Made:
    """An object that `call` set up, and how."""

    result: Any
    function: Callable[..., Any]
    keywords: dict[str, Any]


RENAMED: dict[str, str] = {}
"""New names of parameters, each with the one that hitproof knows (`adapter.aliases`)."""

_MADE: ContextVar[dict[int, Made] | None] = ContextVar("made", default=None)
_LEFT_OUT: ContextVar[dict[str, set[str]] | None] = ContextVar("left_out", default=None)
T = TypeVar("T")
_signature = cache(inspect.signature)
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def attribute(owner: Any, name: str) -> Any:
    """``owner.name``, which must exist."""
    found = getattr(owner, name, None)
    if found is None:
        owner_name = getattr(owner, "__name__", type(owner).__name__)
        raise CannotJudge(f"{owner_name} has no {name}{instead(name, dir(owner))}")
    return found


def must(able: object, what: str, field: str) -> None:
    """Decline what a ``field`` of a history asks for where the release is not ``able`` to do it.

    ``what`` says what the release does not do: "has no host pool". Raises `CannotJudge`.
    """
    if not able:
        raise CannotJudge(f"this release {what}; leave {field} out, or name a later release")


def spelled(function: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords under the names that the function has for them."""
    if not RENAMED:
        return keywords
    parameters = parameters_of(function)
    return {
        parameters[name].name if name in parameters else name: value
        for name, value in keywords.items()
    }


def definitions(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function behind a method, and those that it overrides; for a class its ``__init__``."""
    owner: Any = function
    name = "__init__"
    if inspect.ismethod(function):
        owner, name = function.__self__, function.__name__
        owner = owner if inspect.isclass(owner) else type(owner)
    elif not inspect.isclass(function):
        return [function]
    found = [vars(each)[name] for each in owner.__mro__[:-1] if name in vars(each)]
    return [getattr(each, "__func__", each) for each in found]


@dataclass(frozen=True)
class _Parameters:
    """Parameters, and what is asked of them again and again.

    Attributes:
        by_name: the parameters by name, those that are renamed by the name that hitproof knows.
        takes_any: whether there is one for keywords of any name.
        required: the names of those that have no default.
    """

    by_name: Mapping[str, inspect.Parameter]
    takes_any: bool
    required: tuple[str, ...]

    @classmethod
    def of(cls, by_name: Mapping[str, inspect.Parameter]) -> Self:
        """Look through the parameters once."""
        by_name = {
            name if (old := RENAMED.get(name, name)) in by_name else old: each
            for name, each in by_name.items()
        }
        takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in by_name.values())
        required = tuple(
            name
            for name, each in by_name.items()
            if each.default is inspect.Parameter.empty and each.kind not in _ANY
        )
        return cls(MappingProxyType(by_name), takes_any, required)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters that a function takes by name.

    A function with ``**kwargs`` passes them to what it overrides, as subclasses in forks do.
    """
    return _parameters_of(function).by_name


def _parameters_of(function: Callable[..., Any]) -> _Parameters:
    found = _own_parameters(function)
    if not found.takes_any:
        return found
    for overridden in definitions(function)[1:]:
        if not found.takes_any:
            break
        named = {name: each for name, each in found.by_name.items() if each.kind not in _ANY}
        _, *inherited = _signature(overridden).parameters.items()  # but for self or cls
        found = _Parameters.of(dict(inherited) | named)
    return found


def _own_parameters(function: Any) -> _Parameters:
    if inspect.ismethod(function) and inspect.isfunction(function.__func__):
        # A bound method is a new object each time; its function is not.
        return _named(function.__func__, bound=True)
    plain = inspect.isclass(function) or inspect.isfunction(function)
    if not plain:
        return _Parameters.of(dict(inspect.signature(function).parameters))
    return _named(function, bound=False)


@cache
def _named(function: Any, bound: bool) -> _Parameters:
    """The parameters by name; without the first, self or cls, if it is ``bound``."""
    by_name = dict(list(_signature(function).parameters.items())[bound:])
    return _Parameters.of(by_name)


def arguments(
    function: Callable[..., Any], values: dict[str, Any], where: str, given: Sequence[str] = ()
) -> dict[str, Any]:
    """The values that ``function`` has parameters for; a required one must be known."""
    parameters = _parameters_of(function)
    by_name = parameters.by_name
    unknown = [name for name in parameters.required if name not in values and name not in given]
    if unknown:
        old = like(unknown[0], [name for name in (*values, *given) if name not in by_name])
        renamed = f"; if it is the new name of {old}, use --alias {unknown[0]}={old}"
        raise CannotJudge(
            f"{where} requires {', '.join(unknown)}, which hitproof does not know how to fill"
            f"{renamed if old else ''}"
        )
    missing = [name for name in given if name not in by_name]
    if missing and not parameters.takes_any:
        remedy = instead(missing[0], by_name.keys() - values.keys())
        raise CannotJudge(f"{where} has no parameter {missing[0]}{remedy}")
    left_out = _LEFT_OUT.get()
    if left_out is not None:
        rest = {n for n, p in by_name.items() if p.kind not in _ANY and n not in values}
        left_out[where] = left_out.get(where, rest) & rest - set(given)
    any_keyword = parameters.takes_any
    return {name: v for name, v in values.items() if any_keyword or name in by_name}


def probed(policy: str, behaviour: Callable[[], T]) -> T:
    """Probe how the target behaves; if it raises, the policy is unknown."""
    try:
        return behaviour()
    except Exception as error:
        raise CannotJudge(
            f"the {policy} cannot be determined, since the target raises {crash_of(error)!r:.200}"
        ) from error


def call(function: Callable[..., Any], values: dict[str, Any], where: str) -> Any:
    """Set something up; an error here is not a finding about lookup or mask."""
    keywords = arguments(function, values, where)
    try:
        result = function(**spelled(function, keywords))
    except Exception as error:
        raise CannotJudge(f"{where} could not be set up: {error!r:.200}") from error
    made = _MADE.get()
    if made is not None:
        made[id(result)] = Made(result, function, spelled(function, keywords))
    return result


@contextmanager
def noting_defaults() -> Iterator[dict[str, set[str]]]:
    """The parameters that `arguments` never fills inside the context, of each function."""
    left_out: dict[str, set[str]] = {}
    token = _LEFT_OUT.set(left_out)
    try:
        yield left_out
    finally:
        _LEFT_OUT.reset(token)


@contextmanager
def recorded() -> Iterator[dict[int, Made]]:
    """Everything that `call` sets up inside the context, by the object's ``id``."""
    made: dict[int, Made] = {}
    token = _MADE.set(made)
    try:
        yield made
    finally:
        _MADE.reset(token)
