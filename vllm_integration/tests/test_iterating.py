"""Edit, check, edit again: the commands that a developer runs, on a real release."""

import json
from pathlib import Path

import pytest

from hitproof.vllm_integration.tests.conftest import MANAGERS, Copy, hitproof

pytestmark = pytest.mark.release

BLOCKS = "blocks = cdiv(window_size - 1, block_size)"
"""A line of 0.33.0."""
PART = (
    *("--only", "hit_has_every_block_attention_reads"),
    *("--configuration", "sliding window, block size 4, window 6, alignment 4, EAGLE off"),
)


@pytest.mark.long
def test_a_fault_is_found_remembered_and_fixed(broken_copy: Copy, tmp_path: Path) -> None:
    root = broken_copy("0.33.0", {BLOCKS: BLOCKS.replace("- 1", "- 3")})

    def check(*words: str) -> tuple[int, str]:
        result = hitproof(
            *("check", root, "--quick", "--release", "0.33.0", *PART, *words),
            HITPROOF_CACHE=str(tmp_path / "cache"),
            HITPROOF_NO_CACHE="",
        )
        assert "Traceback" not in result.stderr
        return result.returncode, result.stdout

    code, printed = check("--format", "json")
    first = json.loads(printed)
    assert (code, first["verdict"]) == (1, "diverges")
    assert first["findings"]
    code, printed = check("--last-failed")
    assert code == 1
    assert "still failing, 0 fixed, 0 new" in printed

    manager = root / MANAGERS
    manager.write_text(manager.read_text().replace("- 3, block_size", "- 1, block_size"))
    code, printed = check("--last-failed", "-x")
    assert code == 0
    assert "0 still failing" in printed
    assert f"{len(first['findings'])} fixed" in printed
    assert "conforms" not in printed
    code, printed = check("--last-failed")
    assert code == 0
    assert "no failure of this target is kept" in printed
