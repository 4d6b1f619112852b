"""One manager under the shadow: its requests, its names, and its judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.replayed import describe
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import RequestInput
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.subject.managers import Tables
from hitproof.vllm_integration.shadow.real import CachedPrefixes, Prefix, RealCache, named
from hitproof.vllm_integration.shadow.report import Report
from hitproof.vllm_integration.shadow.scope import Scope


@dataclass(frozen=True)
class Call:
    """A call of a manager.

    Attributes:
        method: its name.
        values: its arguments by name, those left out by their defaults.
    """

    method: str
    values: Mapping[str, Any]

    def number(self, name: str) -> int:
        """An argument that is a number; 0 on releases that do not have it."""
        return int(self.values.get(name) or 0)

    def describe(self) -> str:
        """The call in words."""
        arguments = []
        for name, value in self.values.items():
            if name == "request":
                arguments.append(f"request {value.request_id} of {value.num_tokens} tokens")
            elif isinstance(value, (int, str)) and value:
                arguments.append(f"{name}={value}")
        return f"at {self.method}({', '.join(arguments)})"


class Judged:
    """A manager whose calls are judged; what is wrong goes to ``report``.

    Attributes:
        manager: the manager.
        scope: what of it is judged.
        policies: those of its release; the coordinator of one group never peeks past the cap.
        managers: its single-type managers.
        cache: its cache.
        cached: the same, by the names of prefixes.
        groups: its groups, as `share_eagle` gives them.
        judge: the judge.
        real: the requests that were asked about and not freed since.
        report: what the shadows of the process saw.
    """

    def __init__(
        self,
        manager: Any,
        scope: Scope,
        policies: JudgedPolicies,
        utils: ModuleType,
        report: Report,
        label: str,
    ) -> None:
        engine, coordinator = scope.engine, manager.coordinator
        self.manager, self.scope, self.report = manager, scope, report
        self.managers: Sequence[Any] = coordinator.single_type_managers
        sizes = [group.block_size for group in engine.groups]
        self.cache = RealCache(coordinator.block_pool, utils, sizes, engine.hash_block_size)
        self.cached = CachedPrefixes(self.cache)
        self.real: dict[str, Any] = {}
        self._requests: dict[str, RequestInput] = {}
        self._names = _Names(self.real, engine.hash_block_size)
        self.policies = policies.on(engine)
        self.judge = Judge(engine, self._requests, self._names, self.policies)
        self.groups = self.policies.groups(engine)
        self._given, self._label = describe(engine), label

    def judge_of(self, requests: Mapping[str, RequestInput]) -> Judge:
        """A judge who takes the requests to be these."""
        return Judge(self.scope.engine, requests, self._names, self.policies)

    def take_up(self, request: Any) -> None:
        """Have the judge know a request: what counts is how many tokens it has."""
        name, total = request.request_id, request.num_tokens
        self.real[name] = request
        known = self._requests.get(name)
        if known is None or len(known.prompt) + len(known.output) != total:
            prompt = request.num_prompt_tokens
            skips = not self.scope.caches or request.skip_reading_prefix_cache
            self._requests[name] = Sized(max(1, prompt), max(0, total - prompt), bool(skips))

    def forget(self, name: str) -> None:
        """The request is freed."""
        self._requests.pop(name, None)
        self.real.pop(name, None)

    def add(self, violation: Violation | None, call: Call) -> None:
        """Report what is wrong, if anything is."""
        if violation is not None:
            self.report.add(violation, self._given, f"{self._label}, {call.describe()}")

    def wrong(self, call: Call, defect: Defect, spec: str, actual: str) -> None:
        """Report what a call has done wrong to the pool."""
        self.add(self.judge.of_pool(defect, spec, actual), call)


def numbers(tables: Sequence[Sequence[Any]]) -> Tables:
    """Blocks by their numbers; the null block is 0."""
    return tuple(
        tuple(0 if block.is_null else block.block_id for block in table) for table in tables
    )


class Sized(RequestInput):
    """A request of which the judge need not know the tokens, only how many there are."""

    def __init__(self, prompt: int, output: int = 0, skips: bool = False) -> None:
        sized: Any = {"prompt": range(prompt), "output": range(output)}
        super().__init__(**sized, skip_reading_prefix_cache=skips)

    @property
    def token_ids(self) -> Any:
        """Stand-ins: only their number counts."""
        return range(len(self.prompt) + len(self.output))


class _Names:
    """Names the prefixes of real requests; see `conformance.histories.naming.Naming`."""

    def __init__(self, requests: Mapping[str, Any], unit: int) -> None:
        self._requests = requests
        self._unit = unit

    def name(self, request: str, end: int) -> Prefix:
        """See `conformance.histories.naming.Naming`."""
        return named(self._requests[request], end, self._unit)
