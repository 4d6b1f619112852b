"""Replay where hits may end inside blocks: the newest release with one fault each."""

import os
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from hitproof.conformance.histories.fine_families import fine_histories
from hitproof.conformance.histories.plays import Abilities, possible
from hitproof.vllm_integration.commands.options import MEMORY, in_bytes
from hitproof.vllm_integration.gate.replay import run
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy
from hitproof.vllm_integration.tests.forkserver import PYTHON

RELEASE = "0.33.0"
COUNT = 25


def told(target: str | Path, has_checkpoints: bool = True) -> Counter[tuple[str, str]]:
    """What the first histories tell of a target, and how many of them."""
    abilities = Abilities(
        exports_states=has_checkpoints,
        keeps_shared_states=has_checkpoints,
        hashes_look_ahead=has_checkpoints,
    )
    reports = run(
        resolve(str(target)),
        [possible(history, abilities) for history in islice(fine_histories(), COUNT)],
        python=os.environ[PYTHON],
        timeout=60.0,
        memory=in_bytes(MEMORY),
    )
    seen = Counter[tuple[str, str]]()
    for report in reports:
        assert not report.unsettled
        seen.update({(str(f.signature.divergence), f.signature.pattern) for f in report.findings})
    return seen


@cache
def as_released() -> Counter[tuple[str, str]]:
    return told(RELEASE)


FAULTS = {
    "full attention leaves the end of a prompt out": (
        "if boundary_tokens == 0 or boundary_tokens > num_tokens:",
        "if boundary_tokens > 0:",
        "lost hit",
        "an entry inside a block, of a promised resend, is left out",
    ),
    "full attention enters it once only, and loses it when the block is full": (
        "if boundary_tokens == 0 or boundary_tokens > num_tokens:",
        "if boundary_tokens == 0 or boundary_tokens != num_tokens:",
        "lost hit",
        "an entry inside a block, of a promised resend, is given up without need",
    ),
    "a state is kept at another boundary": (
        "if num_tokens != latest_prompt_hash_boundary and not (",
        "if num_tokens != latest_prompt_hash_boundary - hash_block_size and not (",
        "lost hit",
        "an entry inside a block, of a promised resend, is left out",
    ),
    "no state is kept where a shared prefix ends": (
        "self.shared_prefix_checkpoint\n            and num_tokens ==",
        "self.shared_prefix_checkpoint\n            and -num_tokens ==",
        "lost hit",
        "an entry inside a block, of a promised junction, is left out",
    ),
    "the running state is written over the one that is kept": (
        "if partial_hash is not None and num_tokens % self.block_size:",
        "if False:",
        "unsound",
        "a key is registered over other content",
    ),
    "blocks are shared and not copied": (
        "self._pending_cow_copies.append((source_block, cow_block))",
        "pass",
        "unsound",
        "a block that is read holds something else",
    ),
    "a state is hit in the step that computes it": (
        "self.cached_blocks_this_step.add(partial_hash)",
        "pass",
        "unsound",
        "a block that is read holds something else",
    ),
    "a state that was exported at a block's end is thrown away": (
        "is_retained_checkpoint = retained is None or retained[0]",
        "is_retained_checkpoint = False",
        "lost hit",
        "the state block is left out",
    ),
}
"""Text of the release, what stands there instead, and what must be told."""


@pytest.mark.release
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_told(fault: str, broken_copy: Copy) -> None:
    old, new, divergence, pattern = FAULTS[fault]
    more = told(broken_copy(RELEASE, {old: new})) - as_released()
    # Patterns name the kind of group, or how states come about, beside it.
    assert [key for key in more if key[0] == divergence and pattern in key[1]], more


@pytest.mark.release
def test_the_newest_release_keeps_and_copies_what_it_should() -> None:
    """What is known: a draft layer's entry hangs on more than its hash, and states exported from
    inside chunks that start inside a block.
    """
    for divergence, pattern in as_released():
        assert divergence == "unsound"
        assert "a draft layer's entry hangs" in pattern or "states from inside chunks" in pattern


@pytest.mark.release
def test_a_release_that_kept_less_is_told() -> None:
    # Up to 0.29 the state was kept where no hit with EAGLE ends.
    seen = told("0.28.0", False)
    assert any("of a promised extension, is left out" in pattern for _, pattern in seen)
