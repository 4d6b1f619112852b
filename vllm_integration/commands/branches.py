"""``hitproof branches``."""

from pathlib import Path

import typer

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import BRANCHES, LEDGER, NOT_RUN
from hitproof.vllm_integration.commands.options import Format
from hitproof.vllm_integration.commands.running import (
    announce,
    fail,
    failures,
    progress,
    show,
    wanted_profile,
)
from hitproof.vllm_integration.gate.branches import Measured, keep, measure, reasons, shares
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports import branches as rendering
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict


def branches(
    targets: list[str] | None = None,
    quick: bool = False,
    thorough: bool = False,
    record: bool = False,
    distil: Path | None = None,
    histories: int = 6000,
    seed: str = "2",
    output: Format = Format.TEXT,
    limits: Limits = Limits(timeout=120.0),
    verbose: bool = False,
) -> None:
    """Measure which branches of vLLM's managers run while `hitproof check` judges something.

    The exit code is 1 if the reason recorded for a branch is stale, because the branch runs, and 3
    if something could not be judged.
    """
    profile = wanted_profile(quick, thorough, output)
    if not targets:
        known = shares(BRANCHES).values()
        show(
            output,
            lambda: [rendering.share_json(each) for each in known],
            lambda console: rendering.print_shares(known, console, verbose),
        )
        return
    with failures(output):
        entries = load(LEDGER)
        found: list[Measured] = []
        for name in targets:
            target = resolve(name, announce=announce)
            if record and distil is not None:
                sentence = "--record is for what `hitproof check` runs; omit it, or --distil"
                fail(Verdict.USAGE, sentence, output)
            if record and not target.is_release:
                sentence = (
                    f"{name} is not a release, and only releases can be recorded; omit --record"
                )
                fail(Verdict.USAGE, sentence, output)
            applying = [entry for entry in entries if entry.applies_to(target.version)]
            run = Run(target, profile, applying, limits)
            if distil is not None and found:
                with (
                    progress(f"what was distilled, on vLLM {target.name}") as done,
                    opened(run) as sessions,
                ):
                    found[0] = found[0].excused_on(target.name, sessions, applying, done)
                continue
            with progress(f"branches of vLLM {target.name}") as done:
                search = None if distil is None else (seed, histories)
                measured = measure(run, reasons(NOT_RUN, target.version), done, search)
            found.append(measured)
            if record:
                keep(BRANCHES, measured.share)
        if distil is not None:
            lines = "".join(f"{line}\n" for line in found[0].distilled)
            distil.write_text(lines, encoding="utf-8")
    show(
        output,
        lambda: [rendering.measured_json(each) for each in found],
        lambda console: rendering.print_measured(found, console, verbose),
    )
    if any(each.stale for each in found):
        raise typer.Exit(int(Verdict.DIVERGES))
    if any(each.open_questions for each in found):
        raise typer.Exit(int(Verdict.INCONCLUSIVE))
