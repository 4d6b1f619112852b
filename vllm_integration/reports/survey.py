"""The survey as a table for README and as BUGS.md."""

from collections.abc import Iterator, Sequence

from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.survey.faults import Fault, cause
from hitproof.vllm_integration.survey.survey import Release, Sighting

_UNTOLD = "not told yet"


def table(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """A Markdown table: a row for each fault, a column for each release."""
    header = ["fault", *(release.version for release in releases)]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" + ":-:|" * len(releases)]
    for number, fault in enumerate(faults, 1):
        cells = [_cell(_seen(release, faults, fault)) for release in releases]
        if any(cells):
            lines.append(f"| [{number}. {fault.title}](BUGS.md#{number}) | {' | '.join(cells)} |")
    untold = [_cell(_seen(release, faults, None)) for release in releases]
    if any(untold):
        lines.append(f"| {_UNTOLD} | {' | '.join(untold)} |")
    lines.append("")
    lines.append("U unsound, C crash, L lost hit, W waste.")
    return "\n".join(lines) + "\n"


def document(releases: Sequence[Release], faults: Sequence[Fault]) -> str:
    """BUGS.md: each fault with its smallest case and the releases that have it."""
    lines = [
        "# Faults found in vLLM's prefix cache",
        "",
        "Each was found by `hitproof check` with no case written for it. Cases and releases are",
        "written by `hitproof survey --format bugs`. The releases looked at are",
        ", ".join(release.version for release in releases) + ".",
        "",
    ]
    for number, fault in enumerate(faults, 1):
        lines += _section(number, fault, releases, faults)
    return "\n".join(lines)


def _section(
    number: int, fault: Fault, releases: Sequence[Release], faults: Sequence[Fault]
) -> Iterator[str]:
    seen = {
        release.version: found for release in releases if (found := _seen(release, faults, fault))
    }
    if not seen:
        return
    first, last = next(iter(seen)), list(seen)[-1]
    newest = releases[-1].version
    still = f"still in {newest}" if last == newest else f"gone in {_after(last, releases)}"
    classes = sorted(
        {sighting.signature.divergence for found in seen.values() for sighting in found},
        key=lambda name: SEVERITY.index(Divergence(name)),
    )
    yield f'## <a name="{number}"></a>{number}. {fault.title}'
    yield ""
    yield f"*{', '.join(classes)}; seen in {first} to {last}, {still}.*"
    yield ""
    yield fault.reason
    if fault.link:
        yield ""
        yield f"See <{fault.link}>."
    smallest = min(seen[last], key=lambda sighting: _size(sighting))
    yield ""
    yield f"The smallest case, on {last}:"
    yield ""
    yield "```text"
    yield f"{smallest.signature.divergence}: {smallest.signature.claim}"
    for line, fact in enumerate(smallest.given):
        yield f"{'' if line else 'given :':<7} {fact}"
    yield f"spec  : {smallest.spec}"
    yield f"vllm  : {smallest.actual}"
    if smallest.source:
        yield smallest.source
    yield "```"
    yield ""


def _seen(release: Release, faults: Sequence[Fault], fault: Fault | None) -> list[Sighting]:
    return [
        sighting
        for sighting in release.sightings
        if cause(faults, sighting.signature, release.version) is fault
    ]


def _cell(found: Sequence[Sighting]) -> str:
    classes = {sighting.signature.divergence for sighting in found}
    return "".join(name[0].upper() for name in SEVERITY if name in classes)


def _size(sighting: Sighting) -> tuple[int, int, str]:
    order = SEVERITY.index(Divergence(sighting.signature.divergence))
    return order, sum(map(len, sighting.given)), sighting.actual


def _after(version: str, releases: Sequence[Release]) -> str:
    versions = [release.version for release in releases]
    return versions[versions.index(version) + 1]
