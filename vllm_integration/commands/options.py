"""Arguments and options of commands; their words are in ``options.toml``."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import held_as
from hitproof.vllm_integration.targets.target import Target, TargetError, check_aliases
from hitproof.vllm_integration.verdict import Verdict

EXIT_CODES = """\
Exit codes: 0 conforms (known divergences of the ledger excepted), or nothing new in a restricted
run; 1 diverges: a finding that is not in the ledger, or a ledger entry that no longer reproduces;
2 usage or environment: bad arguments, no such target, a target that does not import; 3
inconclusive: a timeout, a limit, a claim that could not be checked; 4 internal error: a defect in
hitproof."""


class Refusal(Exception):
    """A command cannot do its work; the message is one sentence that names the remedy."""

    def __init__(self, sentence: str, verdict: Verdict = Verdict.USAGE) -> None:
        super().__init__(sentence)
        self.verdict = verdict


@dataclass(frozen=True)
class Scope:
    """How much is covered."""

    quick: bool = False
    thorough: bool = False

    @property
    def profile(self) -> Profile:
        """The profile that the options ask for. Raises `Refusal`."""
        if self.quick and self.thorough:
            raise Refusal("--quick and --thorough exclude each other; leave one out")
        profile = Profile.QUICK if self.quick else Profile.DEFAULT
        return Profile.THOROUGH if self.thorough else profile


@dataclass(frozen=True)
class Classes:
    """How a target is built, beside the code that it has.

    Attributes:
        manager, coordinator: classes built instead of vLLM's own, each as ``module:Class``.
        alias: new names, each as ``new=old``.
        release: the release that the target is compared with, if it is not its own.
    """

    manager: list[str] | None = None
    coordinator: list[str] | None = None
    alias: list[str] | None = None
    release: str | None = None

    def of(self, target: Target) -> Target:
        """The target, built so. Raises `TargetError`."""
        target = held_as(target, self.release)
        for option, texts in (("--manager", self.manager), ("--coordinator", self.coordinator)):
            for text in texts or ():
                module, colon, class_name = text.partition(":")
                parts = [*module.split("."), *class_name.split(".")]
                if not (colon and all(part.isidentifier() for part in parts)):
                    raise TargetError(
                        f"{text!r} is not a class; write it as module:Class with {option}"
                    )
        return replace(
            target,
            managers=tuple(self.manager or ()),
            coordinators=tuple(self.coordinator or ()),
            aliases=check_aliases(self.alias or ()),
        )


@dataclass(frozen=True)
class Without:
    """The options of a group that a command does not have."""

    names: tuple[str, ...]


OneWorker = Annotated[Limits, Without(("jobs",))]
QuickOnly = Annotated[Scope, Without(("thorough",))]
TOLD = tomllib.loads((Path(__file__).parent / "options.toml").read_text(encoding="utf-8"))


def options_of(parameter: Parameter, group: Any) -> Iterator[Parameter]:
    """The options of a group, a parameter each."""
    left_out = {n for w in getattr(parameter.annotation, "__metadata__", ()) for n in w.names}
    types = get_type_hints(type(group), include_extras=True)
    for each in fields(group):
        if each.name not in left_out:
            default, annotation = getattr(group, each.name), types[each.name]
            yield parameter.replace(name=each.name, default=default, annotation=annotation)


def declared(command: str, parameter: Parameter) -> Parameter:
    """The parameter with its argument or option, the command's own or the one that is shared.

    The metadata of a parameter has the strings that its help asks for, and what else Typer is told.
    """
    name, default = parameter.name, parameter.default
    told = dict(TOLD.get(command, {}).get(name) or TOLD["shared"][name])
    for more in getattr(parameter.annotation, "__metadata__", ()):
        told["help"] = told["help"].format(**more)
        told |= {key: value for key, value in more.items() if not isinstance(value, str)}
    if default is None or "[default:" in told["help"]:
        told.setdefault("show_default", False)
    if told.pop("argument", False):
        option = typer.Argument(**told)
    else:
        flags = told.pop("flags", [f"--{name.replace('_', '-')}"])
        option = typer.Option(*flags, **told)
    kind = Parameter.KEYWORD_ONLY
    return parameter.replace(annotation=Annotated[parameter.annotation, option], kind=kind)
