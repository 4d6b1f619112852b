"""The codes of tiers: blocks that a tier stores, asks for and loads, or leaves out."""

from collections.abc import Mapping

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.parameters import PLACES, SEGMENT
from hitproof.spec.claims import Divergence

_KEPT = "tier_keeps_every_reachable_block"
_ONLY = "tier_keeps_only_reachable_blocks"
_LOADS = "tier_loads_the_served_run"

_MASK = Parameter(
    "mask",
    "which mask of the tier it is: that of what is stored, or of what a lookup asks for",
    {"store": "stored", "lookup": "asked for"},
)
_ROLES = {"prefix": "prefix", "tail": "tail", "chunk": "chunk", "state": "state"}

MEANINGS: Mapping[Code, Meaning] = {
    Code.TIER_BLOCK_LEFT_OUT: Meaning(
        "{block} block of a hit is not {mask} by the tier",
        "A tier does not store, or its lookup does not ask for, a block that a reachable hit "
        "requires.",
        "Outputs are right. The tier does not serve the hit, so its tokens are computed again.",
        (_KEPT,),
        (Divergence.LOST_HIT,),
        (
            Parameter(
                "block", "what the block is to the hit", {"lookahead": "lookahead", **_ROLES}
            ),
            _MASK,
        ),
    ),
    Code.TIER_BLOCK_UNREACHABLE: Meaning(
        "block {place} is {mask} by the tier though no hit can use it{segment}",
        "A tier stores, or its lookup asks for, a block that no hit requires.",
        "Outputs are right. The tier fills with blocks that no hit can use, and writes or asks for "
        "them in vain.",
        (_ONLY,),
        (Divergence.WASTE,),
        (
            Parameter(
                "place",
                "where the block is",
                {**PLACES, "outside": "that is not of these tokens"},
            ),
            _MASK,
            SEGMENT,
        ),
    ),
    Code.TIER_BLOCK_NOT_LOADED: Meaning(
        "load of a hit lacks a {block} block",
        "A tier serves a hit and does not load a block that the request then reads.",
        "The model computes on blocks that were not loaded: outputs are wrong, and nothing is "
        "reported.",
        (_LOADS,),
        (Divergence.UNSOUND,),
        (Parameter("block", "what the block is to the hit", _ROLES),),
    ),
    Code.TIER_BLOCK_LOADED_UNREAD: Meaning(
        "load of a hit has a block that the request does not read",
        "A tier loads a block that is past the hit, or that no token after the hit reads.",
        "Outputs are right. Blocks are transferred in vain, so time to first token grows.",
        (_LOADS,),
        (Divergence.WASTE,),
    ),
}
