"""``hitproof check``."""

import time
from typing import Annotated

import typer

from conformance.configurations import Profile
from conformance.ledger import load
from vllm_integration import gate, rendering
from vllm_integration.commands.options import (
    MEMORY,
    PACKAGE,
    PYTHON,
    Format,
    Ledger,
    Memory,
    Output,
    Python,
    TargetName,
    Timeout,
    Verbose,
    in_bytes,
)
from vllm_integration.commands.running import announce, fail, failures, progress, show
from vllm_integration.driver import find_python
from vllm_integration.gate import Verdict
from vllm_integration.policies import chosen_values
from vllm_integration.targets import resolve

LEDGER = PACKAGE / "ledger.toml"


def check(
    target: TargetName,
    quick: Annotated[bool, typer.Option("--quick", help="Cover less, in seconds.")] = False,
    output: Output = Format.TEXT,
    python: Python = PYTHON,
    ledger: Ledger = LEDGER,
    timeout: Timeout = 60.0,
    memory: Memory = MEMORY,
    verbose: Verbose = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME=VALUE",
            help="Judge by this value of a policy, whatever the target shows; repeatable. "
            "`hitproof policies` lists them.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Judge vLLM's real prefix-cache code against the spec, for every cache state up to a bound."""
    started = time.monotonic()
    with failures(output):
        try:
            policies = chosen_values(policy or [])
        except ValueError as unknown:
            fail(Verdict.USAGE, str(unknown), output)
        entries = load(ledger)
        interpreter = find_python(python)
        resolved = resolve(target, announce=announce)
        with progress(f"judging vLLM {resolved.name}") as done:
            report = gate.check(
                resolved,
                Profile.QUICK if quick else Profile.DEFAULT,
                entries,
                python=interpreter,
                timeout=timeout,
                memory=in_bytes(memory),
                progress=done,
                policies=policies,
            )
    report.seconds = time.monotonic() - started
    show(
        output,
        lambda: rendering.report_json(report),
        lambda console: rendering.print_report(report, console, verbose),
    )
    raise typer.Exit(int(report.verdict))
