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
    STRICT,
    Embeddings,
    HistoryError,
    Image,
    RequestInput,
    TokenIds,
    unknown_group_fields,
)
from hitproof.spec.groups import Group, GroupKind

Method: TypeAlias = Literal["eagle", "eagle3", "mtp", "ngram", "draft_model"]
"""How drafts are proposed. vLLM: ``SpeculativeConfig.method``."""

DRAFT_HEADS = ("eagle", "eagle3", "mtp")
"""The methods whose draft layers have entries in the KV cache that depend on later tokens."""


@dataclass(frozen=True)
class Layers:
    """The layers of a model that are of one sort."""

    count: PositiveInt = 1
    """How many there are."""
    size: PositiveInt = 1
    """How much a token, or a state, takes, against the smallest: key-value heads."""
    keeps: Literal["keys and values", "latents", "hidden states"] = "keys and values"
    """What they keep of a token."""
    padding: NonNegativeInt = 0
    """Bytes of a page that hold nothing. vLLM: in ``page_size_padded``."""
    alignment: PositiveInt = 1
    """Bytes that the distance of blocks is a multiple of. vLLM: ``block_stride_alignment``."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class HostPool:
    """A second pool, in host memory, that backs the pages of sparse attention. vLLM: HiSparse.

    What is computed is written to pages on the device and from there to the host. Prefixes are
    found on the host, and pages on the device are given up when they are there as well.
    """

    num_blocks: PositiveInt
    """Blocks in the pool, its null block included."""
    hot_blocks: PositiveInt = 2
    """Blocks on the device into which a request fetches what it reads from the host."""
    resident_groups: PositiveInt = 1
    """Groups of layers that have pages on the device."""
    writes_through: bool = True
    """Whether each step writes its rows to the host; else whole pages are copied when they are
    full. vLLM: ``eager_host_mirror``."""
    delay: NonNegativeInt = 0
    """How many steps later than it could be a transfer, or a load, is reported as done."""
    loads: bool = False
    """Whether a KV connector loads prefixes, which then are on the host."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Connector:
    """A KV connector: it loads what others have computed, and sends what is computed here.

    vLLM: ``KVConnectorBase_V1``, which consumes.
    """

    load_failure: Literal["fail", "recompute"] = "recompute"
    """What becomes of a request whose load has failed: it ends, or computes what it lacks.
    vLLM: ``kv_load_failure_policy``."""
    offloads: NonNegativeInt = 0
    """Blocks of host memory in which it keeps what is computed here, and from which it loads that
    again, instead of what requests say it has. vLLM: ``SimpleCPUOffloadConnector``."""
    delay: NonNegativeInt = 0
    """How many steps later than it could be a copy from or to there is reported as done."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Encoder:
    """The encoder of images. Sizes are in tokens of the prompt. vLLM: ``MultiModalBudget``.

    vLLM gives both at least the tokens of the largest image.
    """

    budget: PositiveInt
    """How much of images a step encodes at most. vLLM: ``encoder_compute_budget``."""
    cache_size: PositiveInt
    """How much of what it has encoded is kept at most. vLLM: ``encoder_cache_size``."""
    whole_images: bool = False
    """Whether one step computes all tokens of an image. vLLM: ``disable_chunked_mm_input``."""
    ec_connector: bool = False
    """Whether an encoder cache connector is told of images and of ends. It has no image, and holds
    nothing. vLLM: ``ECConnectorBase``."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Deployment:
    """What a scheduler is started with: KV cache groups and arguments of vLLM."""

    groups: tuple[Annotated[Group, BeforeValidator(unknown_group_fields)], ...]
    """KV cache groups; ``eagle`` marks those with draft layers. ``prefill_lookahead`` is left out:
    the target derives it."""
    num_gpu_blocks: PositiveInt
    """Blocks in the pool, the null block included."""
    max_model_len: PositiveInt
    """The longest request, prompt and output, in tokens."""
    max_num_batched_tokens: PositiveInt
    """The most tokens that one step computes, of all requests."""
    max_num_seqs: PositiveInt = 8
    """The most requests that run at a time."""
    prefix_match_unit: PositiveInt | None = None
    """Tokens that a block hash covers; by default what the target derives from the groups."""
    speculative_method: Method | None = None
    """How drafts are proposed."""
    num_speculative_tokens: NonNegativeInt = 0
    """Draft tokens that are proposed after each decode step."""
    num_mtp_modules: PositiveInt = 1
    """MTP modules that the model has. vLLM: ``num_nextn_predict_layers``."""
    lookahead_hashes: bool = True
    """Whether block hashes may cover the tokens that draft layers look ahead.
    vLLM: not ``disable_lookahead_block_hashes``."""
    async_scheduling: bool = False
    """Whether the next step is scheduled before the output of the last one is known."""
    v2_model_runner: bool = False
    """Whether the target schedules for its second model runner."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be computed in several steps."""
    long_prefill_token_threshold: NonNegativeInt = 0
    """The most tokens of one prompt in a step while other requests are there; 0 for no limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """Whether that limit is at least a fair share of ``max_num_batched_tokens``."""
    max_num_scheduled_tokens: PositiveInt | None = None
    """The most tokens that the scheduler plans in a step, where the model runner adds some of its
    own; by default ``max_num_batched_tokens``."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of the pool's blocks that stay free when a request is admitted beside others."""
    policy: Literal["fcfs", "priority"] = "fcfs"
    """Which request is scheduled first, and which is preempted."""
    retention_interval: NonNegativeInt | Literal["dense"] | None = None
    """Sparse retention in tokens, 0 for the latest boundary only, ``dense`` for all; by default
    what the target's ``CacheConfig`` has."""
    mamba_checkpoint_alignment: PositiveInt | None = None
    """Where a step can export Mamba states from inside its chunk."""
    mamba_shared_prefix_checkpoint: bool = False
    """Whether a Mamba state is kept at the end of a prefix that is seen to be shared."""
    max_loras: PositiveInt | None = None
    """The most LoRA adapters that the requests of a step have; none are served by default."""
    layers: tuple[Layers, ...] = ()
    """The layers of each group's sort: the target derives its groups and the pool from them. There
    is memory for ``num_gpu_blocks`` blocks of each layer. By default the groups are as they are."""
    num_gpu_blocks_override: PositiveInt | None = None
    """Blocks in the pool, whatever there is memory for; with layers only."""
    ranks: PositiveInt = 1
    """Pipeline ranks that the layers are spread over; so many steps are in flight at least.
    vLLM: ``pipeline_parallel_size``."""
    rank_blocks: tuple[PositiveInt, ...] = ()
    """Where ranks have more or less memory: instead of ``num_gpu_blocks``, that of each rank."""
    enable_prefix_caching: bool = True
    """Whether requests share blocks at all."""
    layout: Literal["layers", "blocks"] = "layers"
    """Whether the pages of a layer, or those of a block, are side by side."""
    disable_hybrid_kv_cache_manager: bool = False
    """Whether layers with windows are kept as those without."""
    precisions: tuple[Literal["float32", "fp8"], ...] = ()
    """In which precision each group keeps keys and values; by default all are alike.
    vLLM: ``dtype`` and ``kv_quant_mode`` of specs."""
    decode_context_parallel_size: PositiveInt = 1
    """Ranks that share the tokens of each block, so that a block has as many times its size."""
    prefill_context_parallel_size: PositiveInt = 1
    """Ranks that share the tokens of a chunk; each has all of a block."""
    host: HostPool | None = None
    """The host's pool, with one group of full attention: that of the layers which choose what is
    read. vLLM: the indexer's group."""
    connector: Connector | None = None
    """The KV connector; none by default."""
    encoder: Encoder | None = None
    """The encoder of images; none are served by default."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if not self.groups:
            raise HistoryError("a deployment has at least one KV cache group")
        if bool(self.num_speculative_tokens) != (self.speculative_method is not None):
            raise HistoryError(
                "drafts have a method and a number; set both speculative_method and "
                "num_speculative_tokens, or neither"
            )
        if self.num_mtp_modules > 1 and self.speculative_method != "mtp":
            raise HistoryError("only MTP has several modules; set speculative_method to mtp")
        if any(group.eagle for group in self.groups) and not self.has_draft_head:
            raise HistoryError("a group is flagged for EAGLE; set speculative_method to eagle")
        if self.layers and len(self.layers) != len(self.groups):
            raise HistoryError("layers has one entry for each group; add or remove some")
        derives = self.disable_hybrid_kv_cache_manager or self.num_gpu_blocks_override
        if not self.layers and (derives or self.rank_blocks):
            raise HistoryError("without layers nothing is derived; add layers")
        if self.rank_blocks and len(self.rank_blocks) != self.ranks:
            raise HistoryError("rank_blocks has one entry for each rank; add or remove some")
        if self.precisions and (self.layers or len(self.precisions) != len(self.groups)):
            raise HistoryError(
                "precisions has one entry for each group, and groups are not derived; add or "
                "remove some, or leave layers out"
            )
        if self.num_gpu_blocks < 2:
            raise HistoryError("the pool needs a block besides the null block")
        if (self.max_num_scheduled_tokens or 0) > self.max_num_batched_tokens:
            raise HistoryError(
                "no step has more than max_num_batched_tokens; lower max_num_scheduled_tokens"
            )
        if self.host is not None and (
            [group.kind for group in self.groups] != [GroupKind.FULL_ATTENTION]
            or self.layers
            or self.speculative_method
        ):
            raise HistoryError(
                "a host pool backs one group of full attention, without layers and drafts; leave "
                "host out"
            )

        if self.connector is not None and self.connector.offloads and self.layers:
            raise HistoryError("what is offloaded is of groups; leave layers or offloads out")
        if self.connector is not None and self.host is not None:
            raise HistoryError("a host pool has a connector of its own; leave connector out")
        if self.encoder is not None and self.encoder.whole_images and self.has_mamba:
            raise HistoryError(
                "beside recurrent states images are computed in parts; leave whole_images out"
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
class Arrival:
    """A request as it arrives at a scheduler, and what the model will answer."""

    prompt: TokenIds
    """The prompt's token ids."""
    output: TokenIds
    """The tokens that the model samples, in order; the request ends with the last one."""
    arrives: NonNegativeInt = 0
    """The step before which it arrives, counted from the start, or from the end of ``after``."""
    after: str | None = None
    """The request that has to end first, as with a resend or the next turn."""
    accepted: tuple[NonNegativeInt, ...] = ()
    """How many drafts are right, of each step that verifies some, in turn and again from the start;
    none by default."""
    aborted: PositiveInt | None = None
    """After how many steps since its arrival the user gives up; never by default."""
    priority: int = 0
    """The lower, the sooner, where the policy is ``priority``."""
    cache_salt: str | None = None
    """Keeps the request's blocks apart from those of other salts."""
    lora_name: str | None = None
    """The LoRA adapter that it is computed with."""
    after_reset: bool = False
    """Whether the prefix cache is reset before it arrives, as when weights change. What runs then
    starts again. vLLM: ``reset_prefix_cache(reset_running_requests=True)``."""
    loads: NonNegativeInt = 0
    """How many tokens of its prompt a KV connector has. It is asked until it has loaded once."""
    load_fails: bool = False
    """Whether the connector reports that the load of all of them has failed. vLLM:
    ``failed_recving``."""
    load_steps: NonNegativeInt | None = None
    """How many steps after the one in which the load begins it is over, while the request waits; by
    default the request's first step loads what it has not, but for the last token. Not with a host
    pool, where ``delay`` says it."""
    invalid_blocks: tuple[NonNegativeInt, ...] = ()
    """The blocks, by their positions in the prompt, whose load fails. vLLM:
    ``invalid_block_ids``."""
    invalid_steps: NonNegativeInt | None = None
    """How many steps after the one in which the load begins these are reported; by default together
    with its end, and never later. Only where the request waits for its load."""
    send_steps: NonNegativeInt | None = None
    """How many steps after its end a KV connector has sent its blocks, which are held until then;
    by default it sends none."""
    skip_reading_prefix_cache: bool = False
    """Whether the request takes no hits and loads nothing, as with prompt logprobs. Others are
    served what it computes."""
    images: tuple[Image, ...] = ()
    """Images in its prompt, in the order of their offsets; in a session also those of the inputs
    before it."""
    embeddings: tuple[Embeddings, ...] = ()
    """Tokens of its prompt that come as embeddings, in the order of their offsets; their ids in
    ``prompt`` are 0. vLLM: ``Request.prompt_embeds``, and ``prompt_is_token_ids`` of the others."""
    past_end: TokenIds = ()
    """What the model would sample if it went on. Drafts of it may be right, and steps in flight may
    compute some of it; the user gets none of it."""
    stop: bool = False
    """Whether the last token of ``output`` is a stop token, so that nobody knows before it is
    sampled that the request ends; else it ends as it has all tokens that it may have. vLLM:
    ``SamplingParams.stop_token_ids``, and ``max_tokens``."""
    min_tokens: NonNegativeInt = 0
    """How many tokens the user wants at least. More than ``output`` has only where the longest
    request leaves no room for them. vLLM: ``SamplingParams.min_tokens``."""
    session: str | None = None
    """The streaming session of which it is an input; those of a session come in turn. The next one
    goes on with all tokens of this one but the last, which is discarded. vLLM:
    ``Request.resumable``."""
    grammar_steps: NonNegativeInt | None = None
    """How many steps after its arrival the grammar of its structured output is ready, until when it
    waits; by default it has none. The grammar accepts ``output``, and ``past_end`` after that.
    vLLM: ``SamplingParams.structured_outputs``."""
    valid_drafts: tuple[NonNegativeInt, ...] = ()
    """How many drafts its grammar accepts, of each step that proposes some, in turn and again from
    the start; all by default. Those that are right are among them."""
    open_steps: NonNegativeInt = 0
    """How many steps after its end the user of its session says that there is no more input, and
    ends it; by default together with this input. Of the last input only."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if not self.prompt or not self.output:
            raise HistoryError("a prompt and an output have at least one token each")
        _ = self.request  # refuses what is no request
        if self.open_steps and self.session is None:
            raise HistoryError("only a session stays open; set session, or leave open_steps out")
        if self.grammar_steps is None and self.valid_drafts:
            raise HistoryError("only a grammar rejects drafts; set grammar_steps")
        if self.images and self.embeddings:
            raise HistoryError("a prompt has images or embeddings, not both; leave one out")
        if self.stop and not self.past_end:
            raise HistoryError("who stops could go on; set past_end, or leave stop out")
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
class Pause:
    """A time in which the engine is paused, as for an update of weights. vLLM: ``PauseState``."""

    at: NonNegativeInt
    """The step before which it begins, counted from the start."""
    steps: PositiveInt
    """How many steps it takes."""
    finishes_running: bool = False
    """Whether requests that run go on, and only those that wait are kept waiting."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Reset:
    """The prefix cache is to be reset, as after an update of weights. vLLM: ``reset_prefix_cache``.

    Where what runs starts again, it waits until nothing is loaded or sent, as vLLM demands.
    """

    at: NonNegativeInt
    """The step before which it comes, counted from the start."""
    reset_running_requests: bool = False
    """Whether all that runs starts again; else nothing is reset while a block is held."""
    reset_connector: bool = False
    """Whether a KV connector is to forget what it has of before, too."""
    connector_refuses: bool = False
    """Whether the connector answers that it could not."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class SchedulerHistory:
    """What arrives at a scheduler over time."""

    deployment: Deployment
    """What the scheduler is started with."""
    requests: dict[str, Arrival]
    """The requests by name; those of one step arrive in this order."""
    pauses: tuple[Pause, ...] = ()
    """When the engine is paused; those that begin earlier come first."""
    resets: tuple[Reset, ...] = ()
    """When the prefix cache is reset, besides before requests with ``after_reset``."""
    encoder_resets: tuple[NonNegativeInt, ...] = ()
    """The steps before which the encoder's cache is reset, as when weights change, whatever runs.
    vLLM: ``reset_encoder_cache``."""
    about: str = field(default="", compare=False)
    """What the history shows, for readers."""
    kind: Literal["scheduler"] = "scheduler"
    """Tells it from a history of a manager."""
    version: Literal[1] = 1
    """The version of this format."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if self.encoder_resets and self.deployment.encoder is None:
            raise HistoryError("nothing is encoded; set encoder, or leave encoder_resets out")
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
            raise HistoryError(
                "resets are not judged beside sessions and host pools; leave these out"
            )
        if connector is None and any(each.reset_connector for each in self.resets):
            raise HistoryError("there is no connector to reset; set connector")
        if any(each.connector_refuses for each in self.resets) and (
            connector is None or connector.offloads
        ):
            raise HistoryError("what offloads says itself what it can; leave connector_refuses out")

    def _check_session(self, session: str, inputs: Sequence[str]) -> None:
        if session in self.requests:
            raise HistoryError(f"session {session} has the name of a request; change it")
        if self.deployment.loads or any(each.after_reset for each in self.requests.values()):
            raise HistoryError("sessions are not judged beside loads and resets; leave these out")
        if any(self.requests[name].embeddings for name in inputs):
            raise HistoryError("the inputs of a session have no embeddings; leave these out")
        for one, other in pairwise(inputs):
            before, now = self.requests[one], self.requests[other]
            kept = before.kept
            if now.prompt[: len(kept)] != kept or len(now.prompt) == len(kept):
                raise HistoryError(
                    f"request {other} goes on with all tokens of {one} but the last; begin its "
                    "prompt with these"
                )
            own = now.images[len(before.images) :]
            if before.images + own != now.images or any(e.offset < len(kept) for e in own):
                raise HistoryError(
                    f"request {other} has the images of {one}, and its own behind what it goes on "
                    "with; begin its images with these"
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
                "grammars are not judged beside sessions, loads and several ranks; leave these out,"
                f" or grammar_steps of request {name}"
            )

    def _check_transfers(self, name: str, request: Arrival) -> None:
        deployment = self.deployment
        if request.loads and not deployment.loads:
            raise HistoryError(
                f"nothing loads what request {name} asks for; set host.loads, or connector"
            )
        offloads = deployment.connector is not None and deployment.connector.offloads
        if offloads and (request.loads or request.send_steps is not None):
            raise HistoryError(
                f"the connector has what was computed here, and request {name} says what else; "
                "leave loads and send_steps out, or offloads"
            )
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
        if request.invalid_blocks and len(deployment.groups) > 1:
            raise HistoryError(
                f"with several groups a load fails as a whole; set load_fails of request {name} "
                "instead of invalid_blocks"
            )
