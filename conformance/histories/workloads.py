"""Scheduler histories: what arrives at a whole scheduler over time, as data that can be replayed.

The module is long as each field of the format says what it means.

A history of a manager (`conformance.histories.schema`) says which calls a scheduler makes. Here the
target's own scheduler decides that: a scheduler history has the deployment (the KV cache groups and
the arguments of vLLM that a scheduler depends on), and the requests with the step at which they
arrive and what the model will sample. As JSON::

    {"kind": "scheduler", "version": 1,
     "deployment": {"groups": [{"kind": "full_attention", "block_size": 16}],
                    "num_gpu_blocks": 40, "max_model_len": 128, "max_num_batched_tokens": 64},
     "requests": {"a": {"prompt": [[1, 40]], "output": [50, 51]},
                  "b": {"prompt": [[1, 40]], "output": [50], "after": "a"}}}

In one module, though long: it is the published schema of these files, read from top to bottom.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from hitproof.conformance.histories.schema import (
    Embeddings,
    HistoryError,
    Image,
    RequestInput,
    Strict,
    TokenIds,
    is_replayed,
    unknown_group_fields,
)
from hitproof.spec.groups import Group, GroupKind

Method: TypeAlias = Literal["eagle", "eagle3", "mtp", "ngram", "draft_model"]
"""How drafts are proposed. vLLM: ``SpeculativeConfig.method``."""

DRAFT_HEADS = ("eagle", "eagle3", "mtp")
"""The methods whose draft layers have entries in the KV cache that depend on later tokens."""


@dataclass(frozen=True)
class Layers(Strict):
    """The layers of one kind."""

    count: PositiveInt = 1
    """Number of layers."""
    size: PositiveInt = 1
    """Relative size of a token or state, in key-value heads."""
    keeps: Literal["keys and values", "latents", "hidden states"] = "keys and values"
    """What they cache for a token."""
    padding: NonNegativeInt = 0
    """Padding bytes per page. vLLM: in ``page_size_padded``."""
    alignment: PositiveInt = 1
    """Alignment of the block stride, in bytes. vLLM: ``block_stride_alignment``."""


@dataclass(frozen=True)
class HostPool(Strict):
    """A second pool in host memory for sparse attention. vLLM: HiSparse, from 0.33 on. Pages are
    written on the device and copied to the host. Prefixes are looked up on the host, and a page on
    the device is freed once the host has it.
    """

    num_blocks: PositiveInt
    """Number of blocks in the pool, including its null block."""
    hot_blocks: PositiveInt = 2
    """Number of blocks on the device into which a request fetches what it reads from the host."""
    resident_groups: PositiveInt = 1
    """Number of groups of layers with pages on the device."""
    writes_through: bool = True
    """Whether each step writes its tokens to the host; else pages are copied when full. vLLM:
    ``eager_host_mirror``."""
    delay: NonNegativeInt = 0
    """Additional steps until a transfer or load is reported as done."""
    loads: bool = False
    """Whether a KV connector loads prefixes into host memory."""


@dataclass(frozen=True)
class Connector(Strict):
    """A KV connector that loads and sends blocks. vLLM: ``KVConnectorBase_V1`` as a consumer,
    unless it ``produces``.
    """

    load_failure: Literal["fail", "recompute"] = "recompute"
    """Whether a request whose load fails ends or recomputes what is missing. vLLM:
    ``kv_load_failure_policy``."""
    offloads: NonNegativeInt = 0
    """Number of blocks, or chunks, of host memory to which computed blocks are offloaded and from
    which they are loaded, instead of the requests' ``loads``. vLLM: ``SimpleCPUOffloadConnector``,
    from 0.33 on."""
    chunk: NonNegativeInt = 0
    """Number of blocks of a group that are offloaded as one; 0 if blocks are offloaded one by one.
    vLLM: ``OffloadingConnector`` with ``CPUOffloadingManager``, from 0.22 on."""
    store: bool = False
    """Whether blocks are offloaded to a store that evicts none, instead of host memory. vLLM:
    ``MooncakeStoreConnector``, from 0.22 on."""
    umbp: bool = False
    """Whether the store is that of UMBP. vLLM: ``UMBPStoreConnector``, from 0.33 on."""
    outputs: bool = False
    """Whether what is sampled is offloaded, too, or prompts alone, to chunks or a store. vLLM:
    ``offload_prompt_only`` set to false, and ``save_decode_cache``."""
    write_failures: NonNegativeInt = 0
    """How many writes of a store fail in part, from the first on. vLLM: a negative result of
    ``batch_put_from_multi_buffers``."""
    delay: NonNegativeInt = 0
    """Additional steps until a copy to or from host memory, or a store, is reported as done."""
    lazy: bool = False
    """Whether single blocks are offloaded when they are soon to be evicted, instead of as soon as
    they are computed. vLLM: ``lazy_offload``."""
    later: NonNegativeInt = 0
    """How often a request is told to ask again before what it looks up in chunks or a store is
    known."""
    eviction: Literal["lru", "arc"] = "lru"
    """Which chunks make room for others: those used least recently, or as ARC has it. vLLM:
    ``eviction_policy`` of ``CPUOffloadingSpec``."""
    threshold: NonNegativeInt = 0
    """How often a chunk is offered before it is stored. vLLM: ``store_threshold``, from 0.29 on
    by offers."""
    produces: bool = False
    """Whether it only sends, and what ends is sent in whole. vLLM: ``kv_producer``."""
    beside: "Connector | None" = None
    """Another connector: the first of both that has tokens of a request loads them, and both keep
    what is computed. vLLM: ``MultiConnector``."""

    @property
    def several(self) -> "tuple[Connector, ...]":
        """The connector and those beside it, in the order in which they are asked."""
        return (self, *(() if self.beside is None else self.beside.several))

    @property
    def keeps(self) -> bool:
        """Whether it, or one beside it, has what was computed, and not what the requests say."""
        return any(each.offloads or each.store for each in self.several)

    @property
    def loads(self) -> bool:
        """Whether it, or one beside it, loads or sends what the requests say."""
        return any(not (each.offloads or each.store) for each in self.several)


@dataclass(frozen=True)
class Encoder(Strict):
    """The image encoder; sizes are in prompt tokens. vLLM: ``MultiModalBudget``, which allows at
    least the tokens of the largest image for both.
    """

    budget: PositiveInt
    """Maximum number of image tokens that a step encodes. vLLM: ``encoder_compute_budget``."""
    cache_size: PositiveInt
    """Maximum number of image tokens whose encoder output is kept. vLLM: ``encoder_cache_size``."""
    whole_images: bool = False
    """Whether one step computes all tokens of an image. vLLM: ``disable_chunked_mm_input``."""
    ec_connector: bool = False
    """Whether there is an encoder cache connector, which never has an image or holds a block. vLLM:
    ``ECConnectorBase``."""


@dataclass(frozen=True)
class Deployment(Strict):
    """The configuration of a scheduler: KV cache groups and arguments of vLLM."""

    groups: tuple[Annotated[Group, BeforeValidator(unknown_group_fields)], ...]
    """The KV cache groups; ``eagle`` marks those with draft layers. The target derives
    ``prefill_lookahead``."""
    num_gpu_blocks: PositiveInt
    """Number of blocks in the pool, including the null block."""
    max_model_len: PositiveInt
    """Maximum length of a request, prompt and output, in tokens."""
    max_num_batched_tokens: PositiveInt
    """Maximum number of tokens per step, over all requests."""
    max_num_seqs: PositiveInt = 8
    """Maximum number of running requests."""
    prefix_match_unit: PositiveInt | None = None
    """Tokens per block hash; by default derived by the target from the groups."""
    speculative_method: Method | None = None
    """How drafts are proposed."""
    num_speculative_tokens: NonNegativeInt = 0
    """Number of draft tokens proposed after each decode step."""
    num_mtp_modules: PositiveInt = 1
    """Number of MTP modules of the model. vLLM: ``num_nextn_predict_layers``."""
    lookahead_hashes: bool = True
    """Whether block hashes may cover the lookahead tokens of draft layers. vLLM: not
    ``disable_lookahead_block_hashes``."""
    async_scheduling: bool = False
    """Whether the next step is scheduled before the output of the last one is known."""
    v2_model_runner: bool = False
    """Whether the target schedules for its second model runner."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be computed in several steps."""
    long_prefill_token_threshold: NonNegativeInt = 0
    """Maximum number of tokens of one prompt in a step while other requests are waiting or running;
    0 for no limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """Whether that limit is at least a fair share of ``max_num_batched_tokens``."""
    max_num_scheduled_tokens: PositiveInt | None = None
    """Maximum number of tokens that the scheduler plans per step, if the model runner adds some; by
    default ``max_num_batched_tokens``."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of the pool's blocks that must stay free when a request is admitted while others
    run."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    """The order in which requests are scheduled and preempted."""
    retention_interval: NonNegativeInt | Literal["dense"] | None = None
    """Interval of sparse retention in tokens; 0 for the latest boundary only, ``dense`` for dense
    retention; by default that of the target's ``CacheConfig``."""
    mamba_checkpoint_alignment: PositiveInt | None = None
    """A step can export Mamba states inside its chunk at multiples of this number of tokens."""
    mamba_shared_prefix_checkpoint: bool = False
    """Whether a Mamba state is kept at the end of a shared prefix."""
    max_loras: PositiveInt | None = None
    """Maximum number of LoRA adapters per step; by default none are served."""
    layers: tuple[Layers, ...] = ()
    """The layers of each group's kind, from which the target derives groups and pool; memory
    suffices for ``num_gpu_blocks`` blocks per layer. By default ``groups`` are used directly."""
    num_gpu_blocks_override: PositiveInt | None = None
    """Number of blocks in the pool regardless of memory; only with ``layers``."""
    ranks: PositiveInt = 1
    """Number of pipeline ranks, and minimum number of steps in flight. vLLM:
    ``pipeline_parallel_size``."""
    rank_blocks: tuple[PositiveInt, ...] = ()
    """For ranks of different memory: ``num_gpu_blocks`` of each rank."""
    enable_prefix_caching: bool = True
    """Whether requests share blocks."""
    layout: Literal["layers", "blocks"] = "layers"
    """Whether the pages of a layer or those of a block are contiguous."""
    disable_hybrid_kv_cache_manager: bool = False
    """Whether sliding-window layers are cached like full attention."""
    precisions: tuple[Literal["float32", "fp8"], ...] = ()
    """The precision of each group's keys and values; by default the same for all. vLLM: ``dtype``
    and ``kv_quant_mode`` of specs."""
    decode_context_parallel_size: PositiveInt = 1
    """Number of ranks that share the tokens of each block, which multiplies the block size."""
    prefill_context_parallel_size: PositiveInt = 1
    """Number of ranks that share the tokens of a chunk; each has whole blocks."""
    host: HostPool | None = None
    """A second pool in host memory; needs one full-attention group, that of the indexer."""
    connector: Connector | None = None
    """The KV connector; by default none."""
    encoder: Encoder | None = None
    """The image encoder; by default no images are served."""

    def __post_init__(self) -> None:
        if not self.groups:
            raise HistoryError("a deployment needs at least one KV cache group")
        if bool(self.num_speculative_tokens) != (self.speculative_method is not None):
            raise HistoryError("set both speculative_method and num_speculative_tokens, or neither")
        if self.num_mtp_modules > 1 and self.speculative_method != "mtp":
            raise HistoryError("only MTP has several modules; set speculative_method to mtp")
        if any(group.eagle for group in self.groups) and not self.has_draft_head:
            raise HistoryError("a group has draft layers; set speculative_method to eagle")
        if self.layers and len(self.layers) != len(self.groups):
            raise HistoryError("layers needs one entry for each group; add or remove some")
        derives = self.disable_hybrid_kv_cache_manager or self.num_gpu_blocks_override
        if not self.layers and (derives or self.rank_blocks):
            raise HistoryError("nothing is derived without layers; add layers")
        if self.rank_blocks and len(self.rank_blocks) != self.ranks:
            raise HistoryError("rank_blocks needs one entry for each rank; add or remove some")
        if self.precisions and (self.layers or len(self.precisions) != len(self.groups)):
            raise HistoryError(
                "precisions has one entry for each group, and groups are not derived; add or "
                "remove some, or omit layers"
            )
        if self.num_gpu_blocks < 2:
            raise HistoryError("the pool needs a block besides the null block")
        if any(is_replayed(group) and group.block_size == 1 for group in self.groups):
            # vLLM computes a window again from a token whose block it must not have freed.
            raise HistoryError(
                "blocks of a window outside the prefix cache have several tokens; raise block_size"
            )
        if (self.max_num_scheduled_tokens or 0) > self.max_num_batched_tokens:
            raise HistoryError("max_num_scheduled_tokens exceeds max_num_batched_tokens; lower it")
        if self.ranks > 1 and self.async_scheduling and not self.v2_model_runner:
            raise HistoryError(  # vLLM: ``VllmConfig`` refuses it
                "of the model runners only the second plans ahead on several ranks; set "
                "v2_model_runner, or omit async_scheduling"
            )
        if self.host is not None and (
            [group.kind for group in self.groups] != [GroupKind.FULL_ATTENTION]
            or self.layers
            or self.speculative_method
        ):
            raise HistoryError(
                "a host pool needs one full-attention group, without layers and drafts; omit host"
            )
        if self.host is not None and (self.ranks > 1 or self.decode_context_parallel_size > 1):
            # vLLM: ``VllmConfig`` refuses both.
            raise HistoryError(
                "a host pool needs one rank; omit host, or ranks and decode_context_parallel_size"
            )
        if self.connector is not None and self.connector.keeps and self.layers:
            raise HistoryError("offloading needs groups, not layers; omit layers or offloads")
        several = () if self.connector is None else self.connector.several
        for each in several:
            if each.chunk and not each.offloads:
                raise HistoryError(
                    "chunks are of host memory; set connector.offloads, or omit chunk"
                )
            if each.store and each.offloads:
                raise HistoryError(
                    "blocks are kept in host memory or a store; omit offloads or store"
                )
            if each.produces and (each.offloads or each.store or len(several) > 1):
                raise HistoryError("what produces stands alone; omit produces, or what is kept")
            if each.lazy and (each.chunk or not each.offloads):
                raise HistoryError("only single blocks are offloaded late; omit lazy")
            if each.umbp and not each.store:
                raise HistoryError("UMBP is a store; set connector.store, or omit umbp")
            if each.umbp and self.ranks > 1:
                raise HistoryError("UMBP takes no pipeline; omit umbp or ranks")
            if each.umbp and each.later:
                raise HistoryError("UMBP answers at once; omit umbp or later")
            if each.write_failures and (each.umbp or not each.store):
                raise HistoryError("only writes of the Mooncake store fail; omit write_failures")
            if each.later and not (each.chunk or each.store):
                raise HistoryError("only chunks and stores answer later; omit later")
        if self.connector is not None and self.host is not None:
            raise HistoryError("a host pool has its own connector; omit connector")
        if self.encoder is not None and not self.enable_chunked_prefill:
            room = min(self.encoder.budget, self.encoder.cache_size)
            if room < self.max_num_batched_tokens:  # vLLM: ``SchedulerConfig`` sets both
                raise HistoryError(
                    "with chunked prefill off the encoder has room for all images of a step; "
                    f"raise its budget and cache_size to {self.max_num_batched_tokens}"
                )
        if self.encoder is not None and self.encoder.whole_images and self.has_mamba:
            raise HistoryError(
                "with recurrent states images are computed in parts; omit whole_images"
            )

    @property
    def blocks_of_ranks(self) -> tuple[int, ...]:
        """The blocks of each layer that each rank has memory for, where groups are derived."""
        return self.rank_blocks or (self.num_gpu_blocks,) * self.ranks

    @property
    def loads(self) -> bool:
        """Whether a KV connector loads prefixes."""
        return self.connector is not None or (self.host is not None and self.host.loads)

    @property
    def watermark_blocks(self) -> int:
        """The blocks that stay free when a request is admitted beside others."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def has_draft_head(self) -> bool:
        """Whether draft layers have entries that depend on later tokens."""
        return self.speculative_method in DRAFT_HEADS

    @property
    def has_mamba(self) -> bool:
        """Whether some group keeps recurrent states."""
        return any(group.kind is GroupKind.MAMBA for group in self.groups)


@dataclass(frozen=True)
class Arrival(Strict):
    """A request and the model's answer to it."""

    prompt: TokenIds
    """The token ids of the prompt."""
    output: TokenIds
    """The token ids that the model samples, in order; the request ends with the last one."""
    arrives: NonNegativeInt = 0
    """The step before which it arrives, counted from the start or from the end of ``after``."""
    after: str | None = None
    """The request that must end first, as for a repeated prompt or the next turn."""
    accepted: tuple[NonNegativeInt, ...] = ()
    """The number of accepted drafts of each step that verifies some; the list is repeated. By
    default none."""
    aborted: PositiveInt | None = None
    """The number of steps after its arrival at which it is aborted; by default never."""
    priority: int = 0
    """With the policy ``priority``, lower numbers are scheduled first."""
    cache_salt: str | None = None
    """Requests share blocks only with requests of the same salt."""
    lora_name: str | None = None
    """Its LoRA adapter."""
    after_reset: bool = False
    """Whether the prefix cache is reset before it arrives, as for a weight update; running requests
    restart. vLLM: ``reset_prefix_cache(reset_running_requests=True)``."""
    loads: NonNegativeInt = 0
    """Number of tokens of its prompt that a KV connector has. It is asked until it has loaded
    once."""
    load_fails: bool = False
    """Whether the whole load fails. vLLM: ``failed_recving``."""
    load_steps: NonNegativeInt | None = None
    """Number of steps that the load takes, during which the request waits; by default the request's
    first step loads what is missing, except the last token. With a host pool, ``delay`` determines
    it."""
    invalid_blocks: tuple[NonNegativeInt, ...] = ()
    """The blocks whose load fails, by position in the prompt. vLLM: ``invalid_block_ids``."""
    invalid_steps: NonNegativeInt | None = None
    """Number of steps from the start of the load until ``invalid_blocks`` are reported; by default
    at its end. Only if the request waits for its load."""
    send_steps: NonNegativeInt | None = None
    """Number of steps after its end during which a KV connector sends its blocks, which stay held;
    by default none are sent."""
    skip_reading_prefix_cache: bool = False
    """Whether the request takes no hits and loads nothing, as with prompt logprobs. Other requests
    can hit what it computes."""
    images: tuple[Image, ...] = ()
    """Images in its prompt, ordered by offset; in a session including those of earlier inputs."""
    embeddings: tuple[Embeddings, ...] = ()
    """Tokens of its prompt given as embeddings, ordered by offset; their ids in ``prompt`` are 0.
    vLLM: ``Request.prompt_embeds`` and ``prompt_is_token_ids``."""
    past_end: TokenIds = ()
    """The tokens that the model would sample after the end. They may be drafted and accepted, or
    computed by steps in flight, but are never delivered, kept or found."""
    stop: bool = False
    """Whether the last token of ``output`` is a stop token, which the scheduler cannot foresee;
    else the request ends by ``max_tokens``. vLLM: ``SamplingParams.stop_token_ids``."""
    min_tokens: NonNegativeInt = 0
    """Minimum number of output tokens; greater than the length of ``output`` only if
    ``max_model_len`` cuts it. vLLM: ``SamplingParams.min_tokens``."""
    session: str | None = None
    """The streaming session that it is an input of. The prompt of each input begins with the
    previous input's prompt and output except its last token, which is discarded; the session holds
    its blocks in between. vLLM: ``Request.resumable``."""
    grammar_steps: NonNegativeInt | None = None
    """Number of steps after its arrival until the grammar of its structured output is ready; until
    then the request waits without blocking others. By default it has no grammar. The grammar
    accepts ``output`` followed by ``past_end``. vLLM: ``SamplingParams.structured_outputs``."""
    valid_drafts: tuple[NonNegativeInt, ...] = ()
    """The number of drafts that its grammar accepts, of each step that proposes some, at least the
    accepted ones; the list is repeated. By default all."""
    open_steps: NonNegativeInt = 0
    """For the last input of a session, the number of steps after its end until the user closes the
    session."""

    def __post_init__(self) -> None:
        if not self.prompt or not self.output:
            raise HistoryError("a prompt and an output need at least one token each")
        _ = self.request  # refuses what is no request
        if self.open_steps and self.session is None:
            raise HistoryError("only a session stays open; set session, or omit open_steps")
        if self.grammar_steps is None and self.valid_drafts:
            raise HistoryError("only a grammar rejects drafts; set grammar_steps")
        if self.images and self.embeddings:
            raise HistoryError("a prompt has images or embeddings, not both; omit one")
        if self.stop and not self.past_end:
            raise HistoryError("a request that stops needs past_end; set it, or omit stop")
        if self.stop and self.output[-1] in self.output[:-1]:
            raise HistoryError("a request stops at its first stop token; change the others")

    @property
    def sampled(self) -> TokenIds:
        """What the model samples, also past the request's end."""
        return self.output + self.past_end

    @property
    def rejected(self) -> int:
        """A token that its grammar rejects wherever it comes."""
        return 1 + max(self.sampled)

    @property
    def kept(self) -> TokenIds:
        """The tokens with which its session goes on."""
        return self.prompt + self.output[:-1]

    @property
    def max_tokens(self) -> int:
        """The most tokens that the user asks for. vLLM: ``SamplingParams.max_tokens``."""
        return max(len(self.sampled if self.stop else self.output), self.min_tokens)

    @property
    def request(self) -> RequestInput:
        """The request without what only a scheduler needs; all that may be computed of it."""
        return RequestInput(
            self.prompt,
            self.sampled,
            cache_salt=self.cache_salt,
            lora_name=self.lora_name,
            images=self.images,
            embeddings=self.embeddings,
            skip_reading_prefix_cache=self.skip_reading_prefix_cache,
        )

    @property
    def content(self) -> tuple[Any, ...]:
        """What each token of the prompt is: its id, or embedding, and its part of an image."""
        content: list[Any] = list(self.prompt)
        for embedded in self.embeddings:
            for place, value in enumerate(embedded.values, embedded.offset):
                content[place] = ("embedding", value)
        for image in self.images:
            for place in range(image.length):
                token = self.prompt[image.offset + place]
                content[image.offset + place] = (token, image.identifier, place)
        return tuple(content)


@dataclass(frozen=True)
class Pause(Strict):
    """A pause of the engine, as for a weight update. vLLM: ``PauseState``."""

    at: NonNegativeInt
    """The step before which it begins, counted from the start."""
    steps: PositiveInt
    """Number of steps."""
    finishes_running: bool = False
    """Whether running requests continue and only waiting ones are paused."""


@dataclass(frozen=True)
class Reset(Strict):
    """A reset of the prefix cache, as after a weight update. vLLM: ``reset_prefix_cache``. If
    running requests restart, it waits until nothing is being loaded or sent, as vLLM requires.
    """

    at: NonNegativeInt
    """The step before which it happens, counted from the start."""
    reset_running_requests: bool = False
    """Whether running requests restart; else nothing is reset while a block is held."""
    reset_connector: bool = False
    """Whether the KV connector must also forget its content; without one there is nothing more to
    do."""
    connector_refuses: bool = False
    """Whether the connector reports a failure."""


@dataclass(frozen=True)
class SchedulerHistory(Strict):
    """The requests that arrive at a scheduler over time."""

    deployment: Deployment
    """The configuration of the scheduler."""
    requests: dict[str, Arrival]
    """The requests by name; those that arrive before the same step arrive in this order."""
    pauses: tuple[Pause, ...] = ()
    """When the engine is paused, ordered by start."""
    resets: tuple[Reset, ...] = ()
    """When the prefix cache is reset, in addition to ``after_reset`` of requests. Such histories
    get no pytest case."""
    encoder_resets: tuple[NonNegativeInt, ...] = ()
    """The steps before which the encoder cache is reset while requests run, as for a weight update;
    partly computed images are encoded again. vLLM: ``reset_encoder_cache``."""
    about: str = field(default="", compare=False)
    """What the history shows, for readers."""
    kind: Literal["scheduler"] = "scheduler"
    """Marks a history of a scheduler."""
    version: Literal[1] = 1
    """The version of this format."""

    def __post_init__(self) -> None:
        if self.encoder_resets and self.deployment.encoder is None:
            raise HistoryError(
                "encoder_resets need an encoder; set encoder, or omit encoder_resets"
            )
        seen: set[str] = set()
        for name, request in self.requests.items():
            self._check_transfers(name, request)
            self._check_images(name, request)
            self._check_grammar(name, request)
            if request.loads > len(request.prompt):
                raise HistoryError(f"request {name} loads more than its prompt; lower loads")
            tokens = len(request.prompt) + len(request.sampled)
            if tokens > self.deployment.max_model_len:
                raise HistoryError(
                    f"request {name} has {tokens} tokens, more than max_model_len "
                    f"({self.deployment.max_model_len})"
                )
            whole = len(request.prompt) + len(request.output) == self.deployment.max_model_len
            if request.min_tokens > len(request.output) and not whole:
                raise HistoryError(
                    f"request {name} ends before it has min_tokens, though there is room; lower "
                    "min_tokens"
                )
            if request.lora_name is not None and self.deployment.max_loras is None:
                raise HistoryError(f"no adapters are served to request {name}; set max_loras")
            if request.after is not None and request.after not in seen:
                raise HistoryError(
                    f"request {name} comes after {request.after}, which is not listed before it"
                )
            seen.add(name)
        for session, inputs in self.sessions.items():
            self._check_session(session, inputs)
        self._check_resets()

    @property
    def sessions(self) -> dict[str, list[str]]:
        """The inputs of each streaming session, in turn."""
        found: dict[str, list[str]] = {}
        for name, request in self.requests.items():
            if request.session is not None:
                found.setdefault(request.session, []).append(name)
        return found

    def _check_resets(self) -> None:
        connector = self.deployment.connector
        if self.resets and (self.sessions or self.deployment.host is not None):
            raise HistoryError("resets are not judged with sessions and host pools; omit these")
        if any(each.connector_refuses for each in self.resets) and (
            connector is None or connector.keeps or connector.beside is not None
        ):
            raise HistoryError(
                "an offloading connector reports its own failures; omit connector_refuses"
            )

    def _check_session(self, session: str, inputs: Sequence[str]) -> None:
        if session in self.requests:
            raise HistoryError(f"session {session} has the name of a request; change it")
        if self.deployment.loads or any(each.after_reset for each in self.requests.values()):
            raise HistoryError("sessions are not judged with loads and resets; omit these")
        if any(self.requests[name].embeddings for name in inputs):
            raise HistoryError("the inputs of a session cannot have embeddings; omit these")
        for one, other in pairwise(inputs):
            before, now = self.requests[one], self.requests[other]
            kept = before.kept
            if now.prompt[: len(kept)] != kept or len(now.prompt) == len(kept):
                raise HistoryError(
                    f"request {other} continues all tokens of {one} but the last; begin its "
                    "prompt with these"
                )
            own = now.images[len(before.images) :]
            if before.images + own != now.images or any(e.offset < len(kept) for e in own):
                raise HistoryError(
                    f"the images of request {other} must begin with those of {one}, then its "
                    "own; reorder them"
                )
            same = ("cache_salt", "lora_name", "priority")
            if now.after not in (None, one) or before.open_steps:
                raise HistoryError(
                    f"request {other} comes after {one}, and only the last input of a session "
                    "has open_steps"
                )
            if any(getattr(before, name) != getattr(now, name) for name in same):
                raise HistoryError(f"the inputs of session {session} have the same {same}")

    def _check_images(self, name: str, request: Arrival) -> None:
        encoder = self.deployment.encoder
        if encoder is None:
            if request.images:
                raise HistoryError(f"nothing encodes the images of request {name}; set encoder")
            return
        most = min(encoder.budget, encoder.cache_size)
        if encoder.whole_images:
            most = min(most, self.deployment.max_num_batched_tokens)
        others = {e.identifier: e.length for r in self.requests.values() for e in r.images}
        for image in request.images:
            if image.length > most:
                raise HistoryError(
                    f"image {image.identifier} of request {name} has {image.length} tokens, and "
                    f"there is never room for more than {most}; make it smaller"
                )
            if image.length != others[image.identifier]:
                raise HistoryError(
                    f"images of one identifier are equal; give {image.identifier} of request "
                    f"{name} the same length everywhere"
                )

    def _check_grammar(self, name: str, request: Arrival) -> None:
        if request.grammar_steps is None:
            return
        if request.session is not None or self.deployment.loads or self.deployment.ranks > 1:
            raise HistoryError(
                "grammars are not judged with sessions, loads and several ranks; omit these,"
                f" or grammar_steps of request {name}"
            )

    def _check_transfers(self, name: str, request: Arrival) -> None:
        deployment = self.deployment
        if request.loads and not deployment.loads:
            raise HistoryError(
                f"nothing loads what request {name} asks for; set host.loads, or connector"
            )
        if (request.loads or request.send_steps is not None) and not (
            deployment.connector is None or deployment.connector.loads
        ):
            raise HistoryError(
                f"an offloading connector has what was computed, so request {name} cannot say it; "
                "omit loads and send_steps, or offloads"
            )
        if request.loads and deployment.connector is not None and deployment.connector.produces:
            raise HistoryError(f"a producer loads nothing; omit produces, or loads of {name}")
        own = request.load_steps is not None or request.invalid_blocks
        if deployment.connector is None and (own or request.send_steps is not None):
            raise HistoryError(
                f"request {name} says how a KV connector loads or sends it; set connector"
            )
        if deployment.connector is not None and request.load_fails and request.load_steps is None:
            raise HistoryError(
                f"only a load that a request waits for fails as a whole; set load_steps of {name}"
            )
        if request.invalid_steps is not None and not (
            request.invalid_blocks and request.invalid_steps <= (request.load_steps or 0)
        ):
            raise HistoryError(
                f"invalid_steps of request {name} say when invalid_blocks are reported, before its "
                "load is over; set both, and load_steps"
            )
        stored = deployment.connector is not None and not deployment.connector.loads
        if request.invalid_blocks and len(deployment.groups) > 1 and not stored:
            raise HistoryError(
                f"with several groups a load fails as a whole; set load_fails of request {name} "
                "instead of invalid_blocks"
            )
