"""``hitproof doctor``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hitproof.vllm_integration.commands.configuration import is_release
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import OneWorker, Refusal
from hitproof.vllm_integration.commands.running import announce, resolve
from hitproof.vllm_integration.gate.doctor import (
    ModelError,
    OutOfReach,
    Wanted,
    bundled_drafts,
    bundled_models,
    diagnose,
    read_model,
    with_paths,
)
from hitproof.vllm_integration.gate.doctor_history import write_histories
from hitproof.vllm_integration.reports.doctor import diagnosis_json, print_diagnosis
from hitproof.vllm_integration.reports.html.pages import doctor_page
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.verdict import Verdict

NEWEST = "0.33.0"
"""The release that a deployment is set up on where none is named."""
_LENGTHS = (1000, 4000, 16000)


@command(
    ModelError,
    formats="TEXT JSON HTML",
    page=True,
)
def doctor(
    context: typer.Context,
    model: Annotated[
        str, {"models": ", ".join(bundled_models()), "drafts": " and ".join(bundled_drafts())}
    ],
    limits: OneWorker,
    target: str = NEWEST,
    also: list[str] | None = None,
    prompt: Annotated[list[int] | None, {"lengths": ", ".join(map(str, _LENGTHS))}] = None,
    answer: int = 64,
    question: int = 100,
    histories: Path | None = None,
) -> Answer:
    """Estimate prefix-cache hits for a model on a release, and explain misses.

    The target's own code reads config.json and the arguments, groups the layers and schedules
    requests; neither weights nor a GPU are needed. The exit code is 0 whatever the hits are, 2 if
    the target rejects the deployment, 3 if doctor cannot set it up.
    """
    if also is None and is_release(target) and target != NEWEST:
        also = [NEWEST]
    lengths = tuple(dict.fromkeys(prompt or _LENGTHS))
    unwritable = "{} cannot be written ({}); name another directory with --histories"
    if histories is not None:  # before the target is asked, which takes long
        try:
            histories.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refusal(unwritable.format(histories, error.strerror)) from None
    try:
        wanted = Wanted(read_model(model), with_paths(context.args), lengths, answer, question)
        found = diagnose(resolve(target), [resolve(each) for each in also or ()], wanted, limits)
    except OutOfReach as error:
        raise Refusal(str(error), Verdict.INCONCLUSIVE) from None
    except WorkerGone as gone:
        raise Refusal(f"the deployment cannot be set up: {gone}", Verdict.INCONCLUSIVE) from None
    if histories is not None:
        try:
            written = write_histories(found.deployment, found.short, answer, question, histories)
        except OSError as error:
            raise Refusal(unwritable.format(histories, error.strerror)) from None
        for path in written:
            announce(f"history: {path}")
    return Answer(
        Verdict.CONFORMS,
        partial(print_diagnosis, found),
        partial(diagnosis_json, found),
        page=partial(doctor_page, found),
    )
