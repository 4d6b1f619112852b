"""What is noted about a run of a lookup while it is watched."""

import sys
from collections.abc import Container, Iterable
from typing import Any

from hitproof.conformance.exploration.attributes import Attributes


class Notes:
    """What a run changes, and why it cannot be merged or judged.

    Attributes:
        changed: the objects that were changed.
        reason: why states cannot be merged; "" while they can.
        depends: on what the lookup depends that no state has; "" while it does not.
        attributes: what all runs of the lookup store and read.
    """

    def __init__(self, attributes: Attributes, inputs: Iterable[object]) -> None:
        self.changed: list[Any] = []
        self.reason = ""
        self.depends = ""
        self.attributes = attributes
        self._inputs = {id(each) for each in inputs}
        self._addresses: set[int] = set()
        self._memos: dict[int, tuple[Any, int]] = {}

    def change(self, obj: Any) -> None:
        """Note that an object is changed."""
        if id(obj) not in self._addresses:
            self._addresses.add(id(obj))
            self.changed.append(obj)

    def store(self, obj: Any, name: str, value: Any) -> None:
        """Note that an attribute is stored, unless nothing that the lookup does depends on it."""
        if id(obj) not in self._inputs or not self.attributes.store(obj, name, value):
            self.change(obj)

    def refuse(self, reason: str) -> None:
        """Note why states cannot be merged."""
        self.reason = self.reason or reason

    def depend(self, reason: str) -> None:
        """Note on what the lookup depends that no state has."""
        self.depends = self.depends or reason

    def memo(self, function: Any) -> None:
        """Note a call of a function with a memo, which changes it when the answer is new."""
        self._memos.setdefault(id(function), (function, function.cache_info().misses))

    def outliving(self, walked: Container[int]) -> Any:
        """An object that was changed, is not among the ``walked`` addresses, and still exists.

        Returns None if there is none. What is gone is forgotten.
        """
        for function, misses in self._memos.values():
            if function.cache_info().misses != misses:
                return function
        progress = True
        while progress:
            progress = False
            for place in range(len(self.changed) - 1, -1, -1):
                obj = self.changed[place]
                if id(obj) in walked:
                    continue
                if sys.getrefcount(obj) <= _UNUSED:
                    self._addresses.discard(id(obj))
                    del obj, self.changed[place]
                    progress = True
        return next((each for each in self.changed if id(each) not in walked), None)


_UNUSED = 3  # ours: the list's, the variable's and the argument's
