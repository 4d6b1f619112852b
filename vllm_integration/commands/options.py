"""Arguments and options that commands share, as types for Typer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

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


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--format", help="The output format.")]
TargetName = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A release such as 0.33.0 (fetched once from the package index), a path to a "
        "checkout, path@ref for a commit of one, or 'installed'.",
    ),
]
Python = Annotated[
    str,
    typer.Option(
        "--python",
        envvar="HITPROOF_PYTHON",
        help="Interpreter with vLLM's dependencies. [default: the one that runs hitproof]",
        show_default=False,
    ),
]
Ledger = Annotated[
    Path,
    typer.Option(
        "--ledger",
        help="The ledger of known divergences. [default: hitproof's own]",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Time limit for each answer, in seconds.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Cover less; faster.")]
Thorough = Annotated[
    bool,
    typer.Option("--thorough", help="Cover more: larger groups, and any three of them."),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        envvar="HITPROOF_JOBS",
        help="Number of worker processes; does not change the result. [default: one per core]",
        show_default=False,
    ),
]
Memory = Annotated[
    float, typer.Option("--memory", min=1.0, help="Address-space limit per worker, in GiB.")
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release",
        metavar="RELEASE",
        help="Baseline release for this target. [default: its own, or the one it descends from, "
        "by PKG-INFO, git tags or vllm/_version.py; else the one whose files are closest]",
        show_default=False,
    ),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME=VALUE",
        help="Override a detected policy; repeatable. `hitproof policies` lists the policies.",
        show_default=False,
    ),
]
AcceptRead = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-read",
        metavar="NAME",
        help="Allow an input field that the target reads but no check varies; repeatable. To allow "
        "it permanently, add it to the ledger.",
        show_default=False,
    ),
]
Managers = Annotated[
    list[str] | None,
    typer.Option(
        "--manager",
        metavar="MODULE:CLASS",
        help="Use this class of the target instead of the vLLM manager that it subclasses "
        "(KVCacheManager, or the manager of a group kind); repeatable.",
        show_default=False,
    ),
]
Aliases = Annotated[
    list[str] | None,
    typer.Option(
        "--alias",
        metavar="NEW=OLD",
        help="The target has renamed the function, attribute or parameter OLD to NEW; repeatable.",
        show_default=False,
    ),
]
Coordinators = Annotated[
    list[str] | None,
    typer.Option(
        "--coordinator",
        metavar="MODULE:CLASS",
        help="Use this class instead of the vLLM coordinator that it subclasses; repeatable.",
        show_default=False,
    ),
]
Pytest = Annotated[
    Path | None,
    typer.Option(
        "--pytest",
        metavar="DIR",
        help="Write a pytest case for each finding to DIR and run it on the target; with "
        "--verbose, for known divergences as well.",
        show_default=False,
    ),
]
Write = Annotated[
    list[str] | None,
    typer.Option(
        "--write",
        metavar="FORMAT=FILE",
        help="Also write the result to FILE in this format; repeatable.",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="Also write the result to DIR/index.html: one self-contained page with pictures.",
        show_default=False,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show known divergences and what conforms.")
]


@dataclass(frozen=True)
class Classes:
    """How a target is built, beside the code that it has.

    Attributes:
        manager, coordinator: classes built instead of vLLM's own, each as ``module:Class``.
        alias: new names, each as ``new=old``.
        release: the release that the target is held against, if it is not its own.
    """

    manager: Sequence[str] | None = None
    coordinator: Sequence[str] | None = None
    alias: Sequence[str] | None = None
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
_OF_GROUPS = {
    "python": Python,
    "timeout": Timeout,
    "memory": Memory,
    "jobs": Jobs,
    "manager": Managers,
    "coordinator": Coordinators,
    "alias": Aliases,
    "release": Release,
}
"""The options of `Limits` and `Classes`."""


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each attribute of a parameter that is a group of them.

    The parameter's default is a dataclass with the defaults of the options.
    """
    parameters: list[Parameter] = []
    groups: dict[str, dict[str, Any]] = {}
    for each in signature(command, eval_str=True).parameters.values():
        if not is_dataclass(each.default):
            parameters.append(each)
            continue
        left_out = {n for w in getattr(each.annotation, "__metadata__", ()) for n in w.names}
        groups[each.name] = {
            one.name: getattr(each.default, one.name)
            for one in fields(each.default)
            if one.name not in left_out
        }
        parameters += [
            each.replace(name=name, default=default, annotation=_OF_GROUPS[name])
            for name, default in groups[each.name].items()
        ]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, options in groups.items():
            default = signature(command).parameters[name].default
            given[name] = replace(default, **{option: given.pop(option) for option in options})
        command(**given)

    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called
