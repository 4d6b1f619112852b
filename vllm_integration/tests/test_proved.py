"""What was proved in an earlier run is kept, for the same version of hitproof."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hitproof.vllm_integration.gate import proved as module
from hitproof.vllm_integration.gate.proved import Proved
from hitproof.vllm_integration.sandbox import protocol

HOME = Path(protocol.__file__).resolve().parents[2]
"""Where our packages are."""


def kept(file: Path, **digests: list[str]) -> None:
    proved = Proved(file)
    for name, each in digests.items():
        proved.add(name, each)
    proved.keep()


def test_digests_are_kept_by_statement_for_the_same_text(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "proved.json"
    assert Proved(file).of("mask") == []
    kept(file, mask=["a", "b"], lookup=["c"])
    assert Proved(file).of("mask") == ["a", "b"]
    assert Proved(file).of("lookup") == ["c"]
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"text": "of another version"}))
    assert Proved(file).of("mask") == []
    kept(file, mask=["d"])
    assert (Proved(file).of("mask"), Proved(file).of("lookup")) == (["d"], [])


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "3", '{"text": 1}', '{"digests": [1]}', "\x00", "[" * 100_000]
    + [json.dumps({"text": protocol.TEXT, "digests": each}) for each in (3, ["a"], {"mask": 3})],
)
def test_file_that_cannot_be_read_counts_as_none_and_is_written_anew(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "proved.json"
    file.write_text(text)
    assert Proved(file).of("mask") == []
    kept(file, mask=["a"])
    assert Proved(file).of("mask") == ["a"]


def test_the_latest_are_kept(tmp_path: Path) -> None:
    file, most = tmp_path / "proved.json", module._MOST
    for number in range(most + 2):
        kept(file, mask=[str(number)])
    kept(file, mask=["2"])  # proved once more
    assert Proved(file).of("mask") == [str(each) for each in (*range(3, most + 2), 2)]


def test_what_cannot_be_written_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    kept(tmp_path / "file" / "proved.json", mask=["a"])


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    proved = Proved()
    proved.add("mask", ["a"])
    proved.keep()
    assert proved.of("mask") == ["a"]
    assert list(tmp_path.iterdir()) == []


WRITING = """
import sys
from pathlib import Path
from hitproof.vllm_integration.gate.proved import Proved
for number in range(20):
    proved = Proved(Path(sys.argv[1]))
    proved.add(f"statement {number}", [sys.argv[2]])
    proved.keep()
"""


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    file, names = tmp_path / "proved.json", ["one", "two", "three"]
    started = [subprocess.Popen([sys.executable, "-c", WRITING, str(file), name]) for name in names]
    assert [each.wait() for each in started] == [0, 0, 0]
    for number in range(20):
        assert sorted(Proved(file).of(f"statement {number}")) == sorted(names)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["proved.json", "proved.lock"]


@pytest.mark.parametrize("edited", ["proofs/unbounded/machine.py", "spec/hits.py"])
def test_proof_of_another_prover_is_not_taken(tmp_path: Path, edited: str) -> None:
    home, file = tmp_path / "hitproof", tmp_path / "proved.json"
    for package in ("spec", "reference", "proofs", "conformance", "vllm_integration"):
        shutil.copytree(HOME / package, home / package, ignore=shutil.ignore_patterns("tests"))
    (home / "__init__.py").touch()
    asks = (
        "from pathlib import Path\n"
        "import hitproof\n"
        "from hitproof.vllm_integration.gate.proved import Proved\n"
        f"assert hitproof.__file__.startswith({str(home)!r})\n"
        f"proved = Proved(Path({str(file)!r}))\n"
        "print(proved.of('mask'))\n"
        "proved.add('mask', ['a'])\n"
        "proved.keep()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}

    def asked() -> str:
        program = [sys.executable, "-c", asks]
        return subprocess.check_output(program, env=environment, text=True).strip()

    assert [asked(), asked()] == ["[]", "['a']"]
    (home / edited).write_text((home / edited).read_text() + "\n_CHANGED = True\n")
    assert [asked(), asked()] == ["[]", "['a']"]
