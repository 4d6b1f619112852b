"""An engine of a target, run in a process of its own, and what its outputs and the shadow say."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hitproof.vllm_integration.engine.environment import (
    built_release,
    engine_python,
    home,
    search_path,
)
from hitproof.vllm_integration.engine.models import Kind
from hitproof.vllm_integration.engine.numbers import MOST_NOISE
from hitproof.vllm_integration.engine.planting import Planted
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure
from hitproof.vllm_integration.sandbox.processes import end, environment
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

_LOG_TAIL = 2_000  # characters


@dataclass(frozen=True)
class Case:
    """What an engine is run with.

    Attributes:
        kind: the model.
        eagle: whether an EAGLE head drafts.
        planted: the fault that is put into the managers; None for vLLM as it is.
    """

    kind: Kind
    eagle: bool = False
    planted: Planted | None = None

    def as_json(self) -> dict[str, Any]:
        """The case as the process reads it."""
        return {"kind": self.kind, "eagle": self.eagle, "planted": self.planted}

    def __str__(self) -> str:
        eagle = " + EAGLE" if self.eagle else ""
        fault = f", planted: {self.planted}" if self.planted else ""
        return f"{self.kind}{eagle}{fault}"


@dataclass
class Outcome:
    """The outcome of a case.

    Attributes:
        case: the case.
        data: what the process says of it, as `engine.process` has it; empty where it did not end.
    """

    case: Case
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def different(self) -> list[dict[str, Any]]:
        """The requests whose outputs are not those of no caching, where noise does not hide it."""
        quiet = self.data and self.data["noise"] <= MOST_NOISE
        return list(self.data["different"]) if quiet else []

    @property
    def seen(self) -> list[dict[str, Any]]:
        """What the shadow found that the ledger does not have, the first of each signature."""
        return [each for each in self._findings if not each["known"]]

    @property
    def known(self) -> list[dict[str, Any]]:
        """What the shadow found and the ledger has."""
        return [each for each in self._findings if each["known"]]

    @property
    def summary(self) -> dict[str, Any]:
        """What the shadow judged; empty where it was not there."""
        lines = self.data.get("shadow", [])
        found: dict[str, Any] = next((each["summary"] for each in lines if "summary" in each), {})
        return found

    @property
    def _findings(self) -> list[dict[str, Any]]:
        return [each for each in self.data.get("shadow", []) if "signature" in each]

    @property
    def unsettled(self) -> str:
        """Why the case shows nothing; "" where it does."""
        if not self.data:
            return "the engine did not run it to its end"
        noise = self.data["noise"]
        if noise > MOST_NOISE:
            return f"batching alone changes log probabilities by {noise:.1e}: numbers show nothing"
        if not self.data["hits"] or not self.data["tokens"]:
            return "no request had a hit"
        if not self.summary.get("hits"):
            return "the shadow judged no hit"
        if self.summary["errors"]:
            return f"the shadow had errors of its own: {', '.join(self.summary['errors'])}"
        return ""

    @property
    def verdict(self) -> Verdict:
        """The verdict: other numbers than without caching count, whatever the ledger has."""
        if self.different or self.seen:
            return Verdict.DIVERGES
        return Verdict.INCONCLUSIVE if self.unsettled else Verdict.CONFORMS


@dataclass
class EngineReport:
    """What an engine of the target did.

    Attributes:
        target: the target.
        build: the release whose compiled extension ran.
        outcomes: one for each case.
        ended: why the process ended early, "" when it did not.
        records: files with the histories of managers, one for each case that has one.
        seconds: wall clock, filled in by the caller.
    """

    target: Target
    build: str
    outcomes: list[Outcome]
    ended: str = ""
    records: list[Path] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The verdict: a case that diverges outweighs one that shows nothing."""
        verdicts = {each.verdict for each in self.outcomes}
        order = Verdict.DIVERGES, Verdict.INCONCLUSIVE, Verdict.CONFORMS
        return next(verdict for verdict in order if verdict in verdicts)


def run(
    target: Target, cases: Sequence[Case], *, seed: str, timeout: float, record: Path | None = None
) -> EngineReport:
    """Run the cases, one after the other, in one process.

    ``timeout`` (seconds) bounds all of them; ``record`` is a directory for the histories of the
    managers. Raises `EnvironmentFailure` where there is no engine, or no result at all.
    """
    python, build = engine_python(), built_release()
    with tempfile.TemporaryDirectory(prefix="hitproof-engine-") as scratch:
        place = Path(scratch)
        job, results = place / "job.json", place / "results.jsonl"
        job.write_text(json.dumps({"seed": seed, "cases": [each.as_json() for each in cases]}))
        results.touch()
        variables = environment(target, place) | {
            "PYTHONPATH": os.pathsep.join(map(str, search_path(target))),
            "TORCHDYNAMO_DISABLE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_TARGET_DEVICE": "cpu",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # What it learns about models, some 15 s each, is kept.
            "VLLM_CACHE_ROOT": str(home() / "vllm-cache"),
        }
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # the links to the target are our own
        if target.version is not None:
            variables["HITPROOF_SHADOW_RELEASE"] = target.version
        module = "hitproof.vllm_integration.engine.process"
        with (place / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(python), "-m", module, str(job), str(results)],
                cwd=place,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                process.wait(timeout)
                ended = f"it ended with exit code {process.returncode}" * bool(process.returncode)
            except subprocess.TimeoutExpired:
                ended = f"it did not end within {timeout:g} seconds; --timeout allows more"
            finally:
                end(process, variables)
        done = [json.loads(line) for line in results.read_text().splitlines()]
        if ended:
            ended += f"; its last output: {_last_words(place / 'log')}"
        if ended and not done:
            raise EnvironmentFailure(f"the engine of vLLM {target.name} does not run: {ended}")
        found = [done[n] if n < len(done) else {} for n in range(len(cases))]
        outcomes = [Outcome(case, data) for case, data in zip(cases, found, strict=True)]
        report = EngineReport(target, build, outcomes, ended)
        if record is not None:
            report.records = _keep(outcomes, record)
    return report


def _keep(outcomes: Sequence[Outcome], place: Path) -> list[Path]:
    place.mkdir(parents=True, exist_ok=True)
    kept = []
    for outcome in outcomes:
        if outcome.data.get("record"):
            case = outcome.case
            parts = [case.kind, *(["eagle"] if case.eagle else []), *filter(None, [case.planted])]
            kept.append(place / f"{'_'.join(parts)}.jsonl")
            shutil.copyfile(outcome.data["record"], kept[-1])
    return kept


def _last_words(log: Path) -> str:
    """The last line that says something, with what names the error."""
    text = log.read_text(errors="replace")[-_LOG_TAIL:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line]
    return (named or lines or ["none"])[-1]
