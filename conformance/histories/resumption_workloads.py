"""Scheduler histories in which requests that decode are preempted, most with steps in flight.

There is room for little more than one request, and each goes on for several blocks after its
prompt. In turn: full attention alone; several MTP modules; recurrent states; and groups with block
sizes of which none divides the other. Every other request with states, and every other one of
several modules, is mostly output, so that it is computed again in chunks that start behind its
prompt.
"""

from random import Random

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_NAMES = "abcd"
_ALONE, _MODULES, _STATES, _SIZES = range(4)


def resumption_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof resumptions {seed}")
    round_, turn = divmod(int(str(seed).rpartition(":")[2]), 4)
    goes_on = turn in (_STATES, _MODULES) and round_ % 2 == 0
    size = random.choice((4, 8))
    drafts = random.randint(2, 3) if turn == _MODULES else 0
    groups = [Group(GroupKind.FULL_ATTENTION, size, eagle=turn == _MODULES)]
    if turn == _STATES:
        groups.append(Group(GroupKind.MAMBA, size))
    elif turn == _SIZES:
        more = size * 3 // 2
        groups.append(Group(GroupKind.SLIDING_WINDOW, more, window=random.randint(2, 2 * more)))
    longest = random.randint(5, 8) * size + drafts
    budget = random.choice((size, 2 * size, 3 * size, longest)) + drafts + 2
    if goes_on:
        # Several modules look ahead further than what some last chunk leaves.
        budget = (random.randint(size, 2 * size) if drafts else size) + drafts + 2
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in _NAMES[: random.randint(2, 4)]:
        num_output = random.randint(size // 2, 3 * size)
        if goes_on:
            num_output = random.randint(3 * size, longest - size - drafts)
        length = random.randint(1, min(longest - num_output - drafts, size if goes_on else longest))
        prompt = tuple(range(fresh, fresh + length))
        if requests and random.random() < 0.4:
            prompt = (requests["a"].prompt + requests["a"].output)[:length]
        output = tuple(range(fresh + length, fresh + length + num_output))
        fresh += length + num_output
        accepted = tuple(random.randint(0, drafts) for _ in range(2)) if drafts else ()
        requests[name] = Arrival(
            prompt,
            output,
            0 if goes_on else random.choice((0, 0, 1, 3)),
            accepted=accepted,
            aborted=random.randint(2, 12) if random.random() < 0.1 else None,
        )
    deployment = Deployment(
        tuple(groups),
        1 + one + random.randint(0, 1 if goes_on else one // 3 + 1),
        longest,
        budget,
        max_num_seqs=4,
        speculative_method="mtp" if drafts else None,
        num_speculative_tokens=drafts,
        num_mtp_modules=drafts or 1,
        lookahead_hashes=random.random() < 0.5,
        async_scheduling=random.random() < 0.75,
        v2_model_runner=random.random() < 0.3,
        retention_interval=random.choice((None, "dense")),
    )
    return SchedulerHistory(deployment, requests)
