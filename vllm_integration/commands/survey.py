"""``hitproof survey``."""

from functools import partial
from pathlib import Path

from hitproof.conformance.ledger import records
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.commands.footprints import record_of
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Scope
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.survey import document, table
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.survey.faults import load
from hitproof.vllm_integration.survey.survey import of_report, read, to_json, verdict
from hitproof.vllm_integration.survey.survey import survey as judge
from hitproof.vllm_integration.verdict import Verdict


@command(formats="MARKDOWN BUGS JSON")
def survey(
    scope: Scope,
    releases: list[str] | None = None,
    kept: Path = SURVEY,
    recording: bool = False,
    limits: Limits = Limits(timeout=300.0),
) -> Answer:
    """Show which releases of vLLM have which faults.

    The exit code is 1 if a release has a fault that is not in BUGS.md, and 3 if something could
    not be judged.
    """
    profile, names = scope.profile, list(dict.fromkeys(releases or ()))
    faults = load()
    found = [] if names else read(kept)
    unsettled: list[str] = []
    for name in names:
        target = resolve(name)
        known = records.read(LEDGER)
        with progress(f"judging vLLM {name}") as done:
            record = None if recording else records.choose(known, target.version)
            report = judge(Run(target, profile, limits=limits, record=record), done)
        if recording:
            unsettled += record_of(report, limits)
        found.append(of_report(report))
    return Answer(
        Verdict.INCONCLUSIVE if unsettled else verdict(found, faults),
        lambda console: console.print(table(found, faults), markup=False, end="", soft_wrap=True),
        partial(to_json, found),
        {"bugs": partial(document, found, faults)},
    )
