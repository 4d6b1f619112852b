"""Scheduler histories of start-up alone: layers of two sorts, as models have them, over ranks.

First as many layers as models on hand have, on two, four and one pipeline ranks; then numbers,
sizes and orders of chance, also with a third sort.
"""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.workloads import Deployment, Layers, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_FULL = Group(GroupKind.FULL_ATTENTION, 16)
_WINDOW = Group(GroupKind.SLIDING_WINDOW, 16, window=33)
_CHUNKS = Group(GroupKind.CHUNKED_LOCAL, 16, chunk=32)
_STATE = Group(GroupKind.MAMBA, 16)
_RANKS = (2, 4, 1)
_MODELS = (
    (10, _WINDOW, 20),
    (10, _WINDOW, 52),  # gemma-3-27b
    (12, _STATE, 36),  # qwen3-next-80b-a3b
    (12, _CHUNKS, 36),  # llama-4-scout
    (13, _WINDOW, 12),  # gpt-oss-20b-eagle3
    (5, _WINDOW, 25),  # gemma-4-26b-a4b
    (12, _WINDOW, 12),  # gpt-oss-20b
    (8, _STATE, 24),  # qwen3.5-9b
    (4, _STATE, 36),  # granite-4.0-h-small
    (4, _STATE, 28),  # jamba-1.5-mini
    (3, _STATE, 29),  # bamba-9b
    (44, _STATE, 44),  # falcon-h1-7b
)
NUM_SPREAD = len(_MODELS) * len(_RANKS)


def spread_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed: of the model and ranks of its number, then of chance."""
    number = int(str(seed).rpartition(":")[2])
    if number < NUM_SPREAD:
        # Both numbers in turn, so that the first few have some of each.
        num_full, other, count = _MODELS[number % len(_MODELS)]
        ranks = _RANKS[(number + number // len(_MODELS)) % len(_RANKS)]
        return _started(((_FULL, num_full), (other, count)), ranks)
    random = Random(f"hitproof spread {seed}")
    others = random.sample((_WINDOW, replace(_WINDOW, window=70), _STATE), random.choice((1, 1, 2)))
    sorts = [(each, random.randint(4, 24)) for each in (_FULL, *others)]
    random.shuffle(sorts)
    return _started(tuple(sorts), random.choice((2, 3, 4)), random.choice((1, 1, 2)))


def _started(sorts: tuple[tuple[Group, int], ...], ranks: int, larger: int = 1) -> SchedulerHistory:
    """Start-up with a number of layers of each sort; those of full attention may be larger."""
    layers = tuple(
        Layers(count, larger if group.kind is GroupKind.FULL_ATTENTION else 1)
        for group, count in sorts
    )
    groups = tuple(group for group, _ in sorts)
    return SchedulerHistory(
        Deployment(groups, 40, 160, 64, max_num_seqs=4, layers=layers, ranks=ranks), {}
    )
