"""A request's promise stands after each step of a history, on any block.

A promise is the hit of a resend, an extension or a sibling, ``promised`` tokens. Of its ``run`` the
blocks ``done`` are computed; ``gone`` says that one of them was evicted, ``lapsed`` that another
request recomputed one and did not keep it.
"""

from functools import cache, partial, reduce
from operator import and_
from typing import Any

from hitproof.proofs.agreement.group import RUN_BELOW_A_HIT, pair, run_is_kept, setting
from hitproof.proofs.agreement.history import Blocks, always, evicted, registered, same
from hitproof.proofs.interpretation import Instance, Interpretation
from hitproof.proofs.obligation import Hypotheses, Obligation, Statement, all_of, taken
from hitproof.spec import hits
from hitproof.spec.terms import Formula, Term, implies, not_

_State = tuple[Blocks, Blocks, Blocks, Formula, Formula]
"""The caches, what is done, and the flags."""


def _state(at: Interpretation) -> _State:
    cached, dense, done = (at.block_sets(name) for name in ("cached", "dense", "done"))
    return cached, dense, done, *flags(at)


def flags(at: Interpretation) -> tuple[Formula, Formula]:
    """Whether a block of the run was evicted, and whether the promise has lapsed."""
    return 1 <= at.integer("gone"), 1 <= at.integer("lapsed")


def _stands(at: Interpretation, state: _State, index: Term, block: Term) -> Formula:
    """The invariant, of one block."""
    *sets, gone, lapsed = state
    has, densely, done = (blocks(index, block) for blocks in sets)
    return (
        implies(has, densely)
        & implies(done, at.block_sets("run")(index, block))
        & (lapsed | implies(done & densely, has))
        & (gone | implies(done, densely))
        & implies(lapsed, gone)
    )


def _begins(at: Interpretation) -> Hypotheses:
    """What holds when a request is admitted."""
    index, block, _ = pair(at)
    cached, _, done, gone, lapsed = _state(at)
    hit, size = at.integer("hit"), at.groups()[index].block_size
    limits = at.integer("alignment"), hit, at.integer("cap"), at.integer("horizon")
    spared = at.block_sets("run")(index, block) & (block < hit // size)
    return (
        ("nothing of the run is gone", not_(gone) & not_(lapsed)),
        ("the blocks of the run before its hit are done", implies(done(index, block), spared)),
        ("the promised hit is no shorter than its own", hit <= at.integer("promised")),
        ("the request's own hit is valid", hits.valid_hit(at.groups(), *limits, cached)),
    )


def _start(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    return Statement(
        (exists, *_begins(at)),
        _stands(at, _state(at), index, block),
        lambda: (*setting(at, mode), taken(at, always(mode)), taken(at, RUN_BELOW_A_HIT)),
    )


def _after_own_chunk(at: Interpretation) -> _State:
    cached, dense, done, *unchanged = _state(at)
    computed, run = at.block_sets("computed"), at.block_sets("run")

    def more(index: Term, block: Term) -> Formula:
        return done(index, block) | (computed(index, block) & run(index, block))

    return *registered(at, cached, dense), more, *unchanged


def _lapses(at: Interpretation) -> Hypotheses:
    """What lapses a promise: a block that was done is recomputed and not kept."""
    index, block, _ = pair(at)
    where = at.integer("lapsed_group"), at.integer("lapsed_block")
    cached, _, done, _, lapsed = _state(at)
    after, computed, kept = (
        1 <= at.integer("lapsed_after"),
        at.block_sets("computed"),
        at.block_sets("kept"),
    )

    def anew(*block: Term) -> Formula:
        return done(*block) & computed(*block) & not_(cached(*block)) & not_(kept(*block))

    exists = (0 <= where[0]) & (where[0] < at.integer("num_groups"))
    return (
        (
            "a promise lapses for good, and does so where a block is not kept that was done",
            implies(lapsed | anew(index, block), after),
        ),
        ("where it lapses there is such a block", exists & implies(after, lapsed | anew(*where))),
        ("there the promise stood before", _stands(at, _state(at), *where)),
    )


def _after_anothers_chunk(at: Interpretation) -> _State:
    cached, dense, done, gone, _ = _state(at)
    return *registered(at, cached, dense), done, gone, 1 <= at.integer("lapsed_after")


def _loses(at: Interpretation) -> Hypotheses:
    """The part of a run that is gone after an eviction."""
    index, block, _ = pair(at)
    *_, done, gone, _ = _state(at)
    lost = done(index, block) & at.block_sets("evicted")(index, block)
    return (
        (
            "a block of the run is gone for good",
            implies(gone | lost, 1 <= at.integer("gone_after")),
        ),
    )


def _after_eviction(at: Interpretation) -> _State:
    cached, dense, done, _, lapsed = _state(at)
    return evicted(at, cached), evicted(at, dense), done, 1 <= at.integer("gone_after"), lapsed


@cache
def _begins_kept(mode: str) -> Obligation:
    return Obligation(
        "a_promise_starts_kept",
        "When a request is admitted, its promises are kept as far as its hit goes: of their runs, "
        "the blocks before the hit are cached.",
        partial(_start, mode=mode),
    )


def _before(at: Interpretation, kept: str) -> Interpretation:
    """The same history a step before, where the names without a time are those of after."""
    names = ("cached", "dense", "done")
    meanings: dict[str, Any] = {name: at.block_sets(f"{name}_before") for name in names}
    for name in ("gone", "lapsed"):
        meanings |= {name: at.integer(f"{name}_before"), f"{name}_after": at.integer(name)}
    return Instance(at, meanings | {"kept": at.block_sets(kept)})


def _always(at: Interpretation, mode: str) -> Statement:
    index, block, exists = pair(at)
    step, what = at.integer("step"), at.integer("what")
    before, elsewhere = _before(at, "kept"), _before(at, "kept_by_another")

    def becomes(after: _State) -> Formula:
        *sets, gone, lapsed = after
        *now, is_gone, has_lapsed = _state(at)
        alike = (same(at, each, then) for each, then in zip(now, sets, strict=True))
        return reduce(and_, alike, (is_gone == gone) & (has_lapsed == lapsed))

    def given() -> Hypotheses:
        own = becomes(_after_own_chunk(before))
        another = becomes(_after_anothers_chunk(elsewhere)) & all_of(_lapses(elsewhere))
        eviction = becomes(_after_eviction(before)) & all_of(_loses(before))
        stood = _stands(at, _state(before), index, block)
        return (
            *setting(at, mode),
            ("steps are counted from the start", 0 <= step),
            ("at the start the request is admitted", implies(step == 0, all_of(_begins(at)))),
            ("a step can register a chunk of it", implies((1 <= step) & (what == 0), own)),
            ("or a chunk of another request", implies((1 <= step) & (what == 1), another)),
            ("or evict", implies((1 <= step) & (what == 2), eviction)),
            ("there are no other steps", (0 <= what) & (what <= 2)),
            ("the promise stood a step before", implies(1 <= step, stood)),
            taken(at, _begins_kept(mode)),
            taken(at, run_is_kept(mode)),
        )

    return Statement((exists,), _stands(at, _state(at), index, block), given)


@cache
def promise_stands(mode: str) -> Obligation:
    """A promise stands after any history."""
    return Obligation(
        "the_promise_stands_after_each_step",
        "After each step since a request was admitted its promise stands, since it does when the "
        "request is admitted and each kind of step keeps it: induction over the steps.",
        partial(_always, mode=mode),
    )
