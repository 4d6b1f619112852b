"""The digest of what a statement rests on changes with all that it may read, and with no more."""

import sys
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hitproof.proofs.unbounded.reading import digest
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.values import Listing, Record

PROGRAM = Path(__file__).with_name("cases").joinpath("program.txt").read_text("utf-8")

OTHERS = {
    "a callee": ("number + 1", "number + 2"),
    "a constant": ("LIMIT = 3", "LIMIT = 4"),
    "an attribute of a base class": ("unit = 1", "unit = 2"),
    "a method of a base class": ("math.floor", "math.ceil"),
    "what Python calls by itself": ("return 5", "return 6"),
    "a property": ("return LIMIT", "return LIMIT + 1"),
    "a default": ("number=1", "number=2"),
    "a variable of an outer function": ("made(7)", "made(8)"),
    "an alias of types": ("Union[Size, int]", "Union[Width, int]"),
    "what makes an object": ("self.number = number", "self.number = number + 1"),
    "what makes an object of a class that is given": (
        "total = Made(2).number",
        "total = manager.kind().number",
    ),
    "a decorator": ("@wrapped\n", ""),
    "a base class": ("class Manager(Base)", "class Manager(Base, Size)"),
    "a method that is overridden": (
        "    @property\n",
        "    def rounded(self, number):\n        return number\n\n    @property\n",
    ),
    "a class that is registered": ("class Manager", "Base.register(Size)\n\n\nclass Manager"),
    "a metaclass": ("class Base(ABC)", "class Base"),
    "a hidden built-in": ("UNUSED = 4", "isinstance = print"),
}
SAME = {
    "a docstring": ("Documented", "Changed"),
    "a comment and lines": ("total  # the rest", "total\n\n"),
    "a constant that is not named": ("UNUSED = 4", "UNUSED = 5"),
    "an attribute that is not named": ("unused = 2", "unused = 3"),
    "what would make an object that is given": ("self.number = 4", "self.number = 5"),
    "a function that is not called": ("return 1\n", "return 2\n"),
}

_number = count()


def of_program(directory: Path, text: str) -> str:
    """The digest of a call of its function on a manager, with the program as ``program``."""
    place = directory / str(next(_number))
    place.mkdir()
    (place / "program.py").write_text(text)
    sys.modules.pop("program", None)
    sys.path.insert(0, str(place))
    try:
        program = import_module("program")
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("program", None)
    manager = Record(program.Manager, {"sizes": Listing([1, 2])})
    given = Record(program.Given)
    return digest(program.lookup, {"manager": manager, "given": given, "number": 3})


def test_a_class_that_is_given_may_be_called(tmp_path: Path) -> None:
    """Where the name of what is called does not tell which class it is."""
    calls = PROGRAM.replace("total = Made(2).number", "total = (kind := number)() and number(1)")
    old, new = SAME["what would make an object that is given"]
    assert of_program(tmp_path, calls) != of_program(tmp_path, calls.replace(old, new))


@pytest.mark.parametrize("change", OTHERS | SAME)
def test_digest_changes_with_what_is_read(tmp_path: Path, change: str) -> None:
    old, new = (OTHERS | SAME)[change]
    assert old in PROGRAM
    changed = of_program(tmp_path, PROGRAM.replace(old, new, 1))
    assert (changed == of_program(tmp_path, PROGRAM)) is (change in SAME)


def test_digest_tells_values_apart() -> None:
    shared = Listing([1])
    told: list[Any] = [
        1,
        True,
        None,
        "1",
        (1,),
        Listing([1]),
        Record(Path, {"a": 1}),
        Record(Path, {"b": 1}),
    ]
    told += [Path, Listing([shared, shared]), Listing([Listing([1]), Listing([1])])]
    assert len({digest(each) for each in told}) == len(told)


def test_what_is_opaque_has_no_digest() -> None:
    with pytest.raises(Unsupported):
        digest(object())
