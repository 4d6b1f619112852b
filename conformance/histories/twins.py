"""Histories with twins: requests of the same tokens that share nothing, in the same steps.

What a manager keeps of one request must not be taken for another's that has the same tokens, and
what it does for a request with an adapter, a salt or an image must be what it does for one without.
So every request of a history gets a twin, which does all that it does, right after it.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from hitproof.conformance.histories.fine_families import fine_histories
from hitproof.conformance.histories.schema import (
    Evict,
    Finish,
    History,
    Image,
    Load,
    Loaded,
    Lookup,
    Preempt,
    RequestInput,
    Schedule,
    Sent,
    Step,
)
from hitproof.spec.releases.fine import is_fine_grained


def fine_twins() -> Iterator[History]:
    """Histories whose hits may end inside blocks."""
    for number, history in enumerate(fine_histories()):
        yield with_twins(history, number)


def with_twins(history: History, number: int) -> History:
    """The history with a twin of each request, and room for both.

    ``number`` says how they are told apart: by salt, adapter or image.
    """
    own, other = {}, {}
    fine = is_fine_grained(history.engine.groups, history.engine.hash_block_size)
    for name, request in history.requests.items():
        own[name], other[_twin(name)] = _told_apart(request, number, fine)
    engine = replace(history.engine, num_gpu_blocks=2 * history.engine.num_gpu_blocks - 1)
    steps = tuple(chain.from_iterable(map(_both, history.steps)))
    return replace(history, engine=engine, requests=own | other, steps=steps)


def _twin(name: str) -> str:
    return f"twin of {name}"


def _told_apart(
    request: RequestInput, number: int, fine: bool
) -> tuple[RequestInput, RequestInput]:
    """Both have more than tokens in the keys of their blocks, and differ in one part of that.

    ``fine`` is whether a block in part may be cached, in which they have several images, too.
    """
    salted = replace(request, cache_salt="s")
    match number % 3:
        case 0:
            return replace(request, lora_name="x"), replace(salted, lora_name="x")
        case 1:
            return salted, replace(salted, lora_name="x")
        case _:
            adapted, length = replace(salted, lora_name="x"), len(request.prompt)
            if length < 2 or request.images:
                return salted, adapted
            places = (0, 1, length - 2, length - 1) if fine and length >= 4 else (0, 1)
            first, second = (
                tuple(Image((name, "map")[place % 2], at, 1) for place, at in enumerate(places))
                for name in ("cat", "dog")
            )
            return replace(adapted, images=first), replace(adapted, images=second)


def _both(step: Step) -> Iterator[Step]:
    yield step
    if isinstance(step, Schedule | Lookup | Load | Loaded | Preempt | Finish | Sent | Evict):
        yield replace(step, request=_twin(step.request))
