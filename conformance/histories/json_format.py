"""Histories as JSON: strict reading, human-readable writing, and the JSON schema."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from hitproof.conformance.histories.schema import STRICT, History, HistoryError

_T = TypeVar("_T")
_SCHEMA = "`hitproof replay --schema` prints the schema"
_MESSAGES = {
    "unexpected_keyword_argument": "there is no such field",
    "extra_forbidden": "there is no such field",
    "missing": "this field is required",
    "union_tag_not_found": "'do' is missing, which names the kind of the step",
}
"""What is said where pydantic speaks of Python, by the type of its error."""


@cache
def _adapter() -> TypeAdapter[History]:
    """Made when it is first used, which takes longer than all imports of this package."""
    return TypeAdapter(History)


def schema() -> dict[str, Any]:
    """The JSON schema of a history."""
    return described(History)


def described(format_: type[Any]) -> dict[str, Any]:
    """The JSON schema of a format; the docstrings of its fields describe them."""
    STRICT["use_attribute_docstrings"] = True
    try:
        return TypeAdapter(format_).json_schema()
    finally:
        del STRICT["use_attribute_docstrings"]


def read(text: str | bytes, where: str = "the history") -> History:
    """The history in ``text``. Raises `HistoryError` with one sentence that begins with ``where``.

    Unknown fields, duplicate names and values of the wrong type are rejected.
    """
    return strictly(_adapter(), text, where)


def strictly(
    adapter: TypeAdapter[_T],
    text: str | bytes,
    where: str,
    error: type[ValueError] = HistoryError,
    schema_at: str = _SCHEMA,
) -> _T:
    """What ``text`` says, by the adapter of its format; see `read`.

    ``error`` is raised with a sentence, in which ``schema_at`` says where the schema is.
    """
    try:
        json.loads(text, object_pairs_hook=no_duplicates)
        return adapter.validate_json(text, strict=True)
    except ValidationError as invalid:
        raise error(f"{where}: {in_a_sentence(invalid, schema_at)}") from invalid
    except (ValueError, RecursionError) as invalid:
        raise error(f"{where} is not JSON ({invalid}); fix it there") from invalid


def read_lines(text: bytes, where: str, reader: Callable[[bytes, str], _T]) -> list[_T]:
    """The histories in ``text``, one per line, at least one, as ``reader`` reads each.

    Raises `HistoryError`; see `read`.
    """
    histories = [
        reader(line, f"{where} line {number}")
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not histories:
        raise HistoryError(f"{where} has no history; a .jsonl file has one per line")
    return histories


def no_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """For `json.loads`: ValueError where an object has a name twice."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} occurs twice in one object")


def in_a_sentence(invalid: ValidationError, remedy: str = _SCHEMA) -> str:
    """The first thing that is wrong, where it is, and what to do about it."""
    error = invalid.errors(include_url=False, include_context=False)[0]
    message = _MESSAGES.get(error["type"])
    return _sentence(error["loc"], f"{message}; {remedy}" if message else error["msg"])


def _sentence(location: Sequence[str | int], message: str) -> str:
    text = message.removeprefix("Value error, ")
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return f"{path.lstrip('.')}: {text}" if path else text


def as_json(history: History) -> dict[str, Any]:
    """The history as JSON values, without fields that have their defaults."""
    plain = as_plain(history)
    assert isinstance(plain, dict)
    return plain


def write(history: History) -> str:
    """The history as JSON text, one request or step per line; `read` reads it."""
    data = as_json(history)
    lines = ["{"]
    if history.about:
        lines.append(f' "about": {json.dumps(history.about)},')
    lines.append(f' "engine": {json.dumps(data["engine"])},')
    rows = [f"  {json.dumps(n)}: {json.dumps(r)}" for n, r in data["requests"].items()]
    lines += [' "requests": {', ",\n".join(rows), " },"]
    rows = [f"  {json.dumps(step)}" for step in data["steps"]]
    lines += [' "steps": [', ",\n".join(rows), " ]" + ("," if history.hits else "")]
    if history.hits:
        lines.append(f' "hits": {json.dumps(data["hits"])}')
    lines.append("}")
    return "\n".join(line for line in lines if line) + "\n"


def as_plain(value: Any) -> Any:
    """A dataclass as JSON values, without fields that have their defaults."""
    if is_dataclass(value):
        kept = {}
        for item in fields(value):
            found = getattr(value, item.name)
            default = item.default
            if item.default_factory is not MISSING:
                default = item.default_factory()
            if item.name == "do" or default is MISSING or found != default:
                tokens = item.name in ("prompt", "output")
                kept[item.name] = _ranges(found) if tokens else as_plain(found)
        # The key that says what a step does comes first.
        return dict(sorted(kept.items(), key=lambda pair: pair[0] != "do"))
    if isinstance(value, dict):
        return {name: as_plain(found) for name, found in value.items()}
    if isinstance(value, tuple):
        return [as_plain(item) for item in value]
    return value


def _ranges(token_ids: Iterable[int]) -> list[int | list[int]]:
    """Token ids with runs of three or more written as ranges."""
    return [
        item
        for first, last in _runs(token_ids)
        for item in ([[first, last]] if last - first >= 2 else range(first, last + 1))
    ]


def _runs(token_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    run: tuple[int, int] | None = None
    for token in token_ids:
        if run is not None and token == run[1] + 1:
            run = run[0], token
            continue
        if run is not None:
            yield run
        run = token, token
    if run is not None:
        yield run
