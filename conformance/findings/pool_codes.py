"""The codes of the block pool: free queue, reference counts, keys, the null block."""

from collections.abc import Mapping

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.parameters import METHOD
from hitproof.spec.claims import Divergence

_IN_USE = "block_in_use_is_never_evicted"
_COUNT = "free_count_is_free_queue_length"
_NULL = "null_block_is_never_served"
_NAMES = "cached_key_names_its_content"
_ORDER = "least_recently_used_block_goes_first"
_ADMISSION = "admitted_request_gets_its_blocks"
_HELD = "request_holds_only_what_it_reads"
_ENDED = "ended_request_leaves_nothing"
_HANDED = "connector_is_handed_the_blocks_of_its_tokens"
_EVENTS = "events_describe_the_cache"
_STATISTICS = "statistics_count_what_happened"

_UNSOUND = (Divergence.UNSOUND,)
_OVERWRITTEN = (
    "A block is allocated to one request while another uses it: outputs of both are wrong."
)
_NULL_READ = "Requests write into the null block, or read it: outputs are wrong."
_STALE = "A request is served other content that the block had: outputs are wrong."
_SMALLER = "The block is never used again: the cache shrinks until the engine restarts."
_CRASH = "The engine gets fewer blocks than it was promised, and crashes."
_LATER = "Counts drift: blocks in use are freed, or blocks are never freed."
_LOST = "Outputs are right. Cached content is not found, so it is computed again."


def _seen(
    what: str,
    means: str,
    effect: str,
    claim: str,
    *classes: Divergence,
) -> Meaning:
    """What is seen of the pool after a method."""
    return Meaning(f"{what} after {{method}}", means, effect, (claim,), classes, (METHOD,))


MEANINGS: Mapping[Code, Meaning] = {
    Code.NULL_BLOCK_QUEUED: _seen(
        "null block is in the free queue",
        "The null block stands for blocks that are never read. It is never allocated.",
        _NULL_READ,
        _NULL,
        Divergence.UNSOUND,
    ),
    Code.NULL_BLOCK_CACHED: _seen(
        "null block is cached",
        "The null block has no content, so no key may find it.",
        _NULL_READ,
        _NULL,
        Divergence.UNSOUND,
    ),
    Code.NULL_BLOCK_HANDED_OUT: Meaning(
        "get_new_blocks returns the null block",
        "The null block stands for blocks that are never read. It is never allocated.",
        _NULL_READ,
        (_NULL,),
        _UNSOUND,
    ),
    Code.NULL_BLOCK_FOUND: _seen(
        "lookup finds the null block",
        "The null block has no content, so no key may find it.",
        _NULL_READ,
        _NULL,
        Divergence.UNSOUND,
    ),
    Code.BLOCK_IN_USE_HANDED_OUT: Meaning(
        "get_new_blocks returns a block that is in use",
        "A block of a block table is allocated again: it was not in the free queue.",
        _OVERWRITTEN,
        (_IN_USE,),
        _UNSOUND,
    ),
    Code.HANDED_OUT_COUNT_WRONG: Meaning(
        "get_new_blocks returns the wrong number of blocks",
        "The pool returns more or fewer blocks than were asked for.",
        _CRASH,
        (_COUNT,),
        (Divergence.CRASH,),
    ),
    Code.REFERENCE_COUNT_TOO_LOW: _seen(
        "reference count is too low",
        "More block tables hold the block than its reference count says.",
        _OVERWRITTEN,
        _IN_USE,
        Divergence.UNSOUND,
    ),
    Code.REFERENCE_COUNT_TOO_HIGH: _seen(
        "reference count is too high",
        "Fewer block tables hold the block than its reference count says.",
        _SMALLER,
        _IN_USE,
        Divergence.WASTE,
    ),
    Code.REFERENCE_COUNT_WRONG: Meaning(
        "reference count is not the number of table entries",
        "On a whole manager the reference count of a block is not the number of its entries in "
        "block tables.",
        _LATER,
        (_IN_USE,),
        _UNSOUND,
    ),
    Code.BLOCK_QUEUED_TWICE: _seen(
        "block is in the free queue twice",
        "The free queue has each free block once; this block would be allocated twice.",
        _OVERWRITTEN,
        _COUNT,
        Divergence.UNSOUND,
    ),
    Code.BLOCK_IN_USE_QUEUED: _seen(
        "block in use is in the free queue",
        "The block can be allocated while a block table holds it.",
        _OVERWRITTEN,
        _IN_USE,
        Divergence.UNSOUND,
    ),
    Code.UNUSED_BLOCK_NOT_QUEUED: _seen(
        "unused block is not in the free queue",
        "No block table holds the block, but it cannot be allocated.",
        _SMALLER,
        _COUNT,
        Divergence.WASTE,
    ),
    Code.FREE_COUNT_TOO_HIGH: _seen(
        "count of free blocks is too high",
        "The count is more than the length of the free queue.",
        _CRASH,
        _COUNT,
        Divergence.CRASH,
    ),
    Code.FREE_COUNT_TOO_LOW: _seen(
        "count of free blocks is too low",
        "The count is less than the length of the free queue.",
        "Blocks stay unused: fewer requests run at the same time.",
        _COUNT,
        Divergence.WASTE,
    ),
    Code.FREE_COUNT_WRONG: Meaning(
        "count of free blocks is not the length of the free queue",
        "On a whole manager the two differ.",
        "The engine runs out of blocks, or never uses some.",
        (_COUNT,),
        (Divergence.CRASH, Divergence.WASTE),
    ),
    Code.FREE_QUEUE_WRONG: Meaning(
        "free queue does not hold each free block once",
        "On a whole manager the free queue has a block twice, or one that is not in the pool.",
        _OVERWRITTEN,
        (_COUNT,),
        _UNSOUND,
    ),
    Code.BLOCK_FREE_AND_IN_USE: Meaning(
        "block is free and in use",
        "A block table holds a block that is in the free queue.",
        _OVERWRITTEN,
        (_COUNT,),
        _UNSOUND,
    ),
    Code.BLOCK_LEAKED: Meaning(
        "block leaks: it is neither free nor in use",
        "No block table holds the block, and it is not in the free queue.",
        _SMALLER,
        (_COUNT,),
        (Divergence.WASTE,),
    ),
    Code.TWO_CONTENTS_IN_BLOCK: Meaning(
        "block in use holds two contents",
        "Block tables hold the same block for two groups, or for two prefixes.",
        _OVERWRITTEN,
        (_IN_USE,),
        _UNSOUND,
    ),
    Code.BLOCK_UNDER_TWO_KEYS: Meaning(
        "block is registered under more than one key",
        "If hits end on block edges, a block has one key, and only blocks of the pool have one.",
        _STALE,
        (_NAMES,),
        _UNSOUND,
    ),
    Code.USAGE_WRONG: Meaning(
        "usage is not the share of blocks in use",
        "The reported usage of the cache is not what the free queue shows.",
        "The metric is wrong.",
        (_STATISTICS,),
        (Divergence.WRONG_METRIC,),
    ),
    Code.COMMON_PREFIX_NOT_SHARED: Meaning(
        "common prefix is not shared",
        "Some blocks counted as the common prefix of all requests are not at the start of the "
        "block table of every request that holds blocks.",
        "Cascade attention reads these blocks once for all requests: some requests attend to "
        "another's blocks, and their outputs are wrong.",
        ("cascade_reads_shared_blocks",),
        _UNSOUND,
    ),
    Code.FREED_REQUEST_HOLDS_BLOCKS: Meaning(
        "freed request still holds blocks",
        "After a request was freed, the manager still has block tables for it.",
        _SMALLER,
        (_COUNT,),
        (Divergence.WASTE,),
    ),
    Code.KEYS_DISAGREE: _seen(
        "cache and block disagree on the block's keys",
        "The keys that find the block are not the keys stored in it.",
        _STALE,
        _NAMES,
        Divergence.UNSOUND,
    ),
    Code.KEY_FINDS_BLOCK_WITHOUT_IT: Meaning(
        "key finds a block that does not carry it",
        "On a whole manager the cache finds, under a key, a block that does not have it.",
        _STALE,
        (_NAMES,),
        _UNSOUND,
    ),
    Code.KEY_FINDS_NOTHING: Meaning(
        "block carries a key that does not find it",
        "On a whole manager a block has a key under which the cache does not find it.",
        _LOST,
        (_NAMES,),
        (Divergence.LOST_HIT,),
    ),
    Code.KEY_LOST: _seen(
        "key is lost",
        "A key that found the block no longer finds it.",
        _LOST,
        _NAMES,
        Divergence.LOST_HIT,
    ),
    Code.KEY_NOT_REMOVED: _seen(
        "key still finds the block",
        "The method invalidates a block's content, but a key still finds the block.",
        _STALE,
        _NAMES,
        Divergence.UNSOUND,
    ),
    Code.CACHED_BLOCK_NOT_FOUND: _seen(
        "lookup does not find a cached block",
        "The cache has a block under the key, and get_cached_block finds none.",
        _LOST,
        _NAMES,
        Divergence.LOST_HIT,
    ),
    Code.UNCACHED_BLOCK_FOUND: _seen(
        "lookup finds a block that is not cached",
        "get_cached_block finds a block that the cache does not have under the key.",
        _STALE,
        _NAMES,
        Divergence.UNSOUND,
    ),
    Code.RESET_WHILE_IN_USE: Meaning(
        "prefix cache is reset while blocks are in use",
        "A reset must be refused while requests hold blocks: their blocks would be registered "
        "after it.",
        "After a weight update, stale blocks can be hit.",
        (_IN_USE, _NAMES),
        _UNSOUND,
    ),
    Code.RESET_REFUSED: Meaning(
        "reset of the prefix cache is refused though no block is in use",
        "A reset must succeed whenever no request holds a block.",
        "The cache cannot be cleared without a restart.",
        (_NAMES,),
        (Divergence.WASTE,),
    ),
    Code.REUSE_REPORTED_WRONG: _seen(
        "reuse of unpinned blocks is reported wrongly",
        "The owner of an unpinned block reads it until the pool reports that the block was "
        "reallocated or the cache reset.",
        _OVERWRITTEN,
        _IN_USE,
        Divergence.UNSOUND,
    ),
    Code.UNPINNED_BLOCK_NOT_LAST: Meaning(
        "unpinned block is not the last to be reused",
        "An unpinned block may still be read, so it joins the free queue at its end.",
        "Outputs are right. The block is reused before blocks that are no longer read.",
        (_IN_USE,),
        (Divergence.LOST_HIT,),
    ),
    Code.UNREAD_BLOCK_HELD: Meaning(
        "request holds a block that it will not read again",
        "The table of a sliding-window or chunked group still has a block before the first one "
        "that the step reads, or that of a Mamba group has more states than a step needs.",
        "Outputs are right. Fewer blocks are free: other requests wait, and cached content "
        "is evicted.",
        (_HELD,),
        (Divergence.WASTE,),
    ),
    Code.ALLOCATION_REFUSED: Meaning(
        "allocation is refused though enough blocks are free",
        "The request needs no more blocks, for this step or as a whole, than are free.",
        "The request waits or is preempted needlessly; the engine may hang.",
        (_ADMISSION,),
        (Divergence.WASTE,),
    ),
    Code.ADMITTED_WITHOUT_SPACE: Meaning(
        "request is admitted though too few blocks are free for all of it",
        "A request needs more blocks than are free: for a step, or, if it must be admitted as a "
        "whole, for what its last token reads and for the free blocks of its hit.",
        "The request is preempted midway and its tokens are recomputed; the engine may hang.",
        (_ADMISSION,),
        (Divergence.WASTE,),
    ),
    Code.ADMISSION_NOT_KEPT: Meaning(
        "request that was admitted as a whole gets no blocks for its prompt",
        "A request was admitted because all of it fits. Before its prompt is computed an "
        "allocation is refused, although no other request has taken any blocks since.",
        "The request is preempted midway and its tokens are recomputed; the engine may hang.",
        (_ADMISSION,),
        (Divergence.WASTE,),
    ),
    Code.RESERVED_BLOCKS_TAKEN: Meaning(
        "blocks that are reserved for others are taken",
        "A request whose tokens a KV connector loads is admitted, and leaves fewer blocks free "
        "than are reserved.",
        "Running requests wait for blocks until the load is done, or are preempted.",
        ("reserved_blocks_stay_free",),
        (Divergence.WASTE,),
    ),
    Code.OTHER_BLOCKS_TAKEN: Meaning(
        "get_new_blocks returns blocks other than the first of the free queue",
        "A caller outside the manager takes a number of free blocks, or all of them, and gets "
        "other blocks, more or fewer.",
        _OVERWRITTEN,
        ("free_blocks_are_taken_as_asked",),
        _UNSOUND,
    ),
    Code.HANDED_BLOCKS_WRONG: Meaning(
        "KV connector is given blocks other than those of the tokens",
        "The blocks given for a request's computed tokens, or for a hit cut at a boundary, are "
        "not the first entries of its block tables that these tokens fill; or those given for a "
        "load are not all entries after the hit.",
        "The connector stores or loads blocks of other tokens, or omits some.",
        (_HANDED,),
        (Divergence.UNSOUND,),
    ),
    Code.ZEROED_BLOCKS_WRONG: Meaning(
        "worker zeroes blocks other than the new ones of attention",
        "Before a step a worker zeroes the blocks newly allocated to attention groups: a block "
        "that is hit keeps its content, and a new one contains no NaN.",
        "A request reads zeros from its hit, or a state or sum becomes NaN: outputs are wrong.",
        ("unwritten_bytes_are_numbers",),
        _UNSOUND,
    ),
    Code.OFFERED_STATE_WRONG: Meaning(
        "KV connector is offered a block that does not hold the state",
        "A Mamba state that is offered for storage is not that of its boundary, is not a state, or "
        "is offered twice.",
        "The connector stores another state, and outputs computed from it are wrong.",
        (_HANDED,),
        _UNSOUND,
    ),
    Code.STATE_NOT_OFFERED: Meaning(
        "KV connector is not offered every registered state in order",
        "A Mamba state at the end of a block was registered in this step but is not offered for "
        "storage, or is offered before an earlier state of its request.",
        "Outputs are right. The connector does not store the state, or tries to when it is full.",
        (_HANDED,),
        (Divergence.LOST_HIT,),
    ),
    Code.CACHED_TOKENS_WRONG: Meaning(
        "estimate of cached tokens does not match what is registered",
        "The estimate is not the length up to which each group has the request's blocks "
        "registered.",
        "The engine reports a wrong share of cached tokens.",
        (_STATISTICS,),
        (Divergence.WRONG_METRIC,),
    ),
    Code.FREED_REQUEST_KEPT: Meaning(
        "an entry is kept under the id of a freed request",
        "The manager, its coordinator or its pool still has an entry for a request whose blocks "
        "were freed.",
        "Memory grows with each request; a preempted request resumes with stale entries.",
        (_ENDED,),
        (Divergence.WASTE,),
    ),
    Code.EVENTS_WRONG: Meaning(
        "events do not reproduce what is cached",
        "The events of a call or step, applied to what was cached before, do not give what is "
        "cached after: an event is missing, did not happen, or precedes its parent's event.",
        "Routers and connectors that follow the events look for blocks in the wrong place.",
        (_EVENTS,),
        (Divergence.LOST_HIT,),
    ),
    Code.EVENT_DESCRIPTION_WRONG: Meaning(
        "event describes blocks other than those it names",
        "The medium of an event, or the parent, tokens, adapter or extra keys of a stored event, "
        "do not belong to the blocks whose keys it has.",
        "Routers and connectors that follow the events confuse blocks.",
        (_EVENTS,),
        (Divergence.LOST_HIT,),
    ),
    Code.UNCACHED_BLOCK_REPORTED: Meaning(
        "events about a hit name a block that is not cached",
        "A request asks for events about the blocks that it hits. One of them has a key under "
        "which its group has no block.",
        "Routers and connectors that follow the events look for blocks in the wrong place.",
        (_EVENTS,),
        (Divergence.LOST_HIT,),
    ),
    Code.HIT_NOT_REPORTED: Meaning(
        "events about a hit leave out a block of it",
        "A request asks for events about the blocks that it hits. No event names one of "
        "these blocks.",
        "Routers and connectors that follow the events do not find the block.",
        (_EVENTS,),
        (Divergence.LOST_HIT,),
    ),
    Code.HIT_REPORTED_TWICE: Meaning(
        "events about a hit name a block of it more than once",
        "A request asks for events about the blocks that it hits. One of these blocks is named "
        "again.",
        "Routers and connectors that follow the events count the block twice.",
        (_EVENTS,),
        (Divergence.WRONG_METRIC,),
    ),
    Code.STATISTICS_WRONG: Meaning(
        "statistics miscount lookups{of}",
        "The statistics do not count each lookup once (for a scheduler: each admission), with its "
        "tokens and its hit. For a KV connector they count the tokens not found on the device, "
        "and how many of them the connector provides.",
        "The metric is wrong.",
        (_STATISTICS,),
        (Divergence.WRONG_METRIC,),
        (
            Parameter(
                "of",
                "whether they are those of a KV connector",
                {"loads": " in a KV connector"},
                optional=True,
            ),
        ),
    ),
    Code.REQUESTS_COUNTED_WRONG: Meaning(
        "statistics miscount running and waiting requests",
        "After a step the statistics of a scheduler have a wrong number of running or waiting "
        "requests.",
        "The metric is wrong, and so is any scaling or routing that uses it.",
        (_STATISTICS,),
        (Divergence.WRONG_METRIC,),
    ),
    Code.EVICTION_ORDER_WRONG: Meaning(
        "blocks are not evicted least recently used first",
        "The free queue does not keep its order, blocks are not taken from its front, or cached "
        "blocks do not join it at its end, a request's last block first.",
        "Outputs are right. Content that is used is evicted before content that is not.",
        (_ORDER,),
        (Divergence.LOST_HIT,),
    ),
    Code.SCRATCH_BLOCK_NOT_FIRST: Meaning(
        "block that no lookup can find is reused after cached ones",
        "A block without a key joins the free queue behind blocks that have one.",
        "Outputs are right. Cached content is evicted while blocks without content are free.",
        (_ORDER,),
        (Divergence.LOST_HIT,),
    ),
}
