"""What `hitproof selftest` prints."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console

from hitproof.conformance.picking import picked
from hitproof.vllm_integration.gate.selftest import Judged, SelfTestReport
from hitproof.vllm_integration.reports.printing import print_text

_PROVED = "The solver proves that it does what the function does."


def selftest_json(report: SelfTestReport, at_least: float) -> dict[str, Any]:
    """The report as JSON."""
    verdict = report.verdict(at_least)
    same = {m.change: entry.reason if entry else _PROVED for m, entry in report.equivalents}
    return {
        "verdict": verdict.label,
        "exit_code": int(verdict),
        "target": picked(report.target, "name", "version"),
        "profile": str(report.profile),
        **picked(report.chosen, "family", "sample", "seed", "upstream"),
        "seconds": round(report.seconds, 1),
        "mutants": len(report.judged),
        "caught": len(report.caught),
        "equivalent": len(report.equivalents),
        "proved_equivalent": report.proved,
        "survived": len(report.survivors),
        "killed_by_upstream": len(report.killed),
        "beside_known": sum(mutant.beside_known for mutant in report.judged),
        "share": round(report.share, 2),
        "looking_up": dict(zip(("caught", "of"), report.looking_up, strict=True)),
        "at_least": at_least,
        "unfinished_checks": report.unfinished,
        "judged": [
            {
                **asdict(mutant.change),
                **{k: v for k, v in asdict(mutant).items() if k != "change"},
                "equivalent": same.get(mutant.change),
            }
            for mutant in report.judged
        ],
        "stale_equivalents": [asdict(entry.change) for entry in report.stale],
    }


def print_selftest(
    report: SelfTestReport, at_least: float, console: Console, verbose: bool
) -> None:
    """The report for people."""
    same = {mutant.change for mutant, _ in report.equivalents}
    by_function: dict[str, list[Judged]] = {}
    for mutant in report.judged:
        by_function.setdefault(mutant.change.function, []).append(mutant)
    print_text(
        console,
        "selftest.txt",
        report=report,
        at_least=at_least,
        verbose=verbose,
        detailed=lambda mutants, why: [(each, getattr(each, why)) for each in mutants],
        reasons=[(m, entry.reason if entry else _PROVED) for m, entry in report.equivalents],
        by_function={
            function: (sum(bool(m.caught) for m in of_it), sum(m.change not in same for m in of_it))
            for function, of_it in by_function.items()
        },
        ways=Counter(mutant.caught for mutant in report.caught).most_common(),
    )
