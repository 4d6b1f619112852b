"""The codes of divergences by name, and what goes with each: sentence, parameters, meaning."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hitproof.spec.claims import Divergence


class Code(StrEnum):
    """The ways to diverge. A code is stable: ledgers and other tools refer to it."""

    RAISES_EXCEPTION = "raises-exception"
    LOCKSTEP_DIFFERENCE = "lockstep-difference"
    KNOWN_DIVERGENCE_GROWN = "known-divergence-grown"

    HIT_OFF_BOUNDARY = "hit-off-boundary"
    HIT_UNALIGNED = "hit-unaligned"
    HIT_TOO_SHORT = "hit-too-short"
    AGREED_HIT_TOO_SHORT = "agreed-hit-too-short"
    AGREED_HIT_TOO_LONG = "agreed-hit-too-long"
    HIT_TOO_LONG = "hit-too-long"
    HIT_FOR_SKIPPING_REQUEST = "hit-for-skipping-request"
    REQUIRED_BLOCK_UNCACHED = "required-block-uncached"
    GROUP_LACKS_BLOCK = "group-lacks-block"
    TABLE_COUNT_WRONG = "table-count-wrong"
    TABLE_OF_UNCACHED_GROUP = "table-of-uncached-group"
    TABLE_LENGTH_WRONG = "table-length-wrong"
    TABLE_ENTRY_NOT_A_BLOCK = "table-entry-not-a-block"
    TABLE_BLOCK_WRONG = "table-block-wrong"
    LOCAL_PREFIX_OFF_BOUNDARY = "local-prefix-off-boundary"
    LOCAL_PREFIX_LACKS_BLOCK = "local-prefix-lacks-block"
    LOCAL_PREFIX_TOO_SHORT = "local-prefix-too-short"
    FINE_HIT_UNVOUCHED = "fine-hit-unvouched"
    FINE_HIT_TOO_SHORT = "fine-hit-too-short"
    FINE_TABLE_WRONG = "fine-table-wrong"

    LOOKAHEAD_BLOCK_UNREGISTERED = "lookahead-block-unregistered"
    PREFIX_BLOCK_UNREGISTERED = "prefix-block-unregistered"
    TAIL_BLOCK_UNREGISTERED = "tail-block-unregistered"
    CHUNK_BLOCK_UNREGISTERED = "chunk-block-unregistered"
    STATE_BLOCK_UNREGISTERED = "state-block-unregistered"
    UNREACHABLE_BLOCK_REGISTERED = "unreachable-block-registered"
    BLOCK_REGISTERED_EARLY = "block-registered-early"
    UNFINAL_BLOCK_REGISTERED = "unfinal-block-registered"
    PROMISED_BLOCK_UNREGISTERED = "promised-block-unregistered"
    UNPROMISED_BLOCK_REGISTERED = "unpromised-block-registered"
    PROMISED_ENTRY_UNREGISTERED = "promised-entry-unregistered"
    PROMISED_ENTRY_EVICTED = "promised-entry-evicted"
    UNPROMISED_ENTRY_REGISTERED = "unpromised-entry-registered"
    PROMISED_HIT_LOST = "promised-hit-lost"
    UNPROMISED_BLOCK_KEPT = "unpromised-block-kept"
    INTERVAL_NOT_REFUSED = "interval-not-refused"
    JUNCTION_NOT_HIT = "junction-not-hit"
    SHARED_PREFIX_BOUNDARY_WRONG = "shared-prefix-boundary-wrong"
    SHARED_PREFIX_UNREPORTED = "shared-prefix-unreported"

    TIER_BLOCK_LEFT_OUT = "tier-block-left-out"
    TIER_BLOCK_UNREACHABLE = "tier-block-unreachable"
    TIER_BLOCK_NOT_LOADED = "tier-block-not-loaded"
    TIER_HIT_TOO_SHORT = "tier-hit-too-short"
    TIER_HIT_LACKS_BLOCK = "tier-hit-lacks-block"
    TIER_BLOCK_LOADED_UNREAD = "tier-block-loaded-unread"
    TIER_BLOCK_OFFERED_AGAIN = "tier-block-offered-again"
    TIER_CHUNK_UNPROTECTED = "tier-chunk-unprotected"
    TIER_ROOM_LOST = "tier-room-lost"
    TIER_TOLD_WRONG = "tier-told-wrong"

    HASH_COLLISION = "hash-collision"
    HASH_MISMATCH = "hash-mismatch"
    TWO_CONTENTS_UNDER_KEY = "two-contents-under-key"
    TWO_KEYS_FOR_CONTENT = "two-keys-for-content"
    KEY_NAMES_OTHER_CONTENT = "key-names-other-content"
    NULL_BLOCK_READ = "null-block-read"
    OTHER_CONTENT_READ = "other-content-read"
    DRAFT_ENTRY_OF_OTHER_TOKEN = "draft-entry-of-other-token"
    STATE_READ_TOO_EARLY = "state-read-too-early"

    NULL_BLOCK_QUEUED = "null-block-queued"
    NULL_BLOCK_CACHED = "null-block-cached"
    NULL_BLOCK_HANDED_OUT = "null-block-handed-out"
    NULL_BLOCK_FOUND = "null-block-found"
    BLOCK_IN_USE_HANDED_OUT = "block-in-use-handed-out"
    HANDED_OUT_COUNT_WRONG = "handed-out-count-wrong"
    REFERENCE_COUNT_TOO_LOW = "reference-count-too-low"
    REFERENCE_COUNT_TOO_HIGH = "reference-count-too-high"
    REFERENCE_COUNT_WRONG = "reference-count-wrong"
    BLOCK_QUEUED_TWICE = "block-queued-twice"
    BLOCK_IN_USE_QUEUED = "block-in-use-queued"
    UNUSED_BLOCK_NOT_QUEUED = "unused-block-not-queued"
    FREE_COUNT_TOO_HIGH = "free-count-too-high"
    FREE_COUNT_TOO_LOW = "free-count-too-low"
    FREE_COUNT_WRONG = "free-count-wrong"
    FREE_QUEUE_WRONG = "free-queue-wrong"
    BLOCK_FREE_AND_IN_USE = "block-free-and-in-use"
    BLOCK_LEAKED = "block-leaked"
    TWO_CONTENTS_IN_BLOCK = "two-contents-in-block"
    BLOCK_UNDER_TWO_KEYS = "block-under-two-keys"
    USAGE_WRONG = "usage-wrong"
    COMMON_PREFIX_NOT_SHARED = "common-prefix-not-shared"
    FREED_REQUEST_HOLDS_BLOCKS = "freed-request-holds-blocks"
    KEYS_DISAGREE = "keys-disagree"
    KEY_FINDS_BLOCK_WITHOUT_IT = "key-finds-block-without-it"
    KEY_FINDS_NOTHING = "key-finds-nothing"
    KEY_LOST = "key-lost"
    KEY_NOT_REMOVED = "key-not-removed"
    CACHED_BLOCK_NOT_FOUND = "cached-block-not-found"
    UNCACHED_BLOCK_FOUND = "uncached-block-found"
    RESET_WHILE_IN_USE = "reset-while-in-use"
    RESET_REFUSED = "reset-refused"
    REUSE_REPORTED_WRONG = "reuse-reported-wrong"
    UNPINNED_BLOCK_NOT_LAST = "unpinned-block-not-last"
    UNREAD_BLOCK_HELD = "unread-block-held"
    ALLOCATION_REFUSED = "allocation-refused"
    ADMITTED_WITHOUT_SPACE = "admitted-without-space"
    ADMISSION_NOT_KEPT = "admission-not-kept"
    RESERVED_BLOCKS_TAKEN = "reserved-blocks-taken"
    OTHER_BLOCKS_TAKEN = "other-blocks-taken"
    HANDED_BLOCKS_WRONG = "handed-blocks-wrong"
    ZEROED_BLOCKS_WRONG = "zeroed-blocks-wrong"
    GROUP_HIT_WRONG = "group-hit-wrong"
    OFFERED_STATE_WRONG = "offered-state-wrong"
    STATE_NOT_OFFERED = "state-not-offered"
    CACHED_TOKENS_WRONG = "cached-tokens-wrong"
    FREED_REQUEST_KEPT = "freed-request-kept"
    EVENTS_WRONG = "events-wrong"
    EVENT_FORGETS_COPY = "event-forgets-copy"
    EVENT_PARENT_UNKNOWN = "event-parent-unknown"
    EVENT_BEGINS_INSIDE_BLOCK = "event-begins-inside-block"
    EVENT_SPANS_OTHER_BLOCKS = "event-spans-other-blocks"
    EVENT_GROUP_UNKNOWN = "event-group-unknown"
    EVENT_DESCRIPTION_WRONG = "event-description-wrong"
    UNCACHED_BLOCK_REPORTED = "uncached-block-reported"
    HIT_NOT_REPORTED = "hit-not-reported"
    HIT_REPORTED_TWICE = "hit-reported-twice"
    STATISTICS_WRONG = "statistics-wrong"
    REQUESTS_COUNTED_WRONG = "requests-counted-wrong"
    DRAFTS_COUNTED_WRONG = "drafts-counted-wrong"
    EVICTION_ORDER_WRONG = "eviction-order-wrong"
    SCRATCH_BLOCK_NOT_FIRST = "scratch-block-not-first"

    REQUEST_NEVER_FINISHES = "request-never-finishes"
    DELIVERED_TOKENS_WRONG = "delivered-tokens-wrong"
    FINISH_REASON_WRONG = "finish-reason-wrong"
    SESSION_TOKENS_WRONG = "session-tokens-wrong"
    BLOCKS_HELD_WHEN_IDLE = "blocks-held-when-idle"
    PROMISED_HIT_MISSED = "promised-hit-missed"
    PAGE_WRITTEN_TWICE = "page-written-twice"
    NULL_PAGE_WRITTEN = "null-page-written"
    PAGE_FREED_IN_FLIGHT = "page-freed-in-flight"
    PAGE_NOT_ZEROED = "page-not-zeroed"
    TRANSFERRED_PAGE_USED = "transferred-page-used"
    FAILED_LOAD_DELIVERED = "failed-load-delivered"
    CACHED_AFTER_RESET = "cached-after-reset"
    CONNECTOR_RESET_WRONG = "connector-reset-wrong"
    RESET_ANSWERED_WRONG = "reset-answered-wrong"
    STEP_EXCEEDS_LIMIT = "step-exceeds-limit"
    STEP_LEAVES_WORK = "step-leaves-work"
    DRAFTS_NEVER_VERIFIED = "drafts-never-verified"
    ADMITTED_OUT_OF_TURN = "admitted-out-of-turn"
    PREEMPTED_WRONGLY = "preempted-wrongly"
    DRAFT_COUNT_WRONG = "draft-count-wrong"
    GRAMMAR_IGNORED = "grammar-ignored"
    ENCODER_OUTPUT_MISSING = "encoder-output-missing"
    IMAGE_ENCODED_AGAIN = "image-encoded-again"
    IMAGE_SPLIT = "image-split"
    IMAGES_HELD_WHEN_IDLE = "images-held-when-idle"
    IMAGE_HELD_WHILE_WAITING = "image-held-while-waiting"
    IMAGE_EVICTED_OUT_OF_TURN = "image-evicted-out-of-turn"
    DERIVED_GROUPS_WRONG = "derived-groups-wrong"
    LAYERS_REFUSED = "layers-refused"
    BEGINNING_NOT_TOLD = "beginning-not-told"
    TOKENS_TOLD_WRONG = "tokens-told-wrong"
    END_REPORTED_WRONG = "end-reported-wrong"
    CONNECTOR_TOLD_WRONG = "connector-told-wrong"


@dataclass(frozen=True)
class Parameter:
    """What divergences of one code can differ in.

    Attributes:
        name: its name in ledgers and JSON.
        about: what it is about.
        phrases: for each value, what it puts into the sentence; or, where a value is any name that
            the code under test has, the phrase with ``{}`` for it.
        optional: whether it may be left out, and puts nothing into the sentence then.
        claims: for values that decide what is contradicted, the claim or sanity rule.
    """

    name: str
    about: str
    phrases: Mapping[str, str] | str
    optional: bool = False
    claims: Mapping[str, str] = field(default_factory=dict)

    def phrase(self, value: str) -> str:
        """What ``value`` puts into the sentence. Raises ValueError for one that it cannot have."""
        if isinstance(self.phrases, str):
            return self.phrases.format(value)
        if value not in self.phrases:
            raise ValueError(
                f"the parameter {self.name} cannot be {value!r}; use one of "
                f"{', '.join(self.phrases)}"
            )
        return self.phrases[value]


@dataclass(frozen=True)
class Meaning:
    """What a code means.

    Attributes:
        sentence: what is wrong, with the name of each parameter in braces.
        means: what that is, in full.
        effect: what users see of it.
        claims: the claims (`spec.claims`) and sanity rules (`conformance.findings.rules`) that it
            contradicts. A finding is booked under the first one, unless a parameter or what is
            judged decides on another.
        classes: what it can be for users.
        parameters: what divergences of the code can differ in.
        any_claim: whether a check books it under the claim that it is about, whichever that is.
    """

    sentence: str
    means: str
    effect: str
    claims: tuple[str, ...]
    classes: tuple[Divergence, ...]
    parameters: tuple[Parameter, ...] = ()
    any_claim: bool = False
