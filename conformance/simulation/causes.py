"""What hits were lost by: each token that an unbounded cache would have served has one cause."""

from collections.abc import Sequence
from enum import StrEnum

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.simulation.bounds import Bound
from hitproof.conformance.simulation.player import Served


class Cause(StrEnum):
    """What a hit was lost by."""

    FAULT = "fault"
    """The lookup missed what is cached, or the tokens' blocks were not registered."""
    HORIZON = "lookahead horizon"
    """The lookup looks no further, for the block that drafts need, than its release does."""
    SINGLE_GROUP = "single group"
    """The same, in a release that looks further where there are several groups."""
    RETENTION = "retention"
    """Sparse retention does not promise it."""
    JUNCTIONS = "junctions"
    """It is promised where releases keep a prefix that two requests share, which this one drops."""
    STEPS = "step ends"
    """No step ended there, so that a recurrent state of it was never computed."""
    CAPACITY = "capacity"
    """Not even perfect foresight keeps it in a pool of this size."""
    EVICTION = "eviction order"
    """It was evicted, though the pool has room for what is used again."""
    TIER_UNIT = "tier's unit"
    """A tier cannot serve it: its hits end on multiples of larger chunks, or take more tokens."""
    TIER_STORE = "tier's store"
    """The tier stores prompts alone, and these tokens were sampled, or its settings keep it out."""
    TIER_ROOM = "tier's room"
    """The tier stored it, and evicted it."""
    UNKNOWN = "unknown"
    """Nothing of the above: a finding."""


class Limit(StrEnum):
    """Why tokens that were computed before cannot be hit, whatever is cached."""

    UNIT = "ends of hash units"
    """Hits end where a hash does."""
    BLOCKS = "ends of blocks"
    """Hits end where the blocks of all groups do."""
    ATTENTION = "groups without hits inside blocks"
    """The same; without such a group they could end inside the blocks of the others."""
    DRAFTS = "lookahead of drafts"
    """The tokens after the hit have to be cached, too."""


def limits(bound: Bound) -> dict[Limit, int]:
    """The tokens that a request shares and cannot hit, but the last one of its prompt."""
    setup, shared = bound.setup, min(bound.shared, bound.cap)
    unit, ends = setup.hash_block_size, shared // setup.alignment * setup.alignment
    blocks = Limit.ATTENTION if setup.coarse else Limit.BLOCKS
    found = {
        Limit.UNIT: shared % unit,
        blocks: shared // unit * unit - ends,
        Limit.DRAFTS: ends - bound.unbounded,
    }
    return {limit: tokens for limit, tokens in found.items() if tokens}


def losses(bound: Bound, served: Served, donor: Served | None) -> dict[Cause, int]:
    """The tokens that a request lost, by cause; ``donor`` is the request that shares them.

    From what an unbounded cache would have served down to what was, each cause takes what is lost
    by it and by none before it.
    """
    found: dict[Cause, int] = {}
    floor = min(bound.unbounded, max(served.hit, served.valid))
    level = bound.unbounded

    def lose(cause: Cause, to: int) -> None:
        nonlocal level
        to = max(floor, to)
        if to < level:
            found[cause] = found.get(cause, 0) + level - to
            level = to

    several = len(bound.setup.groups) > 1
    lose(Cause.HORIZON if several else Cause.SINGLE_GROUP, bound.within(served.horizon))
    lose(Cause.RETENTION, max(bound.promised, bound.junction))
    if not served.junctions:
        lose(Cause.JUNCTIONS, bound.promised)
    if donor is not None:
        if donor.unregistered:
            lose(Cause.FAULT, floor)
        if donor.ends is not None:
            ends = (end for end in donor.ends if end <= level)
            lose(Cause.STEPS, max(ends, default=0))
    if served.tier is not None:
        # What the pool lost the tier could have.
        for cause, to in served.tier["levels"]:
            lose(Cause(cause), to)
    else:
        lose(Cause.CAPACITY, bound.foresight)
        lose(Cause.EVICTION if served.evictions else Cause.UNKNOWN, floor)
    floor = served.hit
    lose(Cause.FAULT, floor)
    return found


def fault_codes(served: Sequence[Served]) -> dict[str, int]:
    """In how many requests each code showed."""
    found: dict[str, int] = {}
    for each in served:
        lookup = ""
        if each.hit != each.valid:
            lookup = Code.HIT_TOO_SHORT if each.hit < each.valid else Code.GROUP_LACKS_BLOCK
        of_tier = each.tier["code"] if each.tier is not None else ""
        for code in filter(None, (lookup, each.unregistered, of_tier)):
            found[code] = found.get(code, 0) + 1
    return found
