"""The GitHub Action's script with a stand-in for the command, and what calls it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.tests.conftest import MANAGERS, release
from hitproof.vllm_integration.tests.test_commits import git

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "ci" / "action.sh"

STUB = """\
import json, os, sys
with open(os.environ["STUB_CALLED"], "w") as called:
    json.dump(sys.argv[1:], called)
print("::notice::judged")
for word, value in zip(sys.argv, sys.argv[1:]):
    if word == "--write" and os.environ["STUB_CODE"] in "013":
        form, _, path = value.partition("=")
        with open(path, "w") as file:
            file.write(f"a result as {form}\\n")
    if word == "--report" and os.environ["STUB_CODE"] in "013":
        os.makedirs(value, exist_ok=True)
        with open(os.path.join(value, "index.html"), "w") as file:
            file.write("a report\\n")
sys.exit(int(os.environ["STUB_CODE"]))
"""


@dataclass
class Ran:
    code: int
    called: list[str] | None
    said: str
    printed: str
    summary: str
    outputs: dict[str, str]


@pytest.fixture
def judge(tmp_path: Path) -> Any:
    """Runs the step `judge` with a stand-in that ends with a code."""
    stub = tmp_path / "bin" / "hitproof"
    stub.parent.mkdir()
    stub.write_text(f"#!{sys.executable}\n{STUB}")
    stub.chmod(0o755)
    called, summary, outputs = (tmp_path / name for name in ("called", "summary", "outputs"))

    def run(code: int = 0, *, step: str = "judge", cwd: Path | None = None, **inputs: str) -> Ran:
        for file in (summary, outputs):
            file.write_text("")
        called.unlink(missing_ok=True)
        environment = {
            "PATH": f"{stub.parent}:{os.environ['PATH']}",
            "STUB_CALLED": str(called),
            "STUB_CODE": str(code),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_STEP_SUMMARY": str(summary),
            "GITHUB_OUTPUT": str(outputs),
            "PYTHONPATH": str(ROOT / "src"),
            "HITPROOF_CACHE": str(tmp_path / "cache"),
        } | {f"HITPROOF_{name.upper()}": value for name, value in inputs.items()}
        ended = subprocess.run(
            [str(SCRIPT), step],
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(
            ended.returncode,
            json.loads(called.read_text()) if called.exists() else None,
            ended.stderr,
            ended.stdout,
            summary.read_text(),
            dict(line.split("=", 1) for line in outputs.read_text().splitlines()),
        )

    return run


def test_a_check_prints_annotations_and_leaves_sarif(judge: Any, tmp_path: Path) -> None:
    ran = judge()
    sarif = str(tmp_path / "hitproof.sarif")
    report = str(tmp_path / "hitproof-report")
    table = f"markdown={tmp_path / 'hitproof.md'}"
    written = ["--write", f"sarif={sarif}", "--write", table, "--report", report]
    assert ran.called == ["check", ".", "--format", "github", *written]
    assert ran.summary == "a result as markdown\n"
    assert ran.printed == "::notice::judged\n"
    assert ran.outputs == {"exit-code": "0", "sarif": sarif, "report": report}
    assert Path(sarif).read_text() == "a result as sarif\n"


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("base", ["", "main"])
def test_the_exit_code_is_passed_on(code: int, base: str, judge: Any) -> None:
    judge(base="")  # what an earlier run left behind is not taken for this one's
    ran = judge(code, base=base)
    assert ran.code == code
    assert ran.outputs["exit-code"] == str(code)
    written = code in (0, 1, 3)
    assert ("sarif" in ran.outputs) is (written and not base)
    assert ("report" in ran.outputs) is written
    assert ran.summary == ("a result as markdown\n" if written else "")


def test_a_comparison_goes_to_the_summary(judge: Any, tmp_path: Path) -> None:
    ran = judge(base=".@origin/main")
    table, report = f"markdown={tmp_path / 'hitproof.md'}", str(tmp_path / "hitproof-report")
    written = ["--write", table, "--report", report]
    assert ran.called == ["diff", ".@origin/main", ".", "--format", "github", *written]
    assert ran.summary == "a result as markdown\n"
    assert judge(base="0.22.1", head="0.23.0").called[:3] == ["diff", "0.22.1", "0.23.0"]


def test_inputs_become_arguments_and_never_shell(judge: Any, tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    odd = f"$(touch {harm}); `touch {harm}` *"
    ran = judge(
        target=odd, ledger=odd, format="junit", args=f"--quick --policy 'a=b c'\n{shlex.quote(odd)}"
    )
    assert not harm.exists()
    assert ran.called[:4] == ["check", odd, "--format", "junit"]
    report = ["--report", str(tmp_path / "hitproof-report")]
    assert ran.called[8:] == ["--ledger", odd, *report, "--quick", "--policy", "a=b c", odd]


@cases("inputs, sentence")
def test_bad_inputs_exit_2(inputs: dict[str, str], sentence: str, judge: Any) -> None:
    ran = judge(**inputs)
    assert (ran.code, ran.called) == (2, None)
    assert ran.said.startswith("hitproof: ")
    assert sentence in ran.said


REAL = """\
from hitproof.vllm_integration.cli import main
main()
"""


PULL_REQUESTS = {
    "break": (r"shift = 1 if use_eagle else 0", "shift = 0"),
    "harmless": (r"\bshift\b", "offset"),
}


@pytest.mark.long
@pytest.mark.release
def test_two_pull_requests(judge: Any, tmp_path: Path) -> None:
    """A fork of 0.23.0 by its tag, set up once, and what the action says of pull requests to it."""
    command = tmp_path / "bin" / "hitproof"
    command.write_text(f"#!{sys.executable}\n{REAL}")
    root = tmp_path / "fork"
    vllm = release("0.23.0") / "vllm"
    shutil.copytree(vllm, root / "vllm", ignore=shutil.ignore_patterns("*.pyc"))
    git(root, "init", "-qb", "main")
    git(root, "add", "--force", ".")
    git(root, "commit", "-qm", "0.23.0")
    git(root, "tag", "v0.23.0")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    set_up = subprocess.run(
        [command, "init", ".", "--quick"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert set_up.returncode == 0, set_up.stdout + set_up.stderr
    assert 'release = "0.23.0"  # by ' in (root / "hitproof.toml").read_text()
    git(root, "add", "--force", "hitproof.toml", "hitproof-ledger.*", ".github")
    git(root, "commit", "-qm", "hitproof")
    ran, sarif = {}, {}
    for name, (old, new) in PULL_REQUESTS.items():
        git(root, "switch", "-qc", name, "main")
        for file in (root / "vllm/v1/core").glob("*.py"):
            file.write_text(re.sub(old, new, file.read_text()))
        git(root, "commit", "-qam", name)
        ran[name] = judge(cwd=root)
        (sarif[name],) = json.loads(Path(ran[name].outputs["sarif"]).read_text())["runs"]
    verdicts = {name: each.printed.splitlines()[0] for name, each in ran.items()}
    annotations = {
        name: [line for line in each.printed.splitlines() if line.startswith("::")]
        for name, each in ran.items()
    }
    summaries = {name: each.summary.splitlines() for name, each in ran.items()}
    assert {name: each.code for name, each in ran.items()} == {"break": 1, "harmless": 0}

    # Known divergences of lookups reach further for it, too: those are findings of their own.
    assert re.match(r"vLLM \.: diverges, \d+ new findings of ", verdicts["break"])
    managers = root / MANAGERS
    git(root, "switch", "-q", "break")
    lines = managers.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.strip() == "shift = 0")
    at_line = f"::error file={MANAGERS},line={line},"
    (annotation,) = [each for each in annotations["break"] if each.startswith(at_line)]
    assert annotation.startswith(f"{at_line}title=lost hit")
    results = {
        (where["artifactLocation"]["uri"], where["region"]["startLine"]): (result, where["region"])
        for result in sarif["break"]["results"]
        for where in (each["physicalLocation"] for each in result["locations"])
    }
    result, region = results[MANAGERS, line]
    assert region == {"startLine": line, "startColumn": 9, "endColumn": 18}
    assert result["partialFingerprints"]["primaryLocationLineHash"]
    assert result["codeFlows"]
    assert result["level"] == "error"
    assert any(f"`{MANAGERS}:{line}`" in text for text in summaries["break"])
    assert any(text.startswith("def test_") for text in summaries["break"])

    assert verdicts["harmless"].startswith("vLLM .: conforms, ")
    assert annotations["harmless"] == sarif["harmless"]["results"] == []
    assert len(summaries["harmless"]) == 1


def test_the_action_calls_the_script_with_its_inputs() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["runs"]["using"] == "composite"
    steps = action["runs"]["steps"]
    scripts = [step["run"] for step in steps if "run" in step]
    assert scripts == [f'"$GITHUB_ACTION_PATH/ci/action.sh" {s}' for s in ("install", "judge")]
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
    (judged,) = [step for step in steps if step.get("id") == "judge"]
    for name, value in judged["env"].items():
        assert name in SCRIPT.read_text()
        assert value == f"${{{{ inputs.{name.removeprefix('HITPROOF_').lower()} }}}}"
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(steps)))
    assert used == set(action["inputs"])
    pinned = [step["uses"] for step in steps if "uses" in step]
    assert all(re.search(r"@v\d+\.\d+\.\d+$", name) for name in pinned)
    outputs = set(re.findall(r"steps\.judge\.outputs\.([\w-]+)", json.dumps(action)))
    assert outputs == {"exit-code", "sarif", "report"}


def test_the_hook_checks_on_changes_to_the_core_only() -> None:
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert shlex.split(hook["entry"]) == ["hitproof", "check", "--quick", "."]
    assert hook["pass_filenames"] is False
    assert re.search(hook["files"], "vllm/v1/core/block_pool.py")
    assert re.search(hook["files"], "vllm/v1/core/sched/scheduler.py")
    assert not re.search(hook["files"], "vllm/v1/engine/core.py")
    assert not re.search(hook["files"], "tests/v1/core/test_prefix_caching.py")
