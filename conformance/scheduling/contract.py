"""What a scheduler tells its KV connector of each request, and in which order.

A connector keeps books of its own from these calls alone: it is told of a request when that comes,
is asked what it has before anything is loaded, is given the blocks of each admission, and is told
of the end once, after which it forgets the request. vLLM: docstrings of ``KVConnectorBase_V1``.
"""

from collections.abc import Iterator, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.scheduling.runner import violation
from hitproof.conformance.subject.schedulers import Plan, Told


class Contract:
    """Follows what the connector of one scheduler is told."""

    def __init__(self, arrivals: Mapping[str, Arrival]) -> None:
        # To a connector the inputs of a session are one request.
        self._ids = {name: each.session or name for name, each in arrivals.items()}
        self._new: set[str] = set()
        self._answered: dict[str, int] = {}
        self._given: set[str] = set()
        self._over: set[str] = set()

    def judge(self, plan: Plan) -> Iterator[Violation]:
        """What is wrong with what it was told since the last step was planned, and of this one."""
        if plan.told is None:
            return
        for call in plan.told:
            yield from self._call(call)
        steps = sum(call.what == "step" for call in plan.told)
        if steps != 1:
            yield _wrong("step", "a KV connector prepares each step once", f"{steps} times")
        for each in plan.scheduled:
            name = self._ids[each.request]
            if each.whole and name not in self._given:
                yield _wrong(
                    "blocks",
                    f"a KV connector is given the blocks of request {name} when it is admitted",
                    "it is not",
                )
        self._given.difference_update(self._ids[each.request] for each in plan.scheduled)
        for name in {self._ids[each] for each in plan.finished} - self._over:
            yield _wrong(
                "never",
                f"a KV connector is told that request {name} has ended",
                "only the model runner is",
            )
            self._over.add(name)

    def _call(self, call: Told) -> Iterator[Violation]:
        name = call.request
        if call.what != "step" and name in self._over:
            again = call.what == "end"
            yield _wrong(
                "again" if again else "late",
                f"a KV connector is told once that request {name} has ended, and nothing after it",
                "it is told again" if again else f"it is told of its {call.what}",
            )
            return
        match call.what:
            case "arrival":
                if name in self._new:
                    yield _wrong("arrival", f"request {name} arrives once", "it does again")
                self._new.add(name)
            case "lookup":
                if name not in self._new:
                    yield _wrong(
                        "arrival",
                        f"a KV connector is told of request {name} before it is asked for it",
                        "it is not",
                    )
                self._answered[name] = call.tokens
            case "blocks":
                self._given.add(name)
                has = self._answered.pop(name, 0) if call.tokens else 0
                if call.tokens > has:
                    yield _wrong(
                        "tokens",
                        f"a KV connector loads the {has} tokens that it has of request {name}",
                        f"it is to load {call.tokens}",
                    )
            case "end":
                self._over.add(name)


def _wrong(how: str, spec: str, actual: str) -> Violation:
    return violation(Defect.of(Code.CONNECTOR_TOLD_WRONG, how=how), spec, actual)
