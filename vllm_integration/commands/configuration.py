"""The configuration file: options that hold for a checkout, written down beside it.

``hitproof.toml``, or the table ``[tool.hitproof]`` of ``pyproject.toml``, in the working directory
or above it. It applies to commands with a target that is not a release, and fills in for options
that neither the command line nor the environment has.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from packaging.version import InvalidVersion, Version
from typer.core import TyperCommand

from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.verdict import Verdict

FILE = "hitproof.toml"
_PROJECT = "pyproject.toml"
_TARGETS = ("target", "targets", "base", "head")
_PROFILES = ("quick", "thorough")

_Options = Mapping[str, Any]


class ConfigurationError(Exception):
    """The configuration file cannot be used; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class _Key:
    """A key of the file.

    Attributes:
        kind: what its value has to be, in words.
        accepts: whether a value is.
        options: the parameters of commands that a value gives, and what it gives them; paths are
            relative to the directory.
    """

    kind: str
    accepts: Callable[[Any], bool]
    options: Callable[[Any, Path], _Options]


def _text(parameter: str) -> _Key:
    return _Key("a string", _is_text, lambda value, _: {parameter: value})


def _texts(parameter: str) -> _Key:
    return _Key(
        "a list of strings",
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        lambda value, _: {parameter: value},
    )


def _number(parameter: str) -> _Key:
    return _Key("a number", _is_number, lambda value, _: {parameter: value})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_policies(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _policies(value: Mapping[str, str], _: Path) -> _Options:
    return {"policy": [f"{name}={each}" for name, each in value.items()]}


def _profile(value: str, _: Path) -> _Options:
    return {"quick": value == Profile.QUICK, "thorough": value == Profile.THOROUGH}


KEYS: Mapping[str, _Key] = {
    "release": _text("release"),
    "baseline": _text("baseline"),
    "ledger": _Key("a string", _is_text, lambda value, at: {"ledger": at / value}),
    "python": _text("python"),
    "profile": _Key(
        f"one of {', '.join(Profile)}", lambda value: value in tuple(Profile), _profile
    ),
    "policies": _Key("a table of strings", _are_policies, _policies),
    "strict": _Key(
        "true or false",
        lambda value: isinstance(value, bool),
        lambda value, _: {"strict": value},
    ),
    "managers": _texts("manager"),
    "coordinators": _texts("coordinator"),
    "aliases": _texts("alias"),
    "accepted_reads": _texts("accept_read"),
    "cache": _Key(
        "true or false",
        lambda value: isinstance(value, bool),
        lambda value, _: {"no_cache": not value},
    ),
    "timeout": _number("timeout"),
    "memory": _number("memory"),
    "jobs": _number("jobs"),
}


def find(directory: Path) -> Path | None:
    """The configuration file of a directory or of the nearest one above it that has one.

    A repository's root is the last one that is looked at.
    Raises `ConfigurationError` where a file that could be it cannot be read.
    """
    for place in (directory, *directory.parents):
        if (place / FILE).is_file():
            return place / FILE
        project = place / _PROJECT
        if project.is_file() and "hitproof" in _read(project).get("tool", {}):
            return project
        if (place / ".git").exists():
            break
    return None


def options(path: Path) -> _Options:
    """The options of a configuration file, by parameter. Raises `ConfigurationError`."""
    data = _read(path)
    if path.name == _PROJECT:
        data = data.get("tool", {}).get("hitproof", {})
    found: dict[str, Any] = {}
    for name, value in data.items():
        key = KEYS.get(name)
        if key is None:
            raise ConfigurationError(f"{path} has {name!r}; the keys are {', '.join(KEYS)}")
        if not key.accepts(value):
            raise ConfigurationError(f"{name} in {path} is {value!r}; write {key.kind}")
        found |= key.options(value, path.parent)
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}); repair it") from None


class ConfiguredCommand(TyperCommand):
    """A command whose options come from the configuration file where nothing else has them."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """As Click's ``Command.make_context``, with the file's options as defaults."""
        given = super().make_context(info_name, list(args), parent, resilient_parsing=True)
        filled = self._options(given.params) if parent and not parent.resilient_parsing else {}
        return super().make_context(info_name, args, parent, default_map=filled, **extra)

    def _options(self, given: _Options) -> _Options:
        """The options of the file that apply to a command line that has those."""
        if all(map(is_release, _targets(given))):
            return {}
        try:
            path = find(Path.cwd())
            found = dict(options(path)) if path else {}
        except ConfigurationError as error:
            typer.echo(f"hitproof: {error}", err=True)
            raise typer.Exit(int(Verdict.USAGE)) from None
        if any(given.get(name) for name in _PROFILES):  # each would exclude the other
            found = {name: each for name, each in found.items() if name not in _PROFILES}
        names = {parameter.name for parameter in self.params}
        return {name: value for name, value in found.items() if name in names}


def _targets(given: _Options) -> list[str]:
    found = [given.get(name) for name in _TARGETS]
    flat = [
        each for value in found for each in (value if isinstance(value, (list, tuple)) else [value])
    ]
    return [each for each in flat if isinstance(each, str)]


def is_release(target: str) -> bool:
    """Whether a target is named by a version."""
    try:
        Version(target)
    except InvalidVersion:
        return False
    return True
