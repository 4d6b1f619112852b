"""Commits as targets: the repository stays as it is, and what is wrong is told in one sentence."""

import subprocess
from pathlib import Path

import pytest

from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target, TargetError

MANAGER = "vllm/v1/core/single_type_kv_cache_manager.py"
IDENTITY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid")


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *IDENTITY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(repository: Path, text: str) -> str:
    for name in ("vllm/__init__.py", MANAGER, "csrc/cache.cu"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", text)
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HITPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "vllm fork"
    root.mkdir()
    git(root, "init", "-qb", "main")
    commit(root, "first")
    return root


def refusal(text: str) -> str:
    with pytest.raises(TargetError) as refused:
        resolve(text)
    return str(refused.value)


def test_a_commit_is_read_and_the_work_tree_left_alone(repository: Path, cache: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "v1.2.3")
    commit(repository, "second")
    (repository / MANAGER).write_text("not committed")
    before = git(repository, "status", "--porcelain")
    name = f"{repository}@v1.2.3"
    target = resolve(name)
    assert target == Target(name, cache / "commits" / first, "1.2.3")
    assert target.root is not None
    assert (target.root / MANAGER).read_text() == "first"
    assert not (target.root / "csrc").exists()
    assert git(repository, "status", "--porcelain") == before
    assert git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("ref", ["main", "HEAD", "HEAD~0"])
def test_a_commit_without_a_release_has_no_version(repository: Path, ref: str) -> None:
    git(repository, "tag", "nightly")
    assert resolve(f"{repository}@{ref}").version is None


def test_a_branch_that_moves_is_read_again(repository: Path) -> None:
    first = resolve(f"{repository}@main").root
    commit(repository, "second")
    second = resolve(f"{repository}@main").root
    assert first is not None
    assert second is not None
    assert [(root / MANAGER).read_text() for root in (first, second)] == ["first", "second"]


def test_a_directory_with_an_at_sign_is_a_directory(tmp_path: Path) -> None:
    root = tmp_path / "vllm@main"
    (root / "vllm/v1/core").mkdir(parents=True)
    (root / "vllm/__init__.py").write_text("")
    assert resolve(str(root)).root == root


def test_what_is_not_there(repository: Path, tmp_path: Path) -> None:
    assert "has no commit 'nowhere'" in refusal(f"{repository}@nowhere")
    assert "has no commit '--help'" in refusal(f"{repository}@--help")
    assert "is not a directory" in refusal(f"{tmp_path}/nowhere@main")
    (tmp_path / "plain").mkdir()
    assert "is not a git checkout" in refusal(f"{tmp_path}/plain@main")


def test_a_commit_without_vllm(repository: Path) -> None:
    git(repository, "rm", "-rq", "vllm")
    git(repository, "commit", "-qm", "gone")
    assert "is not a vLLM checkout" in refusal(f"{repository}@main")


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "git is not installed" in refusal(f"{repository}@main")


def test_another_repository_in_the_environment_is_not_asked(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert resolve(f"{repository}@main").root is not None
