"""Reports as people and as programs read them."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.demonstration import CaseOutcome, Demonstration
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.footprints import in_words
from hitproof.conformance.ledger.ledger import CauseStatus, Entry
from hitproof.conformance.ledger.records import Shrunk
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.unbounded import proved_in_words
from hitproof.vllm_integration.reports.causes import Cause, causes, classes_in_words
from hitproof.vllm_integration.reports.lines import print_cited, print_fact, print_whole
from hitproof.vllm_integration.reports.policies import print_costs, print_policy_change
from hitproof.vllm_integration.reports.traces import print_trace
from hitproof.vllm_integration.survey.faults import status_of
from hitproof.vllm_integration.verdict import Verdict

_MOST_INCONCLUSIVE = 5
_MOST_PLACES = 3


def print_report(report: Report, console: Console, verbose: bool) -> None:
    """The report of `hitproof check` for people: short when all is well."""
    if report.restricted is not None:
        console.print(escape(report.restricted.describe()))
    found = causes(report.judgement.new, report.target.version)
    for cause in found if verbose else found[:1]:
        print_cause(cause, console, verbose)
    if not verbose:
        _print_others(found, console)
    for standing in report.policy_changes:
        print_policy_change(standing, console)
    if not found:  # what is new may hide what is known, so there is nothing to advise yet
        for entry in report.judgement.stale:
            print_stale(entry, console)
        for each in report.shrunk:
            print_shrunk(each, console)
    for name, known in by_cause(report).items() if verbose else ():
        _print_known(known, report.conditions.get(name, []), console)
    _print_unsettled(report, console, verbose)
    if verbose:
        _print_obligations(report, console)
        for read in report.reads.assumptions:
            console.print(f"assumed: {escape(f'{read.name}: {read.reason}')}")
        for name in sorted(report.reads.accepted.keys() - report.reads.names):
            console.print(f"accepted, but not read: {escape(name)}")
    _print_policies(report, console)
    _print_coverage(report, console)
    for line in proved_in_words(report.unbounded, verbose) if report.unbounded else ():
        console.print(escape(line))
    _print_left_out(report, console)
    _print_branches(report, console)
    _print_baseline(report, console)
    print_held_against(report, console)
    print_since_then(report, console)
    print_verdict(report, console)


def print_cause(cause: Cause, console: Console, verbose: bool = False) -> None:
    """The worst finding of a cause in full, and how many others there are; ``verbose``: all."""
    print_finding(cause.worst, console, cause.fault, verbose)
    for finding in cause.findings[1:] if verbose else ():
        print_finding(finding, console, verbose=verbose)
    if cause.others and not verbose:
        console.print(f"  and {cause.others}\n", markup=False)


def print_finding(
    finding: Finding, console: Console, fault: str = "", verbose: bool = False
) -> None:
    """One finding in full: the claim, what was given, the spec, vLLM, and a picture.

    ``verbose``: also the history that shows it, step by step.
    """
    signature = finding.signature
    console.print(f"[bold red]{signature.divergence}[/]: {escape(finding.signature.headline)}")
    print_fact("code", str(signature.defect), console)
    if fault:
        print_fact("fault", fault, console)
    print_cited(signature.claim, finding.sentence, console)
    for number, fact in enumerate(finding.given):
        print_fact("" if number else "given", fact, console)
    # Other evidence has a picture, and with `verbose` the trace says why.
    if finding.trace is not None and not (finding.evidence or verbose):
        reasons = Trace.model_validate(finding.trace).why(signature.claim, str(signature.defect))
        for number, reason in enumerate(reasons):
            print_fact("" if number else "why", reason.text, console)
    print_fact("spec", finding.spec, console)
    print_fact("vllm", finding.actual, console)
    for line in finding.strip.splitlines():
        print_whole(f"    {line}", console)
    if where := finding.location or finding.source:
        console.print(f"  {where}", markup=False)
    print_demonstration(finding.demonstration, console)
    if verbose and finding.trace is not None:
        print_trace(Trace.model_validate(finding.trace), console)
    console.print()


def _print_others(found: Sequence[Cause], console: Console) -> None:
    """Causes but the first in a line each, and how to see more of them."""
    for cause in found[1:]:
        signature = cause.worst.signature
        numbers = ", ".join(f"BUGS {fault.number}" for fault in cause.known_from)
        more = "; ".join(filter(None, (numbers, cause.others and f"and {cause.others}")))
        line = f"{signature.headline}{f' ({more})' if more else ''}"
        console.print(f"[bold red]{signature.divergence}[/]: {escape(line)}")
    if any(cause.others for cause in found[:1]) or len(found) > 1:
        console.print("--verbose shows these in full\n")


def print_demonstration(shown: Demonstration, console: Console) -> None:
    """Whether a whole manager shows a finding, and how its test ended if it was run."""
    if shown.reproduced:
        about = escape(shown.detail) or "--pytest DIR writes the test"
        console.print(f"  reproduced on a whole {shown.whole}; {about}")
    elif shown.detail:
        whether = "not reproduced on" if shown.reproduced is False else "not played on"
        console.print(f"  {whether} a whole manager: {escape(shown.detail)}")
    if shown.outcome is not CaseOutcome.NOT_RUN:
        said = f": {shown.said}" if shown.said else ""
        console.print(f"  its test {shown.outcome}{escape(said)}")


def print_stale(entry: Entry, console: Console) -> None:
    """A ledger entry that did not reproduce."""
    console.print(
        f"[bold red]stale ledger entry[/]: {entry.signature.claim}: "
        f"{escape(entry.signature.pattern)} does not reproduce; remove the entry or narrow its "
        f"releases ({entry.releases})"
    )
    console.print()


def print_shrunk(shrunk: Shrunk, console: Console) -> None:
    """A known divergence that does not reach as far as its record says."""
    signature = shrunk.entry.signature
    console.print(
        f"[bold red]footprint too large[/]: {escape(signature.headline)}: fewer cases diverge "
        f"in {count(shrunk.places, 'place')}; update the footprints with hitproof footprints"
    )
    print_fact("code", str(signature.defect), console)
    print_cited(signature.claim, signature.sentence, console)
    for number, (place, before, now) in enumerate(shrunk.places[:_MOST_PLACES]):
        fact = f"{place}: {in_words(before, now)}"
        print_fact("" if number else "fixed", fact, console)
    if len(shrunk.places) > _MOST_PLACES:
        print_fact("", f"and in {len(shrunk.places) - _MOST_PLACES} more", console)
    console.print()


def _print_policies(report: Report, console: Console) -> None:
    """The policies in force, on one line, and what they cost."""
    if report.policies:
        shown = ", ".join(
            f"{standing.policy.name.replace('_', ' ')} {standing.in_force}"
            + (" (chosen)" if standing.chosen is not None else "")
            for standing in report.policies
        )
        console.print(f"policies: {shown}")
        print_costs(report.policies, console)


def by_cause(report: Report) -> dict[str, list[tuple[Finding, Entry]]]:
    """The known divergences, those of one cause together."""
    causes: dict[str, list[tuple[Finding, Entry]]] = {}
    for finding, entry in report.judgement.known:
        causes.setdefault(entry.cause, []).append((finding, entry))
    return causes


def known_in_words(report: Report) -> str:
    """The known divergences and their causes, counted by status, those of faults by class, too."""
    by_status: dict[CauseStatus, list[list[Finding]]] = {status: [] for status in CauseStatus}
    for known in by_cause(report).values():
        by_status[status_of(known[0][1])].append([finding for finding, _ in known])
    parts = []
    for status, group in by_status.items():
        found = [finding for each in group for finding in each]
        classes = f" ({classes_in_words(found)})" if status is CauseStatus.FAULT else ""
        if group:
            parts.append((len(found), f"{status.counted(group)}{classes}"))
    total = count(report.judgement.known, "known divergence")
    if len(parts) == 1:
        return f"{total} of {parts[0][1]}"
    return f"{total}: {', '.join(f'{number} of {those}' for number, those in parts)}"


def _print_known(
    known: list[tuple[Finding, Entry]], conditions: Sequence[str], console: Console
) -> None:
    """The divergences of one cause, each reason once, and the exact conditions of it."""
    for entry in {entry.reason: entry for _, entry in known}.values():
        status = "" if status_of(entry) is CauseStatus.FAULT else f" ({status_of(entry)})"
        console.print(
            f"[yellow]known[/]{status} since {entry.releases}: {escape(entry.reason.strip())}"
        )
    for told in conditions or ["no exact condition is proved"]:
        print_fact("where", told, console)
    for finding, _ in known:
        print_finding(finding, console, verbose=True)


def _print_unsettled(report: Report, console: Console, verbose: bool) -> None:
    for detail in filter(None, (report.policies_detail, report.reads.detail, report.idle)):
        console.print(f"[bold yellow]inconclusive[/]: {escape(detail)}")
    reasons = list(dict.fromkeys(o.detail for o in report.unsettled))
    shown = reasons if verbose else reasons[:_MOST_INCONCLUSIVE]
    for reason in shown:
        times = sum(o.detail == reason for o in report.unsettled)
        console.print(
            f"[bold yellow]inconclusive[/] ({count(times, 'obligation')}): {escape(reason)}"
        )
    _print_number_left(len(reasons), console, verbose)
    if report.unrecorded:
        console.print(f"[bold yellow]inconclusive[/]: {escape(report.unrecorded)}")
    first = {each.reason: each.unsettled for each in reversed(report.unplayed)}
    unplayed = Counter(each.reason for each in report.unplayed)
    for reason in list(unplayed)[: None if verbose else _MOST_INCONCLUSIVE]:
        console.print(
            f"[bold yellow]inconclusive[/] ({unplayed[reason]} of "
            f"{count(report.played, 'history', 'histories')}): {escape(first[reason])}"
        )
    _print_number_left(len(unplayed), console, verbose)
    if report.unsettled:
        _print_settled(report, console)


def _print_number_left(reasons: int, console: Console, verbose: bool) -> None:
    if not verbose and reasons > _MOST_INCONCLUSIVE:
        left = count(reasons - _MOST_INCONCLUSIVE, "more reason")
        console.print(f"... and {left}; --verbose shows them")


def _print_settled(report: Report, console: Console) -> None:
    """Which claims could be checked, and how much of the others."""
    every = Counter(o.claim for o in report.obligations)
    open_ones = Counter(o.claim for o in report.unsettled)
    settled = [claim for claim in every if claim not in open_ones]
    parts = [f"{claim} ({n} of {every[claim]} obligations)" for claim, n in open_ones.items()]
    console.print(f"  not checked: {', '.join(parts)}")
    console.print(f"  checked    : {', '.join(settled) or 'no claim in full'}")


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
    console.print(f"{coverage_in_words(report)}; {report.seconds:.1f} s")


def _print_left_out(report: Report, console: Console) -> None:
    """Which histories the release cannot play, so that nothing was judged in them."""
    if not report.left_out:
        return
    listed = ", ".join(f"{number} {origin}" for origin, number in sorted(report.left_out.items()))
    total = count(sum(report.left_out.values()), "history", "histories")
    line = f"skipped: {total} that need features this release lacks ({listed})"
    console.print(escape(line))


def _print_branches(report: Report, console: Console) -> None:
    """The share on record, where the modules are those that were measured."""
    measured = report.branches
    share = "not measured for this code" if measured is None else measured.describe()
    console.print(f"branches: {share}")


def _print_baseline(report: Report, console: Console) -> None:
    """What the target was compared with, if that is another, and what is new."""
    if not report.baseline:
        return
    new = report.judgement.new
    line = f"baseline {report.baseline}: known divergences may not exceed its footprints"
    if new:
        against = sum(map(report.is_new, new))
        line += f"; {against} of {count(new, 'new finding')} are not in the baseline"
    console.print(escape(line))


def coverage_in_words(report: Report) -> str:
    """How much was judged, and how it ended."""
    states = report.tasks_total(lambda o: o.states)
    counts = {s: sum(o.status is s for o in report.obligations) for s in Status}
    models = f" ({len(MODELS)} real models among them)" if report.restricted is None else ""
    return (
        f"{count(report.num_configurations, 'configuration')}{models}, "
        f"{_scientific(states)} cache states covered by "
        f"{report.tasks_total(lambda o: o.paths)} paths, confirmed by "
        f"{count(report.tasks_total(lambda o: o.runs), 'concrete run')}; obligations: "
        + ", ".join(f"{n} {status}" for status, n in counts.items() if n)
        + f"; {_replayed(report.of_managers, 'managers replayed')}"
        + (f"; {_replayed(report.of_schedulers, 'schedulers')}" if report.of_schedulers else "")
    )


def _replayed(played: Sequence[Played], what: str) -> str:
    steps = count(sum(each.steps for each in played), "step")
    return f"{count(played, 'history', 'histories')} of whole {what}, {steps}"


def print_verdict(report: Report, console: Console) -> None:
    """The verdict in one line."""
    known = report.judgement.known
    words = {
        Verdict.CONFORMS: "[bold green]conforms[/]"
        + (f", {known_in_words(report)}" if known else ""),
        Verdict.DIVERGES: f"[bold red]diverges[/], {_what_diverges(report)}",
        Verdict.INCONCLUSIVE: "[bold yellow]inconclusive[/], "
        f"{count(report.unsettled, 'obligation')} not settled"
        + (
            f", {count(report.unplayed, 'history', 'histories')} not judged"
            if report.unplayed
            else ""
        )
        + (", known divergences without footprints" if report.unrecorded else ""),
    }
    if report.idle:
        words[Verdict.INCONCLUSIVE] = "[bold yellow]inconclusive[/], nothing was judged"
    if report.restricted is not None:
        more = f"; {count(known, 'known divergence')}" if known else ""
        words = {each: f"{words[each]}, in a restricted run" for each in words}
        words[Verdict.CONFORMS] = f"[bold]nothing new found[/] in what was judged, not all{more}"
    console.print(f"vLLM {escape(report.target.label)}: {words[report.verdict]}")


def print_held_against(report: Report, console: Console) -> None:
    """Which release a checkout is compared with, and why."""
    target = report.target
    if target.inferred:
        console.print(f"baseline release {target.version}, by {escape(target.inferred)}")


def print_since_then(report: Report, console: Console) -> None:
    """What has become of earlier failures, if that was asked for."""
    if report.since_then is not None:
        for name, findings in report.since_then.sorts.items():
            for headline in findings:
                console.print(f"{name}: {escape(headline)}")
        console.print(report.since_then.describe())


def _what_diverges(report: Report) -> str:
    """What makes the target diverge, counted; stale entries only where nothing is new."""
    new, changes = report.judgement.new, report.policy_changes
    found = causes(new, report.target.version)
    parts = [count(found, "new finding")]
    if len(new) > len(found):
        parts[0] += f" of {count(new, 'signature')}"
    if changes:
        parts.append(count(changes, "policy change"))
    if not new:
        parts.append(count(report.judgement.stale, "stale ledger entry", "stale ledger entries"))
        if report.shrunk:
            parts.append(f"{count(report.shrunk, 'footprint')} too large")
        if report.disproved:
            parts.append(f"{count(report.disproved, 'statement')} refuted for all lengths")
    return ", ".join(parts)


def _scientific(number: int) -> str:
    """A count of states, which soon has forty digits."""
    digits = str(number)
    if len(digits) <= 6:
        return digits
    return f"{digits[0]}.{digits[1]}e{len(digits) - 1}"
