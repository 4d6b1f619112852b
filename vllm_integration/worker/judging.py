"""Whole managers of the imported vLLM, judged under the policies that it shows."""

from functools import cache
from typing import Any

from hitproof.conformance.histories.plays import Abilities
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.judge.tracing import traced
from hitproof.spec.releases.fine import FineTail
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.vllm_integration.adapter.managers import VllmManagers
from hitproof.vllm_integration.adapter.subject import VllmSubject

managers = cache(VllmManagers)


@cache
def policies_of(subject: VllmSubject) -> JudgedPolicies:
    """The policies to judge by. Raises `CannotJudge`."""
    vllm = managers()
    return JudgedPolicies.of(subject.policies(), vllm.keeps_every_state, vllm.windows_opt_out)


@cache
def abilities_of(subject: VllmSubject) -> Abilities:
    """What histories can ask of the target. Raises `CannotJudge`."""
    vllm, policies = managers(), policies_of(subject)
    return Abilities(
        registers_tails=vllm.registers_tails,
        retained_kinds=[kind for kind in SPARSE_KINDS if policies.thins_out(kind)],
        fits_whole=vllm.fits_whole,
        reserves_blocks="reserved_blocks" in vllm.allocation_parameters,
        # Replay judges them where the end of a prompt is kept for resends.
        exports_states=vllm.exports_states and policies.fine_tail is FineTail.RESEND,
        keeps_shared_states=vllm.keeps_shared_states,
        hashes_look_ahead=vllm.hashes_look_ahead,
        looks_ahead=vllm.looks_ahead,
        windows_opt_out=vllm.windows_opt_out,
    )


def judged(subject: VllmSubject, history: History) -> ReplayOutcome:
    """Replay a history. Raises `CannotJudge`."""
    return replay(history, managers(), policies_of(subject))


def trace(subject: VllmSubject, history: History, step: int) -> dict[str, Any] | None:
    """The trace of a history up to a step, an index, as JSON; None where it cannot be played."""
    try:
        _, found = traced(history, managers(), policies_of(subject))
    except Exception:  # what is traced was found before, and is to be shown in any case
        return None
    return found.up_to(step).as_json()
