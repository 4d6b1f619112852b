"""JSON of what objects say: their attributes by name, in the values that JSON has."""

from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it: an object by its ``as_json``, an enum by its text, others as such."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    assert isinstance(value, Collection)
    return [plain(each) for each in value]


def picked(of: object, *names: str, **renamed: str) -> dict[str, Any]:
    """The attributes of an object that are named, as JSON.

    Those that are ``renamed`` have another key, and may be attributes of attributes: ``"a.b"``.
    """
    paths = {name: name for name in names} | renamed
    return {key: plain(attrgetter(path)(of)) for key, path in paths.items()}
