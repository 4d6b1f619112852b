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


Output = Annotated[Format, typer.Option("--format", help="Text for people, JSON for programs.")]
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
        help="Interpreter that has what vLLM imports. [default: the one that runs hitproof]",
        show_default=False,
    ),
]
PYTHON = sys.executable
Ledger = Annotated[
    Path,
    typer.Option(
        "--ledger", help="The known divergences. [default: hitproof's own]", show_default=False
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds that the target may take to answer.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Cover less, in seconds.")]
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
        help="Processes that share the checks; the result is the same for any number. "
        "[default: one for each core]",
        show_default=False,
    ),
]
Memory = Annotated[
    float, typer.Option("--memory", min=1.0, help="GiB that each process of the target may map.")
]
MEMORY = 16.0
Release = Annotated[
    str | None,
    typer.Option(
        "--release",
        metavar="RELEASE",
        help="Hold the target against this release. [default: the one that it is or descends "
        "from, by PKG-INFO, git tags or vllm/_version.py, or else the one that its files are "
        "nearest to]",
        show_default=False,
    ),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME=VALUE",
        help="Judge by this value of a policy, not by the one that the target shows; repeatable. "
        "`hitproof policies` lists them.",
        show_default=False,
    ),
]
AcceptRead = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-read",
        metavar="NAME",
        help="Accept that the target reads this of its inputs although no check varies it; "
        "repeatable. The ledger can have it for good.",
        show_default=False,
    ),
]
Managers = Annotated[
    list[str] | None,
    typer.Option(
        "--manager",
        metavar="MODULE:CLASS",
        help="Build this class of the target instead of vLLM's manager that it subclasses: "
        "KVCacheManager, or that of a kind of groups; repeatable.",
        show_default=False,
    ),
]
Aliases = Annotated[
    list[str] | None,
    typer.Option(
        "--alias",
        metavar="NEW=OLD",
        help="Take NEW in the target for what was named OLD: a function, an attribute or a "
        "parameter that a change has renamed; repeatable.",
        show_default=False,
    ),
]
Coordinators = Annotated[
    list[str] | None,
    typer.Option(
        "--coordinator",
        metavar="MODULE:CLASS",
        help="Build this class instead of vLLM's coordinator that it subclasses; repeatable.",
        show_default=False,
    ),
]
Pytest = Annotated[
    Path | None,
    typer.Option(
        "--pytest",
        metavar="DIR",
        help="Write a pytest case for each finding to DIR (with --verbose for known divergences, "
        "too), and run it on the target.",
        show_default=False,
    ),
]
Write = Annotated[
    list[str] | None,
    typer.Option(
        "--write",
        metavar="FORMAT=FILE",
        help="Also write the result to FILE, in a format for programs; repeatable.",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="DIR",
        help="Also write the result to DIR/index.html: one page, with pictures, without network.",
        show_default=False,
    ),
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also show what conforms, and known divergences.")
]


def in_bytes(memory: float) -> int:
    """GiB as bytes."""
    return int(memory * 2**30)
