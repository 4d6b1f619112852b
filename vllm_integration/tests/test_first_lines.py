"""Exit code and first line of what users run into, as ``golden/first_lines.json`` has them.

``python -m hitproof.vllm_integration.tests.test_first_lines`` writes that file anew.
"""

import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.vllm_integration import cli
from hitproof.vllm_integration.tests.conftest import hitproof
from hitproof.vllm_integration.verdict import Verdict

GOLDEN = Path(__file__).resolve().parent / "golden/first_lines.json"
ENGINE: dict[str, Any] = {
    "groups": [{"kind": "full_attention", "block_size": 4}],
    "num_gpu_blocks": 8,
    "hash_block_size": 4,
    "max_model_len": 64,
}
NO_STEPS = {"engine": ENGINE, "requests": {}, "steps": []}
ONE = {"requests": {"a": {"prompt": [8]}}, "steps": [{"do": "schedule", "request": "a"}]}
FILES: dict[str, bytes | object] = {
    "no_steps.json": NO_STEPS,
    "one.json": NO_STEPS | ONE,
    "unknown_field.json": NO_STEPS | {"hit": 1},
    "no_engine.json": {"requests": {}, "steps": []},
    "bad_engine.json": NO_STEPS | {"engine": 1},
    "bad_group.json": NO_STEPS
    | {"engine": ENGINE | {"groups": [ENGINE["groups"][0] | {"size": 4}]}},
    "no_request.json": NO_STEPS | {"steps": ONE["steps"]},
    "sweep.json": {
        "target": ["reference"],
        "workload": ["chat"],
        "requests": [6],
        "tokens": [2048],
    },
    "some-report": b"{",
    "no_kind_of_step.json": NO_STEPS | {"steps": [{"op": "fly"}]},
    "report.json": {"findings": []},
    "cut.json": b"{",
    "binary.json": b"\xff\xfe",
    "empty.jsonl": b"",
    "release.json": [{}],
    "own.toml": b"",
    "own.footprints.json": {},
    "other.toml": b"[[entries]]\n",
    "not_vllm/README": b"",
}
REAL = ("no_steps.json 0.33.0", "one.json 0.33.0", "9.9.9")
"""What commands have that need a release or the package index; the others run in this process."""


def write_files(folder: Path) -> None:
    """The files that the commands speak of."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def run(command: str) -> tuple[int, str]:
    """The exit code, and the first line that is no usage, no progress and no time.

    A refusal has no second one.
    """
    words = shlex.split(command)[1:]
    if command.endswith(REAL):
        ended = hitproof(*words, COLUMNS="1000")
        code, printed = ended.returncode, ended.stdout + ended.stderr
    else:
        result = CliRunner().invoke(cli.app, words, env={"COLUMNS": "1000"})
        code, printed = result.exit_code, result.stdout + result.stderr
    passed_over = ("Usage:", "Try ", "fetching ")
    lines = [line for line in printed.splitlines() if line.strip()]
    shown = [line for line in lines if not line.startswith(passed_over)]
    assert code != Verdict.USAGE or len(shown) == 1, shown
    return code, re.sub(r"[\d.]+ s$", "N s", shown[0])


def _case(command: str) -> object:
    marks = [pytest.mark.release, pytest.mark.slow] if command.endswith(REAL) else []
    return pytest.param(command, id=command, marks=marks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_files(made)
    return made


@pytest.mark.parametrize("command", [*map(_case, json.loads(GOLDEN.read_text("utf-8")))])
def test_exit_code_and_first_line(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert list(run(command)) == json.loads(GOLDEN.read_text("utf-8"))[command]


if __name__ == "__main__":
    commands = json.loads(GOLDEN.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as made:
        write_files(Path(made))
        os.chdir(made)
        found = {command: run(command) for command in commands}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
