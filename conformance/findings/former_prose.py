"""The sentences that identified divergences before they had codes.

Ledgers, reports and surveys that were written then have a ``pattern`` and no code. Each sentence
that there was is one code with its parameters; any other is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.spec.groups import GroupKind

_ERROR = "{error}"
_RAISES = re.compile(r"(?P<before>(?:\w+ )?raises )(?P<error>[^\W\d]\w*)(?P<after>.*)")

_Words = Mapping[str | None, str]
"""For each value of a parameter, the words that it had; None where it is left out."""

_LATEST = "the latest boundary only"
_INTERVAL = "an interval of two alignments"
_POLICY: _Words = {"latest": _LATEST, "interval": _INTERVAL}
_AS_LONG: _Words = {None: "", "alignment": ", the lookahead block as long as the alignment"}
_HITS: _Words = {who: who for who in ("resend", "extension", "sibling", "junction")}
_DURING: _Words = {
    None: "",
    "store": ", of a stored request's end",
    "drafting": ", while drafts are computed anew",
}
_FREED: _Words = {None: "", "before-hash": ", gone before its hash is known"}
_STATES: _Words = {None: "", "inside-chunks": ", with states from inside chunks"}
_RUN: _Words = {"whole": "whole run", "cut": "run cut at the start of the request"}
_AHEAD: _Words = {None: "", "lookahead": " that look ahead"}
_POOL_METHODS = (
    "get_new_blocks",
    "touch",
    "cache_full_blocks",
    "free_blocks",
    "evict_blocks",
    "reset_prefix_cache",
)
_METHOD: _Words = {name: name for name in _POOL_METHODS}
_CALLS = (
    "add_request",
    "append_output",
    "get_computed_blocks",
    "allocate_slots",
    "cache_blocks",
    "free",
    "evict_blocks",
    "reset_prefix_cache",
    "new_step_starts",
    "remove_skipped_blocks",
    "take_events",
    "pop_blocks_for_free",
)
_FIELDS = (
    "answer",
    "hit",
    "blocks",
    "keys",
    "exception",
    "tables",
    "ref_counts",
    "cached",
    "free_queue",
    "num_free_blocks",
    "usage",
    "common_prefix",
    "events",
    "stats",
)


@dataclass(frozen=True)
class _Former:
    """A former sentence, with the name of each parameter in braces, and what it is now."""

    sentence: str
    code: Code
    words: Mapping[str, _Words] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)

    def each(self) -> Iterator[tuple[str, Defect]]:
        """Every sentence that it stands for."""
        for values in product(*self.words.values()):
            chosen = dict(zip(self.words, values, strict=True))
            words = {name: self.words[name][value] for name, value in chosen.items()}
            yield (
                self.sentence.format(error=_ERROR, **words),
                Defect.of(self.code, **self.fixed, **chosen),
            )


_FORMER = (
    _Former(
        "raises {error}{during}", Code.RAISES_EXCEPTION, {"during": _DURING}, {"error": _ERROR}
    ),
    _Former(
        "raises {error}, with {retention}",
        Code.RAISES_EXCEPTION,
        {"retention": {"dense": "dense retention", **_POLICY}},
        {"error": _ERROR},
    ),
    _Former(
        "{method} raises {error}", Code.RAISES_EXCEPTION, {"method": _METHOD}, {"error": _ERROR}
    ),
    _Former(
        "{field} after {method}",
        Code.LOCKSTEP_DIFFERENCE,
        {"field": {n: n for n in _FIELDS}, "method": {n: n for n in _CALLS}},
    ),
    # --- hits ---
    _Former("hit off the boundaries within reach", Code.HIT_OFF_BOUNDARY),
    _Former("off the boundaries", Code.HIT_UNALIGNED),
    _Former(
        "{run}, {short} short{segment}",
        Code.HIT_TOO_SHORT,
        {
            "run": _RUN,
            "short": {"one": "one boundary", "several": "several boundaries"},
            "segment": {
                None: "",
                "one": ", one block a segment",
                "several": ", several blocks a segment",
            },
        },
    ),
    _Former(
        "{run}, {short} short, with several sizes of full attention",
        Code.HIT_TOO_SHORT,
        {"run": _RUN, "short": {"one": "one boundary", "several": "several boundaries"}},
        {"sizes": "several"},
    ),
    _Former(
        "longer than {group} serves",
        Code.HIT_TOO_LONG,
        {"group": {str(kind): kind.replace("_", " ") for kind in GroupKind}},
    ),
    _Former("served to a request that takes no hits", Code.HIT_FOR_SKIPPING_REQUEST),
    _Former("{run}, a required block is not cached", Code.REQUIRED_BLOCK_UNCACHED, {"run": _RUN}),
    _Former(
        "a {block} block of one group is not cached; {dropping} drop a block",
        Code.GROUP_LACKS_BLOCK,
        {
            "block": {"required": "required", "lookahead": "lookahead"},
            "dropping": {
                "none": "none is to",
                "one": "one is told to",
                "several": "several are told to",
            },
        },
    ),
    _Former("not one block table a group", Code.TABLE_COUNT_WRONG),
    _Former("block table of a group that opts out", Code.TABLE_OF_UNCACHED_GROUP),
    _Former("block table as long as the hit is not", Code.TABLE_LENGTH_WRONG),
    _Former("block table holds something else than blocks", Code.TABLE_ENTRY_NOT_A_BLOCK),
    _Former("block table holds another block", Code.TABLE_BLOCK_WRONG),
    _Former("local prefix off the boundaries within reach", Code.LOCAL_PREFIX_OFF_BOUNDARY),
    _Former(
        "a {block} of one group is not cached; the prefix is {flagged}",
        Code.LOCAL_PREFIX_LACKS_BLOCK,
        {
            "block": {
                "required": "required block",
                "state": "state",
                "lookahead": "lookahead block",
            },
            "flagged": {"yes": "flagged", "no": "not flagged"},
        },
    ),
    _Former(
        "{alone} group has a longer hit of its own",
        Code.LOCAL_PREFIX_TOO_SHORT,
        {"alone": {"yes": "a", "no": "no"}},
    ),
    _Former("no entry vouches for the hit", Code.FINE_HIT_UNVOUCHED),
    _Former("a longer hit is vouched for", Code.FINE_HIT_TOO_SHORT),
    _Former("block table does not hold the hit", Code.FINE_TABLE_WRONG),
    # --- registrations ---
    *(
        _Former(f"the {role} block is left out{{{more}}}", code, {more: words})
        for role, code in (
            ("lookahead", Code.LOOKAHEAD_BLOCK_UNREGISTERED),
            ("prefix", Code.PREFIX_BLOCK_UNREGISTERED),
            ("tail", Code.TAIL_BLOCK_UNREGISTERED),
            ("chunk", Code.CHUNK_BLOCK_UNREGISTERED),
            ("state", Code.STATE_BLOCK_UNREGISTERED),
        )
        for more, words in (("during", _DURING), ("freed", _FREED))
    ),
    _Former(
        "a block {place}{during}",
        Code.UNREACHABLE_BLOCK_REGISTERED,
        {
            "place": {
                "chunk-end": "at the end of a chunk",
                "inside-chunk": "inside a chunk",
                "between-boundaries": "between boundaries",
            },
            "during": _DURING,
        },
    ),
    _Former(
        "a block {place}, which {segment} a segment{during}",
        Code.UNREACHABLE_BLOCK_REGISTERED,
        {
            "place": {"before-first-run": "before the first run", "between-runs": "between runs"},
            "segment": {"filled": "just fills", "unfilled": "does not fill"},
            "during": _DURING,
        },
    ),
    _Former(
        "a block before its boundary is reached{during}",
        Code.BLOCK_REGISTERED_EARLY,
        {"during": _DURING},
    ),
    _Former(
        "a block that is not final{during}", Code.UNFINAL_BLOCK_REGISTERED, {"during": _DURING}
    ),
    _Former(
        "a block of a promised {hit} is left out{freed}",
        Code.PROMISED_BLOCK_UNREGISTERED,
        {"hit": _HITS, "freed": _FREED},
    ),
    _Former("a block of no promised hit", Code.UNPROMISED_BLOCK_REGISTERED),
    _Former(
        "an entry inside a block, of a promised {hit}, is left out{states}",
        Code.PROMISED_ENTRY_UNREGISTERED,
        {"hit": _HITS, "states": _STATES},
    ),
    _Former(
        "an entry inside a block, of a promised {hit}, is given up without need{states}",
        Code.PROMISED_ENTRY_EVICTED,
        {"hit": _HITS, "states": _STATES},
    ),
    _Former("an entry inside a block, of no promised hit", Code.UNPROMISED_ENTRY_REGISTERED),
    _Former(
        "a promised {hit} loses its hit, {kept}, with {retention}{lookahead}",
        Code.PROMISED_HIT_LOST,
        {
            "hit": _HITS,
            "kept": {"earlier": "but the one a boundary earlier is kept", "none": "and more"},
            "retention": _POLICY,
            "lookahead": _AS_LONG,
        },
    ),
    _Former(
        "a block {hit} is kept, with {retention}{lookahead}",
        Code.UNPROMISED_BLOCK_KEPT,
        {
            "hit": {
                "empty": "of a hit of no tokens",
                "unpromised": "of a hit that is not promised",
            },
            "retention": _POLICY,
            "lookahead": _AS_LONG,
        },
    ),
    _Former(
        "a shared prefix is not hit again, {found}, with {retention}",
        Code.JUNCTION_NOT_HIT,
        {
            "found": {"nothing": "and finds nothing", "some": "but finds some of it"},
            "retention": _POLICY,
        },
    ),
    _Former("a prefix is told to be shared that is not", Code.SHARED_PREFIX_BOUNDARY_WRONG),
    # --- content ---
    _Former(
        "equal hashes{hashes} for different {inputs}",
        Code.HASH_COLLISION,
        {
            "hashes": _AHEAD,
            "inputs": {
                "tokens": "tokens",
                "salts": "salts",
                "adapters": "adapters",
                "tokens-salts": "tokens and salts",
                "tokens-adapters": "tokens and adapters",
                "salts-adapters": "salts and adapters",
                "tokens-salts-adapters": "tokens and salts and adapters",
            },
        },
    ),
    _Former("different hashes{hashes} for equal content", Code.HASH_MISMATCH, {"hashes": _AHEAD}),
    _Former("two contents share a key", Code.TWO_CONTENTS_UNDER_KEY),
    _Former("one content has two keys", Code.TWO_KEYS_FOR_CONTENT),
    _Former(
        "a key is registered over other content{states}",
        Code.KEY_NAMES_OTHER_CONTENT,
        {"states": _STATES},
    ),
    _Former(
        "a block that is read was freed{after}",
        Code.NULL_BLOCK_READ,
        {"after": {None: "", "load": " after a load"}},
    ),
    _Former("a block that is read holds something else", Code.OTHER_CONTENT_READ),
    _Former(
        "a draft layer's entry hangs on another request's token", Code.DRAFT_ENTRY_OF_OTHER_TOKEN
    ),
    _Former(
        "a state is read in the step that computes it{states}",
        Code.STATE_READ_TOO_EARLY,
        {"states": _STATES},
    ),
    # --- the pool ---
    *(
        _Former(f"after {{method}} {what}", code, {"method": _METHOD})
        for what, code in (
            ("the null block is in the free queue", Code.NULL_BLOCK_QUEUED),
            ("the null block is cached", Code.NULL_BLOCK_CACHED),
            ("the reference count is too low", Code.REFERENCE_COUNT_TOO_LOW),
            ("the reference count is too high", Code.REFERENCE_COUNT_TOO_HIGH),
            ("a block is in the free queue twice", Code.BLOCK_QUEUED_TWICE),
            ("a block in use is in the free queue", Code.BLOCK_IN_USE_QUEUED),
            ("an unused block is not in the free queue", Code.UNUSED_BLOCK_NOT_QUEUED),
            ("a key names a block that holds other content", Code.KEY_NAMES_OTHER_CONTENT),
            ("the cache and a block disagree on its keys", Code.KEYS_DISAGREE),
            ("the count of free blocks is too high", Code.FREE_COUNT_TOO_HIGH),
            ("the count of free blocks is too low", Code.FREE_COUNT_TOO_LOW),
            ("a key is lost", Code.KEY_LOST),
            ("a key still finds the block", Code.KEY_NOT_REMOVED),
            ("a lookup does not find what is cached", Code.CACHED_BLOCK_NOT_FOUND),
            ("a lookup finds the null block", Code.NULL_BLOCK_FOUND),
            ("a lookup finds what is not cached", Code.UNCACHED_BLOCK_FOUND),
        )
    ),
    _Former("a key finds a block after {method}", Code.KEY_NOT_REMOVED, {"method": _METHOD}),
    _Former("hands out another number of blocks", Code.HANDED_OUT_COUNT_WRONG),
    _Former("get_new_blocks hands out the null block", Code.NULL_BLOCK_HANDED_OUT),
    _Former("get_new_blocks hands out a block that is in use", Code.BLOCK_IN_USE_HANDED_OUT),
    _Former("reset_prefix_cache says that it did what it may not", Code.RESET_WHILE_IN_USE),
    _Former("the cache is reset while blocks are in use", Code.RESET_WHILE_IN_USE),
    _Former("reset_prefix_cache refuses though no block is in use", Code.RESET_REFUSED),
    _Former("the free queue holds each free block once", Code.FREE_QUEUE_WRONG),
    _Former("the free counter is the length of the free queue", Code.FREE_COUNT_WRONG),
    _Former("a reference count is the number of tables' entries", Code.REFERENCE_COUNT_WRONG),
    _Former("no block is free and in use", Code.BLOCK_FREE_AND_IN_USE),
    _Former("a block in use holds one content", Code.TWO_CONTENTS_IN_BLOCK),
    _Former("no block leaks", Code.BLOCK_LEAKED),
    _Former("a block is registered under one key at most", Code.BLOCK_UNDER_TWO_KEYS),
    _Former("usage is the share of blocks in use", Code.USAGE_WRONG),
    _Former("a freed request still holds blocks", Code.FREED_REQUEST_HOLDS_BLOCKS),
    _Former("a key finds a block that does not carry it", Code.KEY_FINDS_BLOCK_WITHOUT_IT),
    _Former("a block carries a key that does not find it", Code.KEY_FINDS_NOTHING),
)


def from_prose(sentence: str) -> Defect:
    """What a former sentence is now. Raises ValueError on one that there never was."""
    error, known = None, sentence
    if raises := _RAISES.fullmatch(str(sentence)):
        error, known = raises["error"], f"{raises['before']}{_ERROR}{raises['after']}"
    found = _defects().get(known)
    if found is None or (error is None and _ERROR in sentence):
        raise ValueError(
            f"no divergence was ever called {sentence!r}; name its code instead of the pattern, "
            "see hitproof explain --codes"
        )
    if error is None:
        return found
    return Defect.read(found.code, {**dict(found.parameters), "error": error})


@cache
def _defects() -> dict[str, Defect]:
    return {sentence: defect for former in _FORMER for sentence, defect in former.each()}
