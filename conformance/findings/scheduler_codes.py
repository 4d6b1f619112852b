"""The codes of whole schedulers: what their steps read and write, and what users get."""

from collections.abc import Mapping

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.rules import Rule
from hitproof.spec.claims import Divergence

_REPLAYS = "retention_keeps_resends_and_extensions"
_SIBLINGS = "retention_keeps_siblings"
_LONGEST = "lookup_returns_longest_valid_hit"
_COMMON_LONGEST = "common_hit_is_the_longest"
_KEPT = "mask_keeps_every_reachable_block"
_CHUNKS = "chunk_ends_where_a_state_is_kept"
_TOLD = "model_runner_is_told_what_is_so"
_WRITES = "step_writes_its_own_pages"
_IN_USE = "page_in_use_is_left_alone"
_ENDED = "ended_request_leaves_nothing"
_RESET = "reset_forgets_everything"
_ORDER = "requests_go_in_the_order_of_the_policy"
_ENCODED = "image_is_encoded_once_before_it_is_read"

_DRAFTS = Parameter(
    "drafts",
    "how drafts are proposed",
    {
        "head": ", with a draft head",
        "several-modules": ", with several MTP modules",
        "model": ", with a draft model",
        "ngram": ", with drafts by prompt lookup",
    },
    optional=True,
)
_STATES = Parameter(
    "states",
    "whether some group keeps recurrent states, which decide where chunks end",
    {"mamba": ", with Mamba states"},
    optional=True,
)
_IMAGES = Parameter(
    "images",
    "whether some requests have images, and whether one step computes all of an image",
    {"parts": ", with images", "whole": ", with images that are computed whole"},
    optional=True,
)
_ASYNC = Parameter(
    "scheduling",
    "whether the step was scheduled before the output of the last one was known",
    {"async": ", with asynchronous scheduling"},
    optional=True,
)

MEANINGS: Mapping[Code, Meaning] = {
    Code.REQUEST_NEVER_FINISHES: Meaning(
        "accepted request never finishes{way}{drafts}{states}{images}",
        "Start-up accepts the deployment and the request fits, but no further step computes a new "
        "token of it.",
        "The request never ends, and may block others, until the engine is restarted.",
        ("accepted_request_finishes",),
        (Divergence.CRASH,),
        (
            Parameter(
                "way",
                "whether it lacks blocks, so that a larger pool helps, or all steps are empty with "
                "any pool, or the same tokens are computed again and again, or steps are planned "
                "though all have ended or the engine is paused",
                {
                    "room": ", it needs more blocks than there are",
                    "stuck": ", all steps are empty",
                    "cycle": ", tokens are computed again forever",
                    "rest": ", the engine never comes to rest",
                },
            ),
            _DRAFTS,
            _STATES,
            _IMAGES,
        ),
    ),
    Code.DELIVERED_TOKENS_WRONG: Meaning(
        "user does not get the tokens that were sampled",
        "Tokens that the model sampled for a request are lost, duplicated or out of order.",
        "Outputs are wrong.",
        ("sampled_token_is_delivered_once",),
        (Divergence.UNSOUND,),
    ),
    Code.SESSION_TOKENS_WRONG: Meaning(
        "session continues with wrong tokens{of}",
        "An input of a streaming session continues from the earlier inputs and the output so far, "
        "except its last token. The model runner is given other tokens, or images in other places.",
        "Outputs are wrong.",
        (_TOLD,),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "of",
                "whether only images are wrong or misplaced",
                {"images": ", those of images only"},
                optional=True,
            ),
        ),
    ),
    Code.BLOCKS_HELD_WHEN_IDLE: Meaning(
        "blocks are held when no request is left",
        "All requests have ended, but some blocks still have references.",
        "The cache shrinks until the engine restarts.",
        (_ENDED,),
        (Divergence.WASTE,),
    ),
    Code.PROMISED_HIT_MISSED: Meaning(
        "promised hit is not found{to}{by}{states}",
        "The prefix of an ended request is looked up again, nothing can have been evicted, and "
        "less is found than could be kept.",
        "Outputs are right. More is computed than necessary, so time to first token grows.",
        (_REPLAYS, _SIBLINGS, _LONGEST, _COMMON_LONGEST, _KEPT, _CHUNKS),
        (Divergence.LOST_HIT,),
        (
            Parameter(
                "by",
                "the part that loses it: a lookup, which does not find what is cached; the "
                "coordinator, though each group alone finds it; the chunks, none of which ends at "
                "the boundary; the mask, which does not register it; or retention, which does not "
                "keep it",
                {
                    "lookup": ", the lookup does not find it",
                    "coordinator": ", the coordinator loses what each group finds",
                    "chunks": ", no chunk ends there",
                    "mask": ", it is not registered",
                    "retention": ", retention does not keep it",
                },
                claims={
                    "lookup": _LONGEST,
                    "coordinator": _COMMON_LONGEST,
                    "chunks": _CHUNKS,
                    "mask": _KEPT,
                },
            ),
            Parameter(
                "to",
                "whose hit it is",
                {
                    "resend": " by a repeat of the prompt",
                    "extension": " by an extension of the prompt",
                    "sibling": " by a request with the same prefix",
                },
                claims={"resend": _REPLAYS, "extension": _REPLAYS, "sibling": _SIBLINGS},
            ),
            _STATES,
        ),
    ),
    Code.PAGE_WRITTEN_TWICE: Meaning(
        "page is written twice in one step",
        "Two requests, two groups or two positions of one block table write to the same page.",
        "Each overwrites what the other needs: outputs are wrong.",
        (_WRITES,),
        (Divergence.UNSOUND,),
    ),
    Code.NULL_PAGE_WRITTEN: Meaning(
        "step writes into the null page",
        "A token is computed for which the block table has no page of its own.",
        "What is computed is lost: outputs are wrong.",
        (_WRITES,),
        (Divergence.UNSOUND,),
    ),
    Code.PAGE_FREED_IN_FLIGHT: Meaning(
        "page is freed while a scheduled step still reads or writes it{scheduling}{drafts}",
        "The step starts after the last drafts known to be right. A page that it needs from there "
        "on was freed when it was scheduled.",
        "If the page is reallocated before the step runs, outputs are wrong.",
        (_IN_USE,),
        (Divergence.UNSOUND,),
        (_ASYNC, _DRAFTS),
    ),
    Code.PAGE_NOT_ZEROED: Meaning(
        "partly filled page is read{reader} with leftover bytes of {of}",
        "Attention reads whole pages, and weights what is not computed yet by 0. What another "
        "group has left there in another format may be NaN, and 0 times NaN is NaN.",
        "Outputs are wrong where such bytes are NaN or infinite in the format of the reader.",
        ("unwritten_bytes_are_numbers",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "of",
                "what was left there",
                {"state": "a recurrent state", "precision": "a group of another precision"},
            ),
            Parameter(
                "reader",
                "whether the group that reads it has a window or chunks",
                {"local": " by a window or a chunk"},
                optional=True,
            ),
        ),
    ),
    Code.TRANSFERRED_PAGE_USED: Meaning(
        "page that a KV connector {what} is {how}",
        "A connector writes or reads the page until it reports that it is done. Steps do not wait "
        "for it, nor does it wait for steps.",
        "What is loaded, computed or sent is overwritten: outputs are wrong.",
        (_IN_USE,),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "what",
                "whether the connector writes or reads it",
                {"loads": "loads", "sends": "sends"},
            ),
            Parameter(
                "how",
                "whether it is free meanwhile, or used by a step scheduled meanwhile, or by a "
                "step that was scheduled before and still runs",
                {
                    "free": "free",
                    "step": "used by a step",
                    "in-flight": "used by a step that still runs",
                },
            ),
        ),
    ),
    Code.FAILED_LOAD_DELIVERED: Meaning(
        "user gets a token computed from a failed load{of}{policy}{scheduling}",
        "With the results of a step a KV connector reports blocks whose load failed. What is "
        "computed from them is wrong until they are recomputed.",
        "Outputs are wrong.",
        ("failed_load_is_never_delivered",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "of",
                "whose load failed: the request's own, or another's",
                {"own": " of its own", "other": " of another request"},
            ),
            Parameter(
                "policy",
                "whether a request whose load fails ends, or recomputes what is missing",
                {
                    "fail": ", though the request should end",
                    "recompute": ", though it should be recomputed",
                },
            ),
            _ASYNC,
        ),
    ),
    Code.CACHED_AFTER_RESET: Meaning(
        "blocks are cached or held after a reset",
        "A reset that restarts running requests leaves no key and no block in use.",
        "After a weight update, tokens are computed from stale blocks.",
        (_RESET,),
        (Divergence.UNSOUND,),
    ),
    Code.CONNECTOR_RESET_WRONG: Meaning(
        "KV connector is reset wrongly{how}",
        "A reset that includes the KV connector must make it forget its content, even while "
        "blocks are held on the device; nothing older is loaded afterwards. Other resets must "
        "leave the connector alone.",
        "After a weight update, tokens are computed from stale blocks; or what could be loaded is "
        "recomputed.",
        (_RESET,),
        (Divergence.UNSOUND, Divergence.LOST_HIT),
        (
            Parameter(
                "how",
                "whether the connector is not reset, or is reset needlessly; or its old content "
                "is found or loaded after the reset",
                {
                    "not-asked": ", it keeps its content",
                    "unwanted": ", it forgets content that it should keep",
                    "kept": ", its old content is found afterwards",
                    "loads": ", its old content is loaded afterwards",
                },
            ),
        ),
    ),
    Code.RESET_ANSWERED_WRONG: Meaning(
        "reset of the prefix cache reports the wrong result{how}",
        "A reset succeeds if no block is held, or if all requests that hold some restart, and the "
        "KV connector does not report a failure. It must report whether it succeeded.",
        "Stale blocks survive a weight update because the caller sees success; or the caller "
        "retries forever.",
        (_RESET,),
        (Divergence.UNSOUND, Divergence.WASTE),
        (
            Parameter(
                "how",
                "what it reports",
                {"done": ", namely success", "refused": ", namely failure"},
            ),
        ),
    ),
    Code.STEP_EXCEEDS_LIMIT: Meaning(
        "step exceeds a limit{limit}",
        "The step computes more than the configuration allows.",
        "Buffers of the model runner are too small for it, or one prompt holds up the others.",
        ("step_keeps_the_limits",),
        (Divergence.CRASH,),
        (
            Parameter(
                "limit",
                "which limit: on the tokens, requests or adapters of a step, on the tokens of one "
                "prompt while others wait, on the length, on splitting prompts, on free blocks "
                "(watermark), on work while paused, on requests without work, on tokens still in "
                "the pipeline ranks, or on the image encoder",
                {
                    "tokens": ", it has more than max_num_batched_tokens",
                    "requests": ", more than max_num_seqs run",
                    "adapters": ", its requests have more adapters than max_loras",
                    "prompt": ", one prompt gets more than long_prefill_token_threshold",
                    "length": ", it computes past max_model_len",
                    "chunks": ", it cuts a prompt though chunked prefill is off",
                    "watermark": ", it admits a request with less than the watermark free",
                    "pause": ", it computes tokens while the engine is paused",
                    "empty": ", it has a request without any tokens",
                    "ranks": ", it continues from a token that has not left the last pipeline rank",
                    "encoder": ", it encodes more image tokens than its budget",
                    "encoder-cache": ", more encoder outputs are kept than the cache has room for",
                },
            ),
        ),
    ),
    Code.STEP_LEAVES_WORK: Meaning(
        "step leaves out work that it has room for{what}{states}",
        "The step has tokens, request slots and blocks left, but a request gets fewer tokens than "
        "it could use.",
        "Outputs are right. Requests take more steps than necessary, or later ones find no state.",
        ("step_does_what_it_has_room_for",),
        (Divergence.WASTE,),
        (
            Parameter(
                "what",
                "which work: that of a running request, or of a waiting one, whose load by a KV "
                "connector may be complete; or drafts that a request can use or that its grammar "
                "accepts; or states at the ends of blocks",
                {
                    "running": ", of a running request",
                    "waiting": ", of a waiting request",
                    "loaded": ", of a request whose load is complete",
                    "drafts": ", drafts that a request can use",
                    "states": ", states at the ends of blocks",
                    "valid": ", drafts that a grammar accepts",
                },
            ),
            _STATES,
        ),
    ),
    Code.ADMITTED_OUT_OF_TURN: Meaning(
        "request is admitted out of turn",
        "By arrival, or by priority under that policy, another request is next.",
        "Requests wait longer than the policy allows.",
        (_ORDER,),
        (Divergence.POLICY_CHANGE,),
    ),
    Code.PREEMPTED_WRONGLY: Meaning(
        "request is preempted{how}",
        "It loses its blocks and restarts, although the policy would preempt another, or no "
        "preemption is needed.",
        "Outputs are right. The request's tokens are recomputed.",
        (_ORDER,),
        (Divergence.WASTE,),
        (
            Parameter(
                "how",
                "whether others come later, or blocks are free",
                {
                    "turn": " in place of one that comes later",
                    "need": " while blocks are free",
                },
            ),
        ),
    ),
    Code.DRAFT_COUNT_WRONG: Meaning(
        "step has a wrong number of drafts",
        "The tokens past the request's known ones are drafts.",
        "The model runner verifies other tokens than it computes: outputs are wrong.",
        (_TOLD,),
        (Divergence.UNSOUND,),
    ),
    Code.DRAFTS_COUNTED_WRONG: Meaning(
        "statistics miscount verified drafts",
        "The statistics have a wrong number of drafts, or of accepted drafts, for the steps whose "
        "outputs were processed. Drafts that grammars reject do not count.",
        "The metric is wrong.",
        ("statistics_count_what_happened",),
        (Divergence.WRONG_METRIC,),
    ),
    Code.GRAMMAR_IGNORED: Meaning(
        "request is served without its grammar{how}{scheduling}",
        "A request with a structured output waits until its grammar is ready. Then each token "
        "must be one that the grammar allows there, and drafts that it rejects are not verified.",
        "The output may violate the grammar; if that is noticed, the request ends with an error, "
        "or the engine crashes.",
        ("grammar_decides_what_is_sampled",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "how",
                "whether it is computed before the grammar is ready, or rejected drafts are "
                "verified, or tokens are not restricted, or are restricted as at another position",
                {
                    "early": " before it is ready",
                    "drafts": ", with drafts that it rejects",
                    "mask": ", every token is allowed",
                    "state": ", tokens are restricted as at another position",
                },
            ),
            _ASYNC,
        ),
    ),
    Code.ENCODER_OUTPUT_MISSING: Meaning(
        "{of} of an image are computed without the encoder's output{how}",
        "The step computes tokens of an image, or entries of draft layers that depend on its "
        "first tokens, but the model runner does not have the encoder's output for it.",
        "The engine crashes. If only draft layers lack it, fewer drafts are accepted (up to 0.23 "
        "the engine crashes as well).",
        (_ENCODED,),
        (Divergence.CRASH, Divergence.WRONG_DRAFTS),
        (
            Parameter(
                "of",
                "what is computed",
                {"tokens": "tokens", "drafts": "draft entries"},
            ),
            Parameter(
                "how",
                "whether it was encoded before; of draft entries, whether there was no room for it",
                {
                    "never": ", which was not made",
                    "freed": ", which was freed",
                    "reset": ", which a reset dropped",
                    "full": ", for which there is no room",
                },
                optional=True,
            ),
        ),
    ),
    Code.IMAGE_ENCODED_AGAIN: Meaning(
        "image is encoded again while its output is kept",
        "The model runner has the encoder's output of the image, and a step encodes it.",
        "Outputs are right. Time and the encoder's budget are lost.",
        (_ENCODED,),
        (Divergence.WASTE,),
    ),
    Code.IMAGE_SPLIT: Meaning(
        "image{which} is computed in parts although it must be computed whole",
        "One step computes the first tokens of an image but not the last one, although images "
        "must not be split, as for models whose image tokens attend to the whole image.",
        "Tokens of the first step do not attend to the others: outputs are wrong.",
        ("image_is_computed_whole",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "which",
                "whether the step starts with the image, or would continue with an adjacent one, "
                "or the encoder's output was already kept",
                {
                    "first": " that a step starts with",
                    "adjacent": " right before another one",
                    "kept": " whose output is kept",
                },
                optional=True,
            ),
        ),
    ),
    Code.IMAGES_HELD_WHEN_IDLE: Meaning(
        "encoded images are held when no request is left",
        "All requests have ended, but some encoder outputs cannot be freed.",
        "The encoder's cache shrinks until the engine restarts.",
        (_ENDED,),
        (Divergence.WASTE,),
    ),
    Code.DERIVED_GROUPS_WRONG: Meaning(
        "groups that start-up derives from layers are wrong{rule}",
        "Start-up groups the layers, sizes blocks and pages, and lays the pool out.",
        "Layers share bytes or lack them, a worker does not start, or memory is lost.",
        tuple(each.sanity_rule for each in Rule),
        (Divergence.UNSOUND, Divergence.CRASH, Divergence.WASTE),
        (
            Parameter(
                "rule",
                "the rule that they break",
                {each.parameter: f"; the rule is that {each}" for each in Rule},
                claims={each.parameter: each.sanity_rule for each in Rule},
            ),
        ),
    ),
    Code.LAYERS_REFUSED: Meaning(
        "start-up refuses layers that fit{error}",
        "The memory suffices for them and for a request of the maximum length.",
        "The model cannot be served: start-up raises an exception, or reports too little memory "
        "because grouping wasted it.",
        ("layers_that_fit_are_served",),
        (Divergence.CRASH, Divergence.WASTE),
        (
            Parameter(
                "error",
                "the class of the exception",
                " ({})",
            ),
        ),
    ),
    Code.END_REPORTED_WRONG: Meaning(
        "end of a request is reported {how}",
        "The model runner forgets a request when it is told once that the request has ended.",
        "It forgets a request that is still running, or keeps one that has ended.",
        (_TOLD,),
        (Divergence.CRASH,),
        (
            Parameter(
                "how",
                "whether too early, more than once, or not at all",
                {"early": "before it ends", "again": "again", "never": "never"},
            ),
        ),
    ),
}
"""What each code means."""
