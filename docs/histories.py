"""The fields of histories as tables, made from the JSON schemas that `hitproof replay` reads by."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hitproof.conformance.histories import json_format, workload_json

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.M)


class NotDescribed(Exception):
    """A field of a schema has no description; the message names it."""


def manager() -> str:
    """The history of a manager."""
    return tables(json_format.schema(), "steps")


def scheduler() -> str:
    """The history of a scheduler."""
    return tables(workload_json.schema())


def tables(schema: Mapping[str, Any], steps: str = "") -> str:
    """A table for the history and for each object in it; one for each kind of item of ``steps``.

    Raises `NotDescribed`.
    """
    defined: Mapping[str, Any] = schema.get("$defs", {})
    kinds = schema["properties"][steps]["items"]["oneOf"] if steps else ()
    names = [each["$ref"].rpartition("/")[2] for each in kinds]
    lines = [*_table("history", schema, defined)]
    for name, each in defined.items():
        if name not in names and "properties" in each:
            lines += [f"**{_words(name)}**: {_first(each)}", "", *_table(name, each, defined)]
    for name in names:
        each = defined[name]
        do = each["properties"]["do"]["const"]
        lines += [f"**`{do}`**: {_first(each)}", "", *_table(name, each, defined)]
    return "\n".join(lines)


def _table(name: str, described: Mapping[str, Any], defined: Mapping[str, Any]) -> Iterator[str]:
    required = described.get("required", ())
    attributes = dict(_ATTRIBUTE.findall(described.get("description", "")))
    rows = {key: each for key, each in described["properties"].items() if key != "do"}
    if not rows:
        return
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    for key, each in rows.items():
        meaning = _line(each.get("description") or attributes.get(key, ""))
        meaning = meaning[:1].upper() + meaning[1:]
        if not meaning:
            raise NotDescribed(f"{name}.{key} has no description; add a docstring")
        default = "required" if key in required else _default(each.get("default"))
        yield f"| `{key}` | {_type(each, defined)} | {default} | {meaning} |"
    yield ""


def _first(described: Mapping[str, Any]) -> str:
    return _line(described["description"].split("Attributes:")[0].strip())


def _line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("None", "null").replace("|", "\\|")


def _default(value: Any) -> str:
    if value in (None, [], ""):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _type(field: Mapping[str, Any], defined: Mapping[str, Any]) -> str:
    """The JSON values of a field, in words."""
    if reference := field.get("$ref"):
        name = reference.rpartition("/")[2]
        each = defined[name]
        return _type(each, defined) if "enum" in each else _words(name)
    if either := field.get("anyOf", field.get("oneOf")):
        if len(either) > 4:  # the kinds of steps
            return "object with `do`"
        return " or ".join(dict.fromkeys(_type(each, defined) for each in either))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        items = _type(field.get("items", {}), defined)
        return f"list of ({items})" if " or " in items else f"list of {items}"
    if field.get("type") == "object":
        values = field.get("additionalProperties")
        return f"object of {_type(values, defined)}" if values else "object"
    return str(field.get("type", "any"))


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
