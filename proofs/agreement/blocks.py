"""Statements on one block of one group, of any kind and with any lookahead: the spec's clauses."""

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import starmap
from operator import and_, or_

from hitproof.proofs.agreement.keys import DENSE, INTERVAL
from hitproof.proofs.cases import KINDS, MAMBA, any_group
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec import hits, mask, retention
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.terms import Formula, Term, for_all, implies

_OnBlocks = Callable[[BlockGeometry], Formula]


def _of_any_kind(at: Interpretation, holds: _OnBlocks) -> Formula:
    """Whether it holds of a block of the group, whatever its kind is."""
    kind, lookahead = at.integer("kind"), at.integer("lookahead")

    def of(number: int, each: GroupKind) -> Formula:
        group, sizes = any_group(at, each, 0 if each is MAMBA else lookahead)
        possible = (kind == number) & (0 <= lookahead)
        return reduce(and_, (size for _, size in sizes), possible) & holds(group)

    return reduce(or_, starmap(of, enumerate(KINDS)))


def _boundary(at: Interpretation, group: BlockGeometry, name: str = "boundary") -> Term:
    return at.integer(name) * group.segment


def _required(at: Interpretation, group: BlockGeometry, boundary: Term) -> Formula:
    return (1 <= boundary) & hits.in_required_run(group, at.integer("block"), boundary)


def _retained(
    at: Interpretation, group: BlockGeometry, replays: Iterable[str], mode: str
) -> Formula:
    """Whether the producer keeps the block, given what it promises; without names, nothing."""
    interval = at.integer("interval") * group.segment if mode == INTERVAL else None
    promised = [_boundary(at, group, name) for name in replays] or [0 * group.segment]
    return retention.in_retained_mask(group, at.integer("block"), promised, interval)


def required_is_owed(at: Interpretation, mode: str) -> Statement:
    """A block in a required run is among what every producer of the mode keeps."""
    block = at.integer("block")

    def required(group: BlockGeometry) -> Formula:
        boundary = _boundary(at, group)
        needed = _required(at, group, boundary)
        if mode == INTERVAL:
            every = at.integer("interval") * group.segment
            needed &= boundary == at.integer("count") * every
        return needed

    def owed(group: BlockGeometry) -> Formula:
        if mode == DENSE:
            return mask.in_mask(group, block)
        return _retained(at, group, (), mode)

    premise = "a hit at a boundary requires the block"
    if mode == INTERVAL:
        premise += ", and the boundary falls on the interval: see multiples"
    return Statement(
        (*_interval(at, mode), (premise, _of_any_kind(at, required))), _of_any_kind(at, owed)
    )


def _interval(at: Interpretation, mode: str) -> Hypotheses:
    if mode != INTERVAL:
        return ()
    return (("the interval is at least one alignment", 1 <= at.integer("interval")),)


def owed_is_kept(at: Interpretation) -> Statement:
    """A block that is kept for the interval is kept whatever else is promised."""
    replays = ("resend", "extension", "junction")
    owed = _of_any_kind(at, lambda group: _retained(at, group, (), INTERVAL))
    kept = _of_any_kind(at, lambda group: _retained(at, group, replays, INTERVAL))
    return Statement((*_interval(at, INTERVAL), ("the block is owed", owed)), kept)


def run_is_kept(at: Interpretation, mode: str) -> Statement:
    """A block in the run of a promised boundary is kept."""
    names = ("resend", "boundary", "junction")
    required = _of_any_kind(at, lambda group: _required(at, group, _boundary(at, group)))
    return Statement(
        (*_interval(at, mode), ("the promised hit requires the block", required)),
        _of_any_kind(at, lambda group: _retained(at, group, names, mode)),
    )


def run_below_a_hit(at: Interpretation) -> Statement:
    """A block of a promised run before a hit is in the run of that hit."""
    block = at.integer("block")

    def below(group: BlockGeometry) -> Formula:
        hit, boundary = _boundary(at, group, "hit"), _boundary(at, group)
        return _required(at, group, boundary) & (block < hit)

    ahead = at.integer("hit") <= at.integer("boundary")
    return Statement(
        (
            ("the block is of the promised run, and before the hit", _of_any_kind(at, below)),
            ("the promised boundary is not before the hit", ahead),
        ),
        _of_any_kind(at, lambda group: _required(at, group, _boundary(at, group, "hit"))),
    )


def rounded_run(at: Interpretation) -> Statement:
    """A rounded hit lies within what the hit spans, and within reach."""
    block, cap, horizon = (at.integer(name) for name in ("block", "cap", "horizon"))

    def longer(group: BlockGeometry) -> Formula:
        reach = hits.within_reach(group, _boundary(at, group), cap, horizon)
        return reach & _required(at, group, _boundary(at, group, "rounded"))

    def within(group: BlockGeometry) -> Formula:
        reach = hits.within_reach(group, _boundary(at, group, "rounded"), cap, horizon)
        return reach & (block < hits.run_end(group, _boundary(at, group)))

    served = "lookup may serve the hit, and the rounded one requires the block"
    down = at.integer("rounded") <= at.integer("boundary")
    return Statement(
        ((served, _of_any_kind(at, longer)), ("the hit is rounded down", down)),
        _of_any_kind(at, within),
    )


def served_by_one(at: Interpretation) -> Statement:
    """A group serves a boundary that is within reach and whole."""
    cap, horizon, cached = at.integer("cap"), at.integer("horizon"), at.block_set("cached")

    def exists(group: BlockGeometry) -> Formula:
        return 1 <= _boundary(at, group)

    def served(group: BlockGeometry) -> Formula:
        boundary = _boundary(at, group)
        complete = for_all(
            0,
            hits.run_end(group, boundary),
            lambda block: implies(hits.in_required_run(group, block, boundary), cached(block)),
        )
        return hits.valid_boundary(group, boundary, cap, horizon, cached) == (
            hits.within_reach(group, boundary, cap, horizon) & complete
        )

    return Statement(
        (("there is a hit, of some kind of group", _of_any_kind(at, exists)),),
        _of_any_kind(at, served),
    )
