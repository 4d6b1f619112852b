"""Whether requests with grammars are served as these allow.

A request waits until its grammar is ready. Each of its tokens is sampled under what the grammar
allows after those before it, accepted drafts among them. Drafts that it rejects are never verified,
and the others are. vLLM: ``StructuredOutputManager``.
"""

from collections.abc import Collection, Iterator, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.runner import Constrained, about, violation
from hitproof.conformance.subject.schedulers import Masks, Plan


class Grammars:
    """The grammars of the requests of one history."""

    def __init__(self, history: SchedulerHistory) -> None:
        self._steps = {
            name: each.grammar_steps
            for name, each in history.requests.items()
            if each.grammar_steps is not None
        }
        self._ready: set[str] = set()
        self._scheduling = about(history.deployment)["scheduling"]

    def __bool__(self) -> bool:
        return bool(self._steps)

    def due(self, arrived: Mapping[str, int], step: int) -> Iterator[str]:
        """The requests whose grammar is ready from a step on."""
        for name, since in arrived.items():
            if name not in self._steps or name in self._ready:
                continue
            if step >= since + self._steps[name]:
                self._ready.add(name)
                yield name

    def pending(self, arrived: Collection[str]) -> frozenset[str]:
        """The arrived requests that wait for their grammar."""
        return frozenset(n for n in arrived if n in self._steps and n not in self._ready)

    def started(self, plan: Plan) -> Iterator[Violation]:
        """Requests that are computed though their grammar is not ready."""
        for each in plan.scheduled:
            if self.pending([each.request]):
                yield self._ignored(
                    "early",
                    f"request {each.request} waits until its grammar is ready",
                    f"{each.num_tokens} tokens of it are computed",
                )

    def verified(self, constrained: Mapping[str, Constrained]) -> Iterator[Violation]:
        """Requests with drafts that their grammar rejects, where known as a step is planned.

        ``constrained`` is what `ModelRunner.constrained` says of the step, also below.
        """
        for name, (_, drafts, valid) in constrained.items():
            if drafts > valid:
                yield self._rejected(name, valid, drafts)

    def checked(
        self, left: Mapping[str, int], constrained: Mapping[str, Constrained]
    ) -> Iterator[Violation]:
        """Whether those drafts are ``left`` that grammars accept, where they are checked late."""
        for name, (_, _, valid) in constrained.items():
            number = left.get(name, valid)
            if number > valid:
                yield self._rejected(name, valid, number)
            elif number < valid:
                yield violation(
                    Defect.of(Code.STEP_LEAVES_WORK, what="valid"),
                    f"{valid} drafts of request {name} are verified, which its grammar accepts",
                    f"{number} are",
                )

    def masked(
        self, masks: Mapping[str, Masks], constrained: Mapping[str, Constrained]
    ) -> Iterator[Violation]:
        """Whether each token that may be sampled in a step is one that its grammar allows."""
        for name, (known, _, valid) in constrained.items():
            given = masks.get(name, Masks((), valid))
            for place in range(1 + min(valid, given.acceptable)):
                state = given.states[place] if place < len(given.states) else None
                if state == known + place:
                    continue
                after = f", after {place} drafts" if place else ""
                yield self._ignored(
                    "mask" if state is None else "state",
                    f"token {known + place} of the output of request {name} is one that its "
                    f"grammar allows there{after}",
                    "every token is allowed"
                    if state is None
                    else f"it is one that the grammar allows after {state} tokens",
                )
                break

    def _rejected(self, name: str, valid: int, number: int) -> Violation:
        return self._ignored(
            "drafts",
            f"the grammar of request {name} accepts {valid} of its drafts, and no others are "
            "verified",
            f"{number} are",
        )

    def _ignored(self, how: str, spec: str, actual: str) -> Violation:
        defect = Defect.of(Code.GRAMMAR_IGNORED, how=how, scheduling=self._scheduling)
        return violation(defect, spec, actual)
