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

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    WithJsonSchema,
)

from hitproof.spec.groups import ConfigurationError, Group, GroupKind, alignment
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.retention import check_interval

_MAX_TOKENS = 2_000_000
STRICT = ConfigDict(extra="forbid")
"""How all formats are read. `json_format.described` has docstrings of fields, too: to find them
takes most of the time."""


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

TokenIds = Annotated[
    tuple[int, ...],
    BeforeValidator(_expand),
    TOKEN_IDS_SCHEMA,
]


@dataclass(frozen=True)
class EngineConfiguration:
    """The engine around the manager. vLLM: ``KVCacheConfig`` and what the scheduler passes on."""

    groups: tuple[Annotated[Group, BeforeValidator(unknown_group_fields)], ...]
    """KV cache groups, EAGLE-flagged where a draft layer lives in them. All of them have the same
    ``prefill_lookahead``: m with m MTP modules."""
    num_gpu_blocks: PositiveInt
    """Blocks in the pool, the null block included."""
    hash_block_size: PositiveInt
    """Tokens that one block hash covers; it divides every block size."""
    max_model_len: PositiveInt
    """The longest request, prompt and output, in tokens."""
    max_num_batched_tokens: PositiveInt | None = None
    """The most tokens that one step computes; as many as ``max_model_len`` by default."""
    max_concurrent_batches: PositiveInt = 1
    """How many steps can be scheduled before the results of the first are known; 2 with
    asynchronous scheduling, and more with pipeline parallelism."""
    use_eagle: bool = False
    """Whether an EAGLE or MTP head drafts tokens."""
    num_hash_lookahead_tokens: NonNegativeInt = 0
    """How many tokens past its block a block hash covers. Draft layers depend on one more token,
    with several MTP modules on more; where hashes cover them, no lookahead block is matched and
    dropped. vLLM: as many with EAGLE or MTP from 0.33 on, unless a KV connector is used."""
    num_speculative_tokens: NonNegativeInt = 0
    """Draft tokens a step, of an EAGLE or MTP head, a draft model or prompt lookup (ngram)."""
    num_lookahead_tokens: NonNegativeInt | None = None
    """Slots that are allocated ahead for drafts to come; ``num_speculative_tokens`` by default. The
    drafts of prompt lookup need none."""
    enable_prefix_caching: bool = True
    """Whether requests share blocks at all. Without, nothing is hit or registered, and a Mamba
    block has the state of a whole request."""
    retention_interval: NonNegativeInt | None = None
    """Sparse retention in tokens, 0 for the latest boundary only, none for dense retention."""
    full_sequence_must_fit: bool = False
    """Whether a request is admitted only when blocks for all of it are free."""
    mamba_checkpoint_alignment: PositiveInt | None = None
    """Where a step can export Mamba states from inside its chunk: multiples of so many tokens from
    the chunk's start; none where it cannot. vLLM: ``prefill_checkpoint_alignment``."""
    mamba_shared_prefix_checkpoint: bool = False
    """Whether a Mamba state is kept at the end of a prefix that is seen to be shared, inside a
    block, too, with EAGLE. vLLM: ``enable_mamba_shared_prefix_checkpoint``."""
    variant: NonNegativeInt = 0
    """A number that chooses among what the target can have for its groups, pool and requests where
    the answer must not depend on it: classes and sizes of specs, priorities of requests, and so on.
    0 is the plainest."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if not self.groups:
            raise HistoryError("an engine has at least one KV cache group")
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
            raise HistoryError("a group is flagged for EAGLE; set use_eagle")
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
class Image:
    """A multimodal item in a prompt. vLLM: ``MultiModalFeatureSpec``."""

    identifier: str
    """Names the content: items with one identifier are equal."""
    offset: NonNegativeInt
    """Where its placeholder tokens start."""
    length: PositiveInt
    """How many placeholder tokens it has."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Embeddings:
    """Tokens of a prompt that come as embeddings. vLLM: ``Request.prompt_embeds``."""

    offset: NonNegativeInt
    """Where they start."""
    values: Annotated[tuple[int, ...], Field(min_length=1)]
    """What the embedding of each token is made of: those of one number are equal."""

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class RequestInput:
    """A request as it arrives, and what the model will answer. vLLM: ``Request``."""

    prompt: TokenIds
    """The prompt's token ids."""
    output: TokenIds = ()
    """The tokens that the model will sample, in order."""
    lora_name: str | None = None
    """The LoRA adapter."""
    lora_path: str | None = None
    """Where the adapter was loaded from; by default each name stands for one place."""
    cache_salt: str | None = None
    """Keeps the request's blocks apart from those of other salts."""
    images: tuple[Image, ...] = ()
    """Multimodal items, in the order of their offsets."""
    embeddings: tuple[Embeddings, ...] = ()
    """Tokens that come as embeddings, in the order of their offsets; their ids in ``prompt`` are 0.
    """
    skip_reading_prefix_cache: bool = False
    """Whether the request takes no hits, as with prompt logprobs."""

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        if not self.prompt:
            raise HistoryError("a prompt has at least one token")
        if self.lora_path is not None and self.lora_name is None:
            raise HistoryError("an adapter that has a path has a name; set lora_name")
        end = 0
        for image in self.images:
            if image.offset < end:
                raise HistoryError("images stand in the order of their offsets, and do not overlap")
            end = image.offset + image.length
        if end > len(self.prompt):
            raise HistoryError(
                f"an image ends at token {end}, past the prompt's {len(self.prompt)} tokens"
            )
        end = 0
        for each in self.embeddings:
            if each.offset < end:
                raise HistoryError(
                    "embeddings stand in the order of their offsets, and do not overlap"
                )
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
class Schedule:
    """Schedule a request: a waiting one is looked up and admitted, a running one goes on.

    When all its tokens are computed the model samples the next of its output. A running request
    for which no block is free preempts those that were admitted last, as vLLM's scheduler does.
    """

    request: str
    """The request."""
    tokens: PositiveInt | None = None
    """The most tokens to compute; by default all that the engine may."""
    drafts: NonNegativeInt = 0
    """Draft tokens to verify when the request decodes."""
    accepted: NonNegativeInt = 0
    """How many of the drafts are right."""
    external: NonNegativeInt = 0
    """Tokens beyond the local hit that a KV connector has at once, for a waiting request; without
    ``exactly``, whole alignments of them."""
    valid: NonNegativeInt | None = None
    """How many tokens, the hit included, are right of a request that starts with ``external`` ones;
    by default all. The connector reports the blocks of the others invalid together with the step's
    results: nothing is sampled, and the computed tokens are taken back to the first of these
    blocks. They are evicted, and the request ends. Needs one full-attention group, and no other
    step in flight. vLLM: ``_handle_invalid_blocks``."""
    recompute: bool = False
    """Whether a request with invalid blocks goes on: it keeps them, registered or not, and computes
    their tokens itself. vLLM: ``kv_load_failure_policy``."""
    local_prefix: bool = False
    """Whether a waiting request is looked up for a KV connector that loads Mamba states: it starts
    with the local prefix, or with the usual hit where a state is missing and nothing is external.
    vLLM: ``get_computed_blocks_for_connector``."""
    exactly: bool = False
    """Whether to compute and load as many tokens as asked, also where vLLM's scheduler would end
    the chunk elsewhere for the sake of Mamba's states."""
    in_flight: bool = False
    """Whether the step's results are not known yet when the next one is scheduled. Its drafts count
    as computed until then. The results of all steps arrive with those of one that does not stay in
    flight, and the oldest ones before more than ``max_concurrent_batches`` steps are in flight."""
    do: Literal["schedule"] = "schedule"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Lookup:
    """Look a waiting request up and do no more."""

    request: str
    """The request."""
    do: Literal["lookup"] = "lookup"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Load:
    """Admit a waiting request while a KV connector loads tokens: its blocks are cached later."""

    request: str
    """The request."""
    tokens: PositiveInt
    """Tokens beyond the local hit that the connector loads, at most."""
    exactly: bool = False
    """Whether to load as many as asked, also where that ends inside a Mamba block."""
    local_prefix: bool = False
    """As in `Schedule`."""
    reserved_blocks: NonNegativeInt = 0
    """Free blocks that are left to requests which are admitted already."""
    do: Literal["load"] = "load"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Loaded:
    """The connector is done: what arrived is cached, and the request waits to be scheduled."""

    request: str
    """The request."""
    tokens: NonNegativeInt | None = None
    """How many tokens, the hit included, are right; by default all of them. With other groups than
    one of full attention it is all or none: 0."""
    do: Literal["loaded"] = "loaded"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Preempt:
    """Take a running request's blocks away; it waits to be scheduled again."""

    request: str
    """The request."""
    do: Literal["preempt"] = "preempt"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Finish:
    """A request ends, or is aborted; its blocks are freed."""

    request: str
    """The request."""
    sending: bool = False
    """Whether a KV connector still sends its blocks, or loads them: they are freed when that is
    done (`Sent`). vLLM: ``delay_free_blocks``."""
    do: Literal["finish"] = "finish"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Sent:
    """The KV connector is done with the blocks of a request that has ended: they are freed."""

    request: str
    """The request."""
    do: Literal["sent"] = "sent"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Hold:
    """Something outside, such as a KV connector that stores blocks, holds registered blocks.

    Nobody gets them until they are released. vLLM: ``BlockPool.touch``.
    """

    request: str
    """The request whose prefix names the blocks."""
    group: NonNegativeInt
    """The group, an index."""
    blocks: tuple[NonNegativeInt, ...]
    """Blocks of the prefix, by position; of several copies the one that lookup finds."""
    holder: str = "connector"
    """Who holds them."""
    do: Literal["hold"] = "hold"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Take:
    """Something outside takes free blocks. vLLM: ``BlockPool.get_new_blocks``."""

    blocks: PositiveInt | None = None
    """How many, at most; by default all that are free."""
    holder: str = "connector"
    """Who takes them."""
    do: Literal["take"] = "take"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Release:
    """All that is held from outside, or taken, is given back, the last block first."""

    holder: str = "connector"
    """Who held it."""
    do: Literal["release"] = "release"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Evict:
    """Unregister blocks, as when a connector reports them invalid. vLLM: ``evict_blocks``."""

    request: str
    """The request whose prefix names the blocks."""
    group: NonNegativeInt
    """The group, an index."""
    blocks: tuple[NonNegativeInt, ...]
    """Blocks of the prefix, by position; all cached copies go."""
    do: Literal["evict"] = "evict"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Reset:
    """Reset the prefix cache; refused while blocks are in use."""

    do: Literal["reset"] = "reset"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class NewStep:
    """The engine's next step starts. It starts by itself when a request is scheduled again."""

    do: Literal["new_step"] = "new_step"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Results:
    """The results of the oldest step in flight arrive."""

    do: Literal["results"] = "results"

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Expect:
    """What must be so now. It calls nothing; what is left out is not expected."""

    request: str
    """The request."""
    hit: NonNegativeInt | None = None
    """The tokens that its last lookup found."""
    state: Literal["waiting", "loading", "running", "sending", "finished"] | None = None
    """Whether it was admitted (running, loading) or not (waiting), or has ended."""
    computed: NonNegativeInt | None = None
    """Its computed tokens."""
    tables: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    """Its block tables, one per group; 0 is the null block."""
    cached: tuple[tuple[NonNegativeInt, ...], ...] | None = None
    """For each group, the positions of the full blocks of its tokens that are registered, whoever
    computed them."""
    free: tuple[NonNegativeInt, ...] | None = None
    """The free blocks that are reused next, in order; as many as are given."""
    queries: NonNegativeInt | None = None
    """The tokens that statistics count as looked up since the history began."""
    hits: NonNegativeInt | None = None
    """The tokens that statistics count as found since the history began."""
    stored: NonNegativeInt | None = None
    """The blocks that events report as stored since the history began."""
    removed: NonNegativeInt | None = None
    """The blocks that events report as removed since the history began."""
    do: Literal["expect"] = "expect"

    __pydantic_config__ = STRICT


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
class History:
    """What a scheduler asks of a manager over time."""

    engine: EngineConfiguration
    """The configuration."""
    requests: dict[str, RequestInput]
    """The requests by name. They arrive when a step first names them."""
    steps: tuple[Annotated[Step, Field(discriminator="do")], ...]
    """The steps, in order."""
    about: str = field(default="", compare=False)
    """What the history shows, for readers."""
    hits: dict[LookaheadHorizon, tuple[NonNegativeInt, ...]] = field(
        default_factory=dict, compare=False
    )
    """For frozen vectors: the hit, in tokens, that each lookup is due, in order, by the lookahead
    horizon. Other policies are those of the newest release."""

    __pydantic_config__ = STRICT

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
                raise HistoryError(f"steps[{number}] names request {request_name}, which is none")
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
                raise HistoryError(f"steps[{number}] names group {step.group}, which is none")
