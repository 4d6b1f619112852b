"""Arguments and options of commands as Typer takes them; their words are in ``options.toml``."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import held_as
from hitproof.vllm_integration.targets.target import Target, TargetError, check_aliases

EXIT_CODES = """\
Exit codes: 0 conforms (known divergences of the ledger excepted), or nothing new in a restricted
run; 1 diverges: a finding that is not in the ledger, or a ledger entry that no longer reproduces;
2 usage or environment: bad arguments, no such target, a target that does not import; 3
inconclusive: a timeout, a limit, a claim that could not be checked; 4 internal error: a defect in
hitproof."""


Format = StrEnum("Format", "TEXT JSON")
"""How results are printed."""


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
TOLD = tomllib.loads((Path(__file__).parent / "options.toml").read_text(encoding="utf-8"))


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer takes it, its arguments and options as ``options.toml`` has them.

    A parameter whose default is a dataclass is a group, with an option for each attribute. The
    metadata of a parameter has the strings that its help asks for, and what else Typer is told.
    """
    parameters: list[Parameter] = []
    groups: dict[str, dict[str, Any]] = {}
    for each in signature(command, eval_str=True).parameters.values():
        if not is_dataclass(each.default):
            parameters.append(_declared(command.__name__, each))
            continue
        left_out = {n for w in getattr(each.annotation, "__metadata__", ()) for n in w.names}
        types = get_type_hints(type(each.default))
        groups[each.name] = {
            one.name: getattr(each.default, one.name)
            for one in fields(each.default)
            if one.name not in left_out
        }
        for name, default in groups[each.name].items():
            one = each.replace(name=name, default=default, annotation=types[name])
            parameters.append(_declared(command.__name__, one))

    @wraps(command)
    def called(**given: Any) -> None:
        for name, options in groups.items():
            default = signature(command).parameters[name].default
            given[name] = replace(default, **{option: given.pop(option) for option in options})
        command(**given)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _declared(command: str, parameter: Parameter) -> Parameter:
    """The parameter with its argument or option, the command's own or the one that is shared."""
    name, default = parameter.name, parameter.default
    if parameter.annotation is typer.Context:
        return parameter
    told = dict(TOLD.get(command, {}).get(name) or TOLD["shared"][name])
    for more in getattr(parameter.annotation, "__metadata__", ()):
        told["help"] = told["help"].format(**more)
        told |= {key: value for key, value in more.items() if not isinstance(value, str)}
    if default is None or "[default:" in told["help"]:
        told.setdefault("show_default", False)
    if told.pop("argument", False):
        declared = typer.Argument(**told)
    else:
        flags = told.pop("flags", [f"--{name.replace('_', '-')}"])
        declared = typer.Option(*flags, **told)
    return parameter.replace(annotation=Annotated[parameter.annotation, declared])
