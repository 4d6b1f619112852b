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
    {"mamba": ", beside Mamba states"},
    optional=True,
)
_IMAGES = Parameter(
    "images",
    "whether requests with images are among them, and whether one step computes all of an image",
    {"parts": ", beside images", "whole": ", beside images that are computed whole"},
    optional=True,
)
_ASYNC = Parameter(
    "scheduling",
    "whether the step was planned before the output of the last one was known",
    {"async": ", with asynchronous scheduling"},
    optional=True,
)

MEANINGS: Mapping[Code, Meaning] = {
    Code.REQUEST_NEVER_FINISHES: Meaning(
        "accepted request never finishes{way}{drafts}{states}{images}",
        "Start-up allows the deployment, and the request fits into it, but no further step "
        "computes a new token of it.",
        "The request never ends, and others may wait behind it, until the engine is restarted.",
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
                    "cycle": ", tokens are computed again for ever",
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
        "Tokens that the model sampled for a request are lost, doubled or out of order.",
        "Outputs are wrong.",
        ("sampled_token_is_delivered_once",),
        (Divergence.UNSOUND,),
    ),
    Code.SESSION_TOKENS_WRONG: Meaning(
        "session does not go on with its tokens{of}",
        "An input of a streaming session goes on with what came before it and the output so far, "
        "but for the last token. The model runner is told other tokens, or images in other places.",
        "Outputs are wrong.",
        (_TOLD,),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "of",
                "whether only images are not those, or elsewhere",
                {"images": ", those of images"},
                optional=True,
            ),
        ),
    ),
    Code.BLOCKS_HELD_WHEN_IDLE: Meaning(
        "blocks are held when no request is left",
        "All requests have ended, and some blocks still have references.",
        "The cache becomes smaller until the engine restarts.",
        (_ENDED,),
        (Divergence.WASTE,),
    ),
    Code.PROMISED_HIT_MISSED: Meaning(
        "promised hit is not found{to}{by}{states}",
        "What an ended request has computed is looked up again, nothing can have been evicted, and "
        "less of it is found than could be kept.",
        "Outputs are right. More is computed than need be, so time to first token grows.",
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
                    "resend": " by a resend",
                    "extension": " by an extension of the prompt",
                    "sibling": " by a sibling",
                },
                claims={"resend": _REPLAYS, "extension": _REPLAYS, "sibling": _SIBLINGS},
            ),
            _STATES,
        ),
    ),
    Code.PAGE_WRITTEN_TWICE: Meaning(
        "page is written through two names in one step",
        "Two requests, two groups or two places of one block table write into one page.",
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
        "page is freed that a planned step still reads or writes{scheduling}{drafts}",
        "The step starts where the last drafts are known to be right. A page that it needs from "
        "there was freed when it was planned.",
        "If the page is handed out before the step ran, outputs are wrong.",
        (_IN_USE,),
        (Divergence.UNSOUND,),
        (_ASYNC, _DRAFTS),
    ),
    Code.PAGE_NOT_ZEROED: Meaning(
        "page that is not full is read{reader} with bytes of {of}",
        "Attention reads whole pages, and weighs what is not computed yet by 0. What another group "
        "has left there in another format may not be a number, and 0 times that is none either.",
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
        "A connector writes the page, or reads it, until it reports that it is done. No step waits "
        "for that, and it waits for no step.",
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
                "whether it is free meanwhile, or a step reads or writes it that is planned "
                "meanwhile, or that was planned before and still runs",
                {
                    "free": "free",
                    "step": "used by a step",
                    "in-flight": "used by a step that still runs",
                },
            ),
        ),
    ),
    Code.FAILED_LOAD_DELIVERED: Meaning(
        "user gets a token that comes of a failed load{of}{policy}{scheduling}",
        "With the results of a step a KV connector reports blocks whose load has failed. What is "
        "computed from them is wrong, until they are computed again.",
        "Outputs are wrong.",
        ("failed_load_is_never_delivered",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "of",
                "whose load it is: that of the request itself, or of another",
                {"own": " of its own", "other": " of another request"},
            ),
            Parameter(
                "policy",
                "whether requests whose load fails end, or compute what they lack",
                {"fail": ", where it is to end", "recompute": ", where it is computed again"},
            ),
            _ASYNC,
        ),
    ),
    Code.CACHED_AFTER_RESET: Meaning(
        "blocks are cached or held after a reset",
        "A reset that starts running requests again leaves no key and no block in use.",
        "After an update of the weights, tokens are computed from blocks of the old weights.",
        (_RESET,),
        (Divergence.UNSOUND,),
    ),
    Code.CONNECTOR_RESET_WRONG: Meaning(
        "KV connector is reset wrongly{how}",
        "A reset that is to include the KV connector asks it to forget what it has, also where "
        "blocks are held here; nothing of before is loaded from then on. Other resets leave it "
        "alone.",
        "After an update of the weights, tokens are computed from blocks of the old weights; or "
        "what could be loaded is computed again.",
        (_RESET,),
        (Divergence.UNSOUND, Divergence.LOST_HIT),
        (
            Parameter(
                "how",
                "whether it is not asked, or is asked without need; or what it had is found, or "
                "loaded, after it",
                {
                    "not-asked": ", it is not asked to forget what it has",
                    "unwanted": ", it is asked to forget what it is to keep",
                    "kept": ", what it had is found after it",
                    "loads": ", what it had is loaded after it",
                },
            ),
        ),
    ),
    Code.RESET_ANSWERED_WRONG: Meaning(
        "reset of the prefix cache answers wrongly{how}",
        "A reset is done where no block is held, or all that holds some starts again, and the KV "
        "connector does not say that it could not. It says whether it is done.",
        "Blocks of old weights are used, as nobody tries again; or it is tried for ever.",
        (_RESET,),
        (Divergence.UNSOUND, Divergence.WASTE),
        (
            Parameter(
                "how",
                "what it answers",
                {"done": ", that it is done", "refused": ", that it is not done"},
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
                "which limit: the tokens, requests or adapters of a step, the tokens of a prompt "
                "in it while others are there, the greatest length, that prompts are not cut, or "
                "the blocks that stay free, that the engine is paused, that all in it compute "
                "something, that tokens come back from the last pipeline rank, or those of the "
                "encoder of images",
                {
                    "tokens": ", it has more than max_num_batched_tokens",
                    "requests": ", more than max_num_seqs run",
                    "adapters": ", its requests have more adapters than max_loras",
                    "prompt": ", one prompt gets more than long_prefill_token_threshold",
                    "length": ", it computes past max_model_len",
                    "chunks": ", it cuts a prompt though chunked prefill is off",
                    "watermark": ", it admits a request with less than the watermark free",
                    "pause": ", it computes what is paused",
                    "empty": ", it has a request of which nothing is computed",
                    "ranks": ", it goes on from a token that is still on its way through the ranks",
                    "encoder": ", it encodes more of images than its budget",
                    "encoder-cache": ", more of images is kept than the cache has room for",
                },
            ),
        ),
    ),
    Code.STEP_LEAVES_WORK: Meaning(
        "step leaves work that it has room for{what}{states}",
        "Tokens, places and blocks are left in the step, and a request gets fewer tokens than it "
        "has.",
        "Outputs are right. Requests take more steps than need be, or later ones find no state.",
        ("step_does_what_it_has_room_for",),
        (Divergence.WASTE,),
        (
            Parameter(
                "what",
                "whose work it is: that of a request that runs, or of one that waits, for which "
                "a KV connector may have loaded what it has; or drafts "
                "that a request can use, or that its grammar accepts; or states at the ends of "
                "blocks",
                {
                    "running": ", of a request that runs",
                    "waiting": ", of a request that waits",
                    "loaded": ", of a request that holds what was loaded for it",
                    "drafts": ", drafts that a request can use",
                    "states": ", states at the ends of blocks",
                    "valid": ", drafts that a grammar accepts",
                },
            ),
            _STATES,
        ),
    ),
    Code.ADMITTED_OUT_OF_TURN: Meaning(
        "request is admitted before one that comes first",
        "By arrival, or by priority where that is the policy, another request is the next.",
        "Requests wait longer than their turn.",
        (_ORDER,),
        (Divergence.POLICY_CHANGE,),
    ),
    Code.PREEMPTED_WRONGLY: Meaning(
        "request is preempted{how}",
        "It loses its blocks and starts again, where another comes later by policy, or nobody "
        "needs to.",
        "Outputs are right. What it has computed is computed again.",
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
        "step says another number of drafts than it computes",
        "The tokens past those that the request knows are drafts.",
        "The model runner verifies other tokens than it computes: outputs are wrong.",
        (_TOLD,),
        (Divergence.UNSOUND,),
    ),
    Code.DRAFTS_COUNTED_WRONG: Meaning(
        "statistics count other drafts than are verified",
        "Statistics have another number of drafts, or of accepted ones, than the steps whose "
        "outputs were taken up; drafts that grammars reject do not count.",
        "The metric is wrong.",
        ("statistics_count_what_happened",),
        (Divergence.WRONG_METRIC,),
    ),
    Code.GRAMMAR_IGNORED: Meaning(
        "request is served without its grammar{how}{scheduling}",
        "A request with a structured output waits until its grammar is ready; then each token is "
        "one that the grammar allows after those before it, and drafts that it rejects are not "
        "verified.",
        "The output may break the grammar; where that is noticed, the request ends with an error, "
        "or the engine dies.",
        ("grammar_decides_what_is_sampled",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "how",
                "whether it is computed before the grammar is ready, or drafts are verified that "
                "the grammar rejects, or a token is sampled of all that there are, or of those "
                "that are allowed elsewhere",
                {
                    "early": " before it is ready",
                    "drafts": ", with drafts that it rejects",
                    "mask": ", every token is allowed",
                    "state": ", tokens are allowed that it allows elsewhere",
                },
            ),
            _ASYNC,
        ),
    ),
    Code.ENCODER_OUTPUT_MISSING: Meaning(
        "{of} of an image are computed without the encoder's output{how}",
        "The step computes tokens of an image, or entries of draft layers that depend on its first "
        "tokens, and the model runner does not have what the encoder makes of it.",
        "The engine dies. Where only draft layers lack it, fewer drafts are accepted; up to 0.23 "
        "the engine dies then, too.",
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
                    "reset": ", which a reset has dropped",
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
        "image{which} is computed in parts where it is to be computed whole",
        "One step computes the first tokens of an image, and not the last one, though images are "
        "not to be cut, as for models whose image tokens attend to all of the image.",
        "Those of the first step do not see the others: outputs are wrong.",
        ("image_is_computed_whole",),
        (Divergence.UNSOUND,),
        (
            Parameter(
                "which",
                "whether the step starts with the image, or would go on to another one right "
                "behind it, or the encoder's output of it was there already",
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
        "All requests have ended, and some outputs of the encoder cannot be given up.",
        "The encoder's cache becomes smaller until the engine restarts.",
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
        "start-up refuses layers for which there is room{error}",
        "There is memory for them and for a request of the greatest length.",
        "The model cannot be served: start-up raises an exception, or says that memory is too "
        "small because grouping has wasted it.",
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
        "The model runner forgets a request when it is told, once, that it has ended.",
        "It forgets a request that goes on, or keeps one that has ended.",
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
