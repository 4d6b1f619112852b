"""Wicked lookups that store on an object which they are given again, and read it out of sight."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.tests.wicked import reading
from hitproof.conformance.tests.wicked.lookups import BENIGN, MANY, WICKED, hit, wrong_if


class Keeping:
    """A lookup that is an object. It stores how much of the request was not served."""

    missing = 0
    """So that it can be read before it is stored."""

    def __call__(self, pool: Any, keys: Sequence[bytes], limit: int) -> int:
        right = hit(pool, keys, limit)
        strange = self.strange()
        self.store(limit - right)
        return wrong_if(strange, right, limit)

    def store(self, missing: int) -> None:
        self.missing = missing

    def strange(self) -> bool:
        """Whether the hit is served wrongly, by what was stored in the run before."""
        raise NotImplementedError


def keeping(kind: type[Keeping]) -> type[Keeping]:
    WICKED[kind.__name__] = kind()
    return kind


STRANGE: dict[str, Callable[[Any], bool]] = {
    "ReadNextTime": lambda self: self.missing == MANY,
    "ReadByABuiltName": lambda self: getattr(self, "".join(("miss", "ing"))) == MANY,
    "ReadInItsDict": lambda self: self.__dict__.get("miss" + "ing".lower()) == MANY,
    "ReadByVars": lambda self: MANY in vars(self).values(),
    "ReadElsewhere": reading.is_many,
    "ReadByAProperty": lambda self: self.many == MANY,
}
"""How what was stored is read; C code reads it within a property."""
for _name, _strange in STRANGE.items():
    _methods = {"strange": _strange, "many": property(operator.attrgetter("missing"))}
    keeping(type(f"StoredAnd{_name}", (Keeping,), _methods))


@keeping
class StoredByASetter(Keeping):
    _kept = 0

    @property
    def note(self) -> int:
        return self._kept

    @note.setter
    def note(self, missing: int) -> None:
        self._kept = missing

    def store(self, missing: int) -> None:
        self.note = missing

    def strange(self) -> bool:
        return self.note == MANY


@keeping
class StoredAndGotByEveryWay(Keeping):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def strange(self) -> bool:
        return bool(self.__getattribute__("missing") == MANY)


class _ForAnotherLength(Keeping):
    """One request stores what only another one reads."""

    stores = 0
    """Which requests store: the even or the odd ones."""

    def __call__(self, pool: Any, keys: Sequence[bytes], limit: int) -> int:
        right = hit(pool, keys, limit)
        if limit % 2 == self.stores:
            self.store(limit - right)
        elif self.strange():
            return wrong_if(True, right, limit)
        return right

    def strange(self) -> bool:
        return self.missing == MANY


@keeping
class StoredAndThenReadForAnotherLength(_ForAnotherLength):
    pass


@keeping
class ReadAndThenStoredForAnotherLength(_ForAnotherLength):
    stores = 1


@keeping
class StoredAList(Keeping):
    """What is stored is changed later, by another holder of it."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self._hidden = self.kept

    def store(self, missing: int) -> None:
        self.note = self._hidden
        self._hidden.append(missing)

    def strange(self) -> bool:
        return MANY in self._hidden[-1:]


@dataclass
class _Note:
    missing: int = 0


@keeping
class StoredAndCompared(Keeping):
    """A generated ``__eq__`` reads all fields of what was stored."""

    def __init__(self) -> None:
        self._note = _Note()

    def store(self, missing: int) -> None:
        self._note.missing = missing

    def strange(self) -> bool:
        return self._note == _Note(MANY)


class Leaving(Keeping):
    """Leaves a note for others, which no lookup reads."""

    def strange(self) -> bool:
        return False

    def store(self, missing: int) -> None:
        self.uncached = missing

    def others(self) -> int:
        """What a scheduler would ask."""
        return self.uncached


BENIGN["right_and_leaves_a_note"] = Leaving()
