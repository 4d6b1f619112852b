"""What the fixed point asks of the groups' lookups.

That it is the longest common hit is what `check_common_hit` proves of it (test_common_hit_check).
"""

from functools import partial

import pytest

from hitproof.reference.spec_groups import find_longest_common_hit


def test_no_group_is_no_common_hit() -> None:
    with pytest.raises(ValueError, match="at least one group"):
        find_longest_common_hit([], 4)


def test_a_group_is_not_asked_again_for_its_own_hit() -> None:
    asked: list[tuple[str, int]] = []

    def lookup(name: str, hits: tuple[int, ...], candidate: int) -> int:
        asked.append((name, candidate))
        return max(hit for hit in hits if hit <= candidate)

    full, window = partial(lookup, "full", (0, 2, 4)), partial(lookup, "window", (0, 2))
    assert find_longest_common_hit([full], 5) == 4
    assert asked == [("full", 5)]
    asked.clear()
    assert find_longest_common_hit([full, window], 5) == 2
    assert asked == [("full", 5), ("window", 4), ("full", 2)]
