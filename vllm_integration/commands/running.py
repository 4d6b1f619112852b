"""What commands share around their work: progress, output, and failures told in one sentence."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from conformance.exploration import ExplorationError
from conformance.ledger import LedgerError
from proofs.prover import ReplayError
from proofs.second_solver import SecondSolverError
from vllm_integration.commands.options import Format
from vllm_integration.driver import EnvironmentFailure, InternalFailure, WorkerGone
from vllm_integration.gate import Verdict
from vllm_integration.policies import CannotProbe
from vllm_integration.rendering import verdict_name
from vllm_integration.targets import TargetError


@contextmanager
def failures(output: Format) -> Iterator[None]:
    """End with one sentence and the exit code where the body cannot do its work."""
    try:
        yield
    except (TargetError, LedgerError, EnvironmentFailure) as error:
        fail(Verdict.USAGE, str(error), output)
    except (CannotProbe, WorkerGone) as error:
        fail(Verdict.INCONCLUSIVE, f"the target's behaviour cannot be found out: {error}", output)
    except (InternalFailure, ExplorationError, ReplayError, SecondSolverError) as error:
        fail(Verdict.INTERNAL, f"hitproof is wrong, please report it: {error}", output)


def fail(verdict: Verdict, sentence: str, output: Format) -> NoReturn:
    """End with one sentence and an exit code."""
    if output is Format.JSON:
        name = verdict_name(verdict)
        typer.echo(json.dumps({"verdict": name, "exit_code": int(verdict), "error": sentence}))
    typer.echo(f"hitproof: {sentence}", err=True)
    raise typer.Exit(int(verdict))


def announce(text: str) -> None:
    """Say on the side what takes long."""
    Console(stderr=True).print(text, style="dim", highlight=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal; call it with what is done and the total."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(output: Format, as_json: Callable[[], Any], as_text: Callable[[Console], None]) -> None:
    """Print a result as far as the reader wants it; the exit code stays the verdict's."""
    try:
        if output is Format.JSON:
            typer.echo(json.dumps(as_json(), indent=2))
        else:
            as_text(_stdout())
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `show`: Rich would exit with 1, which says *diverges*."""
        raise BrokenPipeError


def _stdout() -> Console:
    """A console as wide as the terminal; lines in a pipe are not broken."""
    return _Output() if sys.stdout.isatty() else _Output(width=200, soft_wrap=True)
