"""What `hitproof selftest` prints."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.gate.selftest import Judged, SelfTestReport

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
    """The report for people: the survivors, then the figures."""
    for mutant in report.survivors:
        _print_mutant("[bold yellow]survives[/]", mutant, mutant.detail, console)
    for mutant in report.killed:
        _print_mutant("[bold red]vLLM's tests notice[/]", mutant, mutant.killed_by, console)
    for mutant, entry in report.equivalents if verbose else ():
        _print_mutant("equivalent", mutant, entry.reason if entry else _PROVED, console)
    for mutant in report.caught if verbose else ():
        _print_mutant(f"caught as {mutant.caught}", mutant, mutant.detail, console)
    for entry in report.stale:
        console.print(
            f"[bold red]stale[/]: {escape(entry.change.function)}: {escape(entry.change.original)} "
            f"-> {escape(entry.change.mutant)} is caught, proved or not there; remove the entry "
            f"or narrow its releases ({entry.releases})"
        )
    by_function: dict[str, list[Judged]] = {}
    for mutant in report.judged:
        by_function.setdefault(mutant.change.function, []).append(mutant)
    same = {mutant.change for mutant, _ in report.equivalents}
    for function, mutants in by_function.items():
        found = sum(bool(m.caught) for m in mutants)
        counted = sum(m.change not in same for m in mutants)
        console.print(f"  {function}: {found} of {counted} caught")
    ways = Counter(mutant.caught for mutant in report.caught)
    console.print(
        f"{count(report.judged, 'mutant')}, {len(report.equivalents)} of them equivalent "
        f"({report.proved} proved by the solver); "
        f"caught {len(report.caught)} ("
        + ", ".join(f"{way}: {number}" for way, number in ways.most_common())
        + f"); {len(report.survivors)} survive; "
        f"{report.seconds:.0f} s"
    )
    caught, of = report.looking_up
    if of:
        share = 100 * caught / of
        console.print(f"of lookups and masks alone: {caught} of {of} caught, {share:.1f} %")
    if report.unfinished:
        console.print(
            f"[bold yellow]inconclusive[/]: {count(report.unfinished, 'check')} did not finish on "
            f"the unmodified target"
        )
    if report.chosen.upstream:
        passed = len(report.judged) - len(report.caught)
        console.print(
            f"vLLM's own tests notice {len(report.killed)} of the {passed} that the gate lets pass"
        )
    colour = "green" if report.share >= at_least else "red"
    console.print(
        f"vLLM {escape(report.target.name)}: the checks catch "
        f"[bold {colour}]{report.share:.1f} %[/] of the mutants (required: {at_least:g} %)"
    )


def _print_mutant(what: str, mutant: Judged, why: str, console: Console) -> None:
    change = mutant.change
    console.print(f"{what}: {escape(change.function)}, {mutant.file}:{mutant.line}")
    console.print(f"    {change.original}", markup=False)
    again = f"  (place {change.occurrence})" if change.occurrence > 1 else ""
    console.print(f" -> {change.mutant}{again}", markup=False)
    console.print(f"    {' '.join(why.split())}", markup=False)
