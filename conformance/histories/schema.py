"""Histories: what a scheduler asks of a manager over time, as data that can be kept and replayed.

A history contains the engine's configuration, the requests with their token ids, and the steps. It
does not depend on what the manager answers: a step says what is wanted ("schedule request a for up
to 16 tokens"), and `conformance.playing.player` does a scheduler's bookkeeping. A step that the
state does not allow is skipped, so every subset of the steps is also a history.

As JSON (`conformance.histories.json_format`), with token ids one by one or as inclusive ranges
``[first, last]``::

    {"engine": {"groups": [{"kind": "full_attention", "block_size": 16},
                           {"kind": "sliding_window", "block_size": 16, "window": 32}],
                "num_gpu_blocks": 40, "hash_block_size": 16, "max_model_len": 128},
     "requests": {"a": {"prompt": [[1, 40], 7], "output": [50, 51]},
                  "b": {"prompt": [[1, 40], 8], "lora_name": "poet"}},
     "steps": [{"do": "schedule", "request": "a", "tokens": 16},
               {"do": "schedule", "request": "a"},
               {"do": "finish", "request": "a"},
               {"do": "lookup", "request": "b"}]}

In one module, though long: it is the published schema of these files, read from top to bottom.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, WithJsonSchema

from hitproof.spec.groups import ConfigurationError, Group, GroupKind, alignment
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import check_interval

_MAX_TOKENS = 2_000_000
STRICT = ConfigDict(extra="forbid")
"""How all formats are read. `json_format.described` has docstrings of fields, too: to find them
takes most of the time."""


class Strict:
    """What is read as it is: a field that there is not is refused."""

    __pydantic_config__ = STRICT


class HistoryError(ValueError):
    """A history that cannot be read or that no engine can have; the message names the remedy."""


def _expand(value: Any) -> tuple[int, ...]:
    """Token ids from a list of ids and of inclusive ranges [first, last]."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("token ids are a list of numbers and of ranges [first, last]")
    found: list[int] = []
    for item in value:
        match item:
            case bool():
                raise ValueError(f"{item!r} is not a token id")
            case int():
                run = range(item, item + 1)
            case [int() as first, int() as last] if first <= last:
                run = range(first, last + 1)
            case _:
                raise ValueError(f"{item!r} is neither a token id nor a range [first, last]")
        if run.start < 0:
            raise ValueError(f"token ids must not be negative; {run.start} is")
        if len(found) + len(run) > _MAX_TOKENS:
            raise ValueError(f"a request can have at most {_MAX_TOKENS} tokens")
        found += run
    return tuple(found)


def unknown_group_fields(value: Any) -> Any:
    """The value, unless it is a group as JSON with a field that groups do not have: ValueError."""
    if isinstance(value, dict):
        known = {item.name for item in fields(Group)}
        for name in value.keys() - known:
            raise ValueError(f"a group has no {name!r}; it has {', '.join(sorted(known))}")
    return value


TOKEN_IDS_SCHEMA = WithJsonSchema(
    {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0},
                    "minItems": 2,
                    "maxItems": 2,
                },
            ]
        },
        "description": "Token ids, one by one or as inclusive ranges [first, last].",
    }
)
"""How token ids are written, here and in workloads."""

TokenIds = Annotated[tuple[int, ...], BeforeValidator(_expand), TOKEN_IDS_SCHEMA]


@dataclass(frozen=True)
class EngineConfiguration(Strict):
    """The engine around the manager. vLLM: ``KVCacheConfig`` and the scheduler's arguments."""

    groups: tuple[Annotated[Group, BeforeValidator(unknown_group_fields)], ...]
    """The KV cache groups; ``eagle`` marks those with draft layers. All have the same
    ``prefill_lookahead``: m with m MTP modules."""
    num_gpu_blocks: PositiveInt
    """Number of blocks in the pool, including the null block."""
    hash_block_size: PositiveInt
    """Tokens per block hash; must divide every block size."""
    max_model_len: PositiveInt
    """Maximum length of a request, prompt and output, in tokens."""
    max_num_batched_tokens: PositiveInt | None = None
    """Maximum number of tokens per step; by default ``max_model_len``."""
    max_concurrent_batches: PositiveInt = 1
    """Maximum number of steps in flight: 2 with asynchronous scheduling, more with pipeline
    parallelism."""
    use_eagle: bool = False
    """Whether an EAGLE or MTP head drafts tokens."""
    num_hash_lookahead_tokens: NonNegativeInt = 0
    """Number of tokens past its block that a block hash covers: 0, or as many as draft layers look
    ahead, and then no lookahead block is matched and dropped. vLLM covers them from 0.33 on, unless
    a KV connector is used."""
    num_speculative_tokens: NonNegativeInt = 0
    """Draft tokens per step, from an EAGLE or MTP head, or without ``use_eagle`` from a draft model
    or prompt lookup (ngram)."""
    num_lookahead_tokens: NonNegativeInt | None = None
    """Slots allocated ahead for drafts; by default ``num_speculative_tokens``. Prompt lookup
    (ngram) needs 0."""
    enable_prefix_caching: bool = True
    """Whether requests share blocks. Without prefix caching nothing is hit or registered, and a
    Mamba block holds the state of a whole request."""
    retention_interval: NonNegativeInt | None = None
    """Interval of sparse retention in tokens; 0 for the latest boundary only, null for dense
    retention."""
    full_sequence_must_fit: bool = False
    """Whether a request is admitted only if enough blocks for all of it are free."""
    mamba_checkpoint_alignment: PositiveInt | None = None
    """A step can export Mamba states inside its chunk at multiples of this number of tokens from
    the chunk's start; null if it cannot. vLLM: ``prefill_checkpoint_alignment``."""
    mamba_shared_prefix_checkpoint: bool = False
    """Whether a Mamba state is kept at the end of a shared prefix, with EAGLE also inside a block.
    vLLM: ``enable_mamba_shared_prefix_checkpoint``."""
    variant: NonNegativeInt = 0
    """Selects details that must not change the answer: classes and sizes of specs, priorities of
    requests, and so on. 0 is the plainest."""

    def __post_init__(self) -> None:
        if not self.groups:
            raise HistoryError("an engine needs at least one KV cache group")
        for group in self.groups:
            if group.prefix_cacheable and group.block_size % self.hash_block_size:
                raise HistoryError(
                    f"the hash block size ({self.hash_block_size}) must divide every block size; "
                    f"it does not divide {group.block_size}"
                )
        if len(self.groups) == 1 and self.groups[0].block_size != self.hash_block_size:
            raise HistoryError(
                "with one group the hash block size is the block size "
                f"({self.groups[0].block_size}), not {self.hash_block_size}"
            )
        if self.num_gpu_blocks < 2:
            raise HistoryError("the pool needs a block besides the null block")
        if self.num_hash_lookahead_tokens and not self.use_eagle:
            raise HistoryError("hashes look ahead for draft layers only; set use_eagle")
        if any(group.eagle for group in self.groups) and not self.use_eagle:
            raise HistoryError("a group has draft layers; set use_eagle")
        ahead = {group.prefill_lookahead for group in self.groups}
        if len(ahead) > 1:
            raise HistoryError(
                "draft layers look ahead alike in all groups; give them the same prefill_lookahead"
            )
        if max(ahead) > 1 and not self.use_eagle:
            raise HistoryError("only EAGLE and MTP look ahead; set use_eagle")
        if 0 < self.num_hash_lookahead_tokens < max(ahead):
            raise HistoryError(
                "hashes that look ahead cover as many tokens as draft layers do; set "
                f"num_hash_lookahead_tokens to {max(ahead)}, or to 0"
            )
        if (
            self.mamba_checkpoint_alignment is not None or self.mamba_shared_prefix_checkpoint
        ) and not is_fine_grained(self.groups, self.hash_block_size):
            raise HistoryError(
                "Mamba checkpoints are judged where hits may end inside blocks; leave them out, or "
                "choose a smaller hash block size (a deployment's prefix_match_unit)"
            )
        if not self.enable_prefix_caching:
            self._check_uncached()
        try:
            check_interval(self.retention_interval, self.alignment)
        except ConfigurationError as error:
            raise HistoryError(str(error)) from error

    def _check_uncached(self) -> None:
        kept = self.retention_interval, self.mamba_checkpoint_alignment
        if kept != (None, None) or self.mamba_shared_prefix_checkpoint:
            raise HistoryError(
                "without prefix caching nothing is kept; leave retention_interval and Mamba "
                "checkpoints out"
            )
        states = [g.block_size for g in self.groups if g.kind is GroupKind.MAMBA]
        if min(states, default=self.max_model_len) < self.max_model_len:
            raise HistoryError(
                "without prefix caching a Mamba block has the state of a whole request; give it a "
                f"block_size of at least max_model_len ({self.max_model_len})"
            )

    @property
    def alignment(self) -> int:
        """The alignment in tokens. vLLM: ``scheduler_block_size``."""
        return math.lcm(alignment(self.groups), self.hash_block_size)

    @property
    def use_eagle_block_drop(self) -> bool:
        """Whether lookups match a lookahead block and drop it."""
        return self.use_eagle and not self.num_hash_lookahead_tokens

    @property
    def num_prefill_lookahead(self) -> int:
        """How many tokens past its own an entry of draft layers depends on: m with m MTP modules.

        0 without draft layers. vLLM: ``VllmConfig.num_prefill_lookahead_tokens``.
        """
        return self.groups[0].prefill_lookahead if self.use_eagle else 0

    @property
    def keeps_shared_states(self) -> bool:
        """Whether ``mamba_shared_prefix_checkpoint`` takes effect: EAGLE is seen in the groups.

        It does not where several MTP modules compute tokens again.
        """
        drafts = self.use_eagle_block_drop or any(group.eagle for group in self.groups)
        again = self.num_prefill_lookahead > 1
        return self.mamba_shared_prefix_checkpoint and drafts and not again

    @property
    def lookahead_slots(self) -> int:
        """Slots that are allocated ahead of the tokens that a step computes."""
        ahead = self.num_lookahead_tokens
        return self.num_speculative_tokens if ahead is None else ahead

    @property
    def max_chunk(self) -> int:
        """The most tokens that one step computes."""
        return self.max_num_batched_tokens or self.max_model_len

    @property
    def max_in_flight_tokens(self) -> int:
        """The most tokens that are scheduled and whose results are not known."""
        return self.max_concurrent_batches * self.max_chunk

    @property
    def replayed_tokens(self) -> int:
        """Tokens of a hit that vLLM computes again for a window outside the prefix cache; else 0.

        They are as many as the window has, one more than attention reads, and no hit of at most so
        many is taken (`spec.attention.replay_start`). vLLM: ``prefix_replay_tokens``. Beside cached
        windows or states it is 0: what is computed again would read these before the hit has them,
        and no model has both.
        """
        cached = {group.kind for group in self.groups if group.prefix_cacheable}
        windows = {group.window for group in self.groups if is_replayed(group)}
        alone = cached == {GroupKind.FULL_ATTENTION} and len(windows) == 1
        return next(iter(windows)) or 0 if alone and self.enable_prefix_caching else 0

    @property
    def mamba_block_size(self) -> int | None:
        """The block size at which chunks end for Mamba's sake; None if they need not."""
        if not self.enable_prefix_caching:
            return None
        sizes = [g.block_size for g in self.groups if g.kind is GroupKind.MAMBA]
        return max(sizes) if sizes else None


def is_replayed(group: Group) -> bool:
    """Whether the group is a window outside the prefix cache."""
    return group.kind is GroupKind.SLIDING_WINDOW and not group.prefix_cacheable


@dataclass(frozen=True)
class Image(Strict):
    """A multimodal item in a prompt. vLLM: ``MultiModalFeatureSpec``."""

    identifier: str
    """Identifies the content: items with the same identifier are equal."""
    offset: NonNegativeInt
    """Offset of its first placeholder token in the prompt."""
    length: PositiveInt
    """Number of its placeholder tokens."""


@dataclass(frozen=True)
class Embeddings(Strict):
    """Tokens of a prompt that are given as embeddings. vLLM: ``Request.prompt_embeds``."""

    offset: NonNegativeInt
    """The first of these tokens, as an offset in the prompt."""
    values: Annotated[tuple[int, ...], Field(min_length=1)]
    """A number for each token's embedding: equal numbers mean equal embeddings."""


@dataclass(frozen=True)
class RequestInput(Strict):
    """A request and the model's answer to it. vLLM: ``Request``."""

    prompt: TokenIds
    """The token ids of the prompt."""
    output: TokenIds = ()
    """The token ids that the model samples, in order."""
    lora_name: str | None = None
    """The LoRA adapter."""
    lora_path: str | None = None
    """The path of the adapter; by default one for each name."""
    cache_salt: str | None = None
    """Requests share blocks only with requests of the same salt."""
    images: tuple[Image, ...] = ()
    """Multimodal items, ordered by offset."""
    embeddings: tuple[Embeddings, ...] = ()
    """Tokens given as embeddings, ordered by offset; their ids in ``prompt`` are 0."""
    skip_reading_prefix_cache: bool = False
    """Whether the request takes no hits, as with prompt logprobs."""

    def __post_init__(self) -> None:
        if not self.prompt:
            raise HistoryError("a prompt needs at least one token")
        if self.lora_path is not None and self.lora_name is None:
            raise HistoryError("an adapter with a path needs a name; set lora_name")
        end = 0
        for image in self.images:
            if image.offset < end:
                raise HistoryError("images must be ordered by offset and must not overlap")
            end = image.offset + image.length
        if end > len(self.prompt):
            raise HistoryError(
                f"an image ends at token {end}, past the prompt's {len(self.prompt)} tokens"
            )
        end = 0
        for each in self.embeddings:
            if each.offset < end:
                raise HistoryError("embeddings must be ordered by offset and must not overlap")
            end = each.offset + len(each.values)
        if end > len(self.prompt):
            raise HistoryError(
                f"embeddings end at token {end}, past the prompt's {len(self.prompt)} tokens"
            )
        for place in self.embedded:
            if self.prompt[place]:
                raise HistoryError(
                    f"token {place} of a prompt comes as an embedding and has the id "
                    f"{self.prompt[place]}; set it to 0, as vLLM does"
                )

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Prompt and output."""
        return self.prompt + self.output

    @property
    def embedded(self) -> dict[int, int]:
        """What is embedded, by its place in the prompt."""
        return {
            each.offset + at: value
            for each in self.embeddings
            for at, value in enumerate(each.values)
        }


@dataclass(frozen=True)
class Schedule(Strict):
    """Schedule a request: a waiting one is looked up and admitted, a running one continues. When
    all its tokens are computed, the model samples the next token of its output. If no block is free
    for a running request, the requests admitted last are preempted, as by vLLM's scheduler.
    """

    request: str
    """The request."""
    tokens: PositiveInt | None = None
    """Maximum number of tokens to compute; by default the engine's limit."""
    drafts: NonNegativeInt = 0
    """Number of draft tokens to verify when the request decodes."""
    accepted: NonNegativeInt = 0
    """Number of drafts that are accepted."""
    external: NonNegativeInt = 0
    """For a waiting request, the number of tokens after the local hit that a KV connector provides
    at once; without ``exactly`` rounded down to the alignment."""
    valid: NonNegativeInt | None = None
    """Number of valid tokens, including the hit, of a request that starts with ``external`` ones;
    by default all. The connector reports the blocks of the others invalid with the step's results:
    nothing is sampled, the computed tokens are reset to the first of these blocks, the blocks are
    evicted, and the request ends. Needs one full-attention group and no other step in flight. vLLM:
    ``_handle_invalid_blocks``."""
    recompute: bool = False
    """Whether a request with invalid blocks continues: it keeps the blocks and recomputes their
    tokens. vLLM: ``kv_load_failure_policy``."""
    local_prefix: bool = False
    """Whether a waiting request is looked up for a KV connector that loads Mamba states: it starts
    with the local prefix, or with the usual hit if a state is missing and nothing is external.
    vLLM: ``get_computed_blocks_for_connector``."""
    exactly: bool = False
    """Whether to compute and load exactly the given numbers of tokens, even if vLLM's scheduler
    would end the chunk elsewhere to keep a Mamba state."""
    in_flight: bool = False
    """Whether the next step is scheduled before this step's results are known, as with asynchronous
    scheduling. Until then its drafts count as accepted. Results arrive in order: when
    ``max_concurrent_batches`` would be exceeded, with those of a step that is not in flight, or by
    ``results``."""
    do: Literal["schedule"] = "schedule"


@dataclass(frozen=True)
class Lookup(Strict):
    """Look up a waiting request without scheduling it."""

    request: str
    """The request."""
    do: Literal["lookup"] = "lookup"


@dataclass(frozen=True)
class Load(Strict):
    """Admit a waiting request while a KV connector loads tokens; its blocks are registered when the
    load is done.
    """

    request: str
    """The request."""
    tokens: PositiveInt
    """Maximum number of tokens after the local hit that the connector loads."""
    exactly: bool = False
    """Whether to load exactly this number, even if that ends inside a Mamba block."""
    local_prefix: bool = False
    """As in ``schedule``."""
    reserved_blocks: NonNegativeInt = 0
    """Number of free blocks to leave for requests that are already admitted."""
    do: Literal["load"] = "load"


@dataclass(frozen=True)
class Loaded(Strict):
    """The load is done: its blocks are registered, and the request waits to be scheduled."""

    request: str
    """The request."""
    tokens: NonNegativeInt | None = None
    """Number of valid tokens, including the hit; by default all. Unless the only group is full
    attention, all or 0."""
    do: Literal["loaded"] = "loaded"


@dataclass(frozen=True)
class Preempt(Strict):
    """Preempt a running request: its blocks are freed, and it waits to be scheduled again."""

    request: str
    """The request."""
    do: Literal["preempt"] = "preempt"


@dataclass(frozen=True)
class Finish(Strict):
    """End or abort a request; its blocks are freed."""

    request: str
    """The request."""
    sending: bool = False
    """Whether a KV connector still sends or loads its blocks: they are freed by ``sent``. vLLM:
    ``delay_free_blocks``."""
    do: Literal["finish"] = "finish"


@dataclass(frozen=True)
class Sent(Strict):
    """The KV connector has sent the blocks of an ended request: they are freed."""

    request: str
    """The request."""
    do: Literal["sent"] = "sent"


@dataclass(frozen=True)
class Hold(Strict):
    """Hold registered blocks from outside the manager, as a KV connector does that stores them.
    They are not reallocated until released. vLLM: ``BlockPool.touch``.
    """

    request: str
    """The request whose prefix names the blocks."""
    group: NonNegativeInt
    """Index of the group."""
    blocks: tuple[NonNegativeInt, ...]
    """Blocks of the prefix, by position; of several copies, the one that a lookup finds."""
    holder: str = "connector"
    """A name for the holder."""
    do: Literal["hold"] = "hold"


@dataclass(frozen=True)
class Take(Strict):
    """Take free blocks from outside the manager. vLLM: ``BlockPool.get_new_blocks``."""

    blocks: PositiveInt | None = None
    """Maximum number of blocks; by default all free ones."""
    holder: str = "connector"
    """A name for the holder."""
    do: Literal["take"] = "take"


@dataclass(frozen=True)
class Release(Strict):
    """Free all blocks that are held or taken from outside, the last one first."""

    holder: str = "connector"
    """The name of the holder."""
    do: Literal["release"] = "release"


@dataclass(frozen=True)
class Evict(Strict):
    """Unregister blocks, as if a KV connector reported them invalid. vLLM: ``evict_blocks``."""

    request: str
    """The request whose prefix names the blocks."""
    group: NonNegativeInt
    """Index of the group."""
    blocks: tuple[NonNegativeInt, ...]
    """Blocks of the prefix, by position; all cached copies are evicted."""
    do: Literal["evict"] = "evict"


@dataclass(frozen=True)
class Reset(Strict):
    """Reset the prefix cache; refused while blocks are in use."""

    do: Literal["reset"] = "reset"


@dataclass(frozen=True)
class NewStep(Strict):
    """Start the engine's next step. Scheduling a request a second time starts it as well."""

    do: Literal["new_step"] = "new_step"


@dataclass(frozen=True)
class Results(Strict):
    """Deliver the results of the oldest step in flight."""

    do: Literal["results"] = "results"


@dataclass(frozen=True)
class Expect(Strict):
    """State an expectation; nothing is called. Omitted fields are not checked, and an expectation
    that is not met makes the history diverge.
    """

    request: str
    """The request."""
    hit: NonNegativeInt | None = None
    """The hit of its last lookup, in tokens."""
    state: Literal["waiting", "loading", "running", "sending", "finished"] | None = None
    """Its state: not admitted (waiting), admitted (running, loading), or ended (sending,
    finished)."""
    computed: NonNegativeInt | None = None
    """Its number of computed tokens."""
    tables: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    """Its block tables, one per group; 0 is the null block."""
    cached: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    """For each group, the positions of its full blocks that are registered, whichever request
    computed them."""
    free: tuple[NonNegativeInt, ...] | None = None
    """The first blocks of the free queue, in order."""
    queries: NonNegativeInt | None = None
    """Tokens looked up since the start of the history, according to the statistics."""
    hits: NonNegativeInt | None = None
    """Tokens hit since the start of the history, according to the statistics."""
    stored: NonNegativeInt | None = None
    """Blocks stored since the start of the history, according to the events."""
    removed: NonNegativeInt | None = None
    """Blocks removed since the start of the history, according to the events."""
    do: Literal["expect"] = "expect"


Step: TypeAlias = (
    Schedule
    | Lookup
    | Load
    | Loaded
    | Preempt
    | Finish
    | Sent
    | Hold
    | Take
    | Release
    | Evict
    | Reset
    | NewStep
    | Results
    | Expect
)


@dataclass(frozen=True)
class History(Strict):
    """A scheduler's requests to a manager over time."""

    engine: EngineConfiguration
    """The configuration."""
    requests: dict[str, RequestInput]
    """The requests by name. A request arrives when a step first names it."""
    steps: tuple[Annotated[Step, Field(discriminator="do")], ...]
    """The steps, in order."""
    about: str = field(default="", compare=False)
    """What the history shows, for readers."""
    hits: dict[LookaheadHorizon, tuple[NonNegativeInt, ...]] = field(
        default_factory=dict, compare=False
    )
    """For frozen vectors: the expected hit of each lookup, in tokens and in order, by lookahead
    horizon. Other policies are those of the newest release."""

    def __post_init__(self) -> None:
        lengths: dict[str, int] = {}
        for name, request in self.requests.items():
            tokens = len(request.prompt) + len(request.output)
            if tokens > self.engine.max_model_len:
                raise HistoryError(
                    f"request {name} has {tokens} tokens, more than max_model_len "
                    f"({self.engine.max_model_len})"
                )
            for image in request.images:
                if lengths.setdefault(image.identifier, image.length) != image.length:
                    raise HistoryError(
                        f"image {image.identifier} has two lengths; an identifier stands for one "
                        f"content"
                    )
        for number, step in enumerate(self.steps):
            request_name = getattr(step, "request", None)
            if request_name is not None and request_name not in self.requests:
                raise HistoryError(
                    f"steps[{number}] names request {request_name}, which is not there"
                )
            loads = isinstance(step, Load) or (isinstance(step, Schedule) and step.external > 0)
            if loads and self.engine.num_hash_lookahead_tokens:
                raise HistoryError(
                    f"steps[{number}] loads tokens, and vLLM's hashes do not look ahead where a KV "
                    f"connector is used; set num_hash_lookahead_tokens to 0"
                )
            if (
                isinstance(step, Schedule)
                and step.in_flight
                and self.engine.max_concurrent_batches < 2
            ):
                raise HistoryError(
                    f"steps[{number}] stays in flight; set max_concurrent_batches to 2 or more"
                )
            if isinstance(step, Schedule) and step.valid is not None and not step.external:
                raise HistoryError(
                    f"steps[{number}] says which external tokens are valid, and has none; set "
                    f"external"
                )
            if isinstance(step, (Evict, Hold)) and step.group >= len(self.engine.groups):
                raise HistoryError(f"steps[{number}] names group {step.group}, which is not there")
