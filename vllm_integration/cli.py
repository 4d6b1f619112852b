"""The command ``hitproof``."""

import importlib.metadata
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from conformance import lockstep_ledger
from conformance.configurations import Profile
from conformance.exploration import ExplorationError
from conformance.ledger import LedgerError, load
from proofs.obligation import Theorem
from proofs.prover import DEFAULTS, ReplayError, chosen, prove_in_subprocess
from proofs.second_solver import Opinion, SecondSolverError, write
from spec.claims import Status
from vllm_integration import gate, rendering
from vllm_integration.driver import (
    EnvironmentFailure,
    InternalFailure,
    WorkerGone,
    find_python,
)
from vllm_integration.gate import Verdict
from vllm_integration.lockstep import run as play_lockstep
from vllm_integration.lockstep_rendering import lockstep_json, print_lockstep
from vllm_integration.policies import CannotProbe, standings
from vllm_integration.targets import TargetError, resolve

EXIT_CODES = """\
Exit codes: 0 conforms (known divergences of the ledger apart); 1 diverges: a finding that is
not in the ledger, or a ledger entry that no longer reproduces; 2 usage or environment: bad
arguments, no such target, a target that does not import; 3 inconclusive: a time-out, a limit, a
claim that could not be checked; 4 internal error: hitproof is wrong."""

LEDGER = Path(__file__).with_name("ledger.toml")
LOCKSTEP_LEDGER = Path(__file__).with_name("known") / "lockstep.toml"

app = typer.Typer(
    name="hitproof",
    help="A formally checked specification of vLLM's prefix cache, and the gate that judges "
    "vLLM's real code against it.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hitproof {importlib.metadata.version('hitproof')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version


@app.command(epilog=EXIT_CODES)
def check(
    target: Annotated[
        str,
        typer.Argument(
            help="What to judge: a release such as 0.33.0 (fetched once from the package index), "
            "a path to a checkout, or 'installed'.",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Cover less, in seconds.")] = False,
    output: Annotated[
        Format, typer.Option("--format", help="Text for people, JSON for programs.")
    ] = Format.TEXT,
    python: Annotated[
        str,
        typer.Option(
            "--python",
            envvar="HITPROOF_PYTHON",
            help="Interpreter that has what vLLM imports. [default: the one that runs hitproof]",
            show_default=False,
        ),
    ] = sys.executable,
    ledger: Annotated[
        Path,
        typer.Option(
            "--ledger", help="Known divergences. [default: hitproof's own]", show_default=False
        ),
    ] = LEDGER,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that one check may take.")
    ] = 60.0,
    memory: Annotated[
        float, typer.Option("--memory", min=1.0, help="GiB that the target may map.")
    ] = 16.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every obligation and known divergence.")
    ] = False,
) -> None:
    """Judge vLLM's real prefix-cache code against the spec, for every cache state up to a bound."""
    errors = Console(stderr=True)

    def announce(text: str) -> None:
        errors.print(text, style="dim", highlight=False)

    started = time.monotonic()
    try:
        entries = load(ledger)
        interpreter = find_python(python)
        resolved = resolve(target, announce=announce)
        with _progress(errors) as progress:
            judging = progress.add_task(f"judging vLLM {resolved.name}", total=None)
            report = gate.check(
                resolved,
                Profile.QUICK if quick else Profile.DEFAULT,
                entries,
                python=interpreter,
                timeout=timeout,
                memory=int(memory * 2**30),
                progress=lambda done, total: progress.update(judging, completed=done, total=total),
            )
    except (TargetError, LedgerError, EnvironmentFailure) as error:
        _fail(Verdict.USAGE, str(error), output)
    except (InternalFailure, ExplorationError) as error:
        _fail(Verdict.INTERNAL, f"hitproof is wrong, please report it: {error}", output)
    report.seconds = time.monotonic() - started
    with _pipe_may_close():
        if output is Format.JSON:
            typer.echo(json.dumps(rendering.report_json(report), indent=2))
        else:
            rendering.print_report(report, _stdout(), verbose)
    raise typer.Exit(int(report.verdict))


@app.command(epilog=EXIT_CODES)
def lockstep(
    target: Annotated[
        str,
        typer.Argument(
            help="What to play: a release such as 0.23.0 (fetched once from the package index), "
            "a path to a checkout, or 'installed'.",
        ),
    ],
    histories: Annotated[
        int, typer.Option("--histories", min=1, help="How many histories are played.")
    ] = 200,
    seed: Annotated[str, typer.Option("--seed", help="Equal seeds give equal histories.")] = "1",
    shrink_budget: Annotated[
        int,
        typer.Option(
            "--shrink-budget", min=0, help="Histories that are tried to shrink one finding."
        ),
    ] = 2_000,
    output: Annotated[
        Format, typer.Option("--format", help="Text for people, JSON for programs.")
    ] = Format.TEXT,
    python: Annotated[
        str,
        typer.Option(
            "--python",
            envvar="HITPROOF_PYTHON",
            help="Interpreter that has what vLLM imports. [default: the one that runs hitproof]",
            show_default=False,
        ),
    ] = sys.executable,
    ledger: Annotated[
        Path,
        typer.Option(
            "--ledger", help="Known findings. [default: hitproof's own]", show_default=False
        ),
    ] = LOCKSTEP_LEDGER,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that the worker may be silent.")
    ] = 120.0,
    memory: Annotated[
        float, typer.Option("--memory", min=1.0, help="GiB that the target may map.")
    ] = 16.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every known finding.")
    ] = False,
) -> None:
    """Play generated histories on vLLM's real manager and on the reference, step by step.

    Whatever can be seen of the two must agree after every call, except where the target breaks
    a claim of the spec.
    """
    errors = Console(stderr=True)

    def announce(text: str) -> None:
        errors.print(text, style="dim", highlight=False)

    started = time.monotonic()
    try:
        entries = lockstep_ledger.load(ledger)
        interpreter = find_python(python)
        resolved = resolve(target, announce=announce)
        with _progress(errors) as progress:
            playing = progress.add_task(f"playing vLLM {resolved.name}", total=None)
            report = play_lockstep(
                resolved,
                entries,
                histories=histories,
                seed=seed,
                shrink_budget=shrink_budget,
                python=interpreter,
                timeout=timeout,
                memory=int(memory * 2**30),
                progress=lambda done, total: progress.update(playing, completed=done, total=total),
            )
    except (TargetError, LedgerError, EnvironmentFailure) as error:
        _fail(Verdict.USAGE, str(error), output)
    except InternalFailure as error:
        _fail(Verdict.INTERNAL, f"hitproof is wrong, please report it: {error}", output)
    report.seconds = time.monotonic() - started
    with _pipe_may_close():
        if output is Format.JSON:
            typer.echo(json.dumps(lockstep_json(report), indent=2))
        else:
            print_lockstep(report, _stdout(), verbose)
    raise typer.Exit(int(report.verdict))


@app.command(epilog=EXIT_CODES)
def prove(
    claim: Annotated[
        list[str] | None, typer.Argument(help="Claims to prove; all of them by default.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that all proofs may take.")
    ] = 300.0,
    output: Annotated[
        Format, typer.Option("--format", help="Text for people, JSON for programs.")
    ] = Format.TEXT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every obligation.")
    ] = False,
    smt2: Annotated[
        Path | None,
        typer.Option(
            "--smt2",
            metavar="DIR",
            help="Also write each obligation and each of its mutants there as an SMT-LIB 2 file, "
            "with the expected answer.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Prove the spec's theorems, for all block sizes, windows, alignments and positions.

    Z3 proves them; where cvc5 is installed it is asked, too.
    """
    try:
        theorems = chosen(claim or None)
        if smt2 is not None:
            _write_smt2(smt2, theorems, output)
        results = prove_in_subprocess(claim or None, timeout_seconds=timeout)
    except ValueError as unknown:
        _fail(Verdict.USAGE, str(unknown), output)
    except (ReplayError, SecondSolverError) as error:
        _fail(Verdict.INTERNAL, f"hitproof is wrong, please report it: {error}", output)
    with _pipe_may_close():
        if output is Format.JSON:
            typer.echo(json.dumps(rendering.proofs_json(results), indent=2))
        else:
            rendering.print_proofs(results, _stdout(), verbose)
    disputed = [r.obligation for r in results if r.second_opinion is Opinion.DISAGREES]
    if disputed:
        typer.echo(
            "hitproof: hitproof is wrong, please report it: Z3 and cvc5 disagree on "
            + ", ".join(disputed),
            err=True,
        )
        raise typer.Exit(int(Verdict.INTERNAL))
    statuses = {result.status for result in results}
    if Status.REFUTED in statuses:
        raise typer.Exit(int(Verdict.DIVERGES))
    if statuses != {Status.PROVED}:
        raise typer.Exit(int(Verdict.INCONCLUSIVE))


@app.command(epilog=EXIT_CODES)
def policies(
    target: Annotated[
        str | None,
        typer.Argument(
            help="Also find out how this release, checkout or 'installed' vLLM behaves.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--format", help="Text for people, JSON for programs.")
    ] = Format.TEXT,
    python: Annotated[
        str,
        typer.Option(
            "--python",
            envvar="HITPROOF_PYTHON",
            help="Interpreter that has what vLLM imports. [default: the one that runs hitproof]",
            show_default=False,
        ),
    ] = sys.executable,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that finding out may take.")
    ] = 60.0,
    memory: Annotated[
        float, typer.Option("--memory", min=1.0, help="GiB that the target may map.")
    ] = 16.0,
) -> None:
    """Show the policies that vLLM releases differ in, and which release has which.

    With a target the exit code is 1 when it does not behave as its release should.
    """
    errors = Console(stderr=True)
    try:
        resolved = None
        if target is not None:
            resolved = resolve(
                target, announce=lambda text: errors.print(text, style="dim", highlight=False)
            )
        found = standings(
            resolved, python=find_python(python), timeout=timeout, memory=int(memory * 2**30)
        )
    except (TargetError, EnvironmentFailure) as error:
        _fail(Verdict.USAGE, str(error), output)
    except (CannotProbe, WorkerGone) as error:
        _fail(Verdict.INCONCLUSIVE, f"the target's behaviour cannot be found out: {error}", output)
    except InternalFailure as error:
        _fail(Verdict.INTERNAL, f"hitproof is wrong, please report it: {error}", output)
    with _pipe_may_close():
        if output is Format.JSON:
            typer.echo(json.dumps(rendering.policies_json(found), indent=2))
        else:
            rendering.print_policies(found, _stdout())
    agrees = all(standing.agrees for standing in found)
    raise typer.Exit(int(Verdict.CONFORMS if agrees else Verdict.DIVERGES))


def _write_smt2(directory: Path, theorems: list[Theorem], output: Format) -> None:
    try:
        write(directory, theorems, DEFAULTS.bound)
    except OSError as error:
        _fail(Verdict.USAGE, f"cannot write the SMT-LIB files: {error}", output)


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `_pipe_may_close`: Rich would exit with 1, which says *diverges*."""
        raise BrokenPipeError


def _stdout() -> Console:
    """A console as wide as the terminal; lines in a pipe are not broken."""
    return _Output() if sys.stdout.isatty() else _Output(width=200, soft_wrap=True)


@contextmanager
def _pipe_may_close() -> Iterator[None]:
    """Print what the reader still wants; the exit code stays the verdict's."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _fail(verdict: Verdict, sentence: str, output: Format) -> NoReturn:
    """End with one sentence and an exit code."""
    if output is Format.JSON:
        name = rendering.verdict_name(verdict)
        typer.echo(json.dumps({"verdict": name, "exit_code": int(verdict), "error": sentence}))
    typer.echo(f"hitproof: {sentence}", err=True)
    raise typer.Exit(int(verdict))


def main() -> NoReturn:
    """Run the command; an exception that nobody expected is an internal error."""
    try:
        app()
    except SystemExit:
        raise
    except Exception as error:
        typer.echo(f"hitproof: hitproof is wrong, please report it: {error!r}", err=True)
        if os.environ.get("HITPROOF_TRACEBACK"):
            traceback.print_exc()
        sys.exit(int(Verdict.INTERNAL))
    sys.exit(0)
