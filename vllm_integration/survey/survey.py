"""The survey: which of the known faults each release has, kept as JSON and shown as documents."""

import importlib.metadata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import SEVERITY, Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import LedgerError, load
from hitproof.conformance.words import first_of
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.gate.gate import check
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.sandbox.protocol import TEXT
from hitproof.vllm_integration.survey.faults import Fault, cause
from hitproof.vllm_integration.verdict import Verdict

_Signature: TypeAlias = Annotated[
    Signature,
    PlainValidator(lambda raw: raw if isinstance(raw, Signature) else Signature.from_json(raw)),
    PlainSerializer(Signature.as_json),
]
"""A signature as JSON has it."""
REMEDY = "record them with --footprints"


@dataclass(frozen=True)
class Sighting:
    """One finding in one release.

    Attributes:
        signature: its signature.
        given: the smallest case, one fact a line.
        spec: what the spec says.
        actual: what the release does.
        source: file and line of the release's code.
    """

    signature: _Signature
    given: tuple[str, ...]
    spec: str
    actual: Annotated[str, Field(alias="vllm")]
    source: str

    @staticmethod
    def of(finding: Finding) -> "Sighting":
        """What is kept of a finding."""
        return Sighting(
            finding.signature, finding.given, finding.spec, finding.actual, finding.source
        )


@dataclass(frozen=True)
class State:
    """A state of hitproof.

    Attributes:
        version: of the package.
        digest: of the source of what judges (`sandbox.protocol.TEXT`).
    """

    version: str
    digest: str


def this_state() -> State:
    """The state of the hitproof that runs."""
    return State(importlib.metadata.version("hitproof"), TEXT)


@dataclass(frozen=True)
class Checked:
    """What `hitproof check` says of a release, with the ledger.

    Attributes:
        verdict: the verdict, as its JSON names it.
        known: the known divergences that were found.
        new: signatures of what is not in the ledger.
        stale: entries of the ledger that did not reproduce.
        detail: why not everything could be judged.
    """

    verdict: str
    known: int
    new: tuple[_Signature, ...]
    stale: int
    detail: str = ""


@dataclass(frozen=True)
class Release:
    """What was found in one release.

    Attributes:
        version: the release.
        verdict: the verdict without a ledger, as `hitproof check --format json` names it.
        obligations: how many were settled.
        sightings: the findings, the most severe first.
        judged_by: the state of hitproof that found them; None where that was not recorded.
        checked: what the check says with the ledger; None where that was not recorded.
    """

    version: str
    verdict: str
    obligations: int
    sightings: Annotated[tuple[Sighting, ...], Field(alias="findings")]
    judged_by: State | None = None
    checked: Annotated[Checked | None, Field(alias="check")] = None


_RELEASES = TypeAdapter(list[Release])


def survey(run: Run, progress: Callable[[int, int], None]) -> Report:
    """Judge a release with the ledger, and with the histories of all its entries.

    Arguments and exceptions as `gate.check`, and `LedgerError`.
    """
    entries = load(LEDGER)
    known = [each.configuration for each in entries]
    also = [play for play in known if isinstance(play, Play)]
    return check(replace(run, entries=entries, also=also, remedy=REMEDY), progress)


def of_report(report: Report) -> Release:
    """What is kept of a report, the most severe findings first."""
    judgement = report.judgement
    found = (*judgement.new, *(finding for finding, _ in judgement.known))
    found = tuple(sorted(found, key=lambda each: SEVERITY.index(each.signature.divergence)))
    apart = Verdict.DIVERGES.label if found else report.verdict.label
    by_check = _without_besides(report)
    return Release(
        report.target.version or report.target.name,
        apart,
        len(report.obligations) - len(report.unsettled),
        tuple(Sighting.of(finding) for finding in found),
        this_state(),
        Checked(
            by_check.verdict.label,
            len(by_check.judgement.known),
            tuple(finding.signature for finding in by_check.judgement.new),
            len(by_check.judgement.stale),
            "; ".join(by_check.open_questions),
        ),
    )


def _without_besides(report: Report) -> Report:
    """What `check` reports: without what only histories show that it does not replay."""
    shown, judgement = {each.signature for each in report.reached}, report.judgement
    grown = Code.KNOWN_DIVERGENCE_GROWN
    return replace(
        report,
        judgement=replace(
            judgement,
            new=tuple(
                each
                for each in judgement.new
                if each.signature in shown or each.signature.code is grown
            ),
            known=tuple(each for each in judgement.known if each[0].signature in shown),
        ),
    )


Seen = dict[int, dict[str, list[Sighting]]]
"""By the number of a fault, 0 for none, and by release: the findings that come from it."""


def seen_in(releases: Sequence[Release], faults: Sequence[Fault]) -> Seen:
    """What comes of which fault; findings that two faults cause in one release count for both."""
    by_signature: dict[Signature, list[Fault]] = {}
    for fault in faults:
        for signature in fault.signatures:
            by_signature.setdefault(signature, []).append(fault)
    found: Seen = {}
    for release in releases:
        for each in release.sightings:
            alike = by_signature.get(each.signature, ())
            told = [f.number for f in alike if f.explains(each.signature, release.version)]
            for number in told or [0]:
                found.setdefault(number, {}).setdefault(release.version, []).append(each)
    return found


def span(versions: Collection[str], releases: Sequence[Release]) -> str:
    """Some of the surveyed releases, in words: ``0.17.0 to 0.26.0 and 0.28.0``."""
    runs: list[list[str]] = [[]]
    for release in releases:
        if release.version in versions:
            runs[-1].append(release.version)
        elif runs[-1]:
            runs.append([])
    told = [run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs if run]
    return f"{told[0]} only" if len(versions) == 1 else " and ".join(told)


def is_told(releases: Sequence[Release], faults: Sequence[Fault]) -> bool:
    """Whether each finding comes from a documented fault."""
    return all(
        cause(faults, sighting.signature, release.version)
        for release in releases
        for sighting in release.sightings
    )


def verdict(releases: Sequence[Release], faults: Sequence[Fault]) -> Verdict:
    """Conforms when each release got a verdict and all that was found in it is documented."""
    if not releases or any(release.verdict == Verdict.INCONCLUSIVE.label for release in releases):
        return Verdict.INCONCLUSIVE
    return Verdict.CONFORMS if is_told(releases, faults) else Verdict.DIVERGES


def to_json(releases: Sequence[Release]) -> list[dict[str, Any]]:
    """The survey as JSON; `read` reads it."""
    raw: list[dict[str, Any]] = _RELEASES.dump_python(list(releases), mode="json", by_alias=True)
    for each in raw:
        if each["check"] is None:
            del each["check"]
        each["findings"] = each.pop("findings")  # the longest comes last
    return raw


def read(path: Path = SURVEY) -> list[Release]:
    """A survey that was written as JSON. Raises `LedgerError`."""
    try:
        return _RELEASES.validate_json(path.read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        # What is not as it should be has a sentence for each field.
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        one = first_of(error, "the file") if isinstance(error, ValidationError) else reason
        raise LedgerError(
            f"the survey {path} cannot be read ({one}); make it with hitproof survey --format json"
        ) from error
