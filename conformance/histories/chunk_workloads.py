"""Scheduler histories of hybrid models with long prompts, which are cut at recurrent states.

Blocks are larger than hash units, so that hits end inside blocks; prompts have many blocks, and
requests go on from each other's states, at the ends of prompts and at junctions.
"""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_NUM_BLOCKS = 9


def chunk_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof chunks {seed}")
    size = random.choice((8, 16))
    unit = size // random.choice((2, 4)) if random.random() < 0.8 else None
    longest = _NUM_BLOCKS * size + 12
    drafts = random.choice((0, 0, 0, 2))
    alignments = (None, unit, 2 * unit, 3 * unit, size) if unit is not None else (None,)
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size, eagle=bool(drafts)), Group(GroupKind.MAMBA, size)),
        160,
        longest,
        random.choice((size + 3, 2 * size, 3 * size + 1, 2 * longest)),
        max_num_seqs=4,
        prefix_match_unit=unit,
        speculative_method="eagle" if drafts else None,
        num_speculative_tokens=drafts,
        lookahead_hashes=random.random() < 0.5,
        retention_interval=random.choice((None, "dense")),
        mamba_checkpoint_alignment=random.choice(alignments) if not drafts else None,
        mamba_shared_prefix_checkpoint=unit is not None and random.random() < 0.6,
    )
    length = random.randint(3 * size, 5 * size)
    first = tuple(range(1, length + 1))
    more = random.randint(2 * size, 3 * size)
    fork = random.randint(2 * size, length - 1)
    sibling = (*first[:fork], *range(500, 500 + more))
    other = (*first[:fork], *range(600, 600 + more))
    turn = (*first, 201, 202, *range(700, 700 + random.randint(size, 3 * size)))
    return SchedulerHistory(
        deployment,
        {
            "a": Arrival(first, (201, 202, 203)),
            "b": Arrival(turn, (204, 205), after="a"),
            "c": Arrival(sibling, (206,), after="a", arrives=random.choice((0, 1))),
            "d": Arrival(other, (207, 208), after="c"),
            "e": Arrival(turn, (209,), after="b"),
        }
        | _beside(random, first, size),
    )


def _beside(random: Random, first: tuple[int, ...], size: int) -> dict[str, Arrival]:
    """Requests that take so much of a step that others have no room for a whole block."""
    if random.random() < 0.6:
        return {}
    short = tuple(range(900, 900 + random.randint(1, size // 2)))
    decoding = Arrival(short, tuple(range(950, 950 + 2 * size)), after="a")
    return {
        "f": decoding,
        "g": Arrival((*first, 201, *range(800, 800 + size)), (210,), after="a", arrives=1),
        "h": Arrival(short[::-1], (211, 212), after="a", arrives=1),
    }
