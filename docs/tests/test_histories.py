"""The tables of histories have every field of the schemas, and a meaning for each."""

import re
from typing import Any

import pytest

from docs import histories
from docs.source import ROOT
from hitproof.conformance.histories import json_format, workload_json

GUIDE = ROOT / "docs" / "pages" / "commands" / "replay.md"
FORMATS = [
    (json_format.schema(), histories.manager()),
    (workload_json.schema(), histories.scheduler()),
]


def fields(schema: dict[str, Any]) -> list[str]:
    """Every field of every object, but for the ``do`` of a step, which is its heading."""
    objects = [schema, *schema["$defs"].values()]
    return [name for each in objects for name in each.get("properties", ()) if name != "do"]


@pytest.mark.parametrize(("schema", "shown"), FORMATS, ids=["manager", "scheduler"])
def test_every_field_has_a_row(schema: dict[str, Any], shown: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]* \| [A-Z`].* \|$", shown, re.M)
    assert sorted(rows) == sorted(fields(schema))
    assert "None" not in shown


def test_every_kind_of_step_has_a_heading() -> None:
    schema = json_format.schema()
    kinds = schema["properties"]["steps"]["items"]["discriminator"]["mapping"]
    headings = re.findall(r"^\*\*`(\w+)`\*\*", histories.manager(), re.M)
    assert sorted(headings) == sorted(kinds)


def test_a_field_without_a_description_is_refused() -> None:
    schema = json_format.schema()
    del schema["$defs"]["Schedule"]["properties"]["drafts"]["description"]
    with pytest.raises(histories.NotDescribed, match=r"Schedule\.drafts has no description"):
        histories.tables(schema, "steps")


def test_the_histories_of_the_guide_can_be_read() -> None:
    one, other = re.findall(r"```json\n(.*?)```", GUIDE.read_text(), re.S)
    assert json_format.read(one).steps
    assert workload_json.read_workload(other).requests
