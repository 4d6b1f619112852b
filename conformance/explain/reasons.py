"""The sentences of explanations: what the spec says, with the arithmetic spelled out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import required_run, run_start
from hitproof.spec.retention import SPARSE_KINDS

LONGEST_OF_ONE = "lookup_returns_longest_valid_hit"
"""The claim on the longest hit where there is one group."""


@dataclass(frozen=True)
class Reason:
    """One sentence of an explanation.

    Attributes:
        text: the sentence.
        claim: the claim of `spec.claims` that it is based on.
    """

    text: str
    claim: str


def in_ranges(blocks: Iterable[int]) -> list[tuple[int, int]]:
    """The blocks as first and last of each unbroken run."""
    runs: list[tuple[int, int]] = []
    for block in sorted(blocks):
        if runs and runs[-1][1] == block - 1:
            runs[-1] = runs[-1][0], block
        else:
            runs.append((block, block))
    return runs


_MOST_RUNS = 6


def in_words(blocks: Iterable[int]) -> str:
    """The blocks in words; of many runs the middle is elided, and their number given."""
    runs = in_ranges(blocks)
    words = [str(a) if a == z else f"{a} to {z}" for a, z in runs]
    if len(words) > _MOST_RUNS:
        left_out = len(words) - _MOST_RUNS
        words[_MOST_RUNS - 1 : -1] = [f"{left_out} more such runs"]
    if not words:
        return "no block"
    several = len(runs) > 1 or runs[0][0] != runs[0][1]
    return f"block{'s' if several else ''} {', '.join(words)}"


def alignment_reason(groups: Sequence[Group], alignment: int) -> Reason:
    """Where hits may end, and why."""
    sizes = sorted({group.block_size for group in groups if group.prefix_cacheable}, reverse=True)
    return Reason(
        f"alignment = lcm({', '.join(map(str, sizes))}) = {alignment} tokens: a hit ends on a "
        "block edge of every group",
        "common_hit_is_valid_for_every_group" if len(groups) > 1 else LONGEST_OF_ONE,
    )


def run_reasons(looked_up: LookedUp, end: int) -> Iterator[Reason]:
    """What attention reads before a hit that ends at ``end`` (in blocks), with the arithmetic."""
    group, shape, size = looked_up.group, looked_up.shape, looked_up.group.block_size
    start = max(run_start(shape, end), 0)
    edge = f"the hit ends after {end * size} / {size} = {blocks_in_words(end)}"
    match group.kind:
        case GroupKind.FULL_ATTENTION:
            text = f"{edge}; full attention reads all of them: {in_words(range(start, end))}"
        case GroupKind.MAMBA:
            text = (
                f"{edge}; Mamba continues from the one state that ends there: {in_words([start])}"
            )
        case GroupKind.CHUNKED_LOCAL:
            text = (
                f"{edge}; the next token sees the tokens of its own chunk of {group.chunk}, which "
                f"starts in block {start}: {in_words(range(start, end))}"
            )
        case GroupKind.SLIDING_WINDOW:
            assert group.window is not None
            seen = group.window - 1
            text = (
                f"tail = ceil((window - 1) / block size) = ceil(({group.window} - 1) / {size}) = "
                f"ceil({seen} / {size}) = {blocks_in_words(shape.tail)}: the next token "
                f"sees the {seen} tokens before it; {edge}, and the tail before it is "
                f"{in_words(range(start, end))}"
            )
            if end < shape.tail:
                text += ", as the prompt starts there"
    yield Reason(text, "hit_has_every_block_attention_reads")


def need_reason(looked_up: LookedUp, end: int) -> Reason:
    """Every block that a hit needs from a group."""
    shape, run = looked_up.shape, required_run(looked_up.shape, end)
    before = len(run) - shape.lookahead
    if looked_up.group.kind is GroupKind.MAMBA:
        text = (
            f"need = {blocks_in_words(1)}: {in_words(run)}; a state is never dropped, EAGLE or not"
        )
    else:
        text = f"need = {before} + {shape.lookahead} = {blocks_in_words(len(run))}: {in_words(run)}"
    claim = "eagle_needs_tail_plus_one"
    return Reason(text, claim if shape.lookahead else "hit_has_every_block_attention_reads")


def blocks_in_words(count: int) -> str:
    """A number of blocks."""
    return f"{count} block{'' if count == 1 else 's'}"


def registered_reason(
    layout: Layout,
    looked_up: LookedUp,
    registered: Iterable[int],
    interval: int | None,
    resend: int,
    extension: int,
) -> Reason:
    """What the producer registers of a group; intervals and hits in tokens."""
    count = layout.bound(looked_up)
    what = (
        f"registered of the prompt's {count} full block{'' if count == 1 else 's'}: "
        f"{in_words(registered)}, those in the required run of"
    )
    if interval is None or looked_up.group.kind not in SPARSE_KINDS:
        return Reason(f"{what} some boundary", "mask_keeps_every_reachable_block")
    siblings = f", and of every {interval} tokens" if interval else ""
    return Reason(
        f"{what} the resend's hit of {resend} tokens, of the extension's of {extension}{siblings}",
        "retention_keeps_only_promised_blocks",
    )


def lookahead_reason(layout: Layout, looked_up: LookedUp) -> Reason:
    """Whether a group drops a lookahead block, and why."""
    groups = layout.groups
    flagged = [number for number, group in enumerate(groups) if group.eagle]
    living = f"draft layers are in group{'s' * (len(flagged) > 1)} " + " and ".join(
        map(str, flagged)
    )
    if not layout.use_eagle:
        why = "EAGLE is off"
    elif not flagged:
        why = (
            "EAGLE is on and no group is flagged as holding the draft layers, so every group drops"
        )
    elif looked_up.shape.lookahead:
        why = f"EAGLE is on and {living}"
        if not set(looked_up.group_ids) <= set(flagged):
            why += ", looked up together with its equals"
    else:
        why = f"EAGLE is on, but {living}"
    dropped = (
        "a draft layer's entry of the hit's last token depends on the token after it, which "
        "only the hash of the next block covers; "
        if looked_up.shape.lookahead
        else ""
    )
    return Reason(
        f"lookahead = {blocks_in_words(looked_up.shape.lookahead)}: {dropped}{why}",
        "eagle_needs_tail_plus_one",
    )
