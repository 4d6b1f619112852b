"""Scheduler histories of requests with grammars, for structured outputs.

A grammar is ready at once or only after some steps, in which others run, and in which some give up;
it rejects drafts. What comes later has the same prompt, or goes on with what the user got. In turn:
full attention alone; beside recurrent states; beside windows; windows alone; with little room, so
that requests are preempted; and while the engine is paused, or, in turn with its steps, the prefix
cache is reset.
"""

from random import Random
from typing import Any

from hitproof.conformance.histories.workload_generator import blocks_needed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Method,
    Pause,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_FULL, _STATES, _BESIDE, _WINDOWS, _NARROW, _PAUSED = range(6)
_METHODS: tuple[Method | None, ...] = ("ngram", "eagle", "mtp", "draft_model", "ngram", None)


def grammar_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof grammars {seed}")
    turn, size = int(str(seed).rpartition(":")[2]) % 6, random.choice((4, 8))
    method = random.choice(_METHODS)
    drafts = random.randint(1, 3) if method else 0
    flagged = method in ("eagle", "mtp")
    full = Group(GroupKind.FULL_ATTENTION, size, eagle=flagged)
    width = random.randint(2, 3 * size)
    groups = {
        _STATES: (full, Group(GroupKind.MAMBA, size)),
        _BESIDE: (full, Group(GroupKind.SLIDING_WINDOW, size, window=width)),
        _WINDOWS: (Group(GroupKind.SLIDING_WINDOW, size, window=width, eagle=flagged),),
    }.get(turn, (full,))
    longest = 8 * size + drafts
    budget = random.choice((size + 1, 2 * size, 3 * size, longest)) + drafts + 2
    one = sum(blocks_needed(group, longest, budget, drafts) for group in groups)
    narrow = turn == _NARROW
    ahead = random.random() < 0.6
    requests = _requests(random, size, drafts, narrow, turn == _PAUSED and not ahead)
    if random.random() < 0.5:
        # Drafts are cut where the model serves no more.
        longest = max(len(each.prompt) + len(each.sampled) for each in requests.values())
    pauses = [Pause(at, random.randint(1, 3), random.random() < 0.4) for at in (3, 7, 12)]
    return SchedulerHistory(
        Deployment(
            groups,
            1 + one + random.randint(0, one // 3 + 1) if narrow else 1 + 8 * one,
            longest,
            budget,
            max_num_seqs=random.choice((2, 4)),
            speculative_method=method,
            num_speculative_tokens=drafts,
            async_scheduling=ahead,
            v2_model_runner=random.random() < 0.4,
            policy="priority" if narrow and random.random() < 0.5 else "fcfs",
            long_prefill_token_threshold=random.choice((0, 0, size)) if turn == _FULL else 0,
        ),
        requests,
        tuple(pauses) if turn == _PAUSED else (),
    )


def _requests(
    random: Random, size: int, drafts: int, narrow: bool, resets: bool
) -> dict[str, Arrival]:
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name in "abcd"[: random.randint(3, 4) if narrow else random.randint(2, 3)]:
        length, number = random.randint(1, 4 * size), random.randint(1, 2 * size)
        tokens = tuple(range(fresh, fresh + length + number + 2))
        fresh += len(tokens)
        end = length + number
        stop = random.random() < 0.4
        requests[name] = Arrival(
            tokens[:length],
            tokens[length:end],
            past_end=tokens[end:] if stop else (),
            stop=stop,
            arrives=random.choice((0, 0, 1, 4)),
            aborted=random.randint(1, 6) if random.random() < 0.15 else None,
            priority=random.randint(0, 2),
            **_script(random, drafts, 0.8),
        )
    first = requests["a"]
    more = tuple(range(fresh, fresh + random.randint(1, size)))
    for name, prompt in (("resend", first.prompt), ("turn", first.prompt + first.output + more)):
        if random.random() < 0.6:
            requests[name] = Arrival(
                prompt[: 7 * size - 1],
                tuple(range(900, 900 + random.randint(1, size))),
                after="a" if random.random() < 0.8 else None,
                after_reset=resets and random.random() < 0.3,
                priority=random.randint(0, 2),
                **_script(random, drafts, 0.5),
            )
    return requests


def _script(random: Random, drafts: int, share: float) -> dict[str, Any]:
    """What is scripted of drafts, and of the grammar, which a ``share`` of the requests have."""
    turns = random.randint(1, 3)
    valid = tuple(random.randint(0, drafts) for _ in range(turns)) if drafts else ()
    accepted = tuple(random.randint(0, drafts) for _ in range(turns)) if drafts else ()
    steps = random.choice((0, 0, 1, 2, 5))
    if random.random() > share:
        return {"accepted": accepted}
    return {"accepted": accepted, "grammar_steps": steps, "valid_drafts": valid}
