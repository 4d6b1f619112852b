"""Scheduler histories with less room than all of their requests take, so that some are preempted.

In turn: a long prompt of low priority that is computed beside short requests which come first, with
room for both as they arrive and for little more; and requests of any lengths, or more of them than
run at once, each of another priority, some of which are aborted while they wait: among others the
one that would be next.
"""

from random import Random

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind


def contended_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof contended {seed}")
    number = int(str(seed).rpartition(":")[2])
    if number % 8 == 3:
        return _queued(random)
    if number % 8 == 7:
        return _next_gives_up(random)
    return _overtaken(random) if number % 2 == 0 else _crowded(random, number)


def _overtaken(random: Random) -> SchedulerHistory:
    size = random.choice((4, 8))
    length = random.randint(6, 10) * size + random.randint(0, size)
    prompt = tuple(range(1, length + 1))
    short = tuple(range(200, 200 + random.randint(1, size)))
    beside = random.random() < 0.5
    drafts = random.choice((0, 1, 2)) if beside else 0
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        2 + -(-(length + 2) // size) + random.choice((0, 0, 1)) + 2 * beside,
        length + 2 + drafts,
        4 * size,
        max_num_seqs=4,
        speculative_method="draft_model" if drafts else None,
        num_speculative_tokens=drafts,
        policy="priority",
        long_prefill_token_threshold=random.choice((2, 3)) * size,
    )
    requests = {
        "a": Arrival(prompt, (901, 902), priority=1),
        "b": Arrival(short, tuple(range(300, 300 + 2 * size)), random.choice((0, 0, 1))),
        "c": Arrival(prompt, (903,), after="b", priority=1),
    }
    if beside:
        # Who runs after the one that makes the others give way gets what they gave back.
        more = tuple(range(400, 400 + random.randint(1, 2 * size)))
        requests["d"] = Arrival(more, tuple(range(450, 450 + 2 * size)), random.choice((0, 1, 2)))
    return SchedulerHistory(deployment, requests)


def _queued(random: Random) -> SchedulerHistory:
    size, drafts = random.choice((4, 8)), random.choice((0, 1, 2))
    names = "abcdefg"
    # Who runs first gives way first.
    priorities = (len(names), *random.sample(range(len(names)), len(names) - 1))
    requests: dict[str, Arrival] = {}
    fresh = 1
    for name, priority in zip(names, priorities, strict=True):
        num_prompt, num_output = random.randint(1, size + 2), random.randint(size, 2 * size)
        prompt = tuple(range(fresh, fresh + num_prompt))
        output = tuple(range(fresh + num_prompt, fresh + num_prompt + num_output))
        fresh += num_prompt + num_output
        requests[name] = Arrival(
            prompt,
            output,
            random.choice((0, 0, 1)) if requests else 0,
            priority=priority,
            accepted=(random.randint(0, drafts), random.randint(0, drafts)) if drafts else (),
            aborted=random.randint(2, 4) if name > "b" and random.random() < 0.4 else None,
        )
    longest = max(len(each.prompt) + len(each.output) for each in requests.values()) + drafts
    needed = -(-longest // size)
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + needed + random.randint(1, needed),
        longest,
        4 * size,
        max_num_seqs=2,
        speculative_method="ngram" if drafts else None,
        num_speculative_tokens=drafts,
        policy="priority",
    )
    return SchedulerHistory(deployment, requests)


def _next_gives_up(random: Random) -> SchedulerHistory:
    size = 4
    names = "abcdefgh"
    priorities = (0, *random.sample(range(1, len(names)), len(names) - 1))
    requests: dict[str, Arrival] = {}
    for place, (name, priority) in enumerate(zip(names, priorities, strict=True)):
        first = 100 * place + 1
        requests[name] = Arrival(
            tuple(range(first, first + random.randint(1, size))),
            tuple(range(first + 50, first + 50 + random.randint(2, size))),
            priority=priority,
            aborted=random.randint(1, 2) if priority == 1 else None,
        )
    needed = 2 * len(names)
    deployment = Deployment(
        (Group(GroupKind.FULL_ATTENTION, size),),
        1 + needed,
        2 * size,
        4 * size,
        max_num_seqs=1,
        policy="priority",
    )
    return SchedulerHistory(deployment, requests)


def _crowded(random: Random, number: int) -> SchedulerHistory:
    size = random.choice((4, 8))
    groups = [Group(GroupKind.FULL_ATTENTION, size)]
    if random.random() < 0.3:
        groups.append(Group(GroupKind.SLIDING_WINDOW, size, window=random.randint(2, 2 * size)))
    longest = random.randint(4 * size, 7 * size)
    needed = len(groups) * -(-longest // size) + 2 * (len(groups) - 1)
    requests: dict[str, Arrival] = {}
    fresh = 1
    for place, name in enumerate("abcd"):
        num_output = random.randint(2, 2 * size)
        room = longest - num_output
        prompt = tuple(range(fresh, fresh + random.randint(size, room)))
        if name == "d":
            donor = requests[random.choice("ab")]
            prompt = (donor.prompt + donor.output)[:room]
        fresh = max(fresh, prompt[-1] + 1)
        output = tuple(range(fresh, fresh + num_output))
        fresh += num_output
        requests[name] = Arrival(
            prompt, output, random.choice((0, 0, 1, 2, 4)), priority=abs(2 - place)
        )
    deployment = Deployment(
        tuple(groups),
        1 + needed + random.randint(0, needed),
        longest,
        random.choice((1, 2, 3)) * size,
        max_num_seqs=4,
        policy="priority" if number % 4 == 1 else "fcfs",
        async_scheduling=random.random() < 0.3,
        long_prefill_token_threshold=random.choice((0, size)),
    )
    return SchedulerHistory(deployment, requests)
