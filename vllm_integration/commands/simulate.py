"""``hitproof simulate``."""

from functools import partial
from pathlib import Path
from typing import Annotated

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.simulation.generators import GENERATORS
from hitproof.conformance.simulation.traces import is_trace, read_trace
from hitproof.conformance.simulation.workload import (
    Workload,
    WorkloadError,
    of_history,
    read_workload,
    schema,
    write_workload,
)
from hitproof.spec.groups import ConfigurationError
from hitproof.vllm_integration.commands.doctor import NEWEST
from hitproof.vllm_integration.commands.frame import Answer, command, write_text
from hitproof.vllm_integration.commands.options import OneWorker, Refusal
from hitproof.vllm_integration.commands.running import phases, resolve
from hitproof.vllm_integration.gate import simulate as gate
from hitproof.vllm_integration.gate.doctor import (
    ModelError,
    bundled_drafts,
    bundled_models,
    read_model,
    with_paths,
)
from hitproof.vllm_integration.reports.html.charts import simulate_page
from hitproof.vllm_integration.reports.simulate import (
    print_simulated,
    simulated_csv,
    simulated_json,
)
from hitproof.vllm_integration.sandbox.driver import Limits, WorkerGone
from hitproof.vllm_integration.verdict import Verdict

_NAMES = ", ".join(model.name for model in MODELS)


@command(
    *(WorkloadError, HistoryError, ConfigurationError, ModelError),
    formats="TEXT JSON CSV HTML",
    page=True,
    schema=schema,
)
def simulate(
    workload: Annotated[str, {"generators": ", ".join(GENERATORS)}],
    target: Annotated[list[str] | None, {"newest": NEWEST}] = None,
    reference: bool = False,
    model: Annotated[str, {"names": _NAMES, "models": ", ".join(bundled_models())}] = MODELS[
        0
    ].name,
    eagle: bool = False,
    requests: int = 14,
    tokens: int = 65_536,
    seed: int = 1,
    retention: list[str] | None = None,
    pool_requests: float = 4.0,
    blocks: int | None = None,
    chunk: int = 8192,
    max_num_seqs: int = 1,
    kv_offloading_size: str | None = None,
    kv_transfer_config: str | None = None,
    speculative_config: Annotated[str | None, {"drafts": " and ".join(bundled_drafts())}] = None,
    write: Path | None = None,
    limits: OneWorker = Limits(timeout=120.0),
) -> Answer:
    """Compare the hits of a workload on releases' real managers and on the reference.

    Reports the prompt tokens hit, what an unbounded cache and optimal eviction would hit, and why
    the rest is lost. The exit code is 0 unless a target fails.
    """
    played, engine = _read(workload, requests, tokens, seed)
    if write is not None:
        write_text(write, write_workload(played), "; name another file with --write")
    names = list(dict.fromkeys(target)) if target else [] if reference else [NEWEST]
    connected = {
        "--kv-offloading-size": kv_offloading_size,
        "--kv-transfer-config": kv_transfer_config,
        "--speculative-config": speculative_config,
    }
    try:
        if any(connected.values()):
            if reference or eagle or retention or max_num_seqs > 1 or engine is not None:
                raise WorkloadError(_ALONE)
            options = connected | {"--max-num-batched-tokens": str(chunk)}
            options |= {"--num-gpu-blocks-override": str(blocks)} if blocks is not None else {}
            words = [word for pair in options.items() if pair[1] for word in pair if word]
            asked = gate.TierDeployment(
                read_model(model), with_paths(words), None if blocks else pool_requests
            )
            with phases() as progress:
                targets = [resolve(each) for each in names]
                found = gate.simulate_tier(played, asked, targets, limits, progress)
        else:
            name = workload if engine is not None else model
            engine = engine or gate.engine_of(
                _layout(model),
                played,
                eagle=eagle,
                chunk=chunk,
                blocks=blocks,
                pool_requests=pool_requests,
            )
            with phases() as progress:
                found = gate.simulate(
                    played,
                    gate.Deployment(engine, _intervals(retention, engine), max_num_seqs, name),
                    [resolve(each) for each in names],
                    limits,
                    reference=reference,
                    progress=progress,
                )
    except WorkerGone as gone:
        raise Refusal(f"the target cannot be started: {gone}", Verdict.INCONCLUSIVE) from None
    failed = any(run.failed for run in found.runs) or all(run.cannot for run in found.runs)
    return Answer(
        Verdict.INCONCLUSIVE if failed else Verdict.CONFORMS,
        partial(print_simulated, found),
        partial(simulated_json, found),
        {"csv": partial(simulated_csv, found)},
        partial(simulate_page, found),
    )


_ALONE = (
    "beside a KV connector a workload is played on the engine of a model, one request at a time; "
    "leave out --reference, --eagle (--speculative-config has drafts), --retention, "
    "--max-num-seqs and recorded histories"
)


def _layout(name: str) -> Model:
    found = next((each for each in MODELS if each.name == name), None)
    if found is None:
        raise WorkloadError(f"there is no model {name}; name one of {_NAMES}")
    return found


def _intervals(texts: list[str] | None, engine: EngineConfiguration) -> tuple[int | None, ...]:
    """Retention intervals from the command line; by default the engine's own."""
    if not texts:
        return (engine.retention_interval,)
    found: dict[int | None, None] = {}
    for text in texts:
        if text not in ("dense", "latest") and not text.isdecimal():
            raise WorkloadError(
                f"--retention {text} is not dense, latest or a number of tokens; name one of these"
            )
        found[None if text == "dense" else 0 if text == "latest" else int(text)] = None
    return tuple(found)


def _read(
    name: str, requests: int, tokens: int, seed: int
) -> tuple[Workload, EngineConfiguration | None]:
    """The workload, and the engine where it has one."""
    path = Path(name)
    if name in GENERATORS and not path.exists():
        return GENERATORS[name](requests, tokens, seed), None
    try:
        text = path.read_bytes()
    except OSError as error:
        raise WorkloadError(
            f"{name} cannot be read ({error.strerror}); name a file, or one of "
            f"{', '.join(GENERATORS)}"
        ) from None
    if is_trace(text):
        return read_trace(text, name), None
    if b'"steps"' in text:
        history = read(text, name)
        return of_history(history), history.engine
    return read_workload(text, name), None
