"""Statements on one block of any group: what hits require, and what a producer owes and keeps."""

from functools import cache, partial

from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement, taken
from hitproof.proofs.promises import INTERVALS_FALL_ON_BOUNDARIES
from hitproof.proofs.several import on_edges
from hitproof.spec import groups as spec
from hitproof.spec import hits, mask, retention
from hitproof.spec.groups import BlockGeometry, Group
from hitproof.spec.terms import Formula, Term, implies, is_multiple

DENSE, INTERVAL, LATEST = "dense", "interval", "latest"
MODES = (DENSE, INTERVAL, LATEST)
"""Dense retention, one boundary per interval of tokens beside the latest, and the latest alone."""


def setting(at: Interpretation, mode: str = DENSE) -> Hypotheses:
    """What holds of every engine with that mode; its interval is in alignments."""
    if mode != INTERVAL:
        return (on_edges(at),)
    return on_edges(at), ("the interval is at least one alignment", 1 <= at.integer("interval"))


def interval_tokens(at: Interpretation) -> Term:
    """The retention interval in tokens."""
    return at.integer("interval") * at.integer("alignment")


def pair(at: Interpretation) -> tuple[Term, Term, tuple[str, Formula]]:
    """Any block of any group, and that the group takes part in prefix caching."""
    index = at.integer("group")
    takes_part = at.groups()[index].prefix_cacheable
    exists = (0 <= index) & (index < at.integer("num_groups"))
    why = "there is such a group, and it takes part"
    return index, at.integer("block"), (why, exists & takes_part)


def _group(at: Interpretation) -> tuple[Group, BlockGeometry]:
    group = at.groups()[at.integer("group")]
    return group, spec.geometry(group, at.integer("alignment"))


def _boundary(at: Interpretation, more: int = 0) -> Statement:
    group, shape = _group(at)
    _, _, exists = pair(at)
    count, size = at.integer("count"), group.block_size
    sizes = {"interval": shape.segment, "alignment": size}
    return Statement(
        (exists,),
        count * at.integer("alignment") // size == count * shape.segment + more,
        lambda: (*setting(at), taken(at, INTERVALS_FALL_ON_BOUNDARIES, **sizes)),
    )


BOUNDARY = Obligation(
    "a_boundary_is_one_in_each_group",
    "A number of alignments is the same number of segments of each group.",
    _boundary,
    (Mutant("one_block_more", "And one block more.", partial(_boundary, more=1)),),
)


def _is_retained(at: Interpretation, mode: str, promised: Term | None = None) -> Formula:
    """Whether the producer keeps the block, and ``promised`` is a boundary that it promises.

    It is in alignments; None: of a request that promises nothing.
    """
    _, shape = _group(at)
    if mode == DENSE:
        return mask.in_mask(shape, at.integer("block"))
    interval = at.integer("interval") * shape.segment if mode == INTERVAL else None
    promises = (0,) if promised is None else (at.integer("resend"), promised, at.integer("other"))
    boundaries = [boundary * shape.segment for boundary in promises]
    return retention.in_retained_mask(shape, at.integer("block"), boundaries, interval)


def _owed(at: Interpretation, mode: str) -> tuple[str, Formula]:
    index, block, _ = pair(at)
    owed = at.block_sets("owed")(index, block)
    return (
        "a block is owed if and only if it is retained whatever is promised",
        owed == _is_retained(at, mode),
    )


def _kept(at: Interpretation, mode: str) -> tuple[str, Formula]:
    index, block, _ = pair(at)
    kept = at.block_sets("kept")(index, block)
    return (
        "a block is kept if and only if it is retained for what the request promises",
        kept == _is_retained(at, mode, _promised(at)),
    )


def _promised(at: Interpretation) -> Term:
    """A boundary that a request promises to a resend, an extension or a sibling, in alignments."""
    return at.integer("promised") // at.integer("alignment")


def _requires(at: Interpretation, hit: Term) -> Formula:
    """Whether a hit of ``hit`` tokens requires the block."""
    group, shape = _group(at)
    return hits.in_required_run(shape, at.integer("block"), hit // group.block_size)


def _required_is_owed(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    length, share = at.integer("length"), at.integer("interval")
    step = interval_tokens(at) if mode == INTERVAL else at.integer("alignment")
    count, multiples = length // step, INTERVALS_FALL_ON_BOUNDARIES

    def given() -> Hypotheses:
        if mode == DENSE:
            return *setting(at, mode), _owed(at, mode), taken(at, BOUNDARY, count=count)
        _, shape = _group(at)
        return (
            *setting(at, mode),
            _owed(at, mode),
            taken(at, BOUNDARY, count=count * share),
            taken(at, multiples, count=count),
            taken(at, multiples, count=count, alignment=shape.segment),
        )

    where = "the interval" if mode == INTERVAL else "a boundary"
    return Statement(
        (
            exists,
            (f"a hit ends on {where}", (1 <= length) & is_multiple(length, step)),
            ("it requires the block", _requires(at, length)),
        ),
        at.block_sets("owed")(index, block),
        given,
    )


@cache
def required_is_owed(mode: str) -> Obligation:
    """What hits require that every request must keep possible is owed."""
    where = "the interval" if mode == INTERVAL else "a boundary"
    return Obligation(
        "required_run_is_owed",
        f"A block that a hit which ends on {where} requires is owed, in a group of any kind.",
        partial(_required_is_owed, mode=mode),
    )


def _owed_is_kept(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    owed, kept = at.block_sets("owed"), at.block_sets("kept")
    return Statement(
        (exists,),
        implies(owed(index, block), kept(index, block)),
        lambda: (*setting(at, mode), _owed(at, mode), _kept(at, mode)),
    )


@cache
def owed_is_kept(mode: str) -> Obligation:
    """A request keeps what every request owes."""
    return Obligation(
        "what_is_owed_is_kept",
        "A block that is owed is kept whatever else a request promises.",
        partial(_owed_is_kept, mode=mode),
    )


def _run(at: Interpretation) -> Hypotheses:
    """What a promised hit is, and its run."""
    index, block, _ = pair(at)
    promised = at.integer("promised")
    ends = (1 <= promised) & is_multiple(promised, at.integer("alignment"))
    run = at.block_sets("run")(index, block) == _requires(at, promised)
    return (("a promised hit ends on a boundary", ends), ("the run is what it requires", run))


def _run_is_kept(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    run, kept = at.block_sets("run"), at.block_sets("kept")
    return Statement(
        (exists,),
        implies(run(index, block), kept(index, block)),
        lambda: (
            *setting(at, mode),
            *_run(at),
            _kept(at, mode),
            taken(at, BOUNDARY, count=_promised(at)),
        ),
    )


@cache
def run_is_kept(mode: str) -> Obligation:
    """A request keeps what it promises."""
    return Obligation(
        "promised_run_is_kept",
        "A request keeps each block that a hit requires which it promises to a resend, an "
        "extension or a sibling, in a group of any kind.",
        partial(_run_is_kept, mode=mode),
    )


def _run_below_a_hit(at: Interpretation) -> Statement:
    index, block, exists = pair(at)
    hit, size = at.integer("hit"), at.groups()[index].block_size
    before = at.block_sets("run")(index, block) & (block < hit // size)
    return Statement(
        (
            exists,
            ("the block is of the run, and before the hit", before),
            ("the promised hit is no shorter", hit <= at.integer("promised")),
        ),
        _requires(at, hit),
        lambda: (*setting(at), *_run(at)),
    )


RUN_BELOW_A_HIT = Obligation(
    "run_before_the_hit_is_the_hits",
    "What a promised hit requires of the blocks before the request's own hit, that hit requires, "
    "too.",
    _run_below_a_hit,
)
