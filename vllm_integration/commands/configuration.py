"""The configuration file: options that hold for a checkout, written down beside it.

``hitproof.toml``, or the table ``[tool.hitproof]`` of ``pyproject.toml``, in the working directory
or above it. It applies to commands with a target that is not a release, and fills in for options
that neither the command line nor the environment has.
"""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter, ValidationError
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


_WORDS: Mapping[Any, str] = {
    str: "a string",
    float: "a number",
    bool: "true or false",
    list[str]: "a list of strings",
    dict[str, str]: "a table of strings",
    Profile: f"one of {', '.join(Profile)}",
}
"""What a value has to be, in words."""


def _as(parameter: str) -> Callable[[Any, Path], _Options]:
    return lambda value, _: {parameter: value}


def _profile(value: str, _: Path) -> _Options:
    return {"quick": value == Profile.QUICK, "thorough": value == Profile.THOROUGH}


def _policies(value: Mapping[str, str], _: Path) -> _Options:
    return {"policy": [f"{name}={each}" for name, each in value.items()]}


KEYS: Mapping[str, tuple[Any, Callable[[Any, Path], _Options]]] = {
    "release": (str, _as("release")),
    "baseline": (str, _as("baseline")),
    "ledger": (str, lambda value, at: {"ledger": at / value}),
    "python": (str, _as("python")),
    "profile": (Profile, _profile),
    "policies": (dict[str, str], _policies),
    "strict": (bool, _as("strict")),
    "managers": (list[str], _as("manager")),
    "coordinators": (list[str], _as("coordinator")),
    "aliases": (list[str], _as("alias")),
    "accepted_reads": (list[str], _as("accept_read")),
    "cache": (bool, lambda value, _: {"no_cache": not value}),
    "timeout": (float, _as("timeout")),
    "memory": (float, _as("memory")),
    "jobs": (float, _as("jobs")),
}
"""What a key's value has to be, and which parameters of commands it gives what; paths are relative
to the file's directory."""


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
        kind, given = key
        try:
            TypeAdapter(kind).validate_python(value, strict=kind is not Profile)
        except ValidationError:
            sentence = f"{name} in {path} is {value!r}; write {_WORDS[kind]}"
            raise ConfigurationError(sentence) from None
        found |= given(value, path.parent)
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
