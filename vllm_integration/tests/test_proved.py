"""What was proved in an earlier run is kept, for the same version of hitproof."""

import json
from pathlib import Path

import pytest

from hitproof.vllm_integration.gate.proved import Proved


def test_digests_are_kept_for_the_same_text(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "proved.json"
    first = Proved(file)
    assert first.digests == set()
    first.digests |= {"a", "b"}
    first.keep()
    assert Proved(file).digests == {"a", "b"}
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"text": "of another version"}))
    assert Proved(file).digests == set()


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"text": 1}', '{"digests": [1]}'])
def test_file_that_cannot_be_read_counts_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "proved.json"
    file.write_text(text)
    assert Proved(file).digests == set()


def test_without_a_file_nothing_is_kept(tmp_path: Path) -> None:
    proved = Proved()
    proved.digests.add("a")
    proved.keep()
    assert list(tmp_path.iterdir()) == []
