"""The three theorems that producer and consumer agree: see `proofs.agreement`.

In one module, though long: it is the chain of each theorem, read from top to bottom.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from hitproof.proofs import promises, several
from hitproof.proofs.agreement.blocks import (
    owed_is_kept,
    required_is_owed,
    rounded_run,
    run_below_a_hit,
    run_is_kept,
    served_by_one,
)
from hitproof.proofs.agreement.keys import (
    DENSE,
    INTERVAL,
    LATEST,
    chunk_agrees,
    eviction_agrees,
    hit_agrees,
    no_hit_is_added,
    none_is_first,
    prefix_suffices,
    served_by_all,
    start_agrees,
)
from hitproof.proofs.agreement.lookups import (
    interval_lookup,
    replayed_lookup,
    rounded_lookup,
    same_lookup,
)
from hitproof.proofs.agreement.promise import (
    chunk_of_another,
    own_chunk,
    promise_is_kept,
    promise_starts,
    promised_eviction,
)
from hitproof.proofs.cases import KINDS
from hitproof.proofs.obligation import Mutant, Obligation
from hitproof.spec import retention

_START, _CHUNK, _EVICTION = "empty_caches_agree", "a_chunk_keeps_it", "an_eviction_keeps_it"
_ALWAYS = "no_step_is_the_first_to_break_it"
_ONE, _ALL = "a_group_serves_what_is_cached", "all_groups_serve_what_all_have"
_ADDED = "dense_caching_serves_each_valid_hit"
_OWED, _KEPT, _AGREES = "required_run_is_owed", "what_is_owed_is_kept", "a_hit_is_valid_in_both"
_MULTIPLES, _ROUNDED, _PREFIX = (
    "intervals_fall_on_boundaries",
    "rounded_hit_asks_less",
    "what_was_not_evicted_has_the_rounded_hit",
)
_RUN, _BELOW = "promised_run_is_kept", "run_before_the_hit_is_the_hits"
_BEGINS, _OWN = "a_promise_starts_kept", "its_own_chunk_keeps_it"
_OTHERS, _LOSES = "a_chunk_of_another_keeps_it_or_lapses_it", "an_eviction_keeps_the_promise"
_STANDS, _SPARED = "a_promised_hit_is_valid_in_both", "a_promised_hit_is_valid_until_evicted"
_REACH = "no_replay_hits_more"


def _history(mode: str) -> Iterable[Obligation]:
    """The induction over the steps of a history."""
    start, chunk = partial(start_agrees, mode=mode), partial(chunk_agrees, mode=mode)
    eviction = partial(eviction_agrees, mode=mode)
    yield Obligation(
        _START,
        "Before any request the caches agree: nothing is cached that dense caching would not "
        "have, and of what dense caching would have, all that is owed is cached.",
        start,
        (Mutant("left_over", "So they do when one is not empty.", partial(start, empty=False)),),
    )
    kept: tuple[str, ...] = ()
    if mode == INTERVAL:
        kept = (_KEPT,)
        state = partial(owed_is_kept, mode=mode)
        yield Obligation(
            _KEPT,
            "A block that is kept for the interval is kept whatever else a request promises.",
            state,
            (
                Mutant(
                    "latest_only",
                    "So it is without the interval.",
                    partial(state, interval=False),
                ),
            ),
        )
    skips = Mutant(
        "skips_some", "So they do when it skips some of that.", partial(chunk, keeps=False)
    )
    uncomputed = Mutant(
        "not_computed",
        "So they do when it registers blocks that were not computed.",
        partial(chunk, computes=False),
    )
    yield Obligation(
        _CHUNK,
        "The caches agree after any chunk of any request, if the producer registers of it at least "
        "what is owed: the blocks of all groups that it completes, whatever they are.",
        chunk,
        (uncomputed,) if mode == LATEST else (skips, uncomputed),
        rests_on=kept,
    )
    yield Obligation(
        _EVICTION,
        "The caches agree after any eviction of the same keys from both, whole required runs "
        "among them.",
        eviction,
        (Mutant("from_one", "So they do when it spares one.", partial(eviction, from_both=False)),),
    )
    yield Obligation(
        _ALWAYS,
        "No step of a history is the first after which an invariant is broken, if it holds at the "
        "start and each kind of step keeps it.",
        none_is_first,
        (Mutant("unkept", "None is, whatever it does.", partial(none_is_first, kept=False)),),
        rests_on=(_START, _CHUNK, _EVICTION),
    )


def _hits() -> Iterable[Obligation]:
    """What makes a hit of several groups valid, on keys."""
    yield Obligation(
        _ONE,
        "A group of any kind serves a boundary just when lookup may and each key that the hit "
        "requires of it is cached.",
        served_by_one,
        (
            Mutant(
                "earlier_boundary",
                "It does when each block is that the next block edge requires.",
                partial(served_by_one, slip=1),
            ),
        ),
    )
    yield Obligation(
        _ALL,
        "Any number of groups serve a boundary just when lookup may in each, and all that the hit "
        "requires of all of them is cached.",
        served_by_all,
        (Mutant("some", "So they do whatever each serves.", partial(served_by_all, each=False)),),
        rests_on=(_ONE,),
    )
    yield Obligation(
        _ADDED,
        "Dense caching serves each hit that is valid.",
        no_hit_is_added,
        (
            Mutant(
                "anything_cached",
                "It does when more is cached than was computed.",
                partial(no_hit_is_added, registered_only=False),
            ),
        ),
        rests_on=(_ALWAYS, _ALL),
    )


def _owed_runs(mode: str) -> Iterable[Obligation]:
    """That the caches agree on the boundaries that are owed to every request."""
    state = partial(required_is_owed, mode=mode)
    where = "on the interval" if mode == INTERVAL else "of any number of alignments"
    mutants = [
        Mutant(
            f"off_the_boundaries_{kind}",
            f"So is one that a hit one block longer requires, of {kind} groups.",
            partial(state, slip=1, only=number),
        )
        for number, kind in enumerate(KINDS)
        if kind in retention.SPARSE_KINDS
    ]
    yield Obligation(
        _OWED,
        f"A block that a hit at a boundary {where} requires is owed, in a group of any kind.",
        state,
        tuple(mutants),
        rests_on=(_MULTIPLES,) if mode == INTERVAL else (),
    )
    agrees = partial(hit_agrees, mode=mode)
    yield Obligation(
        _AGREES,
        "Such a hit of any later request is valid just when it is with dense caching.",
        agrees,
        (Mutant("not_owed", "So is any other hit.", partial(agrees, is_owed=False)),),
        rests_on=(_ALWAYS, _ALL, _OWED),
    )


def _dense() -> Iterable[Obligation]:
    yield from _history(DENSE)
    yield from _hits()
    yield from _owed_runs(DENSE)
    groups = several.agreement()
    yield replace(groups, rests_on=(_ALWAYS, _OWED))
    yield Obligation(
        "lookup_returns_what_dense_caching_would",
        "Lookup returns the same hit as with dense caching. So a request resumes at the same token "
        "and computes the same blocks: the two histories are one.",
        same_lookup,
        (
            Mutant(
                "all_but_the_first",
                "It does when the caches agree on all boundaries but the first.",
                partial(same_lookup, slip=1),
            ),
        ),
        rests_on=(_AGREES, groups.name),
    )


def _interval_mode() -> Iterable[Obligation]:
    yield from _history(INTERVAL)
    yield from _hits()
    yield promises.intervals_fall_on_boundaries()
    yield from _owed_runs(INTERVAL)
    yield Obligation(
        "lookup_returns_no_less_than_any_boundary_on_the_interval",
        "Lookup returns no less than each boundary on the interval that dense caching could "
        "serve, and no more than dense caching would.",
        interval_lookup,
        (
            Mutant(
                "off_the_interval",
                "Nor less than any other that it could serve.",
                partial(interval_lookup, on_interval=False),
            ),
        ),
        rests_on=(_ADDED, _AGREES),
    )
    yield Obligation(
        _ROUNDED,
        "What a group requires for a hit rounded down lies within what the hit spans, and lookup "
        "may serve it.",
        rounded_run,
        (Mutant("rounded_up", "So it does rounded up.", partial(rounded_run, shorter=False)),),
    )
    yield Obligation(
        _PREFIX,
        "While nothing is evicted of what the longest hit spans, dense caching could serve the "
        "rounded one.",
        prefix_suffices,
        (Mutant("evicted", "So it could after.", partial(prefix_suffices, spared=False)),),
        rests_on=(_ALL, _ROUNDED),
    )
    yield Obligation(
        "lookup_returns_the_dense_hit_rounded_down",
        "Then lookup returns at least the hit of dense caching rounded down to the interval.",
        rounded_lookup,
        (
            Mutant(
                "evicted",
                "So it does when dense caching could not serve that.",
                partial(rounded_lookup, dense_has_it=False),
            ),
        ),
        rests_on=(_ADDED, _AGREES, _PREFIX),
    )
    yield from _replays(INTERVAL)


def _latest() -> Iterable[Obligation]:
    yield from _history(LATEST)
    yield from _hits()
    yield from _replays(LATEST)


def _replays(mode: str) -> Iterable[Obligation]:
    """That the caches agree on what a request promises to those that come back to it."""
    run = partial(run_is_kept, mode=mode)
    yield Obligation(
        _RUN,
        "A request keeps each block that a hit requires which it promises to a resend, an "
        "extension or a sibling, in a group of any kind.",
        run,
        tuple(
            Mutant(
                f"off_the_boundary_{kind}",
                f"So it does when the hit is one block longer, in {kind} groups.",
                partial(run, slip=1, only=number),
            )
            for number, kind in enumerate(KINDS)
            if kind in retention.SPARSE_KINDS
        ),
    )
    yield Obligation(
        _BELOW,
        "What a promised hit requires of the blocks before the request's own hit, that hit "
        "requires, too.",
        run_below_a_hit,
        (
            Mutant(
                "shorter_promise",
                "So it does when the promised hit is shorter.",
                partial(run_below_a_hit, longer=False),
            ),
            Mutant(
                "two_blocks_more",
                "So it does of two blocks more.",
                partial(run_below_a_hit, slip=2),
            ),
        ),
    )
    yield Obligation(
        _BEGINS,
        "When a request is admitted, its promises are kept as far as its hit goes: of their runs, "
        "the blocks before the hit are cached.",
        promise_starts,
        (
            Mutant(
                "invalid_hit",
                "They are when its hit is not valid.",
                partial(promise_starts, hit_is_valid=False),
            ),
            Mutant(
                "skipped_blocks",
                "They are when the hit skips blocks of the run that it does not require.",
                partial(promise_starts, skips_none=False),
            ),
        ),
        rests_on=(_ALWAYS, _ALL, _BELOW),
    )
    yield Obligation(
        _OWN,
        "A chunk of the request itself keeps its promise, of a run that is now longer.",
        own_chunk,
        (
            Mutant(
                "skips", "It does when it skips some of the run.", partial(own_chunk, keeps=False)
            ),
        ),
        rests_on=(_RUN,),
    )
    yield Obligation(
        _OTHERS,
        "A chunk of any other request keeps the promise, or lapses it: when it computes anew a "
        "block of the run that was evicted, and does not keep it.",
        chunk_of_another,
        (
            Mutant(
                "never_lapses",
                "It keeps each promise.",
                partial(chunk_of_another, may_lapse=False),
            ),
        ),
    )
    yield Obligation(
        _LOSES,
        "An eviction of the same keys from both caches keeps the promise.",
        promised_eviction,
        (
            Mutant(
                "unnoticed",
                "It leaves all of the run there.",
                partial(promised_eviction, noticed=False),
            ),
        ),
    )
    yield Obligation(
        "no_step_is_the_first_to_break_a_promise",
        "No step is the first after which a promise is broken.",
        none_is_first,
        (Mutant("unkept", "None is, whatever it does.", partial(none_is_first, kept=False)),),
        rests_on=(_BEGINS, _OWN, _OTHERS, _LOSES),
    )
    history = "no_step_is_the_first_to_break_a_promise"
    yield Obligation(
        _STANDS,
        "Once its run is computed, a promised hit is valid just when it is with dense caching, "
        "unless the promise has lapsed.",
        promise_is_kept,
        (
            Mutant("lapsed", "So it is after.", partial(promise_is_kept, standing=False)),
            Mutant("halfway", "So it is before.", partial(promise_is_kept, computed=False)),
        ),
        rests_on=(history, _ALL),
    )
    spared = partial(promise_is_kept, spared=True)
    yield Obligation(
        _SPARED,
        "It is valid until a block of its run is evicted.",
        spared,
        (Mutant("evicted", "It is after that.", partial(spared, standing=False)),),
        rests_on=(history, _ALL),
    )
    yield promises.no_replay_hits_more()
    yield Obligation(
        "lookup_returns_the_promised_hit_when_dense_caching_would",
        "Lookup gives a resend or an extension its promised hit just when dense caching would, and "
        "otherwise no more than that.",
        replayed_lookup,
        (
            Mutant(
                "further_reach",
                "It does when it may hit more than that.",
                partial(replayed_lookup, reach=False),
            ),
            Mutant(
                "broken_promise",
                "It does when the caches differ there.",
                partial(replayed_lookup, agrees=False),
            ),
        ),
        rests_on=(_ADDED, _STANDS, _REACH),
    )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "lookup_agrees_under_dense_retention": tuple(_dense()),
    "lookup_agrees_under_interval_retention": tuple(_interval_mode()),
    "lookup_agrees_under_latest_retention": tuple(_latest()),
}
"""The obligations of each claim that producer and consumer agree, by its name."""
