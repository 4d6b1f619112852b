"""The theorems on local prefixes (`spec.connector`), in the style of `proofs.theorems`.

``boundary`` is where a local prefix ends, ``end`` where the connector's load does, in blocks.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from hitproof.proofs import several
from hitproof.proofs.cases import CASES, FULL, MAMBA, any_group, case_name, obligation
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import connector, hits
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.terms import Formula, Term, for_each, for_some, is_multiple, not_


def _load_completes(
    at: Interpretation, kind: GroupKind, lookahead: int, late: int = 0
) -> Statement:
    """``late``: how many blocks past the local prefix's need the load starts."""
    boundary, end = at.integer("boundary"), at.integer("end")
    cap, horizon = at.integer("cap"), at.integer("horizon")
    group, sizes = any_group(at, kind, lookahead)
    resumed, _ = any_group(at, kind, 0)
    cached = at.block_set("cached")
    valid = connector.valid_local_boundary(group, boundary, cap, horizon, cached)
    return Statement(
        (
            *sizes,
            ("the local prefix is not empty", 1 <= boundary),
            ("it is a valid one", valid),
            ("something is loaded", boundary < end),
        ),
        hits.has_required_run(
            resumed, end, lambda block: cached(block) | (boundary + late <= block)
        ),
    )


@obligation(
    "an_unflagged_prefix_is_a_hit",
    "A local prefix whose state is cached is a hit that Mamba may serve.",
)
def _unflagged_is_a_hit(at: Interpretation) -> Statement:
    boundary, cap, horizon = (at.integer(n) for n in ("boundary", "cap", "horizon"))
    group, sizes = any_group(at, MAMBA, 0)
    cached = at.block_set("cached")
    valid = connector.valid_local_boundary(group, boundary, cap, horizon, cached)
    state = hits.has_required_run(group, boundary, cached)
    return Statement(
        (
            *sizes,
            ("the local prefix is not empty", 1 <= boundary),
            ("it is a valid one", valid),
            ("it is not flagged, as the state is cached", state),
        ),
        hits.valid_boundary(group, boundary, cap, horizon, cached),
    )


@obligation(
    "a_hit_is_a_local_prefix",
    "A hit that a group may serve is a local prefix for it. So the longest local prefix is no "
    "shorter than the hit that all groups share.",
    CASES,
)
def _hit_is_local(at: Interpretation, kind: GroupKind, lookahead: int) -> Statement:
    boundary, cap, horizon = (at.integer(n) for n in ("boundary", "cap", "horizon"))
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")
    valid = hits.valid_boundary(group, boundary, cap, horizon, cached)
    return Statement(
        (*sizes, ("the hit is not empty", 1 <= boundary), ("the group may serve it", valid)),
        connector.valid_local_boundary(group, boundary, cap, horizon, cached),
    )


def _sizes(at: Interpretation) -> tuple[Any, Term, Term, Term]:
    """Any number of groups, their alignment, any cap and any horizon."""
    return at.groups(), at.integer("alignment"), at.integer("cap"), at.integer("horizon")


def _combined(groups: Any) -> Formula:
    """Whether both full attention and Mamba take part."""

    def takes_part(kind: GroupKind) -> Formula:
        return for_some(groups, lambda _, group: group.prefix_cacheable & (group.kind == kind))

    return takes_part(FULL) & takes_part(MAMBA)


@obligation(
    "each_group_without_states_serves_the_local_prefix",
    "Of any number of groups, each that keeps no states can serve the local prefix.",
    states=("So can each that does.", {"states": True}),
)
def _each_but_states(at: Interpretation, states: bool = False) -> Statement:
    """Each group without states serves the local prefix; with ``states``, so does each with."""
    length, (groups, alignment, cap, horizon) = at.integer("length"), _sizes(at)
    cached, (index, exists) = at.block_sets("cached"), several.some_group(at)
    prefix = connector.valid_local_prefix(groups, alignment, length, cap, horizon, cached)
    group = groups[index]
    shape, size = geometry(group, alignment), group.block_size
    return Statement(
        (
            *exists,
            ("it takes part", group.prefix_cacheable),
            *(() if states else (("it keeps no states", not_(group.kind == MAMBA)),)),
            several.on_edges(at),
            ("the local prefix is not empty", length != 0),
            ("it is valid", prefix),
        ),
        hits.valid_boundary(
            shape, length // size, cap // size, horizon // size, partial(cached, index)
        ),
    )


@obligation(
    "no_local_prefix_is_longer",
    "Where Mamba and full attention are combined, among any number of groups, no length on a "
    "boundary is longer than the local prefix that each group without states can serve.",
)
def _longest_prefix(at: Interpretation) -> Statement:
    """No local prefix is longer, where full attention and Mamba are combined."""
    other = at.compared("other")
    groups, alignment, cap, horizon = _sizes(at)
    cached = at.block_sets("cached")
    longest = connector.longest_local_prefix(groups, alignment, cap, horizon, cached)

    def valid(index: Term, group: Group) -> Formula:
        size, shape = group.block_size, geometry(group, alignment)
        ends = (other // size, cap // size, horizon // size)
        whole = hits.has_required_run(shape, other // size, partial(cached, index))
        fits = hits.within_reach(shape, *ends) & ((group.kind == MAMBA) | whole)
        return not_(group.prefix_cacheable) | fits

    return Statement(
        (
            several.on_edges(at),
            ("a length is within the cap", (1 <= other) & (other <= cap)),
            ("it ends on a boundary", is_multiple(other, alignment)),
            ("each group without states serves it", for_each(groups, valid)),
            ("full attention and Mamba take part", _combined(groups)),
        ),
        other <= longest,
    )


@obligation(
    "without_states_or_full_attention_it_is_a_hit",
    "Unless Mamba and full attention are combined, the local prefix is a hit of all groups.",
    combined=("So it is if they are.", {"combined": True}),
)
def _same_as_hit(at: Interpretation, combined: bool = False) -> Statement:
    length, (groups, alignment, *limits) = at.integer("length"), _sizes(at)
    told = (groups, alignment, length, *limits, at.block_sets("cached"))
    return Statement(
        (
            several.on_edges(at),
            *(() if combined else (("the kinds do not take part", not_(_combined(groups))),)),
            ("the local prefix is valid", connector.valid_local_prefix(*told)),
        ),
        hits.valid_hit(*told),
    )


def _lacks_states_only() -> Iterable[Obligation]:
    yield from _each_but_states
    yield from _same_as_hit
    for kind, lookahead in CASES:
        state = partial(_load_completes, kind=kind, lookahead=lookahead)
        late = Mutant(
            "loads_late", "So it has when it loads late.", partial(state, late=1 + lookahead)
        )
        yield Obligation(
            case_name("a_load_completes_the_run", kind, lookahead),
            "Where a connector loads what follows a local prefix, each group has all that is read "
            "at the end of the load.",
            state,
            (late,),
        )
    yield from _unflagged_is_a_hit


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "local_prefix_lacks_states_only": tuple(_lacks_states_only()),
    "local_prefix_is_the_longest": (*_longest_prefix, *_hit_is_local),
}
"""The obligations of each claim on local prefixes, by its name."""
