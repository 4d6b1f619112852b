"""Parts of a manager's state: what a violation is evidence of, and what it leaves wrong."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Block:
    """What one block holds, and how often it is held."""

    block_id: int


@dataclass(frozen=True)
class Table:
    """A request's block table in one group.

    Attributes:
        request: the request.
        group: the group, an index.
        until: what is wrong is wrong before this token, and so is what is read there; None
            for the whole table.
    """

    request: str
    group: int
    until: int | None = None


@dataclass(frozen=True)
class Key:
    """The key of one prefix, by its name: whether it stands for that prefix alone."""

    name: str


@dataclass(frozen=True)
class Books:
    """The free queue and the count of its blocks."""


Part: TypeAlias = Block | Table | Key | Books

Evidence: TypeAlias = tuple[frozenset[Part], ...]
"""What a violation is seen in, each with the parts of which any explains it if it is wrong."""
