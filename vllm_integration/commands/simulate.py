"""``hitproof simulate``."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.scope.models import MODELS
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
from hitproof.vllm_integration.commands.options import (
    Html,
    OneWorker,
)
from hitproof.vllm_integration.commands.report import typed, wanted_report, write_report
from hitproof.vllm_integration.commands.running import (
    announce,
    as_document,
    fail,
    failures,
    phases,
    show_document,
)
from hitproof.vllm_integration.gate import simulate as gate
from hitproof.vllm_integration.reports.html.simulate import simulate_page
from hitproof.vllm_integration.reports.simulate import (
    print_simulated,
    simulated_csv,
    simulated_json,
)
from hitproof.vllm_integration.sandbox.driver import (
    Limits,
    WorkerGone,
)
from hitproof.vllm_integration.targets.resolving import (
    resolve,
)
from hitproof.vllm_integration.verdict import Verdict

_NEWEST = "0.33.0"
_NAMES = ", ".join(model.name for model in MODELS)


class SimulateFormat(StrEnum):
    """How the answer is printed."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


def _print_schema(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        typer.echo(json.dumps(schema(), indent=2))
        raise typer.Exit


def simulate(
    context: typer.Context,
    workload: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD",
            help="A file with a workload or a recorded history (JSON), or a Mooncake trace (JSON "
            f"lines); or a generated workload: {', '.join(GENERATORS)}.",
        ),
    ],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="A release of vLLM, a path to a checkout, path@ref for a commit of one, or "
            f"'installed'; repeatable. [default: {_NEWEST}, unless --reference is given]",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        bool,
        typer.Option(
            "--reference",
            help="Also run the reference implementation, with the spec's policies and with those "
            "of each target.",
        ),
    ] = False,
    model: Annotated[
        str,
        typer.Option("--model", metavar="MODEL", help=f"The layout of groups: one of {_NAMES}."),
    ] = MODELS[0].name,
    eagle: Annotated[
        bool, typer.Option("--eagle", help="Use the model's EAGLE or MTP draft layers.")
    ] = False,
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="Number of requests of a generated workload.")
    ] = 14,
    tokens: Annotated[
        int, typer.Option("--tokens", min=16, help="Longest request of a generated workload.")
    ] = 65_536,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Equal seeds generate equal workloads.")
    ] = 1,
    retention: Annotated[
        list[str] | None,
        typer.Option(
            "--retention",
            metavar="INTERVAL",
            help="dense, latest, or the interval of sparse retention in tokens; repeatable: each "
            "subject runs with each. [default: dense]",
            show_default=False,
        ),
    ] = None,
    pool_requests: Annotated[
        float,
        typer.Option(
            "--pool-requests",
            min=0.01,
            metavar="NUMBER",
            help="Pool size, as the number of longest requests that fit.",
        ),
    ] = 4.0,
    blocks: Annotated[
        int | None,
        typer.Option(
            "--blocks",
            min=2,
            help="Pool size in blocks, including the null block.",
            show_default=False,
        ),
    ] = None,
    chunk: Annotated[
        int, typer.Option("--chunk", min=1, help="Maximum number of tokens per step.")
    ] = 8192,
    max_num_seqs: Annotated[
        int, typer.Option("--max-num-seqs", min=1, help="Maximum number of running requests.")
    ] = 1,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE", help="Also write the workload to FILE.", show_default=False
        ),
    ] = None,
    html: Html = None,
    output: Annotated[
        SimulateFormat,
        typer.Option("--format", help="The output format; html is one self-contained page."),
    ] = SimulateFormat.TEXT,
    limits: OneWorker = Limits(timeout=120.0),
    print_schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="Print the JSON schema of a workload.",
            callback=_print_schema,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Compare the hits of a workload on releases' real managers and on the reference.

    Reports the prompt tokens hit, what an unbounded cache and optimal eviction would hit, and why
    the rest is lost. The exit code is 0 unless a target fails.
    """
    del print_schema
    directory = wanted_report(html, output)
    with failures(output):
        try:
            played, engine = _read(workload, requests, tokens, seed)
            if write is not None:
                _write(write, write_workload(played), output)
            name = workload if engine is not None else model
            if engine is None:
                chosen = next((each for each in MODELS if each.name == model), None)
                if chosen is None:
                    raise WorkloadError(f"there is no model {model}; name one of {_NAMES}")
                engine = gate.engine_of(
                    chosen,
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
                    [resolve(each, announce=announce) for each in _targets(target, reference)],
                    limits,
                    reference=reference,
                    progress=progress,
                )
        except (WorkloadError, HistoryError, ConfigurationError) as error:
            fail(Verdict.USAGE, str(error), output)
        except WorkerGone as gone:
            fail(Verdict.INCONCLUSIVE, f"the target cannot be started: {gone}", output)
    write_report(directory, lambda command: simulate_page(found, command), context, output)
    show_document(
        output,
        {
            "json": lambda: as_document(simulated_json(found)),
            "csv": lambda: simulated_csv(found),
            "html": lambda: simulate_page(found, typed(context)),
        },
        lambda console: print_simulated(found, console),
    )
    if any(run.failed for run in found.runs) or all(run.cannot for run in found.runs):
        raise typer.Exit(int(Verdict.INCONCLUSIVE))


def _targets(target: list[str] | None, reference: bool) -> list[str]:
    return list(dict.fromkeys(target)) if target else [] if reference else [_NEWEST]


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


def _write(path: Path, text: str, output: SimulateFormat) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        sentence = f"{path} cannot be written ({error.strerror}); name another file with --write"
        fail(Verdict.USAGE, sentence, output)
