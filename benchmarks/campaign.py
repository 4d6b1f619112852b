"""What a campaign costs: overhead of its engines, speed-up, and memory of a worker.

Run ``python -m benchmarks.campaign``. Jobs that wait for ``--seconds`` measure the engine alone:
its overhead is what they take beyond the waiting, after the workers have started. ``--histories``
jobs on ``--release`` measure the speed-up of two workers over one on this machine, and the memory
of a worker with its target. Figures for more workers are extrapolated from those for two.
"""

import argparse
import json
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hitproof.vllm_integration.campaign.engines import Engine, Local, OnRay, Targets
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.kinds import KINDS
from hitproof.vllm_integration.campaign.plans import Given
from hitproof.vllm_integration.campaign.serving import Place, Setting

_MANY = (10, 100)


def wait(question: Mapping[str, Any], place: Place) -> Result:
    """A job that takes a known time."""
    time.sleep(question["seconds"])
    del place
    return {}


def measured(engine: Engine, jobs: Sequence[Job], targets: Targets) -> dict[str, float]:
    """Seconds that the jobs take in all, and for their workers, after one for each has ended."""
    workers = engine.workers
    list(engine.answers(iter(jobs[:workers]), targets))
    started = time.perf_counter()
    answers = [answer for _, answer in engine.answers(iter(jobs[workers:]), targets)]
    took = time.perf_counter() - started
    if refused := next((each.refused for each in answers if each.refused), ""):
        raise RuntimeError(refused)
    busy = sum(each.seconds for each in answers)
    return {
        "workers": workers,
        "jobs": len(answers),
        "seconds a job": busy / len(answers),
        "seconds": took,
        "overhead in percent": 100 * (took * workers / busy - 1),
        "jobs a minute": 60 * len(answers) / took,
        "memory of this process's children in MiB": _memory_of_children() / 2**20,
    }


def _memory_of_children() -> int:
    """Bytes that processes below this one hold (Linux)."""
    parents, held = dict[int, int](), dict[int, int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            parents[int(process.name)] = int(fields[1])
            held[int(process.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # it has ended
            continue

    def is_below(number: int) -> bool:
        while number in parents:
            number = parents[number]
            if number == os.getpid():
                return True
        return False

    return sum(each for number, each in held.items() if is_below(number))


def engines() -> Generator[tuple[str, Callable[..., Engine]], None, None]:
    """Engines of one and two workers: processes, and Ray on this machine."""
    for workers in (1, 2):
        yield f"processes, {workers}", lambda work, setting, n=workers: Local(n, work, setting)
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.ERROR)
    for workers in (1, 2):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers})
        at = cluster.address
        try:
            yield f"Ray, {workers}", lambda work, setting, at=at: OnRay(at, work, setting)
        finally:
            cluster.shutdown()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__)
    parser.add_argument("--release", default="0.33.0", help="the vLLM release, as for the gate")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a job that waits")
    parser.add_argument("--jobs", type=int, default=10, help="for each worker")
    parser.add_argument("--histories", type=int, default=0, help="jobs for each worker, if any")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    setting, rows = Setting(), dict[str, dict[str, float]]()
    kind = KINDS["histories"]
    given = Given({}, setting, {"seed": "1"})
    if options.histories:
        given = kind.prepare([options.release], given, print)
    with closing(engines()) as every:
        for name, start in every:
            with closing(start(wait, setting)) as engine:
                number = (options.jobs + 1) * engine.workers
                asked = [{"seconds": options.seconds, "n": n} for n in range(number)]
                waiting = [Job("wait", "", "", each) for each in asked]
                rows[f"waiting: {name}"] = measured(engine, waiting, {})
            if options.histories:
                with closing(start(kind.work, setting)) as engine:
                    number = (options.histories + 1) * engine.workers
                    played = next(kind.plan(given))[:number]
                    rows[f"histories: {name}"] = measured(engine, played, given.targets)
    for name in [each for each in rows if each.endswith(", 2")]:
        two, one = rows[name], rows[f"{name[:-1]}1"]
        two["speed-up over 1"] = two["jobs a minute"] / one["jobs a minute"]
        for workers in _MANY:
            two[f"jobs a minute with {workers}, extrapolated"] = two["jobs a minute"] * workers / 2
    if options.format == "json":
        print(json.dumps(rows, indent=1))
        return
    for name, row in rows.items():
        print(name, *(f"  {what}: {figure:.2f}" for what, figure in row.items()), sep="\n")


if __name__ == "__main__":
    main()
