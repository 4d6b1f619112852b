"""Parameters that several codes have."""

from hitproof.conformance.findings.meaning import Parameter

METHOD = Parameter("method", "the method after which it is seen", "{}")
AFTER_METHOD = Parameter("method", "the method after which it is seen", " after {}", optional=True)
DURING = Parameter(
    "during",
    "which blocks are asked for: those of a finished request that a connector stores, or those "
    "that are final while a draft model recomputes the last tokens",
    {
        "store": " for the end of a stored request",
        "drafting": " while drafts are recomputed",
    },
    optional=True,
)

LACKS = Parameter(
    "block",
    "whether nothing is missing that attention reads, only a lookahead block",
    {"lookahead": ", only the lookahead block is missing"},
    optional=True,
)

MODULES = Parameter(
    "modules",
    "whether draft layers look further ahead than the next token, as several MTP modules do",
    {"several": ", with several MTP modules"},
    optional=True,
)

_LATEST = "retention of the latest boundary only"
_INTERVAL = "retention interval of two alignments"
RETENTION = Parameter(
    "retention",
    "the retention policy: latest-boundary-only, or an interval",
    {"latest": _LATEST, "interval": _INTERVAL},
)
ANY_RETENTION = Parameter(
    "retention",
    "the retention policy",
    {"dense": "dense retention", "latest": _LATEST, "interval": _INTERVAL},
)
RETENTION_OF_CRASH = Parameter(
    "retention",
    "the retention policy, where retention is judged",
    {"dense": ", dense retention", "latest": f", {_LATEST}", "interval": f", {_INTERVAL}"},
    optional=True,
)
"""The same of an exception, which most checks find where no retention is judged."""

LONG_LOOKAHEAD = Parameter(
    "lookahead",
    "whether the lookahead block is as long as the alignment",
    {"alignment": ", lookahead block as long as the alignment"},
    optional=True,
)
PROMISED_TO = Parameter(
    "hit",
    "which hit is promised: that of a repeated prompt, of an extended prompt, or of a "
    "request with the same prefix; or one at a shared-prefix boundary",
    {
        "resend": "hit of a repeated prompt",
        "extension": "hit of an extended prompt",
        "sibling": "hit of a shared prefix",
        "junction": "hit at a shared-prefix boundary",
    },
)
INSTEAD = Parameter(
    "instead",
    "whether the run of the boundary after the promised one is kept, as far as it is computed",
    {"later": ", the run of a later boundary is kept instead"},
    optional=True,
)
STATES = Parameter(
    "states",
    "where steps export Mamba states from",
    {"inside-chunks": ", states exported inside chunks"},
    optional=True,
)
SESSIONS = Parameter(
    "requests",
    "whether streaming sessions are among the requests",
    {"sessions": ", with streaming sessions"},
    optional=True,
)
FREED = Parameter(
    "freed",
    "whether the request freed the block before its hash was known",
    {"before-hash": ", freed before its hash was known"},
    optional=True,
)

PLACES = {
    "chunk-end": "at the end of a chunk",
    "inside-chunk": "inside a chunk",
    "between-boundaries": "between boundaries",
    "before-first-run": "before the first required run",
    "between-runs": "between required runs",
}
"""Where a block is that no hit requires."""

SEGMENT = Parameter(
    "segment",
    "whether a required run and its lookahead block fill a segment",
    {
        "filled": ", runs fill their segments",
        "unfilled": ", runs do not fill their segments",
    },
    optional=True,
)
