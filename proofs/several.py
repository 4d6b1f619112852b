"""Any number of groups, each of any kind and sizes: what they share, and when they serve a hit.

``group`` is the index of any one of them, and ``other`` a length, or the index of another group.
Lengths are in tokens.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hitproof.proofs.cases import holds_token
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import attention, hits
from hitproof.spec import groups as spec
from hitproof.spec.groups import BlockGeometry, Group, GroupKind
from hitproof.spec.terms import (
    Formula,
    Term,
    choose,
    for_all,
    for_each,
    for_some,
    implies,
    is_multiple,
    not_,
)

_Broken = Callable[[Interpretation], Statement]


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


def _taking_part(at: Interpretation) -> tuple[Any, Term, Group, Hypotheses]:
    """All groups, and any one of them that takes part in prefix caching."""
    groups, (index, exists) = at.groups(), some_group(at)
    group = groups[index]
    return groups, index, group, (*exists, ("it takes part", group.prefix_cacheable))


def _aligned(at: Interpretation, slip: int = 0, all_take_part: bool = True) -> Statement:
    """The alignment is a block edge of the group, and no common block edge is less."""
    other = at.compared("other")
    groups, _, group, hypotheses = _taking_part(at)
    if not all_take_part:
        some = for_some(groups, lambda _, each: each.prefix_cacheable)
        hypotheses = (*hypotheses[:1], ("some group takes part", some))

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
        (1 <= alignment) & (alignment + slip <= other) & on_edge,
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


def _alike(group: Group, other: Group, but: str = "") -> Formula:
    same: Formula = True
    for name in ("kind", "block_size", "window", "chunk", "prefix_cacheable", "prefill_lookahead"):
        if name != but:
            same &= getattr(group, name) == getattr(other, name)
    return same


def _flag_is_shared(at: Interpretation, but: str = "", on: bool = True) -> Statement:
    """With EAGLE, a group drops a block if one that is looked up with it is flagged."""
    groups, (index, exists) = at.groups(), some_group(at)
    other, other_exists = some_group(at, "other")
    use_eagle = 1 <= at.integer("use_eagle")
    shared = spec.share_eagle(groups, use_eagle)
    return Statement(
        (
            *exists,
            *other_exists,
            *((("EAGLE is on", use_eagle),) if on else ()),
            ("the other one is flagged", groups[other].eagle),
            ("the two are alike", _alike(groups[index], groups[other], but)),
        ),
        shared[index].eagle,
    )


def _no_flag_is_shared(at: Interpretation, alike: bool = True, flagged: bool = True) -> Statement:
    """If others are flagged, but none that is looked up with it, a group drops no block."""
    groups, (index, exists) = at.groups(), some_group(at)
    other, other_exists = some_group(at, "other")
    shared = spec.share_eagle(groups, 1 <= at.integer("use_eagle"))
    none_alike = for_each(groups, lambda _, each: not_(each.eagle & _alike(groups[index], each)))
    return Statement(
        (
            *exists,
            *other_exists,
            *((("some group is flagged", groups[other].eagle),) if flagged else ()),
            *((("none that is alike is", none_alike),) if alike else ()),
        ),
        not_(shared[index].eagle),
    )


def _all_drop(at: Interpretation, none: bool = True, on: bool = True) -> Statement:
    """With EAGLE on and no group flagged, each drops a block; with EAGLE off none does."""
    groups, (index, exists) = at.groups(), some_group(at)
    use_eagle = 1 <= at.integer("use_eagle")
    shared = spec.share_eagle(groups, use_eagle)
    none_flagged = for_each(groups, lambda _, each: not_(each.eagle))
    group, then = groups[index], shared[index]
    return Statement(
        (*exists, *((("no group is flagged", none_flagged),) if none else ())),
        (then.eagle == (use_eagle if on else (use_eagle | group.eagle)) if none else then.eagle)
        & _alike(group, then),
    )


def _hit(at: Interpretation, length: Term) -> tuple[Formula, Callable[[Term, Group], Formula]]:
    """Whether the groups can serve the length, and whether a group has what it requires."""
    alignment, cap, horizon = (at.integer(n) for n in ("alignment", "cap", "horizon"))
    cached = at.block_sets("cached")
    valid = hits.valid_hit(at.groups(), alignment, length, cap, horizon, cached)

    def serves(index: Term, group: Group) -> Formula:
        size = group.block_size
        shape, boundary = spec.geometry(group, alignment), length // size
        run = for_all(
            0,
            hits.run_end(shape, boundary),
            lambda block: implies(
                hits.in_required_run(shape, block, boundary), cached(index, block)
            ),
        )
        ends = hits.run_end(shape, boundary) <= horizon // size
        return (boundary <= cap // size) & ends & run

    return valid, serves


def _served_by_each(at: Interpretation, part: bool = True, some: bool = True) -> Statement:
    """A valid hit is aligned, and each group that takes part can serve it."""
    length, alignment = at.integer("length"), at.integer("alignment")
    _, index, group, hypotheses = _taking_part(at)
    valid, serves = _hit(at, length)
    return Statement(
        (
            *(hypotheses if part else hypotheses[:1]),
            on_edges(at),
            *((("the hit is not empty", length != 0),) if some else ()),
            ("it is valid", valid),
        ),
        (0 <= length) & is_multiple(length, alignment) & serves(index, group),
    )


def _served_by_all(at: Interpretation, part: bool = True, aligned: bool = True) -> Statement:
    """An aligned hit that each group which takes part can serve is valid, and so is none."""
    length, alignment = at.integer("length"), at.integer("alignment")
    groups = at.groups()
    valid, serves = _hit(at, length)

    def enough(index: Term, group: Group) -> Formula:
        return implies(group.prefix_cacheable, serves(index, group)) if part else True

    on_boundary = (0 <= length) & is_multiple(length, alignment)
    served = on_boundary & for_each(groups, enough) if aligned else for_each(groups, enough)
    return Statement(
        (
            on_edges(at),
            ("the hit is empty, or aligned and served by each group", (length == 0) | served),
        ),
        valid,
    )


def _read_is_cached(
    at: Interpretation, kind: GroupKind, served: bool = True, part: bool = True
) -> Statement:
    """What attention reads before a valid hit is cached, in each group that takes part."""
    length, block, token = (at.integer(n) for n in ("length", "block", "token"))
    query, boundary = at.integer("query"), at.integer("boundary")
    _, index, group, exists = _taking_part(at)
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
            *(exists if part else exists[:1]),
            on_edges(at),
            ("it is of the kind", group.kind == kind),
            ("the hit ends after some blocks", (1 <= boundary) & (length == boundary * size)),
            *((("it is valid", valid),) if served else ()),
            ("the token is before the end", (0 <= token) & (token < length)),
            ("the block holds it", holds_token(block, token, size)),
            ("a token past the hit reads it", reads),
        ),
        cached(index, block),
    )


def _agrees(at: Interpretation, owed: bool = True, kept: bool = True) -> Statement:
    """Two caches that agree on what is owed serve a hit whose runs are owed alike."""
    length, alignment, groups = at.integer("length"), at.integer("alignment"), at.groups()
    limits = at.integer("cap"), at.integer("horizon")
    cached, dense, is_owed = (at.block_sets(name) for name in ("cached", "dense", "owed"))

    def of_run(holds: Callable[[Term, Term], Formula]) -> Formula:
        def each(index: Term, group: Group) -> Formula:
            shape, boundary = spec.geometry(group, alignment), length // group.block_size
            run = hits.required_run(shape, boundary)
            return choose(
                group.prefix_cacheable,
                lambda: for_all(run.start, run.stop, partial(holds, index)),
                lambda: True,
            )

        return for_each(groups, each)

    def agree(index: Term, block: Term) -> Formula:
        within = implies(cached(index, block), dense(index, block))
        return within & implies(dense(index, block) & is_owed(index, block), cached(index, block))

    return Statement(
        (
            on_edges(at),
            *((("the caches agree", of_run(agree)),) if kept else ()),
            *((("what the hit requires is owed", of_run(is_owed)),) if owed else ()),
        ),
        hits.valid_hit(groups, alignment, length, *limits, cached)
        == hits.valid_hit(groups, alignment, length, *limits, dense),
    )


def _any_valid(
    shape: BlockGeometry,
    boundary: Term,
    cap: Term,
    horizon: Term,
    cached: Callable[[Term], Formula],
) -> Formula:
    """What decides on a hit does not matter to which one is the longest."""
    return (boundary <= cap) & (hits.run_end(shape, boundary) <= horizon) & cached(boundary)


def _longest(at: Interpretation, slip: int = 0, valid: bool = True) -> Statement:
    """The hit that lookup must return is valid and within the cap, and none is longer."""
    other = at.compared("other")
    alignment, cap, horizon = (at.integer(n) for n in ("alignment", "cap", "horizon"))
    told, cached = (at.groups(), alignment), at.block_sets("cached")
    hit = hits.longest_valid_hit(*told, cap, horizon, cached, _any_valid)

    def is_valid(length: Term) -> Formula:
        return hits.valid_hit(*told, length, cap, horizon, cached, _any_valid)

    return Statement(
        (
            on_edges(at),
            ("another hit is within the cap", (1 <= other) & (other <= cap)),
            ("it ends on a boundary", is_multiple(other, alignment)),
            *((("it is valid", is_valid(other)),) if valid else ()),
        ),
        (other + slip <= hit) & (hit <= cap) & is_valid(hit),
    )


def _none(at: Interpretation, slip: int = 0) -> Statement:
    """Lookup returns no negative length, and returns 0 below one alignment."""
    alignment, cap, horizon = (at.integer(n) for n in ("alignment", "cap", "horizon"))
    told, cached = (at.groups(), alignment), at.block_sets("cached")
    hit = hits.longest_valid_hit(*told, cap, horizon, cached, _any_valid)
    return Statement((on_edges(at), ("the request is shorter", cap < alignment + slip)), hit == 0)


def alignment() -> Iterable[Obligation]:
    """What the groups share."""
    yield Obligation(
        "alignment_is_the_least_common_block_edge",
        "In each of any number of groups that take part the alignment is on a block edge, and no "
        "positive length that is on one in all of them is less.",
        _aligned,
        (
            Mutant("less_than_any", "Each is greater.", partial(_aligned, slip=1)),
            Mutant(
                "opted_out",
                "It is on a block edge in those that opt out, too.",
                partial(_aligned, all_take_part=False),
            ),
        ),
    )
    yield Obligation(
        "a_group_in_blocks_has_its_sizes",
        "Of each of any number of groups, of any kind, the geometry has as many blocks as its "
        "sizes in tokens span; of a Mamba group none ahead.",
        _geometry,
        (
            Mutant(
                "states_look_ahead",
                "So it has of a Mamba group with EAGLE.",
                partial(_geometry, states_look_ahead=True),
            ),
        ),
    )


def flags() -> Iterable[Obligation]:
    """Which groups drop a block."""
    yield Obligation(
        "a_flag_is_shared",
        "With EAGLE on, each of any number of groups drops a block if one is flagged that differs "
        "in the flag at most.",
        _flag_is_shared,
        (
            *(
                Mutant(f"any_{name}", f"So it does whatever the other's {name} is.", state)
                for name in ("block_size", "window", "chunk", "prefix_cacheable")
                for state in (partial(_flag_is_shared, but=name),)
            ),
            Mutant("eagle_off", "So it does with EAGLE off.", partial(_flag_is_shared, on=False)),
        ),
    )
    yield Obligation(
        "other_flags_are_not_shared",
        "It drops none if some are flagged, but none that differs in the flag at most.",
        _no_flag_is_shared,
        (
            Mutant("alike", "Nor if one is.", partial(_no_flag_is_shared, alike=False)),
            Mutant("none", "Nor if none is.", partial(_no_flag_is_shared, flagged=False)),
        ),
    )
    yield Obligation(
        "without_a_flag_all_drop_a_block",
        "If none is flagged, each drops a block with EAGLE on, and none with EAGLE off. Nothing "
        "else of a group changes.",
        _all_drop,
        (Mutant("one_flagged", "Each does if one is.", partial(_all_drop, none=False)),),
    )


def validity() -> Iterable[Obligation]:
    """When groups serve a hit."""
    yield Obligation(
        "each_group_serves_a_valid_hit",
        "A valid hit is on a boundary, and each of any number of groups that take part may serve "
        "it and has every block cached that it requires.",
        _served_by_each,
        (
            Mutant(
                "opted_out",
                "So has each that opts out.",
                partial(_served_by_each, part=False),
            ),
            Mutant("empty", "So it is of no hit.", partial(_served_by_each, some=False)),
        ),
    )
    yield Obligation(
        "a_hit_that_each_group_serves_is_valid",
        "A hit on a boundary is valid if each of any number of groups that take part may serve it "
        "and has every block cached that it requires. No hit is valid, too.",
        _served_by_all,
        (
            Mutant("unserved", "So it is if none has.", partial(_served_by_all, part=False)),
            Mutant(
                "off_the_boundaries",
                "So it is elsewhere.",
                partial(_served_by_all, aligned=False),
            ),
        ),
    )


def soundness() -> Iterable[Obligation]:
    """That all is there which a hit lets a request read."""
    for kind in GroupKind:
        state = partial(_read_is_cached, kind=kind)
        yield Obligation(
            f"what_a_valid_hit_reads_is_cached[{kind}]",
            "Of any number of groups, of any kinds and sizes, each that takes part has cached, for "
            f"a valid hit, all that a later token of the request reads before it: {kind}.",
            state,
            (
                Mutant("not_valid", "So it has of any hit.", partial(state, served=False)),
                Mutant("opted_out", "So has each that opts out.", partial(state, part=False)),
            ),
        )


def agreement() -> Obligation:
    """That sets of keys stand for any number of groups."""
    return Obligation(
        "any_number_of_groups_agree",
        "Of any number of groups, of any kinds and sizes: where what a hit requires of each that "
        "takes part is owed, two caches that agree serve it alike.",
        _agrees,
        (
            Mutant("not_owed", "So they do any other hit.", partial(_agrees, owed=False)),
            Mutant("disagree", "So do any two caches.", partial(_agrees, kept=False)),
        ),
    )


def longest() -> Iterable[Obligation]:
    """The hit that lookup must return."""
    yield Obligation(
        "no_valid_hit_is_longer",
        "If any hit of any number of groups is valid, the longest one is, it is within the cap, "
        "and no other is longer.",
        _longest,
        (
            Mutant("longer", "Each other one is shorter.", partial(_longest, slip=1)),
            Mutant("not_valid", "Nor is any other length.", partial(_longest, valid=False)),
        ),
    )
    yield Obligation(
        "no_hit_is_shorter_than_the_alignment",
        "Within less than one alignment the longest hit is 0.",
        _none,
        (Mutant("one_alignment", "So it is within one.", partial(_none, slip=1)),),
    )
