"""The survey as a table and as BUGS.md."""

from collections.abc import Iterator, Sequence

from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.survey.costs import in_words
from hitproof.vllm_integration.survey.costs import read as read_costs
from hitproof.vllm_integration.survey.faults import Fault, Method, cause
from hitproof.vllm_integration.survey.survey import Release, Sighting, State, this_state
from hitproof.vllm_integration.verdict import Verdict

_UNDOCUMENTED = "not documented yet"

_METHODS = {
    Method.CHECK: "an obligation of `hitproof check`, judged for every cache state up to a bound",
    Method.GENERATED: "replay of generated histories, judged by the spec after every step",
    Method.FAMILIES: "replay of systematic families of histories",
    Method.HANDWRITTEN: "replay of a history written by hand",
    Method.REPLAY: "replay on the content model; which history was first is not recorded",
    Method.LOCKSTEP: "`hitproof lockstep`, generated histories beside the reference",
    Method.SHADOW: "the shadow, in vLLM's own tests or a live engine",
    Method.THEOREM: "a theorem that could not be proved",
    Method.SOURCE: "reading vLLM's source",
    Method.NOT_RECORDED: "not recorded",
}


_Seen = dict[int, dict[str, list[Sighting]]]
"""By the number of a fault, 0 for none, and by release: the findings that come from it."""


def table(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """A Markdown table: a row for each fault, open ones first, and a column for each release."""
    seen = _seen(releases, faults)
    header = ["fault", *(release.version for release in releases)]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" + ":-:|" * len(releases)]
    rows = {
        each.number: f"[{each.number}. {each.title}](BUGS.md#{each.number})"
        for group in grouped(releases, faults)
        for each in group
    }
    if 0 in seen:
        rows[0] = _UNDOCUMENTED
    for number, title in rows.items():
        cells = [_cell(seen[number].get(release.version, ())) for release in releases]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines.append("")
    if shown := checks(releases, faults):
        lines += [*shown.splitlines(), ""]
    lines += ["U unsound, C crash, D wrong drafts, L lost hit, W waste.", "", *_states(releases)]
    return "\n".join(lines) + "\n"


def checks(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """A Markdown table: what `hitproof check` says of each release, and why."""
    rows = [release for release in releases if release.checked is not None]
    if not rows:
        return ""
    lines = [
        "| release | check | exit code | obligations | known | new | stale | reason |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for release in rows:
        checked = release.checked
        assert checked is not None
        code = next(int(each) for each in Verdict if each.label == checked.verdict)
        cells = checked.known, len(checked.new), checked.stale, _reason(release, faults)
        shown = release.version, checked.verdict, code, release.obligations, *cells
        lines.append(f"| {' | '.join(map(str, shown))} |")
    return "\n".join(lines) + "\n"


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


def _states(releases: Sequence[Release]) -> Iterator[str]:
    """Which state of hitproof judged which releases, and whether it is the one that runs."""
    by_state: dict[State | None, list[str]] = {}
    for release in releases:
        by_state.setdefault(release.judged_by, []).append(release.version)
    for state, versions in by_state.items():
        which = f"{', '.join(versions)} {'was' if len(versions) == 1 else 'were'}"
        if len(by_state) == 1:
            which = "This was"
        if state is None:
            yield (
                f"{which} judged by an earlier state of hitproof, which was not recorded; "
                "`hitproof survey RELEASE...` judges by this one."
            )
        elif state == this_state():
            yield f"{which} judged by this state of hitproof, {state.version}."
        else:
            yield (
                f"{which} judged by another state of hitproof than this, {state.version} (source "
                f"{state.digest[:12]}); `hitproof survey RELEASE...` judges by this one."
            )


def document(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """BUGS.md: open and fixed faults, each with its releases and its smallest case."""
    seen = _seen(releases, faults)
    versions = [release.version for release in releases]
    lines = [
        "# Faults found in vLLM's prefix cache",
        "",
        "`hitproof survey --format bugs` writes this page. Releases and cases are those of its",
        "survey; the surveyed releases are",
        f"{', '.join(versions)}.",
        "A fault is open when the newest of them has it. The most severe come first.",
        "",
    ]
    newest = "".join(f" in {version}" for version in versions[-1:])
    for title, group in zip(("Open", "Fixed"), grouped(releases, faults), strict=True):
        lines += [f"## {title}{newest}", ""]
        lines += [f"- [{each.number}. {each.title}](#{each.number})" for each in group] or ["None."]
        lines.append("")
        for fault in group:
            lines += _section(fault, seen[fault.number])
    return "\n".join(lines)


def grouped(
    releases: Sequence[Release], faults: Sequence[Fault]
) -> tuple[list[Fault], list[Fault]]:
    """The faults that the last release has, and those that only earlier ones have.

    The most severe come first; faults that no release has are left out.
    """
    seen = _seen(releases, faults)
    found = [fault for fault in faults if fault.number in seen]
    found.sort(key=lambda each: (SEVERITY.index(_classes(seen[each.number])[0]), each.number))
    still = [each for each in found if releases[-1].version in seen[each.number]]
    return still, [each for each in found if each not in still]


def _seen(releases: Sequence[Release], faults: Sequence[Fault]) -> _Seen:
    seen: _Seen = {}
    for release in releases:
        for sighting in release.sightings:
            fault = cause(faults, sighting.signature, release.version)
            by_release = seen.setdefault(fault.number if fault else 0, {})
            by_release.setdefault(release.version, []).append(sighting)
    return seen


def _section(fault: Fault, seen: dict[str, list[Sighting]]) -> Iterator[str]:
    first, *_, last = (*seen, *seen)
    where = f"{first} only" if first == last else f"{first} to {last}"
    yield f'### <a name="{fault.number}"></a>{fault.number}. {fault.title}'
    yield ""
    yield f"*{', '.join(_classes(seen))}; seen in {where}.*"
    yield ""
    yield f"**Impact.** {fault.impact}"
    yield ""
    if costs := read_costs().get(fault.number):
        yield f"**Cost.** {in_words(costs)}"
        yield ""
    yield f"**Trigger.** {fault.trigger}"
    yield ""
    yield f"**Cause.** {fault.reason}"
    yield ""
    if fault.upstream:
        yield f"**Upstream.** <{fault.upstream}>"
        yield ""
    yield f"**Found by** {'; '.join(_METHODS[method] for method in fault.found_by)}."
    smallest = min(seen[last], key=lambda sighting: _size(sighting))
    yield ""
    yield f"The smallest case, on {last}:"
    yield ""
    yield "```text"
    yield f"{smallest.signature.divergence}: {smallest.signature.headline}"
    yield f"code  : {smallest.signature.defect}"
    yield f"claim : {smallest.signature.claim}"
    for line, fact in enumerate(smallest.given):
        yield f"{'' if line else 'given :':<7} {fact}"
    yield f"spec  : {smallest.spec}"
    yield f"vllm  : {smallest.actual}"
    if smallest.source:
        yield smallest.source
    yield "```"
    yield ""


def _classes(seen: dict[str, list[Sighting]]) -> list[Divergence]:
    names = {sighting.signature.divergence for found in seen.values() for sighting in found}
    return [each for each in SEVERITY if each in names]


def _cell(found: Sequence[Sighting]) -> str:
    letters = {Divergence.WRONG_DRAFTS: "D", Divergence.WRONG_METRIC: "M"}
    return "".join(letters.get(name, name[0].upper()) for name in _classes({"": [*found]}))


def _size(sighting: Sighting) -> tuple[int, int, str]:
    order = SEVERITY.index(Divergence(sighting.signature.divergence))
    return order, sum(map(len, sighting.given)), sighting.actual
