"""From which release a target descends, and what says so."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.vllm_integration.targets.resolving import held_as, resolve, tree_before
from hitproof.vllm_integration.targets.target import Target, TargetError

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *AUTHOR, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HITPROOF_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "fork"
    (root / "vllm/v1/core").mkdir(parents=True)
    (root / "vllm/__init__.py").touch()
    (root / "vllm/v1/core/kv_cache_manager.py").touch()
    return root


def committed(root: Path, tag: str = "") -> None:
    git(root, "init", "-qb", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all", "--allow-empty")
    if tag:
        git(root, "tag", tag)
        git(root, "commit", "-qm", "more", "--allow-empty")


@pytest.mark.parametrize(
    ("tag", "release"),
    [("v0.23.0", "0.23.0"), ("v0.24.0rc1", "0.24.0"), ("v0.24", "0.24.0"), ("nightly", None)],
)
def test_the_newest_tag_among_the_ancestors_decides(
    tag: str, release: str | None, checkout: Path
) -> None:
    committed(checkout, "v0.22.1" if release else "")
    git(checkout, "tag", tag)
    git(checkout, "commit", "-qm", "mine", "--allow-empty")
    for name in (str(checkout), f"{checkout}@main"):
        target = resolve(name)
        assert target.version == release
        assert (f"git tag {tag}" in target.inferred) is (release is not None)


def test_the_tree_before_is_that_of_the_tag(checkout: Path) -> None:
    committed(checkout, "v0.23.0")
    file = "vllm/v1/core/kv_cache_manager.py"
    (checkout / file).write_text("changed = True\n")
    git(checkout, "commit", "-qam", "mine")
    for name in (str(checkout), f"{checkout}@main"):
        before = tree_before(resolve(name))
        assert before is not None
        assert not (before / file).read_text()
    assert tree_before(replace(resolve(str(checkout)), version="0.24.0")) is None
    assert tree_before(Target("0.23.0", checkout, "0.23.0")) is None
    release = checkout.parent / "cache/releases/0.24.0"
    release.mkdir(parents=True)
    release.with_name("0.24.0.json").touch()
    assert tree_before(held_as(resolve(str(checkout)), "0.24.0")) == release


def test_a_tag_on_another_branch_says_nothing(checkout: Path) -> None:
    committed(checkout, "v0.22.1")
    git(checkout, "switch", "-qc", "release")
    git(checkout, "commit", "-qm", "picked", "--allow-empty")
    git(checkout, "tag", "v0.23.0")
    git(checkout, "switch", "-q", "main")
    assert resolve(str(checkout)).version == "0.22.1"


def test_a_repository_around_the_tree_says_nothing(checkout: Path) -> None:
    committed(checkout.parent, "v0.22.1")
    assert resolve(str(checkout)) == Target(str(checkout), checkout, None)


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.23.0", "0.23.0"),
        ("0.23.1.dev12+gabc", "0.23.0"),
        ("0.24.0rc2.dev3+gabc", "0.24.0"),
        ("0.23.0.post1", "0.23.0"),
        ("0.24.0.dev1", None),
        ("odd", None),
    ],
)
def test_what_a_build_has_written(version: str, release: str | None, checkout: Path) -> None:
    text = f"TYPE_CHECKING = False\nversion: str\n__version__ = version = {version!r}\n"
    (checkout / "vllm/_version.py").write_text(text)
    target = resolve(str(checkout))
    assert target.version == release
    assert (version in target.inferred) is (release is not None)


def test_an_unpacked_release_says_it_itself(checkout: Path) -> None:
    committed(checkout, "v0.22.1")
    (checkout / "PKG-INFO").write_text("Name: vllm\nVersion: 0.23.0+mine\n")
    target = resolve(str(checkout))
    assert (target.version, target.inferred) == ("0.23.0", "PKG-INFO")


def test_the_user_knows_best(checkout: Path) -> None:
    committed(checkout, "v0.22.1")
    target = held_as(resolve(str(checkout)), "0.33")
    assert (target.version, target.inferred) == ("0.33.0", "--release")
    assert held_as(target, None) is target
    with pytest.raises(TargetError, match="'main' is no release; write one such as"):
        held_as(target, "main")


def test_what_is_older_than_what_was_tested_is_announced(checkout: Path) -> None:
    committed(checkout, "v0.13.0")
    said: list[str] = []
    resolve(str(checkout), announce=said.append)
    (sentence,) = said
    assert sentence.startswith("0.13.0 is older than 0.14.0, the oldest release that hitproof")
