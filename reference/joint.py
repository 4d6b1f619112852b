"""The hit that several groups share: sequential lookups, repeated until nothing shrinks."""

from collections.abc import Callable, Sequence
from itertools import cycle


def find_longest_common_hit(lookups: Sequence[Callable[[int], int]], cap: int) -> int:
    """The longest hit of at most ``cap`` that is valid for every group; all in tokens.

    ``lookups`` has one function per group, and at least one: it returns the group's longest valid
    hit of at most the length that it is given. Which hits are valid for a group must not depend on
    that length, so the lookahead horizon stays fixed while the candidate shrinks. vLLM:
    ``HybridKVCacheCoordinator.find_longest_cache_hit``.
    """
    if not lookups:
        raise ValueError("a common hit needs at least one group")
    candidate, agreed = cap, 0
    for lookup in cycle(lookups):
        found = lookup(candidate)
        # A lookup that is given its own hit returns it unchanged.
        agreed = agreed + 1 if found == candidate else 1
        candidate = found
        # No hit at all is valid for every group.
        if agreed == len(lookups) or not found:
            break
    return candidate
