"""Something outside in generated histories: it sends, stores and takes blocks."""

from dataclasses import replace
from random import Random

from hitproof.conformance.histories.schema import (
    Finish,
    History,
    Hold,
    Load,
    Release,
    Sent,
    Step,
    Take,
)


def connected(seed: int | str, history: History) -> History:
    """In some histories, let something outside hold blocks: what it sends, stores, or takes."""
    random = Random(f"hitproof connected {seed}")
    if random.random() >= 0.2:
        return history
    steps: list[Step] = []
    sending: list[str] = []
    for step in history.steps:
        if isinstance(step, Finish) and random.random() < 0.5:
            step = replace(step, sending=True)
            sending.append(step.request)
        elif isinstance(step, Load) and random.random() < 0.5:
            step = replace(step, reserved_blocks=random.randint(1, 6))
        steps.append(step)
        chance = random.random()
        if sending and chance < 0.3:
            steps.append(Sent(sending.pop(0)))
        elif chance < 0.4:
            name, group = random.choice(list(history.requests)), random.randrange(4)
            steps.append(Hold(name, group % len(history.engine.groups), (0, random.randint(0, 3))))
        elif chance < 0.5:
            steps.append(Take(random.choice((1, 2, None))))
        elif chance < 0.7:
            steps.append(Release())
    return replace(history, steps=(*steps, Release(), *map(Sent, sending)))
