"""Arguments and options that commands share, as types for Typer."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

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
PYTHON = sys.executable
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
JOBS = len(os.sched_getaffinity(0))
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
MEMORY = 16.0
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


def in_bytes(memory: float) -> int:
    """GiB as bytes."""
    return int(memory * 2**30)
