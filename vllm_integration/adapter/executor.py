"""An executor without a device: it builds the model's layers, and says what steps computed.

Layers are built on torch's meta device by the target's own model classes, so that they have specs
but no weights. A step samples a token for each request whose known tokens it has computed, and all
drafts are accepted. Imported in the worker process only.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from tempfile import mkstemp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hitproof.vllm_integration.adapter.device import NoPrefill
from hitproof.vllm_integration.adapter.engine_tiers import EngineTier, offloaded_blocks
from hitproof.vllm_integration.adapter.stand_ins import StandIn

_CHOICE, _KERNEL = "get_mla_prefill_backend", "flash_attn_varlen_func"
ROOM = 4
"""How many requests of the greatest length the pool has room for where its size is not said."""


@dataclass
class Progress:
    """What a worker knows of one request.

    Attributes:
        prompt: tokens of its prompt.
        known: those and tokens of its output so far.
        computed: how many of these tokens the computed state covers.
        steps: the first and one past the last token of each step.
    """

    prompt: int
    known: int
    computed: int
    steps: list[tuple[int, int]] = field(default_factory=list)


class Worker:
    """What an executor asks its only worker.

    Attributes:
        specs: the specs of the layers by name, as they were before they were grouped.
        available: bytes that were said to be available for the cache.
        progress: what is known of each request that was scheduled.
        handed_out: blocks that the scheduler handed out so far, those of all groups together.
        tier: what copies blocks as the scheduler's KV connector says; None without one.
        copies: whether the last step asked for copies.
        given: tokens that requests sample, by name; others sample tokens of their own.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._output: Any = None
        self.specs: dict[str, Any] = {}
        self.available = 0
        self.progress: dict[str, Progress] = {}
        self.handed_out = 0
        self.tier: EngineTier | None = None
        self.copies = False
        self.given: dict[str, Sequence[int]] = {}
        self.kv_cache_config: Any = None
        build_layers(config)

    def get_simple_cpu_offload_num_cpu_blocks(self) -> int:
        """Blocks of host memory, where such a connector is configured."""
        return offloaded_blocks(self._config, self.kv_cache_config)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """The specs of the layers, as the target's model runner gathers them."""
        from vllm.config import set_current_vllm_config
        from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

        with set_current_vllm_config(self._config):
            self.specs = get_kv_cache_spec(self._config)
        return dict(self.specs)

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """Those of the backends of the layers."""
        from vllm.v1.worker.worker_base import WorkerBase

        worker = StandIn("WorkerBase", vllm_config=self._config)
        layouts: list[str] = WorkerBase.get_supported_kv_cache_layouts(worker)
        return layouts

    def determine_available_memory(self) -> int:
        """Bytes for the cache: what is said, or room for a few requests of the greatest length."""
        said = getattr(self._config.cache_config, "kv_cache_memory_bytes", None)
        needed = sum(each.max_memory_usage_bytes(self._config) for each in self.specs.values())
        self.available = int(said or ROOM * needed)
        return self.available

    def execute_model(self, output: Any) -> None:
        """Note what a step computes, and prepare what it samples."""
        from vllm.v1.outputs import ModelRunnerOutput

        for new in output.scheduled_new_reqs:
            known = len(new.prompt_token_ids or ())
            self.progress[new.req_id] = Progress(known, known, new.num_computed_tokens)
            self._count(new.block_ids)
        cached = output.scheduled_cached_reqs
        for index, name in enumerate(cached.req_ids):
            self._count(cached.new_block_ids[index])
            if name in cached.resumed_req_ids:
                self.progress[name].computed = cached.num_computed_tokens[index]
        names = list(output.num_scheduled_tokens)
        self._output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[
                self._sampled(
                    name,
                    output.num_scheduled_tokens[name],
                    len(output.scheduled_spec_decode_tokens.get(name, ())),
                )
                for name in names
            ],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        if self.tier is not None:
            self.copies = self.tier.step(output)
            self._output.kv_connector_output = self.tier.report()

    def sample_tokens(self) -> Any:
        """What the last step sampled."""
        output, self._output = self._output, None
        return output

    def take_draft_token_ids(self) -> Any:
        """Drafts for each request that samples, which are the tokens that it will sample."""
        from vllm.v1.outputs import DraftTokenIds

        count = self._config.speculative_config.num_speculative_tokens
        names = [name for name, each in self.progress.items() if each.computed == each.known - 1]
        drafts = [
            [self._token(name, self.progress[name].known + ahead) for ahead in range(count)]
            for name in names
        ]
        return DraftTokenIds(names, drafts)

    def _token(self, name: str, position: int) -> int:
        place = position - self.progress[name].prompt
        given = self.given.get(name, ())
        return given[place] if place < len(given) else token(name, position)

    def _count(self, blocks: Sequence[Sequence[int]] | None) -> None:
        self.handed_out += sum(map(len, blocks or ()))

    def _sampled(self, name: str, scheduled: int, drafts: int) -> list[int]:
        request = self.progress[name]
        end = request.computed + scheduled
        request.steps.append((request.computed, end))
        request.computed = end
        sampled = end - request.known + 1 if drafts else int(end == request.known)
        tokens = [self._token(name, request.known + ahead) for ahead in range(sampled)]
        request.known += len(tokens)
        return tokens


def token(name: str, position: int) -> int:
    """The token that a request samples at a position: another one for each request."""
    return 100 + (sum(name.encode()) + 7 * position) % 30000


def executor_class() -> type[Any]:
    """An ``Executor`` of the target with one `Worker`."""
    from vllm.v1.executor.abstract import Executor

    class Described(Executor):  # type: ignore[misc]  # the target is not known to mypy
        def _init_executor(self) -> None:
            self.worker = Worker(self.vllm_config)

        def collective_rpc(self, method: Any, *_: Any, **__: Any) -> list[Any]:
            """Workers have nothing to do for most of what they are told."""
            asked = getattr(self.worker, method, None)
            return [None if asked is None else asked()]

        def initialize_from_config(self, kv_cache_configs: Any) -> None:
            self.worker.kv_cache_config = kv_cache_configs[0]

        def compile_or_warm_up_model(self, *_: Any, **__: Any) -> None:
            pass

        def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
            self.worker.execute_model(scheduler_output)
            # With nothing scheduled nothing will be sampled.
            empty = not scheduler_output.total_num_scheduled_tokens
            return _answer(self.worker.sample_tokens() if empty else None, non_block)

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            del grammar_output
            return _answer(self.worker.sample_tokens(), non_block)

        @property
        def max_concurrent_batches(self) -> int:
            return 2 if self.scheduler_config.async_scheduling else 1

        def check_health(self) -> None:
            pass

    return Described


def _answer(result: Any, non_block: bool) -> Any:
    if not non_block:
        return result
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def build_layers(config: Any) -> None:
    """Build the layers of the model, and of a draft model, and align the block size with them."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform

    kernels: Any = getattr(config, "kernel_config", None)
    if hasattr(kernels, "enable_jit_warmup"):
        kernels.enable_jit_warmup = False  # there are no kernels
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(config.model_config.dtype)
    layers = config.compilation_config.static_forward_context
    try:
        with set_current_vllm_config(config):
            _set_up_ranks(config)
            with (
                torch.device("meta"),
                _on_meta(),
                _no_prefill(),
                patch("torch.cuda.Stream", SimpleNamespace),
                patch("torch.cuda.Event", SimpleNamespace),
            ):
                initialize_model(config)
                draft = _draft_model(config)
                if draft is not None:
                    before = set(layers)
                    initialize_model(config, model_config=draft)
                    for name in layers.keys() - before:
                        layers[name].is_draft_layer = True
    finally:
        torch.set_default_dtype(dtype)
    # Older releases align the sizes when they read the configuration.
    align = getattr(type(current_platform), "update_block_size_for_backend", None)
    if align is not None:
        align(config)


def _on_meta() -> Any:
    """What layers would put onto the device is on no device."""
    from torch.overrides import TorchFunctionMode

    class OnMeta(TorchFunctionMode):  # type: ignore[misc]  # torch is not known to mypy
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            keywords = dict(kwargs or {})
            if str(keywords.get("device", "")).startswith("cuda"):
                keywords["device"] = "meta"
            return function(*args, **keywords)

    return OnMeta()


def _no_prefill() -> AbstractContextManager[object]:
    """Where the platform does not choose the backend for the prefill of latent attention.

    It is compiled, and decides nothing about the cache.
    """
    from vllm.model_executor.layers.attention import mla_attention

    stand_ins: dict[str, Any] = {_CHOICE: lambda _: NoPrefill, _KERNEL: NoPrefill}
    replaced = {name: each for name, each in stand_ins.items() if hasattr(mla_attention, name)}
    patched: AbstractContextManager[object] = patch.multiple(mla_attention, **replaced)
    return patched


def _draft_model(config: Any) -> Any:
    """The configuration of the model that drafts; None where none has layers of its own."""
    speculation = config.speculative_config
    draft = getattr(speculation, "draft_model_config", None)
    return None if draft is None or draft is config.model_config else draft


def _set_up_ranks(config: Any) -> None:
    """Groups of ranks as the first rank sees them: layers are as large as on one of many."""
    from vllm.distributed import parallel_state

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        number, path = mkstemp()
        os.close(number)
        parallel_state.init_distributed_environment(1, 0, f"file://{path}", 0, "gloo")
    parallel_state.initialize_model_parallel(1, 1)
    parallel_state.get_tp_group().world_size = config.parallel_config.tensor_parallel_size
