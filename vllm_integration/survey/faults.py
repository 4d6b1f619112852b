"""Distinct faults of vLLM: what findings of many signatures come from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import CauseStatus, Entry, read_entries, read_signature
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.bundled import FAULTS

_SIGNATURE = ("claim", "divergence", "kind", "eagle", "code", "parameters")
"""What the parts of a signature are; the last one is left out where a code has no parameters."""


class Method(StrEnum):
    """How a fault was found first."""

    CHECK = "check"
    GENERATED = "generated histories"
    FAMILIES = "history families"
    HANDWRITTEN = "hand-written history"
    REPLAY = "replay"
    LOCKSTEP = "lockstep"
    SHADOW = "shadow"
    THEOREM = "theorem"
    SOURCE = "reading the source"
    NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Evidence:
    """Where vLLM says that something is meant to be so.

    Attributes:
        release: the release that says it.
        file: relative to the root of that release's source.
        line: where ``quote`` begins.
        quote: what stands there.
        url: a pull request or an issue that says it, too; may be empty.
    """

    release: str
    file: str
    line: int
    quote: str
    url: str = ""


@dataclass(frozen=True)
class Fault:
    """One thing that diverges from the spec in some releases.

    Attributes:
        number: a stable identifier, from 1; pages link to it.
        formerly: numbers of causes that turned out to be this one.
        title: what is wrong, in a line.
        status: whether it is wrong, or meant to be so.
        evidence: what says that it is no fault.
        reach: a configuration of vLLM's own models and connectors that reaches it, or that none is
            known; empty for what is fixed.
        impact: what users see, and on which models and configurations.
        trigger: what makes it happen.
        reason: why it happens.
        upstream: the issue or pull request of vLLM about it; may be empty.
        found_by: how it was found first.
        releases: where findings of a signature have different causes in different releases, those
            in which they come from it: by the defect, or under "" for all others.
        same_cases: the numbers of faults that the cases of this one show in other releases.
        signatures: the signatures of its findings.
    """

    number: int
    formerly: tuple[int, ...]
    title: str
    status: CauseStatus
    evidence: tuple[Evidence, ...]
    reach: str
    impact: str
    trigger: str
    reason: str
    upstream: str
    found_by: tuple[Method, ...]
    releases: Mapping[str, SpecifierSet] = field(hash=False)
    same_cases: tuple[int, ...]
    signatures: frozenset[Signature]

    @property
    def is_reached(self) -> bool:
        """Whether a configuration of vLLM's own models and connectors is known to reach it."""
        return not self.reach.startswith("None known")

    def explains(self, signature: Signature, release: str) -> bool:
        """Whether a finding of that signature in that release comes from this fault."""
        own = self.releases.get(str(signature.defect), self.releases[""])
        return signature in self.signatures and Version(release) in own


def load(path: Path = FAULTS) -> tuple[Fault, ...]:
    """The documented faults. Raises `LedgerError` when the file cannot be used."""
    return read_entries(path, "fault", "install hitproof anew", _fault)


def of_codes(
    codes: Collection[str], release: str | None, kinds: Collection[GroupKind], eagle: bool
) -> dict[str, list[Fault]]:
    """The documented faults of a release that show as ``codes`` in groups of ``kinds``, by code."""
    every = " + ".join(sorted(kinds))
    found: dict[str, list[Fault]] = {}
    for fault in load() if release is not None and codes else ():
        for signature in fault.signatures:
            if (
                signature.code in codes
                and fault.explains(signature, release or "")
                and signature.eagle == eagle
                and signature.group_kind in (every, *kinds)
                and fault not in found.setdefault(signature.code, [])
            ):
                found[signature.code].append(fault)
    return found


def status_of(entry: Entry) -> CauseStatus:
    """What the ledger says of an entry, or else BUGS of the fault that is its cause."""
    return entry.status or _statuses().get(entry.cause, CauseStatus.FAULT)


@cache
def _statuses() -> dict[str, CauseStatus]:
    return {fault.title: fault.status for fault in load()}


def _fault(raw: dict[str, Any]) -> Fault:
    return Fault(
        raw["number"],
        tuple(raw.get("formerly", ())),
        raw["title"],
        CauseStatus(raw.get("status", CauseStatus.FAULT)),
        tuple(Evidence(**each) for each in raw.get("evidence", ())),
        raw.get("reach", ""),
        raw["impact"],
        raw["trigger"],
        raw["reason"],
        raw.get("upstream", ""),
        tuple(map(Method, raw["found_by"])),
        _releases(raw.get("releases", "")),
        tuple(raw.get("same_cases", ())),
        frozenset(read_signature(_by_name(values)) for values in raw["signatures"]),
    )


def _releases(raw: str | dict[str, str]) -> dict[str, SpecifierSet]:
    by_defect = {"": raw} if isinstance(raw, str) else {"": "", **raw}
    return {defect: SpecifierSet(releases) for defect, releases in by_defect.items()}


def _by_name(values: list[Any]) -> dict[str, Any]:
    """A signature by the names of its parts; before there were codes, the fifth was a sentence."""
    if not 5 <= len(values) <= 6:
        raise ValueError(f"a signature has {len(values)} parts; name {', '.join(_SIGNATURE)}")
    named = dict(zip(_SIGNATURE, values, strict=False))
    if len(values) == 5 and " " in str(values[4]):
        named["pattern"] = named.pop("code")
    return named


def cause(faults: Sequence[Fault], signature: Signature, release: str) -> Fault | None:
    """The fault that a finding comes from; None when it is not documented."""
    return next((fault for fault in faults if fault.explains(signature, release)), None)
