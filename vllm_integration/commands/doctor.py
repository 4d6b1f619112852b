"""``hitproof doctor``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hitproof.vllm_integration.commands.configuration import is_release
from hitproof.vllm_integration.commands.options import OneWorker
from hitproof.vllm_integration.commands.outputs import Outputs
from hitproof.vllm_integration.commands.running import announce, as_document, fail, failures
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
from hitproof.vllm_integration.sandbox.driver import Limits, WorkerGone
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.verdict import Verdict

_NEWEST = "0.33.0"
_LENGTHS = (1000, 4000, 16000)


DoctorFormat = StrEnum("DoctorFormat", "TEXT JSON HTML")
"""How the answer is printed."""


def doctor(
    context: typer.Context,
    model: Annotated[
        str, {"models": ", ".join(bundled_models()), "drafts": " and ".join(bundled_drafts())}
    ],
    target: str = _NEWEST,
    also: list[str] | None = None,
    prompt: Annotated[list[int] | None, {"lengths": ", ".join(map(str, _LENGTHS))}] = None,
    answer: int = 64,
    question: int = 100,
    histories: Path | None = None,
    html: Path | None = None,
    output: DoctorFormat = DoctorFormat.TEXT,
    limits: OneWorker = Limits(),
) -> None:
    """Estimate prefix-cache hits for a model on a release, and explain misses.

    The target's own code reads config.json and the arguments, groups the layers and schedules
    requests; neither weights nor a GPU are needed. The exit code is 0 whatever the hits are, 2 if
    the target rejects the deployment, 3 if doctor cannot set it up.
    """
    outputs = Outputs(context, output, html)
    with failures(output, ModelError):
        try:
            wanted = Wanted(
                read_model(model),
                with_paths(context.args),
                tuple(dict.fromkeys(prompt or _LENGTHS)),
                answer,
                question,
            )
            found = diagnose(
                resolve(target, announce=announce),
                [resolve(each, announce=announce) for each in _others(target, also)],
                wanted,
                limits,
            )
        except OutOfReach as error:
            fail(Verdict.INCONCLUSIVE, str(error), output)
        except WorkerGone as gone:
            fail(Verdict.INCONCLUSIVE, f"the deployment cannot be set up: {gone}", output)
    if histories is not None:
        try:
            written = write_histories(found.deployment, found.short, answer, question, histories)
        except OSError as error:
            sentence = f"{histories} cannot be written ({error.strerror}); name another directory"
            fail(Verdict.USAGE, f"{sentence} with --histories", output)
        for path in written:
            announce(f"history: {path}")
    outputs.show(
        {"json": lambda: as_document(diagnosis_json(found))},
        lambda console: print_diagnosis(found, console),
        lambda command: doctor_page(found, command),
    )


def _others(target: str, also: list[str] | None) -> list[str]:
    """The targets to compare with."""
    if also is None and is_release(target) and target != _NEWEST:
        return [_NEWEST]
    return also or []
