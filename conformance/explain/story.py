"""Stories: a finding explained step by step, from the JSON that `hitproof check` prints.

What was cached, what each longer hit would have needed, where the spec stops, and what the subject
did. Findings that are not about lookups or masks, and those of reports without evidence, are
explained by their own sentences only.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from hitproof.conformance.explain.explanation import ExplanationError, lacking
from hitproof.conformance.explain.reasons import Reason, in_words, need_reason, run_reasons
from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.evidence import (
    ConnectorEvidence,
    Evidence,
    LookupEvidence,
    MaskEvidence,
    RetentionEvidence,
)
from hitproof.conformance.scope.configurations import Configuration, LookedUp
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.words import first_of, in_tokens
from hitproof.spec.connector import is_fully_loaded, may_diverge
from hitproof.spec.hits import in_required_run, required_run
from hitproof.spec.mask import in_mask, next_boundary


class _Pattern(BaseModel):
    pattern: str = ""


class ToldFinding(BaseModel):
    """What a story needs of a finding; `conformance.findings.findings.Finding.as_json` has more."""

    claim: str
    sentence: str
    divergence: str = Field(alias="class")
    given: list[str]
    spec: str
    actual: str
    signature: _Pattern = _Pattern()
    strip: list[str] = []
    evidence: dict[str, Any] = {}
    trace: Trace | None = None


@dataclass(frozen=True)
class Chapter:
    """One step of a story.

    Attributes:
        title: what the step is about.
        reasons: its sentences.
    """

    title: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Story:
    """The explanation of a finding.

    Attributes:
        finding: the finding.
        chapters: the steps, in order.
    """

    finding: ToldFinding
    chapters: tuple[Chapter, ...]


def choose(text: str | bytes, where: str, number: int | None) -> ToldFinding:
    """The finding in ``text``: one as JSON, or the one of a report's that ``number`` names.

    A report's new findings come first, then its known divergences, counted from 1. Raises
    `ExplanationError`.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExplanationError(f"{where} is not JSON ({error}); pass what check printed") from None
    found = [data]
    if isinstance(data, dict) and "findings" in data:
        lists = [data["findings"], data.get("known_divergences", [])]
        if not all(isinstance(each, list) for each in lists):
            raise ExplanationError(f"{where} is not a report of `hitproof check --format json`")
        found = [finding for each in lists for finding in each]
        if not found:
            raise ExplanationError(
                f"{where} is a report without findings; there is nothing to explain"
            )
    if number is None and len(found) > 1:
        raise ExplanationError(f"{where} has {len(found)} findings; choose one with --number N")
    number = number or 1
    if not 1 <= number <= len(found):
        raise ExplanationError(
            f"{where} has {len(found)} finding{'s' * (len(found) > 1)}; there is no --number "
            f"{number}"
        )
    try:
        return ToldFinding.model_validate(found[number - 1])
    except ValidationError as error:
        raise ExplanationError(
            f"{where} has no finding as `hitproof check --format json` prints it "
            f"({first_of(error, 'the top')})"
        ) from None


def tell(finding: ToldFinding) -> Story:
    """The story of a finding. Raises `ExplanationError` when its evidence cannot be read."""
    try:
        evidence = Evidence.from_json(finding.evidence) if finding.evidence else None
        return Story(finding, tuple(_chapters(finding, evidence)))
    except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ExplanationError(
            f"the finding's evidence cannot be read ({error!r}); pass it as check printed it"
        ) from None


def _chapters(finding: ToldFinding, evidence: Evidence | None) -> Iterator[Chapter]:
    yield _plain("what was given", finding, *finding.given)
    if evidence is not None:
        yield from why(evidence)
    yield _plain("what the spec says", finding, finding.spec)
    pattern = [finding.signature.pattern] if finding.signature.pattern else []
    yield _plain("what vLLM did", finding, finding.actual, *pattern)
    if isinstance(evidence, LookupEvidence):
        yield from consequence(evidence)


def why(evidence: Evidence) -> Iterator[Chapter]:
    """Why the spec says of an evidence what it says; nothing where its steps are the reason."""
    match evidence:
        case LookupEvidence():
            yield from _lookup(evidence)
        case MaskEvidence(block=int(block)) | RetentionEvidence(block=int(block)):
            yield _mask(evidence, block)


def _plain(title: str, finding: ToldFinding, *texts: str) -> Chapter:
    return Chapter(title, tuple(Reason(text, finding.claim) for text in texts))


_MOST_BOUNDARIES = 5


def _lookup(evidence: LookupEvidence) -> Iterator[Chapter]:
    judged, align = evidence.configuration, evidence.configuration.alignment
    claim = evidence.signature.claim
    last = evidence.max_length // align * align
    longer = range(last, evidence.spec_hit, -align)
    what = "local prefix" if isinstance(evidence, ConnectorEvidence) else "hit"
    asked = [
        Reason(_why_not(judged, evidence, length), claim)
        for length in islice(longer, _MOST_BOUNDARIES)
    ]
    if len(longer) > _MOST_BOUNDARIES:
        asked.append(Reason(f"and {len(longer) - _MOST_BOUNDARIES} shorter ones", claim))
    if asked:
        longer_ones = "local prefixes" if isinstance(evidence, ConnectorEvidence) else "hits"
        yield Chapter(f"what longer {longer_ones} would have needed", tuple(asked))
    if evidence.spec_hit:
        reasons = (
            reason
            for looked_up in _needed(evidence)
            for reason in _run(looked_up, evidence.spec_hit)
        )
        yield Chapter(
            f"why a {what} of {in_tokens(evidence.spec_hit)} is valid: all of this is cached",
            tuple(reasons),
        )


def _run(looked_up: LookedUp, length: int) -> Iterator[Reason]:
    end = length // looked_up.group.block_size
    yield from run_reasons(looked_up, end)
    yield need_reason(looked_up, end)


def _needed(evidence: LookupEvidence) -> tuple[LookedUp, ...]:
    """The groups that need cached blocks; for a local prefix, those not fully loaded."""
    judged = evidence.configuration
    if not isinstance(evidence, ConnectorEvidence) or not may_diverge(judged.shared):
        return tuple(judged.looked_up)
    return tuple(each for each in judged.looked_up if not is_fully_loaded(each.group.kind))


def _why_not(judged: Configuration | Layout, evidence: LookupEvidence, length: int) -> str:
    miss = lacking(_needed(evidence), length, _held(judged, evidence))
    if miss is None:
        return (
            f"{in_tokens(length)}: every required block is cached, but the lookup may not peek "
            "that far (lookahead horizon)"
        )
    whose = "" if len(judged.looked_up) == 1 else f" of group {miss.group_ids[0]}"
    run = next(
        required_run(each.shape, length // each.group.block_size)
        for each in judged.looked_up
        if each.group_ids == miss.group_ids
    )
    return f"{in_tokens(length)}: needs {in_words(run)}{whose}; block {miss.block} is not cached"


def _held(judged: Configuration | Layout, evidence: LookupEvidence) -> Any:
    cached = dict(zip((each.group_ids for each in judged.looked_up), evidence.cached, strict=True))
    return lambda looked_up: cached[looked_up.group_ids]


def consequence(evidence: LookupEvidence) -> Iterator[Chapter]:
    """The consequence of the hit that was served, if it is a boundary of another length."""
    judged, hit, due = evidence.configuration, evidence.actual_hit, evidence.spec_hit
    if hit is None or hit == due or hit % judged.alignment:
        return
    if hit < due:
        are = "is" if due - hit == 1 else "are"
        again = "loaded" if isinstance(evidence, ConnectorEvidence) else "computed"
        text = f"{in_tokens(due - hit)} {are} {again} again, though all that they need is cached"
    else:
        miss = lacking(_needed(evidence), hit, _held(judged, evidence))
        if miss is None:
            return
        text = (
            f"a hit of {in_tokens(hit)} lacks block {miss.block}: what the next token reads, or "
            "what confirms it, is not cached"
        )
    yield Chapter("what that means", (Reason(text, evidence.signature.claim),))


def _mask(evidence: MaskEvidence | RetentionEvidence, block: int) -> Chapter:
    (looked_up,) = evidence.configuration.looked_up
    shape, size = looked_up.shape, looked_up.group.block_size
    claim = evidence.signature.claim
    texts = [f"registered: {in_words(evidence.registered)}"]
    if isinstance(evidence, MaskEvidence):
        end = next_boundary(shape, block)
        which = "the first whose required run ends after it"
        conclusion = (
            f"so that hit needs block {block}"
            if in_mask(shape, block)
            else f"so that hit does not need block {block}, nor do later ones, whose runs start "
            "no earlier"
        )
    else:
        end = evidence.decisive_hit // size
        promised = "does not promise" if block in evidence.registered else "promises"
        which = f"which retention {promised} to keep"
        needs = "needs" if in_required_run(shape, block, end) else "does not need"
        conclusion = f"so that hit {needs} block {block}"
    if end < 1:
        return Chapter(f"which hits need block {block}", (Reason(texts[0], claim),))
    texts.append(
        f"the hit that decides on block {block} is that of {in_tokens(end * size)}, {which}"
    )
    reasons = [Reason(text, claim) for text in texts]
    return Chapter(
        f"which hits need block {block}",
        (*reasons, *_run(looked_up, end * size), Reason(conclusion, claim)),
    )
