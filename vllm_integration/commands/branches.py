"""``hitproof branches``."""

from functools import partial
from pathlib import Path

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import BRANCHES, LEDGER, NOT_RUN
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Refusal, Scope
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate.branches import Measured, keep, measure, reasons, shares
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports import branches as rendering
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.verdict import Verdict


@command()
def branches(
    scope: Scope,
    targets: list[str] | None = None,
    record: bool = False,
    distil: Path | None = None,
    histories: int = 6000,
    seed: str = "2",
    limits: Limits = Limits(timeout=120.0),
    verbose: bool = False,
) -> Answer:
    """Measure which branches of vLLM's managers run while `hitproof check` judges something.

    The exit code is 1 if the reason recorded for a branch is stale, because the branch runs, and 3
    if something could not be judged.
    """
    profile = scope.profile
    if not targets:
        known = shares(BRANCHES).values()
        return Answer(
            Verdict.CONFORMS,
            partial(rendering.print_shares, known, verbose=verbose),
            lambda: [rendering.share_json(each) for each in known],
        )
    entries = load(LEDGER)
    found: list[Measured] = []
    for name in targets:
        target = resolve(name)
        if record and distil is not None:
            raise Refusal("--record is for what `hitproof check` runs; omit it, or --distil")
        if record and not target.is_release:
            raise Refusal(
                f"{name} is not a release, and only releases can be recorded; omit --record"
            )
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
        distil.write_text("".join(f"{line}\n" for line in found[0].distilled), encoding="utf-8")
    open_ = any(each.open_questions for each in found)
    return Answer(
        Verdict.DIVERGES
        if any(each.stale for each in found)
        else Verdict.INCONCLUSIVE
        if open_
        else Verdict.CONFORMS,
        partial(rendering.print_measured, found, verbose=verbose),
        lambda: [rendering.measured_json(each) for each in found],
    )
