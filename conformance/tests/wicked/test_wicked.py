"""No wicked lookup is proved, and no benign one is refuted."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from hitproof.conformance.checks import explored
from hitproof.conformance.checks.lookup import check_lookup
from hitproof.conformance.exploration.explorer import explore
from hitproof.conformance.reference.subject import ReferenceLookup, ReferenceSubject
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.tests.wicked import c_code, keeping
from hitproof.conformance.tests.wicked.lookups import BENIGN, WICKED, Find, hit
from hitproof.conformance.tests.wicked.smuggling import PATTERN, SMUGGLING, kind_of
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

_BLOCKS = 24
_MODULES = (c_code, keeping)  # imported, they are listed


class Noting:
    """A pool that notes what was found in a block table."""

    def __init__(self, pool: Any, keys: Sequence[bytes], limit: int) -> None:
        self.real = pool
        self.null_block = pool.null_block
        self.table = [pool.null_block] * limit
        self._places = keys

    def get_cached_block(self, key: bytes, group_ids: Sequence[int]) -> Any:
        found = self.real.get_cached_block(key, group_ids)
        if found:
            self.table[self._places.index(key)] = found[0]
        return found


class FoundLookup(ReferenceLookup):
    """Serves the hit that a function finds."""

    def __init__(self, configuration: Configuration, find: Find) -> None:
        super().__init__(configuration)
        self._find = find

    @property
    def inputs(self) -> Sequence[object]:
        return self.keys, *self.keys, self._find

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        (keys,) = self.keys
        limit = min(max_length, len(keys))
        noting = Noting(pool, keys, limit)
        length = self._find(noting, keys, limit)
        del noting.table[length:]
        return LookupAnswer(length, [noting.table])


class FoundSubject(ReferenceSubject):
    def __init__(self, find: Find) -> None:
        super().__init__()
        self._find = find

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        assert isinstance(judged, Configuration)
        return FoundLookup(judged, self._find)


def statuses(find: Find) -> tuple[set[Status], str]:
    result = check_lookup(
        FoundSubject(find), single_group(GroupKind.SLIDING_WINDOW, 1, 1, 3, False, _BLOCKS)
    )
    return {*result.statuses.values()}, result.detail


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not merged is given up early."""
    monkeypatch.setattr(explored, "explore", partial(explore, budget=1_000))


@pytest.mark.parametrize("name", WICKED)
def test_a_wicked_lookup_is_not_proved(name: str) -> None:
    settled, _ = statuses(WICKED[name])
    assert settled & {Status.REFUTED, Status.INCONCLUSIVE}


@pytest.mark.parametrize("name", BENIGN)
def test_a_benign_lookup_is_proved(name: str) -> None:
    assert statuses(BENIGN[name]) == ({Status.PROVED}, "")


class Whole:
    """A pool in which the answers are those of the pattern, from the right, and then hits."""

    null_block = None

    def get_cached_block(self, key: bytes, _: Sequence[int]) -> Any:
        asked = _BLOCKS - 1 - key[0]
        return [key] if asked >= len(PATTERN) or PATTERN[asked] else None


@pytest.mark.parametrize("name", SMUGGLING)
def test_what_is_smuggled_makes_an_answer_wrong(name: str) -> None:
    keys = [bytes([block]) for block in range(_BLOCKS)]
    right = hit(Whole(), keys, _BLOCKS)
    kind_of.cache_clear()
    assert SMUGGLING[name](Whole(), keys, _BLOCKS) == right + 1


def test_there_are_enough() -> None:
    assert len(WICKED) >= 200
