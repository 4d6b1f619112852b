"""Statements on one block of one group, of any kind and with any lookahead: the spec's clauses."""

from collections.abc import Callable, Iterable

from hitproof.proofs.agreement.keys import DENSE, INTERVAL, LATEST
from hitproof.proofs.cases import KINDS, MAMBA, any_group
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Statement
from hitproof.spec import hits, mask, retention
from hitproof.spec.groups import BlockGeometry
from hitproof.spec.terms import Formula, Term, for_all, implies

_OnBlocks = Callable[[BlockGeometry], Formula]


def _of_any_kind(at: Interpretation, holds: _OnBlocks, only: int | None = None) -> Formula:
    """Whether it holds of a block of the group, whatever its kind is."""
    kind, lookahead = at.integer("kind"), at.integer("lookahead")
    cases = None
    for number, each in enumerate(KINDS):
        if only is not None and number != only:
            continue
        group, sizes = any_group(at, each, 0 if each is MAMBA else lookahead)
        case = (kind == number) & (0 <= lookahead)
        for _, size in sizes:
            case &= size
        case &= holds(group)
        cases = case if cases is None else cases | case
    return cases


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


def required_is_owed(
    at: Interpretation, mode: str, slip: int = 0, only: int | None = None
) -> Statement:
    """A block in a required run is among what every producer of the mode keeps."""
    block = at.integer("block")
    hypotheses = _interval(at) if mode == INTERVAL else ()

    def required(group: BlockGeometry) -> Formula:
        boundary = _boundary(at, group)
        needed = _required(at, group, boundary + slip)
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
        (*hypotheses, (premise, _of_any_kind(at, required, only))), _of_any_kind(at, owed)
    )


def _interval(at: Interpretation) -> Hypotheses:
    return (("the interval is at least one alignment", 1 <= at.integer("interval")),)


_REPLAYS = ("resend", "extension", "junction")


def owed_is_kept(at: Interpretation, mode: str, interval: bool = True) -> Statement:
    """A block that is kept for the interval is kept whatever else is promised."""
    owed = _of_any_kind(at, lambda group: _retained(at, group, (), mode))
    kept_in = mode if interval else LATEST
    kept = _of_any_kind(at, lambda group: _retained(at, group, _REPLAYS, kept_in))
    return Statement((*_interval(at), ("the block is owed", owed)), kept)


def run_is_kept(at: Interpretation, mode: str, slip: int = 0, only: int | None = None) -> Statement:
    """A block in the run of a promised boundary is kept."""
    names = ("resend", "boundary", "junction")

    def required(group: BlockGeometry) -> Formula:
        return _required(at, group, _boundary(at, group) + slip)

    return Statement(
        (
            *(_interval(at) if mode == INTERVAL else ()),
            ("the promised hit requires the block", _of_any_kind(at, required, only)),
        ),
        _of_any_kind(at, lambda group: _retained(at, group, names, mode)),
    )


def run_below_a_hit(at: Interpretation, longer: bool = True, slip: int = 0) -> Statement:
    """A block of a promised run before a hit is in the run of that hit."""
    block = at.integer("block")

    def below(group: BlockGeometry) -> Formula:
        hit, boundary = _boundary(at, group, "hit"), _boundary(at, group)
        return _required(at, group, boundary) & (block < hit + slip)

    hypotheses: Hypotheses = (
        ("the block is of the promised run, and before the hit", _of_any_kind(at, below)),
    )
    if longer:
        ahead = at.integer("hit") <= at.integer("boundary")
        hypotheses += (("the promised boundary is not before the hit", ahead),)
    hit_requires = _of_any_kind(at, lambda group: _required(at, group, _boundary(at, group, "hit")))
    return Statement(hypotheses, hit_requires)


def rounded_run(at: Interpretation, shorter: bool = True) -> Statement:
    """A rounded hit lies within what the hit spans, and within reach."""
    block, cap, horizon = (at.integer(name) for name in ("block", "cap", "horizon"))

    def longer(group: BlockGeometry) -> Formula:
        reach = hits.within_reach(group, _boundary(at, group), cap, horizon)
        return reach & _required(at, group, _boundary(at, group, "rounded"))

    def within(group: BlockGeometry) -> Formula:
        reach = hits.within_reach(group, _boundary(at, group, "rounded"), cap, horizon)
        return reach & (block < hits.run_end(group, _boundary(at, group)))

    hypotheses: Hypotheses = (
        (
            "lookup may serve the hit, and the rounded one requires the block",
            _of_any_kind(at, longer),
        ),
    )
    if shorter:
        down = at.integer("rounded") <= at.integer("boundary")
        hypotheses += (("the hit is rounded down", down),)
    return Statement(hypotheses, _of_any_kind(at, within))


def served_by_one(at: Interpretation, slip: int = 0) -> Statement:
    """A group serves a boundary that is within reach and whole."""
    cap, horizon, cached = at.integer("cap"), at.integer("horizon"), at.block_set("cached")

    def exists(group: BlockGeometry) -> Formula:
        return 1 <= _boundary(at, group)

    def served(group: BlockGeometry) -> Formula:
        boundary = _boundary(at, group)
        complete = for_all(
            0,
            hits.run_end(group, boundary) + slip,
            lambda block: implies(
                hits.in_required_run(group, block, boundary + slip), cached(block)
            ),
        )
        return hits.valid_boundary(group, boundary, cap, horizon, cached) == (
            hits.within_reach(group, boundary, cap, horizon) & complete
        )

    return Statement(
        (("there is a hit, of some kind of group", _of_any_kind(at, exists)),),
        _of_any_kind(at, served),
    )
