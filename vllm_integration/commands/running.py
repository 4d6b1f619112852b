"""What commands share around their work: targets, and progress."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from hitproof.vllm_integration.targets import resolving
from hitproof.vllm_integration.targets.target import Target


def announce(text: str) -> None:
    """Say on the side what takes long."""
    Console(stderr=True, highlight=False).print(text, style="dim")


def resolve(name: str) -> Target:
    """The target of that name; says what takes long. Raises `TargetError`."""
    return resolving.resolve(name, announce=announce)


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
