"""Scheduler histories on groups that start-up derives: the layers of models as they are served.

Each history has the layers of one row of `_MODELS`, some requests that reuse each other's prefixes,
and memory for a few of them.
"""

from dataclasses import dataclass, replace
from random import Random

from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Layers,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind

_FULL = Group(GroupKind.FULL_ATTENTION, 16)
_STATE = Group(GroupKind.MAMBA, 16)


def _window(tokens: int) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, 16, tokens)


def _chunks(tokens: int) -> Group:
    return Group(GroupKind.CHUNKED_LOCAL, 16, chunk=tokens)


@dataclass(frozen=True)
class _Model:
    """Layers of one model, by sort, and what else it is deployed with."""

    sorts: tuple[tuple[Group, Layers], ...]
    layout: str = "layers"
    ranks: int = 1
    hybrid: bool = True
    drafts: bool = False


_DRAFT = replace(_FULL, eagle=True)

_MODELS = (
    # All of one sort; and of one kind with different heads.
    _Model(((_FULL, Layers(4)),)),
    _Model(((_FULL, Layers(3, 2)), (_FULL, Layers(2, 4)))),
    _Model(((_window(40), Layers(3)),)),
    # Windows beside full attention, in repeats and nearly as many.
    _Model(((_FULL, Layers(2)), (_window(33), Layers(10)))),
    _Model(((_FULL, Layers(4)), (_window(20), Layers(5)))),
    _Model(((_FULL, Layers(2)), (_window(17), Layers(3)))),
    _Model(((_window(24), Layers(4)), (_FULL, Layers(6)), (_window(48), Layers(2)))),
    _Model(((_FULL, Layers(2)), (_chunks(32), Layers(6)))),
    # Pages of different sizes: larger blocks, or padded pages.
    _Model(((_FULL, Layers(2, 4)), (_window(33), Layers(4, 2)))),
    _Model(((_FULL, Layers(2, 3)), (_window(33), Layers(4, 2)))),
    _Model(((_window(30), Layers(2, 8)), (_FULL, Layers(2, 2)))),
    # Recurrent states.
    _Model(((_FULL, Layers(2)), (_STATE, Layers(6)))),
    _Model(((_FULL, Layers(2, 3)), (_STATE, Layers(6, 2)))),
    _Model(((_FULL, Layers(2)), (_STATE, Layers(4)), (_window(40), Layers(2)))),
    # Draft layers, of the same size and others.
    _Model(((_FULL, Layers(4)), (_DRAFT, Layers(1))), drafts=True),
    _Model(((_FULL, Layers(4, 2)), (_DRAFT, Layers(1, 1))), drafts=True),
    _Model(((_FULL, Layers(2)), (_window(33), Layers(4)), (_DRAFT, Layers(1))), drafts=True),
    _Model(((_FULL, Layers(3)), (_STATE, Layers(9)), (_DRAFT, Layers(1))), drafts=True),
    # Latents, beside indexers of their own sizes, and beside windows that have none.
    _Model(((_FULL, Layers(4, 4, "latents")),)),
    _Model(((_FULL, Layers(4, 4, "latents")), (_FULL, Layers(4, 1, "latents"))), "blocks"),
    _Model(
        (
            (_FULL, Layers(4, 4, "latents")),
            (_FULL, Layers(4, 1, "latents")),
            (_window(33), Layers(6, 2, "latents")),
        ),
        "blocks",
    ),
    _Model(((_FULL, Layers(4, 2, "latents")), (_window(33), Layers(1, 3)))),
    # Mixed pages side by side in each block.
    _Model(((_FULL, Layers(2, 4)), (_window(33), Layers(4, 2))), "blocks"),
    _Model(((_FULL, Layers(2, 4)), (_FULL, Layers(2, 1)), (_STATE, Layers(6, 2))), "blocks"),
    _Model(((_FULL, Layers(2, 4)), (_FULL, Layers(2, 1)), (_window(33), Layers(4, 2))), "blocks"),
    _Model(((_FULL, Layers(4, 4)), (_STATE, Layers(7, 3)), (_window(40), Layers(3, 1))), "blocks"),
    _Model(((_FULL, Layers(3, 4)), (_FULL, Layers(1, 1)), (_window(24), Layers(4, 2))), "blocks"),
    _Model(((_FULL, Layers(1, 4)), (_FULL, Layers(1, 1)), (_window(24), Layers(3, 2))), "blocks"),
    # Hidden states that a connector hands out.
    _Model(((_FULL, Layers(2, 4)), (_FULL, Layers(1, 1, "hidden states")))),
    _Model(
        ((_FULL, Layers(2, 2)), (_window(33), Layers(4, 2)), (_FULL, Layers(1, 5, "hidden states")))
    ),
    _Model(((_FULL, Layers(2)), (_window(33), Layers(4)), (_FULL, Layers(1, 40, "hidden states")))),
    # Several ranks, and windows kept whole.
    _Model(((_FULL, Layers(4)), (_window(33), Layers(4))), ranks=2),
    _Model(((_FULL, Layers(5)), (_STATE, Layers(10))), ranks=2),
    _Model(((_FULL, Layers(2, 4)), (_FULL, Layers(4, 2))), ranks=2),
    _Model(((_FULL, Layers(2)), (_window(33), Layers(4))), hybrid=False),
    _Model(((_FULL, Layers(2)), (_chunks(32), Layers(2)), (_window(33), Layers(1))), hybrid=False),
)

NUM_MODELS = len(_MODELS)


def layer_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed: of the model of its number."""
    number = int(str(seed).rpartition(":")[2])
    random = Random(f"hitproof layers {seed}")
    model = _MODELS[number % NUM_MODELS]
    again = number >= NUM_MODELS
    deployment = Deployment(
        tuple(group for group, _ in model.sorts),
        random.randint(30, 60) if again else 40,
        160,
        random.choice((48, 64, 100)) if again else 64,
        max_num_seqs=4,
        speculative_method="eagle" if model.drafts else None,
        num_speculative_tokens=random.randint(1, 3) if model.drafts else 0,
        async_scheduling=again and random.random() < 0.5,
        layers=tuple(layers for _, layers in model.sorts),
        ranks=model.ranks,
        layout="blocks" if model.layout == "blocks" else "layers",
        disable_hybrid_kv_cache_manager=not model.hybrid,
    )
    length = random.randint(65, 110)
    prompt = tuple(range(1, length + 1))
    return SchedulerHistory(
        deployment,
        {
            "a": Arrival(prompt, (201, 202, 203)),
            "b": Arrival(prompt, (204,), after="a"),
            "c": Arrival((*prompt, 201, 202, *range(300, 320)), (205, 206), after="b"),
        },
    )
