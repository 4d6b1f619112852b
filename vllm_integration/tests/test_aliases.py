"""Renamed functions and parameters: what is missing is named, and the user says what it is."""

from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.subject.failures import CannotJudge, FailureKind, classify, crash_of, like
from hitproof.vllm_integration.adapter import inspection
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    parameters_of,
    spelled,
)
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import Copy, hitproof

HISTORY = """{
 "engine": {"groups": [{"kind": "full_attention", "block_size": 1}], "num_gpu_blocks": 9,
  "hash_block_size": 1, "max_model_len": 8, "use_eagle": true},
 "requests": {"a": {"prompt": [1, 2, 3]}, "b": {"prompt": [1, 2, 3]}},
 "steps": [{"do": "schedule", "request": "a"}, {"do": "lookup", "request": "b"}]}"""


def peeks(request: str, *, peek_eagle_block: bool, align: int = 1) -> tuple[str, bool, int]:
    return request, peek_eagle_block, align


class Pool:
    """A stranger's class."""

    __module__ = "vllm.v1.core.block_pool"

    def get_new_blocks(self, number: int) -> int:
        return number


def test_what_is_missing_and_what_is_like_it() -> None:
    with pytest.raises(
        CannotJudge, match=r"Pool has no get_new_block; .* --alias get_new_blocks=get_new_block$"
    ):
        attribute(Pool, "get_new_block")
    with pytest.raises(CannotJudge, match=r"has no zzz$"):
        attribute(Pool, "zzz")
    values = {"request": "a", "drop_eagle_block": True}
    with pytest.raises(CannotJudge, match="--alias peek_eagle_block=drop_eagle_block"):
        arguments(peeks, values, "peeks")
    with pytest.raises(CannotJudge, match=r"peeks has no parameter pool$"):
        arguments(peeks, {"request": "a", "peek_eagle_block": True}, "peeks", given=("pool",))
    assert like("free", ["_free", "take_events"]) == ""


def test_an_alias_fills_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inspection.RENAMED, "peek_eagle_block", "drop_eagle_block")

    def peeks(request: str, *, peek_eagle_block: bool, align: int = 1) -> tuple[str, bool, int]:
        return request, peek_eagle_block, align

    assert list(parameters_of(peeks)) == ["request", "drop_eagle_block", "align"]
    named = arguments(peeks, {"request": "a", "drop_eagle_block": True}, "peeks")
    assert peeks(**spelled(peeks, named)) == ("a", True, 1)


OURS, THEIRS = "hitproof.vllm_integration.adapter.managers", "vllm.v1.core.kv_cache_manager"


def raised(module: str, call: str) -> Exception:
    """What a call raises that a module makes."""
    space: dict[str, Any] = {"__name__": module, "pool": Pool()}
    try:
        exec(call, space)
    except Exception as error:
        return error
    raise AssertionError(call)


@pytest.mark.parametrize("call", ["pool.free()", "pool.get_new_blocks(count=1)"])
def test_a_call_that_does_not_reach_the_subject_is_no_crash(call: str) -> None:
    error = raised(OURS, call)
    assert classify(error) is FailureKind.INCONCLUSIVE
    with pytest.raises(CannotJudge):
        crash_of(error)


@pytest.mark.parametrize(
    ("module", "call"),
    [(THEIRS, "pool.free()"), (THEIRS, "pool.get_new_blocks(count=1)"), (OURS, "None.free()")],
)
def test_an_exception_of_the_subject_is_a_crash(module: str, call: str) -> None:
    error = raised(module, call)
    assert classify(error) is FailureKind.CRASH
    assert crash_of(error) is error


def test_a_target_mentions_a_name(tmp_path: Path) -> None:
    core = tmp_path / "vllm" / "v1" / "core"
    core.mkdir(parents=True)
    (core / "block_pool.py").write_text("def get_new_blocks(): ...\n")
    target = Target("fork", tmp_path, None)
    assert target.mentions("get_new_blocks")
    assert not target.mentions("get_new_block")


@pytest.mark.long
@pytest.mark.release
def test_a_renamed_release_is_judged_by_what_the_user_says(
    broken_copy: Copy, tmp_path: Path
) -> None:
    names = {"find_longest_cache_hit": "find_cache_hit", "drop_eagle_block": "peek_eagle_block"}
    fork = str(broken_copy("0.33.0", names))
    history = tmp_path / "history.json"
    history.write_text(HISTORY)
    ended = hitproof("replay", str(history), fork, "--release", "0.33.0")
    assert ended.returncode == 3, ended.stdout
    said = "has no find_longest_cache_hit; if find_cache_hit is its new name, use --alias"
    assert said in ended.stdout + ended.stderr
    aliases = [word for old, new in names.items() for word in ("--alias", f"{new}={old}")]
    ended = hitproof("replay", str(history), fork, "--release", "0.33.0", *aliases)
    assert ended.returncode == 0, ended.stdout
