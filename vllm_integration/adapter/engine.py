"""The target's own ``EngineCore`` for a model and vLLM's arguments, without a device.

The target parses the arguments, reads the model's config.json, builds its layers, groups them,
sizes the pool, resolves block sizes, checks it all and sets up its scheduler, by its own code. Only
platform and executor are ours (`adapter.device`, `adapter.executor`). Imported in the worker
process only.
"""

import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any, NoReturn

from hitproof.conformance.explain.derivation import Layer
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter import engine_tiers
from hitproof.vllm_integration.adapter.device import leave_out_unused, set_up_device
from hitproof.vllm_integration.adapter.executor import Worker, executor_class
from hitproof.vllm_integration.adapter.groups import NAMES
from hitproof.vllm_integration.adapter.inspection import arguments, attribute

_ORDER = (
    GroupKind.MAMBA,
    GroupKind.CHUNKED_LOCAL,
    GroupKind.SLIDING_WINDOW,
    GroupKind.FULL_ATTENTION,
)
_MOST_STEPS = 20_000
_MOST_EMPTY = 100
_DRAFT = "is_draft"
_TEXT_ONLY = "language_model_only"
_MODALITIES = ("image", "video", "audio")
_OURS = ("skip_tokenizer_init", "skip-tokenizer-init", "meta tensor", "version of Transformers")
"""What messages name that comes from what is installed and set up here, not from the user."""
_MESSAGE = 300
"""Characters of a message; some of the target's list all models that it has."""


class Refused(Exception):
    """The target refuses the model or the arguments; the message is its own."""


class OutOfReach(Exception):
    """The deployment cannot be set up without a device; that says nothing about the target."""


class DraftModel(Exception):
    """The model only drafts for another one; the message has its architecture."""


class NoProgress(Exception):
    """Requests do not finish."""


@dataclass(frozen=True)
class Served:
    """A request that was served.

    Attributes:
        tokens: its prompt.
        output: the tokens that it sampled.
        hit: tokens of the prompt that it found cached, here or in the tier.
        loaded: those of them that the tier was asked for.
        steps: the first and one past the last token that each step computed.
    """

    tokens: tuple[int, ...]
    output: tuple[int, ...]
    hit: int
    loaded: int
    steps: tuple[tuple[int, int], ...]


class Engine:
    """One engine of the target.

    Raises `Refused` where the target does not start, `DraftModel` for a model that cannot be
    served alone, and `OutOfReach` where the limit is hitproof's.

    Attributes:
        config: its ``VllmConfig``, with all that start-up resolved.
        text_only: whether only the language model of a multimodal one is set up.
        tier: what its KV connector keeps; None without one.
        pool: its ``BlockPool``.
    """

    def __init__(self, model: str, argv: Sequence[str]) -> None:
        from vllm.v1.engine.core import EngineCore

        set_up_once()
        try:
            self.config, self.text_only = _configured(model, argv)
            with engine_tiers.starting(self.config):
                self._core = EngineCore(self.config, executor_class(), False)
        except (Refused, OutOfReach, DraftModel):
            raise
        except Exception as error:
            raise _failure(error) from error
        self._scheduler = self._core.scheduler
        self._cache = self._scheduler.kv_cache_config
        self.pool = self._scheduler.kv_cache_manager.block_pool
        self._names = itertools.count()
        self._requests: dict[tuple[int, ...], Any] = {}
        self.tier = self.worker.tier = engine_tiers.tier_of(self.config, self._scheduler)

    @property
    def worker(self) -> Worker:
        """What the executor keeps."""
        worker: Worker = self._core.model_executor.worker
        return worker

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool."""
        return int(self._cache.num_blocks)

    @property
    def caching(self) -> bool:
        """Whether prefix caching is on."""
        return bool(self.config.cache_config.enable_prefix_caching)

    @property
    def scheduler_block_size(self) -> int:
        """The scheduler's block size in tokens."""
        return int(self._scheduler.block_size)

    @property
    def hash_block_size(self) -> int:
        """Tokens that one hash covers."""
        return int(getattr(self.pool, "hash_block_size", None) or self.scheduler_block_size)

    @property
    def retention(self) -> int | None:
        """The retention interval in tokens; None for dense retention, or where there is none."""
        found: int | None = getattr(self._cache, "prefix_cache_retention_interval", None)
        return found

    @property
    def use_eagle(self) -> bool:
        """Whether lookups match and drop a block for draft layers."""
        speculation = self.config.speculative_config
        asked = getattr(speculation, "use_eagle_block_drop", None) or getattr(
            speculation, "use_eagle", None
        )
        return bool(asked is not None and asked())

    @property
    def prefill_lookahead(self) -> int:
        """Tokens past its own that an entry of the draft layers depends on, at least 1."""
        return max(1, getattr(self.config, "num_prefill_lookahead_tokens", 1))

    @property
    def hash_lookahead(self) -> int:
        """Tokens past its block that a hash covers, so that no block is dropped."""
        return int(getattr(self.config, "num_hash_lookahead_tokens", 0))

    @property
    def mamba_cache_mode(self) -> str | None:
        """Where states are kept; None without Mamba layers."""
        modes = {
            getattr(each.kv_cache_spec, "mamba_cache_mode", "all")
            for each in self._cache.kv_cache_groups
            if type(each.kv_cache_spec).__name__ == "MambaSpec"
        }
        return modes.pop() if modes else None

    def groups(self) -> list[tuple[Group, list[str], str]]:
        """Each group with the names of its layers, and the class of its spec."""
        import vllm.v1.kv_cache_interface as interface

        found = []
        for each in self._cache.kv_cache_groups:
            spec = each.kv_cache_spec
            group = group_of(interface, spec, bool(getattr(each, "is_eagle_group", False)))
            size = group.block_size * self._ranks_of(group, spec)
            group = replace(group, block_size=size, prefill_lookahead=self.prefill_lookahead)
            found.append((group, list(each.layer_names), type(spec).__name__))
        return found

    def layers(self) -> dict[str, Layer]:
        """What each layer needs, before layers were grouped."""
        import vllm.v1.kv_cache_interface as interface

        return {
            name: Layer(
                group_of(interface, spec, False), spec.page_size_bytes, getattr(spec, _DRAFT, None)
            )
            for name, spec in self.worker.specs.items()
        }

    @property
    def pages(self) -> tuple[int, ...]:
        """Bytes that each group has for a block of one of its layers."""
        return tuple(each.kv_cache_spec.page_size_bytes for each in self._cache.kv_cache_groups)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the whole pool: tensors share one allocation, or each has one of its own."""
        tensors = self._cache.kv_cache_tensors
        shared = any(hasattr(each, "layer_stride") for each in tensors)
        if not shared and any(getattr(each, "block_stride", 0) for each in tensors):
            return self.worker.available  # packed blocks, before there were strides of layers
        sizes = [each.size for each in tensors]
        return int(max(sizes, default=0) if shared else sum(sizes))

    @property
    def available(self) -> int | None:
        """Bytes that were available; None where the number of blocks was said."""
        said = self.config.cache_config.num_gpu_blocks_override
        return self.worker.available if said is None else None

    def _ranks_of(self, group: Group, spec: Any) -> int:
        """Ranks that share the tokens of a block; a Mamba state is whole on each."""
        if not getattr(spec, "dcp_sharded", group.kind is not GroupKind.MAMBA):
            return 1
        parallel = self.config.parallel_config
        decode = getattr(parallel, "decode_context_parallel_size", 1)
        return int(decode * getattr(parallel, "prefill_context_parallel_size", 1))

    def serve(
        self,
        tokens: Sequence[int],
        answer: int,
        given: Sequence[int] = (),
        begin: Callable[[Sequence[bytes]], None] = lambda _: None,
    ) -> Served:
        """Serve one request, alone, until it has sampled ``answer`` tokens, first those ``given``.

        ``begin`` is called with the hashes of its prompt. Raises `NoProgress`, and `Refused` where
        the target asserts that it does not serve it.
        """
        from vllm.sampling_params import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        name = f"request {next(self._names)}"
        values = {
            "request_id": name,
            "prompt_token_ids": list(tokens),
            "mm_features": None,
            "sampling_params": SamplingParams(max_tokens=answer, ignore_eos=True, temperature=0.0),
            "pooling_params": None,
            "eos_token_id": None,
            "arrival_time": 0.0,
            "lora_request": None,
            "cache_salt": None,
            "data_parallel_rank": None,
        }
        asked = EngineCoreRequest(**arguments(EngineCoreRequest, values, "EngineCoreRequest"))
        request, wave = self._core.preprocess_add_request(asked)
        begin(request.block_hashes)
        self.worker.given[name] = given
        self._core.add_request(request, wave)
        try:
            self._run()
        except AssertionError as error:  # some combinations are refused no earlier
            raise _failure(error) from error
        steps = tuple(self.worker.progress[name].steps)
        self._settle()
        hit = steps[0][0]
        loaded = 0 if self.tier is None else min(hit, self.tier.loaded.get(name, 0))
        served = Served(tuple(tokens), tuple(request.output_token_ids), hit, loaded, steps)
        self._requests[served.tokens] = request
        return served

    def _settle(self) -> None:
        """Let the tier store what it has not stored: the steps of other requests would."""
        for _ in range(_MOST_EMPTY if self.tier is not None else 0):
            output = self._scheduler.schedule()
            result = self._core.model_executor.execute_model(output)
            self._scheduler.update_from_output(output, result)
            if not self.worker.copies:
                return

    def in_tier(self, served: Served) -> list[set[int]]:
        """Which chunks of a request's tokens the tier has, group by group.

        Where it keeps blocks one by one, which blocks.
        """
        return self.tier_has(self.hashes(served))

    def hashes(self, served: Served) -> Sequence[bytes]:
        """The hashes of a request's prompt and output."""
        return list(self._requests[served.tokens].block_hashes)

    def tier_has(self, hashes: Sequence[bytes]) -> list[set[int]]:
        """The same of a request with these hashes."""
        found = []
        for number, (group, _, _) in enumerate(self.groups()):
            assert self.tier is not None
            keys = self.chunk_keys(hashes, group)
            found.append(self.tier.stored(number, keys) if group.prefix_cacheable else set())
        return found

    def chunk_keys(self, hashes: Sequence[bytes], group: Group) -> Sequence[bytes]:
        """The hashes by which the tier knows the chunks of a request in a group.

        A chunk is known by the hash of its last tokens, which is of all before them.
        """
        assert self.tier is not None
        units = group.block_size * max(1, self.tier.chunk) // self.hash_block_size
        return hashes[units - 1 :: units]

    def reset(self) -> None:
        """Empty the cache, so that what is served from now on finds nothing of before."""
        self._scheduler.kv_cache_manager.reset_prefix_cache()
        self._requests.clear()
        self.worker.handed_out = 0

    def _run(self) -> None:
        core, empty = self._core, 0
        for _ in range(_MOST_STEPS):
            if not (self._scheduler.has_requests() or core.batch_queue):
                return
            _, executed = core.step_fn()
            core.post_step(executed)
            empty = 0 if executed else empty + 1
            if empty > _MOST_EMPTY:
                break
        raise NoProgress("a request is accepted, but its steps compute nothing more of it")

    def cached(self, served: Served) -> list[tuple[set[int], set[int]]]:
        """What is cached of a request's tokens, group by group.

        The blocks that are found by the hash of their end, and the entries: hash units whose hash
        finds a block.
        """
        if not self.caching:
            return [(set(), set()) for _ in self._cache.kv_cache_groups]
        import vllm.v1.core.kv_cache_utils as utils

        hashes = list(self._requests[served.tokens].block_hashes)
        view = attribute(utils, "BlockHashListWithBlockSize")
        found = []
        for number, (group, _, _) in enumerate(self.groups()):
            size = group.block_size
            by_block = (
                hashes
                if size == self.hash_block_size
                else view(hashes, self.hash_block_size, size)
                if group.prefix_cacheable
                else []
            )
            found.append((self._found(by_block, number), self._found(hashes, number)))
        return found

    def _found(self, hashes: Sequence[Any], group: int) -> set[int]:
        return {
            index
            for index in range(len(hashes))
            if self.pool.get_cached_block(hashes[index], [group])
        }


def group_of(interface: ModuleType, spec: Any, eagle: bool) -> Group:
    """The target's ``KVCacheSpec`` as a group of the spec."""
    opted_out = not getattr(spec, "prefix_cacheable", True)
    for kind in _ORDER:
        if isinstance(spec, attribute(interface, NAMES[kind][1])):
            return Group(
                kind,
                spec.block_size,
                spec.sliding_window if kind is GroupKind.SLIDING_WINDOW else None,
                eagle,
                spec.attention_chunk_size if kind is GroupKind.CHUNKED_LOCAL else None,
                not opted_out,
            )
    if opted_out:
        return Group(GroupKind.FULL_ATTENTION, spec.block_size, None, eagle, None, False)
    raise CannotJudge(f"hitproof does not know groups of {type(spec).__name__}")


@cache
def set_up_once() -> list[str]:
    """What has to be done before the first engine; names packages that are left out."""
    set_up_device()
    from vllm.model_executor.models import registry

    # The target looks at classes of models in a subprocess, which would find no device.
    registry._run_in_subprocess = _inspected
    return leave_out_unused()


def _inspected(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except ImportError as error:
        # The target would only log the reason.
        raise OutOfReach(f"its code for this model cannot be imported: {error}") from error


def _engine_arguments(model: str, argv: Sequence[str]) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(prog="vllm", add_help=False))

    def refuse(message: str) -> NoReturn:
        argument, said, rest = message.partition(": ")
        raise Refused(f"{argument}{said}{_first_that_says(rest)}")

    parser.error = refuse
    try:
        return EngineArgs.from_cli_args(
            parser.parse_args(["--model", model, "--skip-tokenizer-init", *argv])
        )
    except SystemExit as error:
        raise Refused("the arguments cannot be read") from error


def _configured(model: str, argv: Sequence[str]) -> tuple[Any, bool]:
    """The target's configuration, and whether it is that of the language model only.

    What prepares images takes files beside the config.json; the language model decides the cache.
    """
    asked = _engine_arguments(model, argv)
    engine_tiers.prepare(asked)
    config = asked.create_engine_config()
    model_config = config.model_config
    if model_config.is_encoder_decoder:
        raise OutOfReach("encoder-decoder models are not set up; name a decoder-only model")
    if model_config.runner_type != "generate":
        raise OutOfReach("models that generate no tokens are not set up; name one that does")
    text_only = bool(model_config.is_multimodal_model)
    if text_only:
        if hasattr(asked, _TEXT_ONLY):
            setattr(asked, _TEXT_ONLY, True)
        else:
            asked.limit_mm_per_prompt = dict.fromkeys(_MODALITIES, 0)
        config = asked.create_engine_config()
    from vllm.model_executor.models import registry

    drafting = getattr(registry, "_SPECULATIVE_DECODING_MODELS", {})
    for architecture in model_config.architectures:
        if architecture in drafting:
            raise DraftModel(architecture)
    if why := engine_tiers.why_not_played(config):
        raise OutOfReach(why)
    return config, text_only


def _failure(error: Exception) -> Refused | OutOfReach:
    """Whose limit an exception at start-up is.

    The target refuses what it raises an exception for, or asserts, in code of its own. All else
    comes from what is missing here: packages, files beside the config.json, operators, a device.
    """
    import vllm

    own = str(Path(vllm.__file__ or "").parent)
    frames = traceback.extract_tb(error.__traceback__)
    validates = type(error).__module__.partition(".")[0].startswith("pydantic")
    last = frames[-1]
    line = (last.line or "").strip()
    said = str(error)
    on_purpose = last.filename.startswith(own) and line.startswith(("raise", "assert"))
    missing = isinstance(error, (ImportError, OSError)) or any(each in said for each in _OURS)
    if (validates or on_purpose) and not missing:
        if not said and isinstance(error, AssertionError):
            condition = line.removeprefix("assert").strip()
            return Refused(f"it asserts `{condition}` ({Path(last.filename).name}:{last.lineno})")
        return Refused(_in_a_sentence(error))
    where = next((each for each in reversed(frames) if each.filename.startswith(own)), last)
    return OutOfReach(f"{_in_a_sentence(error)} ({Path(where.filename).name}:{where.lineno})")


def _in_a_sentence(error: BaseException) -> str:
    """The first line of what went wrong that says something."""
    text = _first_that_says(str(error))
    sentence = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, ImportError):
        sentence += "; --python names an interpreter that has it"
    elif isinstance(error, (AttributeError, KeyError)):
        installed = version("transformers")
        sentence += (
            f"; with transformers {installed}, which may be newer than this release expects: "
            "--python names another interpreter"
        )
    return sentence


def _first_that_says(message: str) -> str:
    """The first line of a message that says something."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    said = [line for line in lines if "validation error" not in line] or lines
    text = said[0].removeprefix("Value error, ").partition(" [type=")[0] if said else ""
    return shorten(text, _MESSAGE, placeholder=" ...")
