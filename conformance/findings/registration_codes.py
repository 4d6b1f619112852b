"""The codes of registrations: blocks and entries that the producer registers, or leaves out."""

from collections.abc import Mapping

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.parameters import (
    ANY_RETENTION,
    DURING,
    FREED,
    INSTEAD,
    LONG_LOOKAHEAD,
    MODULES,
    PLACES,
    PROMISED_TO,
    RETENTION,
    SEGMENT,
    STATES,
)
from hitproof.spec.claims import Divergence

_KEPT = "mask_keeps_every_reachable_block"
_ONLY = "mask_keeps_only_reachable_blocks"
_REPLAYS = "retention_keeps_resends_and_extensions"
_SIBLINGS = "retention_keeps_siblings"
_JUNCTIONS = "retention_keeps_junctions"
_PROMISED_ONLY = "retention_keeps_only_promised_blocks"
_PROMISES = (_REPLAYS, _SIBLINGS, _JUNCTIONS)

_LOST = (Divergence.LOST_HIT,)
_WASTE = (Divergence.WASTE,)
_SLOW = "Outputs are right. A later request with the same prefix computes again what was computed "
_SLOW += "before, so time to first token grows."
_SPACE = "Outputs are right. Blocks that no hit can use displace useful ones from the cache."

MEANINGS: Mapping[Code, Meaning] = {
    **{
        code: Meaning(
            f"{role} block is not registered{{during}}{{freed}}",
            f"The producer leaves out a block that a reachable hit requires: {what}.",
            _SLOW,
            (_KEPT,),
            _LOST,
            (DURING, FREED),
        )
        for code, role, what in (
            (
                Code.LOOKAHEAD_BLOCK_UNREGISTERED,
                "lookahead",
                "the one past the hit's end, which a lookup with EAGLE matches and drops",
            ),
            (Code.PREFIX_BLOCK_UNREGISTERED, "prefix", "full attention reads every block"),
            (
                Code.TAIL_BLOCK_UNREGISTERED,
                "tail",
                "one of the blocks that a sliding window reads before the hit's end",
            ),
            (
                Code.CHUNK_BLOCK_UNREGISTERED,
                "chunk",
                "one of the blocks of the chunk that the hit ends in",
            ),
            (
                Code.STATE_BLOCK_UNREGISTERED,
                "state",
                "the one with the Mamba state at the hit's end",
            ),
        )
    },
    Code.UNREACHABLE_BLOCK_REGISTERED: Meaning(
        "block {place} is registered{during} though no hit can use it{segment}",
        "The producer registers a block that no hit requires.",
        _SPACE,
        (_ONLY,),
        _WASTE,
        (
            Parameter("place", "where the block is", PLACES),
            SEGMENT,
            DURING,
        ),
    ),
    Code.BLOCK_REGISTERED_EARLY: Meaning(
        "block is registered before its boundary is reached{during}",
        "The hits that can use the block are longer than what the request has computed.",
        _SPACE,
        (_ONLY,),
        _WASTE,
        (DURING,),
    ),
    Code.UNFINAL_BLOCK_REGISTERED: Meaning(
        "block is registered before its content is final{during}",
        "A draft model will recompute tokens of the block, so its content may change after "
        "another request has hit it.",
        "Outputs are right. A draft layer of another request reads entries that are overwritten, "
        "so fewer drafts are accepted.",
        (_ONLY,),
        (Divergence.WRONG_DRAFTS,),
        (DURING,),
    ),
    Code.PROMISED_BLOCK_UNREGISTERED: Meaning(
        "block of the promised {hit} is not registered{freed}{instead}{modules}",
        "Under sparse retention the producer leaves out a block that a promised hit requires.",
        _SLOW,
        _PROMISES,
        _LOST,
        (PROMISED_TO, FREED, INSTEAD, MODULES),
    ),
    Code.UNPROMISED_BLOCK_REGISTERED: Meaning(
        "block that no promised hit needs is registered",
        "Under sparse retention the producer keeps a block that no hit can use: neither a "
        "promised hit, nor one of a follow-up turn, nor the hit that remains if a promised one is "
        "lost.",
        _SPACE,
        (_PROMISED_ONLY,),
        _WASTE,
    ),
    Code.PROMISED_ENTRY_UNREGISTERED: Meaning(
        "entry inside a block, of the promised {hit}, is not registered{states}",
        "If hits may end inside blocks, a promised hit needs an entry there, and no suitable one "
        "is registered.",
        _SLOW,
        _PROMISES,
        _LOST,
        (PROMISED_TO, STATES),
    ),
    Code.PROMISED_ENTRY_EVICTED: Meaning(
        "entry inside a block, of the promised {hit}, is evicted though free blocks are "
        "left{states}",
        "If hits may end inside blocks, a promised hit needs an entry there; it is removed while "
        "the pool still has blocks that were never used.",
        _SLOW,
        _PROMISES,
        _LOST,
        (PROMISED_TO, STATES),
    ),
    Code.UNPROMISED_ENTRY_REGISTERED: Meaning(
        "entry inside a block that no promised hit needs is registered",
        "Under sparse retention the producer keeps a Mamba state inside a block that no promised "
        "hit needs.",
        _SPACE,
        (_PROMISED_ONLY,),
        _WASTE,
    ),
    Code.PROMISED_HIT_LOST: Meaning(
        "promised {hit} is lost, {kept}, {retention}{lookahead}{instead}",
        "Retention does not keep a block required by the hit of the same prompt (resend), of a "
        "longer one (extension), or of one with the same prefix (sibling).",
        _SLOW,
        (_REPLAYS, _SIBLINGS),
        _LOST,
        (
            PROMISED_TO,
            Parameter(
                "kept",
                "whether the hit one boundary earlier is kept",
                {
                    "earlier": "the hit one boundary earlier is kept",
                    "none": "the hit one boundary earlier is lost too",
                },
            ),
            RETENTION,
            LONG_LOOKAHEAD,
            INSTEAD,
        ),
    ),
    Code.UNPROMISED_BLOCK_KEPT: Meaning(
        "block of {hit} is kept, {retention}{lookahead}",
        "Retention keeps a block that no hit can use: neither a promised hit, nor one of a "
        "follow-up turn, nor the hit that remains if a promised one is lost.",
        _SPACE,
        (_PROMISED_ONLY,),
        _WASTE,
        (
            Parameter(
                "hit",
                "which hit requires the block",
                {"empty": "a hit of 0 tokens", "unpromised": "a hit that is not promised"},
            ),
            RETENTION,
            LONG_LOOKAHEAD,
        ),
    ),
    Code.INTERVAL_NOT_REFUSED: Meaning(
        "retention interval that is not a multiple of the alignment is accepted",
        "Start-up accepts a retention interval at which no hit can end.",
        _SLOW,
        (_SIBLINGS,),
        _LOST,
    ),
    Code.JUNCTION_NOT_HIT: Meaning(
        "shared prefix is not hit again, {found}, {retention}",
        "The second of three requests reveals that their prefix is shared. The third hits less of "
        "it than if every block and state were kept.",
        _SLOW,
        (_JUNCTIONS,),
        _LOST,
        (
            Parameter(
                "found",
                "what the third request hits",
                {"nothing": "the third request hits nothing", "some": "only part of it is hit"},
            ),
            ANY_RETENTION,
        ),
    ),
    Code.SHARED_PREFIX_UNREPORTED: Meaning(
        "shared prefix is not reported",
        "A lookup returns no `shared_prefix_boundary` although full attention has more of the "
        "prompt cached than the hit covers.",
        "Sparse retention and Mamba keep a shared prefix only once it is reported, so the next "
        "request that shares it does not hit it.",
        (_JUNCTIONS,),
        _LOST,
    ),
    Code.SHARED_PREFIX_BOUNDARY_WRONG: Meaning(
        "shared-prefix boundary is reported for a prefix that is not shared",
        "A lookup returns a `shared_prefix_boundary` past the hit that no group can serve.",
        _SPACE,
        (_JUNCTIONS,),
        _WASTE,
    ),
}
