"""Reproduction: the evidence of a finding as a history of a whole manager.

The checks exercise parts of a target: one group's lookup on any cache state, the registration of
one group's blocks, hashes. A finding matters to users when a whole manager shows it through its
public methods: one request computes a prompt, blocks that are not in the cache state are evicted,
and another request is looked up. What the spec demands at the end is an `Expected`, computed by the
spec for the groups that the manager has, and the subject is played to confirm that it does
something else.

Evictions reach every subset of the registered blocks. A state with a block that the subject does
not register is out of reach, and the report says so.
"""

from dataclasses import dataclass

from hitproof.conformance.findings.evidence import Evidence
from hitproof.conformance.histories.schema import History
from hitproof.conformance.playing.expectations import (
    Expected,
    LocalPrefix,
    Served,
    holds,
    local_prefix,
)
from hitproof.conformance.playing.player import Player
from hitproof.conformance.reproduce.attempts import Attempt, OutOfReach, Rules, attempts
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.managers import Manager, ManagerSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence


@dataclass(frozen=True)
class Reproduction:
    """A finding on a whole manager.

    Attributes:
        history: a history that shows it; None if none was found.
        expected: what the spec demands at its end, and the subject does not do.
        detail: why there is none.
    """

    history: History | None
    expected: Expected | None
    detail: str = ""


def reproduce(evidence: Evidence, subject: ManagerSubject, rules: Rules) -> Reproduction:
    """Look for a history on which a whole manager shows the evidence, and play it.

    Raises `CannotJudge` when the subject has no whole manager that can be played.
    """
    first_reason = ""
    try:
        for attempt in attempts(evidence, rules):
            reason = _played(attempt, evidence, subject)
            if not reason:
                return Reproduction(attempt.history, attempt.expected)
            first_reason = first_reason or reason
    except OutOfReach as reason:
        first_reason = str(reason)
    return Reproduction(
        None, None, first_reason or "no history of a whole manager reaches that state"
    )


def play(history: History, manager: Manager) -> Player:
    """Play a whole history. A step that is not carried out is no error; exceptions propagate."""
    player = Player(history, manager)
    for step in history.steps:
        player.play(step)
    return player


def _played(attempt: Attempt, evidence: Evidence, subject: ManagerSubject) -> str:
    """Why the attempt does not show the evidence; "" when it does."""
    manager = subject.start(attempt.history.engine)
    crashes = evidence.signature.divergence == Divergence.CRASH
    try:
        hits = play(attempt.history, manager).hits
    except Exception as error:
        return "" if crashes else f"the manager raises {crash_of(error)!r:.200}"
    if crashes:
        return "the manager does not raise"
    unlike = _unlike(attempt, manager)
    if unlike:
        return unlike
    expected = attempt.expected
    if holds(expected, manager, hits):
        return "the manager does what the spec demands there"
    if isinstance(expected, Served):
        longer = hits[expected.request].length > expected.tokens
        too_long = (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)
        if longer != (evidence.signature.divergence in too_long):
            return f"the manager is wrong in another way: hit {hits[expected.request].length}"
    if isinstance(expected, LocalPrefix):
        found, _ = local_prefix(manager, expected.request)
        if (found < expected.tokens) != (evidence.signature.divergence == Divergence.LOST_HIT):
            return f"the manager is wrong in another way: local prefix of {in_tokens(found)}"
    return ""


def _unlike(attempt: Attempt, manager: Manager) -> str:
    """How the cache state differs from the one that the attempt needs; "" if it does not."""
    name = next(iter(attempt.history.requests))
    for group, wanted in enumerate(attempt.cached or ()):
        for block, key in enumerate(manager.block_keys(name, group)):
            held = bool(manager.cached_blocks(group, key))
            if held != (block in wanted):
                registers = "stays registered" if held else "is not registered"
                return f"block {block} of group {group} {registers}, so the state is out of reach"
    return ""
