"""A paste-ready pytest case from a history: straight-line calls of the target's own API.

The history is played on the real manager, its calls are written as source, and the last line
asserts what the spec demands. The text imports only vLLM and torch. It fits the target's own
signatures, since it repeats the very calls that the adapter made by inspection.
Imported in the worker process only.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hitproof.conformance.histories.schema import Evict, History
from hitproof.conformance.playing.expectations import (
    Admitted,
    Allocated,
    Expected,
    Reported,
    ReportReturns,
    Returns,
    holds,
    report,
)
from hitproof.conformance.playing.player import Player, Playing
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.managers import Hit
from hitproof.vllm_integration.adapter.connector import FOR_CONNECTORS
from hitproof.vllm_integration.adapter.inspection import Made, recorded
from hitproof.vllm_integration.reproduce.recording import (
    Arrived,
    Called,
    RecordedManagers,
    Statement,
)
from hitproof.vllm_integration.reproduce.source_text import (
    WIDTH,
    Node,
    call,
    laid_out,
    listed,
    literal,
)
from hitproof.vllm_integration.reproduce.values import Values
from hitproof.vllm_integration.templates import templates

_OBSERVING = ("log_stats", "enable_kv_cache_events", "metrics_collector")
"""A manager's options for statistics and events; a test that uses none omits them."""

_INTERVAL = "prefix_cache_retention_interval"


@dataclass(frozen=True)
class Case:
    """A test case.

    Attributes:
        text: a whole module with one test.
        fails: whether the target's manager violates the expectation when the history is played.
        error: the name of the exception that the test fails with.
    """

    text: str
    fails: bool
    error: str


def pytest_case(
    managers: RecordedManagers,
    history: History,
    expected: Expected,
    name: str,
    comment: str,
    playing: Playing = Player,
) -> Case:
    """Play ``history`` and write it as ``test_<name>``, which asserts ``expected``.

    ``comment`` says why; it is placed above the assertion. ``playing`` makes the player. Raises
    `CannotJudge` when the target lacks an entry point, or when a call has an argument that has no
    source.
    """
    with recorded() as made:
        manager = managers.start(history.engine)
        crash: Exception | None = None
        before = 0
        hits: dict[str, Hit] = {}
        try:
            player = playing(history, manager)
            hits = player.hits
            for step in history.steps:
                before = len(managers.log.statements)
                if isinstance(step, Evict):
                    player.arrive(step.request)
                    managers.log.evicted(step)
                player.play(step)
        except Exception as error:
            crash = crash_of(error)
        statements = list(managers.log.statements)
        reports = isinstance(expected, (Reported, ReportReturns))
        if isinstance(expected, ReportReturns) and crash is None:
            try:
                report(manager, expected.request)
            except CannotJudge:
                raise
            except Exception as error:
                crash = crash_of(error)
    writer = _Writer(managers, history, made, crash is not None or reports)
    why = textwrap.wrap(comment, WIDTH - 6)
    if isinstance(expected, Allocated):
        asked = _allocation_of(expected.request, managers, statements, before)
        admitted = _allocation_of(expected.request, managers, statements, 0)
        body = []
        for place, statement in enumerate(statements[:asked]):
            if place == admitted and isinstance(statement, Called):
                body += [*writer.allocation(statement, "slots = "), "    if slots is None:"]
                body += ["        return  # it is not admitted"]
            else:
                body += writer.statement(statement)
        allocation = statements[asked]
        assert isinstance(allocation, Called)
        body += [*writer.allocation(allocation, "slots = "), ""]
        body += [f"    # {line}" for line in why] + writer.assertion(expected)
        fails = (allocation.result is not None) != expected.gets
        return Case(writer.module(f"test_{name}", body), fails, "AssertionError")
    body = [line for statement in statements for line in writer.statement(statement)]
    if isinstance(expected, ReportReturns):
        body += writer.assertion(expected)
    if crash is not None or isinstance(expected, (Returns, ReportReturns)):
        body[-1:] = [*(f"    # {line}" for line in why), *body[-1:]]
        fails = crash is not None
        exception = "AssertionError" if crash is None else type(crash).__name__
    else:
        body += ["", *(f"    # {line}" for line in why), *writer.assertion(expected)]
        fails, exception = not holds(expected, manager, hits), "AssertionError"
    return Case(writer.module(f"test_{name}", body), fails, exception)


def _allocation_of(
    request: str, managers: RecordedManagers, statements: list[Statement], before: int
) -> int:
    """The place of the first allocation of a request from ``before`` on."""
    real = managers.log.requests[request]
    for place, statement in enumerate(statements):
        match statement:
            case Called("allocate_slots", (asked, *_)) if place >= before and asked is real:
                return place
    raise CannotJudge(f"nothing is allocated for request {request} in the last step")


@cache
def _shapes() -> Any:
    """The macros of the template, by name."""
    told = {"line": laid_out, "call": call, "literal": literal, "group": listed}
    environment = templates(Path(__file__).parent)
    shapes = environment.get_template("manager_case.py.jinja")
    return shapes.make_module({**told, "for_connectors": FOR_CONNECTORS})


@dataclass
class _Writer:
    """Writes statements as source, and records their imports."""

    managers: RecordedManagers
    history: History
    made: dict[int, Made]
    observes: bool
    _variables: dict[str, str] = field(default_factory=dict)
    _arrived: set[str] = field(default_factory=set)
    _admitted: int = 0
    _found: dict[str, tuple[Any, int]] = field(default_factory=dict)
    """What the last lookup of each request returned: its blocks and the hit."""

    def __post_init__(self) -> None:
        left_out = () if self.observes else _OBSERVING
        self._values = Values(self.made, self._arrived_as, left_out, self._hasher)

    def module(self, name: str, body: list[str]) -> str:
        """The whole file."""
        setup = [
            f"    init_none_hash({self._values.imported(self.managers.hash_function)})",
            laid_out("manager = ", self._values.of(self.managers.log.manager)),
        ]
        self._values.import_("vllm.v1.core.kv_cache_utils", "init_none_hash")
        head, decorators = [], []
        interval = self.history.engine.retention_interval
        config = next(m for m in self.made.values() if m.function.__name__ == "KVCacheConfig")
        if interval is not None and _INTERVAL not in config.keywords:
            head = ["import os", "from unittest.mock import patch", ""]
            decorators = [f'@patch.dict(os.environ, {{"VLLM_{_INTERVAL.upper()}": "{interval}"}})']
        head += self._values.lines()
        return "\n".join([*head, "", "", *decorators, f"def {name}():", *setup, *body, ""])

    def statement(self, statement: Statement) -> list[str]:
        """The lines of one statement."""
        match statement:
            case Called("evict_blocks", (blocks,)):
                ids = listed("{", map(str, sorted(blocks)), "}")
                return [laid_out("", call("manager.evict_blocks", ids))]
            case Called("get_computed_blocks" | "get_computed_blocks_for_connector"):
                return self._lookup(statement)
            case Called("allocate_slots"):
                return self.allocation(statement)
            case Called(method, arguments, keywords):
                named = {name: self._values.of(value) for name, value in keywords.items()}
                items = [self._values.of(value) for value in arguments]
                return [laid_out("", call(f"manager.{method}", *items, **named))]
            case Arrived(request):
                self._arrived.add(request)
        return self._shaped(statement)

    def assertion(self, expected: Expected) -> list[str]:
        """The lines that assert what the spec demands."""
        if isinstance(expected, Admitted):
            raise CannotJudge("a manager admits no requests")
        return self._shaped(expected)

    def _shaped(self, told: Statement | Expected) -> list[str]:
        """The lines of what has a shape in ``manager_case.py.jinja``."""
        shape = getattr(_shapes(), type(told).__name__)
        return str(shape(told, self)).removesuffix("\n").split("\n")

    def key(self, request: str, group: int, block: int | str) -> Node:
        """The hash of a full block, as the group looks it up."""
        hashes = f"{self.request(request)}.block_hashes"
        engine = self.history.engine
        size, unit = engine.groups[group].block_size, engine.hash_block_size
        if size == unit:
            return f"{hashes}[{block}]"
        self._values.import_("vllm.v1.core.kv_cache_utils", "BlockHashListWithBlockSize")
        return f"BlockHashListWithBlockSize({hashes}, {unit}, {size})[{block}]"

    def table(self, request: str, group: int | None = None) -> str:
        """The block table of a request in a group, or all of them."""
        blocks = f"manager.get_blocks({literal(request)}).blocks"
        return blocks if group is None else f"{blocks}[{group}]"

    def reported_key(self, expected: Reported) -> Node:
        """The key that events have of a prefix."""
        self._values.import_("vllm.v1.core.kv_cache_utils", "maybe_convert_block_hash")
        if expected.of_unit:
            return f"{self.request(expected.request)}.block_hashes[{expected.key}]"
        return self.key(expected.request, expected.group, expected.key)

    def made_request(self, request: str) -> Node:
        """The call that makes a request."""
        return self._values.call_of(self.made[id(self.managers.log.requests[request])])

    @staticmethod
    def each(text: str, values: Sequence[int]) -> list[str]:
        """The text of each value."""
        return [text % value for value in values]

    def _lookup(self, lookup: Called) -> list[str]:
        given = map(self._values.of, lookup.arguments)
        asked = call(f"manager.{lookup.method}", *given)
        if lookup.error is not None:
            return [laid_out("", asked)]
        name = self._name_of(lookup.arguments[0])
        blocks, hit, *more = lookup.result
        self._found[name] = blocks, hit
        suffix = self.suffix(name)
        targets = [f"blocks_{suffix}", f"hit_{suffix}"]
        if more:  # the scheduler keeps it with the request
            targets.append(f"{self.request(name)}.shared_prefix_boundary")
            targets += ["_"] * (len(more) - 1)
        return [laid_out(f"{', '.join(targets)} = ", asked)]

    def allocation(self, allocation: Called, into: str = "") -> list[str]:
        """The lines of a call of ``allocate_slots``."""
        request, num_new = allocation.arguments
        name = self._name_of(request)
        keywords, new = dict(allocation.keywords), str(num_new)
        if not keywords.get("num_lookahead_tokens"):
            keywords.pop("num_lookahead_tokens", None)
        named = {}
        if "new_computed_blocks" in keywords:
            blocks, hit = self._found[name]
            if keywords.pop("new_computed_blocks") is not blocks:
                raise CannotJudge("the blocks that were allocated are not those of the lookup")
            keywords.pop("num_new_computed_tokens")
            suffix = self.suffix(name)
            named["num_new_computed_tokens"] = f"hit_{suffix}"
            named["new_computed_blocks"] = f"blocks_{suffix}"
            # So that the chunk ends where it should when the target is fixed, too.
            new = f"{hit + num_new} - hit_{suffix}" if self._admitted and num_new else new
        self._admitted += 1
        more = {key: self._values.of(value) for key, value in keywords.items()}
        called = call("manager.allocate_slots", self.request(name), new, **named, **more)
        return [laid_out(into, called)]

    def _name_of(self, request: Any) -> str:
        return next(n for n, real in self.managers.log.requests.items() if real is request)

    def suffix(self, name: str) -> str:
        """What ends the variables about a request."""
        if name not in self._variables:
            variable = re.sub(r"\W", "_", name, flags=re.ASCII)
            while variable in self._variables.values():
                variable += "_"
            self._variables[name] = variable
        return self._variables[name]

    def request(self, name: str) -> str:
        """The variable of a request."""
        return f"request_{self.suffix(name)}"

    def _hasher(self, maker: str) -> Node:
        """The source of the function that hashes blocks of requests."""
        engine = self.history.engine
        hash_function = self._values.imported(self.managers.hash_function)
        given = [str(engine.hash_block_size), hash_function]
        if engine.num_hash_lookahead_tokens:
            given.append(str(engine.num_hash_lookahead_tokens))
        return call(maker, *given)

    def _arrived_as(self, value: Any) -> str | None:
        """The variable of a request that has arrived."""
        named = self.managers.log.requests.items()
        arrived = (name for name, real in named if value is real and name in self._arrived)
        return next(map(self.request, arrived), None)
