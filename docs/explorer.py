"""The explorer: what `hitproof explain` says, of groups, caches and masks that are typed in.

`answer` is the whole page but for the drawing. It takes the choices as text, by name, and gives
what to show as plain data. The page runs it as JavaScript (`docs.translation`), so that nothing of
the spec is written a second time.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from docs.choices import (
    Choices,
    cached_of,
    controls,
    interval_of,
    layout_of,
    mask_of,
    one_of,
    optional,
)
from docs.translation.translator import translated
from hitproof.conformance.checks.retention import can_be_used, promised_to
from hitproof.conformance.explain.explanation import Explanation, Question
from hitproof.conformance.explain.reasons import LONGEST_OF_ONE, Reason, in_words
from hitproof.conformance.findings.strips import marks
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import CLAIMS
from hitproof.spec.groups import ConfigurationError, whole_blocks
from hitproof.spec.hits import has_required_run, required_run, run_end, within_reach
from hitproof.spec.mask import next_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import SPARSE_KINDS, in_retained_mask

_MOST_REASONS = 12

_CLAIMS: dict[str, list[Any]] = {
    claim.name: [number, claim.sentence] for number, claim in enumerate(CLAIMS.values(), 1)
}


def _quoted(clause: Callable[..., Any]) -> str:
    """What a clause of the spec says of itself, in one sentence."""
    first = (inspect.getdoc(clause) or "").partition("\n\n")[0]
    return " ".join(first.replace("``", "").split())


_CLAUSES: dict[str, str] = {
    "within_reach": _quoted(within_reach),
    "has_required_run": _quoted(has_required_run),
}


def answer(choices: Choices) -> dict[str, Any]:
    """What to show for the choices; one sentence, under ``refused``, where they have no answer."""
    try:
        return _answered(choices)
    except ConfigurationError as error:
        return {"refused": str(error)}


# --- what it means


def _answered(choices: Choices) -> dict[str, Any]:
    layout = layout_of(choices)
    horizon = LookaheadHorizon(one_of(choices, "horizon", "horizon"))
    full = [whole_blocks(layout.num_tokens, group.block_size) for group in layout.groups]
    cache = tuple(cached_of(choices, number, count) for number, count in enumerate(full))
    masks = [mask_of(choices, number, count) for number, count in enumerate(full)]
    retention, hit = interval_of(choices), optional(choices, "hit")
    explanation = Explanation(Question(layout, horizon, retention, hit, cache))
    explanation.check()
    longest = explanation.longest
    assert longest is not None
    return {
        "longest": longest,
        "length": explanation.length,
        "served": explanation.is_served,
        "resend": explanation.resend,
        "extension": explanation.extension,
        "alignment": layout.alignment,
        "reasons": [_reason(reason) for reason in explanation.reasons],
        "longer": list(_longer(explanation, longest)),
        "groups": [
            _drawn(explanation, at, [masks[member] for member in looked_up.group_ids])
            for at, looked_up in enumerate(layout.looked_up)
        ],
    }


def _reason(reason: Reason) -> list[Any]:
    """The sentence, and the claim that it is based on: number, name and sentence."""
    number, sentence = _CLAIMS[reason.claim]
    return [reason.text, number, reason.claim, sentence]


def _drawn(explanation: Explanation, at: int, masks: list[frozenset[int] | None]) -> dict[str, Any]:
    """The picture of one set of groups, what it needs, and what is wrong with its masks."""
    explained = explanation.groups[at]
    looked_up, group = explained.looked_up, explained.looked_up.group
    blocks = range(explained.num_blocks)
    rows: list[list[Any]] = []
    if explained.num_blocks:
        for row in explained.strip(blocks).rows:
            rows.append([row.label, [row.cells.get(block, ".") for block in blocks], row.end])
    judged: list[list[Any]] = []
    for member, mask in zip(looked_up.group_ids, masks, strict=True):
        if mask is not None:
            label = f"mask {member}"
            rows.append([label, [marks(blocks, mask)[block] for block in blocks], None])
            judged += [_reason(each) for each in _verdict(explanation, looked_up, member, mask)]
    numbers = " and ".join(map(str, looked_up.group_ids))
    return {
        "title": f"Group{'s' * (len(looked_up.group_ids) > 1)} {numbers}: "
        f"{group.kind.replace('_', ' ')}, block size {group.block_size}",
        "segment": looked_up.shape.segment,
        "rows": rows,
        "reasons": [_reason(reason) for reason in explained.reasons],
        "judged": judged,
    }


def _longer(explanation: Explanation, longest: int) -> Iterator[list[Any]]:
    """Why each longer hit is not valid: text, claim, and the clause that does not hold, quoted."""
    layout = explanation.layout
    lengths = range(longest + layout.alignment, layout.num_tokens + 1, layout.alignment)
    for length in lengths[:_MOST_REASONS]:
        for looked_up in layout.looked_up:
            found = _why_not(explanation, looked_up, length)
            if found is not None:
                clause, reason = found
                yield [*_reason(reason), clause, _CLAUSES[clause]]
                break
    if len(lengths) > _MOST_REASONS:
        left = len(lengths) - _MOST_REASONS
        yield [f"and {left} more, up to {in_tokens(lengths[-1])}", 0, "", "", "", ""]


def _why_not(
    explanation: Explanation, looked_up: LookedUp, length: int
) -> tuple[str, Reason] | None:
    """The clause that keeps one set of groups from serving a hit, and why it does not hold."""
    size, shape = looked_up.group.block_size, looked_up.shape
    cap, horizon = explanation.reach
    end = whole_blocks(length, size)
    limit, peek = whole_blocks(cap, size), whole_blocks(horizon, size)
    said, whose = in_tokens(length), f"group {looked_up.group_ids[0]}"
    if not within_reach(shape, end, limit, run_end(shape, end)):
        text = f"{said}: past the cap of {in_tokens(cap)}, since the last token is recomputed"
        return "within_reach", Reason(text, LONGEST_OF_ONE)
    if not within_reach(shape, end, limit, peek):
        text = (
            f"{said}: the lookahead of {whose} ends at {in_tokens(run_end(shape, end) * size)}, "
            f"past the lookahead horizon of {in_tokens(horizon)}"
        )
        return "within_reach", Reason(text, LONGEST_OF_ONE)
    held = [explanation.cached[member] for member in looked_up.group_ids]
    run = required_run(shape, end)
    absent = [block for block in run if not all(block in each for each in held)]
    if not absent:
        return None
    is_or_are = "are" if len(absent) > 1 else "is"
    text = (
        f"{said}: {whose} needs {in_words(run)}, of which {in_words(absent)} {is_or_are} not cached"
    )
    late = "eagle_needs_tail_plus_one"
    claim = "hit_has_every_block_attention_reads" if absent[0] < end else late
    return "has_required_run", Reason(text, claim)


def _verdict(
    explanation: Explanation, looked_up: LookedUp, member: int, mask: frozenset[int]
) -> Iterator[Reason]:
    """What a producer's mask lacks, and what it keeps that no aligned hit can use."""
    size, shape = looked_up.group.block_size, looked_up.shape
    interval = explanation.question.retention
    thinned = interval is not None and shape.kind in SPARSE_KINDS
    lacks, spare = "mask_keeps_every_reachable_block", "mask_keeps_only_reachable_blocks"
    if thinned:
        lacks = "retention_keeps_resends_and_extensions"
        spare = "retention_keeps_only_promised_blocks"
    due = explanation.registered(looked_up)
    missing: dict[int, list[int]] = {}
    waste: list[int] = []
    for block in range(explanation.layout.bound(looked_up)):
        if thinned:
            decisive, usable = _retained(explanation, looked_up, block, mask)
        else:
            usable = block in due
            decisive = next_boundary(shape, block) if usable else 0
        if decisive and block not in mask:
            missing.setdefault(decisive, []).append(block)
        if block in mask and not usable:
            waste.append(block)
    for decisive, blocks in missing.items():
        yield Reason(
            f"missing from mask {member}: {in_words(blocks)}, needed by the hit of "
            f"{in_tokens(decisive * size)}",
            lacks,
        )
    if waste:
        yield Reason(
            f"waste in mask {member}: {in_words(waste)}, which no aligned hit can use", spare
        )
    if not missing and not waste:
        yield Reason(
            f"mask {member} has no waste, and nothing is missing: {in_words(mask)}",
            lacks,
        )


def _retained(
    explanation: Explanation, looked_up: LookedUp, block: int, mask: frozenset[int]
) -> tuple[int, bool]:
    """The promised boundary that needs a block, else 0; and whether any hit can use the block."""
    size, shape = looked_up.group.block_size, looked_up.shape
    resend, extension = explanation.resend // size, explanation.extension // size
    every = (explanation.question.retention or 0) // size or None
    promised, sibling = promised_to(shape, block, resend, extension, every)
    decisive = [end for end in promised.values() if in_retained_mask(shape, block, [end])]
    usable = in_retained_mask(shape, block, [sibling]) or can_be_used(
        shape,
        block,
        extension,
        whole_blocks(explanation.layout.num_tokens, size),
        [*promised.values(), sibling],
        lambda each: each in mask,
    )
    return (decisive[0] if decisive else 0), bool(decisive) or usable


# --- the page


@cache
def script() -> str:
    """The translation as a script, which a page that is opened from disk can load."""
    return translated({"answer": answer, "controls": controls})


def form() -> str:
    """Where the page puts its controls and its pictures."""
    return (
        '<form id="explorer-choices" class="choices" autocomplete="off"></form>'
        '<p id="explorer-said" role="status"></p>'
        '<div id="explorer-answer"></div>'
        "<noscript><p>The explorer needs JavaScript.</p></noscript>"
        '<script src="assets/explorer-spec.js"></script><script src="assets/explorer.js"></script>'
    )
