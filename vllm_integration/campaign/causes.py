"""What is known of a finding: its fault in BUGS, or its entry in the ledger."""

from functools import cache

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.ledger.ledger import load as load_ledger
from hitproof.conformance.ledger.ledger import speaks_of
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.survey.faults import cause
from hitproof.vllm_integration.survey.faults import load as load_faults

NEW = "new"
_NEWER = "999999"
_faults = cache(load_faults)


@cache
def _listed(version: str | None) -> frozenset[Signature]:
    return frozenset(e.signature for e in load_ledger(LEDGER) if speaks_of(e.releases, version))


@cache
def told_cause(signature: Signature, version: str | None) -> str:
    """The fault that it comes from in that release; `NEW` where nothing is known of it."""
    told = cause(_faults(), signature, version or _NEWER)
    if told is not None:
        return f"{told.number}. {told.title}"
    return "the ledger has it" if signature in _listed(version) else NEW


def is_known(signature: Signature, version: str | None) -> bool:
    """Whether BUGS or the ledger has it for that release."""
    return told_cause(signature, version) != NEW
