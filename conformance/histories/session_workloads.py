"""Scheduler histories with streaming sessions: requests that get their input in parts.

An input ends by a stop token or as it has all tokens that it may have, among accepted drafts, with
steps in flight, or preempted; its last token is discarded, near the end of a block. The next input
is there by then, or comes later, while the session keeps its blocks. Other requests have the tokens
of the session, with and without what was discarded. In turn: full attention alone; beside windows;
beside recurrent states; windows alone; and with little room. Some sessions have images, in several
of their inputs.
"""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.schema import Image
from hitproof.conformance.histories.stop_workloads import stop_workload
from hitproof.conformance.histories.workloads import Arrival, Encoder, SchedulerHistory

_LARGEST = 5
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
    return _with_images(seed, SchedulerHistory(made.deployment, requests))


def _with_images(seed: int | str, history: SchedulerHistory) -> SchedulerHistory:
    """The history with images in some inputs, which requests of the same tokens may have or not."""
    random = Random(f"hitproof images of sessions {seed}")
    session = [name for name, each in history.requests.items() if each.session is not None]
    deployment = history.deployment
    # How chunks end beside states, and before images for drafts, `image_workloads` has.
    if deployment.has_mamba or random.random() < 0.25:
        return history
    images: list[Image] = []
    requests, start = dict(history.requests), 0
    for name in session:
        prompt = requests[name].prompt
        start += random.choice((0, 0, 1, 2))
        while start < len(prompt) and random.random() < 0.7:
            length = random.randint(1, min(_LARGEST, len(prompt) - start))
            images.append(Image(f"{random.choice(('cat', 'dog'))} {length}", start, length))
            start += length + random.choice((0, 1, 3))
        requests[name] = replace(requests[name], images=tuple(images))
        start = len(requests[name].kept)
    others = [Image(f"cow {each.length}", each.offset, each.length) for each in images]
    for name in [name for name in requests if name not in session]:
        seen = random.choice((images, images, [*images[:-1], *others[-1:]], []))
        within = [e for e in seen if e.offset + e.length <= len(requests[name].prompt)]
        requests[name] = replace(requests[name], images=tuple(within))
    spare = 100 if deployment.has_draft_head else random.choice((0, 2, 100))
    encoder = Encoder(_LARGEST + spare, _LARGEST + spare)
    return SchedulerHistory(replace(deployment, encoder=encoder), requests)
