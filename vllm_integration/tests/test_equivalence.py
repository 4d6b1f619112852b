"""Refactorings of vLLM's own functions are proved equivalent, and faults are told apart."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.editing import cases
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.diff import Diff, compare
from hitproof.vllm_integration.gate.equivalence import Version, Versions
from hitproof.vllm_integration.gate.obligations import tasks
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.diff_json import diff_json
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.changed import changed_functions
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import MANAGERS, PLAIN, Copy, release
from hitproof.vllm_integration.tests.forkserver import PYTHON

CHUNKED = "ChunkedLocalAttentionManager.find_longest_cache_hit"
WINDOW = "SlidingWindowManager.find_longest_cache_hit"
MAMBA = "MambaManager.find_longest_cache_hit"
SKIPPED = "SlidingWindowManager.get_num_skipped_tokens"
CHUNKS = "ChunkedLocalAttentionManager.get_num_skipped_tokens"
NEED = "SlidingWindowManager._contiguous_blocks_for_hit"


@dataclass(frozen=True)
class Edit:
    """Another version of a function of 0.33.0: a text in it, and another one."""

    function: str
    old: str
    new: str


_NEED = "blocks = cdiv(window_size - 1, block_size)\n        if use_eagle:"
_SKIPS = """\
        return max(
            0,
            num_computed_tokens - self.sliding_window + 1 - self.extra_retained_tokens,
        )
"""
_CHUNKS = """\
        num_skipped_tokens = (
            num_computed_tokens // self.attention_chunk_size
        ) * self.attention_chunk_size
        return num_skipped_tokens
"""
_START = """\
        if max_length > 0:
            local_attention_start_idx = (
                max_length
                // kv_cache_spec.attention_chunk_size
                * kv_cache_spec.attention_chunk_size
            )
        else:
            local_attention_start_idx = 0
"""
_LOOP = """\
        for i in range(local_attention_start_block_idx, max_num_blocks):
            block_hash = block_hashes[i]
"""
_ALIGNED = "if num_contiguous_blocks == 0 and block_size != alignment_tokens:"
_PICKED = "post_pop_blocks = i if drop_eagle_block else i + 1\n"
_INLINED = """\
        sliding_window_contiguous_blocks = cls._contiguous_blocks_for_hit(
            kv_cache_spec.sliding_window, kv_cache_spec.block_size, drop_eagle_block
        )
"""
_PLACE = "block_idx = fine_idx // scale_factor\n"
_TABLES = """\
        computed_blocks: tuple[list[KVCacheBlock], ...] = tuple(
            [block_pool.null_block] * local_attention_start_block_idx
            for _ in range(len(kv_cache_group_ids))
        )
"""

HARMLESS = {
    "a condition turned round": Edit(
        NEED,
        _NEED,
        _NEED.replace(
            "if use_eagle:", "if not use_eagle:\n            return blocks\n        if True:"
        ),
    ),
    "an early return": Edit(
        SKIPPED,
        _SKIPS,
        """\
        left = num_computed_tokens + 1 - self.extra_retained_tokens
        if left <= self.sliding_window:
            return 0
        return left - self.sliding_window
""",
    ),
    "another expression": Edit(
        CHUNKS,
        _CHUNKS,
        "        return num_computed_tokens - num_computed_tokens % self.attention_chunk_size\n",
    ),
    "a conditional expression": Edit(
        CHUNKED,
        _START,
        """\
        chunk = kv_cache_spec.attention_chunk_size
        local_attention_start_idx = 0 if max_length <= 0 else max_length // chunk * chunk
""",
    ),
    "a shifted loop": Edit(
        CHUNKED,
        _LOOP,
        """\
        for more in range(max_num_blocks - local_attention_start_block_idx):
            i = local_attention_start_block_idx + more
            block_hash = block_hashes[i]
""",
    ),
    "reordered conditions": Edit(
        WINDOW, _ALIGNED, "if block_size != alignment_tokens and not num_contiguous_blocks:"
    ),
    "a renamed local": Edit(WINDOW, "post_pop_blocks", "end"),
    "an inlined helper": Edit(
        WINDOW,
        _INLINED,
        """\
        sliding_window_contiguous_blocks = cdiv(
            kv_cache_spec.sliding_window - 1, kv_cache_spec.block_size
        ) + (1 if drop_eagle_block else 0)
""",
    ),
    "an extracted helper": Edit(
        MAMBA, _PLACE, "block_idx = cls._block_of(fine_idx, scale_factor)\n"
    ),
    "a comprehension as a loop": Edit(
        CHUNKED,
        _TABLES,
        """\
        tables: list[list[KVCacheBlock]] = []
        for _ in kv_cache_group_ids:
            tables.append([block_pool.null_block] * local_attention_start_block_idx)
        computed_blocks: tuple[list[KVCacheBlock], ...] = tuple(tables)
""",
    ),
}
_HELPER = """\
    @classmethod
    def _block_of(cls, unit: int, units: int) -> int:
        return unit // units

    @classmethod
    def find_longest_cache_hit(
"""
HARMFUL = {
    "one block too few": Edit(NEED, _NEED, _NEED.replace("window_size - 1", "window_size - 2")),
    "one token too many": Edit(SKIPPED, _SKIPS, _SKIPS.replace(" + 1", " + 2")),
    "a lost bound": Edit(SKIPPED, _SKIPS, _SKIPS.replace("            0,\n", "            1,\n")),
    "rounded up": Edit(
        CHUNKS,
        _CHUNKS,
        _CHUNKS.replace("num_computed_tokens //", "-(-num_computed_tokens // -1) //"),
    ),
    "wrong past a thousand": Edit(
        CHUNKS, _CHUNKS, f"        if num_computed_tokens > 900:\n            return 0\n{_CHUNKS}"
    ),
    "a chunk that starts late": Edit(
        CHUNKED, _START, _START.replace("max_length > 0", "max_length > 1")
    ),
    "a loop that ends early": Edit(
        CHUNKED, _LOOP, _LOOP.replace("max_num_blocks", "max_num_blocks - 1")
    ),
    "a lost condition": Edit(WINDOW, _ALIGNED, "if block_size != alignment_tokens:"),
    "the wrong block": Edit(WINDOW, _PICKED, "post_pop_blocks = i + 1\n"),
    "one null block too few": Edit(MAMBA, _PLACE, "block_idx = (fine_idx - 1) // scale_factor\n"),
}


def known(versions: dict[str, Edit]) -> dict[str, dict[str, Any]]:
    """What is known of versions; one process is asked for all."""
    told = {}
    for name, edit in versions.items():
        edits = [(edit.old, edit.new)]
        if "_block_of" in edit.new:
            edits.append(("    @classmethod\n    def find_longest_cache_hit(\n", _HELPER))
        told[name] = edit.function, edits
    program = "hitproof.vllm_integration.tests.equivalence_program"
    words = [os.environ[PYTHON], "-m", program, str(release("0.33.0"))]
    asked = json.dumps(told)
    printed = subprocess.run(words, input=asked, capture_output=True, text=True, check=True).stdout
    found: dict[str, dict[str, Any]] = json.loads(printed.partition("ANSWER")[2])
    return found


@pytest.mark.release
@pytest.mark.long(keep=1)
@pytest.mark.parametrize("part", [slice(5), slice(5, None)], ids=["first", "others"])
def test_refactorings_are_proved_equivalent_and_faults_refuted_with_values(part: slice) -> None:
    harmless, harmful = ([*versions][part] for versions in (HARMLESS, HARMFUL))
    every = HARMLESS | HARMFUL
    found = known({name: every[name] for name in harmless + harmful})
    for name in harmless:
        assert found[name] == {"status": Status.PROVED, "detail": ""}, name
    for name in harmful:
        assert found[name]["status"] == Status.REFUTED, name
        assert " instead of " in found[name]["detail"], name


# --- what a head changes


BASE = '''\
"""Text."""
SIZE = 3


class Manager:
    def hit(self) -> int:
        """Documented."""
        return SIZE  # three

    def mask(self) -> int:
        return self.hit()
'''


@cases("old, new, names, elsewhere")
def test_changed_functions_are_told_from_other_changes(
    tmp_path: Path, old: str, new: str, names: list[str], elsewhere: int
) -> None:
    assert old in BASE
    for name, text in (("base", BASE), ("head", BASE.replace(old, new))):
        (tmp_path / name / MANAGERS).parent.mkdir(parents=True)
        (tmp_path / name / MANAGERS).write_text(text)
    found = changed_functions(tmp_path / "base", tmp_path / "head")
    assert [name for _, name in found.names] == names
    assert len(found.elsewhere) == elsewhere


# --- the comparison


@pytest.mark.release
@pytest.mark.long
def test_what_is_proved_equivalent_is_not_asked_again(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "check_lookup", GroupKind.FULL_ATTENTION
    covered = Versions([Version(CHUNKS, Status.PROVED, "")]).covers
    every = (task for task in tasks(Profile.QUICK, ()) if task.entry == entry)
    asked = [next(task for task in every if covered(task))]
    monkeypatch.setattr(gate, "tasks", lambda *_: asked)
    monkeypatch.setattr(gate, "histories", lambda *_: [PLAIN])
    monkeypatch.setattr(gate, "statements", lambda _: [])

    def compared(edit: Edit) -> Diff:
        head = broken_copy("0.33.0", {edit.old: edit.new})
        limits = Limits(python=os.environ[PYTHON], timeout=600)
        run = Run(resolve(str(head)), Profile.QUICK, limits=limits)
        found = compare(resolve("0.33.0"), run, lambda *_: None)
        shutil.rmtree(head)
        return found

    same = compared(HARMLESS["another expression"])
    assert same.versions.in_words() == [
        f"{CHUNKS}: proved equivalent",
        "not asked of the head again, since only these change: 1 check of a group",
    ]
    assert same.proved
    assert not same.changed
    worse = compared(HARMFUL["rounded up"])
    (line,) = worse.versions.in_words()
    assert line.startswith(f"{CHUNKS}: not equivalent: ")
    assert diff_json(worse)["equivalence"]["checks_not_repeated"] == 0
