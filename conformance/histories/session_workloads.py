"""Scheduler histories with streaming sessions: requests that get their input in parts.

An input ends by a stop token or as it has all tokens that it may have, among accepted drafts, with
steps in flight, or preempted; its last token is discarded, near the end of a block. The next input
is there by then, or comes later, while the session keeps its blocks. Other requests have the tokens
of the session, with and without what was discarded. In turn: full attention alone; beside windows;
beside recurrent states; windows alone; and with little room.
"""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.stop_workloads import stop_workload
from hitproof.conformance.histories.workloads import Arrival, SchedulerHistory

_MORE = 700
"""The first token of what is added; no other history of stops has it, nor those after it."""


def session_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof sessions {seed}")
    made = stop_workload(seed)
    size = min(group.block_size for group in made.deployment.groups)
    most, drafts = made.deployment.max_model_len, made.deployment.num_speculative_tokens
    first = replace(made.requests["a"], session="s")
    requests = {"a": first}
    last, fresh = "a", _MORE
    for name in ("a2", "a3")[: random.choice((1, 1, 2))]:
        before = requests[last]
        output = tuple(range(fresh, fresh + random.randint(1, size)))
        fresh += len(output)
        more = random.choice((1, random.randint(1, 2 * size)))
        # An input of as many tokens as end a block.
        more = random.choice((more, size - len(before.kept) % size))
        prompt = before.kept + tuple(range(fresh, fresh + more))
        past = tuple(range(fresh + more, fresh + more + random.randint(1, 4)))
        fresh += more + len(past)
        if len(prompt) + len(output) + len(past) > most:
            break
        requests[name] = Arrival(
            prompt,
            output,
            random.choice((0, 0, 1, 2, 6)),
            after=last if random.random() < 0.5 else None,
            accepted=tuple(random.randint(0, drafts) for _ in range(2)) if drafts else (),
            priority=first.priority,
            aborted=random.randint(1, 6) if random.random() < 0.1 else None,
            past_end=past,
            stop=random.random() < 0.7,
            session="s",
        )
        last = name
    if random.random() < 0.4:
        requests[last] = replace(requests[last], open_steps=random.randint(1, 6))
    for name, each in made.requests.items():
        if name != "a":
            requests[name] = replace(each, after=each.after and random.choice(list(requests)[:2]))
    told = requests[last].kept
    for name, prompt in (("same", told), ("long", (*told, *range(990, 990 + size)))):
        if random.random() < 0.6 and len(prompt) + 2 <= most:
            after = random.choice((last, last, "a", None))
            requests[name] = Arrival(prompt, (980, 981), random.choice((0, 1)), after=after)
    return SchedulerHistory(made.deployment, requests)
