"""What a function under symbolic execution computes with, besides numbers and truth values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hitproof.proofs.unbounded.knowledge import Values
from hitproof.proofs.unbounded.terms import Arithmetic, Number, Truth
from hitproof.spec.terms import Formula, Term


class Raised(Exception):
    """The function raises an exception.

    Attributes:
        what: the exception's name.
        place: file and line.
    """

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(f"{what} ({place})" if place else what)
        self.what = what
        self.place = place


class Broken(Exception):
    """Something is called as it may not be.

    Attributes:
        sentence: what does not hold.
        values: values with which it does not.
    """

    def __init__(self, sentence: str, values: Values) -> None:
        super().__init__(sentence)
        self.sentence, self.values = sentence, values


@dataclass(frozen=True)
class Unknown:
    """A value that nothing is known about; to use it is unsupported.

    Attributes:
        why: where it comes from.
        needed: what is done before it is used, if anything; it may end the execution.
    """

    why: str
    needed: Callable[[], None] | None = None


@dataclass(frozen=True)
class Block:
    """A cached block, the one with that place in the request; -1 is the null block.

    ``group`` is the place of its group's id among those that are looked up together.
    """

    place: Term
    group: int = 0


NULL = Block(-1)


@dataclass(frozen=True)
class Key:
    """The hash under which the block at a place of the request is cached."""

    place: Term


@dataclass(frozen=True)
class Maybe:
    """None, or something of which nothing else is asked, if ``given``.

    Attributes:
        given: whether it is something.
        what: what that is, by values that are equal only if it is the same.
    """

    given: Formula
    what: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Distinct:
    """A set of numbers, in no order."""

    items: tuple[Term, ...]


BEYOND = Unknown("an item that is beyond the end of its list")


@dataclass(eq=False)
class Listing:
    """A list, by its items or, of any length, by the item at the arbitrary position.

    Attributes:
        items: the items, None where only one is known.
        length: how many there are; of ``items``, their number.
        cell: the item at `Arithmetic.position`, if the list is longer than that.
        same: what all items are, if they are.
        count: how often the block of the position is in it, where that is known and is asked for.
    """

    items: list[Any] | None
    length: Term = 0
    cell: Any = BEYOND
    same: Any = None
    born: int = 0
    count: Any = None

    def size(self) -> Term:
        """How many items there are."""
        return self.length if self.items is None else len(self.items)


@dataclass(eq=False)
class Marks:
    """A set of small numbers: of each from 0 on, whether it is in it."""

    members: list[Formula]
    born: int = 0


@dataclass(frozen=True)
class Items:
    """What can be iterated and indexed, and does not change.

    Attributes:
        length: how many items there are, at least 0.
        at: the item at a place from 0 on.
        python_type: the type that it has for the function.
        lists: the lists that the items are read from.
    """

    length: Term
    at: Callable[[Term], Any]
    python_type: type = object
    lists: tuple["Listing", ...] = ()


@dataclass(eq=False)
class Record:
    """An object by its attributes; methods and the like are those of its class.

    Attributes:
        python_type: its class.
        attributes: those of the instance. What is not among them cannot be read.
        born: when the function made it, so that it may set attributes; 0 if it did not.
        origin: what it is a copy of, for one of two versions of a function.
    """

    python_type: type
    attributes: dict[str, Any] = field(default_factory=dict)
    born: int = 0
    origin: "Record | None" = None


@dataclass(eq=False)
class Entries:
    """A dict whose keys are strings; nothing but ``get`` and items can be asked of it."""

    entries: dict[str, Any]
    born: int = 0


@dataclass(eq=False)
class Filled:
    """A list in which one item takes the place of some others.

    Attributes:
        original: the items before that.
        item: what is in their place.
        low, high: the first of these places, and the one past the last; between them each place
            has either.
        cell: the item at `Arithmetic.position`.
        changed: when a place was filled last.
    """

    original: "Items"
    item: Any
    low: Term
    high: Term
    cell: Any
    born: int = 0
    changed: int = 0


@dataclass(frozen=True)
class Above:
    """``super()``: the attributes of an object that the classes after one have.

    Attributes:
        of: that class.
        receiver: the object, or a class.
    """

    of: type
    receiver: Any


@dataclass(frozen=True)
class Contract:
    """A function that is described, instead of executed. It takes the machine first.

    Attributes:
        apply: what it does.
        told: what it is described by; two that are described by the same are alike.
    """

    apply: Callable[..., Any]
    told: Any = None


@dataclass(frozen=True)
class Bound:
    """A function with its first argument."""

    function: Any
    receiver: Any


def is_number(value: Any) -> bool:
    """Whether it is an integer and no truth value."""
    return isinstance(value, Number) or type(value) is int


def is_truth(value: Any) -> bool:
    """Whether it is a truth value."""
    return isinstance(value, (bool, Truth))


def is_same(left: Any, right: Any) -> bool:
    """Whether two values are certainly the same one."""
    if isinstance(left, (Number, Truth)) and isinstance(right, (Number, Truth)):
        return type(left) is type(right) and left.key == right.key
    if isinstance(left, (Block, Key)) and isinstance(right, (Block, Key)):
        of_group = getattr(left, "group", 0) == getattr(right, "group", 0)
        return type(left) is type(right) and of_group and is_same(left.place, right.place)
    if isinstance(left, Unknown) and isinstance(right, Unknown):
        return True
    if isinstance(left, Contract) and isinstance(right, Contract) and left.told is not None:
        return left.told is right.told
    if isinstance(left, (int, str)) and isinstance(right, (int, str)):
        return type(left) is type(right) and left == right
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return left is right


def equal(here: Arithmetic, left: Any, right: Any) -> Formula:
    """Whether two values are equal; False also where that is not known."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return False
    if is_truth(left) and is_truth(right):
        return (left & right) | (here.not_(left) & here.not_(right))
    if is_number(left) and is_number(right):
        return left == right
    if isinstance(left, Maybe) and isinstance(right, Maybe) and left.what and right.what:
        same = equal(here, left.what, right.what)
        return equal(here, left.given, right.given) & (here.not_(left.given) | same)
    if isinstance(left, (Block, Key)) and type(left) is type(right):
        null = isinstance(left, Block) and (left.place == -1) & (right.place == -1)
        of_group = getattr(left, "group", 0) == getattr(right, "group", 0)
        return (left.place == right.place) if of_group else null
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        holds: Formula = True
        for one, other in zip(left, right, strict=True):
            holds = holds & equal(here, one, other)
        return holds
    return is_same(left, right)


def type_of(value: Any) -> type | None:
    """The type that a value has for the function; None if that is not modelled."""
    if isinstance(value, (Items, Record)):
        return None if value.python_type is object else value.python_type
    if isinstance(value, (Listing, Filled, Marks)):
        return set if isinstance(value, Marks) else list
    if is_truth(value):
        return bool
    if is_number(value):
        return int
    return type(value) if value is None or isinstance(value, (str, tuple)) else None
