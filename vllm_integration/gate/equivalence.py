"""Functions that a head changes, proved equivalent, so that fewer checks are repeated.

The worker proves it (`vllm_integration.worker.equivalence`).
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.picking import picked
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.vllm_integration.gate.obligations import Task
from hitproof.vllm_integration.gate.sessions import Outcome, Sessions
from hitproof.vllm_integration.sandbox.driver import WorkerGone
from hitproof.vllm_integration.targets.changed import Functions

_MOST = 8
"""Up to how many changed functions a change is one whose functions are proved."""
_SECONDS = 30.0
"""For one proof."""


@dataclass(frozen=True)
class Version:
    """A function that the head changes.

    Attributes:
        name: its qualified name.
        status: proved to do the same for all arguments, refuted by values, or inconclusive.
        detail: how the versions differ, or why nothing is known; of what is proved, for which
            groups, if not for all.
    """

    name: str
    status: Status
    detail: str

    def describe(self) -> str:
        """What is known, in words."""
        match self.status:
            case Status.PROVED:
                return f"{self.name}: proved equivalent{self.detail and f' {self.detail}'}"
            case Status.REFUTED:
                return f"{self.name}: not equivalent: {self.detail}"
        return f"{self.name}: not proved equivalent: {self.detail}"


@dataclass
class Versions:
    """What is known of all that the head changes.

    Attributes:
        functions: the changed functions that were looked at.
        elsewhere: what else is changed.
        skipped: checks whose answers are the base's.
    """

    functions: Sequence[Version] = ()
    elsewhere: Sequence[str] = ()
    skipped: int = 0

    @property
    def whole(self) -> bool:
        """Whether the head differs in functions only that are proved equivalent."""
        proved = all(each.status is Status.PROVED for each in self.functions)
        return bool(self.functions) and proved and not self.elsewhere

    def covers(self, task: Task) -> bool:
        """Whether a check calls the functions with arguments that the proofs are about.

        Those are of one group, whose manager and spec are the plain ones of its kind.
        """
        judged = task.configuration
        alone = isinstance(judged, Configuration) and judged.members == 1 and not judged.variant
        return self.whole and alone

    def in_words(self) -> list[str]:
        """One line for each function, and what was not asked again."""
        lines = [each.describe() for each in self.functions]
        if self.skipped:
            again = count(self.skipped, "check")
            lines.append(
                f"not asked of the head again, since only these change: {again} of a group"
            )
        return lines

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "functions": [picked(each, "name", "status", "detail") for each in self.functions],
            **picked(self, "elsewhere", checks_not_repeated="skipped"),
        }


def proved(sessions: Sessions, changed: Functions) -> Versions:
    """Prove the functions of a change in a session of the head."""
    found: list[Version] = []
    if len(changed.names) <= _MOST:
        for module, name in changed.names:
            message = {"texts": changed.texts, "module": module, "name": name}
            try:
                answer = sessions.ask(op="equivalent", **message, seconds=_SECONDS)
                found.append(Version(name, Status(answer["status"]), answer["detail"]))
            except WorkerGone as gone:
                found.append(Version(name, Status.INCONCLUSIVE, str(gone)))
    elif changed.names:
        many = f"{len(changed.names)} functions change, and at most {_MOST} are proved"
        return Versions((), [*changed.elsewhere, many])
    return Versions(found, changed.elsewhere)


class Shared:
    """Outcomes of the base, of which the head takes those that must be the same.

    Attributes:
        versions: what is known of the change; set before the head is judged.
    """

    def __init__(self) -> None:
        self.versions = Versions()
        self._outcomes: dict[Task, Future[Outcome]] = {}
        self._ended = False
        self._lock = threading.Lock()

    def of_base(self, task: Task, ask: Callable[[], Outcome]) -> Outcome:
        """Keep the outcome of the base."""
        outcome = ask()
        self._future(task).set_result(outcome)
        return outcome

    def of_head(self, task: Task, ask: Callable[[], Outcome]) -> Outcome:
        """The outcome of the base where it is that of the head."""
        if not self.versions.covers(task):
            return ask()
        try:
            outcome = self._future(task).result()
        except CancelledError:  # the base was not judged on it
            return ask()
        with self._lock:
            self.versions.skipped += 1
        return outcome

    def end(self) -> None:
        """The base has no more outcomes."""
        with self._lock:
            self._ended = True
            for each in self._outcomes.values():
                each.cancel()

    def _future(self, task: Task) -> "Future[Outcome]":
        with self._lock:
            if task not in self._outcomes:
                self._outcomes[task] = Future()
                if self._ended:
                    self._outcomes[task].cancel()
            return self._outcomes[task]
