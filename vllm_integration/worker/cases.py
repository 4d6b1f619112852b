"""The worker's side of test cases: findings on whole managers, and as pytest text."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.histories.schema import Evict, History, Load, Lookup, Schedule
from hitproof.conformance.playing.expectations import (
    Expected,
    LocalPrefix,
    Reported,
    ReportReturns,
    Served,
    TableLengths,
)
from hitproof.conformance.playing.player import Player, Playing
from hitproof.conformance.reproduce.attempts import Rules
from hitproof.conformance.reproduce.reproduction import reproduce as find_history
from hitproof.conformance.subject.failures import FailureKind, classify, refusal_of
from hitproof.spec.claims import CLAIMS
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.vllm_integration.adapter.overrides import in_place
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.reproduce.pytest_case import pytest_case
from hitproof.vllm_integration.reproduce.recording import RecordedManagers

_managers = cache(RecordedManagers)


def reproduce(subject: VllmSubject, evidence: Evidence, name: str) -> dict[str, Any]:
    """The `conformance.findings.demonstration.Demonstration` of an evidence, as JSON."""
    return {"name": name} | _reproduced(subject, evidence, name)


def _reproduced(subject: VllmSubject, evidence: Evidence, name: str) -> dict[str, Any]:
    try:
        rules = Rules(subject.lookahead_horizon, subject.eagle_groups)
        found = find_history(evidence, _managers(), rules)
        if found.history is None or found.expected is None:
            return {"reproduced": False, "detail": found.detail}
        return _written(found.history, found.expected, name, evidence.signature.sentence)
    except Exception as error:
        crashes = classify(error) is FailureKind.CRASH  # where no history is at fault
        detail = f"the target raises {error!r:.200}" if crashes else refusal_of(error)
        return {"reproduced": None, "detail": detail}


def of_violation(
    history: History, violation: Violation, step: int, name: str, playing: Playing
) -> dict[str, Any]:
    """What a history shows at a step, as a demonstration; ``name`` is made a test's."""
    expected, claim = violation.expected, CLAIMS.get(violation.signature.claim)
    if expected is None:
        return {"detail": "the fault does not show in what a public method returns"}
    comment = violation.spec if claim is None else claim.sentence
    name = re.sub(r"\W+", "_", name)
    try:
        shown = _written(cut(history, step, expected, playing), expected, name, comment, playing)
    except Exception as error:
        shown = {"detail": refusal_of(error)}
    return {"name": name} | shown


def _written(
    history: History, expected: Expected, name: str, comment: str, playing: Playing = Player
) -> dict[str, Any]:
    """A history as a demonstration. Raises `CannotJudge` when it cannot be written down."""
    case = pytest_case(_managers(), history, expected, name, comment, playing)
    if not case.fails:
        return {"reproduced": False, "detail": "replayed alone, the history conforms"}
    if in_place:  # vLLM's own tests would not build them
        named = ", ".join(chosen.__name__ for chosen in in_place.values())
        return {
            "reproduced": True,
            "vector": as_json(history),
            "detail": f"no test is written, since only hitproof builds {named} there",
        }
    return {
        "reproduced": True,
        "vector": as_json(history),
        "pytest": case.text,
        "error": case.error,
    }


def _not_cached(history: History, request: str, playing: Playing) -> Iterator[Evict]:
    """The blocks of a request's prefix that are not cached after a history."""
    manager = _managers().start(history.engine)
    player = playing(history, manager)
    for step in history.steps:
        player.play(step)
    player.arrive(request)
    engine = history.engine
    units = (
        manager.unit_keys(request) if is_fine_grained(engine.groups, engine.hash_block_size) else ()
    )
    for group, each in enumerate(engine.groups):
        per_block = each.block_size // engine.hash_block_size
        missing = [
            b
            for b, key in enumerate(manager.block_keys(request, group))
            if not any(
                manager.cached_blocks(group, entry)
                for entry in (key, *units[b * per_block : (b + 1) * per_block])
            )
        ]
        if missing:
            yield Evict(request, group, tuple(missing))


def cut(history: History, step: int, expected: Expected, playing: Playing = Player) -> History:
    """The history up to the step at which the expectation is broken.

    What a lookup must serve depends on what is cached, so blocks that are not are evicted before:
    a fixed target may register more.
    """
    *before, last = history.steps[: step + 1]
    if isinstance(expected, (Served, LocalPrefix, TableLengths)) and isinstance(
        last, (Schedule, Load, Lookup)
    ):
        played = History(history.engine, history.requests, (*before,))
        before += _not_cached(played, last.request, playing)
        last = Lookup(last.request)
    elif isinstance(expected, (Reported, ReportReturns)):
        last = Lookup(expected.request)
    named = {name for each in (*before, last) if (name := getattr(each, "request", None))}
    requests = {name: r for name, r in history.requests.items() if name in named}
    return History(history.engine, requests, (*before, last), history.about)
