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
    literal,
)
from hitproof.vllm_integration.reproduce.values import Values

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
_SETTLE = "_set_max_num_scheduled_tokens"
_START_UP = "_initialize_kv_caches"
_UTILS = "vllm.v1.core.kv_cache_utils"


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
        """The whole file."""
        body = [*self._set_up(), *self._start()]
        classes: list[type] = [scripted_engine.Model]
        if self._executor is not None:
            classes.append(Workers)
        elif self._is_for_want_of_room:
            classes += [Workers, OneWorker]
        head, typing = ["import os"], "Any"
        if not self._ends_with_start_up:
            body += ["", *self._play()]
            classes.append(scripted_engine.Arrival)
            if self._history.deployment.loads:
                classes += self._connector()
            if issubclass(self._engine, scripted_grammars.GrammarEngine):
                classes += self._grammars()
            if issubclass(self._engine, _TRANSFERRING):
                classes.append(scripted_engine.Transfer)
            classes += [each for each in reversed(self._engine.__mro__) if each is not object]
            head.append("from collections import deque")
            typing = "Any, NamedTuple"
        parts = [_source(each) for each in classes]
        interval = getattr(self._vllm_config.cache_config, _INTERVAL, None)
        variables = {_RUNNER: str(int(self._history.deployment.v2_model_runner))}
        config = self._made.get("KVCacheConfig")
        if interval is not None and config is not None and _INTERVAL not in config.keywords:
            variables[f"VLLM_{_INTERVAL.upper()}"] = str(interval)
        patched = laid_out("@patch.dict", call("", "os.environ", literal(variables)), depth=0)
        if "SimpleNamespace" in "\n".join(body):
            head.append("from types import SimpleNamespace")
        head += [f"from typing import {typing}", "from unittest.mock import patch", ""]
        head += self._values.lines()
        separated = [line for part in parts for line in ("", "", *part)]
        return "\n".join([*head, *separated, "", "", patched, f"def {name}():", *body, ""])

    # --- the configuration -------------------------------------------------------------------

    def _set_up(self) -> Iterator[str]:
        """The lines that make ``vllm_config``."""
        values, deployment = self._values, self._history.deployment
        for name in ("VllmConfig", "DeviceConfig"):
            values.import_("vllm.config", name)
        line = '    vllm_config = VllmConfig(device_config=DeviceConfig("cpu"))'
        if deployment.v2_model_runner:
            yield "    # Nothing is computed, so it needs no Triton."
            yield f'    with patch.dict(os.environ, {_RUNNER}="0"):'
            line = f"    {line}"
        yield line
        yield f"    vllm_config.model_config = Model({deployment.max_model_len})"
        made = values.call_of(self._made["SchedulerConfig"])
        yield laid_out("vllm_config.scheduler_config = ", made)
        cache_config, fresh = self._vllm_config.cache_config, self._vllm.cache_defaults
        for name, value in vars(cache_config).items():
            if name not in _NOTED and value != getattr(fresh, name, None):
                yield f"    vllm_config.cache_config.{name} = {literal(value)}"
        if deployment.max_loras is not None:
            made = values.call_of(self._made["LoRAConfig"])
            yield laid_out("vllm_config.lora_config = ", made)
        if deployment.speculative_method is not None:
            yield from self._speculative(deployment)
        if deployment.connector is not None or deployment.host is not None:
            made = values.call_of(self._made["KVTransferConfig"])
            yield laid_out("vllm_config.kv_transfer_config = ", made)
        if deployment.host is not None:
            made = values.of(self._vllm_config.attention_config.hisparse_config)
            yield laid_out("vllm_config.attention_config.hisparse_config = ", made)
        if hasattr(self._vllm_config, _SETTLE):
            yield f"    vllm_config.{_SETTLE}()"
        if deployment.layers:
            yield '    vllm_config.model_config.hf_config = SimpleNamespace(model_type="")'
            if deployment.disable_hybrid_kv_cache_manager:
                yield "    vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = True"

    def _speculative(self, deployment: Deployment) -> Iterator[str]:
        made = self._values.call_of(self._made["SpeculativeConfig"])
        yield laid_out("speculative_config = ", made)
        # Made for "ngram", which needs no draft model.
        yield f"    speculative_config.method = {literal(deployment.speculative_method)}"
        if deployment.has_draft_head:
            facts = call(
                "SimpleNamespace", num_nextn_predict_layers=str(deployment.num_mtp_modules)
            )
            limit = str(deployment.max_model_len)
            model = call(
                "SimpleNamespace", hf_config=facts, architectures="[]", max_model_len=limit
            )
            yield laid_out("speculative_config.draft_model_config = ", model)
        if not deployment.lookahead_hashes:
            yield "    speculative_config.disable_lookahead_block_hashes = True"
        yield "    vllm_config.speculative_config = speculative_config"

    def _start(self) -> Iterator[str]:
        """The lines that make the scheduler; where start-up refuses, those of start-up."""
        if self._executor is not None:
            yield from self._derive(self._executor)
        if self._ends_with_start_up:
            return
        values, running = self._values, self._running
        if self._executor is None:
            yield laid_out("kv_cache_config = ", values.call_of(self._made["KVCacheConfig"]))
        sizes = "block_size, hash_block_size = "
        if hasattr(self._vllm.core, "resolve_kv_cache_block_sizes"):
            resolve = values.imported(self._vllm.core.resolve_kv_cache_block_sizes)
            yield laid_out(sizes, call(resolve, "kv_cache_config", "vllm_config"))
        else:
            yield "    block_size = hash_block_size = vllm_config.cache_config.block_size"
        if self._is_for_want_of_room:
            yield from self._start_up_checks()
        manager = call(values.imported(self._vllm.core.StructuredOutputManager), "vllm_config")
        named: dict[str, Node] = {
            "vllm_config": "vllm_config",
            "kv_cache_config": "kv_cache_config",
            "structured_output_manager": manager,
            "block_size": "block_size",
            "hash_block_size": "hash_block_size",
            "log_stats": str(issubclass(self._engine, scripted_engine.CountingEngine)),
        }
        scheduler = type(running.scheduler)
        given = {name: named[name] for name in running.keywords}
        yield laid_out("scheduler = ", call(values.imported(scheduler), **given))
        encoder = self._history.deployment.encoder
        if encoder is not None:
            # A model's processor says how large its images are, and so both numbers.
            outputs = values.imported(type(getattr(running.scheduler, ENCODED)))
            yield f"    scheduler.{ENCODER_BUDGET} = {encoder.budget}"
            kept = call(outputs, cache_size=str(encoder.cache_size))
            yield laid_out(f"scheduler.{ENCODED} = ", kept)
        yield ""
        values.import_(_UTILS, "init_none_hash")
        values.import_("vllm.utils.hashing", "sha256")
        maker = values.imported(self._vllm.utils.get_request_block_hasher)
        ahead = running.engine.num_hash_lookahead_tokens
        more = (str(ahead),) if ahead else ()
        yield "    init_none_hash(sha256)"
        yield laid_out("hasher = ", call(maker, "hash_block_size", "sha256", *more))

    def _start_up_checks(self) -> Iterator[str]:
        """The lines that end the test where start-up refuses the pool."""
        if self._history.deployment.host is not None:
            # HiSparse sizes its pools by layers of sparse models, of which a test has none.
            yield f"    if {self._fits} < 1:"
            yield "        return  # start-up refuses the deployment"
        elif self._executor is None:
            owner, name = self._vllm.grouping
            grouping = literal(f"{owner.__name__}.{name}")
            core = self._values.imported(self._vllm.core.EngineCore)
            yield f"    core = object.__new__({core})"
            yield "    core.model_executor = OneWorker(kv_cache_config, None)"
            yield "    groups = kv_cache_config.kv_cache_groups"
            yield f"    with patch({grouping}, lambda *_: groups):"
            for line in self._unless_refused(f"core.{_START_UP}(vllm_config)"):
                yield f"    {line}"

    def _unless_refused(self, statement: str) -> Iterator[str]:
        """The lines that start up, or end the test."""
        yield from ("    try:", f"        {statement}", "    except ValueError:")
        yield "        return  # start-up refuses the deployment"

    def _derive(self, workers: LayeredExecutor) -> Iterator[str]:
        """The lines that have the target derive groups from layers."""
        start_up = attribute(self._vllm.core.EngineCore, _START_UP)
        if "tuple" in str(inspect.signature(start_up).return_annotation):
            raise CannotJudge("a test follows no start-up that returns several values")
        names: dict[int, str] = {}
        for spec in (each for of_rank in workers.specs for each in of_rank.values()):
            if id(spec) not in names:
                names[id(spec)] = f"spec_{len(names)}"
                yield laid_out(f"{names[id(spec)]} = ", self._values.of(spec))
        ranks: list[tuple[str, Node]] = [
            ("", Bracketed("{", tuple((f'"{n}": ', names[id(s)]) for n, s in each.items()), "}"))
            for each in workers.specs
        ]
        yield laid_out("specs = ", Bracketed("[", tuple(ranks), "]"))
        memory, layout = literal(workers.memory), literal(workers.layout)
        core = self._values.imported(self._vllm.core.EngineCore)
        yield f"    core = object.__new__({core})"
        yield laid_out("core.model_executor = ", call("Workers", "specs", memory, layout))
        if self._is_for_want_of_room:
            yield from self._unless_refused(f"kv_cache_config = core.{_START_UP}(vllm_config)")
        elif not self._ends_with_start_up:
            yield f"    kv_cache_config = core.{_START_UP}(vllm_config)"
        elif self._violation.signature.code is Code.LAYERS_REFUSED:
            yield from self._comment()
            yield f"    core.{_START_UP}(vllm_config)"
        else:
            yield from self._judge_groups()

    def _judge_groups(self) -> Iterator[str]:
        """The lines that have groups derived, and assert that no rule is broken."""
        derived = self._vllm.start(self._history.deployment).derived
        assert derived is not None
        parameter = dict(self._violation.signature.defect.parameters)["rule"]
        broken = next(each for each in broken_rules(derived) if each.rule.parameter == parameter)
        if broken.rule is Rule.OWN_LAYERS:
            yield from (f"    core.{_START_UP}(vllm_config)", "", *self._comment())
            yield "    for config in core.model_executor.configs:"
            yield "        core.model_executor.allocate(config)"
            return
        if broken.bound is None:
            raise CannotJudge("a test does not judge this of the groups that start-up derives")
        most, tokens = broken.bound.most, broken.bound.tokens
        yield f"    kv_cache_config = core.{_START_UP}(vllm_config)"
        names = tuple(("", literal(name)) for name in broken.bound.layers)
        yield laid_out("layers = ", Bracketed("{", names, "}"))
        yield "    groups = ["
        yield "        group"
        yield "        for group in kv_cache_config.kv_cache_groups"
        yield "        if not layers.isdisjoint(group.layer_names)"
        yield "    ]"
        if not tokens:
            yield from ("", *self._comment(), f"    assert len(groups) <= {most}")
            return
        # Where a tensor says where each layer's pages are, it is the whole pool.
        pool = "max" if derived.ranks[0].places else "sum"
        yield "    tensors = kv_cache_config.kv_cache_tensors"
        yield f"    pool = {pool}(tensor.size for tensor in tensors)"
        yield "    width = pool // kv_cache_config.num_blocks"
        yield "    sizes = [group.kv_cache_spec.block_size for group in groups]"
        yield ""
        yield from self._comment()
        yield f"    assert sum(width * {tokens} // size for size in sizes) <= {most}"

    @property
    def _fits(self) -> str:
        """How many requests of the greatest length the pool has room for."""
        fits = self._values.imported(self._vllm.utils.get_max_concurrency_for_kv_cache_config)
        return f"{fits}(vllm_config, kv_cache_config)"

    def _comment(self) -> list[str]:
        """What is demanded."""
        sentence = f"{self._violation.spec[:1].upper()}{self._violation.spec[1:]}."
        return [f"    # {line}" for line in textwrap.wrap(sentence, WIDTH - 6)]

    @property
    def _is_for_want_of_room(self) -> bool:
        return ("way", "room") in self._violation.signature.defect.parameters

    # --- the history ---------------------------------------------------------------------------

    def _play(self) -> Iterator[str]:
        """The lines that step the scheduler, and assert what is expected."""
        yield "    arrivals = {"
        for name, arrival in self._history.requests.items():
            arrived = self._arrival(arrival, self._requests[name])
            yield laid_out(f"{literal(name)}: ", arrived, ",", depth=2)
        yield "    }"
        batches, drafts = self._running.batches, self._running.engine.num_speculative_tokens
        more = {"batches": batches} if batches > 1 else {}
        more |= {"drafts": drafts} if drafts else {}
        engine = call(
            self._engine.__name__,
            "scheduler",
            "arrivals",
            **{key: str(value) for key, value in more.items()},
        )
        yield laid_out("engine = ", engine)
        comment = self._comment()
        if ("of", "drafts") in self._violation.signature.defect.parameters:
            ahead = max(self._running.engine.num_prefill_lookahead, 1)
            yield f"    engine.ahead = {ahead}"
        if issubclass(self._engine, _TRANSFERRING):
            yield from self._transfers()
        if issubclass(self._engine, scripted_sessions.SessionEngine):
            yield from self._sessions()
        if issubclass(self._engine, scripted_grammars.GrammarEngine):
            yield from self._constraints()
        if self._history.pauses:
            yield laid_out("engine.pauses = ", self._pauses())
        if issubclass(self._engine, (scripted_engine.ReadingEngine, scripted_engine.KeyedEngine)):
            kind = self._violation.signature.group_kind
            groups = self._running.engine.groups
            judged = [n for n, g in enumerate(groups) if kind in (g.kind, CONNECTOR)]
            yield f"    engine.judged = {tuple(judged)}"
            exports = self._history.deployment.mamba_checkpoint_alignment is not None
            if exports or issubclass(self._engine, scripted_engine.KeyedEngine):
                yield "    engine.unit = hash_block_size"
        asserted = self._assertion()
        if asserted:
            yield f"    engine.run({self._steps})"
            yield ""
            yield from (*comment, asserted)
        else:
            yield from ("", *comment, f"    engine.run({self._steps})")

    @property
    def _steps(self) -> int:
        """So many steps are more than enough: each computes a token at least."""
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

    def _connector(self) -> list[type]:
        """The scheduler's half of the connector, with what it imports."""
        from hitproof.vllm_integration.adapter import loading

        self._import_as(loading)
        return [loading.LoadingConnector]

    def _grammars(self) -> list[type]:
        """The classes of grammars, with what they import."""
        from hitproof.vllm_integration.adapter import grammars

        self._import_as(grammars)
        self._values.imports["torch"] = set()
        return [grammars.ScriptedGrammar, grammars.ScriptedBackend, scripted_grammars.Constraint]

    def _import_as(self, module: ModuleType) -> None:
        """Import what a module imports of vLLM."""
        for name, thing in vars(module).items():
            if getattr(thing, "__module__", "").startswith("vllm."):
                self._values.import_(thing.__module__, name)

    def _transfers(self) -> Iterator[str]:
        """The lines that say what the connector has."""
        default = scripted_engine.Transfer()
        yield "    transfers = {"
        for name, arrival in self._history.requests.items():
            given = {
                field: literal(value)
                for field in default._fields
                if (value := getattr(arrival, field)) != getattr(default, field)
            }
            if given:
                yield laid_out(f"{literal(name)}: ", call("Transfer", **given), ",", depth=2)
        yield "    }"
        host = self._history.deployment.host
        yield f"    engine.connect(transfers{'' if host is None else f', {host.delay}'})"

    def _sessions(self) -> Iterator[str]:
        """The lines that say what ends sessions, and when."""
        yield "    ends = {"
        for session, inputs in self._history.sessions.items():
            steps = literal(self._history.requests[inputs[-1]].open_steps)
            end = Bracketed("(", (("", self._values.of(self._ends[session])), ("", steps)), ")")
            yield laid_out(f"{literal(inputs[-1])}: ", end, ",", depth=2)
        yield "    }"
        yield "    engine.converse(ends)"

    def _constraints(self) -> Iterator[str]:
        """The lines that say which requests have grammars."""
        if self._history.deployment.v2_model_runner:
            yield "    engine.keeps_drafts = True"
        yield "    constraints = {"
        for name, arrival in self._history.requests.items():
            if arrival.grammar_steps is None:
                continue
            tokens, rejected = literal(list(arrival.sampled)), str(arrival.rejected)
            given: list[Node] = [call("ScriptedGrammar", tokens, rejected)]
            given.append(str(arrival.grammar_steps))
            if arrival.valid_drafts:
                given.append(literal(arrival.valid_drafts))
            yield laid_out(f"{literal(name)}: ", call("Constraint", *given), ",", depth=2)
        yield "    }"
        yield "    engine.constrain(ScriptedBackend(), constraints)"

    def _pauses(self) -> Node:
        """When the engine is paused, and in what way."""
        self._values.import_("vllm.v1.core.sched.interface", "PauseState")
        pauses: list[tuple[str, Node]] = []
        for each in self._history.pauses:
            state = "PAUSED_NEW" if each.finishes_running else "PAUSED_ALL"
            steps = f"range({each.at}, {each.at + each.steps})"
            pauses.append(("", f"({steps}, PauseState.{state})"))
        return Bracketed("[", tuple(pauses), "]")

    def _assertion(self) -> str:
        """What is asserted at the end; nothing where the steps themselves fail."""
        if isinstance(self._violation.expected, Served):
            due = self._violation.expected
            relation = ">=" if due.or_more else "=="
            return f"    assert engine.hits[{literal(due.request)}] {relation} {due.tokens}"
        if isinstance(self._violation.expected, Admitted):
            admitted, before = self._violation.expected.request, self._violation.expected.before
            first, second = (f"order.index({literal(each)})" for each in (admitted, before))
            return f"    order = list(engine.hits)\n    assert {first} < {second}"
        defect = self._violation.signature.defect
        if ("way", "rest") in defect.parameters:
            return "    assert not scheduler.has_requests()"
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


def _source(thing: type) -> list[str]:
    """The lines of a class, without what only a type checker reads."""
    if thing.__module__ == __name__:
        bases = ", ".join(each.__name__ for each in thing.__bases__)
        return [f"class {thing.__name__}({bases}):", f'    """{thing.__doc__}"""']
    lines = inspect.getsource(thing).rstrip().split("\n")
    return [line.split("  # type: ")[0] for line in lines]


_WHOLE = {
    Code.REQUEST_NEVER_FINISHES: "    assert engine.ended.keys() == arrivals.keys()",
    Code.DELIVERED_TOKENS_WRONG: (
        "    for name, each in arrivals.items():\n"
        "        assert each.aborted or engine.delivered[name] == each.output"
    ),
    Code.BLOCKS_HELD_WHEN_IDLE: (
        "    blocks = scheduler.kv_cache_manager.block_pool.blocks\n"
        "    assert not any(block.ref_cnt for block in blocks if not block.is_null)"
    ),
    Code.DRAFTS_COUNTED_WRONG: (
        "    assert engine.counted == engine.tried\n"
        "    assert engine.counted_accepted == engine.accepted"
    ),
    Code.IMAGES_HELD_WHEN_IDLE: (f"    assert not any(scheduler.{ENCODED}.cached.values())"),
    Code.RAISES_EXCEPTION: "",
    Code.FAILED_LOAD_DELIVERED: "",
    Code.SESSION_TOKENS_WRONG: "",
}
"""What is asserted after the steps, by the code of what is wrong."""
