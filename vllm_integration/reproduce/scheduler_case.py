"""A paste-ready pytest case from a scheduler history, with vLLM's own scheduler.

It sets the configuration up as the adapter does, steps the scheduler with a scripted model
(`vllm_integration.reproduce.scripted_engine`), and asserts what the spec demands. The text imports
only vLLM and torch. Imported in the worker process only. It is long: one class writes the test,
with a part for all that a history may have.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from hitproof.conformance.explain.derivation import broken_rules
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import Rule
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.conformance.playing.expectations import Admitted, Served
from hitproof.conformance.scheduling.transfers import CONNECTOR
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.adapter.inspection import attribute, recorded
from hitproof.vllm_integration.adapter.layers import LayeredExecutor, OneWorker, Workers
from hitproof.vllm_integration.adapter.running_scheduler import ENCODED, VllmScheduler
from hitproof.vllm_integration.adapter.schedulers import ENCODER_BUDGET, VllmSchedulers
from hitproof.vllm_integration.adapter.transfers import LOADING
from hitproof.vllm_integration.reproduce import (
    scripted_engine,
    scripted_grammars,
    scripted_sessions,
)
from hitproof.vllm_integration.reproduce.pytest_case import Case
from hitproof.vllm_integration.reproduce.source_text import (
    WIDTH,
    Bracketed,
    Node,
    call,
    laid_out,
    listed,
    literal,
)
from hitproof.vllm_integration.reproduce.values import Values
from hitproof.vllm_integration.templates import templates

_CONTENT = {
    Code.OTHER_CONTENT_READ: scripted_engine.ReadingEngine,
    Code.NULL_BLOCK_READ: scripted_engine.ReadingEngine,
    Code.KEY_NAMES_OTHER_CONTENT: scripted_engine.KeyedEngine,
    Code.DRAFT_ENTRY_OF_OTHER_TOKEN: scripted_engine.DraftingEngine,
}
"""The engine that asserts it, where what is wrong is the content of blocks."""

_STEPPED = {
    Code.ENCODER_OUTPUT_MISSING: scripted_engine.SeeingEngine,
    Code.IMAGE_ENCODED_AGAIN: scripted_engine.SparingEngine,
    Code.IMAGE_SPLIT: scripted_engine.WholeEngine,
    Code.DRAFTS_COUNTED_WRONG: scripted_engine.CountingEngine,
    Code.GRAMMAR_IGNORED: scripted_grammars.ObeyingEngine,
}
"""The same of images, drafts and grammars."""

_LOADING = {
    scripted_engine.Engine: scripted_engine.LoadingEngine,
    scripted_engine.ReadingEngine: scripted_engine.LoadedReadingEngine,
    scripted_engine.KeyedEngine: scripted_engine.LoadedKeyedEngine,
}
"""The same with the workers of a KV connector."""

_CONVERSING = (
    scripted_engine.Engine,
    scripted_engine.ReadingEngine,
    scripted_engine.DraftingEngine,
    scripted_engine.SeeingEngine,
    scripted_engine.SparingEngine,
)
"""Engines that may have streaming sessions."""

_CONSTRAINED = (*_CONVERSING, scripted_engine.WholeEngine, scripted_grammars.ObeyingEngine)
"""Engines whose requests may have grammars."""

_TRANSFERRING = (scripted_engine.LoadingEngine, scripted_engine.HostPoolEngine)
"""Engines whose workers transfer pages."""

_NOTED = ("kv_cache_size_tokens", "kv_cache_max_concurrency", "kv_cache_layout")
"""What start-up notes in ``CacheConfig``, and no scheduler reads."""

_MODULE = "kv_connector_module_path"
_START_UP_CODES = (Code.LAYERS_REFUSED, Code.DERIVED_GROUPS_WRONG)
"""What is wrong before there is a scheduler."""

_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_INTERVAL = "prefix_cache_retention_interval"


def scheduler_case(
    vllm: VllmSchedulers, history: SchedulerHistory, violation: Violation, name: str
) -> Case:
    """Write ``history`` as ``test_<name>``, and run that.

    Raises `CannotJudge` when what is wrong, or an argument, has no source in a test.
    """
    text = _Writer(vllm, history, violation).module(f"test_{name}")
    module = ModuleType(f"test_{name}")
    exec(compile(text, f"test_{name}.py", "exec"), vars(module))
    test: Callable[[], None] = getattr(module, module.__name__)
    sys.modules[module.__name__] = module  # vLLM imports connectors by its name
    try:
        test()
    except Exception as error:
        signature = violation.signature
        raises = Divergence.CRASH is signature.divergence or signature.code is Code.LAYERS_REFUSED
        if not (raises or isinstance(error, AssertionError)):
            raise CannotJudge(f"a test of it raises {error!r:.200}") from error
        return Case(text, True, type(error).__name__)
    finally:
        del sys.modules[module.__name__]
    return Case(text, False, "AssertionError")


class _Writer:
    """Writes one history and what is expected of it as source."""

    def __init__(
        self, vllm: VllmSchedulers, history: SchedulerHistory, violation: Violation
    ) -> None:
        self._vllm, self._history, self._violation = vllm, history, violation
        self._ends_with_start_up = violation.signature.code in _START_UP_CODES
        self._engine = self._engine_class()
        self._executor: LayeredExecutor | None = None
        with recorded() as made:
            if history.deployment.layers:
                self._vllm_config, self._executor = vllm.layered(history.deployment)
            self._requests = {}
            if not self._ends_with_start_up:
                self._running: VllmScheduler = vllm.start(history.deployment)
                self._requests = {
                    name: self._running.make_request(name, arrival)
                    for name, arrival in history.requests.items()
                }
                self._ends = {name: self._running.make_end(name) for name in history.sessions}
        if self._executor is None:
            self._vllm_config = self._running.vllm_config
        self._made = {each.function.__name__: each for each in made.values()}
        self._values = Values(made, self._variable)

    def _engine_class(self) -> type[scripted_engine.Engine]:
        code, deployment = self._violation.signature.code, self._history.deployment
        if deployment.host is not None and (
            code in _CONTENT or not (code in _WHOLE or self._violation.expected is not None)
        ):
            raise CannotJudge("a test does not follow the pages that a host's pool backs")
        if deployment.decode_context_parallel_size * deployment.prefill_context_parallel_size > 1:
            raise CannotJudge("a test has one rank")
        if deployment.ranks > 1 and not deployment.layers:
            raise CannotJudge("a test has no pipeline")
        if self._history.resets or (deployment.encoder and deployment.encoder.ec_connector):
            raise CannotJudge("a test has no resets of their own, and no encoder cache connector")
        if self._history.encoder_resets:
            raise CannotJudge("a test does not reset the encoder's cache")
        if deployment.precisions:
            raise CannotJudge("a test has groups of one precision")
        if deployment.connector is not None and deployment.connector.keeps:
            raise CannotJudge("a test does not follow what a connector keeps in host memory")
        if deployment.host is not None:
            engine: type[scripted_engine.Engine] = scripted_engine.HostPoolEngine
        else:
            engine = self._engine_of(code, deployment)
            if self._history.sessions:
                engine = self._conversing(engine, code)
            elif deployment.connector is not None:
                engine = self._loading(engine, code)
        if any(each.grammar_steps is not None for each in self._history.requests.values()):
            if engine not in _CONSTRAINED:
                raise CannotJudge(
                    "a test has no grammars beside hashes, counts of drafts and transfers"
                )
            engine = _joined(scripted_grammars.GrammarEngine, engine)
        if self._history.pauses:
            engine = _joined(scripted_grammars.PausingEngine, engine)
        return engine

    def _conversing(
        self, engine: type[scripted_engine.Engine], code: Code
    ) -> type[scripted_engine.Engine]:
        """The engine with streaming sessions."""
        inputs = [each for each in self._history.requests.values() if each.session is not None]
        if any(each.aborted is not None for each in inputs):
            raise CannotJudge("a test gives up no streaming session")
        if code is Code.SESSION_TOKENS_WRONG:
            return scripted_sessions.ToldEngine
        if engine not in _CONVERSING:
            raise CannotJudge("a test has no hashes or whole images beside streaming sessions")
        return _joined(scripted_sessions.SessionEngine, engine)

    def _loading(
        self, engine: type[scripted_engine.Engine], code: Code
    ) -> type[scripted_engine.Engine]:
        """The engine with workers that load and send."""
        if code is Code.FAILED_LOAD_DELIVERED:
            return scripted_engine.FailedLoadEngine
        arrivals = self._history.requests.values()
        fails = any(each.load_fails or each.invalid_blocks for each in arrivals)
        if fails and (code in _CONTENT or code is Code.DELIVERED_TOKENS_WRONG):
            raise CannotJudge("a test does not tell what a failed load has spoilt")
        if engine not in _LOADING:
            raise CannotJudge("a test has no layers that draft beside a connector")
        return _LOADING[engine]

    def _engine_of(self, code: Code, deployment: Deployment) -> type[scripted_engine.Engine]:
        if code in _CONTENT:
            if deployment.num_mtp_modules > 1 and code is Code.DRAFT_ENTRY_OF_OTHER_TOKEN:
                raise CannotJudge("a test has one module that drafts")
            return _CONTENT[code]
        if code in _STEPPED:
            return _STEPPED[code]
        if not (self._ends_with_start_up or code in _WHOLE or self._violation.expected is not None):
            raise CannotJudge("the fault does not show in what the scheduler's methods return")
        return scripted_engine.Engine

    def _variable(self, value: Any) -> str | None:
        """What the test has a variable for."""
        if value is self._vllm_config.parallel_config:
            return "vllm_config.parallel_config"
        if value is LOADING[_MODULE]:
            return "__name__"
        hasher = self._made.get("get_request_block_hasher")
        return "hasher" if hasher is not None and value is hasher.result else None

    def module(self, name: str) -> str:
        """The whole file; ``scheduler_case.py.jinja`` is what it looks like."""
        values, deployment = self._values, self._history.deployment
        for each in ("VllmConfig", "DeviceConfig"):
            values.import_("vllm.config", each)
        fresh = self._vllm.cache_defaults
        variables = {_RUNNER: str(int(deployment.v2_model_runner))}
        interval = getattr(self._vllm_config.cache_config, _INTERVAL, None)
        config = self._made.get("KVCacheConfig")
        if interval is not None and config is not None and _INTERVAL not in config.keywords:
            variables[f"VLLM_{_INTERVAL.upper()}"] = str(interval)
        owner, grouped = self._vllm.grouping
        template = templates(Path(__file__).parent).get_template("scheduler_case.py.jinja")
        return template.render(
            name=name,
            deployment=deployment,
            host=deployment.host,
            encoder=deployment.encoder,
            vllm_config=self._vllm_config,
            cache_settings=[
                (setting, value)
                for setting, value in vars(self._vllm_config.cache_config).items()
                if setting not in _NOTED and value != getattr(fresh, setting, None)
            ],
            core=self._vllm.core,
            utils=self._vllm.utils,
            grouping=literal(f"{owner.__name__}.{grouped}"),
            plays=not self._ends_with_start_up,
            executor=self._executor,
            for_want_of_room=("way", "room") in self._violation.signature.defect.parameters,
            comment=self._comment(),
            variables=variables,
            classes=self._classes(),
            **(self._of_layers() if self._executor is not None else {}),
            **({} if self._ends_with_start_up else self._of_scheduler()),
            made=lambda each: values.call_of(self._made[each]),
            value=values.of,
            imported=values.imported,
            imports=lambda: "\n".join(values.lines()),
            source=_source,
            line=laid_out,
            call=call,
            literal=literal,
            group=listed,
        )

    def _classes(self) -> list[type]:
        """The classes that the test is made of."""
        classes: list[type] = [scripted_engine.Model]
        if self._executor is not None:
            classes.append(Workers)
        elif ("way", "room") in self._violation.signature.defect.parameters:
            classes += [Workers, OneWorker]
        if self._ends_with_start_up:
            return classes
        classes.append(scripted_engine.Arrival)
        if self._history.deployment.loads:
            from hitproof.vllm_integration.adapter import loading

            self._import_as(loading)
            classes += [loading.OneTableConnector, loading.LoadingConnector]
        if issubclass(self._engine, scripted_grammars.GrammarEngine):
            from hitproof.vllm_integration.adapter import grammars

            self._import_as(grammars)
            self._values.imports["torch"] = set()
            classes += [grammars.ScriptedGrammar, grammars.ScriptedBackend]
            classes.append(scripted_grammars.Constraint)
        if issubclass(self._engine, _TRANSFERRING):
            classes.append(scripted_engine.Transfer)
        return [*classes, *(each for each in reversed(self._engine.__mro__) if each is not object)]

    def _import_as(self, module: ModuleType) -> None:
        """Import what a module imports of vLLM."""
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", "").startswith("vllm."):
                self._values.import_(thing.__module__, name)

    def _comment(self) -> str:
        """What the spec demands."""
        sentence = f"{self._violation.spec[:1].upper()}{self._violation.spec[1:]}."
        return "\n".join(f"    # {line}" for line in textwrap.wrap(sentence, WIDTH - 6))

    def _of_layers(self) -> dict[str, Any]:
        """What the template asks of groups that the target derives from layers."""
        workers = self._executor
        assert workers is not None
        start_up = attribute(self._vllm.core.EngineCore, "_initialize_kv_caches")
        if "tuple" in str(inspect.signature(start_up).return_annotation):
            raise CannotJudge("a test follows no start-up that returns several values")
        specs = {id(s): s for of_rank in workers.specs for s in of_rank.values()}
        names = {each: f"spec_{number}" for number, each in enumerate(specs)}
        ranks = [
            Bracketed("{", tuple((f'"{n}": ', names[id(s)]) for n, s in each.items()), "}")
            for each in workers.specs
        ]
        told = {"specs": [*specs.values()], "ranks": listed("[", ranks, "]")}
        if self._violation.signature.code is not Code.DERIVED_GROUPS_WRONG:
            return told | {"broken": None}
        derived = self._vllm.start(self._history.deployment).derived
        assert derived is not None
        parameter = dict(self._violation.signature.defect.parameters)["rule"]
        broken = next(each for each in broken_rules(derived) if each.rule.parameter == parameter)
        if broken.bound is None and broken.rule is not Rule.OWN_LAYERS:
            raise CannotJudge("a test does not judge this of the groups that start-up derives")
        layers = [] if broken.bound is None else [*map(literal, broken.bound.layers)]
        # Where a tensor says where each layer's pages are, it is the whole pool.
        pool = "max" if derived.ranks[0].places else "sum"
        return told | {"broken": broken, "layers": layers, "pool": pool}

    # --- the history ---------------------------------------------------------------------------

    def _of_scheduler(self) -> dict[str, Any]:
        """What the template asks of a scheduler that is started, and of what it plays."""
        values, running, history = self._values, self._running, self._history
        values.import_("vllm.v1.core.kv_cache_utils", "init_none_hash")
        values.import_("vllm.utils.hashing", "sha256")
        named: dict[str, Node] = {
            each: each
            for each in ("vllm_config", "kv_cache_config", "block_size", "hash_block_size")
        }
        manager = values.imported(self._vllm.core.StructuredOutputManager)
        named["structured_output_manager"] = call(manager, "vllm_config")
        named["log_stats"] = str(issubclass(self._engine, scripted_engine.CountingEngine))
        ahead = running.engine.num_hash_lookahead_tokens
        hashed = ["hash_block_size", "sha256", *([str(ahead)] if ahead else [])]
        drafts = running.engine.num_speculative_tokens
        more = {"batches": str(running.batches)} if running.batches > 1 else {}
        more |= {"drafts": str(drafts)} if drafts else {}
        of_drafts = ("of", "drafts") in self._violation.signature.defect.parameters
        keyed = issubclass(self._engine, scripted_engine.KeyedEngine)
        reads = issubclass(self._engine, scripted_engine.ReadingEngine)
        kind = self._violation.signature.group_kind
        judged = (n for n, g in enumerate(running.engine.groups) if kind in (g.kind, CONNECTOR))
        exports = history.deployment.mamba_checkpoint_alignment is not None
        return {
            "scheduler": call(
                values.imported(type(running.scheduler)),
                **{each: named[each] for each in running.keywords},
            ),
            "budget_name": ENCODER_BUDGET,
            "outputs_name": ENCODED,
            "outputs": type(getattr(running.scheduler, ENCODED, None)),
            "hasher": call(values.imported(self._vllm.utils.get_request_block_hasher), *hashed),
            "arrivals": {
                n: self._arrival(a, self._requests[n]) for n, a in history.requests.items()
            },
            "engine": call(self._engine.__name__, "scheduler", "arrivals", **more),
            "ahead": max(running.engine.num_prefill_lookahead, 1) if of_drafts else None,
            "transfers": self._transfers(),
            "ends": self._session_ends(),
            "constraints": self._constraints(),
            "pauses": [*self._pauses()],
            "judged": tuple(judged) if reads or keyed else None,
            "needs_unit": keyed or (reads and exports),
            "asserted": self._assertion(),
            "steps": self._steps,
        }

    @property
    def _steps(self) -> int:
        """More steps than it takes: each computes a token at least."""
        arrivals = self._history.requests.values()
        tokens = sum(len(each.prompt) + len(each.sampled) for each in arrivals)
        waits = sum(
            e.arrives
            + (e.load_steps or 0)
            + (e.send_steps or 0)
            + e.open_steps
            + (e.grammar_steps or 0)
            for e in arrivals
        )
        paused = sum(each.at + each.steps for each in self._history.pauses)
        return 100 + 2 * tokens + waits + paused

    def _arrival(self, arrival: Arrival, request: Any) -> Any:
        plain = replace(arrival, prompt=(1,), output=(1,), stop=False, images=(), embeddings=())
        default = Arrival((1,), (1,))
        named = {
            name: literal(getattr(plain, name))
            for name in scripted_engine.Arrival._fields[2:]
            if getattr(plain, name) != getattr(default, name)
        }
        output = literal(list(arrival.output))
        return call("Arrival", self._values.of(request), output, **named)

    def _transfers(self) -> dict[str, dict[str, Node]] | None:
        """What the connector has of each request; None where there is none."""
        if not issubclass(self._engine, _TRANSFERRING):
            return None
        default = scripted_engine.Transfer()
        given = {
            name: {
                field: literal(value)
                for field in default._fields
                if (value := getattr(arrival, field)) != getattr(default, field)
            }
            for name, arrival in self._history.requests.items()
        }
        return {name: each for name, each in given.items() if each}

    def _session_ends(self) -> dict[str, tuple[Node, Node]] | None:
        """What ends sessions, and when, by their last input."""
        if not issubclass(self._engine, scripted_sessions.SessionEngine):
            return None
        last = {session: inputs[-1] for session, inputs in self._history.sessions.items()}
        return {
            name: (
                self._values.of(self._ends[session]),
                literal(self._history.requests[name].open_steps),
            )
            for session, name in last.items()
        }

    def _constraints(self) -> dict[str, list[Node]] | None:
        """Which requests have grammars."""
        if not issubclass(self._engine, scripted_grammars.GrammarEngine):
            return None
        return {
            name: [
                call("ScriptedGrammar", literal(list(each.sampled)), str(each.rejected)),
                str(each.grammar_steps),
                *([literal(each.valid_drafts)] if each.valid_drafts else []),
            ]
            for name, each in self._history.requests.items()
            if each.grammar_steps is not None
        }

    def _pauses(self) -> Iterator[str]:
        """When the engine is paused, and in what way."""
        for each in self._history.pauses:
            self._values.import_("vllm.v1.core.sched.interface", "PauseState")
            state = "PAUSED_NEW" if each.finishes_running else "PAUSED_ALL"
            yield f"(range({each.at}, {each.at + each.steps}), PauseState.{state})"

    def _assertion(self) -> str:
        """What is asserted at the end; nothing where the steps themselves fail."""
        if isinstance(self._violation.expected, Served):
            due = self._violation.expected
            relation = ">=" if due.or_more else "=="
            return f"assert engine.hits[{literal(due.request)}] {relation} {due.tokens}"
        if isinstance(self._violation.expected, Admitted):
            admitted, before = self._violation.expected.request, self._violation.expected.before
            first, second = (f"order.index({literal(each)})" for each in (admitted, before))
            return f"order = list(engine.hits)\nassert {first} < {second}"
        defect = self._violation.signature.defect
        if ("way", "rest") in defect.parameters:
            return "assert not scheduler.has_requests()"
        return _WHOLE.get(defect.code, "")


def _joined(
    more: type[scripted_engine.Engine], engine: type[scripted_engine.Engine]
) -> type[scripted_engine.Engine]:
    """An engine that is another one, too."""
    if issubclass(engine, more):
        return engine
    if engine is scripted_engine.Engine:
        return more
    name = more.__name__.removesuffix("Engine") + engine.__name__
    return type(name, (more, engine), {"__doc__": "Is both."})


def _source(thing: type) -> str:
    """A class, without what only a type checker reads."""
    if thing.__module__ == __name__:
        bases = ", ".join(each.__name__ for each in thing.__bases__)
        return f'class {thing.__name__}({bases}):\n    """{thing.__doc__}"""'
    lines = inspect.getsource(thing).rstrip().split("\n")
    return "\n".join(line.split("  # type: ")[0] for line in lines)


_WHOLE = {
    Code.REQUEST_NEVER_FINISHES: "assert engine.ended.keys() == arrivals.keys()",
    Code.DELIVERED_TOKENS_WRONG: (
        "for name, each in arrivals.items():\n"
        "    assert each.aborted or engine.delivered[name] == each.output"
    ),
    Code.BLOCKS_HELD_WHEN_IDLE: (
        "blocks = scheduler.kv_cache_manager.block_pool.blocks\n"
        "assert not any(block.ref_cnt for block in blocks if not block.is_null)"
    ),
    Code.DRAFTS_COUNTED_WRONG: (
        "assert engine.counted == engine.tried\nassert engine.counted_accepted == engine.accepted"
    ),
    Code.IMAGES_HELD_WHEN_IDLE: f"assert not any(scheduler.{ENCODED}.cached.values())",
    Code.RAISES_EXCEPTION: "",
    Code.FAILED_LOAD_DELIVERED: "",
    Code.SESSION_TOKENS_WRONG: "",
}
"""What is asserted after the steps, by the code of what is wrong."""
