"""The smallest scheduler history that still shows something."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.conformance.subject.failures import CannotJudge

_PLAIN = Deployment.__dataclass_fields__


def shrink(
    history: SchedulerHistory, shows: Callable[[SchedulerHistory], bool], budget: int = 400
) -> SchedulerHistory:
    """The smallest history found for which ``shows`` still holds: fewest requests, then the rest.

    Removes requests, tokens and features until nothing more can be removed or ``budget`` histories
    were tried.
    """
    going = True
    while going and budget > 0:
        going = False
        for make in _simplifications(history):
            if budget <= 0:
                break
            try:
                candidate = make()
                budget -= 1
                found = candidate != history and shows(candidate)
            except (ValueError, CannotJudge):  # no history, or none that the target can have
                continue
            if found:
                history, going = candidate, True
                break
    return history


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
    for name, plain in _PLAIN.items():
        if name not in ("groups", "num_gpu_blocks", "max_model_len", "max_num_batched_tokens"):
            value = plain.default
            if getattr(deployment, name) != value:
                yield partial(_with, history, **{name: value})
    for place, each in enumerate(history.resets):
        others = history.resets[:place], history.resets[place + 1 :]
        yield partial(replace, history, resets=sum(others, ()))
        for name in ("reset_running_requests", "reset_connector", "connector_refuses"):
            plainer = replace(each, **{name: False})
            yield partial(replace, history, resets=(*others[0], plainer, *others[1]))
    if deployment.encoder is not None and deployment.encoder.ec_connector:
        yield partial(_with, history, encoder=replace(deployment.encoder, ec_connector=False))
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
    if request.aborted is not None:
        yield replace(request, aborted=None)
    if request.arrives:
        yield replace(request, arrives=0)
    if request.accepted:
        yield replace(request, accepted=())
    if request.skip_reading_prefix_cache:
        yield replace(request, skip_reading_prefix_cache=False)
    for place in range(len(request.images)):
        yield replace(request, images=request.images[:place] + request.images[place + 1 :])
    for place in range(len(request.embeddings)):
        fewer = request.embeddings[:place] + request.embeddings[place + 1 :]
        yield replace(request, embeddings=fewer)
    if request.grammar_steps is not None:
        yield replace(request, grammar_steps=None, valid_drafts=())
        if request.grammar_steps:
            yield replace(request, grammar_steps=0)
    if request.valid_drafts:
        yield replace(request, valid_drafts=())
    if request.open_steps:
        yield replace(request, open_steps=0)
    if request.min_tokens:
        yield replace(request, min_tokens=0)
    if request.session is not None:
        yield replace(request, session=None, open_steps=0)
    if request.past_end:
        yield replace(request, past_end=(), stop=False)
        if len(request.past_end) > 1:
            yield replace(request, past_end=request.past_end[:-1])
    if request.stop:
        yield replace(request, stop=False)
    if request.send_steps is not None:
        yield replace(request, send_steps=None)
    if request.load_fails:
        yield replace(request, load_fails=False)
    if request.invalid_blocks:
        fewer_invalid = request.invalid_blocks[1:]
        when = request.invalid_steps if fewer_invalid else None
        yield replace(request, invalid_blocks=fewer_invalid, invalid_steps=when)
    if request.invalid_steps is not None:
        yield replace(request, invalid_steps=None)
    if request.loads:
        plain = replace(request, invalid_blocks=(), invalid_steps=None)
        yield replace(plain, loads=0, load_fails=False, load_steps=None)
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
