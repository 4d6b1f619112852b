"""Replay: one history played on one manager, every claim judged after every step.

The judge is the spec, applied to the manager's own cache. There is no second manager to compare
with, so any release that has the entry points can be judged. The content model runs beside the
manager (`conformance.judge.content`).

A violation does not end the history. What follows from it is told apart from what later steps break
by themselves (`conformance.judge.damage`). After an exception the history goes on without the
request that the call was for, unless the exception leaves the pool in a wrong state.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from hitproof.conformance.explain.traces import Standing, State
from hitproof.conformance.histories.schema import Expect, History
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.judged_manager import JudgedManager
from hitproof.conformance.judge.outcome import Comparison, Crashed, ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.playing.player import Player
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import ManagerSubject
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.releases.policies import SparseRetention

_NAMES = {field.name for field in fields(Expect)} - {"request", "do"}


def compared(
    number: int, step: Expect, player: Player, manager: JudgedManager
) -> Iterator[Comparison]:
    """What the step ``number`` expects, each with what there is."""
    for what in sorted(_NAMES):
        expected = getattr(step, what)
        if expected is not None:
            actual = _actual(what, step, player, manager)
            yield Comparison(number, step.request, what, expected, actual)


def _actual(what: str, step: Expect, player: Player, manager: JudgedManager) -> Any:
    name, seen = step.request, manager.observe()
    match what:
        case "hit":
            return player.hits[name].length if name in player.hits else None
        case "state":
            return player.standing()[name][0]
        case "computed":
            return player.num_computed_tokens(name)
        case "tables":
            return seen.tables.get(name)
        case "cached":
            keys = [manager.block_keys(name, group) for group in range(len(step.cached or ()))]
            return tuple(
                tuple(n for n, key in enumerate(of) if manager.cached_blocks(group, key))
                for group, of in enumerate(keys)
            )
        case "free":
            return seen.free_queue[: len(step.free or ())]
        case _:
            return manager.counted.get(what, 0)


def replay(
    history: History,
    subject: ManagerSubject,
    policies: JudgedPolicies | None = None,
    step_ends: Callable[[], None] = lambda: None,
    noted: Callable[[State, bool], None] | None = None,
    content: Callable[..., ContentModel] = ContentModel,
) -> ReplayOutcome:
    """Play ``history`` on a manager of ``subject`` and judge it under a release's policies.

    ``step_ends`` is called after every step that is played, also after one that crashes. ``noted``
    is given the state that was observed last, before the first step and after each one, and whether
    something was found at the step for the first time; the manager is asked nothing more.
    ``content`` makes the content model (`conformance.numeric` has one that computes, too).

    Raises `CannotJudge` when the subject lacks what the history asks for, or when the spec does
    not cover what the subject does.
    """
    judged = JudgedPolicies() if policies is None else policies
    engine = history.engine
    if engine.retention_interval is not None and judged.sparse_retention is SparseRetention.NONE:
        raise CannotJudge(
            "this release has no retention interval; leave retention_interval out, or name a later "
            "release"
        )
    if engine.mamba_checkpoint_alignment and judged.tail(engine) is not FineTail.RESEND:
        raise CannotJudge(refusal("replay-checkpoints"))
    outcome = ReplayOutcome()
    manager = JudgedManager(history, subject, judged, outcome, content)
    player = judged.player(history, manager)
    if noted is not None:
        noted(_state(manager, player), False)
    for number, step in enumerate(history.steps):
        manager.step = number
        try:
            deviation = player.play(step)
        except Crashed as crash:
            player.abandon(crash.request)
            deviation = f"raises {crash}"
        finally:
            step_ends()
        if not outcome.ended:
            manager.step_ends()
            outcome.steps.append(deviation)
            if isinstance(step, Expect):
                outcome.comparisons += compared(number, step, player, manager)
        if noted is not None:
            wrong = {found.step for found in outcome.findings}
            wrong |= {each.step for each in outcome.comparisons if not each.is_met}
            noted(_state(manager, player), number in wrong)
        if outcome.ended:
            break
    return outcome


def _state(manager: JudgedManager, player: Player) -> State:
    requests = {
        name: Standing(state=state, computed=computed, tokens=tokens)
        for name, (state, computed, tokens) in player.standing().items()
    }
    return State.of(manager.observe(), requests)
