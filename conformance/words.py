"""Counts and kinds as sentences have them."""

from collections.abc import Iterable, Sized

from pydantic import ValidationError

from hitproof.spec.groups import Group


def count(things: Sized | int, one: str, many: str = "") -> str:
    """How many things there are, in words; ``things`` are they, or their number."""
    number = things if isinstance(things, int) else len(things)
    return f"{number} {one if number == 1 else many or one + 's'}"


def in_tokens(number: int) -> str:
    """A number of tokens, in words."""
    return count(number, "token")


def in_blocks(number: int) -> str:
    """A number of blocks, in words."""
    return count(number, "block")


def kinds_of(groups: Iterable[Group]) -> str:
    """The kinds of some groups, each once, in whatever order the groups are."""
    return " + ".join(sorted({group.kind for group in groups}))


def first_of(error: ValidationError, whole: str) -> str:
    """The first thing that is wrong, after its place; ``whole`` is what all of it is called."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
