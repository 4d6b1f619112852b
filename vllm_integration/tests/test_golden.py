"""What others build on stays: commands, options, exit codes, fields of JSON, the history schema.

The golden files are of release 0.1.0. What is added is fine; what is gone fails.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.vllm_integration import cli
from hitproof.vllm_integration.tests.conftest import hitproof

GOLDEN = Path(__file__).resolve().parent / "golden"
ROOT = GOLDEN.parents[2]
COMMANDS: dict[str, list[str]] = json.loads((GOLDEN / "commands.json").read_text())
EXIT_CODES: dict[str, int] = json.loads((GOLDEN / "exit_codes.json").read_text())


def gone(golden: Any, actual: Any, at: str = "") -> Iterator[str]:
    """What of a JSON value is not there any more, but for prose."""
    if isinstance(golden, dict) and isinstance(actual, dict):
        for key, value in golden.items():
            if key not in actual:
                yield f"{at}.{key}"
            elif key not in ("description", "title"):
                yield from gone(value, actual[key], f"{at}.{key}")
    elif isinstance(golden, list) and isinstance(actual, list):
        yield from (f"{at}: {value}" for value in golden if value not in actual)
    elif golden != actual:
        yield f"{at}: {golden}"


def fields(value: Any, at: str = "") -> Iterator[str]:
    """The paths of the fields of a JSON value."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from fields(held, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for held in value:
            yield from fields(held, at)
    if at:
        yield at


def missing(golden: str, value: Any) -> set[str]:
    """The golden fields that a JSON value lacks."""
    wanted = {line.replace("[]", "").lstrip(".") for line in golden.splitlines()}
    return {_of_any_list(field) for field in wanted} - set(map(_of_any_list, fields(value)))


def _of_any_list(field: str) -> str:
    """All lists of findings have the same fields; which findings a release has may change."""
    return re.sub(r"^(findings\w*|known_divergences)\b", "findings", field)


@pytest.mark.parametrize("usage", COMMANDS)
def test_commands_and_options(usage: str) -> None:
    name = re.match(r"Usage: hitproof ([a-z-]*)", usage)
    assert name is not None
    words = [*filter(None, [name[1]]), "--help"]
    shown = CliRunner().invoke(cli.app, words, prog_name="hitproof", env={"COLUMNS": "100"}).output
    assert " ".join(shown.partition("\n\n")[0].split()) == usage
    text = " ".join(shown.split())
    for option in COMMANDS[usage]:
        assert option.removesuffix(">") in text  # a format more is fine


@pytest.mark.parametrize("command", EXIT_CODES)
def test_exit_codes(command: str) -> None:
    result = CliRunner().invoke(cli.app, command.split()[1:])
    assert (result.exit_code, "Traceback" in result.output) == (EXIT_CODES[command], False)


def test_the_history_schema() -> None:
    golden = json.loads((GOLDEN / "history_schema.json").read_text())
    schema = json.loads(hitproof("replay", "--schema").stdout)
    assert not list(gone(golden, schema))
    assert not list(gone(golden, {**schema, "title": "Another"}))
    for key in golden["properties"]:
        properties = {k: v for k, v in schema["properties"].items() if k != key}
        assert list(gone(golden, {**schema, "properties": properties})) == [f".properties.{key}"]


def test_a_missing_field_is_noticed() -> None:
    assert missing("a[].b\nc\n", {"a": [{"b": 1}], "c": None}) == set()
    assert missing("a[].b\nc\n", {"a": [{"b": 1}], "d": None}) == {"c"}
    assert missing("a[].b\n", {"a": [{"d": 1}]}) == {"a.b"}


@pytest.mark.parametrize(
    ("golden", "command"),
    [
        ("configs", ["configs"]),
        ("policies", ["policies"]),
        ("prove", ["prove", "mask_keeps_only_reachable_blocks"]),
        pytest.param("policies_target", ["policies", "0.33.0"], marks=pytest.mark.release),
        pytest.param(
            "replay",
            ["replay", ROOT / "conformance/vectors/retention_junction.json", "0.33.0"],
            marks=pytest.mark.release,
        ),
        pytest.param(
            "lockstep", ["lockstep", "0.33.0", "--histories", "20"], marks=pytest.mark.release
        ),
        pytest.param(
            "diff",
            ["diff", "--quick", "0.22.1", "0.23.0"],
            marks=[pytest.mark.release, pytest.mark.long],
        ),
    ],
)
def test_fields_of_json(golden: str, command: list[str]) -> None:
    printed = json.loads(hitproof(*command, "--format", "json").stdout)
    assert missing((GOLDEN / f"{golden}.fields").read_text(), printed) == set()
