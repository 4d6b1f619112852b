"""``hitproof replay``."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from hitproof.conformance.histories.json_format import read_lines, schema
from hitproof.conformance.histories.schema import History, HistoryError
from hitproof.conformance.histories.workload_json import read_any
from hitproof.vllm_integration.commands.frame import Answer, Outputs, command
from hitproof.vllm_integration.commands.options import Classes, OneWorker, Refusal
from hitproof.vllm_integration.commands.running import resolve
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.replay import ReplayReport, Replays, run, run_mixed
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.html.pages import replay_page
from hitproof.vllm_integration.reports.replay import (
    Report,
    print_replays,
    print_report,
    replays_json,
    report_json,
)
from hitproof.vllm_integration.sandbox.driver import Limits


@command(HistoryError, page=True, schema=schema)
def replay(
    history: Path,
    target: str,
    classes: Classes,
    outputs: Outputs,
    limits: OneWorker = Limits(timeout=120.0),
    policy: list[str] | None = None,
    verbose: bool = False,
    trace: bool = False,
    numeric: bool = False,
) -> Answer:
    """Play a history on vLLM's real manager and judge every step by the spec.

    Every finding counts: there is no ledger. The verdict on several histories is the worst one.
    A history of kind "scheduler" is played on vLLM's real scheduler.
    """
    policies = chosen_values(policy or [], for_histories=True)
    where = "standard input" if str(history) == "-" else str(history)
    several, paged = history.suffix == ".jsonl", outputs.directory is not None
    try:
        text = typer.get_binary_stream("stdin").read() if where != str(history) else None
        text = history.read_bytes() if text is None else text
        histories = read_lines(text, where, read_any) if several else [read_any(text, where)]
    except OSError as error:
        raise Refusal(f"{where} cannot be read ({error.strerror}); name another file") from None
    of = Run(classes.of(resolve(target)), limits=limits, policies=policies)
    of_managers = [each for each in histories if isinstance(each, History)]
    reports: list[Report] = []
    of_these: list[ReplayReport] = []
    if len(of_managers) == len(histories):
        of_these = run(of, of_managers, trace=trace or paged, numeric=numeric)
        reports += [each if trace else replace(each, trace=None) for each in of_these]
    elif trace or numeric or paged:
        raise Refusal(
            f"{where} has a history of a scheduler, which has no trace, no page and no numbers; "
            "leave out --trace, --report and --numeric"
        )
    else:
        reports += run_mixed(of, histories)
    page, whole = partial(replay_page, of_these), Replays(reports)
    if several:
        return Answer(
            whole.verdict,
            lambda console: print_replays(reports, console, verbose, whole.seconds),
            lambda: replays_json(reports, whole.seconds),
            page=page,
            of=whole,
        )
    (report,) = reports
    shown = partial(print_report, report, verbose=verbose), partial(report_json, report)
    return Answer(report.verdict, *shown, page=page, of=report)
