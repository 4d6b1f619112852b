"""The package: what is built is what users install, beside whatever else they have."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from hitproof.vllm_integration.tests.forkserver import PYTHON

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("spec", "reference", "proofs", "conformance", "vllm_integration")
FOREIGN = "raise SystemExit('the package of somebody else')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it is made from the source distribution."""
    made = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(made), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, cwd=made)
    (found,) = made.glob("*.whl")
    return found


@pytest.mark.long
@pytest.mark.slow
def test_it_has_all_that_is_not_a_test(wheel: Path) -> None:
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {f"hitproof/{name}" for name in tracked if "/tests/" not in name}
    assert packed == wanted | {"hitproof/__init__.py", "hitproof/__main__.py"}


@pytest.mark.long
@pytest.mark.release
@pytest.mark.slow
def test_it_runs_beside_packages_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    places = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    python = tmp_path / "env/bin/python"
    found = subprocess.run([python, "-c", places], capture_output=True, text=True, check=True)
    purelib = Path(found.stdout.strip())
    # What hitproof and vLLM depend on, but not hitproof itself, which is installed editable.
    links = [path for path in sys.path if path.endswith("site-packages")]
    (purelib / "links.pth").write_text("\n".join(links))
    ZipFile(wheel).extractall(purelib)
    for name in FOLDERS:
        (purelib / name).mkdir()
        (purelib / name / "__init__.py").write_text(FOREIGN)
    (tmp_path / "elsewhere").mkdir()

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: text for name, text in os.environ.items() if name not in (PYTHON, "PYTHONPATH")
        }
        return subprocess.run(
            [python, "-m", "hitproof", *arguments],
            cwd=tmp_path / "elsewhere",
            env=kept,
            capture_output=True,
            text=True,
            check=False,
        )

    where = subprocess.run(
        [python, "-c", "import hitproof; print(hitproof.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout
    assert Path(where.strip()).is_relative_to(purelib)
    proved = run("prove", "mask_keeps_only_reachable_blocks")
    assert proved.returncode == 0, proved.stderr
    checked = run("check", "--quick", "0.33.0")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "conforms" in checked.stdout
