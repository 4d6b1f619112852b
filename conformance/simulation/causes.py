"""What hits were lost by: each token that an unbounded cache would have served has one cause."""

from collections.abc import Sequence
from enum import StrEnum

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.simulation.bounds import Bound
from hitproof.conformance.simulation.player import Served


class Cause(StrEnum):
    """What a hit was lost by, in the order in which causes are looked for."""

    FAULT = "fault"
    """The lookup missed what is cached, or the tokens' blocks were not registered."""
    RETENTION = "retention"
    """Sparse retention does not promise it."""
    CAPACITY = "capacity"
    """Not even perfect foresight keeps it in a pool of this size."""
    EVICTION = "eviction order"
    """It was evicted, though the pool has room for what is used again."""
    POLICY = "policy"
    """Nothing was evicted: a policy of the release, or no step ended where a state was needed."""


def losses(bound: Bound, served: Served, donor: Served | None) -> dict[Cause, int]:
    """The tokens that a request lost, by cause; ``donor`` is the request that shares them."""
    left = max(0, bound.unbounded - served.hit)
    found: dict[Cause, int] = {}

    def lose(cause: Cause, tokens: int) -> None:
        nonlocal left
        tokens = min(left, max(0, tokens))
        if tokens:
            found[cause] = tokens
            left -= tokens

    lose(Cause.FAULT, served.valid - served.hit)
    lose(Cause.RETENTION, bound.unbounded - max(bound.promised, served.hit))
    if donor is not None and donor.unregistered:
        lose(Cause.FAULT, left)
    lose(Cause.CAPACITY, left - max(0, bound.foresight - served.hit))
    lose(Cause.EVICTION if served.evictions else Cause.POLICY, left)
    return found


def fault_codes(served: Sequence[Served]) -> dict[str, int]:
    """In how many requests each code showed."""
    found: dict[str, int] = {}
    for each in served:
        lookup = ""
        if each.hit != each.valid:
            lookup = Code.HIT_TOO_SHORT if each.hit < each.valid else Code.GROUP_LACKS_BLOCK
        for code in filter(None, (lookup, each.unregistered)):
            found[code] = found.get(code, 0) + 1
    return found
