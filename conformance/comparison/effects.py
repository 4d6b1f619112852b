"""What a change means to users."""

from enum import StrEnum

from hitproof.spec.claims import Divergence


class Effect(StrEnum):
    """What a change means to users, worst first."""

    UNSOUND = "hits made unsound"
    CRASH = "newly crashing"
    STUCK = "requests that finish no more"
    DRAFTS = "drafts made wrong"
    LOST = "hits lost"
    REFUSED = "newly refused"
    PREEMPTED = "more preemptions"
    HELD_MORE = "fewer blocks free"
    WASTE = "waste grown"
    ORDER_COSTS = "hits lost to another eviction order, on balance"
    GAINED = "hits gained"
    SOUND = "unsound hits gone"
    FIXED = "crashes gone"
    UNSTUCK = "requests that finish now"
    DRAFTS_GONE = "wrong drafts gone"
    ADMITTED = "refused no more"
    PREEMPTED_LESS = "fewer preemptions"
    HELD_FEWER = "more blocks free"
    WASTE_GONE = "waste gone"
    ORDER_PAYS = "hits gained by another eviction order, on balance"
    MORE = "blocks cached more"
    FEWER = "blocks cached fewer"
    OTHERS = "other blocks cached"
    CRASHES = "crashes changed"
    EMPTY = "more empty steps"
    EMPTY_LESS = "fewer empty steps"
    STEPS = "steps of schedulers changed"
    CONNECTOR = "flags for connectors changed"
    CAPPED = "hits under a cap changed"
    LOCAL_PREFIXES = "local prefixes for connectors changed"
    TABLES = "block tables changed"
    SHARED = "shared prefixes changed"
    COPIES = "block copies changed"
    ORDER = "eviction order changed"
    COUNTS = "block counts changed"
    EVENTS = "events changed"
    STATISTICS = "statistics changed"


HARMFUL = frozenset(
    {
        Effect.UNSOUND,
        Effect.CRASH,
        Effect.STUCK,
        Effect.DRAFTS,
        Effect.LOST,
        Effect.REFUSED,
        Effect.PREEMPTED,
        Effect.HELD_MORE,
        Effect.WASTE,
        Effect.ORDER_COSTS,
    }
)
"""Effects that count against the head.

The others are gains, or differences that no request is worse off for. Another eviction order is no
harm by itself: some request loses a hit by it and another one gains one, so those are summed up.
"""


GAINS = frozenset(
    {
        Effect.GAINED,
        Effect.SOUND,
        Effect.FIXED,
        Effect.UNSTUCK,
        Effect.DRAFTS_GONE,
        Effect.ADMITTED,
        Effect.PREEMPTED_LESS,
        Effect.HELD_FEWER,
        Effect.WASTE_GONE,
        Effect.ORDER_PAYS,
    }
)
"""Effects by which some request is better off."""


def of_hits(before: int, after: int, was: str, now: str) -> Effect:
    """What it means that a hit is longer or shorter; ``was`` and ``now`` are what is wrong with it.

    Those are divergences, or "" for a hit that may be served.
    """
    if after > before:
        made = {Divergence.UNSOUND: Effect.UNSOUND, Divergence.WRONG_DRAFTS: Effect.DRAFTS}
        return made.get(Divergence(now), Effect.GAINED) if now else Effect.GAINED
    gone = {Divergence.UNSOUND: Effect.SOUND, Divergence.WRONG_DRAFTS: Effect.DRAFTS_GONE}
    return gone.get(Divergence(was), Effect.LOST) if was else Effect.LOST
