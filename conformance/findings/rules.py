"""Sanity rules: what is expected of vLLM though no claim of the spec implies it, with reasons.

A finding contradicts a claim of `spec.claims` or one of these, under whose name it is booked. Those
of planning are one a `Rule`; `conformance.explain.derivation` judges them.
"""

from dataclasses import dataclass
from enum import StrEnum

from hitproof.spec.claims import CLAIMS, Claim


@dataclass(frozen=True)
class SanityRule:
    """Something that a sound engine does, and that does not follow from the spec.

    Attributes:
        name: a stable name that says what is expected.
        sentence: the rule in one English sentence.
        reason: why it is expected of vLLM.
        symbols: the vLLM symbols that it is about.
    """

    name: str
    sentence: str
    reason: str
    symbols: tuple[str, ...]


class Rule(StrEnum):
    """What a configuration must obey that start-up derives from layers."""

    LAYERS = "every layer is in one group"
    READS = "a group keeps what its layers read"
    READ_AGAIN = "a running request keeps what its layers read, also of tokens they compute again"
    PAGES = "a page holds the block of its group"
    POOL = "the pool fits into the memory"
    SCHEDULER_BLOCK = "the scheduler's block is the least common multiple of the groups' blocks"
    HASH_BLOCK = "every block is a whole number of hash blocks"
    HASH_UNIT = "a hash covers what was asked for, or as much as all blocks have in common"
    DRAFTS = "the groups with draft layers are flagged"
    BLOCKS = "a block is whole blocks of its layers, and fills its page"
    PAGE_SIZE = "no page is larger than what the largest needs"
    APART = "no two blocks share bytes, except as the same block of two groups"
    ALIGNED = "blocks are as far apart as a multiple of what their layers need"
    OWN_LAYERS = "a rank has pages for its own layers, and for no others"
    RANKS = "all ranks have the same number of blocks"
    MEMORY = "the memory of some rank is used up"
    PADDING = "less than half of the pool is padding"
    LONG_REQUESTS = "less than half of what a long request takes is padding"
    FILLED_BLOCKS = "layers of one sort are in no more groups than blocks have room for"
    FEW_GROUPS = "there are no more groups than the rarest sort of layers makes"
    DEALT = "on each rank a block is no larger than layers need that are dealt out evenly"

    @property
    def parameter(self) -> str:
        """The rule as a parameter of a defect."""
        return self.name.lower().replace("_", "-")

    @property
    def sanity_rule(self) -> str:
        """The name of the sanity rule that it is."""
        return f"planning_{self.name.lower()}"


WASTEFUL = (
    Rule.HASH_UNIT,
    Rule.PAGE_SIZE,
    Rule.MEMORY,
    Rule.PADDING,
    Rule.LONG_REQUESTS,
    Rule.FILLED_BLOCKS,
    Rule.FEW_GROUPS,
    Rule.DEALT,
)
"""Where these are broken outputs are right, and memory or time is lost."""

FATAL = (Rule.OWN_LAYERS,)
"""Where these are broken the worker does not start: it finds no layer for a tensor of the plan."""

_GROUPS = ("get_kv_cache_groups", "get_kv_cache_config_from_groups")
_SIZES = ("resolve_kv_cache_block_sizes",)
_RANKS = ("get_kv_cache_configs",)
_PLANNING: dict[Rule, tuple[str, tuple[str, ...]]] = {
    Rule.LAYERS: (
        "Block tables are per group: a layer in no group has nowhere to write, and one in two "
        "groups is written twice.",
        _GROUPS,
    ),
    Rule.READS: (
        "Blocks are given up by the window or chunk of the group, so a layer that reads further "
        "back than its group keeps reads blocks of others.",
        _GROUPS,
    ),
    Rule.READ_AGAIN: (
        "Draft layers compute their last tokens again and read from there, which is further back "
        "than the next token reads.",
        _GROUPS,
    ),
    Rule.PAGES: ("A block that is larger than its page overwrites the next one.", _GROUPS),
    Rule.POOL: ("A pool that is larger than the memory fails when it is allocated.", _RANKS),
    Rule.SCHEDULER_BLOCK: (
        "Hits of several groups end where every group has a full block, which is at multiples of "
        "the least common multiple only.",
        _SIZES,
    ),
    Rule.HASH_BLOCK: (
        "The hash of a block is made of the hashes of whole hash blocks.",
        _SIZES,
    ),
    Rule.HASH_UNIT: (
        "With a smaller unit more hashes are computed for each prompt, and no hit is longer.",
        _SIZES,
    ),
    Rule.DRAFTS: (
        "The flag decides which groups drop a lookahead block, which only draft layers need.",
        _GROUPS,
    ),
    Rule.BLOCKS: (
        "Attention addresses a page in blocks of the layer's own size, and what a page has beyond "
        "its block is never used.",
        _GROUPS,
    ),
    Rule.PAGE_SIZE: (
        "Pages are made equal by enlarging the smaller ones, so the largest suffices for all.",
        ("unify_kv_cache_spec_page_size",),
    ),
    Rule.APART: (
        "Blocks with different numbers are allocated to different requests, which overwrite each "
        "other.",
        _GROUPS,
    ),
    Rule.ALIGNED: ("Kernels address blocks by a stride in whole elements of a layer.", _GROUPS),
    Rule.OWN_LAYERS: (
        "With pipeline parallelism each rank computes its own layers only, and finds no layer for "
        "a tensor of another one when it allocates the plan.",
        _RANKS,
    ),
    Rule.RANKS: (
        "One scheduler numbers the blocks of all ranks, so a rank with fewer would be given "
        "numbers that it does not have.",
        _RANKS,
    ),
    Rule.MEMORY: (
        "The number of blocks is derived from the memory, so that on the rank with the least no "
        "whole block is left over.",
        _RANKS,
    ),
    Rule.PADDING: (
        "A grouping with less padding exists for any layers: groups of one layer have none in "
        "pages of one size. The threshold is hitproof's choice; vLLM's own heuristic concerns the "
        "same quantity.",
        _GROUPS,
    ),
    Rule.LONG_REQUESTS: (
        "Only full-attention groups grow with a request, and their padding determines how long a "
        "request fits. The threshold is hitproof's choice.",
        _GROUPS,
    ),
    Rule.FILLED_BLOCKS: (
        "Each group takes its own block, so groups that would fit into one block take several "
        "times the memory.",
        _GROUPS,
    ),
    Rule.FEW_GROUPS: (
        "Each group costs a block table and a lookup, and every group beyond what the rarest sort "
        "of layers makes necessary is avoidable. vLLM's heuristic aims at the same number.",
        _GROUPS,
    ),
    Rule.DEALT: (
        "A rank's block is as wide as its widest group, and layers dealt out evenly make it "
        "narrower, which leaves room for more blocks.",
        _RANKS,
    ),
}

RULES: dict[str, SanityRule] = {
    rule.name: rule
    for rule in (
        SanityRule(
            "allowed_call_raises_nothing",
            "A call that its callers may make raises no exception.",
            "An exception of the scheduler or the cache manager crashes the engine, and with it "
            "all requests. If a check makes the call, the finding is booked under that check's "
            "claim, since there is no answer that could satisfy it.",
            ("Scheduler.schedule", "KVCacheManager.allocate_slots"),
        ),
        SanityRule(
            "target_behaves_as_its_release",
            "A target behaves as the reference implementation with its release's policies.",
            "A difference that violates no claim is not a fault. It is shown so that a change of "
            "policy is noticed.",
            ("KVCacheManager",),
        ),
        SanityRule(
            "skipping_request_reads_no_hit",
            "A request that skips reading the prefix cache takes no hit.",
            "It needs values that only computed tokens have, such as prompt log probabilities or "
            "pooled output. The spec says which hits are valid, not which are wanted.",
            ("Request.skip_reading_prefix_cache", "KVCacheManager.get_computed_blocks"),
        ),
        SanityRule(
            "step_reads_what_was_computed",
            "Where attention reads, or a Mamba layer resumes, a step finds what was computed from "
            "the request's own tokens.",
            "Attention reads the keys and values of these tokens (`attends`, `reads_state`). The "
            "claims require it of hits; this rule requires it of loads by a KV connector, and of "
            "steps after rejected drafts.",
            ("Scheduler.schedule", "KVCacheManager.remove_skipped_blocks"),
        ),
        SanityRule(
            "step_writes_its_own_pages",
            "A step writes each page through one entry of one block table, and never the null "
            "page.",
            "Two writers of one page overwrite each other, and writes to the null page are lost. "
            "The claims on the pool are about its operations, not about steps.",
            ("Scheduler.schedule", "KVCacheManager.allocate_slots"),
        ),
        SanityRule(
            "page_in_use_is_left_alone",
            "A page that a scheduled step or a transfer still reads or writes is not freed, and "
            "nothing else writes it.",
            "The pool does not count references of steps in flight and transfers, so the "
            "scheduler must wait for them.",
            ("Scheduler.update_from_output", "KVConnectorBase_V1.get_finished"),
        ),
        SanityRule(
            "unwritten_bytes_are_numbers",
            "Unwritten parts of a page that attention reads are finite in its format, and zeroing "
            "spares what is cached.",
            "Attention reads whole pages and weights what is not computed yet by 0; 0 times NaN "
            "is NaN. The spec is about tokens, not bytes.",
            ("KVCacheManager.take_new_block_ids", "GPUModelRunner._zero_block_ids"),
        ),
        SanityRule(
            "cascade_reads_shared_blocks",
            "The blocks counted as a common prefix are the first of every running request's block "
            "table.",
            "Cascade attention reads them once for all requests of a step.",
            ("KVCacheManager.get_num_common_prefix_blocks",),
        ),
        SanityRule(
            "request_holds_only_what_it_reads",
            "A request holds no block that none of its steps reads again.",
            "A window, a chunk and a Mamba state need a bounded number of blocks, and vLLM frees "
            "the others on the way. The spec says what must be kept, not what must be freed.",
            ("KVCacheManager.remove_skipped_blocks",),
        ),
        SanityRule(
            "reserved_blocks_stay_free",
            "A request that waits for a load is admitted only where the reserved blocks stay free.",
            "The scheduler reserves them so that running requests are not preempted during the "
            "load.",
            ("Scheduler._inflight_prefill_reserved_blocks", "KVCacheManager.allocate_slots"),
        ),
        SanityRule(
            "free_blocks_are_taken_as_asked",
            "A caller that takes blocks from outside the manager gets the first ones of the free "
            "queue, as many as requested.",
            "KV connectors take blocks from the pool and give them back. The claims are about the "
            "order in which a request gets them.",
            ("BlockPool.get_new_blocks", "BlockPool.get_num_free_blocks"),
        ),
        SanityRule(
            "ended_request_leaves_nothing",
            "When a request has ended, nothing of it is kept: no block, no encoded image, no "
            "entry under its id.",
            "Leftovers shrink the cache or the memory until the engine restarts.",
            ("KVCacheManager.free", "Scheduler._free_request", "EncoderCacheManager.free"),
        ),
        SanityRule(
            "connector_is_handed_the_blocks_of_its_tokens",
            "A KV connector is given exactly the blocks and states of the tokens that it stores "
            "or loads.",
            "It copies these blocks under the keys of the tokens, and the two are not compared "
            "afterwards.",
            (
                "KVCacheManager.get_block_ids_for_computed_tokens",
                "KVCacheManager.take_boundary_state_offloads",
                "KVConnectorBase_V1.update_state_after_alloc",
            ),
        ),
        SanityRule(
            "failed_load_is_never_delivered",
            "No token computed from a failed load reaches the user.",
            "A KV connector reports blocks whose load failed together with the output of the step "
            "that read them.",
            (
                "KVConnectorBase_V1.get_block_ids_with_load_errors",
                "Scheduler._handle_invalid_blocks",
            ),
        ),
        SanityRule(
            "reset_forgets_everything",
            "A reset clears everything that was cached before it, on request also in the KV "
            "connector, and reports correctly whether it succeeded.",
            "It is called after a weight update, when everything cached is stale. The claims on "
            "keys are about the pool alone.",
            ("Scheduler.reset_prefix_cache", "KVConnectorBase_V1.reset_cache"),
        ),
        SanityRule(
            "events_describe_the_cache",
            "The events of a step, applied to what was cached before it, give what is cached "
            "after it, and those about a hit name each of its blocks once.",
            "Routers and external caches know the cache only by its events.",
            ("KVCacheManager.take_events", "BlockPool.take_events"),
        ),
        SanityRule(
            "statistics_count_what_happened",
            "Statistics, usage and estimates are correct: lookups, requests, drafts, cached "
            "tokens and blocks in use.",
            "Operators and autoscalers act on them.",
            (
                "KVCacheManager.usage",
                "KVCacheManager.record_prefix_cache_stats",
                "KVCacheManager.estimate_cached_tokens",
                "Scheduler.make_stats",
                "Scheduler.make_spec_decoding_stats",
            ),
        ),
        SanityRule(
            "accepted_request_finishes",
            "An accepted request that fits computes new tokens until it ends.",
            "Nothing else ends it, and requests behind it wait.",
            ("Scheduler.schedule", "Scheduler.add_request"),
        ),
        SanityRule(
            "sampled_token_is_delivered_once",
            "Each token that is sampled for a request and accepted is delivered once, in order.",
            "These tokens are the user's output.",
            ("Scheduler.update_from_output",),
        ),
        SanityRule(
            "model_runner_is_told_what_is_so",
            "The model runner is told correctly the tokens, the number of drafts and, once, the "
            "end of each request.",
            "It computes from its own copy of this state.",
            ("SchedulerOutput", "GPUModelRunner._update_states"),
        ),
        SanityRule(
            "chunk_ends_where_a_state_is_kept",
            "Chunks of a prompt end at the boundaries whose Mamba state a promised hit needs.",
            "A state exists only at the end of a step, so the scheduler decides which ones can be "
            "kept. The claims are about registering existing states.",
            ("Scheduler._mamba_block_aligned_split",),
        ),
        SanityRule(
            "step_keeps_the_limits",
            "A step stays within the limits of the configuration.",
            "Buffers of the model runner have the size of the limits, and users rely on them.",
            ("Scheduler.schedule", "SchedulerConfig"),
        ),
        SanityRule(
            "step_does_what_it_has_room_for",
            "While tokens, request slots and blocks are left, a step computes what its "
            "requests have.",
            "What is left out takes another step. The spec does not cover speed.",
            ("Scheduler.schedule",),
        ),
        SanityRule(
            "requests_go_in_the_order_of_the_policy",
            "Requests are admitted in the order of the policy, and preempted in the reverse "
            "order, only if blocks run out.",
            "The policy is chosen by the user, by arrival or by priority.",
            ("Scheduler.schedule", "RequestQueue"),
        ),
        SanityRule(
            "grammar_decides_what_is_sampled",
            "A request with a structured output starts when its grammar is ready, and each of its "
            "tokens is allowed by the grammar.",
            "The output must match the grammar.",
            ("Scheduler.get_grammar_bitmask", "StructuredOutputManager"),
        ),
        SanityRule(
            "image_is_encoded_once_before_it_is_read",
            "Tokens of an image are computed only while the encoder's output is kept, and the "
            "image is encoded only if none is.",
            "The model runner takes the output from the encoder cache and fails if there is none; "
            "encoding takes time and part of a budget.",
            ("Scheduler._try_schedule_encoder_inputs", "EncoderCacheManager"),
        ),
        SanityRule(
            "image_is_computed_whole",
            "If images must not be split, one step computes all tokens of an image.",
            "Image tokens of such models attend to the whole image, including later tokens.",
            ("SchedulerConfig.disable_chunked_mm_input", "Scheduler._try_schedule_encoder_inputs"),
        ),
        SanityRule(
            "layers_that_fit_are_served",
            "Start-up accepts layers if memory suffices for them and for a request of the "
            "maximum length.",
            "A model that fits into memory can be served with some grouping.",
            (*_GROUPS, *_RANKS),
        ),
        *(
            SanityRule(
                rule.sanity_rule,
                f"After start-up, {rule}.",
                reason,
                symbols,
            )
            for rule, (reason, symbols) in _PLANNING.items()
        ),
    )
}
"""Every sanity rule, by name."""


def cited(name: str) -> Claim | SanityRule:
    """The claim or the sanity rule of that name. Raises ValueError, with one sentence."""
    found = CLAIMS.get(name) or RULES.get(name)
    if found is None:
        raise ValueError(
            f"no claim or sanity rule is called {name!r}; see hitproof explain --codes"
        )
    return found


def sort_of(name: str) -> str:
    """What a finding that cites ``name`` contradicts, in words."""
    return "sanity rule" if name in RULES else "claim"
