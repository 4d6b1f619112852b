"""The survey as a table and as BUGS.md."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from hitproof.conformance.findings.signatures import SEVERITY, in_lines
from hitproof.conformance.ledger.ledger import CauseStatus
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.reports import markdown
from hitproof.vllm_integration.reports.printing import document as rendered
from hitproof.vllm_integration.survey.costs import in_words
from hitproof.vllm_integration.survey.costs import read as read_costs
from hitproof.vllm_integration.survey.faults import Fault, cause
from hitproof.vllm_integration.survey.survey import (
    Release,
    Sighting,
    State,
    seen_in,
    span,
    this_state,
)
from hitproof.vllm_integration.verdict import Verdict

_UNDOCUMENTED = "not documented yet"

FIXED = "Fixed"
_OPEN = {
    CauseStatus.FAULT: "Open",
    CauseStatus.CHOICE: "Upstream's choices",
    CauseStatus.LIMIT: "Limits of the design",
}
"""How the sections of BUGS.md begin."""
_UNREACHED = "Open, but reached by no known configuration of vLLM's own models and connectors,"


def table(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """A Markdown table: a row for each fault, open ones first, and a column for each release."""
    seen = seen_in(releases, faults)
    titles = {
        each.number: f"[{each.number}. {each.title}](BUGS.md#{each.number})"
        + ("" if each.status is CauseStatus.FAULT else f" ({each.status})")
        for group in grouped(releases, faults).values()
        for each in group
    }
    if 0 in seen:
        titles[0] = _UNDOCUMENTED
    states: dict[State | None, list[str]] = {}
    for release in releases:
        states.setdefault(release.judged_by, []).append(release.version)
    return rendered(
        "survey.md",
        table=markdown.table,
        columns=[f":{release.version}:" for release in releases],
        rows=[
            (title, *(_cell(seen[number].get(release.version, ())) for release in releases))
            for number, title in titles.items()
        ],
        checks=checks(releases, faults),
        states=states,
        this_state=this_state(),
    )


def checks(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """A Markdown table: what `hitproof check` says of each release, and why."""
    rows = [release for release in releases if release.checked is not None]
    if not rows:
        return ""
    shown = []
    for release in rows:
        checked = release.checked
        assert checked is not None
        code = next(int(each) for each in Verdict if each.label == checked.verdict)
        cells = checked.known, len(checked.new), checked.stale, _reason(release, faults)
        shown.append((release.version, checked.verdict, code, release.obligations, *cells))
    columns = "release", "check", "exit code", "obligations", "known", "new", "stale", "reason"
    return markdown.table(columns, shown) + "\n"


def _reason(release: Release, faults: Sequence[Fault]) -> str:
    """Why a check ends as it does: the faults that are not in the ledger, and what is open."""
    checked = release.checked
    assert checked is not None
    causes = {cause(faults, signature, release.version) for signature in checked.new}
    numbers = sorted(fault.number for fault in causes if fault is not None)
    linked = ", ".join(f"[{number}](BUGS.md#{number})" for number in numbers)
    parts = [f"faults that are not in the ledger: {linked}"] if numbers else []
    if None in causes:
        parts.append(_UNDOCUMENTED)
    if checked.stale:
        parts.append("ledger entries do not reproduce")
    if checked.detail:
        parts.append(checked.detail)
    return "; ".join(parts) or "all that is found is in the ledger"


def document(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """BUGS.md: open and fixed faults, each with its releases and its smallest case."""
    seen, costs = seen_in(releases, faults), read_costs()
    versions = [release.version for release in releases]

    def smallest(fault: Fault) -> tuple[str, Sighting]:
        """The last release that has it, and the smallest case there."""
        last = max(seen[fault.number], key=versions.index)
        return last, min(seen[fault.number][last], key=_size)

    told = rendered(
        "bugs.md",
        releases=releases,
        sections=grouped(releases, faults),
        extent=lambda fault: _extent(seen[fault.number], releases),
        cost=lambda fault: fault.number in costs and in_words(costs[fault.number]),
        smallest=smallest,
        in_lines=in_lines,
    )
    return told.rstrip() + "\n"


def grouped(releases: Sequence[Release], faults: Sequence[Fault]) -> dict[str, list[Fault]]:
    """The faults by the sections of BUGS.md that they are in.

    Those that the last release has come first, apart by status and by whether they are reached,
    then those that only earlier ones have. In each section the most severe come first; faults that
    no release has are left out.
    """
    seen, newest = seen_in(releases, faults), releases[-1].version
    reached, *others = _OPEN.values()
    sections = (reached, _UNREACHED, *others, FIXED)
    found: dict[str, list[Fault]] = {f"{each} in {newest}": [] for each in sections}
    for fault in faults:
        if fault.number in seen:
            section = _OPEN[fault.status] if newest in seen[fault.number] else FIXED
            if section == reached and not fault.is_reached:
                section = _UNREACHED
            found[f"{section} in {newest}"].append(fault)
    for group in found.values():
        group.sort(key=lambda each: (_severity(seen[each.number], newest), each.number))
    return found


def _severity(seen: Mapping[str, list[Sighting]], newest: str) -> int:
    """How bad a fault is in the newest release, or else in any."""
    return SEVERITY.index(_classes(seen.get(newest) or itertools.chain(*seen.values()))[0])


def _extent(seen: Mapping[str, list[Sighting]], releases: Sequence[Release]) -> str:
    """The classes of a fault and the releases that have them."""
    classes = {
        each: span([v for v, found in seen.items() if each in _classes(found)], releases)
        for each in _classes(itertools.chain(*seen.values()))
    }
    if len({*classes.values()}) == 1:
        return f"{', '.join(classes)}; seen in {span(seen, releases)}"
    return "; ".join(f"{each} in {where}" for each, where in classes.items())


def _classes(found: Iterable[Sighting]) -> list[Divergence]:
    names = {sighting.signature.divergence for sighting in found}
    return [each for each in SEVERITY if each in names]


def _cell(found: Sequence[Sighting]) -> str:
    letters = {Divergence.WRONG_DRAFTS: "D", Divergence.WRONG_METRIC: "M"}
    return "".join(letters.get(name, name[0].upper()) for name in _classes(found))


def _size(sighting: Sighting) -> tuple[int, int, str]:
    order = SEVERITY.index(Divergence(sighting.signature.divergence))
    return order, sum(map(len, sighting.given)), sighting.actual
