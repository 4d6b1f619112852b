"""What generated histories show of a target that treats grammars in a wrong way.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is, and whether a test of that fails with the fault
alone.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.reproduce.scheduler_case import scheduler_case
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 50


def is_tested(
    subject: VllmSchedulers, histories: Iterable[SchedulerHistory], start: str, fault: Any
) -> bool | str:
    """Whether a test of the first history that shows it fails, and passes without the fault.

    Why there is none, where none is written.
    """
    why: list[str] = []
    for history in histories:
        try:
            with fault:
                shows = [
                    each.violation
                    for each in play(history, subject).causes
                    if str(each.signature.defect).startswith(start)
                ]
                if not shows:
                    continue
                fails = scheduler_case(subject, history, shows[0], "broken").fails
            return fails and not scheduler_case(subject, history, shows[0], "broken").fails
        except CannotJudge as error:
            why.append(str(error))
    return why[0] if why else "nothing shows it"


def _kept(update: Callable[..., Any]) -> Callable[..., Any]:
    """Rejected drafts stay computed."""

    def updated(self: Any, output: Any, result: Any) -> Any:
        answer = update(self, output, result)
        for name, number in (output.num_invalid_spec_tokens or {}).items():
            if request := self.requests.get(name):
                request.num_computed_tokens += number
                request.num_output_placeholders += number
        return answer

    return updated


def _counted(make: Callable[..., Any]) -> Callable[..., Any]:
    """Rejected drafts count."""
    return lambda *all_, **named: make(*all_, **named | {"num_invalid_spec_tokens": None})


def _hasty(update: Callable[..., Any]) -> Callable[..., Any]:
    """No step awaits the tokens of the last one."""

    def updated(self: Any, output: Any) -> None:
        update(self, output)
        output.pending_structured_output_tokens = False

    return updated


def _blocked(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Nobody is admitted while somebody waits for a grammar."""

    def scheduled(self: Any, *more: Any) -> Any:
        most = self.max_num_active_reqs
        statuses = [str(request.status) for request in self.waiting]
        if any("GRAMMAR" in status for status in statuses):
            self.max_num_active_reqs = len(self.running)
        output = schedule(self, *more)
        self.max_num_active_reqs = most
        return output

    return scheduled


def _deaf(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Nobody sees that a grammar is ready."""
    return lambda self, request: "GRAMMAR" not in str(request.status) and handle(self, request)


def _eager(handle: Callable[..., Any]) -> Callable[..., Any]:
    """A request with a grammar does not wait for it."""

    def handled(self: Any, request: Any) -> Any:
        if "GRAMMAR" in str(request.status):
            request.status = type(request.status).WAITING
        return handle(self, request)

    return handled


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager as Manager

    def broken(owner: Any, method: str, how: Callable[..., Any]) -> Any:
        return patch.object(owner, method, how(getattr(owner, method)))

    handle, after = "_handle_blocked_waiting_request", "_update_after_schedule"
    return {
        "keeps rejected drafts": ("", broken(Scheduler, "update_from_output", _kept)),
        "counts rejected drafts": (
            "drafts-counted-wrong",
            broken(Scheduler, "make_spec_decoding_stats", _counted),
        ),
        "accepts all drafts": (
            "grammar-ignored(how=drafts",
            patch.object(Manager, "validate_tokens", lambda _, __, drafts: drafts),
        ),
        "rejects all drafts": (
            "step-leaves-work(what=",
            patch.object(Manager, "validate_tokens", lambda *_: []),
        ),
        "does not wait": (
            "grammar-ignored(how=early",
            broken(Scheduler, handle, _eager),
        ),
        "waits for ever": ("request-never-finishes", broken(Scheduler, handle, _deaf)),
        "keeps others waiting": (
            "step-leaves-work(what=waiting",
            broken(Scheduler, "schedule", _blocked),
        ),
        "awaits no tokens": (
            "grammar-ignored(how=state",
            broken(AsyncScheduler, after, _hasty),
        ),
        "masks nothing": (
            "grammar-ignored(how=mask",
            patch.object(Scheduler, "get_grammar_bitmask", lambda *_: None),
        ),
        "does not go on": (
            "grammar-ignored(how=state",
            patch.object(Manager, "accept_tokens", lambda *_: True),
        ),
    }


_NOT_RETURNED = "does not show in what the scheduler's methods return"
NOT_WRITTEN = {
    "counts rejected drafts": "no grammars beside hashes, counts of drafts and transfers",
    "rejects all drafts": _NOT_RETURNED,
    "keeps others waiting": _NOT_RETURNED,
}
"""What has no test, and why."""


if __name__ == "__main__":
    subject = VllmSchedulers()
    with_drafts = drawn(_MANY, "grammars", "drafts", "planned ahead")
    right = silent(subject, chain(with_drafts, drawn(_MANY, "grammars")))
    made = answers(subject, right, faults())
    for name, (start, fault) in faults().items():
        tested, why_not = is_tested(subject, right, start, fault), NOT_WRITTEN.get(name)
        made[f"{name}: test"] = tested is True if why_not is None else why_not in str(tested)
    write(made)
