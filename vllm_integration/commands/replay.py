"""``hitproof replay``."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.histories.json_format import read_lines, schema
from hitproof.conformance.histories.schema import History, HistoryError
from hitproof.conformance.histories.workload_json import read_any
from hitproof.vllm_integration.commands.options import Classes, Format, OneWorker
from hitproof.vllm_integration.commands.outputs import Outputs
from hitproof.vllm_integration.commands.running import announce, fail, failures, show
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.replay import run, run_mixed, worst
from hitproof.vllm_integration.reports.html.pages import replay_page
from hitproof.vllm_integration.reports.replay import (
    Report,
    print_replays,
    print_report,
    replays_json,
    report_json,
)
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def _print_schema(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        typer.echo(json.dumps(schema(), indent=2))
        raise typer.Exit


def replay(
    context: typer.Context,
    history: Path,
    target: str,
    output: Format = Format.TEXT,
    limits: OneWorker = Limits(timeout=120.0),
    policy: list[str] | None = None,
    classes: Classes = Classes(),
    verbose: bool = False,
    trace: bool = False,
    numeric: bool = False,
    html: Path | None = None,
    print_schema: Annotated[bool, {"callback": _print_schema}] = False,
) -> None:
    """Play a history on vLLM's real manager and judge every step by the spec.

    Every finding counts: there is no ledger. The verdict on several histories is the worst one.
    A history of kind "scheduler" is played on vLLM's real scheduler.
    """
    del print_schema
    started = time.monotonic()
    outputs = Outputs(context, output, html)
    with failures(output, HistoryError):
        policies = chosen_values(policy or [], for_histories=True)
        where = "standard input" if str(history) == "-" else str(history)
        try:
            text = typer.get_binary_stream("stdin").read() if where != str(history) else None
            text = history.read_bytes() if text is None else text
            several = history.suffix == ".jsonl"
            histories = read_lines(text, where, read_any) if several else [read_any(text, where)]
        except OSError as error:
            sentence = f"{where} cannot be read ({error.strerror}); name another file"
            fail(Verdict.USAGE, sentence, output)
        resolved = classes.of(resolve(target, announce=announce))
        of_managers = [each for each in histories if isinstance(each, History)]
        if len(of_managers) < len(histories) and (trace or numeric or html is not None):
            sentence = f"{where} has a history of a scheduler, which has no trace, no page and no "
            sentence += "numbers; leave out --trace, --report and --numeric"
            fail(Verdict.USAGE, sentence, output)
        reports: list[Report] = []
        if len(of_managers) < len(histories):
            reports += run_mixed(resolved, histories, limits, policies)
        else:
            of_these = run(
                resolved,
                of_managers,
                limits,
                policies,
                trace=trace or html is not None,
                numeric=numeric,
            )
            outputs.write_page(lambda command: replay_page(of_these, command))
            reports += [each if trace else replace(each, trace=None) for each in of_these]
    seconds = time.monotonic() - started
    if several:
        show(
            output,
            lambda: replays_json(reports, seconds),
            lambda console: print_replays(reports, console, verbose, seconds),
        )
    else:
        reports[0].seconds = seconds
        show(
            output,
            lambda: report_json(reports[0]),
            lambda console: print_report(reports[0], console, verbose),
        )
    raise typer.Exit(int(worst(reports)))
