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
        "A proof on real code is one up to the bound of its obligation, on the configurations that "
        "`hitproof configs` lists.",
    ),
    "check-histories": Limit(
        _CHECK,
        "Whole managers over time are judged on generated and on written histories. That is a "
        "test, not a proof.",
    ),
    "check-pool": Limit(
        _CHECK,
        "The block pool is judged with full blocks, one hash each; partial entries and pinned "
        "blocks of newer releases are not.",
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
        "only where the scheduler ends a chunk.",
    ),
    "check-merging": Limit(
        _CHECK,
        "Merging of equal states cannot see a lookup that tells cached blocks apart by `is`; "
        "requests of up to five blocks are therefore explored without merging, too.",
    ),
    "tested-releases": Limit(_CHECK, "Tested on vLLM 0.14.0 to 0.33.0, on Linux."),
    "demonstration-pool": Limit(
        _DEMONSTRATION,
        "A divergence of the block pool alone is not shown on a whole manager.",
        "it is of the block pool alone, used as no manager uses it",
    ),
    "demonstration-admission": Limit(
        _DEMONSTRATION,
        "A divergence of admission is found on a whole manager, and no test of it is written.",
        "it was found on one; no test of it is written",
    ),
    "demonstration-fine-lookup": Limit(
        _DEMONSTRATION,
        "Nor is one of the fine-grained lookup of one group: whole managers have such hits over "
        "several groups.",
        "it is of one group's fine-grained lookup, and whole managers have such hits over several "
        "groups only",
    ),
    "demonstration-hash-lookahead": Limit(
        _DEMONSTRATION,
        "Nor is one of block hashes that look ahead.",
        "hitproof writes no history for a divergence of hashes that look ahead",
    ),
    "replay-scheduler": Limit(
        "replay, lockstep",
        "Histories of managers do a scheduler's bookkeeping themselves, in one way. The scheduler "
        "of a release is run in histories of kind `scheduler` only.",
    ),
    "replay-requests": Limit(
        _REPLAY,
        "Histories of schedulers have no prompts with both images and embeddings, and context "
        "parallelism is not judged beside Mamba states. Encoder cache connectors have no images, "
        "and models that are encoders and decoders are not judged. Streaming sessions are not "
        "judged beside embeddings, loads and resets, and without their statistics.",
    ),
    "replay-grammars": Limit(
        _REPLAY,
        "Grammars of structured outputs are scripts: the backends that compile and evaluate them "
        "are not judged, nor is reasoning before a structured output. They are not judged beside "
        "streaming sessions, loads and several pipeline ranks, and no test in pytest has one.",
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
        "A deployment without layers that start-up refuses is left out: that it is refused "
        "without need is no finding. `check` is inconclusive where the release on record accepts "
        "it.",
    ),
    "replay-metrics": Limit(
        _REPLAY,
        "Metrics of how long blocks stay in the cache, and after how long they are used again, are "
        "not judged.",
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
        "Events of several groups are not judged up to 0.19: they do not name their group, and "
        "start-up refuses them beside several groups.",
    ),
    "replay-old-states": Limit(
        _CHECK,
        "Schedulers with Mamba groups are not judged in 0.14, whose steps keep the state of each "
        "block; those that are asked for are played all the same.",
    ),
    "replay-unaligned-loads": Limit(
        "replay, lockstep",
        "Where external tokens end inside a Mamba block, a history may go on past the block in one "
        "chunk (`exactly`); the state is then registered for too long a prefix. vLLM's scheduler "
        "ends that chunk with the block.",
    ),
    "replay-checkpoints": Limit(
        _REPLAY,
        "Histories in which a step exports Mamba states from inside its chunk are judged only "
        "where hits may end inside blocks, and the end of a prompt is kept for resends (fine tail "
        "resend).",
        "this release exports states for resends but keeps prompt ends for extensions; leave "
        "mamba_checkpoint_alignment out, or name a later release",
    ),
    "lockstep-releases": Limit(
        _LOCKSTEP,
        "It follows vLLM from 0.20 on.",
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
        "Nor is a manager whose groups have pools of their own.",
        "its groups have pools of their own",
    ),
    "shadow-longer-hits": Limit(
        _SHADOW,
        "Nor is one that keeps longer hits than it serves.",
        "it keeps longer hits than it serves, to replay them",
    ),
    "shadow-kinds": Limit(
        _SHADOW,
        "Nor is a group of a kind on which the specification has no clause.",
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
        "What a step reads is judged by which blocks its tables hold, not by their content. It was "
        "run on vLLM's tests and on histories, not on a GPU.",
    ),
    "shadow-recording": Limit(
        _SHADOW,
        "Lives of requests without token ids (prompt embeddings) are not recorded.",
        "a prompt has no token ids",
    ),
    "reference-releases": Limit(
        _REFERENCE, "It follows vLLM from 0.20 on.", "the reference follows vLLM from 0.20 on"
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
