"""The codes of hits: what is wrong with an answer of a lookup, and of a manager's method."""

from collections.abc import Mapping

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.parameters import (
    DURING,
    LACKS,
    METHOD,
    MODULES,
    RETENTION_OF_CRASH,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind

_READ = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_COMMON_VALID = "common_hit_is_valid_for_every_group"
_COMMON_LONGEST = "common_hit_is_the_longest"
_LOCAL_VALID = "local_prefix_lacks_states_only"
_LOCAL_LONGEST = "local_prefix_is_the_longest"
_FINE = "fine_grained_hit_is_vouched_for"
_TIER = "tier_hit_is_the_longest"

_UNSOUND = (Divergence.UNSOUND,)
_MISSING = (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)
_LOST = (Divergence.LOST_HIT,)
_WRONG = "The model computes on keys, values or states that are not those of the prompt: outputs "
_WRONG += "are wrong, and nothing is reported."
_WRONG_OR_DRAFTS = (
    _WRONG + " Where only a lookahead block is missing, the model's outputs are right: draft "
    "layers read entries of another next token, so fewer drafts are accepted."
)
_SLOW = (
    "Outputs are right. Tokens that are cached are computed again, so time to first token grows."
)

_AGREEMENT = (
    "lookup_agrees_under_dense_retention",
    "lookup_agrees_under_interval_retention",
    "lookup_agrees_under_latest_retention",
)
_RUN = Parameter(
    "run",
    "whether the required run of the expected hit fits into the request",
    {"whole": "whole required run", "cut": "required run cut at the start of the request"},
)
_FLAG = {"yes": "flagged", "no": "not flagged"}

MEANINGS: Mapping[Code, Meaning] = {
    Code.GROUP_HIT_WRONG: Meaning(
        "hit of one group alone is {hit}",
        "The hit that a manager reports to a KV connector for each group alone is not the longest "
        "that the group could serve, or consists of other blocks.",
        "The connector loads too little, so blocks that were not loaded are read; or it loads "
        "what is already cached.",
        (_READ, _LONGEST),
        (Divergence.UNSOUND, Divergence.LOST_HIT),
        (
            Parameter(
                "hit",
                "how it differs",
                {"long": "too long", "short": "too short", "table": "of other blocks"},
            ),
        ),
    ),
    Code.RAISES_EXCEPTION: Meaning(
        "raises {error}{message}{site}{method}{during}{retention}",
        "The code under test raises an exception in a call that its callers may make. If a check "
        "makes the call, the finding is booked under that check's claim.",
        "The exception propagates out of the scheduler: the request fails, or the engine crashes.",
        ("allowed_call_raises_nothing",),
        (Divergence.CRASH,),
        (
            Parameter("error", "the type of the exception", "{}"),
            Parameter(
                "message",
                "the first line of its message, without numbers, quoted texts and objects, or what "
                "an assertion without a message asserts",
                " ({})",
                optional=True,
            ),
            Parameter(
                "site",
                "the function of the code under test that raises it",
                " at {}",
                optional=True,
            ),
            Parameter("method", "the method of the block pool", " in {}", optional=True),
            DURING,
            RETENTION_OF_CRASH,
        ),
        any_claim=True,
    ),
    Code.LOCKSTEP_DIFFERENCE: Meaning(
        "{field} differs from the reference after {method}",
        "The target and the reference implementation played the same history and differ, but "
        "neither violates a claim.",
        "Not a fault by itself: the target behaves differently from what its release is "
        "known to do.",
        ("target_behaves_as_its_release",),
        (Divergence.POLICY_CHANGE,),
        (
            Parameter("field", "what differs: the answer, or a part of the observed state", "{}"),
            METHOD,
        ),
    ),
    Code.KNOWN_DIVERGENCE_GROWN: Meaning(
        "a known divergence regressed: it {extent}: {of}",
        "The divergence is in the ledger, but it now reaches further. The recorded footprint has, "
        "for each configuration and history, the number of diverging cases and a digest of the "
        "target's answers. The finding shows the smallest case outside the footprint.",
        "The effect of the known divergence. The new cases may have another cause than the one in "
        "the ledger.",
        (),
        tuple(Divergence),
        (
            Parameter(
                "extent",
                "how it has grown",
                {
                    "more": "now affects more cases",
                    "elsewhere": "now also fails in a new place",
                    "otherwise": "now gives other answers",
                },
            ),
            Parameter("of", "the known divergence: its code and parameters", "{}"),
        ),
        any_claim=True,
    ),
    Code.HIT_OFF_BOUNDARY: Meaning(
        "hit ends where no hit may end{modules}",
        "The length of the hit is not a multiple of the alignment, or exceeds the cap: the last "
        "token is always computed.",
        _WRONG,
        (_READ, _EAGLE, _COMMON_VALID, _TIER),
        _UNSOUND,
        (MODULES,),
    ),
    Code.HIT_UNALIGNED: Meaning(
        "hit does not end on a multiple of the alignment",
        "A whole manager serves a hit that ends between two boundaries, where not every group has "
        "a full block.",
        _WRONG,
        (_READ, _EAGLE, _FINE),
        _UNSOUND,
    ),
    Code.AGREED_HIT_TOO_SHORT: Meaning(
        "later request hits less than the computed and retained blocks allow",
        "A request is computed and registered, blocks are evicted, and a later request hits less "
        "than if every computed block had been registered; or, under sparse retention, less than "
        "promised.",
        _SLOW,
        _AGREEMENT,
        _LOST,
    ),
    Code.AGREED_HIT_TOO_LONG: Meaning(
        "later request hits more than the computed blocks allow",
        "A later request hits blocks that were never computed, or that were evicted.",
        _WRONG,
        _AGREEMENT,
        _UNSOUND,
    ),
    Code.HIT_TOO_SHORT: Meaning(
        "hit is {short} too short, {run}{segment}{sizes}",
        "A longer hit is valid: every block that it requires is cached, and it is within the "
        "cap and the lookahead horizon.",
        _SLOW,
        (_LONGEST, _COMMON_LONGEST, _FINE, _TIER),
        _LOST,
        (
            Parameter(
                "short",
                "how much is lost",
                {"one": "one boundary", "several": "several boundaries"},
            ),
            _RUN,
            Parameter(
                "segment",
                "blocks between two boundaries",
                {"one": ", one block per segment", "several": ", several blocks per segment"},
                optional=True,
            ),
            Parameter(
                "sizes",
                "block sizes of the full attention groups, where hits may end inside blocks",
                {"several": ", full attention of several block sizes"},
                optional=True,
            ),
        ),
    ),
    Code.HIT_TOO_LONG: Meaning(
        "hit is longer than {group} can serve{block}{modules}",
        "A whole manager serves a hit for which a group lacks a required block, or its lookahead "
        "block.",
        _WRONG_OR_DRAFTS,
        (_READ, _EAGLE, _FINE),
        _MISSING,
        (
            Parameter(
                "group",
                "the kind of the first group that cannot serve it",
                {str(kind): kind.replace("_", " ") for kind in GroupKind},
            ),
            LACKS,
            MODULES,
        ),
    ),
    Code.HIT_FOR_SKIPPING_REQUEST: Meaning(
        "hit is served to a request that skips reading the prefix cache",
        "A request with `skip_reading_prefix_cache` takes no hits, because it needs values that "
        "only computed tokens have, such as prompt log probabilities.",
        "The requested values are missing for the tokens of the hit.",
        ("skipping_request_reads_no_hit",),
        _UNSOUND,
    ),
    Code.REQUIRED_BLOCK_UNCACHED: Meaning(
        "required block of the hit is not cached, {run}{block}",
        "The lookup of one group serves a hit although a block that attention reads, or the "
        "lookahead block, is not cached.",
        _WRONG_OR_DRAFTS,
        (_READ, _EAGLE),
        _MISSING,
        (_RUN, LACKS),
    ),
    Code.GROUP_LACKS_BLOCK: Meaning(
        "{block} block of one group is not cached, {dropping} a lookahead block{modules}",
        "The hit that several groups share is not valid for one of them. The finding's kind is "
        "that group's.",
        _WRONG_OR_DRAFTS,
        (_COMMON_VALID, _TIER),
        _MISSING,
        (
            Parameter(
                "block",
                "what the block is to the hit",
                {"required": "required", "lookahead": "lookahead"},
            ),
            Parameter(
                "dropping",
                "groups that drop a lookahead block for EAGLE",
                {
                    "none": "no group drops",
                    "one": "one group drops",
                    "several": "several groups drop",
                },
            ),
            MODULES,
        ),
    ),
    Code.TABLE_COUNT_WRONG: Meaning(
        "number of block tables is not the number of groups",
        "A lookup returns one block table for each group.",
        "Groups get the tables of other groups, or none: outputs are wrong, or the engine crashes.",
        (_READ, _COMMON_VALID, _LOCAL_VALID),
        _UNSOUND,
    ),
    Code.TABLE_OF_UNCACHED_GROUP: Meaning(
        "block table of a group that opts out of prefix caching is not empty",
        "A group that opts out has no cached blocks, so a hit gives it none.",
        _WRONG,
        (_READ, _COMMON_VALID, _LOCAL_VALID),
        _UNSOUND,
    ),
    Code.TABLE_LENGTH_WRONG: Meaning(
        "block table is not as long as the hit{table}",
        "The block table of each group has one entry for each block of the hit. The finding shows "
        "the expected and the actual length, in blocks.",
        "Tokens are written into the blocks of other tokens, or blocks are counted twice.",
        (_READ, _COMMON_VALID, _LOCAL_VALID),
        _UNSOUND,
        (
            Parameter(
                "table",
                "which of the two is longer",
                {"longer": ", it is longer", "shorter": ", it is shorter"},
                optional=True,
            ),
        ),
    ),
    Code.TABLE_ENTRY_NOT_A_BLOCK: Meaning(
        "block table has an entry that is not a block",
        "An entry is neither a block of the pool nor the null block.",
        "The engine crashes when it uses the entry.",
        (_READ, _COMMON_VALID, _LOCAL_VALID),
        _UNSOUND,
    ),
    Code.TABLE_BLOCK_WRONG: Meaning(
        "block table does not hold the cached block",
        "At a position that attention reads, the table has a null block, or another block than "
        "the cached one.",
        _WRONG,
        (_READ, _COMMON_VALID, _LOCAL_VALID),
        _UNSOUND,
    ),
    Code.LOCAL_PREFIX_OFF_BOUNDARY: Meaning(
        "local prefix ends where no hit may end",
        "The local prefix, which a KV connector's load continues, ends where no hit may end.",
        _WRONG,
        (_LOCAL_VALID,),
        _UNSOUND,
    ),
    Code.LOCAL_PREFIX_LACKS_BLOCK: Meaning(
        "{block} of one group is not cached, and the local prefix is {flagged}",
        "A local prefix may lack Mamba states, and is then flagged (`hit_diverged`). This one "
        "lacks another block, or lacks a state without being flagged. The finding's kind is that "
        "of the group.",
        _WRONG_OR_DRAFTS,
        (_LOCAL_VALID,),
        _MISSING,
        (
            Parameter(
                "block",
                "what is missing",
                {
                    "required": "required block",
                    "state": "state",
                    "lookahead": "lookahead block",
                },
            ),
            Parameter("flagged", "whether the local prefix is flagged", _FLAG),
        ),
    ),
    Code.LOCAL_PREFIX_TOO_SHORT: Meaning(
        "local prefix is too short; {alone} group alone has a longer hit",
        "A longer local prefix is valid: it lacks nothing but Mamba states, which the connector "
        "loads.",
        "Outputs are right. The connector loads tokens that are cached, so time to first token "
        "grows.",
        (_LOCAL_LONGEST,),
        _LOST,
        (
            Parameter(
                "alone",
                "whether some group alone could serve more than the expected local prefix",
                {"yes": "a", "no": "no"},
            ),
        ),
    ),
    Code.FINE_HIT_UNVOUCHED: Meaning(
        "fine-grained hit is not backed by a cache entry{block}",
        "A hit that ends inside a block needs an entry of that block, at or after its end.",
        _WRONG_OR_DRAFTS,
        (_FINE,),
        _MISSING,
        (LACKS,),
    ),
    Code.FINE_HIT_TOO_SHORT: Meaning(
        "fine-grained hit is too short: cache entries back a longer one",
        "Cache entries back a longer hit that ends on a hash block.",
        _SLOW,
        (_FINE,),
        _LOST,
    ),
    Code.FINE_TABLE_WRONG: Meaning(
        "block table does not hold the fine-grained hit",
        "The length of the table is not that of the hit, or the table has a block that no "
        "entry of the hit names.",
        _WRONG,
        (_FINE,),
        _UNSOUND,
    ),
}
