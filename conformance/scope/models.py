"""The group layouts of real models, and their groups as configurations."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

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


def _models() -> Iterator[Model]:
    """The rows of ``models.toml``."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for row in rows["models"]:
        groups = tuple(
            Group(**each | {"kind": GroupKind(each["kind"])})
            for each in row["groups"]
            for _ in range(each.pop("times", 1))
        )
        origin = row["origin"].replace("$planner", rows["planner"])
        yield Model(row["name"], groups, row["hash_block_size"], origin)


MODELS = tuple(_models())
"""Real models; EAGLE/MTP flags as their draft layers join the groups."""
