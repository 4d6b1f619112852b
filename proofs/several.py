"""Any number of groups, each of any kind and sizes: what they share, and when they serve a hit.

``group`` is the index of any one of them, and ``other`` a length, or the index of another group.
Lengths are in tokens.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hitproof.proofs.cases import case_name, holds_token, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement
from hitproof.spec import attention, hits
from hitproof.spec import groups as spec
from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.terms import Formula, Term, for_all, for_each, implies, is_multiple, not_


def some_group(at: Interpretation, name: str = "group") -> tuple[Term, Hypotheses]:
    """The index of any group."""
    index = at.integer(name)
    number = at.integer("num_groups")
    return index, (("there is such a group", (0 <= index) & (index < number)),)


def on_edges(at: Interpretation) -> tuple[str, Formula]:
    """What is taken for granted of an alignment."""
    alignment = at.integer("alignment")
    edge = spec.is_common_edge(at.groups(), alignment)
    return "the alignment is some tokens, whole blocks in each group", (1 <= alignment) & edge


def taking_part(at: Interpretation) -> tuple[Any, Term, Group, Hypotheses]:
    """All groups, and any one of them that takes part in prefix caching."""
    groups, (index, exists) = at.groups(), some_group(at)
    group = groups[index]
    return groups, index, group, (*exists, ("it takes part", group.prefix_cacheable))


@obligation(
    "alignment_is_the_least_common_block_edge",
    "In each of any number of groups that take part the alignment is on a block edge, and no "
    "positive length that is on one in all of them is less.",
)
def _aligned(at: Interpretation) -> Statement:
    """The alignment is a block edge of the group, and no common block edge is less."""
    other = at.compared("other")
    groups, _, group, hypotheses = taking_part(at)

    def ends_on_an_edge(_: Term, each: Group) -> Formula:
        edge = other // each.block_size * each.block_size == other
        return not_(each.prefix_cacheable) | edge

    alignment = spec.alignment(groups)
    on_edge = alignment // group.block_size * group.block_size == alignment
    return Statement(
        (
            *hypotheses,
            ("a length is positive", 1 <= other),
            ("it ends on a block edge in each group", for_each(groups, ends_on_an_edge)),
        ),
        (1 <= alignment) & (alignment <= other) & on_edge,
    )


@obligation(
    "a_group_in_blocks_has_its_sizes",
    "Of each of any number of groups, of any kind, the geometry has as many blocks as its sizes "
    "in tokens span; of a Mamba group none ahead.",
    states_look_ahead=("So it has of a Mamba group with EAGLE.", {"states_look_ahead": True}),
)
def _geometry(at: Interpretation, states_look_ahead: bool = False) -> Statement:
    """A group in blocks has the sizes that it has in tokens."""
    groups, (index, exists) = at.groups(), some_group(at)
    group, segments = groups[index], at.integer("segments")
    size, ahead = group.block_size, group.prefill_lookahead
    alignment = segments * size
    shape = spec.geometry(group, alignment)
    looks = group.eagle & ((group.kind != GroupKind.MAMBA) | states_look_ahead)
    spans = (ahead <= shape.lookahead * size) & ((shape.lookahead - 1) * size < ahead)
    tail = not_(group.kind == GroupKind.SLIDING_WINDOW) | (
        group.window is not None
        and (group.window - 1 <= shape.tail * size) & ((shape.tail - 1) * size < group.window - 1)
    )
    chunk = not_(group.kind == GroupKind.CHUNKED_LOCAL) | (shape.chunk == group.chunk)
    same = (shape.kind == group.kind) & (shape.block_size == size) & chunk
    return Statement(
        (*exists, ("the alignment is some blocks", 1 <= segments)),
        same
        & (shape.segment == segments)
        & tail
        & implies(looks, spans)
        & implies(not_(looks), shape.lookahead == 0),
    )


def alike(group: Group, other: Group) -> Formula:
    """Whether two groups differ in the flag at most."""
    same: Formula = True
    for name in ("kind", "block_size", "window", "chunk", "prefix_cacheable", "prefill_lookahead"):
        same &= getattr(group, name) == getattr(other, name)
    return same


@obligation(
    "a_flag_is_shared",
    "With EAGLE on, each of any number of groups drops a block if one is flagged that differs in "
    "the flag at most.",
)
def _flag_is_shared(at: Interpretation) -> Statement:
    """With EAGLE, a group drops a block if one that is looked up with it is flagged."""
    groups, (index, exists) = at.groups(), some_group(at)
    other, other_exists = some_group(at, "other")
    use_eagle = 1 <= at.integer("use_eagle")
    shared = spec.share_eagle(groups, use_eagle)
    return Statement(
        (
            *exists,
            *other_exists,
            ("EAGLE is on", use_eagle),
            ("the other one is flagged", groups[other].eagle),
            ("the two are alike", alike(groups[index], groups[other])),
        ),
        shared[index].eagle,
    )


@obligation(
    "other_flags_are_not_shared",
    "It drops none if some are flagged, but none that differs in the flag at most.",
)
def _no_flag_is_shared(at: Interpretation) -> Statement:
    """If others are flagged, but none that is looked up with it, a group drops no block."""
    groups, (index, exists) = at.groups(), some_group(at)
    other, other_exists = some_group(at, "other")
    shared = spec.share_eagle(groups, 1 <= at.integer("use_eagle"))
    none_alike = for_each(groups, lambda _, each: not_(each.eagle & alike(groups[index], each)))
    return Statement(
        (
            *exists,
            *other_exists,
            ("some group is flagged", groups[other].eagle),
            ("none that is alike is", none_alike),
        ),
        not_(shared[index].eagle),
    )


@obligation(
    "without_a_flag_all_drop_a_block",
    "If none is flagged, each drops a block with EAGLE on, and none with EAGLE off. Nothing else "
    "of a group changes.",
    one_flagged=("So it is if one is flagged.", {"none": False}),
)
def _all_drop(at: Interpretation, none: bool = True) -> Statement:
    """With EAGLE on and no group flagged, each drops a block; with EAGLE off none does."""
    groups, (index, exists) = at.groups(), some_group(at)
    use_eagle = 1 <= at.integer("use_eagle")
    shared = spec.share_eagle(groups, use_eagle)
    none_flagged = for_each(groups, lambda _, each: not_(each.eagle))
    group, then = groups[index], shared[index]
    return Statement(
        (*exists, *((("no group is flagged", none_flagged),) if none else ())),
        (then.eagle == use_eagle) & alike(group, then),
    )


def may_serve(
    shape: spec.BlockGeometry,
    boundary: Term,
    cap: Term,
    horizon: Term,
    has: Callable[[Term], Formula],
) -> Formula:
    """Whether a group may serve a boundary and has each block that it requires; all in blocks."""
    end = hits.run_end(shape, boundary)
    run = for_all(
        0, end, lambda block: implies(hits.in_required_run(shape, block, boundary), has(block))
    )
    return (boundary <= cap) & (end <= horizon) & run


def _hit(at: Interpretation, length: Term) -> tuple[Formula, Callable[[Term, Group], Formula]]:
    """Whether the groups can serve the length, and whether a group has what it requires."""
    alignment, cap, horizon = (at.integer(n) for n in ("alignment", "cap", "horizon"))
    cached = at.block_sets("cached")
    valid = hits.valid_hit(at.groups(), alignment, length, cap, horizon, cached)

    def serves(index: Term, group: Group) -> Formula:
        size = group.block_size
        return may_serve(
            spec.geometry(group, alignment),
            length // size,
            cap // size,
            horizon // size,
            lambda block: cached(index, block),
        )

    return valid, serves


@obligation(
    "each_group_serves_a_valid_hit",
    "A valid hit is on a boundary, and each of any number of groups that take part may serve it "
    "and has every block cached that it requires.",
)
def _served_by_each(at: Interpretation) -> Statement:
    """A valid hit is aligned, and each group that takes part can serve it."""
    length, alignment = at.integer("length"), at.integer("alignment")
    _, index, group, hypotheses = taking_part(at)
    valid, serves = _hit(at, length)
    not_empty = ("the hit is not empty", length != 0)
    return Statement(
        (*hypotheses, on_edges(at), not_empty, ("it is valid", valid)),
        (0 <= length) & is_multiple(length, alignment) & serves(index, group),
    )


@obligation(
    "a_hit_that_each_group_serves_is_valid",
    "A hit on a boundary is valid if each of any number of groups that take part may serve it and"
    " has every block cached that it requires. No hit is valid, too.",
)
def _served_by_all(at: Interpretation) -> Statement:
    """An aligned hit that each group which takes part can serve is valid, and so is none."""
    length, alignment = at.integer("length"), at.integer("alignment")
    valid, serves = _hit(at, length)
    served = for_each(at.groups(), lambda i, each: implies(each.prefix_cacheable, serves(i, each)))
    aligned = (0 <= length) & is_multiple(length, alignment)
    return Statement(
        (
            on_edges(at),
            (
                "the hit is empty, or aligned and served by each group",
                (length == 0) | (aligned & served),
            ),
        ),
        valid,
    )


def _read_is_cached(at: Interpretation, kind: GroupKind) -> Statement:
    """What attention reads before a valid hit is cached, in each group that takes part."""
    length, block, token = (at.integer(n) for n in ("length", "block", "token"))
    query, boundary = at.integer("query"), at.integer("boundary")
    _, index, group, exists = taking_part(at)
    valid, _ = _hit(at, length)
    size, cached = group.block_size, at.block_sets("cached")
    sliding, chunked = kind is GroupKind.SLIDING_WINDOW, kind is GroupKind.CHUNKED_LOCAL
    if kind is GroupKind.MAMBA:
        reads = attention.reads_state(length, token) & (token + 1 == (block + 1) * size)
    else:
        window, chunk = (group.window if sliding else None), (group.chunk if chunked else None)
        reads = (length <= query) & attention.attends(query, token, window, chunk)
    return Statement(
        (
            *exists,
            on_edges(at),
            ("it is of the kind", group.kind == kind),
            ("the hit ends after some blocks", (1 <= boundary) & (length == boundary * size)),
            ("it is valid", valid),
            ("the token is before the end", (0 <= token) & (token < length)),
            ("the block holds it", holds_token(block, token, size)),
            ("a token past the hit reads it", reads),
        ),
        cached(index, block),
    )


def any_valid(
    shape: BlockGeometry,
    boundary: Term,
    cap: Term,
    horizon: Term,
    cached: Callable[[Term], Formula],
) -> Formula:
    """What decides on a hit does not matter to which one is the longest."""
    return (boundary <= cap) & (hits.run_end(shape, boundary) <= horizon) & cached(boundary)


def _lookup(at: Interpretation) -> tuple[Term, Callable[[Term], Formula]]:
    """The hit that lookup must return, and whether it may return a length."""
    told = at.groups(), at.integer("alignment")
    asked = at.integer("cap"), at.integer("horizon"), at.block_sets("cached"), any_valid
    hit = hits.longest_valid_hit(*told, *asked)
    return hit, lambda length: hits.valid_hit(*told, length, *asked)


@obligation(
    "no_valid_hit_is_longer",
    "If any hit of any number of groups is valid, the longest one is, it is within the cap, and "
    "no other is longer.",
)
def _longest(at: Interpretation) -> Statement:
    """The hit that lookup must return is valid and within the cap, and none is longer."""
    other, alignment, cap = at.compared("other"), at.integer("alignment"), at.integer("cap")
    hit, is_valid = _lookup(at)
    return Statement(
        (
            on_edges(at),
            ("another hit is within the cap", (1 <= other) & (other <= cap)),
            ("it ends on a boundary", is_multiple(other, alignment)),
            ("it is valid", is_valid(other)),
        ),
        (other <= hit) & (hit <= cap) & is_valid(hit),
    )


@obligation(
    "no_hit_is_shorter_than_the_alignment", "Within less than one alignment the longest hit is 0."
)
def _none(at: Interpretation) -> Statement:
    """Lookup returns no negative length, and returns 0 below one alignment."""
    alignment, cap = at.integer("alignment"), at.integer("cap")
    shorter = ("the request is shorter", cap < alignment)
    return Statement((on_edges(at), shorter), _lookup(at)[0] == 0)


ALIGNMENT = (*_aligned, *_geometry)
"""What the groups share."""


FLAGS = (*_flag_is_shared, *_no_flag_is_shared, *_all_drop)
"""Which groups drop a block."""


VALIDITY = (*_served_by_each, *_served_by_all)
"""When groups serve a hit."""


def soundness() -> Iterable[Obligation]:
    """Everything is cached that a request reads after a hit."""
    for kind in GroupKind:
        yield Obligation(
            case_name("what_a_valid_hit_reads_is_cached", kind),
            "Of any number of groups, of any kinds and sizes, each that takes part has cached, for "
            f"a valid hit, all that a later token of the request reads before it: {kind}.",
            partial(_read_is_cached, kind=kind),
        )


LONGEST = (*_longest, *_none)
"""The hit that lookup must return."""
