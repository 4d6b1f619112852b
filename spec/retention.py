"""Retention: which hits the producer promises to keep possible, and the blocks that this takes.

Dense retention keeps every hit possible (`spec.mask`). Sparse retention keeps
a few boundaries and drops the rest of a sliding window's blocks. Its contract:

- A *resend* of the prompt and an *extension* of it hit as much as under dense retention.
- A *follow-up turn* sends the prompt, its output and more. It hits at least as much as an
  extension.
- With an interval of R tokens, a *sibling* that shares the first p tokens hits at least as much
  as under dense retention, rounded down to a multiple of R.
- A prefix that two requests were seen to share is treated like a prompt of its own, so that the
  next sibling hits it. Its end is the *junction*.

What else may be kept: blocks that a follow-up turn hits because some of the output is cached, too
(`serves_follow_ups`), and those of the hit that is left where a promised one is lost
(`hit_instead`). Any other block is waste: it serves no promised hit, even where a request that
shares a shorter prefix happens to hit it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hitproof.spec.groups import BlockGeometry, ConfigurationError, GroupKind
from hitproof.spec.hits import has_required_run, in_required_run, run_end, run_start
from hitproof.spec.mask import in_mask, next_boundary
from hitproof.spec.terms import (
    Blocks,
    Formula,
    Tokens,
    by_cases,
    for_all,
    greatest,
    is_multiple,
    max,
    min,
)

SPARSE_KINDS = (GroupKind.SLIDING_WINDOW, GroupKind.MAMBA)
"""The kinds that sparse retention thins out: those whose required runs are short."""


def falls_on_boundaries(interval: Tokens, alignment_tokens: Tokens) -> Formula:
    """Whether an engine can have a retention interval of that many tokens."""
    return (0 <= interval) & is_multiple(interval, alignment_tokens)


def check_interval(interval: int | None, alignment_tokens: int) -> None:
    """Reject a retention interval that does not fall on boundaries.

    None means dense retention, 0 keeps the latest replayable boundary only. Raises
    `ConfigurationError`.
    """
    if interval is not None and not falls_on_boundaries(interval, alignment_tokens):
        raise ConfigurationError(
            f"a retention interval must be a multiple of the alignment ({alignment_tokens} "
            f"{'token' if alignment_tokens == 1 else 'tokens'}), 0 for the latest boundary only, "
            f"or none for dense retention; {interval} is none of these"
        )


def replay_boundary(
    cap: Tokens, horizon_tokens: Tokens, lookahead_tokens: Tokens, alignment_tokens: Tokens
) -> Tokens:
    """The longest hit of a request whose blocks below the horizon are all cached, in tokens.

    ``lookahead_tokens`` is how far the lookahead blocks of all groups reach past the hit, 0 without
    EAGLE: a hit of L tokens needs L <= cap and L + lookahead <= horizon. A resend of a
    prompt of n tokens has the cap n - 1 and the horizon of its policy. An extension of the
    prompt finds n tokens cached, so its cap and its horizon are n.
    """
    limit = min(cap, horizon_tokens - lookahead_tokens)
    return max(limit // alignment_tokens * alignment_tokens, 0)


def resend_cap(prompt: Tokens, hash_lookahead_tokens: Tokens = 0) -> Tokens:
    """The cap of a resend of a prompt, in tokens.

    Its last token is recomputed, and a hash that covers tokens past its block is only known once
    these are.
    """
    return prompt - max(1, hash_lookahead_tokens)


def junction_boundary(shared: Tokens, lookahead_tokens: Tokens, alignment_tokens: Tokens) -> Tokens:
    """The longest hit of a sibling that shares ``shared`` tokens with what is cached, in tokens.

    When two requests share a prefix, more may follow. The prefix is then treated as a prompt of
    its own, and a sibling as an extension of it: it finds ``shared`` tokens cached, including
    the lookahead block.
    """
    return replay_boundary(shared, shared, lookahead_tokens, alignment_tokens)


def sibling_boundary(group: BlockGeometry, block: Blocks, interval: Blocks) -> Blocks:
    """The first sibling boundary whose required run ends after ``block`` (all in blocks).

    ``interval`` is the retention interval, a positive multiple of the segment.
    """
    return next_boundary(replace(group, segment=interval), block)


@by_cases("kind", GroupKind)
def in_retained_mask(
    group: BlockGeometry, block: Blocks, replays: Sequence[Blocks], interval: Blocks | None = None
) -> Formula:
    """Whether the producer registers ``block`` under sparse retention.

    ``replays`` are the boundaries promised to resends, extensions and junctions; ``interval`` is
    the distance between promised sibling boundaries, or None; all in blocks. A block is kept
    when it is in the required run of a promised boundary; boundary 0 means no hit. Kinds that
    are not in `SPARSE_KINDS` keep what dense retention keeps.
    """
    if group.kind not in SPARSE_KINDS:
        return in_mask(group, block)
    first, *others = replays
    kept = _is_promised(group, block, first)
    for boundary in others:
        kept = kept | _is_promised(group, block, boundary)
    if interval is None:
        return kept
    sibling = sibling_boundary(group, block, interval)
    return kept | _is_promised(group, block, sibling)


def serves_follow_ups(
    group: BlockGeometry,
    block: Blocks,
    boundary: Blocks,
    extension: Blocks,
    computed: Blocks,
    kept: Callable[[Blocks], Formula],
) -> Formula:
    """Whether a follow-up turn can hit ``boundary``, and needs ``block`` for that (all in blocks).

    How far it hits depends on where the output ends, so each boundary past ``extension`` counts.
    Its run has to be there as a whole: of the ``computed`` blocks those that are not ``kept`` never
    will be, while those after them may still be registered as the output fills them.
    """
    start, end = max(run_start(group, boundary), 0), min(run_end(group, boundary), computed)
    rest = for_all(start, end, kept)
    return (extension < boundary) & in_required_run(group, block, boundary) & rest


def hit_instead(
    group: BlockGeometry, promised: Blocks, kept: Callable[[Blocks], Formula]
) -> Blocks:
    """The longest boundary up to ``promised`` whose run is kept (all in blocks); 0 for none.

    Where that is less than ``promised``, a hit is lost, but what is kept for the one that is
    left is no waste.
    """
    return greatest(group.segment, promised, lambda end: has_required_run(group, end, kept))


def _is_promised(group: BlockGeometry, block: Blocks, boundary: Blocks) -> Formula:
    return (1 <= boundary) & in_required_run(group, block, boundary)
