"""What commands share around their work: progress, output, and failures in one sentence."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.errors import ReplayError, SecondSolverError
from hitproof.vllm_integration.gate.policies import CannotProbe, UnknownPolicy
from hitproof.vllm_integration.gate.selection import NothingSelected
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, InternalFailure, WorkerGone
from hitproof.vllm_integration.targets.target import TargetError
from hitproof.vllm_integration.verdict import Verdict


def as_document(data: Any) -> str:
    """JSON as it is printed."""
    return json.dumps(data, indent=2) + "\n"


def _refusal_json(verdict: Verdict, sentence: str) -> str:
    name = verdict.label
    return json.dumps({"verdict": name, "exit_code": int(verdict), "error": sentence}) + "\n"


_REFUSALS: Mapping[str, Callable[[Verdict, str], str]] = {
    "json": _refusal_json,
    "github": github.refusal,
    "sarif": lambda verdict, sentence: as_document(sarif.refusal(verdict, sentence)),
    "junit": junit.refusal,
}
"""What programs read, by the name of the format, where there is no result."""


_USAGE: tuple[type[Exception], ...] = (
    *(TargetError, LedgerError, EnvironmentFailure, UnknownPolicy, NothingSelected),
)


@contextmanager
def failures(output: StrEnum, *usage: type[Exception]) -> Iterator[None]:
    """End with one sentence and the exit code where the body cannot do its work.

    ``usage`` are exceptions of the command's own whose message names the remedy.
    """
    try:
        yield
    except _USAGE + usage as error:
        fail(Verdict.USAGE, str(error), output)
    except (CannotProbe, WorkerGone) as error:
        fail(Verdict.INCONCLUSIVE, f"the target's policies cannot be determined: {error}", output)
    except (InternalFailure, InternalError, ReplayError, SecondSolverError) as error:
        fail(Verdict.INTERNAL, f"defect in hitproof, please report it: {error}", output)


def fail(verdict: Verdict, sentence: str, output: StrEnum) -> NoReturn:
    """End with one sentence and an exit code."""
    if output in _REFUSALS:
        typer.echo(_REFUSALS[output](verdict, sentence), nl=False)
    typer.echo(f"hitproof: {sentence}", err=True)
    raise typer.Exit(int(verdict))


def wanted_profile(quick: bool, thorough: bool, output: StrEnum) -> Profile:
    """The profile that the options ask for."""
    if quick and thorough:
        fail(Verdict.USAGE, "--quick and --thorough exclude each other; leave one out", output)
    return Profile.QUICK if quick else Profile.THOROUGH if thorough else Profile.DEFAULT


def announce(text: str) -> None:
    """Say on the side what takes long."""
    Console(stderr=True, highlight=False).print(text, style="dim")


_LINE_SECONDS = 60
"""Between lines about progress where there is no terminal."""


class _Counts(ProgressColumn):
    """What is done of how many, the time that it took, and an estimate of what is left."""

    def render(self, task: Task) -> Text:
        done = [f"{task.completed:.0f}/{task.total:.0f}"] if task.total else []
        elapsed = [f"{timedelta(seconds=int(task.elapsed or 0))} elapsed"]
        left = (
            [f"about {timedelta(seconds=int(task.time_remaining))} left"]
            if task.time_remaining
            else []
        )
        return Text(", ".join(done + elapsed + left))


@contextmanager
def progress(
    what: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int], None]]:
    """A bar with phase, elapsed time and estimate on a terminal, standard error by default.

    Call it with what is done and the total: before the first call the target is imported, after
    the last one findings are reduced and shown.
    """
    with _bar(console, clock) as bar:
        task = bar.add_task(f"{what}: import", total=None)

        def show_done(done: int, total: int) -> None:
            phase = what if done < total else f"{what}: findings"
            bar.update(task, description=phase, completed=done, total=total, refresh=True)

        yield show_done


@contextmanager
def jobs(
    what: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int, Mapping[str, int]], None]]:
    """A bar of jobs; call it with what is done, the total, and what was seen, with numbers.

    Where there is no terminal it is a line every minute.
    """
    with _bar(console, clock) as bar:
        told_at = clock()
        task = bar.add_task(f"{what}: start", total=None)
        first: list[tuple[int, float]] = []

        def show_done(done: int, total: int, seen: Mapping[str, int]) -> None:
            nonlocal told_at
            first[1:] = [(done, clock())]
            (before, began), (_, now) = first[0], first[-1]
            rate = [f"{60 * (done - before) / (now - began):.1f} a minute"] if now > began else []
            told = [f"{number} {each}" for each, number in sorted(seen.items())]
            bar.update(
                task,
                description=f"{what}: {', '.join(rate + told)}",
                completed=done,
                total=total,
                refresh=True,
            )
            if bar.disable and now - told_at >= _LINE_SECONDS:
                told_at = now
                counts = _Counts().render(bar.tasks[0]).plain
                bar.console.print(f"{bar.tasks[0].description}, {counts}", soft_wrap=True)

        yield show_done


@contextmanager
def phases(
    console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each of several phases; call it with the phase, what is done, and the total."""
    with _bar(console, clock) as bar:
        tasks: dict[str, TaskID] = {}

        def show_done(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                for before in tasks.values():
                    bar.update(before, visible=False)
                tasks[phase] = bar.add_task(phase, total=total)
            bar.update(tasks[phase], completed=done, refresh=True)

        yield show_done


def _bar(console: Console | None, clock: Callable[[], float]) -> Progress:
    """On a terminal, standard error by default."""
    console = console or Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Counts(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        get_time=clock,
        speed_estimate_period=600,  # jobs can take minutes
    )


def show(output: StrEnum, as_json: Callable[[], Any], as_text: Callable[[Console], None]) -> None:
    """Print a result as JSON or text; see `show_document`."""
    show_document(output, {"json": lambda: as_document(as_json())}, as_text)


def show_document(
    output: StrEnum, documents: Mapping[str, Callable[[], str]], as_text: Callable[[Console], None]
) -> None:
    """Print a result as far as the reader wants it; the exit code stays the verdict's.

    ``documents`` makes the document of each format but text.
    """
    try:
        if output in documents:
            typer.echo(documents[output](), nl=False)
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
    piped: dict[str, Any] = {} if sys.stdout.isatty() else {"width": 200, "soft_wrap": True}
    return _Output(highlight=False, **piped)
