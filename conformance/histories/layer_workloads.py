"""Scheduler histories on groups that start-up derives: the layers of models as they are served.

Each history has the layers of one row of ``layer_models.toml``, or a mix of layers of many sorts,
sizes and numbers; some requests that reuse each other's prefixes, and memory for a few of them.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Literal

from hitproof.conformance.histories.workloads import Arrival, Deployment, Layers, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_FULL = Group(GroupKind.FULL_ATTENTION, 16)
_LARGE = Group(GroupKind.FULL_ATTENTION, 32)
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
    unit: int | None = None
    caching: bool = True
    modules: int = 1


def _group(name: str) -> Group:
    """A group as ``layer_models.toml`` names it."""
    kind, _, tokens = name.rpartition(" ")
    match kind.removeprefix("draft "):
        case "window":
            return replace(_window(int(tokens)), eagle=kind.startswith("draft"))
        case "chunks":
            return _chunks(int(tokens))
    draft = replace(_FULL, eagle=True)
    return {"full": _FULL, "large": _LARGE, "state": _STATE, "draft": draft}[name]


def _models() -> Iterator[_Model]:
    path = Path(__file__).with_name("layer_models.toml")
    for row in tomllib.loads(path.read_text(encoding="utf-8"))["models"]:
        sorts = tuple(
            (_group(name), Layers(count, **dict(*more))) for name, count, *more in row.pop("sorts")
        )
        yield _Model(sorts, **row)


_MODELS = tuple(_models())
NUM_MODELS = len(_MODELS)

_SIZES = (1, 2, 2, 3, 4, 4, 6, 8)
_SIZES_OF_LATENTS = (1, 2, 4, 8)
"""Each fits into the larger ones: pages of latents are never padded."""
_COUNTS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15)
_FOR_HIDDEN_STATES = 320
"""Their blocks may have one token each."""
_LENGTH = 160
"""The longest request, in tokens."""
_TIGHT = 12
"""One mix in this many is of full attention alone, with memory for one request of that length:
with the null block it fits, or barely does not."""
_SERVED = 4
"""One mix of layers in this many serves requests; of the others only groups are derived."""


def layer_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed: of the model of its number, then of mixes of layers."""
    number = int(str(seed).rpartition(":")[2])
    random = Random(f"hitproof layers {seed}")
    mixed = number >= NUM_MODELS
    tight = mixed and number % _TIGHT == 0
    model = _mix(random) if mixed else _MODELS[number]
    if mixed and model.drafts:
        model = _drafting_otherwise(model, Random(f"hitproof layers that draft {seed}"))
    blocks = random.randint(30, 60) if mixed else 40
    if tight:
        model = _Model(((_FULL, Layers(random.choice(_COUNTS))),))
        blocks = _LENGTH // _FULL.block_size + random.choice((0, 0, 1))
    hidden = any(layers.keeps == "hidden states" for _, layers in model.sorts)
    deployment = Deployment(
        tuple(group for group, _ in model.sorts),
        blocks + _FOR_HIDDEN_STATES if hidden else blocks,
        _LENGTH,
        random.choice((48, 64, 100)) if mixed else 64,
        max_num_seqs=4,
        prefix_match_unit=model.unit,
        speculative_method=("mtp" if model.modules > 1 else "eagle") if model.drafts else None,
        num_speculative_tokens=(
            model.modules if model.modules > 1 else random.randint(1, 3) if model.drafts else 0
        ),
        num_mtp_modules=model.modules,
        # Several ranks are scheduled ahead for the second model runner only.
        async_scheduling=mixed and random.random() < 0.5,
        v2_model_runner=mixed and model.ranks > 1,
        layers=tuple(layers for _, layers in model.sorts),
        ranks=model.ranks,
        layout="blocks" if model.layout == "blocks" else "layers",
        disable_hybrid_kv_cache_manager=not model.hybrid,
        enable_prefix_caching=model.caching,
    )
    if mixed and number % _SERVED:
        return SchedulerHistory(deployment, {})
    length = random.randint(150, _LENGTH - 3) if tight else random.randint(65, 110)
    prompt = tuple(range(1, length + 1))
    return SchedulerHistory(
        deployment,
        {
            "a": Arrival(prompt, (201, 202, 203)),
            "b": Arrival(prompt, (204,), after="a"),
            "c": Arrival(
                prompt if tight else (*prompt, 201, 202, *range(300, 320)), (205, 206), after="b"
            ),
        },
    )


def _drafting_otherwise(model: _Model, random: Random) -> _Model:
    """Draft layers with a window, that of other layers or one of their own; several modules."""
    windows = [each for each, _ in model.sorts if each.window is not None and not each.eagle]
    sorts = model.sorts
    if random.random() < 0.4:
        window = random.choice([*windows, _window(random.randint(17, 70))])
        sorts = tuple(
            (replace(window, block_size=group.block_size, eagle=True), layers)
            if group.eagle
            else (group, layers)
            for group, layers in sorts
        )
    return replace(model, sorts=sorts, modules=random.choice((1, 2, 3)))


def _mix(random: Random) -> _Model:
    """Layers of up to four sorts, as many and as large as they come."""
    latents = random.random() < 0.15
    layout = random.choice(("layers", "blocks"))
    windows = [_window(random.randint(17, 70)) for _ in range(2)]
    kinds: Sequence[Group] = windows[:1]
    if not latents and random.random() < 0.85:
        # Chunks are looked up beside blocks of one size only.
        chunks = [_chunks(32)] if layout == "blocks" or random.random() < 0.5 else []
        kinds = random.sample([*windows, _STATE, *chunks], random.choice((0, 1, 1, 1, 2)))
    hybrid = random.random() < 0.8 or _STATE in kinds or set(windows) <= set(kinds)
    alike = layout == "layers" and any(each.chunk for each in kinds)
    block = 32 if not alike and _STATE not in kinds and random.random() < 0.1 else 16
    full = replace(_FULL, block_size=block)
    size = random.choice(_SIZES)

    def layers() -> Layers:
        sizes = (size,) if alike else _SIZES_OF_LATENTS if latents else _SIZES
        keeps: Literal["latents", "keys and values"] = "latents" if latents else "keys and values"
        return Layers(random.choice(_COUNTS), random.choice(sizes), keeps)

    sorts = [(full, layers())]
    if random.random() < 0.4:
        other = layers()
        # Two sizes in equal numbers are a pattern that repeats.
        number = sorts[0][1].count if random.random() < 0.5 else other.count
        sorts.append((full, replace(other, count=number)))
    for group in kinds:
        for _ in range(1 if random.random() < 0.8 else 2):
            made = layers()
            if group.kind is GroupKind.MAMBA:
                # vLLM has blocks of attention grow until a state fits.
                most = min(each.size for _, each in sorts)
                made = replace(made, size=min(made.size, most))
            sorts.append((group, made))
    if len(sorts) > 1 and hybrid and random.random() < 0.1:
        del sorts[0]
    drafts = not latents and random.random() < 0.2
    if drafts:
        draft_size = size if alike else random.choice(_SIZES)
        sorts.append((replace(full, eagle=True), Layers(1, draft_size)))
    random.shuffle(sorts)
    if hybrid and block == 16 and random.random() < 0.15:
        hidden = 1 if layout == "blocks" else random.choice((1, 5, 20))
        sorts.append((full, Layers(1, hidden, "hidden states")))
    ranks = random.choice((1, 1, 1, 1, 2, 3))
    if min(layers.count for _, layers in sorts) < ranks:
        ranks = 1
    unit = random.choice((8, 16)) if random.random() < 0.1 else None
    return _Model(tuple(sorts), layout, ranks, hybrid, drafts, unit)
