"""Scheduler histories of requests that end before all that the model would sample.

Most end by a stop token, near the end of a block: among accepted drafts, with steps in flight, and
some while they wait after a preemption. What comes later has the same prompt, goes on with what the
user got, or with that and what the model would have sampled next, which nobody may have registered
wrongly. In turn: full attention alone; beside windows; beside recurrent states; windows alone; and
with little room, where priority decides who is preempted.
"""

from random import Random

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Method,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_FULL, _BESIDE, _STATES, _WINDOWS, _NARROW = range(5)
_METHODS: tuple[Method | None, ...] = (None, "eagle", "mtp", "ngram", "draft_model")
_PAST = 8
"""The most tokens that a history has past an end."""


def stop_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof stops {seed}")
    number = int(str(seed).rpartition(":")[2])
    turn, size = number % 5, random.choice((4, 8))
    method = random.choice(_METHODS)
    drafts = random.randint(1, 3) if method else 0
    flagged = method in ("eagle", "mtp")
    full = Group(GroupKind.FULL_ATTENTION, size, eagle=flagged)
    window = Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 3 * size))
    state = Group(GroupKind.MAMBA, size)
    groups = {
        _BESIDE: (full, window),
        _STATES: (full, state),
        _WINDOWS: (Group(window.kind, size, window=window.window, eagle=flagged),),
    }.get(turn, (full,))
    longest = 8 * size + drafts
    budget = random.choice((size + 1, 2 * size, 3 * size, longest)) + drafts + 2
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    narrow = turn == _NARROW
    requests = _requests(random, size, drafts, narrow)
    return SchedulerHistory(
        Deployment(
            groups,
            1 + one + random.randint(0, one // 3 + 1) if narrow else 1 + 6 * one,
            longest,
            budget,
            max_num_seqs=4,
            speculative_method=method,
            num_speculative_tokens=drafts,
            num_mtp_modules=random.choice((1, drafts)) if method == "mtp" else 1,
            lookahead_hashes=random.random() < 0.6,
            async_scheduling=random.random() < 0.6,
            v2_model_runner=random.random() < 0.3,
            policy="priority" if narrow and random.random() < 0.6 else "fcfs",
            retention_interval=random.choice((None, None, "dense")),
        ),
        requests,
    )


def _requests(random: Random, size: int, drafts: int, narrow: bool) -> dict[str, Arrival]:
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in ("a", "b") if narrow or random.random() < 0.4 else ("a",):
        length = random.randint(1, 3 * size)
        # The last token that the user gets, or the last that is computed, ends a block.
        end = size * (length // size + random.randint(1, 2)) + random.randint(-1, 2)
        tokens = tuple(range(fresh, fresh + max(end, length + 1) + _PAST))
        fresh += len(tokens)
        end = len(tokens) - _PAST
        requests[name] = Arrival(
            tokens[:length],
            tokens[length:end],
            past_end=tokens[end : end + random.randint(1, _PAST)],
            stop=random.random() < 0.8,
            arrives=random.choice((0, 0, 1, 3)),
            accepted=_accepted(random, drafts),
            priority=random.randint(0, 2),
        )
    first = requests["a"]
    told, more = first.prompt + first.output, first.past_end
    follow = {
        "resend": first.prompt,
        "turn": (*told, *range(fresh, fresh + random.randint(0, size))),
        "past": (*told, *more, *range(fresh + size, fresh + 2 * size + 1))[: 6 * size],
    }
    for name in random.sample(list(follow), random.randint(1, 3)):
        prompt = follow[name]
        output = tuple(range(900, 900 + random.randint(1, size)))
        requests[name] = Arrival(
            prompt[: 7 * size - 1],
            output,
            after="a" if random.random() < 0.8 else None,
            arrives=random.choice((0, 0, 1)),
            accepted=_accepted(random, drafts),
            priority=random.randint(0, 2),
        )
    return requests


def _accepted(random: Random, drafts: int) -> tuple[int, ...]:
    return tuple(random.randint(0, drafts) for _ in range(random.randint(1, 3))) if drafts else ()
