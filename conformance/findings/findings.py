"""Findings: what diverged, in the form that people, the ledger and other tools read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.evidence import (
    LATER,
    LOAD,
    AgreementEvidence,
    ConnectorEvidence,
    Evidence,
    FineLookupEvidence,
    LookupEvidence,
    MaskEvidence,
    PoolEvidence,
    RetentionEvidence,
    SharedPrefixEvidence,
    StepsEvidence,
    TierLocalEvidence,
    TierLookupEvidence,
    TierMaskEvidence,
)
from hitproof.conformance.findings.figures import (
    hits_figure,
    lookup_figures,
    mask_figure,
    promise_figure,
    tier_mask_figure,
)
from hitproof.conformance.findings.places import NOT_RUN, Location, Passed
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import Figure, draw
from hitproof.conformance.histories.schema import Evict, Schedule
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.words import in_blocks, in_tokens


@dataclass(frozen=True)
class Grown:
    """Where a known divergence is found outside its footprint.

    Attributes:
        of: its signature.
        places: the names of the places, that of the finding first.
    """

    of: Signature
    places: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A divergence with its smallest evidence, ready to show.

    Attributes:
        signature: see `Signature`.
        sentence: that of the claim or the sanity rule.
        given: the configuration and the cache state, one fact a line.
        spec: what the spec says.
        actual: what the subject did.
        strip: a picture of the blocks.
        source: file:line of the code that it judges.
        configuration: the configuration as JSON, ready for a ledger entry.
        demonstration: the finding on a whole manager.
        evidence: what it was made of, as JSON, so that `hitproof explain` can tell it again.
        grown: where a known divergence has grown; None for any other finding.
        passed: what of the subject's source it runs, and the line that decides.
        trace: the history that shows it, step by step, as JSON (`conformance.explain.traces`); None
            where no history does.
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
    grown: Grown | None = None
    passed: Passed = field(default=NOT_RUN, repr=False)
    trace: dict[str, Any] | None = field(default=None, repr=False, compare=False)

    @property
    def location(self) -> Location | None:
        """The line of the subject's source that decides; None where it is not known."""
        return self.passed.location

    def as_json(self) -> dict[str, Any]:
        """The finding as JSON, as `hitproof check --format json` prints it."""
        return {
            **picked(self.signature, "claim", **{"class": "divergence"}),
            "cites": sort_of(self.signature.claim),
            **picked(self, "sentence", "signature", "given", "spec", "actual", "source"),
            "strip": self.strip.splitlines(),
            **picked(self, "location", "configuration", "evidence", "trace"),
            **self.demonstration.as_json(),
        }


def finding(
    evidence: Evidence,
    source: str,
    demonstration: Demonstration | None = None,
    passed: Passed = NOT_RUN,
    trace: dict[str, Any] | None = None,
) -> Finding:
    """The finding that ``evidence`` shows; ``source`` is the judged code, as file:line."""
    return Finding(
        signature=evidence.signature,
        sentence=evidence.signature.sentence,
        given=tuple(given(evidence)),
        spec=evidence.spec,
        actual=evidence.actual,
        strip=_strip(evidence),
        source=source,
        configuration=evidence.configuration.as_json(),
        demonstration=demonstration or Demonstration(),
        evidence=evidence.as_json(),
        passed=passed,
        trace=trace,
    )


def given(evidence: Evidence) -> Iterator[str]:
    """The configuration and the cache state, one fact a line."""
    if isinstance(evidence, StepsEvidence):
        yield from evidence.steps
        return
    judged = evidence.configuration
    yield judged.describe()
    if judged.variant:
        yield f"variant {judged.variant} of specs, pool and requests"
    match evidence:
        case AgreementEvidence():
            yield from _given_agreement(evidence)
        case LookupEvidence(configuration=Layout() as layout):
            yield from _given_layout(evidence, layout)
        case LookupEvidence(cached=(blocks,), max_length=most):
            yield f"a lookup of at most {in_tokens(most)}; cached blocks: {_listed(blocks)}"
        case FineLookupEvidence(configuration=one, entered=entered, max_length=most):
            yield (
                f"a lookup of at most {in_tokens(most)} that may end on any hash block of "
                f"{in_tokens(one.hash_block_size)}; entered hash blocks: {_listed(entered)}"
            )
        case MaskEvidence(configuration=one, chunks=chunks):
            *earlier, last = chunks
            after = "".join(f"{chunk}, " for chunk in earlier) + in_tokens(last)
            yield f"a request of {in_blocks(one.num_blocks)}, registered after {after}"
        case TierMaskEvidence(mask="store", start=start, end=end):
            yield "the tier behind a KV connector stores what a step fills"
            yield f"the step fills the tokens from {start} to {end}"
        case TierMaskEvidence(mask="lookup", end=end):
            yield f"the tier behind a KV connector looks up a request of {in_tokens(end)}"
        case TierMaskEvidence(start=start, end=end):
            yield f"the tier behind a KV connector loads a hit of {in_tokens(end)}"
            if start:
                yield f"the prefix cache has the first {in_tokens(start)}"
        case RetentionEvidence(num_tokens=length, interval=interval):
            yield f"a prompt of {in_tokens(length)}, retention interval {interval}"
        case SharedPrefixEvidence(num_tokens=length, shared=shared, interval=every):
            policy = "dense" if every is None else f"interval {every}"
            yield (
                f"three prompts of {in_tokens(length)} that share the first {shared}, "
                f"served one after another, retention {policy}"
            )
        case _:
            raise TypeError(f"no words for {evidence}")


def _given_layout(evidence: LookupEvidence, layout: Layout) -> Iterator[str]:
    most = evidence.max_length
    yield f"a request of {in_tokens(most + 1)}, of which at most {most} may be served"
    for looked_up, blocks in zip(layout.looked_up, evidence.cached, strict=True):
        several = len(looked_up.group_ids) > 1
        whose = f"group{'s' if several else ''} {' and '.join(map(str, looked_up.group_ids))}"
        yield f"cached blocks of {whose}: {_listed(blocks)}"
    if isinstance(evidence, ConnectorEvidence):
        yield "a KV connector loads what follows the local prefix, and Mamba states"
    if isinstance(evidence, TierLookupEvidence):
        yield "these are the blocks that the tier behind a KV connector stores"
    if isinstance(evidence, TierLocalEvidence):
        yield f"the prefix cache has the first {in_tokens(evidence.local)}"


def _given_agreement(evidence: AgreementEvidence) -> Iterator[str]:
    history = evidence.history
    every = history.engine.retention_interval
    policy = "dense" if every is None else f"interval {every}" if every else "latest boundary only"
    computed, later = next(iter(history.requests.values())), history.requests.get(LATER)
    chunks = [step.tokens for step in history.steps if isinstance(step, Schedule)]
    yield (
        f"a request of {in_tokens(len(computed.token_ids))}, {len(computed.prompt)} of them its "
        f"prompt, computed {chunks[0]} at a time, retention {policy}"
    )
    for step in history.steps:
        if isinstance(step, Evict):
            yield f"evicted blocks of group {step.group}: {_listed(step.blocks)}"
    if later is not None:
        both = zip(computed.token_ids, later.prompt, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        yield f"then a request of {in_tokens(len(later.prompt))} that shares the first {shared}"


def figures(evidence: Evidence) -> tuple[Figure, ...]:
    """The pictures of a finding; none where its steps led to one of their own."""
    match evidence:
        case StepsEvidence():
            return ()
        case LookupEvidence(configuration=judged, cached=cached):
            return lookup_figures(judged, cached, evidence.spec_hit, evidence.actual_hit)
        case FineLookupEvidence(configuration=judged, entered=entered):
            hits = evidence.spec_hit, evidence.actual_hit
            return lookup_figures(judged.in_hash_units, (entered,), *hits)
        case MaskEvidence(configuration=judged, registered=registered):
            return (mask_figure(judged, registered),)
        case TierMaskEvidence(configuration=judged, group=number, marked=marked):
            shown = judged.in_blocks if evidence.mask == LOAD else judged
            of = next(each for each in shown.looked_up if number in each.group_ids)
            return (tier_mask_figure(of, evidence.mask, evidence.start, evidence.end, marked),)
        case RetentionEvidence(configuration=judged, registered=registered, decisive_hit=hit):
            return (promise_figure(judged, registered, hit),)
        case SharedPrefixEvidence(configuration=judged):
            return (hits_figure(judged, evidence.spec_hit, evidence.actual_hit),)
        case _:
            raise TypeError(f"no picture of {evidence}")


def _strip(evidence: Evidence) -> str:
    match evidence:
        case PoolEvidence(picture=picture):
            return "\n".join(picture)
        case StepsEvidence():
            return ""
        case _:
            return draw(figures(evidence))


def _listed(blocks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(blocks))) or "none"
