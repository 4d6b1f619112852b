"""A picture for each claim: a small case, computed by the spec, drawn as strips."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from docs.drawing import WIDE, Picture, caption, drawn, explained, strips
from docs.pool_pictures import admission, eviction_order, of_pool
from hitproof.conformance.findings.figures import mask_figure, tier_mask_figure
from hitproof.conformance.findings.strips import Figure, Row, figure, hit_row, marks
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.connector import longest_local_prefix
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import longest_valid_hit, required_run
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.fine import block_of, is_held, longest_fine_hit
from hitproof.spec.retention import in_retained_mask, junction_boundary, sibling_boundary
from hitproof.spec.sharing import covered_tokens, is_determined
from hitproof.spec.tiers import is_loaded, is_stored, longest_tier_hit

FULL = Group(GroupKind.FULL_ATTENTION, 8)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=6)
STATE = Group(GroupKind.MAMBA, 8)


class NoPicture(LookupError):
    """A claim without a picture; the message names it."""


def picture(claim: str) -> Picture:
    """The picture of a claim. Raises `NoPicture`."""
    if claim not in PICTURES:
        raise NoPicture(f"the claim {claim} has no picture; draw one in docs/pictures.py")
    return PICTURES[claim]()


def _blocks_attention_reads() -> Picture:
    chunk = Group(GroupKind.CHUNKED_LOCAL, 8, chunk=16)
    windows = strips(explained((FULL, WINDOW, STATE), 25, hit=24))
    chunks = strips(explained((FULL, chunk), 25, hit=24))[1:]
    return Picture(
        "A hit of 24 tokens: full attention reads every block before it, a window its tail, a "
        "chunk the blocks of its own chunk, Mamba one state.",
        (*windows, *chunks),
    )


def _tail_plus_one() -> Picture:
    without, with_it = (
        strips(explained((FULL, WINDOW), 33, eagle, hit=24))[1] for eagle in (False, True)
    )
    return Picture(
        "The same hit of 24 tokens without EAGLE and with it: the tail, and the block just past "
        "the hit.",
        (
            replace(without, caption=f"{without.caption}, EAGLE off"),
            replace(with_it, caption=f"{with_it.caption}, EAGLE on"),
        ),
    )


def _longest_of_one() -> Picture:
    cached = frozenset(range(16)) - {10}
    found = explained((FULL, WINDOW), 33, cache=(None, cached))
    return Picture(
        "Block 10 is not cached. The hit of 24 tokens would need it, a longer one does not: the "
        f"longest is of {found.longest} tokens.",
        strips(found)[1:],
    )


def _valid_for_all() -> Picture:
    cached = frozenset({0, 1, 2, 3, 5, 6, 7})
    found = explained((FULL, WINDOW), 33, cache=(frozenset({0, 1, 2}), cached))
    return Picture(
        "Full attention alone could serve 24 tokens, the window does not hold what that hit "
        f"needs. At {found.longest} tokens both have their whole runs.",
        strips(found),
    )


def _longest_of_all() -> Picture:
    found = explained((FULL, WINDOW, STATE), 33, True, cache=(None, None, None))
    return Picture(
        "With EAGLE and a prompt of 33 tokens, all that the producer registers being cached: "
        f"{found.longest} tokens are the longest hit that is valid for every group at once.",
        strips(found),
    )


def _local_prefix(states: set[int]) -> tuple[int, int, tuple[Figure, ...]]:
    """Hit and local prefix in tokens, three of four full-attention blocks and some states cached.

    The state is marked that is needed should nothing be loaded.
    """
    layout = Layout((FULL, STATE), 33, False, 8)
    cached: tuple[set[int], ...] = ({0, 1, 2}, states)
    longest = (
        find(layout.shared, layout.alignment, 32, 33, lambda group, block: block in cached[group])
        for find in (longest_valid_hit, longest_local_prefix)
    )
    hit, prefix = longest
    figures = []
    for looked_up, held in zip(layout.looked_up, cached, strict=True):
        blocks, size = range(4), looked_up.group.block_size
        ends = (("hit", hit // size), ("local prefix", prefix // size))
        rows = (hit_row(label, looked_up, blocks, end) for label, end in ends)
        figures.append(drawn(looked_up, blocks, Row("cached", marks(blocks, held)), *rows))
    return hit, prefix, tuple(figures)


def _lacks_states_only() -> Picture:
    hit, prefix, figures = _local_prefix({0})
    return Picture(
        f"All groups share a hit of {hit} tokens, full attention holds {prefix}. A connector that "
        f"loads what follows {prefix} tokens loads a later state, too. Should it load nothing, the "
        f"state at {prefix} would be read, which is not cached: so the local prefix is flagged.",
        figures,
    )


def _longest_local_prefix() -> Picture:
    hit, prefix, figures = _local_prefix({3})
    return Picture(
        "Full attention lost its last block, and the one state that is cached is past what is "
        f"left. No hit but {hit} tokens is shared, and still the local prefix is of {prefix} "
        "tokens.",
        figures,
    )


def _mask(said: str) -> Picture:
    judged = single_group(GroupKind.SLIDING_WINDOW, 2, 8, 6, True, WIDE)
    kept = frozenset(block for block in range(judged.num_blocks) if in_mask(judged.shape, block))
    return Picture(said, (mask_figure(judged, kept),))


def _stored(said: str) -> Picture:
    judged = single_group(GroupKind.SLIDING_WINDOW, 2, 8, 6, True, WIDE)
    (looked_up,) = judged.looked_up
    figures = []
    for start, end in ((0, 16), (16, 32)):
        blocks = range(start // 2, end // 2)
        kept = {b for b in blocks if is_stored(looked_up.shape, b, blocks.start, blocks.stop)}
        figure = tier_mask_figure(looked_up, "store", start, end, frozenset(kept))
        figures.append(replace(figure, caption=f"tokens {start} to {end}"))
    return Picture(said, tuple(figures))


def _tier_hit() -> Picture:
    layout = Layout((FULL, WINDOW), 33, False, 2)
    stored, local = ({1, 2}, {9, 10, 11}), ({0}, set[int]())
    hit = longest_tier_hit(
        layout.shared,
        layout.alignment,
        32,
        33,
        lambda group, block: block in stored[group],
        lambda group, block: block in local[group],
    )
    figures = []
    for looked_up, held, here in zip(layout.looked_up, stored, local, strict=True):
        size = looked_up.group.block_size
        blocks, end = range(32 // size), hit // size
        had = Row("stored", marks(blocks, held)), Row("local", marks(blocks, here))
        figures.append(drawn(looked_up, blocks, *had, hit_row("hit", looked_up, blocks, end)))
    return Picture(
        f"One block is local, the others are stored: together they serve {hit} tokens.",
        tuple(figures),
    )


def _loaded() -> Picture:
    layout = Layout((FULL, replace(WINDOW, eagle=True)), 33, True, 2)
    local = ({0}, set[int]())
    figures = []
    for looked_up, here in zip(layout.looked_up, local, strict=True):
        size = looked_up.group.block_size
        end = 24 // size
        loaded = {
            block
            for block in range(end + 1)
            if is_loaded(looked_up.shape, block, end, here.__contains__)
        }
        figure = tier_mask_figure(looked_up, "load", 0, 24 + size, frozenset(loaded))
        strip = figure.strip
        rows = (
            strip.rows[0],
            Row("local", marks(range(end + 1), here)),
            hit_row("hit needs", looked_up, range(end + 1), end),
            strip.rows[2],
        )
        figures.append(Figure(caption(looked_up), replace(strip, rows=rows)))
    return Picture(
        "A hit of 24 tokens, EAGLE in the window, the first block of full attention local: the "
        "rest of what is read is loaded, and not the lookahead block, which was matched only.",
        tuple(figures),
    )


def _retained(**rows: int) -> tuple[Figure, ...]:
    """What promised boundaries, in tokens, need of a window; what retention keeps of it."""
    judged = single_group(GroupKind.SLIDING_WINDOW, 2, 4, 6, False, WIDE)
    (looked_up,) = judged.looked_up
    blocks = range(judged.num_blocks)
    ends = {label.replace("_", " "): tokens // 2 for label, tokens in rows.items()}
    kept = {b for b in blocks if in_retained_mask(looked_up.shape, b, list(ends.values()))}
    needs = (hit_row(name, looked_up, blocks, end) for name, end in ends.items())
    registered = Row("registered", marks(blocks, kept))
    return (figure(blocks, looked_up.shape.segment, *needs, registered),)


def _resends() -> Picture:
    promised = explained((FULL, WINDOW), 32)
    return Picture(
        f"A prompt of 32 tokens, the latest boundary only: its resend hits {promised.resend} "
        f"tokens, an extension of it {promised.extension}. What these need is registered.",
        _retained(resend=promised.resend, extension=promised.extension),
    )


def _siblings() -> Picture:
    judged = single_group(GroupKind.SLIDING_WINDOW, 2, 4, 6, False, WIDE)
    (looked_up,) = judged.looked_up
    shape, interval = looked_up.shape, 8
    blocks = range(judged.num_blocks)
    kept = {b for b in blocks if in_retained_mask(shape, b, [0], interval)}
    edges = sorted({int(sibling_boundary(shape, block, interval)) for block in blocks})
    needs = (hit_row(f"hit of {2 * end}", looked_up, blocks, end) for end in edges)
    registered = Row("registered", marks(blocks, kept))
    return Picture(
        "An interval of 16 tokens: a sibling is served any multiple of 16, and what those hits "
        "need is registered; of the boundary at 8 and that at 24 it is not.",
        (figure(blocks, shape.segment, *needs, registered),),
    )


def _junctions() -> Picture:
    shared = int(junction_boundary(20, 0, 8))
    return Picture(
        f"Two prompts have shared 20 tokens. A third one that shares them hits {shared}, which is "
        "kept beside what the prompt's own end needs.",
        _retained(junction=shared, extension=32),
    )


def _only_promised() -> Picture:
    promised = explained((FULL, WINDOW), 29)
    return Picture(
        f"A prompt of 29 tokens: its resend hits {promised.resend} tokens, an extension of it "
        f"{promised.extension}, and no other block is kept.",
        _retained(resend=promised.resend, extension=promised.extension),
    )


def _agreement(said: str, replays: tuple[int, ...], interval: int | None) -> Picture:
    """All of a prompt of 32 tokens is computed; the run of a hit of 32 is evicted, then."""
    judged = single_group(GroupKind.SLIDING_WINDOW, 2, 4, 6, False, WIDE)
    (looked_up,) = judged.looked_up
    shape, blocks = looked_up.shape, range(16)
    ends = [end // 2 for end in replays]

    def keeps(block: int) -> bool:
        if interval is None:
            return bool(in_mask(shape, block))
        return bool(in_retained_mask(shape, block, ends, interval // 2 or None))

    kept = set(filter(keeps, blocks))
    gone = set(required_run(shape, 16))

    def hit(left: set[int]) -> int:
        return longest_valid_hit([looked_up.group], 8, 32, 32, lambda _, block: block in left)

    hits = hit(set(blocks) - gone), hit(kept - gone)
    rows = (
        Row("registered", marks(blocks, kept)),
        Row("evicted", marks(blocks, gone)),
        hit_row("dense hit", looked_up, blocks, hits[0] // 2),
        hit_row("hit", looked_up, blocks, hits[1] // 2),
    )
    return Picture(said.format(*hits), (figure(blocks, shape.segment, *rows),))


def _fine() -> Picture:
    unit, tokens = 2, 24
    full, state = Group(GroupKind.FULL_ATTENTION, 8), Group(GroupKind.MAMBA, 8)
    entered = {0: {3, 7, 9}, 1: {3, 8, 9}}
    found = longest_fine_hit((full, state), unit, tokens, tokens, lambda g, i: i in entered[g])
    units = range(tokens // unit)
    figures = []
    for index, group in enumerate((full, state)):
        has = entered[index].__contains__
        size = group.block_size // unit
        held = {i for i in units if is_held(group.kind, i, size, tokens // unit, has)}
        rows = (
            Row("of block", {i: str(block_of(i, size)) for i in units}),
            Row("entered at", marks(units, entered[index])),
            Row("backed", marks(units, held), found // unit),
        )
        said = f"{group.kind.replace('_', ' ')}, blocks of 8 tokens, hash units of 2"
        figures.append(figure(units, size, *rows, caption=said, label="hash unit"))
    return Picture(
        f"The longest hit is one of {found} tokens, inside block 2 of both groups: full attention "
        "is entered there or later in each block, Mamba has the state as of exactly that token.",
        tuple(figures),
    )


def _determined() -> Picture:
    tokens, size = range(8), 4
    covered = int(covered_tokens(1, size))
    layers = (
        ("target", 0, covered),
        ("draft", 1, covered),
        ("draft+block", 1, int(covered_tokens(2, size))),
    )
    rows = []
    for label, lookahead, agreed in layers:
        settled = {k for k in tokens if is_determined(k, lookahead, agreed)}
        rows.append(Row(label, marks(tokens, settled), covered))
    return Picture(
        "Two blocks of 4 tokens are matched. Their hashes settle every entry of a target layer, "
        "and all but the last entry of a draft layer; a third matched block settles that one.",
        (figure(tokens, size, *rows, label="token"),),
    )


PICTURES: dict[str, Callable[[], Picture]] = {
    "hit_has_every_block_attention_reads": _blocks_attention_reads,
    "eagle_needs_tail_plus_one": _tail_plus_one,
    "lookup_returns_longest_valid_hit": _longest_of_one,
    "common_hit_is_valid_for_every_group": _valid_for_all,
    "common_hit_is_the_longest": _longest_of_all,
    "local_prefix_lacks_states_only": _lacks_states_only,
    "local_prefix_is_the_longest": _longest_local_prefix,
    "mask_keeps_every_reachable_block": partial(
        _mask,
        "Blocks of 2 tokens, boundaries every 16, a window of 6, EAGLE: each boundary's tail and "
        "its lookahead block are reachable and so registered.",
    ),
    "mask_keeps_only_reachable_blocks": partial(
        _mask, "The same mask: a block in no boundary's run, marked with a dot, is not registered."
    ),
    "retention_keeps_resends_and_extensions": _resends,
    "retention_keeps_siblings": _siblings,
    "retention_keeps_junctions": _junctions,
    "retention_keeps_only_promised_blocks": _only_promised,
    "lookup_agrees_under_dense_retention": partial(
        _agreement,
        "All of 32 tokens is computed, and the run of a hit of 32 evicted. A later request hits "
        "{0} tokens if every computed block was registered, and {1} if those of the mask were.",
        (),
        None,
    ),
    "lookup_agrees_under_interval_retention": partial(
        _agreement,
        "The same with an interval of 16 tokens: {0} tokens if every block was registered, and {1} "
        "with those of the interval, the longest of its hits that is left.",
        (32,),
        16,
    ),
    "lookup_agrees_under_latest_retention": partial(
        _agreement,
        "The same with the latest boundaries only, 24 tokens for a resend and 32 for an "
        "extension: {0} tokens if every block was registered, {1} with theirs.",
        (24, 32),
        0,
    ),
    "fine_grained_hit_is_vouched_for": _fine,
    "reused_content_is_determined_by_the_hit": _determined,
    "block_in_use_is_never_evicted": partial(
        of_pool,
        "The reference count is the number of table entries; a block with one is not in the queue.",
        tables="holders",
        ref_cnt="ref_count",
        queued="queued",
    ),
    "free_count_is_free_queue_length": partial(
        of_pool,
        "Each unused block is in the free queue once: {} are free.",
        ref_cnt="ref_count",
        queued="queued",
    ),
    "null_block_is_never_served": partial(
        of_pool,
        "The null block is in no queue, carries no key, and no entry of the cache names it.",
        queued="queued",
        keys="keys",
        named="named",
    ),
    "cached_key_names_its_content": partial(
        of_pool,
        "A freed block keeps its key and can be hit again, until it is handed out anew.",
        queued="queued",
        keys="keys",
        named="named",
        stale="stale",
    ),
    "least_recently_used_block_goes_first": eviction_order,
    "admitted_request_gets_its_blocks": admission,
    "tier_keeps_every_reachable_block": partial(
        _stored,
        "The same window computed in two steps of 16 tokens. The lookahead block of the first "
        "boundary is stored by the second step.",
    ),
    "tier_keeps_only_reachable_blocks": partial(
        _stored, "Blocks in no boundary's run, marked with a dot, are not stored."
    ),
    "tier_hit_is_the_longest": _tier_hit,
    "tier_loads_the_served_run": _loaded,
}
"""The picture of each claim, by the claim's name."""
