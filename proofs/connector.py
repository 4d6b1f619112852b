"""The theorems on local prefixes (`spec.connector`), in the style of `proofs.theorems`.

``boundary`` is where a local prefix ends, ``end`` where the connector's load does, in blocks.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from hitproof.proofs import several
from hitproof.proofs.cases import CASES, FULL, MAMBA, SLIDING, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import connector, hits
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.terms import Formula, Term, for_each, for_some, is_multiple, not_


def _load_completes(
    at: Interpretation, kind: GroupKind, lookahead: int, late: int = 0, least: int = 1
) -> Statement:
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
            ("something is loaded", boundary + least <= end),
        ),
        hits.has_required_run(
            resumed, end, lambda block: cached(block) | (boundary + late <= block)
        ),
    )


def _unflagged_is_a_hit(at: Interpretation, flag: bool = True) -> Statement:
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
            *((("it is not flagged, as the state is cached", state),) if flag else ()),
        ),
        hits.valid_boundary(group, boundary, cap, horizon, cached),
    )


def _hit_is_local(at: Interpretation, kind: GroupKind, lookahead: int, slip: int = 0) -> Statement:
    boundary, cap, horizon = (at.integer(n) for n in ("boundary", "cap", "horizon"))
    group, sizes = any_group(at, kind, lookahead)
    cached = at.block_set("cached")
    valid = hits.valid_boundary(group, boundary, cap + slip, horizon + slip, cached)
    return Statement(
        (
            *sizes,
            ("the hit is not empty", 1 <= boundary),
            ("the group may serve it", valid),
        ),
        connector.valid_local_boundary(group, boundary, cap, horizon, cached),
    )


def _sizes(at: Interpretation) -> tuple[Any, Term, Term, Term]:
    """Any number of groups, their alignment, any cap and any horizon."""
    return at.groups(), at.integer("alignment"), at.integer("cap"), at.integer("horizon")


def _some_are(groups: Any, kind: GroupKind) -> Formula:
    return for_some(groups, lambda _, group: group.prefix_cacheable & (group.kind == kind))


def _each_but_states(at: Interpretation, states: bool = False) -> Statement:
    """Each group without states serves the local prefix."""
    length, (groups, alignment, cap, horizon) = at.integer("length"), _sizes(at)
    cached, (index, exists) = at.block_sets("cached"), several.some_group(at)
    prefix = connector.valid_local_prefix(groups, alignment, length, cap, horizon, cached)
    group = groups[index]
    shape, size = geometry(group, alignment), group.block_size
    stateless = not_(group.kind == MAMBA)
    return Statement(
        (
            *exists,
            ("it takes part", group.prefix_cacheable),
            *(() if states else (("it keeps no states", stateless),)),
            several.on_edges(at),
            ("the local prefix is not empty", length != 0),
            ("it is valid", prefix),
        ),
        hits.valid_boundary(
            shape, length // size, cap // size, horizon // size, partial(cached, index)
        ),
    )


def _longest_prefix(at: Interpretation, slip: int = 0, both: bool = True) -> Statement:
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

    has = _some_are(groups, FULL) & _some_are(groups, MAMBA)
    return Statement(
        (
            several.on_edges(at),
            ("a length is within the cap", (1 <= other) & (other <= cap)),
            ("it ends on a boundary", is_multiple(other, alignment)),
            ("each group without states serves it", for_each(groups, valid)),
            *((("full attention and Mamba take part", has),) if both else ()),
        ),
        other + slip <= longest,
    )


def _same_as_hit(at: Interpretation, kinds: tuple[GroupKind, ...]) -> Statement:
    """Without both, the local prefix is a hit."""
    length, (groups, alignment, *limits) = at.integer("length"), _sizes(at)
    told = (groups, alignment, length, *limits, at.block_sets("cached"))
    absent = not_(_some_are(groups, kinds[0]) & _some_are(groups, kinds[-1]))
    return Statement(
        (
            several.on_edges(at),
            ("the kinds do not take part", absent),
            ("the local prefix is valid", connector.valid_local_prefix(*told)),
        ),
        hits.valid_hit(*told),
    )


def _lacks_states_only() -> Iterable[Obligation]:
    yield Obligation(
        "each_group_without_states_serves_the_local_prefix",
        "Of any number of groups, each that keeps no states can serve the local prefix.",
        _each_but_states,
        (Mutant("states", "So can each that does.", partial(_each_but_states, states=True)),),
    )
    yield Obligation(
        "without_states_or_full_attention_it_is_a_hit",
        "Unless Mamba and full attention are combined, the local prefix is a hit of all groups.",
        partial(_same_as_hit, kinds=(FULL, MAMBA)),
        (Mutant("windows", "So it is without windows.", partial(_same_as_hit, kinds=(SLIDING,))),),
    )
    for kind, lookahead in CASES:
        state = partial(_load_completes, kind=kind, lookahead=lookahead)
        mutants = [
            Mutant(
                "loads_a_block_late",
                "So it has when the load starts a block after what the local prefix needs.",
                partial(state, late=1 + lookahead),
            )
        ]
        if kind is MAMBA:
            mutants.append(
                Mutant(
                    "loads_nothing",
                    "So it has when nothing is loaded.",
                    partial(state, least=0),
                )
            )
        yield Obligation(
            case_name("a_load_completes_the_run", kind, lookahead),
            "Where a connector loads what follows a local prefix, each group has all that is read "
            "at the end of the load.",
            state,
            tuple(mutants),
        )
    yield Obligation(
        "an_unflagged_prefix_is_a_hit",
        "A local prefix whose state is cached is a hit that Mamba may serve.",
        _unflagged_is_a_hit,
        (
            Mutant(
                "no_flag",
                "So is any local prefix.",
                partial(_unflagged_is_a_hit, flag=False),
            ),
        ),
    )


def _is_the_longest() -> Iterable[Obligation]:
    yield Obligation(
        "no_local_prefix_is_longer",
        "Where Mamba and full attention are combined, among any number of groups, no length on a "
        "boundary is longer than the local prefix that each group without states can serve.",
        _longest_prefix,
        (
            Mutant("shorter", "Each is shorter.", partial(_longest_prefix, slip=1)),
            Mutant("other_kinds", "Nor is any elsewhere.", partial(_longest_prefix, both=False)),
        ),
    )
    for kind, lookahead in CASES:
        state = partial(_hit_is_local, kind=kind, lookahead=lookahead)
        yield Obligation(
            case_name("a_hit_is_a_local_prefix", kind, lookahead),
            "A hit that a group may serve is a local prefix for it. So the longest local prefix is "
            "no shorter than the hit that all groups share.",
            state,
            (
                Mutant(
                    "a_block_past_the_cap",
                    "So is a hit that is one block longer than the request allows.",
                    partial(state, slip=1),
                ),
            ),
        )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "local_prefix_lacks_states_only": tuple(_lacks_states_only()),
    "local_prefix_is_the_longest": tuple(_is_the_longest()),
}
"""The obligations of each claim on local prefixes, by its name."""
