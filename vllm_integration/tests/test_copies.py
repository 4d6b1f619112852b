"""Workers are copies of one process that has the target imported, where a copy can do its work."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hitproof.vllm_integration.sandbox import driver
from hitproof.vllm_integration.sandbox.driver import (
    Asked,
    Copy,
    Limits,
    Worker,
    WorkerGone,
    WorkerRaised,
    Workers,
)
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import LOOKUP, ended
from hitproof.vllm_integration.tests.conftest import Copy as Copied

pytestmark = [pytest.mark.release, pytest.mark.usefixtures("real_interpreter")]


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[Worker]:
    """The workers that import their target, as they are started."""
    started: list[Worker] = []

    class Noted(Worker):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(driver, "Worker", Noted)
    return started


A_THREAD = (
    "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
)


def workers_of(target: Target) -> Workers:
    return Workers(target, Limits(sys.executable))


def policies(worker: Asked) -> object:
    answer = worker.ask(60, op="policies")
    assert not answer["detail"]
    return answer["policies"]


def number(copy: Asked) -> int:
    assert isinstance(copy, Copy)
    return copy._number


@pytest.mark.long
def test_the_target_is_imported_once(imported: list[Worker]) -> None:
    with workers_of(resolve("0.33.0")) as workers:
        first, second = workers.start(), workers.start()
        assert policies(first) == policies(second)
        with pytest.raises(
            WorkerRaised, match=r"the worker crashed: KeyError: 'x' \(hitproof/.*py"
        ):
            first.ask(60, op="finding", by="x")
        os.kill(number(first), signal.SIGKILL)
        with pytest.raises(WorkerGone, match="was killed by signal 9"):
            policies(first)
        third = workers.start()
        assert policies(second) == policies(third)
        assert len(imported) == 1
        numbers = {number(each) for each in (first, second, third)}
        assert len(numbers) == 3
        for each in (first, second, third):
            each.close()
        assert all(ended(each) for each in numbers)


@pytest.mark.long
@pytest.mark.parametrize(
    ("on_import", "imports"),
    [
        ("import os\nos.register_at_fork(after_in_child=lambda: os._exit(3))\n", 3),
        ("import os\nos.fork = None\n", 1),
        (A_THREAD, 2),
    ],
    ids=["copies end at once", "no fork", "a thread"],
)
def test_where_it_cannot_be_copied_it_is_imported_anew(
    on_import: str, imports: int, broken_copy: Copied, imported: list[Worker]
) -> None:
    root = broken_copy("0.33.0", {LOOKUP: LOOKUP})
    (root / "vllm/__init__.py").unlink()
    (root / "vllm/__init__.py").write_text(on_import)
    with workers_of(Target(str(root), root, "0.33.0")) as workers:
        first, second = workers.start(), workers.start()
        assert policies(first) == policies(second)
        assert len(imported) == imports
        first.close()
        second.close()


@pytest.mark.long
def test_a_copy_takes_what_it_started_with_it(broken_copy: Copied, tmp_path: Path) -> None:
    """Also what left its session; the other copy goes on."""
    started = tmp_path / "started"
    started.mkdir()
    stays = f"import os, time; open(f'{started}/{{os.getpid()}}', 'w'); time.sleep(600)"
    starts = f"subprocess.Popen([sys.executable, '-c', {stays!r}], start_new_session=True)"
    act = f"        import subprocess, sys\n        {starts}\n"
    root = broken_copy("0.33.0", {LOOKUP: act + LOOKUP})
    with workers_of(Target(str(root), root, "0.33.0")) as workers:
        first, second = workers.start(), workers.start()
        policies(first)
        while not any(started.iterdir()):
            time.sleep(0.01)
        first.close()
        assert all(ended(int(each.name)) for each in started.iterdir())
        second.ask(20, op="here")
        second.close()
