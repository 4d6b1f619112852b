"""Distinct faults of vLLM: what findings of many signatures come from, told once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import read_entries, read_signature
from hitproof.vllm_integration.bundled import FAULTS

_SIGNATURE = [field.name for field in fields(Signature)]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in some releases.

    Attributes:
        title: what is wrong, in a line.
        reason: what happens, to whom, and why.
        link: where it is discussed; may be empty.
        releases: releases in which findings of these signatures come from it; where a signature
            has different causes in different releases, this tells them apart.
        signatures: the signatures of its findings.
    """

    title: str
    reason: str
    link: str
    releases: SpecifierSet
    signatures: frozenset[Signature]

    def explains(self, signature: Signature, release: str) -> bool:
        """Whether a finding of that signature in that release comes from this fault."""
        return signature in self.signatures and Version(release) in self.releases


def load(path: Path = FAULTS) -> tuple[Fault, ...]:
    """The faults that are told. Raises `LedgerError` when the file cannot be used."""
    return read_entries(path, "fault", "install hitproof anew", _fault)


def _fault(raw: dict[str, Any]) -> Fault:
    return Fault(
        raw["title"],
        raw["reason"].strip(),
        raw.get("link", ""),
        SpecifierSet(raw.get("releases", "")),
        frozenset(
            read_signature(dict(zip(_SIGNATURE, values, strict=True)))
            for values in raw["signatures"]
        ),
    )


def cause(faults: Sequence[Fault], signature: Signature, release: str) -> Fault | None:
    """The fault that a finding comes from; None when it is not told yet."""
    return next((fault for fault in faults if fault.explains(signature, release)), None)
