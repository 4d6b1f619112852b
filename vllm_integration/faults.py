"""Distinct faults of vLLM: what findings of many signatures come from, told once."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from conformance.findings import Signature
from conformance.ledger import LedgerError
from spec.claims import CLAIMS, Divergence

FAULTS = Path(__file__).with_name("known") / "faults.toml"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in some releases.

    Attributes:
        title: what is wrong, in a line.
        text: what happens, to whom, and why.
        link: where it is discussed; may be empty.
        releases: releases in which findings of these signatures come from it; where a signature
            has different causes in different releases, this tells them apart.
        signatures: the signatures of its findings.
    """

    title: str
    text: str
    link: str
    releases: SpecifierSet
    signatures: frozenset[Signature]

    def explains(self, signature: Signature, release: str) -> bool:
        """Whether a finding of that signature in that release comes from this fault."""
        return signature in self.signatures and Version(release) in self.releases


def load(path: Path = FAULTS) -> tuple[Fault, ...]:
    """The faults that are told. Raises `LedgerError` when the file cannot be used."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return tuple(_fault(raw) for raw in data["fault"])
    except (OSError, ValueError, KeyError, TypeError, InvalidSpecifier) as error:
        raise LedgerError(f"the faults in {path} cannot be read: {error}; mend the file") from error


def _fault(raw: dict[str, Any]) -> Fault:
    signatures = [
        Signature(claim, divergence, kind, eagle, pattern)
        for claim, divergence, kind, eagle, pattern in raw["signatures"]
    ]
    for signature in signatures:
        Divergence(signature.divergence)
        if signature.claim not in CLAIMS:
            raise ValueError(f"no claim is called {signature.claim}")
    return Fault(
        raw["title"],
        raw["text"].strip(),
        raw.get("link", ""),
        SpecifierSet(raw.get("releases", "")),
        frozenset(signatures),
    )


def cause(faults: Sequence[Fault], signature: Signature, release: str) -> Fault | None:
    """The fault that a finding comes from; None when it is not told yet."""
    return next((fault for fault in faults if fault.explains(signature, release)), None)
