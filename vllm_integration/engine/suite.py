"""What ``make engine`` runs: releases that must be right in an engine, and faults to be shown.

Each case says what is expected of it. A fault that is planted must show in the numbers and to the
shadow. 0.30.0 is run with its own fault: block hashes confuse an adapter with a cache salt of its
name (BUGS 7). The shadow takes equal hashes for equal content, so there the replay of what the
engine asked has to show it.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.json_format import read, read_lines
from hitproof.vllm_integration.engine.environment import install
from hitproof.vllm_integration.engine.models import EAGLE_KINDS, Kind
from hitproof.vllm_integration.engine.planting import PLANTED
from hitproof.vllm_integration.engine.report import print_engine
from hitproof.vllm_integration.engine.running import Case, EngineReport, Outcome, run
from hitproof.vllm_integration.gate import replay
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import TargetError
from hitproof.vllm_integration.verdict import Verdict

_SEED, _SECONDS = "1", 1_800.0
_CONFUSING = "0.30.0"
"""The newest release whose block hashes confuse adapters and salts."""


@dataclass(frozen=True)
class SuiteRun:
    """A target, and what an engine of it is run with."""

    target: str
    cases: Sequence[Case]


RUNS = (
    SuiteRun("0.32.0", [Case(kind) for kind in Kind]),
    SuiteRun(
        "0.33.0",
        [
            *(Case(kind) for kind in Kind),
            *(Case(kind, eagle=True) for kind in EAGLE_KINDS),
            *(Case(kind, planted=fault) for kind in Kind for fault in PLANTED[kind]),
        ],
    ),
    SuiteRun(_CONFUSING, [Case(Kind.ADAPTERS)]),
)


def unmet(target: str, outcome: Outcome) -> str:
    """What is expected of the case and is otherwise; "" when all is as expected."""
    confused = target == _CONFUSING and outcome.case.kind is Kind.ADAPTERS
    wrong, seen = bool(outcome.different), bool(outcome.seen)
    if outcome.case.planted is None and not confused:
        if outcome.verdict is not Verdict.CONFORMS:
            return outcome.unsettled or "outputs with the cache must be those without"
        return "" if outcome.data["evictions"] else "nothing was evicted"
    if not wrong:
        return "the fault must make numbers wrong"
    return "" if seen or confused else "the shadow must see the fault"


def main() -> int:
    """Install the environment and run everything; the exit code."""
    console = Console(width=200, soft_wrap=True, highlight=False)
    try:
        install(lambda text: console.print(text))
        return _run_all(console)
    except (EnvironmentFailure, TargetError, subprocess.CalledProcessError) as error:
        console.print(f"hitproof: {error}", markup=False)
        return int(Verdict.USAGE)


def _run_all(console: Console) -> int:
    started = time.monotonic()
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hitproof-engine-") as scratch:
        place = Path(scratch)
        with ThreadPoolExecutor(min(len(RUNS), os.cpu_count() or 1)) as pool:
            for each, report in zip(RUNS, pool.map(lambda r: _run(r, place), RUNS), strict=True):
                print_engine(report, console, verbose=False)
                failed += [
                    f"{each.target}, {outcome.case}: {why}"
                    for outcome in report.outcomes
                    if (why := unmet(each.target, outcome))
                ]
                if each.target == _CONFUSING and not _replay_shows_it(report):
                    failed.append(f"{each.target}: the replay of the record must show the fault")
    for line in failed:
        console.print(f"[bold red]not as expected[/]: {line}")
    cases = sum(len(each.cases) for each in RUNS)
    console.print(
        f"{cases} cases on {len(RUNS)} releases, {cases - len(failed)} as expected; "
        f"{time.monotonic() - started:.0f} s"
    )
    return int(bool(failed))


def _run(each: SuiteRun, place: Path) -> EngineReport:
    started = time.monotonic()
    record = place / each.target
    report = run(resolve(each.target), each.cases, seed=_SEED, timeout=_SECONDS, record=record)
    report.seconds = time.monotonic() - started
    return report


def _replay_shows_it(report: EngineReport) -> bool:
    """Whether replay finds that a request was served what another adapter or salt computed."""
    histories = [
        history
        for file in report.records
        for history in read_lines(file.read_bytes(), file.name, read)
    ]
    of = Run(report.target, limits=Limits(timeout=120.0))
    reports = replay.run(of, histories)
    codes = {found.signature.defect.code for each in reports for found in each.findings}
    return Code.OTHER_CONTENT_READ in codes


if __name__ == "__main__":
    sys.exit(main())
