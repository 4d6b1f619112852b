"""Jobs: small, pure, and named by what they ask of which code."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.sandbox.protocol import TEXT
from hitproof.vllm_integration.targets.target import Target

Result = dict[str, Any]
"""What a job gives, as JSON. It has no time and no machine, so that equal jobs give equal ones."""


@cache
def version() -> str:
    """A digest of what judges: hitproof's own text, and its ledger."""
    return hashlib.sha256(TEXT.encode() + LEDGER.read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Job:
    """One question about one target.

    Attributes:
        kind: the kind of campaign that it belongs to.
        content: what the target's tree contains (`trees.content_of`); empty where there is none.
        release: the release that the target is judged as; empty where there is none.
        question: what is asked, as JSON.
    """

    kind: str
    content: str
    release: str
    question: Mapping[str, Any]

    @staticmethod
    def of(kind: str, content: str, target: Target, **question: Any) -> "Job":
        """A job on a target."""
        return Job(kind, content, target.version or "", question)

    @cached_property
    def name(self) -> str:
        """A digest of all that decides the result."""
        asked = [version(), self.kind, self.content, self.release, self.question]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:20]
