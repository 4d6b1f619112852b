"""The cost of the gate, in imports of vLLM: `check` and a bare import of its target alternate.

Run ``python -m benchmarks.gate`` with an interpreter that has what vLLM imports
(``hitproof[target]``). *Again* is a second check of the same code with the first of the profiles,
whose results are reused; the others judge all anew. The import is that of
``vllm.v1.core.kv_cache_manager``, with which every check begins, so the ratio shows the gate's own
share on a machine of any speed. Times are medians in seconds; each run is a separate process.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target, TargetError

_IMPORT = "import vllm.v1.core.kv_cache_manager"
_CHECK = "from hitproof.vllm_integration.cli import main; main()"


def seconds(code: str, *arguments: str, path: str = "") -> float:
    """How long a new interpreter takes to run ``code``; raises `CalledProcessError`."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": path}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment if path else None,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - started


def compare(target: Target, profiles: Sequence[str], repetitions: int) -> dict[str, float]:
    """The median of the bare import, of ``check`` with each of the profiles, and of one again.

    In seconds.
    """
    times: dict[str, list[float]] = {name: [] for name in ("import", *profiles, "again")}
    words = {name: [] if name == "default" else [f"--{name}"] for name in profiles}
    again = _CHECK, "check", target.name, *words[profiles[0]]
    seconds(*again)
    for _ in range(repetitions):
        times["import"].append(seconds(_IMPORT, path=str(target.root or "")))
        for name, options in words.items():
            times[name].append(seconds(_CHECK, "check", target.name, "--no-cache", *options))
        times["again"].append(seconds(*again))
    return {name: median(taken) for name, taken in times.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--release", default="0.33.0", help="the vLLM release, as for the gate")
    parser.add_argument(
        "--profiles", nargs="+", choices=("quick", "default"), default=["quick", "default"]
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    if options.repetitions < 1:
        parser.error("give at least one repetition")
    try:
        taken = compare(resolve(options.release), options.profiles, options.repetitions)
    except TargetError as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as failed:
        parser.error(f"{failed.cmd[2:]} exits with {failed.returncode}: {failed.stderr[-300:]!r}")
    if options.format == "json":
        print(json.dumps(taken, indent=1))
        return
    for name, spent in taken.items():
        print(f"{name:8} {spent:7.1f} s {spent / taken['import']:6.2f} imports")


if __name__ == "__main__":
    main()
