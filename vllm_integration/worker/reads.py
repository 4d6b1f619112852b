"""The worker's operation ``reads``: which of its inputs the imported vLLM reads.

A few small configurations and histories of every kind are judged once more, traced. The results of
their checks are ignored.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.reads import Reads
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.adapter.variants import varied_names
from hitproof.vllm_integration.worker.replay import played

_FULL, _WINDOW, _CHUNKS, _MAMBA = GroupKind
_PLAYS = (
    *(Play(Origin.GENERATED, f"1:{number}") for number in range(8)),
    *(Play(Origin.FINE_GENERATED, f"1:{number}") for number in range(2)),
)


def _judged() -> Iterator[Configuration | Layout]:
    yield single_group(_FULL, 2, 2, None, True, 4)
    yield single_group(_WINDOW, 2, 2, 4, True, 4)
    yield single_group(_WINDOW, 2, 1, 4, False, 4)
    yield single_group(_CHUNKS, 2, 1, None, False, 4, chunk=4)
    yield single_group(_MAMBA, 2, 2, None, True, 4)
    full, window = Group(_FULL, 2), Group(_WINDOW, 1, 2, eagle=True)
    yield Layout((full, window), 4, True, 1)
    yield Layout((full, Group(_MAMBA, 2)), 4, False, 2)
    yield Layout((full,), 4, True, 2)


def reads(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What is read, and what variants differ in; see `vllm_integration.adapter.reads`."""
    del message
    subject.policies()  # found out beforehand, so that nothing of it is traced
    claims = {check: claim for claim, check in CHECKS.items()}.values()
    found: Reads = subject.reads()
    with found.tracing():
        for number, judged in enumerate(_judged(), 1):
            for claim in claims:
                if is_about(claim, judged):
                    with contextlib.suppress(Exception):  # the check itself reports it
                        CHECKS[claim](subject, replace(judged, variant=number))
        for play in _PLAYS:
            with contextlib.suppress(Exception):
                played(subject, play)
    return {"reads": sorted(found.names()), "varied": sorted(varied_names())}
