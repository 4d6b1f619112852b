"""The pictures of findings: which blocks the spec asks for, and which the subject has."""

from hitproof.conformance.findings.strips import (
    Figure,
    Row,
    block_role,
    figure,
    hit_row,
    marks,
    roles,
)
from hitproof.conformance.scope.configurations import Configuration, LookedUp
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.mask import in_mask, next_boundary
from hitproof.spec.terms import ceil_div


def lookup_figures(
    judged: Configuration | Layout,
    cached: tuple[frozenset[int], ...],
    spec_hit: int,
    actual_hit: int | None,
) -> tuple[Figure, ...]:
    """A lookup: what was cached of each set of groups, and the two hits, in tokens."""
    figures = []
    for looked_up, held in zip(judged.looked_up, cached, strict=True):
        size = looked_up.group.block_size
        blocks = range(max(judged.bound(looked_up), 1))
        spec_end = spec_hit // size
        actual_end = None if actual_hit is None else actual_hit // size
        rows = (
            Row("cached", marks(blocks, held)),
            hit_row("spec hit", looked_up, blocks, spec_end),
            Row("actual hit", roles(looked_up, blocks, actual_end or 0), actual_end),
        )
        several = len(judged.looked_up) > 1
        caption = f"group {', '.join(map(str, looked_up.group_ids))}" if several else ""
        figures.append(figure(blocks, looked_up.shape.segment, *rows, caption=caption))
    return tuple(figures)


def hits_figure(configuration: Configuration, spec_hit: int, actual_hit: int | None) -> Figure:
    """Two hits, in tokens, when it is not known what is cached."""
    (looked_up,) = configuration.looked_up
    size = configuration.group.block_size
    ends = [spec_hit // size, (actual_hit or 0) // size]
    blocks = range(max(*ends, 1) + 1)
    hits = (
        hit_row(label, looked_up, blocks, end)
        for label, end in zip(("spec hit", "actual hit"), ends, strict=True)
    )
    return figure(blocks, looked_up.shape.segment, *hits)


def mask_figure(configuration: Configuration, registered: frozenset[int]) -> Figure:
    """A mask under dense retention: the role of each reachable block, and what is registered."""
    shape, blocks = configuration.shape, range(configuration.num_blocks)
    needed = {
        block: block_role(configuration, block, next_boundary(shape, block))
        if in_mask(shape, block)
        else "."
        for block in blocks
    }
    rows = Row("reachable", needed), Row("registered", marks(blocks, registered))
    return figure(blocks, shape.segment, *rows)


def promise_figure(
    configuration: Configuration, registered: frozenset[int], promised: int
) -> Figure:
    """A mask under sparse retention: what a promised hit, in tokens, needs of it."""
    blocks = range(max(configuration.num_blocks, 1))
    end = promised // configuration.group.block_size
    needs = Row("hit needs", {b: block_role(configuration, b, end) for b in blocks}, end)
    kept = Row("registered", marks(blocks, registered))
    return figure(blocks, configuration.shape.segment, needs, kept)


def tier_mask_figure(
    looked_up: LookedUp, mask: str, start: int, end: int, marked: frozenset[int]
) -> Figure:
    """A mask of a tier, of one group: what the hits need, and what is marked; sizes in tokens."""
    shape, size = looked_up.shape, looked_up.group.block_size
    last = ceil_div(end, size)
    blocks = range(start // size, max(last, start // size + 1))
    if mask == "load":
        needs = Row("hit needs", {b: block_role(looked_up, b, last) for b in blocks}, last)
        return figure(blocks, shape.segment, needs, Row("loaded", marks(blocks, marked)))
    reached = {
        block: block_role(looked_up, block, next_boundary(shape, block))
        if in_mask(shape, block)
        else "."
        for block in blocks
    }
    label = "stored" if mask == "store" else "asked for"
    rows = Row("reachable", reached), Row(label, marks(blocks, marked))
    return figure(blocks, shape.segment, *rows)
