"""Replay of several MTP modules: the newest release with one fault each."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from hitproof.conformance.histories.module_families import module_histories
from hitproof.conformance.histories.plays import Abilities, possible
from hitproof.vllm_integration.tests.conftest import Copy
from hitproof.vllm_integration.tests.test_fine_replay import assert_told, known_of, shown

RELEASE = "0.33.0"


def told(target: str | Path, hashes_look_ahead: bool = True) -> Counter[tuple[str, str]]:
    abilities = Abilities(hashes_look_ahead=hashes_look_ahead, exports_states=hashes_look_ahead)
    return shown(target, [possible(history, abilities) for history in module_histories()])


@cache
def as_released() -> Counter[tuple[str, str]]:
    return told(RELEASE)


FAULTS = {
    "blocks are registered before their entries are final": (
        "self.num_reprefillable_tokens = max(0, num_prefill_lookahead - 1)",
        "self.num_reprefillable_tokens = 0",
        "wrong drafts",
        "draft-entry-of-other-token(of=drafts)",
    ),
    "one of them is": (
        "self.num_reprefillable_tokens = max(0, num_prefill_lookahead - 1)",
        "self.num_reprefillable_tokens = max(0, num_prefill_lookahead - 2)",
        "wrong drafts",
        "draft-entry-of-other-token(of=drafts)",
    ),
    "blocks wait for one token more": (
        "self.num_reprefillable_tokens = max(0, num_prefill_lookahead - 1)",
        "self.num_reprefillable_tokens = max(0, num_prefill_lookahead)",
        "lost hit",
        "lookahead-block-unregistered",
    ),
    "windows do not keep what is computed again": (
        "num_computed_tokens - self.sliding_window + 1 - self.extra_retained_tokens,",
        "num_computed_tokens - self.sliding_window + 1,",
        "wrong drafts",
        "null-block-read",
    ),
    "hashes cover the next token only": (
        "hash_end_token_idx = end_token_idx + num_hash_lookahead_tokens",
        "hash_end_token_idx = end_token_idx + 1",
        "unsound",
        "two-contents-under-key",
    ),
}
"""Text of the release, what stands there instead, and what must be told."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_told(fault: str, broken_copy: Copy) -> None:
    assert_told(FAULTS[fault], broken_copy, told, as_released())


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.28.0", RELEASE])
def test_one_dropped_block_is_too_little(release: str) -> None:
    seen = told(release, hashes_look_ahead=release == RELEASE)
    groups = ("sliding_window", "full_attention")
    for group in groups:
        code = f"hit-too-long(block=lookahead, group={group}, modules=several)"
        assert seen["wrong drafts", code]
    assert seen.keys() <= known_of(release)
