"""Prompts served one after another according to the spec: what is kept, and what is hit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hitproof.conformance.scope.configurations import Configuration
from hitproof.spec.groups import geometry
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.mask import in_mask
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import in_retained_mask, junction_boundary

Prefix = tuple[int, ...]


@dataclass
class ReferenceHistory:
    """The cache of a layout, under dense retention or an interval in tokens.

    Attributes:
        configuration: whose layout it is.
        policy: how far lookup may peek.
        interval: the retention interval; None is dense.
        keeps_junctions: whether a prefix seen to be shared is kept.
        kept: for each group, the prefixes that its registered blocks end.
    """

    configuration: Configuration
    policy: LookaheadHorizon
    interval: int | None
    keeps_junctions: bool = True
    kept: list[set[Prefix]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [set() for _ in self.configuration.layout]

    def serve(self, tokens: Sequence[int]) -> int:
        """The hit of a prompt in tokens; the blocks that it leaves are kept."""
        prompt, configuration = tuple(tokens), self.configuration
        groups, align, lookahead = (
            configuration.layout,
            configuration.alignment,
            configuration.lookahead_tokens,
        )

        def cached(index: int, block: int) -> bool:
            end = (block + 1) * groups[index].block_size
            return end <= len(prompt) and prompt[:end] in self.kept[index]

        peek = horizon(self.policy, len(prompt))
        hit = longest_valid_hit(groups, align, len(prompt) - 1, peek, cached)
        size = configuration.group.block_size
        replays = [b * size for b in configuration.replays(len(prompt), self.policy)]
        if self.keeps_junctions:
            # Full attention keeps whole blocks, so prompts may share a little more than that.
            shared = align * next(b for b in range(len(prompt)) if not cached(0, b))
            replays += [
                junction_boundary(seen, lookahead, align) for seen in (shared, shared + lookahead)
            ]
        for index in range(len(groups)):
            self._keep(index, prompt, replays)
        return hit

    def _keep(self, index: int, prompt: Prefix, replays: Sequence[int]) -> None:
        group = self.configuration.layout[index]
        size, shape = group.block_size, geometry(group, self.configuration.alignment)
        boundaries = [boundary // size for boundary in replays]
        for block in range(len(prompt) // size):
            if (
                in_mask(shape, block)
                if self.interval is None
                else in_retained_mask(shape, block, boundaries, self.interval // size or None)
            ):
                self.kept[index].add(prompt[: (block + 1) * size])
