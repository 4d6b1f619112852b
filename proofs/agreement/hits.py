"""Which hits of all groups are valid in both caches."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from hitproof.proofs.agreement.group import (
    INTERVAL,
    interval_tokens,
    pair,
    required_is_owed,
    setting,
)
from hitproof.proofs.agreement.history import Blocks, always
from hitproof.proofs.agreement.promise import flags, promise_stands
from hitproof.proofs.interpretation import Interpretation
from hitproof.proofs.obligation import Hypotheses, Mutant, Obligation, Statement, Taken, taken
from hitproof.proofs.promises import INTERVALS_FALL_ON_BOUNDARIES
from hitproof.spec import groups as spec
from hitproof.spec import hits
from hitproof.spec.attention import lookahead_blocks
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.terms import Formula, Term, choose, for_all, for_each, is_multiple, not_


def caches(at: Interpretation) -> tuple[Blocks, Blocks]:
    """The blocks that are cached, and those that dense caching has."""
    return at.block_sets("cached"), at.block_sets("dense")


def is_valid(at: Interpretation, length: Term, cached: Blocks) -> Formula:
    """Whether a hit of the later request is valid."""
    alignment, cap, horizon = (at.integer(n) for n in ("alignment", "cap", "horizon"))
    return hits.valid_hit(at.groups(), alignment, length, cap, horizon, cached)


def _of_run(at: Interpretation, hit: Term, holds: Blocks) -> Formula:
    """Whether something holds of each block that a hit requires."""

    def each(index: Term, group: Group) -> Formula:
        shape = spec.geometry(group, at.integer("alignment"))
        run = hits.required_run(shape, hit // group.block_size)
        return for_all(run.start, run.stop, partial(holds, index))

    return _of_groups(at, each)


def _of_groups(at: Interpretation, holds: Callable[[Term, Group], Formula]) -> Formula:
    """Whether something holds of each group that takes part."""

    def each(index: Term, group: Group) -> Formula:
        return choose(group.prefix_cacheable, lambda: holds(index, group), lambda: True)

    return for_each(at.groups(), each)


def taken_of_run(
    at: Interpretation, hit: Term, obligation: Obligation, **meanings: Any
) -> tuple[str, Formula]:
    """A premise: what an obligation proves of one block, of all that a hit requires."""

    def holds(index: Term, block: Term) -> Formula:
        return taken(at, obligation, group=index, block=block, **meanings)[1]

    return Taken.of(obligation), _of_run(at, hit, holds)


def run_is_done(at: Interpretation, promised: Term) -> tuple[str, Formula]:
    """A request has computed what a promised hit requires."""
    done = _of_run(at, promised, at.block_sets("done"))
    return "the request has computed all of the run", done


def _valid_in_both(at: Interpretation, mode: str, more: bool = False) -> Statement:
    length, (cached, dense) = at.compared("length"), caches(at)
    ends: Hypotheses = ()
    if mode == INTERVAL:
        ends = (("the hit ends on the interval", is_multiple(length, interval_tokens(at))),)

    def given() -> Hypotheses:
        return (
            *setting(at, mode),
            taken_of_run(at, length, always(mode)),
            taken_of_run(at, length, required_is_owed(mode), length=length),
        )

    longer = length + at.integer("alignment") if more else length
    return Statement(ends, is_valid(at, length, cached) == is_valid(at, longer, dense), given)


@cache
def valid_in_both(mode: str) -> Obligation:
    """The caches serve the hits that are owed alike."""
    where = "A hit that ends on the interval" if mode == INTERVAL else "Any hit"
    longer = Mutant(
        "longer", "If and only if a longer one is.", partial(_valid_in_both, mode=mode, more=True)
    )
    return Obligation(
        "a_hit_is_valid_in_both",
        f"{where} of any later request is valid if and only if it is with dense caching.",
        partial(_valid_in_both, mode=mode),
        (longer,),
    )


def _no_hit_is_added(at: Interpretation, mode: str) -> Statement:
    length, (cached, dense) = at.compared("length"), caches(at)
    return Statement(
        (("the hit is valid", is_valid(at, length, cached)),),
        is_valid(at, length, dense),
        lambda: (*setting(at, mode), taken_of_run(at, length, always(mode))),
    )


@cache
def no_hit_is_added(mode: str) -> Obligation:
    """Dense caching serves what is served."""
    return Obligation(
        "dense_caching_serves_each_valid_hit",
        "Dense caching serves each hit that is valid.",
        partial(_no_hit_is_added, mode=mode),
    )


def rounded(at: Interpretation, hit: Term) -> Term:
    """The hit rounded down to the interval."""
    interval = interval_tokens(at)
    return hit // interval * interval


def is_there(at: Interpretation, hit: Term) -> tuple[str, Formula]:
    """Dense caching has all that a hit spans."""
    _, dense = caches(at)

    def each(index: Term, group: Group) -> Formula:
        end = hits.run_end(spec.geometry(group, at.integer("alignment")), hit // group.block_size)
        return for_all(0, end, partial(dense, index))

    return "no block was evicted of what it spans", _of_groups(at, each)


def _rounded_is_valid(at: Interpretation) -> Statement:
    length, (_, dense) = at.compared("length"), caches(at)
    count = length // interval_tokens(at)
    return Statement(
        (("dense caching could serve a hit", is_valid(at, length, dense)), is_there(at, length)),
        is_valid(at, rounded(at, length), dense),
        lambda: (*setting(at, INTERVAL), taken(at, INTERVALS_FALL_ON_BOUNDARIES, count=count)),
    )


ROUNDED_IS_VALID = Obligation(
    "what_was_not_evicted_has_the_rounded_hit",
    "While nothing is evicted of what a hit spans, dense caching could serve it rounded down to "
    "the interval.",
    _rounded_is_valid,
)


def _of_promise(at: Interpretation, mode: str, spared: bool) -> Statement:
    promised, (cached, dense) = at.integer("promised"), caches(at)
    gone, lapsed = flags(at)

    def everything(_: Term, __: Term) -> Formula:
        return True

    other = everything if spared else dense
    state = "no block of it was evicted" if spared else "the promise has not lapsed"
    return Statement(
        (run_is_done(at, promised), (state, not_(gone if spared else lapsed))),
        is_valid(at, promised, cached) == is_valid(at, promised, other),
        lambda: (*setting(at, mode), taken_of_run(at, promised, promise_stands(mode))),
    )


@cache
def promised_in_both(mode: str) -> Obligation:
    """The caches serve a promised hit alike."""
    return Obligation(
        "a_promised_hit_is_valid_in_both",
        "Once its run is computed, a promised hit is valid if and only if it is with dense "
        "caching, unless the promise has lapsed.",
        partial(_of_promise, mode=mode, spared=False),
    )


@cache
def promised_until_evicted(mode: str) -> Obligation:
    """A promised hit is served while its run is there."""
    return Obligation(
        "a_promised_hit_is_valid_until_evicted",
        "Until a block of its run is evicted, it is valid if and only if it would be if all were "
        "cached.",
        partial(_of_promise, mode=mode, spared=True),
    )


def _reaches(at: Interpretation) -> Statement:
    length, alignment, (_, dense) = at.integer("length"), at.integer("alignment"), caches(at)
    index, _, exists = pair(at)
    group = at.groups()[index]
    size, lookahead = group.block_size, at.integer("lookahead_tokens")

    def given() -> Hypotheses:
        segment = spec.geometry(group, alignment).segment
        sizes = {"count": length // alignment, "interval": segment, "alignment": size}
        looks, ahead = group.eagle & (group.kind != GroupKind.MAMBA), group.prefill_lookahead
        spans = choose(
            looks, lambda: lookahead == lookahead_blocks(ahead, size) * size, lambda: lookahead == 0
        )
        return (
            *setting(at),
            exists,
            ("the lookahead is that of this group, in whole blocks", spans),
            taken(at, INTERVALS_FALL_ON_BOUNDARIES, **sizes),
        )

    return Statement(
        (
            ("the hit is not empty", length != 0),
            ("dense caching could serve it", is_valid(at, length, dense)),
        ),
        (length <= at.integer("cap")) & (length + lookahead <= at.integer("horizon")),
        given,
    )


REACHES = Obligation(
    "a_valid_hit_and_its_lookahead_are_within_reach",
    "A valid hit stays within the cap, and its lookahead within the horizon.",
    _reaches,
)
