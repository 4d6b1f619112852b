"""The group layouts of real models, and their groups as configurations."""

from dataclasses import dataclass, replace

from hitproof.conformance.scope.configurations import Configuration, is_possible
from hitproof.conformance.scope.profiles import LONGEST_TAIL, Profile
from hitproof.spec.attention import tail_blocks
from hitproof.spec.groups import Group, GroupKind, alignment, geometry, share_eagle


def cut(group: Group, blocks: int) -> Group:
    """The group with its window cut by whole blocks, so that its tail has at most ``blocks``.

    A chunk of more than ``blocks`` blocks is cut to ``blocks`` blocks.
    """
    if group.chunk is not None:
        return replace(group, chunk=min(group.chunk, blocks * group.block_size))
    if group.window is None:
        return group
    surplus = max(tail_blocks(group.window, group.block_size) - blocks, 0)
    return replace(group, window=group.window - surplus * group.block_size)


@dataclass(frozen=True)
class Model:
    """The group layout of a real model, as vLLM 0.33.0's own planner lays it out.

    Attributes:
        name: the model.
        groups: its KV cache groups, EAGLE-flagged where a draft layer joins them.
        hash_block_size: tokens that one block hash covers.
        origin: where the layout comes from.
    """

    name: str
    groups: tuple[Group, ...]
    hash_block_size: int
    origin: str

    def configurations(
        self, use_eagle: bool, profile: Profile = Profile.DEFAULT
    ) -> tuple[Configuration, ...]:
        """Each distinct group of the model, with EAGLE on or off, as the lookup shares it.

        None when vLLM does not support that.
        """
        groups = share_eagle(self.groups, use_eagle)
        align = alignment(groups)
        shorter = tuple(
            group if group.window is None else cut(group, LONGEST_TAIL[profile]) for group in groups
        )
        name = self.name + (" with shorter windows" if shorter != groups else "")
        groups = shorter
        found = []
        for group in dict.fromkeys(groups):
            shape = geometry(group, align)
            whole_run = max(shape.tail, shape.segment) + shape.segment + shape.lookahead
            # Past the first chunk, so that a lookup skips one.
            chunk_and_more = 0 if group.chunk is None else group.chunk // group.block_size + 8
            found.append(
                Configuration(
                    members=groups.count(group),
                    num_blocks=max(24, whole_run, chunk_and_more),
                    alignment=align,
                    group=group,
                    hash_block_size=self.hash_block_size,
                    model=f"{name}{' + EAGLE' if use_eagle else ''}",
                )
            )
        return tuple(found) if all(map(is_possible, found)) else ()


def _full(block_size: int, eagle: bool = False) -> Group:
    return Group(GroupKind.FULL_ATTENTION, block_size, None, eagle)


def _sliding(block_size: int, window: int, eagle: bool = False) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, block_size, window, eagle)


_PLANNER = "the layers of its published configuration, grouped by vLLM 0.33.0's own planner"

MODELS = (
    Model(
        "Llama-3-like",
        (_full(16),),
        16,
        "Meta-Llama-3-8B: 32 layers of full attention, which are one group; "
        "vLLM's default block size",
    ),
    Model(
        "Mistral-7B-v0.1-like",
        (_sliding(16, 4096),),
        16,
        "Mistral-7B-v0.1: 32 layers that all see a window of 4096 tokens (sliding_window of its "
        "configuration), which are one group; vLLM's default block size",
    ),
    Model("Gemma-3-like", (_full(16), *(_sliding(16, 1024),) * 6), 16, _PLANNER),
    Model(
        "Gemma-4-like",
        (_full(32), *(_sliding(16, 1024),) * 5),
        16,
        f"{_PLANNER}; the block sizes differ because the two kinds have pages of different sizes",
    ),
    Model(
        "gpt-oss-like",
        (_full(16, eagle=True), _sliding(16, 128)),
        16,
        f"{_PLANNER}; an EAGLE3 draft layer joins the full group",
    ),
    Model(
        "DeepSeek-V4-like",
        (
            _full(256),
            _sliding(64, 128, eagle=True),
            _sliding(64, 128),
            _sliding(4, 8),
            _sliding(8, 128),
        ),
        4,
        f"{_PLANNER}; latent attention counts as full, compressor states as windows, and the MTP "
        "layer sits in one of the groups of 64",
    ),
    Model(
        "Llama-4-Scout-like",
        (_full(16), *(Group(GroupKind.CHUNKED_LOCAL, 16, chunk=8192),) * 3),
        16,
        _PLANNER,
    ),
    Model(
        "Qwen3-Next-like",
        (_full(544, eagle=True), *(Group(GroupKind.MAMBA, 544),) * 3),
        544,
        f"{_PLANNER}; the MTP layer joins the full group",
    ),
)
"""Real models; EAGLE/MTP flags as their draft layers join the groups."""
