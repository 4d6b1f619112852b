"""The theorems on local prefixes (`spec.connector`), in the style of `proofs.theorems`.

``boundary`` is where a local prefix ends, ``end`` where the connector's load does, in blocks.
"""

from collections.abc import Iterable
from functools import partial

from hitproof.proofs.cases import CASES, MAMBA, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Mutant, Obligation, Statement
from hitproof.spec import connector, hits
from hitproof.spec.groups import GroupKind


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


def _lacks_states_only() -> Iterable[Obligation]:
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
