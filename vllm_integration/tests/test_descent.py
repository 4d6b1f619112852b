"""From which release a target descends, and what says so."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.vllm_integration.bundled import CONTENT, SURVEY
from hitproof.vllm_integration.targets import content
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
    with pytest.raises(TargetError, match="'main' is not a release; write one such as"):
        held_as(target, "main")


def test_a_release_that_is_not_on_record_is_said_to_be_none(checkout: Path) -> None:
    committed(checkout, "v0.22.1")
    target = held_as(resolve(str(checkout)), "9.9")
    assert target.version == "9.9.0"
    assert target.inferred.startswith("--release, which is not on record; 0.33.0 is the newest")


def test_what_is_older_than_what_was_tested_is_announced(checkout: Path) -> None:
    committed(checkout, "v0.13.0")
    said: list[str] = []
    resolve(str(checkout), announce=said.append)
    (sentence,) = said
    assert sentence.startswith("0.13.0 is older than 0.14.0, the oldest release that hitproof")


OLD = """\
import math  # the first line

class Manager:
    @property
    def size(self):
        return 1

    def lookup(self):
        # from the left
        return 2
"""
MASKED = OLD + "\n    def mask(self):\n        return 3\n"
NEW = MASKED.replace("return 2", "return -2").replace("return 1", "return -1")
MANAGER, POOL = "vllm/v1/core/kv_cache_manager.py", "vllm/v1/core/block_pool.py"


def holding(root: Path, manager: str, pool: str = "def touch():\n    pass\n") -> Path:
    """A tree with these files."""
    for path, text in ((MANAGER, manager), (POOL, pool)):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three releases, of which the first two have the same content."""
    made = {"0.27.0": OLD, "0.27.1": OLD, "0.28.0": NEW}
    table = {
        release: content.content_of(holding(tmp_path / release, text))
        for release, text in made.items()
    }
    (tmp_path / "content.json").write_text(content.to_json(table))
    monkeypatch.setattr(content, "CONTENT", tmp_path / "content.json")
    content.known.cache_clear()
    yield
    content.known.cache_clear()


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("text", "release", "nearest"),
    [
        (MASKED, "0.27.1", "0.27.1, the newest one; 0.27.0 as near: 1 of 2 files differ"),
        (NEW.replace("-2", "7"), "0.28.0", "0.28.0: 1 of 2 files differ"),
        (NEW.replace("    def", "    # x\n\n    def"), "0.28.0", "0.28.0: 0 of 2 files differ"),
    ],
)
def test_where_nothing_states_it_the_content_decides(
    checkout: Path, text: str, release: str, nearest: str
) -> None:
    said: list[str] = []
    target = resolve(str(holding(checkout, text)), announce=said.append)
    assert target.version == release
    assert target.inferred == f"the content of its files (nearest release {nearest})"
    assert said == [f"{checkout}: nearest release {nearest}"]
    assert target.as_json()["version_from"] == target.inferred
    assert held_as(target, "0.27.0").version == "0.27.0"
    committed(checkout)
    assert resolve(f"{checkout}@main").version == release


@pytest.mark.usefixtures("releases")
def test_what_is_stated_counts_even_where_another_release_is_nearer(checkout: Path) -> None:
    holding(checkout, NEW)
    (checkout / "PKG-INFO").write_text("Name: vllm\nVersion: 0.27.0\n")
    target = resolve(str(checkout))
    assert target.version == "0.27.0"
    assert target.inferred == (
        "PKG-INFO; its files are nearer to another one (nearest release 0.28.0: 0 of 2 files "
        "differ, and 1 from 0.27.0), which --release 0.28.0 names"
    )
    holding(checkout, OLD)
    assert resolve(str(checkout)).inferred == "PKG-INFO"


@pytest.mark.usefixtures("releases")
def test_files_that_have_nothing_in_common_with_a_release(checkout: Path) -> None:
    said: list[str] = []
    target = resolve(str(holding(checkout, "x = 1\n", "y = 2\n")), announce=said.append)
    assert (target.version, target.inferred) == (None, "")
    (sentence,) = said
    assert "nothing in common with the releases 0.27.0 to 0.28.0" in sentence
    assert "--release" in sentence


def test_each_release_of_the_survey_is_nearest_to_itself() -> None:
    surveyed = [release["version"] for release in json.loads(SURVEY.read_text())]
    for release in surveyed:
        near = content.nearest(content.known()[release])
        assert near is not None
        assert release in (near.release, *near.others)
        assert (near.different, near.units) == (0, 0)
    assert content.to_json(content.known()) == CONTENT.read_text()
