"""The smallest scheduler history that still shows something."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any

from hitproof.conformance.histories.workloads import Arrival, Reset, SchedulerHistory
from hitproof.conformance.playing.shrinking import Tries, simplest

_TOGETHER: dict[str, tuple[str, ...]] = {
    "speculative_method": ("num_speculative_tokens", "num_mtp_modules"),
    "grammar_steps": ("valid_drafts",),
    "session": ("open_steps",),
    "past_end": ("stop",),
    "invalid_blocks": ("invalid_steps",),
    "loads": ("load_fails", "load_steps", "invalid_blocks", "invalid_steps"),
}
"""Fields without meaning once the first is at its default."""


def shrink(
    history: SchedulerHistory, shows: Callable[[SchedulerHistory], bool], budget: int = 400
) -> SchedulerHistory:
    """The smallest history found for which ``shows`` still holds: fewest requests, then the rest.

    Removes requests, tokens and features until nothing more can be removed or ``budget`` histories
    were tried.
    """
    return simplest(history, _simplifications, Tries(shows, budget))


def _plainer(item: Any) -> Iterator[dict[str, Any]]:
    """Each field that is not at its default, put there, with those that go with it."""
    defaults = {each.name: each.default for each in fields(item) if each.default is not MISSING}
    for name, default in defaults.items():
        if getattr(item, name) != default:
            names = (name, *_TOGETHER.get(name, ()))
            yield {each: defaults[each] for each in names}


def _simplifications(history: SchedulerHistory) -> Iterator[Callable[[], SchedulerHistory]]:
    """Histories that are simpler in one respect, the largest reductions first."""
    requests, deployment = history.requests, history.deployment
    for name in reversed(requests):
        kept = {
            other: replace(each, after=None) if each.after == name else each
            for other, each in requests.items()
            if other != name
        }
        if kept:
            yield partial(replace, history, requests=kept)
    for index in range(len(history.encoder_resets)):
        resets = history.encoder_resets[:index] + history.encoder_resets[index + 1 :]
        yield partial(replace, history, encoder_resets=resets)
    for index in range(len(deployment.groups) if len(deployment.groups) > 1 else 0):
        fewer = {
            name: each[:index] + each[index + 1 :]
            for name in ("groups", "layers", "precisions")
            if (each := getattr(deployment, name))
        }
        yield partial(_with, history, **fewer)
    if deployment.speculative_method is not None:
        without = tuple(replace(group, eagle=False) for group in deployment.groups)
        plain_drafts = {"speculative_method": None, "num_speculative_tokens": 0}
        yield partial(_with, history, groups=without, num_mtp_modules=1, **plain_drafts)
        if deployment.num_speculative_tokens > 1:
            yield partial(_with, history, num_speculative_tokens=1, num_mtp_modules=1)
    for changes in _plainer(deployment):
        yield partial(_with, history, **changes)
    for place, each in enumerate(history.resets):
        others = history.resets[:place], history.resets[place + 1 :]
        yield partial(replace, history, resets=sum(others, ()))
        for changes in _plainer(each):
            plainer: Reset = replace(each, **changes)
            yield partial(replace, history, resets=(*others[0], plainer, *others[1]))
    if deployment.connector is not None:
        for changes in _plainer(deployment.connector):
            yield partial(_with, history, connector=replace(deployment.connector, **changes))
    if deployment.encoder is not None:
        for changes in _plainer(deployment.encoder):
            yield partial(_with, history, encoder=replace(deployment.encoder, **changes))
    images = (image.identifier for each in requests.values() for image in each.images)
    for identifier in dict.fromkeys(images):
        yield partial(replace, history, requests=_without_image(requests, identifier))
    for name, request in requests.items():
        for simpler in _simpler(request):
            changed = requests | {name: simpler}
            yield partial(replace, history, requests=changed)
    longest = max((len(r.prompt) + len(r.sampled) for r in requests.values()), default=1)
    if longest < deployment.max_model_len:
        yield partial(_with, history, max_model_len=longest)


def _without_image(requests: dict[str, Arrival], identifier: str) -> dict[str, Arrival]:
    """The requests without an image, which the inputs of a session have in common."""
    return {
        name: replace(each, images=tuple(e for e in each.images if e.identifier != identifier))
        for name, each in requests.items()
    }


def _with(history: SchedulerHistory, **changes: Any) -> SchedulerHistory:
    return replace(history, deployment=replace(history.deployment, **changes))


def _simpler(request: Arrival) -> Iterator[Arrival]:
    for changes in _plainer(request):
        yield replace(request, **changes)
    for name in ("images", "embeddings"):
        values = getattr(request, name)
        for place in range(len(values)):
            yield replace(request, **{name: values[:place] + values[place + 1 :]})
    if request.grammar_steps:
        yield replace(request, grammar_steps=0)
    if len(request.past_end) > 1:
        yield replace(request, past_end=request.past_end[:-1])
    if len(request.invalid_blocks) > 1:
        yield replace(request, invalid_blocks=request.invalid_blocks[1:])
    for part in ("output", "prompt"):
        tokens = getattr(request, part)
        for less in (len(tokens) // 2, 1):
            if 0 < less < len(tokens):
                left = len(tokens) - less if part == "prompt" else len(request.prompt)
                images = tuple(e for e in request.images if e.offset + e.length <= left)
                embedded = tuple(
                    replace(e, values=e.values[: left - e.offset])
                    for e in request.embeddings
                    if e.offset < left
                )
                shorter = replace(
                    request, **{part: tokens[:-less]}, images=images, embeddings=embedded
                )
                yield replace(shorter, loads=min(request.loads, len(shorter.prompt)))
