"""Findings: what diverged, in the form that people, the ledger and other tools read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.figures import (
    hits_figure,
    lookup_figures,
    mask_figure,
    promise_figure,
)
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import Figure, draw
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.claims import CLAIMS


@dataclass(frozen=True)
class Finding:
    """A divergence with its smallest evidence, ready to show.

    Attributes:
        signature: see `Signature`.
        sentence: the claim's sentence.
        given: the configuration and the cache state, one fact a line.
        spec: what the spec says.
        actual: what the subject did.
        strip: a picture of the blocks.
        source: file:line of the code that it judges.
        configuration: the configuration as JSON, ready for a ledger entry.
        demonstration: the finding on a whole manager.
        evidence: what it was made of, as JSON, so that `hitproof explain` can tell it again.
    """

    signature: Signature
    sentence: str
    given: tuple[str, ...]
    spec: str
    actual: str
    strip: str
    source: str
    configuration: dict[str, Any]
    demonstration: Demonstration = field(default_factory=Demonstration)
    evidence: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON, as `hitproof check --format json` prints it."""
        return {
            "claim": self.signature.claim,
            "sentence": self.sentence,
            "class": self.signature.divergence,
            "signature": self.signature.as_json(),
            "given": list(self.given),
            "spec": self.spec,
            "actual": self.actual,
            "strip": self.strip.splitlines(),
            "source": self.source,
            "configuration": self.configuration,
            "evidence": self.evidence,
            **self.demonstration.as_json(),
        }


def finding(evidence: Evidence, source: str, demonstration: Demonstration | None = None) -> Finding:
    """The finding that ``evidence`` shows; ``source`` is the judged code, as file:line."""
    judged = evidence.configuration
    given = [judged.describe()]
    if evidence.steps:
        given = list(evidence.steps)
    elif evidence.shared is not None:
        assert isinstance(judged, Configuration)
        policy = "dense" if evidence.retention is None else f"interval {evidence.retention}"
        given.append(
            f"three prompts of {evidence.chunks[0]} tokens that share the first {evidence.shared}, "
            f"served one after another, retention {policy}"
        )
    elif evidence.fine:
        assert isinstance(judged, Configuration)
        given.append(
            f"a lookup of at most {evidence.max_length} tokens that may end on any hash block of "
            f"{judged.hash_block_size} tokens; entered hash blocks: {_listed(evidence.cached[0])}"
        )
    elif evidence.max_length is not None:
        given += _given_lookup(evidence, judged, evidence.max_length)
    else:
        assert isinstance(judged, Configuration)  # masks are of one group
        after = ", ".join(map(str, evidence.chunks))
        if evidence.retention is None:
            given.append(
                f"a request of {judged.num_blocks} blocks, registered after {after} tokens"
            )
        else:
            given.append(f"a prompt of {after} tokens, retention interval {evidence.retention}")
    return Finding(
        signature=evidence.signature,
        sentence=CLAIMS[evidence.signature.claim].sentence,
        given=tuple(given),
        spec=evidence.spec,
        actual=evidence.actual,
        strip="\n".join(evidence.picture) if evidence.steps else draw(figures(evidence)),
        source=source,
        configuration=judged.as_json(),
        demonstration=demonstration or Demonstration(),
        evidence=evidence.as_json(),
    )


def figures(evidence: Evidence) -> tuple[Figure, ...]:
    """The pictures of a finding; none where its steps led to one of their own."""
    judged, hits = evidence.configuration, (evidence.spec_hit, evidence.actual_hit)
    if evidence.steps:
        return ()
    if evidence.max_length is not None and not evidence.fine and evidence.shared is None:
        return lookup_figures(judged, evidence.cached, *hits)
    assert isinstance(judged, Configuration)  # all else is of one group
    if evidence.shared is not None:
        return (hits_figure(judged, *hits),)
    if evidence.fine:
        return lookup_figures(judged.in_hash_units, evidence.cached, *hits)
    (registered,) = evidence.cached
    if evidence.retention is None:
        return (mask_figure(judged, registered),)
    return (promise_figure(judged, registered, evidence.spec_hit),)


def _given_lookup(
    evidence: Evidence, judged: Configuration | Layout, max_length: int
) -> Iterator[str]:
    if isinstance(judged, Configuration):
        (blocks,) = evidence.cached
        yield f"a lookup of at most {max_length} tokens; cached blocks: {_listed(blocks)}"
        return
    yield f"a request of {max_length + 1} tokens, of which at most {max_length} may be served"
    for looked_up, blocks in zip(judged.looked_up, evidence.cached, strict=True):
        several = len(looked_up.group_ids) > 1
        whose = f"group{'s' if several else ''} {' and '.join(map(str, looked_up.group_ids))}"
        yield f"cached blocks of {whose}: {_listed(blocks)}"
    if evidence.for_connector:
        yield "a KV connector loads what follows the local prefix, and Mamba states"


def _listed(blocks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(blocks))) or "none"
