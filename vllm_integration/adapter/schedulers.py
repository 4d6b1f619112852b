"""How the target's own ``Scheduler`` is started, as `conformance.subject.schedulers` asks for.

There is no engine and no model: the target's engine core derives block sizes from the KV cache
groups as at start-up, and its own class of scheduler is constructed. Imported in the worker process
only. It is long, as each option of a deployment has its place here, and each one that some release
lacks another.
"""

import copy
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from itertools import zip_longest
from types import ModuleType
from typing import Any
from unittest.mock import patch

from hitproof.conformance.explain.derivation import PROBED
from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.conformance.histories.schema import is_replayed
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    Layers,
    SchedulerHistory,
)
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.schedulers import StartupRefused
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter import mooncake, transfers, umbp_store
from hitproof.vllm_integration.adapter.chunks import (
    connect_chunks,
    counts_offers,
    eviction_of,
    offloads_chunks,
)
from hitproof.vllm_integration.adapter.engine import group_of
from hitproof.vllm_integration.adapter.groups import (
    OPTING_OUT,
    kv_cache_config,
    kv_cache_spec,
    windows_opt_out,
)
from hitproof.vllm_integration.adapter.host_pool import config_of, connect, has_host_pools
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    call,
    must,
    parameters_of,
)
from hitproof.vllm_integration.adapter.layers import ALIGNMENT, LayeredExecutor, OneWorker
from hitproof.vllm_integration.adapter.running_scheduler import (
    ADAPTIVE,
    ENCODED,
    INTERVAL,
    RESET_ENCODER,
    SET_PAUSE,
    VllmScheduler,
)
from hitproof.vllm_integration.adapter.stand_ins import StandIn, model_config
from hitproof.vllm_integration.adapter.transfers import reports_failed_loads

ENCODER_BUDGET = "max_num_encoder_input_tokens"
"""The attribute of a scheduler that is the encoder's budget, in tokens."""
_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_UNIT = "prefix_match_unit"
_JUNCTIONS = "enable_mamba_shared_prefix_checkpoint"
_RESOLVE = "resolve_kv_cache_block_sizes"
_CONTEXT_PARALLEL = ("decode_context_parallel_size", "prefill_context_parallel_size")
_PIPELINE = "pipeline_parallel_size"
_SEVERAL = "use_multi_module_mtp"
_PLAIN_LAYERS: dict[str, Any] = {
    "groups": (Group(GroupKind.FULL_ATTENTION, 16),),
    "layers": (Layers(4),),
    "ranks": 1,
    "rank_blocks": (),
    "layout": "layers",
    "disable_hybrid_kv_cache_manager": False,
    "speculative_method": None,
    "num_speculative_tokens": 0,
    "num_mtp_modules": 1,
}
_AT_MOST = "max_num_scheduled_tokens"
_WATERMARK = "watermark"
_STAGGERED = "next_decode_eligible_step"
_SKIPPED = "get_num_skipped_tokens"
_GROUPS = "get_global_kv_cache_groups"


class VllmSchedulers:
    """The imported vLLM as a `conformance.subject.schedulers.SchedulerSubject`."""

    def __init__(self) -> None:
        from vllm.v1 import kv_cache_interface, outputs, request
        from vllm.v1.core import block_pool, kv_cache_utils
        from vllm.v1.engine import core

        self.core = core
        self.interface = kv_cache_interface
        self.outputs = outputs
        self.requests = request
        self.utils = kv_cache_utils
        self.registers_tails = hasattr(attribute(block_pool, "BlockPool"), "cache_partial_block")
        # It warns of what no engine is asked to do here, and of loads that fail.
        logging.getLogger("vllm").setLevel(logging.CRITICAL)

    @cached_property
    def _base(self) -> Any:
        from vllm import config

        values = {"device_config": config.DeviceConfig("cpu")}
        with _environment(_RUNNER, "0"):
            return call(attribute(config, "VllmConfig"), values, "VllmConfig")

    @cached_property
    def counts_admissions(self) -> bool:
        """Whether statistics count a load, and drafts, when their request is admitted."""
        from vllm.v1.core.kv_cache_manager import KVCacheManager

        return hasattr(KVCacheManager, "record_prefix_cache_stats")

    @property
    def cache_defaults(self) -> Any:
        """The ``CacheConfig`` of a configuration without a model."""
        return self._base.cache_config

    def possible(self, history: SchedulerHistory) -> SchedulerHistory:
        """The history without what this release does not have."""
        deployment = history.deployment
        if deployment.host is not None and not has_host_pools():
            plain = replace(deployment, host=None)
            return self.possible(replace(history, deployment=plain, requests={}))
        connector = deployment.connector
        if connector and connector.keeps and not _keeps(connector):
            plain = replace(deployment, connector=None)
            return self.possible(replace(history, deployment=plain, requests={}, resets=()))
        if deployment.connector is not None and not reports_failed_loads():
            less: dict[str, Any] = {"load_fails": False}
            if len(deployment.groups) > 1:
                less |= {"invalid_blocks": (), "invalid_steps": None}
            whole = {name: replace(each, **less) for name, each in history.requests.items()}
            history = replace(history, requests=whole)
        cache = self._base.cache_config
        mamba = parameters_of(attribute(self.interface, "MambaSpec"))
        scheduling = self._base.scheduler_config
        newer: tuple[tuple[Any, str, str, Any], ...] = (
            (cache, INTERVAL, "retention_interval", None),
            (cache, _UNIT, _UNIT, None),
            (cache, _JUNCTIONS, "mamba_shared_prefix_checkpoint", False),
            (scheduling, ADAPTIVE, ADAPTIVE, False),
            (scheduling, _AT_MOST, _AT_MOST, None),
            (scheduling, _WATERMARK, _WATERMARK, 0.0),
            (self._speculative_class, _SEVERAL, "num_mtp_modules", 1),
        )
        changes = {field: off for of, name, field, off in newer if not hasattr(of, name)}
        if "dcp_sharded" not in parameters_of(attribute(self.interface, "FullAttentionSpec")):
            changes |= dict.fromkeys(_CONTEXT_PARALLEL, 1)  # one group only
        if "prefill_checkpoint_alignment" not in mamba or not hasattr(cache, _UNIT):
            changes["mamba_checkpoint_alignment"] = None
        groups = deployment.groups
        if deployment.ranks > 1 and not _staggers():
            changes["async_scheduling"] = False
        if not hasattr(self.interface, OPTING_OUT):
            groups = tuple(group for group in groups if group.prefix_cacheable)
        if not windows_opt_out(self.interface):
            groups = tuple(group for group in groups if not is_replayed(group))
        if not hasattr(self.core, _RESOLVE):
            size = min(group.block_size for group in groups)
            groups = tuple(replace(group, block_size=size) for group in groups)
        if deployment.connector is not None:
            groups = transfers.connectable(groups)
            if deployment.connector.threshold and not counts_offers():
                changes["connector"] = replace(deployment.connector, threshold=0)
        changes["groups"] = groups
        if len(groups) < len(deployment.groups):
            changes["precisions"] = ()  # there is one for each group
        if ALIGNMENT not in parameters_of(attribute(self.interface, "FullAttentionSpec")):
            changes["layers"] = tuple(replace(each, alignment=1) for each in deployment.layers)
        if deployment.layers and not (self._plans or _are_plain(deployment)):
            changes |= _PLAIN_LAYERS
        if "prompt_is_token_ids" not in parameters_of(self.requests.Request.__init__):
            history = replace(history, requests=dict(_embedded_whole(history)))
        if "resumable" not in parameters_of(self.requests.Request.__init__):
            history = replace(history, requests=dict(_without_sessions(history)))
        pauses = history.pauses if hasattr(self._scheduler_class, SET_PAUSE) else ()
        made = replace(deployment, **changes)
        if made.has_mamba and "mamba_cache_mode" not in mamba:
            # A step keeps every state, whatever its chunks: no request is judged.
            return replace(history, deployment=made, requests={}, pauses=(), encoder_resets=())
        resets = history.encoder_resets if hasattr(self._scheduler_class, RESET_ENCODER) else ()
        return replace(history, deployment=made, pauses=pauses, encoder_resets=resets)

    @cached_property
    def _plans(self) -> bool:
        """Whether layers of all sorts are grouped: the planner is a module of its own."""
        return find_spec("vllm.v1.core.kv_cache_planning") is not None

    @property
    def _scheduler_class(self) -> Any:
        from vllm.v1.core.sched.scheduler import Scheduler

        return Scheduler

    @cached_property
    def _speculative_class(self) -> Any:
        from vllm import config

        return attribute(config, "SpeculativeConfig")

    def vllm_config(self, deployment: Deployment) -> Any:
        """The ``VllmConfig`` of a deployment, without a model."""
        from vllm import config

        made = copy.copy(self._base)
        made.model_config = model_config(deployment.max_model_len)
        name = "the Hugging Face configuration of the model"
        made.model_config.hf_config = StandIn(name, model_type="")
        for name, ranks in (
            *((name, getattr(deployment, name)) for name in _CONTEXT_PARALLEL),
            (_PIPELINE, deployment.ranks),
        ):
            if ranks > 1:
                made.parallel_config = copy.copy(made.parallel_config)
                _set(made.parallel_config, name, ranks)
        newer = (ADAPTIVE, _AT_MOST, _WATERMARK)
        options = {n: value for n in newer if (value := getattr(deployment, n))}
        for name in options:
            _require(self._base.scheduler_config, name)
        with _refusals():
            made.scheduler_config = call(
                attribute(config, "SchedulerConfig"),
                {
                    "max_num_seqs": deployment.max_num_seqs,
                    "max_num_batched_tokens": deployment.max_num_batched_tokens,
                    "max_model_len": deployment.max_model_len,
                    "enable_chunked_prefill": deployment.enable_chunked_prefill,
                    "long_prefill_token_threshold": deployment.long_prefill_token_threshold,
                    "policy": deployment.policy,
                    "async_scheduling": deployment.async_scheduling,
                    "is_encoder_decoder": False,
                    "disable_chunked_mm_input": bool(
                        deployment.encoder and deployment.encoder.whole_images
                    ),
                    **options,
                },
                "SchedulerConfig",
            )
        cache = made.cache_config = copy.copy(self._base.cache_config)
        cache.enable_prefix_caching = deployment.enable_prefix_caching
        cache.num_gpu_blocks = deployment.num_gpu_blocks
        if deployment.num_gpu_blocks_override is not None:
            cache.num_gpu_blocks_override = deployment.num_gpu_blocks_override
        sizes = [group.block_size for group in deployment.groups if group.prefix_cacheable]
        cache.block_size = min(sizes or [group.block_size for group in deployment.groups])
        if deployment.has_mamba:
            cache.mamba_cache_mode = "align" if deployment.enable_prefix_caching else "none"
            cache.mamba_block_size = next(
                group.block_size for group in deployment.groups if group.kind == "mamba"
            )
        for name, value in {
            _UNIT: deployment.prefix_match_unit,
            _JUNCTIONS: deployment.mamba_shared_prefix_checkpoint,
        }.items():
            if value:
                _set(cache, name, value)
        if deployment.retention_interval is not None:
            dense = deployment.retention_interval == "dense"
            able, what = hasattr(cache, INTERVAL), "has no retention interval in its configuration"
            must(able or dense, what, "retention_interval")
            if able:
                setattr(cache, INTERVAL, None if dense else deployment.retention_interval)
        if deployment.max_loras is not None:
            values = {"max_loras": deployment.max_loras, "max_cpu_loras": deployment.max_loras}
            made.lora_config = call(attribute(config, "LoRAConfig"), values, "LoRAConfig")
        if deployment.speculative_method is not None:
            made.speculative_config = self._speculative(deployment, made.model_config)
        if deployment.host is not None:
            connect(made, deployment.host)
        if deployment.connector is not None:
            several = []
            for each in deployment.connector.several:
                _connect(made, deployment, each)
                several.append(made.kv_transfer_config)
            if len(several) > 1:
                policy = deployment.connector.load_failure
                transfers.connect_several(made, several, policy)
        if deployment.encoder is not None and deployment.encoder.ec_connector:
            from hitproof.vllm_integration.adapter.encoding import ENCODING

            made.ec_transfer_config = call(
                attribute(config, "ECTransferConfig"),
                {**ENCODING, "ec_role": "ec_consumer"},
                "ECTransferConfig",
            )
        settle = getattr(made, "_set_max_num_scheduled_tokens", None)
        if settle is not None:
            with _refusals():
                settle()
        return made

    def _speculative(self, deployment: Deployment, model: Any) -> Any:
        made = call(
            self._speculative_class,
            {
                "method": "ngram",
                "num_speculative_tokens": deployment.num_speculative_tokens,
                "prompt_lookup_max": 2,
                "prompt_lookup_min": 1,
                "target_model_config": None,
                "target_parallel_config": self._base.parallel_config,
            },
            "SpeculativeConfig",
        )
        made.method = deployment.speculative_method
        made.target_model_config = made.draft_model_config = model
        if deployment.has_draft_head:
            made.draft_model_config = model_config(deployment.max_model_len)
            made.draft_model_config.hf_config = StandIn(
                "the Hugging Face configuration of the draft model",
                num_nextn_predict_layers=deployment.num_mtp_modules,
            )
        if deployment.num_mtp_modules > 1:
            must(hasattr(made, _SEVERAL), "has no multi-module MTP", "num_mtp_modules")
        if not deployment.lookahead_hashes and hasattr(made, "disable_lookahead_block_hashes"):
            made.disable_lookahead_block_hashes = True
        return made

    def groups_config(self, deployment: Deployment, vllm_config: Any) -> Any:
        """The ``KVCacheConfig`` of a deployment's groups, in a context."""
        groups = [
            (
                group,
                kv_cache_spec(
                    self.interface,
                    group,
                    deployment.num_speculative_tokens,
                    deployment.mamba_checkpoint_alignment,
                    enable_prefix_caching=deployment.enable_prefix_caching,
                    quantized=precision == "fp8",
                ),
            )
            for group, precision in zip_longest(deployment.groups, deployment.precisions)
        ]
        groups = _one_page(groups)
        interval = getattr(vllm_config.cache_config, INTERVAL, None)
        return kv_cache_config(self.interface, groups, deployment.num_gpu_blocks, interval)

    def start(self, deployment: Deployment) -> VllmScheduler:
        """See `conformance.subject.schedulers.SchedulerSubject`."""
        if any(map(is_replayed, deployment.groups)):
            self._check_replays(deployment)
        with _environment(_RUNNER, str(int(deployment.v2_model_runner))):
            if deployment.layers:
                return self._start_layers(deployment, *self.layered(deployment))
            vllm_config = self.vllm_config(deployment)
            if deployment.host is not None:
                interval = getattr(vllm_config.cache_config, INTERVAL, None)
                config = config_of(self.interface, deployment, interval)
                return self.start_with(deployment, vllm_config, config)
            with self.groups_config(deployment, vllm_config) as config:
                return self.start_with(deployment, vllm_config, config)

    def _check_replays(self, deployment: Deployment) -> None:
        """Whether windows outside the prefix cache are used as a model can have them."""
        kinds = {group.kind for group in deployment.groups if group.prefix_cacheable}
        windows = {group.window for group in deployment.groups if is_replayed(group)}
        what = "has no window outside the prefix cache"
        must(windows_opt_out(self.interface), what, "prefix_cacheable")
        alone = kinds == {GroupKind.FULL_ATTENTION} and len(windows) == 1
        loads = deployment.connector is not None or deployment.host is not None
        if not (alone and deployment.v2_model_runner) or loads:
            raise CannotJudge(refusal("scheduler-replays"))

    def _start_layers(
        self, deployment: Deployment, vllm_config: Any, executor: LayeredExecutor
    ) -> VllmScheduler:
        """A scheduler of what the target derives from layers."""
        try:
            return self._derived(deployment, vllm_config, executor)
        except StartupRefused:
            raise
        except Exception as error:  # to the user, it does not start
            crash = crash_of(error)
            raise StartupRefused(f"{type(crash).__name__}: {crash}"[:300]) from error

    def _derived(
        self, deployment: Deployment, vllm_config: Any, executor: LayeredExecutor
    ) -> VllmScheduler:
        started = self.start_with(deployment, vllm_config, None, executor)
        engine = started.engine
        setup = CacheSetup(
            engine.groups,
            int(started.scheduler.block_size),
            engine.hash_block_size,
            engine.use_eagle,
            engine.num_hash_lookahead_tokens,
            num_blocks=engine.num_gpu_blocks,
            caching=engine.enable_prefix_caching,
        )
        derived = executor.derived(setup, deployment.prefix_match_unit)
        started.derived = replace(
            derived, kept=_kept(started.scheduler), again=max(engine.num_prefill_lookahead - 1, 0)
        )
        return started

    def layered(self, deployment: Deployment) -> tuple[Any, LayeredExecutor]:
        """The ``VllmConfig`` of a deployment with layers, and its workers."""
        with _environment(_RUNNER, str(int(deployment.v2_model_runner))):
            made = self.vllm_config(deployment)
        hybrid = deployment.disable_hybrid_kv_cache_manager
        made.scheduler_config.disable_hybrid_kv_cache_manager = hybrid
        return made, LayeredExecutor(self.interface, deployment)

    def start_with(
        self,
        deployment: Deployment,
        vllm_config: Any,
        config: Any,
        executor: LayeredExecutor | None = None,
    ) -> VllmScheduler:
        """A scheduler of a ``VllmConfig`` and a ``KVCacheConfig`` of the target's.

        Of the deployment, what is not in these counts. With ``executor`` the configuration is
        derived from the layers that it has.
        """
        core = self.core
        with _refusals():
            config = self._initialized(vllm_config, config, executor)
            resolve = getattr(core, _RESOLVE, None)
            if resolve is not None:
                size, hash_size = resolve(config, vllm_config)
            else:
                size = hash_size = vllm_config.cache_config.block_size
        sizes = {each.kv_cache_spec.block_size for each in config.kv_cache_groups}
        if resolve is None and len(sizes) > 1:
            raise CannotJudge("this release has one block size for all groups; name a later one")
        manager = core.StructuredOutputManager(vllm_config)
        scheduler_class = vllm_config.scheduler_config.get_scheduler_cls()
        keywords = arguments(
            self._scheduler_class.__init__,
            {
                "vllm_config": vllm_config,
                "kv_cache_config": config,
                "structured_output_manager": manager,
                "block_size": size,
                "hash_block_size": hash_size,
                "log_stats": True,
            },
            "Scheduler",
            given=("self",),
        )
        with _refusals():
            several = () if deployment.connector is None else deployment.connector.several
            with ExitStack() as stack:
                if any(each.store and not each.umbp for each in several):
                    stack.enter_context(mooncake.starting())
                if any(each.umbp for each in several):
                    stack.enter_context(umbp_store.starting())
                scheduler = scheduler_class(**keywords)
        if deployment.encoder is not None:
            # A model's processor says how large its images are, and so both numbers.
            _set(scheduler, ENCODER_BUDGET, deployment.encoder.budget)
            encoded = type(attribute(scheduler, ENCODED))
            setattr(scheduler, ENCODED, encoded(cache_size=deployment.encoder.cache_size))
        groups, blocks = deployment.groups, deployment.num_gpu_blocks
        if executor is not None:
            blocks = int(config.num_blocks)
            groups = tuple(
                group_of(
                    self.interface, each.kv_cache_spec, bool(getattr(each, "is_eagle_group", False))
                )
                for each in config.kv_cache_groups
            )
        derived = replace(
            deployment,
            groups=groups,
            num_gpu_blocks=blocks,
            layers=(),
            num_gpu_blocks_override=None,
            rank_blocks=(),
            disable_hybrid_kv_cache_manager=False,
        )
        started = VllmScheduler(self, derived, vllm_config, scheduler, hash_size)
        started.keywords = tuple(keywords)
        return started

    def require_images(self, vllm_config: Any, lengths: Sequence[int]) -> None:
        """Have start-up accept a model with images of these lengths, in tokens.

        It asks the model's processor for the longest; a deployment does not have that.
        """
        from vllm.v1.core import encoder_cache_manager

        accept = attribute(encoder_cache_manager, "compute_mm_encoder_budget")
        with _refusals():
            accept(vllm_config.scheduler_config, {"image": max(lengths)})

    def _initialized(
        self, vllm_config: Any, config: Any, executor: LayeredExecutor | None = None
    ) -> Any:
        """The ``KVCacheConfig`` after the engine core's own start-up.

        With these groups, so that nothing is derived from layers, or from the executor's layers.
        """
        core = self.core
        engine = object.__new__(attribute(core, "EngineCore"))
        engine.model_executor = executor or OneWorker(config, transfers.num_offloaded(vllm_config))
        with ExitStack() as replaced:
            if executor is None:
                owner, name = self.grouping
                own = attribute(owner, name)
                grouped = regrouped(own, config.kv_cache_groups)
                replaced.enter_context(patch.object(owner, name, grouped))
            if hosted := bool(getattr(config, "hisparse_host_num_blocks", 0)):
                # HiSparse sizes its pools by layers of sparse models, of which there are none here.
                replaced.enter_context(
                    patch.object(core, "get_kv_cache_configs", lambda *_, **__: [config])
                )
            found = engine._initialize_kv_caches(vllm_config)
        if isinstance(found, tuple):
            vllm_config.cache_config.num_gpu_blocks, *_, found = found
        fits = attribute(self.utils, "get_max_concurrency_for_kv_cache_config")
        if hosted and fits(vllm_config, found) < 1:
            raise StartupRefused("the pool is too small for one request of max_model_len tokens")
        return found

    @property
    def grouping(self) -> tuple[ModuleType, str]:
        """Where start-up finds the function that groups layers."""
        own = hasattr(self.core, _GROUPS)
        return (self.core, _GROUPS) if own else (self.utils, "get_kv_cache_groups")


def regrouped(own: Callable[..., Any], groups: list[Any]) -> Callable[..., Any]:
    """The target's ``own`` grouping of layers; these groups where it makes others.

    Larger models have such groups. With one layer each, vLLM may join them or enlarge blocks.
    """

    def grouped(*args: Any, **keywords: Any) -> Any:
        try:
            found = own(*args, **keywords)
        except (AssertionError, ValueError, NotImplementedError):
            return groups
        return found if _facts(found) == _facts(groups) else groups

    return grouped


def _facts(groups: list[Any]) -> list[tuple[Any, ...]]:
    eagle = "is_eagle_group"
    return [(each.layer_names, each.kv_cache_spec, getattr(each, eagle, False)) for each in groups]


def _without_sessions(history: SchedulerHistory) -> Iterator[tuple[str, Arrival]]:
    """The requests, each input of a session as a request after the one before."""
    last: dict[str, str] = {}
    for name, each in history.requests.items():
        plain = each
        if each.session is not None:
            after = last.get(each.session, each.after)
            plain = replace(each, session=None, open_steps=0, after=after)
            last[each.session] = name
        yield name, plain


def _kept(scheduler: Any) -> tuple[int, ...]:
    """The tokens that a running request of `PROBED` tokens keeps, by group."""
    coordinator = attribute(scheduler.kv_cache_manager, "coordinator")
    managers = attribute(coordinator, "single_type_managers")
    if any(not hasattr(each, _SKIPPED) for each in managers):
        return ()
    return tuple(PROBED - int(getattr(each, _SKIPPED)(PROBED)) for each in managers)


def _embedded_whole(history: SchedulerHistory) -> Iterator[tuple[str, Arrival]]:
    """The requests; those that come as embeddings in part come as token ids."""
    for name, each in history.requests.items():
        whole = len(each.request.embedded) == len(each.prompt)
        yield name, each if whole else replace(each, embeddings=())


def _keeps(connector: Connector) -> bool:
    """Whether the release has what offloads in that way, as it is judged."""
    if connector.beside is not None:
        both = (_keeps(replace(each, beside=None)) for each in connector.several if each.keeps)
        return transfers.tells_several_back() and all(both)
    if connector.store:
        return umbp_store.has_umbp() if connector.umbp else mooncake.has_store()
    return offloads_chunks() if connector.chunk else transfers.offloads()


def _connect(vllm_config: Any, deployment: Deployment, connector: Connector) -> None:
    """Put a connector into a configuration, without those beside it."""
    if connector.umbp:
        umbp_store.connect_umbp(vllm_config, connector)
    elif connector.store:
        mooncake.connect_store(vllm_config, connector)
    elif connector.chunk:
        ranks = math.prod(getattr(deployment, name) for name in _CONTEXT_PARALLEL)
        connect_chunks(
            vllm_config,
            deployment.groups,
            connector.chunk,
            connector.offloads,
            connector.outputs,
            ranks,
            later=connector.later,
            **eviction_of(connector),
        )
    else:
        alone = deployment.connector == connector and not connector.beside
        one_table = alone and len(deployment.groups) == 1 and not deployment.layers
        if one_table:
            vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = True
        transfers.connect(vllm_config, connector, one_table)


def _staggers() -> bool:
    """Whether decodes of several pipeline ranks can be scheduled ahead: each waits for its turn."""
    from vllm.v1.request import Request

    return _STAGGERED in Request.__init__.__code__.co_names


def _are_plain(deployment: Deployment) -> bool:
    """Whether all layers keep as much, so that every release can group them."""
    same = {replace(each, count=1) for each in deployment.layers} == {Layers()}
    alone = deployment.ranks == 1 and not deployment.disable_hybrid_kv_cache_manager
    return same and alone and not deployment.speculative_method


def _one_page(groups: list[tuple[Group, Any]]) -> list[tuple[Group, Any]]:
    """The specs with pages of one size, as the target's planner gives them: all share one pool."""
    largest = max(spec.page_size_bytes for _, spec in groups)
    return [
        (group, spec)
        if spec.page_size_bytes == largest
        else (group, replace(spec, page_size_padded=largest))
        for group, spec in groups
    ]


def _set(owner: Any, name: str, value: Any) -> None:
    _require(owner, name)
    setattr(owner, name, value)


def _require(owner: Any, name: str) -> None:
    must(hasattr(owner, name), f"has no {name}", "it")


@contextmanager
def _refusals() -> Iterator[None]:
    """What the target's start-up raises refuses the deployment."""
    try:
        yield
    # Its validation raises these. Any other exception is no refusal, and is reported as it is.
    except (AssertionError, ValueError, NotImplementedError) as error:
        raise StartupRefused(f"{type(error).__name__}: {error}"[:300]) from error
    except CannotJudge as error:
        if not isinstance(own := error.__cause__, ValueError):
            raise
        raise StartupRefused(f"{type(own).__name__}: {own}"[:300]) from own


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
