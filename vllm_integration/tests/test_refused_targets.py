"""Targets that cannot be had or imported: one clear sentence, the right exit code, never 0."""

import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, cast

import pytest

from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.sandbox.protocol import Failure, digest
from hitproof.vllm_integration.tests.conftest import (
    Judge,
    fake_checkout,
    hitproof,
    one_sentence,
    release,
)
from hitproof.vllm_integration.worker import main

pytestmark = pytest.mark.usefixtures("real_interpreter")


def test_no_network(tmp_path: Path) -> None:
    result = hitproof(
        "check",
        "0.33.0",
        HITPROOF_CACHE=str(tmp_path),
        HITPROOF_INDEX_URL="http://127.0.0.1:9/simple/",
    )
    assert result.returncode == 2
    assert "could not be reached" in one_sentence(result)


@pytest.mark.long(keep=1)
@cases("text, sentence")
def test_a_target_that_does_not_import(tmp_path: Path, text: str, sentence: str) -> None:
    result = hitproof("check", fake_checkout(tmp_path, text))
    assert result.returncode == 2
    assert sentence in one_sentence(result)


def test_a_scheduler_that_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is imported when it is first asked."""

    def asked(*_: Any) -> dict[str, Any]:
        return {"code": compile("def", "vllm/v1/core/sched/scheduler.py", "exec")}

    monkeypatch.setitem(main._OPERATIONS, "replay", asked)
    with pytest.raises(main._Refused, match="failed with Syntax") as refused:
        main._result(cast(Any, None), {"op": "replay"})
    assert refused.value.kind is Failure.ENVIRONMENT


def test_an_interpreter_without_what_vllm_imports(tmp_path: Path) -> None:
    root = fake_checkout(tmp_path / "checkout", "import torch_is_not_installed_here")
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare/bin/python"
    result = hitproof("check", "--python", python, root)
    assert result.returncode == 2
    assert f"{python} lacks the module" in one_sentence(result)


@pytest.mark.parametrize("python", ["no-such-python", "/dev/null"])
def test_no_interpreter(python: str, tmp_path: Path) -> None:
    result = hitproof("check", "--python", python, fake_checkout(tmp_path, ""))
    assert result.returncode == 2
    assert "--python" in one_sentence(result)


def test_an_old_interpreter_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\necho needs Python 3.11 or later >&2; exit 1\n")
    old.chmod(0o755)
    result = hitproof("check", "--python", old, fake_checkout(tmp_path / "checkout", ""))
    assert result.returncode == 2
    assert "needs Python 3.11 or later" in one_sentence(result)


@pytest.mark.long
@pytest.mark.release
def test_installed_means_the_interpreters_own_vllm(tmp_path: Path, judge: Judge) -> None:
    venv.create(tmp_path / "env", with_pip=False, system_site_packages=True)
    python = tmp_path / "env/bin/python"
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    ours = [path for path in sys.path if path.endswith("site-packages")]
    links = Path(purelib, "links.pth")
    links.write_text("\n".join(ours))
    result = hitproof("check", "--quick", "--python", python, "installed")
    assert result.returncode == 2
    assert "no vLLM is installed" in one_sentence(result)
    links.write_text("\n".join([*ours, str(release("0.33.0"))]))
    code, report = judge("--python", python, "installed")
    assert (code, report["verdict"]) == (0, "conforms"), report


@pytest.mark.parametrize(
    "changed",
    ["spec/hits.py", "conformance/scope/limits.toml", "conformance/histories/series/edges.jsonl"],
)
def test_the_digest_is_of_all_that_judges(changed: str, tmp_path: Path) -> None:
    """Also in a checkout below a folder named tests."""
    home = tmp_path / "tests" / "hitproof"
    for name in (changed, "spec/tests/test_hits.py"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("a = 1\n")
    before = digest(home)
    (home / "spec/tests/test_hits.py").write_text("a = 2\n")
    assert digest(home) == before
    (home / changed).write_text("a = 2\n")
    assert digest(home) != before
