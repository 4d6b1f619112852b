"""What is known of a finding: its fault in BUGS, or its entry in the ledger."""

from functools import cache

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import load as load_ledger
from hitproof.conformance.ledger.ledger import speaks_of
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.survey.faults import load as load_faults
from hitproof.vllm_integration.survey.survey import read, seen_in

NEW = "new"
_NEWER = "999999"
_faults = cache(load_faults)


@cache
def _listed(version: str | None) -> frozenset[Signature]:
    return frozenset(e.signature for e in load_ledger(LEDGER) if speaks_of(e.releases, version))


@cache
def _fixed(version: str | None) -> frozenset[int]:
    """The faults that the record of a surveyed release does not have."""
    releases = read()
    if version not in {release.version for release in releases}:
        return frozenset()
    seen = seen_in(releases, _faults())
    return frozenset(n for n, where in seen.items() if version not in where)


@cache
def told_cause(signature: Signature, version: str | None) -> str:
    """The fault that it comes from in that release; `NEW` where nothing is known of it.

    What looks like a fault that the release is free of has another cause.
    """
    for fault in _faults():
        if fault.explains(signature, version or _NEWER) and fault.number not in _fixed(version):
            return f"{fault.number}. {fault.title}"
    return "the ledger has it" if signature in _listed(version) else NEW


def is_known(signature: Signature, version: str | None) -> bool:
    """Whether BUGS or the ledger has it for that release."""
    return told_cause(signature, version) != NEW
