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
from hitproof.proofs.obligation import Obligation

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
_NEVER = "no_step_is_the_first_to_break_a_promise"
_STANDS, _SPARED = "a_promised_hit_is_valid_in_both", "a_promised_hit_is_valid_until_evicted"
_REACH = "no_replay_hits_more"


def _history(mode: str) -> Iterable[Obligation]:
    """The induction over the steps of a history."""
    yield Obligation(
        _START,
        "Before any request the caches agree: nothing is cached that dense caching would not "
        "have, and of what dense caching would have, all that is owed is cached.",
        partial(start_agrees, mode=mode),
    )
    if mode == INTERVAL:
        yield Obligation(
            _KEPT,
            "A block that is kept for the interval is kept whatever else a request promises.",
            owed_is_kept,
        )
    yield Obligation(
        _CHUNK,
        "The caches agree after any chunk of any request, if the producer registers of it at least "
        "what is owed: the blocks of all groups that it completes, whatever they are.",
        partial(chunk_agrees, mode=mode),
        rests_on=(_KEPT,) if mode == INTERVAL else (),
    )
    yield Obligation(
        _EVICTION,
        "The caches agree after any eviction of the same keys from both, whole required runs "
        "among them.",
        partial(eviction_agrees, mode=mode),
    )
    yield Obligation(
        _ALWAYS,
        "No step of a history is the first after which an invariant is broken, if it holds at the "
        "start and each kind of step keeps it.",
        none_is_first,
        rests_on=(_START, _CHUNK, _EVICTION),
    )


def _hits() -> Iterable[Obligation]:
    """What makes a hit of several groups valid, on keys."""
    yield Obligation(
        _ONE,
        "A group of any kind serves a boundary just when lookup may and each key that the hit "
        "requires of it is cached.",
        served_by_one,
    )
    yield Obligation(
        _ALL,
        "Any number of groups serve a boundary just when lookup may in each, and all that the hit "
        "requires of all of them is cached.",
        served_by_all,
        rests_on=(_ONE,),
    )
    yield Obligation(
        _ADDED,
        "Dense caching serves each hit that is valid.",
        no_hit_is_added,
        rests_on=(_ALWAYS, _ALL),
    )


def _owed_runs(mode: str) -> Iterable[Obligation]:
    """That the caches agree on the boundaries that are owed to every request."""
    where = "on the interval" if mode == INTERVAL else "of any number of alignments"
    yield Obligation(
        _OWED,
        f"A block that a hit at a boundary {where} requires is owed, in a group of any kind.",
        partial(required_is_owed, mode=mode),
        rests_on=(_MULTIPLES,) if mode == INTERVAL else (),
    )
    yield Obligation(
        _AGREES,
        "Such a hit of any later request is valid just when it is with dense caching.",
        partial(hit_agrees, mode=mode),
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
        rests_on=(_ADDED, _AGREES),
    )
    yield Obligation(
        _ROUNDED,
        "What a group requires for a hit rounded down lies within what the hit spans, and lookup "
        "may serve it.",
        rounded_run,
    )
    yield Obligation(
        _PREFIX,
        "While nothing is evicted of what the longest hit spans, dense caching could serve the "
        "rounded one.",
        prefix_suffices,
        rests_on=(_ALL, _ROUNDED),
    )
    yield Obligation(
        "lookup_returns_the_dense_hit_rounded_down",
        "Then lookup returns at least the hit of dense caching rounded down to the interval.",
        rounded_lookup,
        rests_on=(_ADDED, _AGREES, _PREFIX),
    )
    yield from _replays(INTERVAL)


def _latest() -> Iterable[Obligation]:
    yield from _history(LATEST)
    yield from _hits()
    yield from _replays(LATEST)


def _replays(mode: str) -> Iterable[Obligation]:
    """That the caches agree on what a request promises to those that come back to it."""
    yield Obligation(
        _RUN,
        "A request keeps each block that a hit requires which it promises to a resend, an "
        "extension or a sibling, in a group of any kind.",
        partial(run_is_kept, mode=mode),
    )
    yield Obligation(
        _BELOW,
        "What a promised hit requires of the blocks before the request's own hit, that hit "
        "requires, too.",
        run_below_a_hit,
    )
    yield Obligation(
        _BEGINS,
        "When a request is admitted, its promises are kept as far as its hit goes: of their runs, "
        "the blocks before the hit are cached.",
        promise_starts,
        rests_on=(_ALWAYS, _ALL, _BELOW),
    )
    yield Obligation(
        _OWN,
        "A chunk of the request itself keeps its promise, of a run that is now longer.",
        own_chunk,
        rests_on=(_RUN,),
    )
    yield Obligation(
        _OTHERS,
        "A chunk of any other request keeps the promise, or lapses it: when it computes anew a "
        "block of the run that was evicted, and does not keep it.",
        chunk_of_another,
    )
    yield Obligation(
        _LOSES,
        "An eviction of the same keys from both caches keeps the promise.",
        promised_eviction,
    )
    yield Obligation(
        _NEVER,
        "No step is the first after which a promise is broken.",
        none_is_first,
        rests_on=(_BEGINS, _OWN, _OTHERS, _LOSES),
    )
    yield Obligation(
        _STANDS,
        "Once its run is computed, a promised hit is valid just when it is with dense caching, "
        "unless the promise has lapsed.",
        promise_is_kept,
        rests_on=(_NEVER, _ALL),
    )
    yield Obligation(
        _SPARED,
        "It is valid until a block of its run is evicted.",
        partial(promise_is_kept, spared=True),
        rests_on=(_NEVER, _ALL),
    )
    yield promises.no_replay_hits_more()
    yield Obligation(
        "lookup_returns_the_promised_hit_when_dense_caching_would",
        "Lookup gives a resend or an extension its promised hit just when dense caching would, and "
        "otherwise no more than that.",
        replayed_lookup,
        rests_on=(_ADDED, _STANDS, _REACH),
    )


OBLIGATIONS: dict[str, tuple[Obligation, ...]] = {
    "lookup_agrees_under_dense_retention": tuple(_dense()),
    "lookup_agrees_under_interval_retention": tuple(_interval_mode()),
    "lookup_agrees_under_latest_retention": tuple(_latest()),
}
"""The obligations of each claim that producer and consumer agree, by its name."""
