"""Examples of codes: what was found in releases of vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass

from hitproof.conformance.findings.meaning import Code
from hitproof.vllm_integration.survey.faults import Fault, cause
from hitproof.vllm_integration.survey.survey import Release, Sighting


@dataclass(frozen=True)
class Example:
    """A case of a code.

    Attributes:
        release: the release of vLLM that shows it.
        sighting: the case.
        fault: the fault that it comes from; None when it is not documented.
    """

    release: str
    sighting: Sighting
    fault: Fault | None


def example_of(code: Code, releases: Sequence[Release], faults: Sequence[Fault]) -> Example | None:
    """The shortest case of the code in the newest release that has one; None without any."""
    for release in reversed(releases):
        shown = [each for each in release.sightings if each.signature.code == code]
        if shown:
            sighting = min(shown, key=lambda each: sum(map(len, each.given)))
            found = cause(faults, sighting.signature, release.version)
            return Example(release.version, sighting, found)
    return None
