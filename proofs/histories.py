"""Producer and consumer agree, over any history of requests.

By induction over the requests that a pool has served. At the start: once a prompt has registered
what it retains, a promised hit is valid if it would be with all of the prompt cached. Step: a
request that registers more takes no hit away. Without eviction these two are sufficient; with
eviction, the remaining blocks decide, one by one. That lookup finds the promised hit, or a longer
one, is `lookup_returns_longest_valid_hit`; that dense retention offers a replay no longer one is
`no_replay_hits_more`.

``boundary`` is promised and ``prompt`` is the set of the prompt's full blocks.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from hitproof.proofs.cases import CASES, any_group, case_name
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement
from hitproof.spec import hits, retention
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term

_Members = Callable[[Term], Formula]


def _hit(
    at: Interpretation, kind: GroupKind, lookahead: int
) -> tuple[BlockGeometry, Term, Callable[[_Members], Formula], Hypotheses]:
    """Any hit of any group: its boundary, and whether it is valid given what is cached."""
    boundary = at.integer("boundary")
    group, sizes = any_group(at, kind, lookahead)
    cap, horizon = at.integer("cap"), at.integer("horizon")

    def valid(cached: _Members) -> Formula:
        return hits.valid_boundary(group, boundary, cap, horizon, cached, at)

    return group, boundary, valid, (*sizes, ("the hit is not empty", 1 <= boundary))


def _promise_is_kept(
    at: Interpretation, kind: GroupKind, lookahead: int, mask_lookahead: int
) -> Statement:
    group, boundary, valid, hypotheses = _hit(at, kind, lookahead)
    prompt, cached = at.block_set("prompt"), at.block_set("cached")
    masked = replace(group, lookahead=mask_lookahead)

    def retained(block: Term) -> Formula:
        if kind in retention.SPARSE_KINDS:
            promised = [boundary, at.integer("other")]
            return retention.in_retained_mask(masked, block, promised, None, at)
        # The dense mask has it: `reachable_block_is_kept`.
        return hits.in_required_run(masked, block, boundary, at)

    def registered(block: Term) -> Formula:
        return at.implies(prompt(block) & retained(block), cached(block))

    every_block = at.for_all(0, hits.run_end(group, boundary), registered)
    return Statement(
        (
            *hypotheses,
            ("the blocks of the prompt that it retains are registered", every_block),
            ("the hit is valid when all of the prompt is cached", valid(prompt)),
        ),
        valid(cached),
    )


def _request_takes_nothing_away(
    at: Interpretation, kind: GroupKind, lookahead: int, keeps: bool = True
) -> Statement:
    _, _, valid, hypotheses = _hit(at, kind, lookahead)
    cached, registered = at.block_set("cached"), at.block_set("registered")

    def after(block: Term) -> Formula:
        return (cached(block) | registered(block)) if keeps else registered(block)

    return Statement(
        (*hypotheses, ("the hit was valid before the request", valid(cached))), valid(after)
    )


def _eviction_is_exact(
    at: Interpretation, kind: GroupKind, lookahead: int, boundary_slip: int = 0
) -> Statement:
    group, boundary, valid, hypotheses = _hit(at, kind, lookahead)
    cached, evicted = at.block_set("cached"), at.block_set("evicted")
    required = partial(hits.in_required_run, group, boundary=boundary + boundary_slip)

    def left(block: Term) -> Formula:
        return cached(block) & at.negation(evicted(block))

    def spared(block: Term) -> Formula:
        return at.implies(required(block, arithmetic=at), at.negation(evicted(block)))

    return Statement(
        (*hypotheses, ("the hit was valid before the eviction", valid(cached))),
        valid(left) == at.for_all(0, hits.run_end(group, boundary), spared),
    )


def obligations() -> Iterable[Obligation]:
    """That what one request registers makes the next one hit what it was promised."""
    for kind, lookahead in CASES:
        case: dict[str, Any] = {"kind": kind, "lookahead": lookahead}
        keeps = partial(_promise_is_kept, **case)
        yield Obligation(
            case_name("promised_hit_is_valid", kind, lookahead),
            "A promised hit that is valid with all of the prompt cached is valid with what the "
            "prompt retains.",
            partial(keeps, mask_lookahead=lookahead),
            (
                Mutant(
                    "another_lookahead",
                    "So it is with what a mask with another lookahead retains.",
                    partial(keeps, mask_lookahead=lookahead - 1),
                ),
            ),
        )
        takes = partial(_request_takes_nothing_away, **case)
        yield Obligation(
            case_name("later_request_takes_no_hit_away", kind, lookahead),
            "A valid hit stays valid when a further request registers its blocks.",
            takes,
            (
                Mutant(
                    "replaces",
                    "So it does when those blocks take the place of all others.",
                    partial(takes, keeps=False),
                ),
            ),
        )
        exact = partial(_eviction_is_exact, **case)
        yield Obligation(
            case_name("eviction_takes_what_it_evicts", kind, lookahead),
            "After an eviction a hit that was valid is valid just when no block of its required "
            "run was evicted.",
            exact,
            (
                Mutant(
                    "earlier_boundary",
                    "It is when no block of that of the block edge before was.",
                    partial(exact, boundary_slip=-1),
                ),
            ),
        )
