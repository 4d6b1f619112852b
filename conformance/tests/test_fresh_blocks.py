"""Which hits may wait for the next step: those that copy what this one computes."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.judge.admission import hits_fresh_block
from hitproof.conformance.subject.managers import Hit, Observation
from hitproof.spec.groups import Group, GroupKind

ENGINE = EngineConfiguration(
    groups=(Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)),
    num_gpu_blocks=9,
    max_model_len=16,
    hash_block_size=2,
)
START = Observation({}, {}, {(0, "a"): (1,)}, (), 0, 0.0, None, None, {})


@pytest.mark.parametrize(
    ("length", "key", "handed_out", "waits"),
    [
        (6, (0, "b"), (), True),  # a block that is hit in part and got its key in this step
        (8, (0, "b"), (), False),  # all of it is read where it is
        (6, (0, "a"), (), False),  # its key is as old as the step
        (6, (0, "a"), (1,), True),  # it was evicted, and computed again by one that has ended
        (8, (1, "b"), (), True),  # a state
    ],
)
def test_what_is_copied_may_wait(
    length: int, key: tuple[int, str], handed_out: tuple[int, ...], waits: bool
) -> None:
    block = START.cached.get(key, (2,))[0]
    tables = ((3, block), ()) if key[0] == 0 else ((), (0, block))
    now = replace(START, cached={**START.cached, key: (block,)})
    assert hits_fresh_block(ENGINE, Hit(length, tables), START, now, handed_out) == waits
