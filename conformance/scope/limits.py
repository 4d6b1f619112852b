"""What hitproof does not judge: the one list, for documents and for what refuses it.

A limit that can be asked for has a refusal, the words with which the code declines. Whoever
declines takes them from here, and a test fails on a limit that nothing refuses any more.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        part: what has it: a command, or a part of one.
        sentence: for documents.
        refusal: what is said when it is asked for; "" when nothing can ask for it.
    """

    part: str
    sentence: str
    refusal: str = ""


_CHECK, _REPLAY, _LOCKSTEP, _SHADOW = "check", "replay", "lockstep", "the shadow"
_REFERENCE, _DEMONSTRATION = "the shadow, beside the reference", "reproduction of findings"

LIMITS: dict[str, Limit] = {
    "check-bound": Limit(
        _CHECK,
        "A proof on real code holds up to the bound of its obligation, on the configurations that "
        "`hitproof configs` lists.",
    ),
    "check-histories": Limit(
        _CHECK,
        "Whole managers over time are judged on generated and on written histories. That is a "
        "test, not a proof.",
    ),
    "check-pool": Limit(
        _CHECK,
        "The block pool is judged with full blocks of one hash each, without the partial entries "
        "and pinned blocks of newer releases.",
    ),
    "check-hashes": Limit(
        _CHECK,
        "Block hashes are judged for prompts of three blocks. An embedding has one number, and no "
        "prompt has both images and embeddings. Generated histories of managers have images only.",
    ),
    "check-windows": Limit(
        _CHECK, "Windows start at 2 tokens. A window of 1 token needs nothing from the cache."
    ),
    "check-states": Limit(
        _CHECK,
        "In checks of one group, Mamba prompts are computed block by block, since states exist "
        "only at the ends of chunks.",
    ),
    "check-tiers": Limit(
        _CHECK,
        "Of the tiers behind KV connectors the coordinator of the Mooncake store is judged, its "
        "lookup and its masks, under dense retention, for hits on boundaries and where nothing is "
        "local. Its worker, its keys and other tiers are not.",
    ),
    "check-merging": Limit(
        _CHECK,
        "Merging of equal states misses a lookup that distinguishes cached blocks by `is`; so "
        "requests of up to five blocks are also explored without merging.",
    ),
    "tested-releases": Limit(_CHECK, "Tested on vLLM 0.14.0 to 0.33.0, on Linux."),
    "demonstration-pool": Limit(
        _DEMONSTRATION,
        "A divergence of the block pool alone is not shown on a whole manager.",
        "it is of the block pool alone, used as no manager uses it",
    ),
    "demonstration-admission": Limit(
        _DEMONSTRATION,
        "For a divergence of admission, found on a whole manager, no test is written.",
        "it was found on one; no test of it is written",
    ),
    "demonstration-tier": Limit(
        _DEMONSTRATION,
        "Nor is a divergence of a tier's lookup and masks: histories of managers have no tier.",
        "it is of a tier behind a KV connector, and no history of a manager has one",
    ),
    "demonstration-fine-lookup": Limit(
        _DEMONSTRATION,
        "Nor is a divergence of the fine-grained lookup of one group: whole managers have such "
        "hits over several groups.",
        "it is of one group's fine-grained lookup, and whole managers have such hits over several "
        "groups only",
    ),
    "demonstration-hash-lookahead": Limit(
        _DEMONSTRATION,
        "Nor is a divergence of lookahead hashes.",
        "hitproof writes no history for a divergence of hashes that look ahead",
    ),
    "replay-scheduler": Limit(
        "replay, lockstep",
        "In histories of managers hitproof does the scheduler's bookkeeping. A release's "
        "scheduler runs in histories of kind `scheduler` only.",
    ),
    "replay-requests": Limit(
        _REPLAY,
        "Histories of schedulers have no prompts with both images and embeddings. Not judged are "
        "context parallelism with Mamba states, encoder cache connectors that have images, "
        "encoder-decoder models, streaming sessions with embeddings, loads or resets, and "
        "statistics of sessions.",
    ),
    "replay-grammars": Limit(
        _REPLAY,
        "Grammars of structured outputs are scripted: their backends are not judged, nor is "
        "reasoning before a structured output. Grammars are not judged with streaming sessions, "
        "loads or several pipeline ranks, and get no pytest case.",
    ),
    "scheduler-replays": Limit(
        _REPLAY,
        "A window outside the prefix cache is judged beside full attention and rings, for the "
        "second model runner, and without KV connectors. Of what is computed again after a hit, "
        "the entries come out as if computed from those that are computed again alone: how far "
        "that is from what was computed first is the model's choice.",
        "a window outside the prefix cache is judged beside full attention only, all such windows "
        "alike, with v2_model_runner, and without connector or host",
    ),
    "replay-start-up": Limit(
        _REPLAY,
        "A deployment without layers that start-up refuses is left out, even if it need not be "
        "refused. `check` is inconclusive if the recorded release accepts it.",
    ),
    "replay-metrics": Limit(
        _REPLAY,
        "Metrics of the lifetime and reuse of cached blocks are not judged.",
    ),
    "replay-connectors": Limit(
        "replay, lockstep",
        "In schedulers beside a KV connector, other than that of a host pool, promised hits are "
        "not judged, nor statistics where a load fails, nor whose turn it is where steps are in "
        "flight or adapters are served. Single blocks of a "
        "load fail in one group only, no hit ends inside a block, and a history ends where a token "
        "is delivered that comes of a failed load. Where all that runs starts again, the cache is "
        "reset only while nothing is loaded or sent and, beside a connector, no step is in flight; "
        "connectors of host pools are not reset. Of connectors that keep blocks in host memory, "
        "vLLM's simple one is judged in 0.33 and later, by content, without its lazy mode and its "
        "disk.",
    ),
    "replay-old-events": Limit(
        "replay, lockstep",
        "Events with several groups are not judged up to 0.19: they do not name their group, and "
        "start-up refuses them.",
    ),
    "replay-old-states": Limit(
        _CHECK,
        "Schedulers with Mamba groups are not judged in 0.14, whose steps keep the state of each "
        "block; `replay` plays them anyway.",
    ),
    "replay-unaligned-loads": Limit(
        "replay, lockstep",
        "If external tokens end inside a Mamba block, a history may continue past the block in "
        "one chunk (`exactly`); the state is then registered for too long a prefix. vLLM's "
        "scheduler ends that chunk at the block.",
    ),
    "replay-checkpoints": Limit(
        _REPLAY,
        "Histories in which a step exports Mamba states inside its chunk are judged only if hits "
        "may end inside blocks, and the end of a prompt is kept for repeats (fine_tail=resend).",
        "this release exports states for resends but keeps prompt ends for extensions; leave "
        "mamba_checkpoint_alignment out, or name a later release",
    ),
    "lockstep-releases": Limit(
        _LOCKSTEP,
        "It supports vLLM from 0.20 on.",
        "lockstep follows vLLM from 0.20 on, and {target} is older; name a later release",
    ),
    "lockstep-tails": Limit(
        _LOCKSTEP,
        "Layouts in which prompts' tails are registered inside blocks are not generated for it.",
    ),
    "shadow-fine-hits": Limit(
        _SHADOW,
        "Layouts in which hits may end inside blocks are not judged.",
        "hits of this layout may end inside blocks",
    ),
    "shadow-ranks": Limit(
        _SHADOW,
        "Nor are groups whose blocks are spread over ranks.",
        "its blocks are spread over ranks (context parallelism)",
    ),
    "shadow-pools": Limit(
        _SHADOW,
        "Nor is a manager whose groups have separate pools.",
        "its groups have pools of their own",
    ),
    "shadow-longer-hits": Limit(
        _SHADOW,
        "Nor is a manager that keeps longer hits than it serves.",
        "it keeps longer hits than it serves, to replay them",
    ),
    "shadow-kinds": Limit(
        _SHADOW,
        "Nor is a group of a kind without a clause in the specification.",
        "the spec does not speak of a {kind}",
    ),
    "shadow-alignment": Limit(
        _SHADOW,
        "Nor is a manager whose scheduler block size is not the least common multiple of the block "
        "sizes.",
        "its scheduler block size ({requested} tokens) is not the least common multiple of the "
        "block sizes ({alignment} tokens)",
    ),
    "shadow-content": Limit(
        _SHADOW,
        "What a step reads is judged by the blocks of its tables, not by their content. The "
        "shadow was run on vLLM's tests and on histories, not on a GPU.",
    ),
    "shadow-recording": Limit(
        _SHADOW,
        "Requests without token ids (prompt embeddings) are not recorded.",
        "a prompt has no token ids",
    ),
    "reference-releases": Limit(
        _REFERENCE, "It supports vLLM from 0.20 on.", "the reference follows vLLM from 0.20 on"
    ),
    "reference-no-cache": Limit(
        _REFERENCE, "It compares nothing without prefix caching.", "prefix caching is off"
    ),
    "reference-retention": Limit(
        _REFERENCE,
        "Nor under sparse retention, which depends on what the scheduler passes on.",
        "sparse retention depends on what the scheduler passes on",
    ),
    "reference-states": Limit(
        _REFERENCE, "Nor where Mamba is not in align mode.", "Mamba is not in align mode"
    ),
    "reference-drafts": Limit(
        _REFERENCE,
        "Nor where Mamba keeps blocks for drafts without EAGLE.",
        "Mamba keeps blocks for drafts without EAGLE",
    ),
    "reference-watermark": Limit(
        _REFERENCE,
        "Nor where a watermark of free blocks is kept.",
        "a watermark of free blocks is kept",
    ),
    "reference-tails": Limit(
        _REFERENCE,
        "Nor where tails of prompts are registered inside blocks.",
        "tails of prompts are registered inside blocks",
    ),
    "reference-recomputed-drafts": Limit(
        _REFERENCE,
        "Nor where draft layers compute tokens again.",
        "its draft layers compute tokens again (multi-module MTP)",
    ),
    "reference-opting-out": Limit(
        _REFERENCE,
        "Nor where a group opts out of prefix caching.",
        "a group opts out of prefix caching",
    ),
}
"""Every limit, by a stable code."""


def refusal(code: str) -> str:
    """What is said when a limit is asked for. Raises `KeyError` on no limit."""
    return LIMITS[code].refusal
