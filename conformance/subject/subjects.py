"""Subjects: what the checks can judge, a capability each, and what has all of them.

All methods of subjects raise `CannotJudge` when an entry point is missing or a probe of a policy
crashes, and `Predates` when the subject's release predates what it is asked for
(`conformance.subject.failures`).
"""

from typing import Protocol

from hitproof.conformance.subject.hashing import HashSubject
from hitproof.conformance.subject.lookups import ConnectorSubject, FineLookupSubject, LookupSubject
from hitproof.conformance.subject.managers import AdmissionSubject
from hitproof.conformance.subject.pools import PoolSubject
from hitproof.conformance.subject.registering import MaskSubject, RetentionSubject, ServingSubject
from hitproof.conformance.subject.tiers import TierSubject


class Subject(
    LookupSubject,
    ConnectorSubject,
    FineLookupSubject,
    MaskSubject,
    RetentionSubject,
    ServingSubject,
    PoolSubject,
    HashSubject,
    AdmissionSubject,
    TierSubject,
    Protocol,
):
    """What every check can judge, and whose code can be found."""

    def source(self, entry: str) -> str:
        """Where an entry point is, as file:line.

        ``entry`` is "lookup" or "mask" and a kind of group, "lookup" and "several" or "connector",
        "block_pool", "block_hash" or "admission"; "lookup", "stored", "asked" or "loaded" and
        "tier", or but for "asked" and "offloading".
        """
