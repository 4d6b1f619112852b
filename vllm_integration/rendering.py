"""Reports as people and as programs read them."""

from collections import Counter
from collections.abc import Sized
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.configurations import MODELS
from conformance.demonstration import CaseOutcome, Demonstration
from conformance.findings import SEVERITY, Finding
from conformance.ledger import Entry
from proofs.prover import ProofResult
from spec.claims import Status
from vllm_integration.gate import Report, Verdict
from vllm_integration.policies import Standing

_MOST_INCONCLUSIVE = 5


def verdict_name(verdict: Verdict) -> str:
    """The verdict as one lower-case word."""
    return verdict.name.lower()


def report_json(report: Report) -> dict[str, Any]:
    """The report of `hitproof check` as JSON."""
    known = [
        f.as_json() | {"reason": e.reason, "cause": e.cause} for f, e in report.judgement.known
    ]
    return {
        "verdict": verdict_name(report.verdict),
        "exit_code": int(report.verdict),
        "target": report.target.as_json(),
        "profile": str(report.profile),
        "seconds": round(report.seconds, 1),
        "policies": [
            {
                "policy": standing.policy.name,
                "value": standing.in_force,
                "actual": standing.actual,
                "expected": standing.expected,
                "chosen": standing.chosen is not None,
                "change": standing in report.policy_changes,
            }
            for standing in report.policies
        ],
        "policies_detail": report.policies_detail,
        "coverage": {
            "configurations": report.num_configurations,
            "paths": report.tasks_total(lambda o: o.paths),
            "states": report.tasks_total(lambda o: o.states),
        },
        "obligations": [
            {
                "claim": o.claim,
                "configuration": o.configuration.as_json(),
                "status": str(o.status),
                "paths": o.paths,
                "states": o.states,
                "detail": o.detail,
            }
            for o in report.obligations
        ],
        "findings": [finding.as_json() for finding in report.judgement.new],
        "known_divergences": known,
        "stale_ledger_entries": [
            {"signature": entry.signature.as_json(), "reason": entry.reason}
            for entry in report.judgement.stale
        ],
    }


def print_report(report: Report, console: Console, verbose: bool) -> None:
    """The report of `hitproof check` for people: short when all is well."""
    for finding in report.judgement.new:
        print_finding(finding, console)
    for standing in report.policy_changes:
        print_policy_change(standing, console)
    for entry in report.judgement.stale:
        print_stale(entry, console)
    by_cause = _by_cause(report)
    for known in by_cause.values() if verbose else ():
        _print_known(known, console)
    _print_unsettled(report, console, verbose)
    if verbose:
        _print_obligations(report, console)
    _print_policies(report, console)
    _print_coverage(report, console)
    print_verdict(report, console)


def print_finding(finding: Finding, console: Console) -> None:
    """One finding in full: the claim, what was given, the spec, vLLM, and a picture."""
    signature = finding.signature
    kind = signature.kind.replace("_", " ")
    pattern = escape(f"{kind}: {signature.pattern}")
    console.print(f"[bold red]{signature.divergence}[/]: {pattern}", highlight=False)
    console.print(f"  claim : {signature.claim}", highlight=False)
    console.print(f"          {finding.sentence}", highlight=False)
    for number, fact in enumerate(finding.given):
        console.print(f"  {'' if number else 'given :':<7} {escape(fact)}", highlight=False)
    console.print(f"  spec  : {escape(finding.spec)}", highlight=False)
    console.print(f"  vllm  : {escape(finding.actual)}", highlight=False)
    for line in finding.strip.splitlines():
        console.print(f"    {line}", highlight=False, markup=False, no_wrap=True, crop=False)
    if finding.source:
        console.print(f"  {finding.source}", highlight=False, markup=False)
    print_demonstration(finding.demonstration, console)
    console.print()


def print_demonstration(shown: Demonstration, console: Console) -> None:
    """Whether a whole manager shows a finding, and how its test ended if it was run."""
    if shown.reproduced:
        about = escape(shown.detail) or "--pytest DIR writes the test"
        console.print(f"  reproduced on a whole manager; {about}", highlight=False)
    elif shown.detail:
        whether = "not reproduced on" if shown.reproduced is False else "not played on"
        console.print(f"  {whether} a whole manager: {escape(shown.detail)}", highlight=False)
    if shown.outcome is not CaseOutcome.NOT_RUN:
        said = f": {shown.said}" if shown.said else ""
        console.print(f"  its test {shown.outcome}{escape(said)}", highlight=False)


def print_stale(entry: Entry, console: Console) -> None:
    """A ledger entry that did not reproduce."""
    console.print(
        f"[bold red]stale ledger entry[/]: {entry.signature.claim}: "
        f"{escape(entry.signature.pattern)} does not reproduce; remove the entry or narrow its "
        f"releases ({entry.releases})",
        highlight=False,
    )
    console.print()


def print_policy_change(standing: Standing, console: Console) -> None:
    """A policy of the target that is not its release's."""
    policy = standing.policy
    console.print(f"[bold red]policy change[/]: {policy.name}", highlight=False)
    console.print(f"          {policy.sentence}", highlight=False)
    console.print(f"  spec  : {standing.expected}, as the release has it", highlight=False)
    console.print(f"  vllm  : {standing.actual}", highlight=False)
    console.print(f"  {', '.join(policy.symbols)}", highlight=False)
    console.print(
        f"  Judged by what the target shows; --policy '{policy.name}={standing.expected}' judges "
        f"by the release, --policy '{policy.name}={standing.actual}' accepts the change.",
        highlight=False,
    )
    console.print()


def _print_policies(report: Report, console: Console) -> None:
    """The policies in force, on one line."""
    if report.policies:
        shown = ", ".join(
            f"{standing.policy.name.replace('_', ' ')} {standing.in_force}"
            + (" (chosen)" if standing.chosen is not None else "")
            for standing in report.policies
        )
        console.print(f"policies: {shown}", highlight=False)


def _by_cause(report: Report) -> dict[str, list[tuple[Finding, Entry]]]:
    """The known divergences, those of one cause together."""
    causes: dict[str, list[tuple[Finding, Entry]]] = {}
    for finding, entry in report.judgement.known:
        causes.setdefault(entry.cause, []).append((finding, entry))
    return causes


def _print_known(known: list[tuple[Finding, Entry]], console: Console) -> None:
    """The divergences of one cause, each reason once."""
    for entry in {entry.reason: entry for _, entry in known}.values():
        console.print(f"[yellow]known[/] since {entry.releases}: {escape(entry.reason.strip())}")
    for finding, _ in known:
        print_finding(finding, console)


def _print_unsettled(report: Report, console: Console, verbose: bool) -> None:
    if report.policies_detail:
        console.print(
            f"[bold yellow]inconclusive[/]: {escape(report.policies_detail)}", highlight=False
        )
    reasons = list(dict.fromkeys(o.detail for o in report.unsettled))
    shown = reasons if verbose else reasons[:_MOST_INCONCLUSIVE]
    for reason in shown:
        count = sum(o.detail == reason for o in report.unsettled)
        console.print(
            f"[bold yellow]inconclusive[/] ({count} obligations): {escape(reason)}", highlight=False
        )
    if len(reasons) > len(shown):
        console.print(f"... and {len(reasons) - len(shown)} more reasons; --verbose shows them")
    if report.unsettled:
        _print_settled(report, console)


def _print_settled(report: Report, console: Console) -> None:
    """Which claims could be checked, and how much of the others."""
    every = Counter(o.claim for o in report.obligations)
    open_ones = Counter(o.claim for o in report.unsettled)
    settled = [claim for claim in every if claim not in open_ones]
    parts = [f"{claim} ({n} of {every[claim]} obligations)" for claim, n in open_ones.items()]
    console.print(f"  not checked: {', '.join(parts)}", highlight=False)
    console.print(f"  checked    : {', '.join(settled) or 'no claim in full'}", highlight=False)


def _print_obligations(report: Report, console: Console) -> None:
    table = Table("claim", "configuration", "bound", "status", "paths", title="obligations")
    for o in report.obligations:
        table.add_row(
            o.claim,
            escape(o.configuration.describe()),
            o.configuration.bound_in_words,
            str(o.status),
            str(o.paths),
        )
    console.print(table)


def _print_coverage(report: Report, console: Console) -> None:
    states = report.tasks_total(lambda o: o.states)
    counts = {s: sum(o.status is s for o in report.obligations) for s in Status}
    console.print(
        f"{report.num_configurations} configurations ({len(MODELS)} real models among them), "
        f"{_scientific(states)} cache states covered by "
        f"{report.tasks_total(lambda o: o.paths)} paths; obligations: "
        + ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        + f"; {report.seconds:.1f} s",
        highlight=False,
    )


def print_verdict(report: Report, console: Console) -> None:
    """The verdict in one line."""
    known, changes = report.judgement.known, report.policy_changes
    words = {
        Verdict.CONFORMS: "[bold green]conforms[/]"
        + (
            f", {count(known, 'known divergence')} of {count(_by_cause(report), 'cause')} "
            f"({_classes(report)})"
            if known
            else ""
        ),
        Verdict.DIVERGES: f"[bold red]diverges[/], {count(report.judgement.new, 'new finding')}, "
        + (f"{count(changes, 'policy change')}, " if changes else "")
        + f"{count(report.judgement.stale, 'stale ledger entry', 'stale ledger entries')}",
        Verdict.INCONCLUSIVE: "[bold yellow]inconclusive[/], "
        f"{count(report.unsettled, 'obligation')} not settled",
    }
    console.print(f"vLLM {escape(report.target.label)}: {words[report.verdict]}", highlight=False)


def _classes(report: Report) -> str:
    """The known divergences by class, the most severe first."""
    counts = Counter(finding.signature.divergence for finding, _ in report.judgement.known)
    return ", ".join(
        f"{divergence}: {counts[divergence]}" for divergence in SEVERITY if counts[divergence]
    )


def count(things: Sized, one: str, many: str = "") -> str:
    """How many things there are, in words."""
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


def _scientific(number: int) -> str:
    """A count of states, which soon has forty digits."""
    digits = str(number)
    if len(digits) <= 6:
        return digits
    return f"{digits[0]}.{digits[1]}e{len(digits) - 1}"


def policies_json(standings: list[Standing]) -> list[dict[str, Any]]:
    """What `hitproof policies --format json` prints."""
    return [
        {
            "policy": standing.policy.name,
            "sentence": standing.policy.sentence,
            "symbols": list(standing.policy.symbols),
            "values": [
                {"value": era.value, "releases": era.releases} for era in standing.policy.eras
            ],
            **(
                {}
                if standing.actual is None
                else {"expected": standing.expected, "actual": standing.actual}
            ),
        }
        for standing in standings
    ]


def print_policies(standings: list[Standing], console: Console) -> None:
    """What `hitproof policies` prints: a line for each value of each policy."""
    probed = any(standing.actual is not None for standing in standings)
    table = Table("policy", "value", "releases", *(["the target"] if probed else []))
    for standing in standings:
        name = standing.policy.name
        for era in standing.policy.eras:
            here = "as expected" if standing.agrees else "[red]not expected[/red]"
            shown = here if era.value == standing.actual else ""
            table.add_row(name, era.value, era.releases, *([shown] if probed else []))
            name = ""
    console.print(table)


def print_proofs(results: list[ProofResult], console: Console, verbose: bool) -> None:
    """What `hitproof prove` prints: a line a claim, or with ``verbose`` a line an obligation."""
    table = Table(
        "claim", "obligations", "status", "mutants refuted", "cvc5", "resources", "seconds"
    )
    by_claim: dict[str, list[ProofResult]] = {}
    for result in results:
        by_claim.setdefault(result.claim, []).append(result)
    for claim, parts in by_claim.items():
        counts = Counter(part.status for part in parts)
        table.add_row(
            claim,
            str(len(parts)),
            ", ".join(f"{n} {_coloured(status)}" for status, n in counts.items()),
            str(sum(len(part.mutants) for part in parts)),
            _opinions(parts),
            str(sum(part.resource_count for part in parts)),
            f"{sum(part.seconds for part in parts):.2f}",
        )
        for part in parts if verbose else []:
            table.add_row(
                "",
                escape(part.obligation),
                _coloured(part.status),
                str(len(part.mutants)),
                _opinions([part]),
                str(part.resource_count),
                f"{part.seconds:.2f}",
            )
    console.print(table)
    for result in results:
        if result.status is not Status.PROVED:
            console.print(
                f"{_coloured(result.status)}: {result.claim}, {escape(result.obligation)}: "
                f"{escape(result.detail)}",
                highlight=False,
            )


def _opinions(results: list[ProofResult]) -> str:
    """What the second solver says, each opinion with its count where there are several results."""
    counts = Counter(str(result.second_opinion or "not asked") for result in results)
    if len(results) == 1:
        return next(iter(counts))
    return ", ".join(f"{n} {opinion}" for opinion, n in counts.items())


def _coloured(status: Status) -> str:
    colours = {Status.PROVED: "green", Status.REFUTED: "red", Status.INCONCLUSIVE: "yellow"}
    return f"[{colours[status]}]{status}[/]"


def proofs_json(results: list[ProofResult]) -> list[dict[str, Any]]:
    """What `hitproof prove --format json` prints."""
    return [
        {
            "claim": result.claim,
            "obligation": result.obligation,
            "status": str(result.status),
            "detail": result.detail,
            "resources": result.resource_count,
            "seconds": round(result.seconds, 3),
            "premises": None if result.premises is None else str(result.premises),
            "counterexample": None if result.counterexample is None else str(result.counterexample),
            "mutants": {name: str(model) for name, model in result.mutants.items()},
            "cvc5": None if result.second_opinion is None else str(result.second_opinion),
        }
        for result in results
    ]
