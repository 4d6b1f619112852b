"""``hitproof selftest``."""

from functools import partial
from pathlib import Path

from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.bundled import EQUIVALENTS, LEDGER
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import QuickOnly
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.gate import equivalents
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selftest import Chosen, NoTests, UnknownFunction, run
from hitproof.vllm_integration.reports.selftest import print_selftest, selftest_json
from hitproof.vllm_integration.sandbox.driver import Limits

_AT_LEAST = {
    (Family.SINGLE_POINT, Profile.QUICK): 92.0,
    (Family.SINGLE_POINT, Profile.DEFAULT): 97.0,
    (Family.STRUCTURED, Profile.DEFAULT): 95.0,
    (Family.SCHEDULER, Profile.DEFAULT): 90.0,
    (Family.TIERS, Profile.DEFAULT): 80.0,
}
"""Percent of the mutants that are caught, by family and profile; of others any number will do."""


@command(NoTests, UnknownFunction)
def selftest(
    target: str,
    scope: QuickOnly,
    family: Family = Family.SINGLE_POINT,
    function: list[str] | None = None,
    sample: int | None = None,
    seed: int = 0,
    upstream: bool = False,
    at_least: float | None = None,
    ledger: Path = LEDGER,
    same: Path = EQUIVALENTS,
    limits: Limits = Limits(timeout=20.0),
    verbose: bool = False,
) -> Answer:
    """Test the checks: count the mutants of vLLM's code that `check` catches.

    The target's lookups, masks, cache_blocks and coordinators are mutated. A mutant is caught if
    the gate reports something that it does not report for the target: a finding, a timeout, or,
    without a finding, an inconclusive claim or a known divergence that has shrunk.
    """
    profile = scope.profile
    wanted = _AT_LEAST.get((family, profile), 0.0) if at_least is None else at_least
    entries, known_same = load(ledger), equivalents.load(same)
    resolved = resolve(target)
    chosen = Chosen(family, function or (), sample, seed, upstream)
    with progress(f"mutants of vLLM {resolved.name}") as done:
        report = run(Run(resolved, profile, entries, limits), known_same, chosen, done)
    return Answer(
        report.verdict(wanted),
        partial(print_selftest, report, wanted, verbose=verbose),
        partial(selftest_json, report, wanted),
        of=report,
    )
