"""The codes of content: hashes, keys, and what the blocks hold that are read."""

from collections.abc import Mapping
from itertools import combinations

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.parameters import AFTER_METHOD, MODULES, SESSIONS, STATES
from hitproof.spec.claims import Divergence

_READ = "hit_has_every_block_attention_reads"
_SHARED = "reused_content_is_determined_by_the_hit"
_NAMED = "cached_key_names_its_content"
_STEP_READS = "step_reads_what_was_computed"

_UNSOUND = (Divergence.UNSOUND,)
_LOST = (Divergence.LOST_HIT,)
_WRONG = "The model computes on keys, values or states that are not those of the prompt: outputs "
_WRONG += "are wrong, and nothing is reported."
_SLOW = "Outputs are right. A later request with the same prefix computes again what was computed "
_SLOW += "before, so time to first token grows."

_INPUTS = ("tokens", "salts", "adapters", "images", "embeddings")
_HASHES = Parameter(
    "hashes",
    "whether the hashes cover tokens after their block",
    {"lookahead": " with lookahead"},
    optional=True,
)

MEANINGS: Mapping[Code, Meaning] = {
    Code.HASH_COLLISION: Meaning(
        "block hashes{hashes} are equal for different {inputs}",
        "Two prompts differ in something that a block's content depends on, but the block's hash "
        "is the same.",
        "One request is served what another computed: outputs are wrong, and a tenant with "
        "another cache salt can find out what others have sent.",
        (_SHARED,),
        _UNSOUND,
        (
            _HASHES,
            Parameter(
                "inputs",
                "what differs: tokens, cache salts, LoRA adapters, images, embeddings",
                {
                    "-".join(some): " and ".join(some)
                    for size in range(1, len(_INPUTS) + 1)
                    for some in combinations(_INPUTS, size)
                },
            ),
        ),
    ),
    Code.HASH_MISMATCH: Meaning(
        "block hashes{hashes} differ for equal content",
        "Two prompts agree in everything that a block's content depends on, but the block's "
        "hash differs.",
        _SLOW,
        (_SHARED,),
        _LOST,
        (_HASHES,),
    ),
    Code.TWO_CONTENTS_UNDER_KEY: Meaning(
        "two contents share a key",
        "In a history two blocks of different content have the same key.",
        _WRONG,
        (_SHARED,),
        _UNSOUND,
    ),
    Code.TWO_KEYS_FOR_CONTENT: Meaning(
        "one content has two keys",
        "In a history the same content has different keys.",
        _SLOW,
        (_SHARED,),
        _LOST,
    ),
    Code.KEY_NAMES_OTHER_CONTENT: Meaning(
        "key finds a block with other content{layers}{states}{method}{modules}{requests}",
        "The content of a cached block is not what its key is the hash of.",
        _WRONG + " Where only entries of draft layers are others, the model's outputs are right, "
        "and fewer drafts are accepted.",
        (_NAMED,),
        (Divergence.UNSOUND, Divergence.WRONG_DRAFTS),
        (
            Parameter(
                "layers",
                "whether only entries of draft layers are wrong",
                {"draft": ", in draft layers only"},
                optional=True,
            ),
            STATES,
            AFTER_METHOD,
            MODULES,
            SESSIONS,
        ),
    ),
    Code.NULL_BLOCK_READ: Meaning(
        "null or missing block is read{after}{requests}",
        "At a position that a step reads, the request's block table has a null block or no entry.",
        _WRONG,
        (_READ, _STEP_READS),
        _UNSOUND,
        (
            Parameter(
                "after",
                "whether a KV connector loaded tokens of the request, or drafts in flight were "
                "counted as computed and then rejected",
                {"load": " after a load", "rejection": " after drafts in flight are rejected"},
                optional=True,
                claims={"load": _STEP_READS, "rejection": _STEP_READS},
            ),
            SESSIONS,
        ),
    ),
    Code.OTHER_CONTENT_READ: Meaning(
        "block with other content is read{of}{requests}",
        "A step reads a block whose content is not the request's own prefix, such as one that a "
        "KV connector failed to load.",
        _WRONG,
        (_READ, _STEP_READS),
        _UNSOUND,
        (
            Parameter(
                "of",
                "whether the content is that of a load that the KV connector reports invalid",
                {"invalid-load": ", from an invalid load"},
                optional=True,
                claims={"invalid-load": _STEP_READS},
            ),
            SESSIONS,
        ),
    ),
    Code.DRAFT_ENTRY_OF_OTHER_TOKEN: Meaning(
        "draft layer's entry depends on {of}another request's token{requests}",
        "A draft layer's entry for a token depends on the next token, with several MTP modules on "
        "several. A block's hash does not cover the tokens after its last one.",
        "Outputs are right. Drafts are computed from another request's token, so fewer are "
        "accepted.",
        (_SHARED,),
        (Divergence.WRONG_DRAFTS,),
        (
            Parameter(
                "of",
                "whether the tokens were drafts when the entry was computed",
                {"drafts": "drafts, not "},
                optional=True,
            ),
            SESSIONS,
        ),
    ),
    Code.STATE_READ_TOO_EARLY: Meaning(
        "Mamba state is read in the step that computes it{states}{requests}",
        "A request resumes from a state that another request computes in the same step, so the "
        "state does not exist yet.",
        _WRONG,
        (_READ,),
        _UNSOUND,
        (STATES, SESSIONS),
    ),
}
