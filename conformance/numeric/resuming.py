"""Resuming from the blocks that a hit requires, compared with computing everything.

The blocks come from `spec.hits.required_run`; everything else in the cache is NaN. What one hit
reads is *sufficient* when the logits are those of no caching, and each block of it *necessary* when
other content in its place changes some logit. Lookahead blocks are evidence, not content: they are
matched and not read. So what they are for is shown by two requests that share a number of tokens
exactly (`Experiment.shared`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from hitproof.conformance.numeric.caches import Paged, Pages, Uncached
from hitproof.conformance.numeric.model import Answer, Model, Token
from hitproof.conformance.numeric.outcome import WRONG, Errors
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, alignment, geometry, share_eagle
from hitproof.spec.hits import longest_valid_hit, required_run, valid_boundary, within_reach
from hitproof.spec.releases.fine import at_hash_units, is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon

_LONG = 16


def difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference of two tensors; infinite where one is NaN."""
    if not found.numel():
        return 0.0
    return float((found - wanted).abs().nan_to_num(nan=math.inf).max())


@dataclass(frozen=True)
class Rules:
    """What is taken as the spec: the spec itself, or a wrong one.

    Attributes:
        group: what the spec is asked about in place of a group.
        shape: what it makes of the group's geometry.
    """

    group: Callable[[Group], Group] = lambda group: group
    shape: Callable[[BlockGeometry], BlockGeometry] = lambda shape: shape

    def run(self, group: Group, alignment_tokens: int, length: int) -> range:
        """The required run of a group for a hit of ``length`` tokens, in its blocks."""
        shape = self.shape(geometry(self.group(group), alignment_tokens))
        return required_run(shape, length // group.block_size)


SPEC = Rules()


@dataclass(frozen=True)
class Experiment:
    """Groups and a prompt whose hits are tried.

    Attributes:
        groups: as `spec.groups.share_eagle` gives them. Each flagged one has a layer of every
            module of the draft head.
        num_tokens: of the prompt.
        hash_block_size: tokens in a hash unit, on which hits end where `is_fine_grained`; 0 for
            hits on block edges.
        policy: how far past a hit its lookahead block may reach.
        seed: of the model and the prompt.
        chunk: tokens of a step of prefill; the last token is decoded.
    """

    groups: tuple[Group, ...]
    num_tokens: int
    hash_block_size: int = 0
    policy: LookaheadHorizon = LookaheadHorizon.HASHED
    seed: int = 1
    chunk: int = 7
    _prompts: dict[str, Uncached] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(groups: Sequence[Group], eagle: bool, num_tokens: int) -> "Experiment":
        """The experiment of a layout with EAGLE on or off; hits require nothing of some groups."""
        shared = share_eagle(groups, eagle)
        return Experiment(tuple(each for each in shared if each.prefix_cacheable), num_tokens)

    @cached_property
    def looked_up(self) -> tuple[Group, ...]:
        """The groups as lookups treat them: their blocks are hash units where hits are fine."""
        if not self.hash_block_size:
            return self.groups
        assert is_fine_grained(self.groups, self.hash_block_size)
        return tuple(at_hash_units(group, self.hash_block_size) for group in self.groups)

    @cached_property
    def alignment(self) -> int:
        """The number of tokens that hits are multiples of."""
        return alignment(self.looked_up)

    @cached_property
    def model(self) -> Model:
        """The model."""
        drafts = [group.eagle and group.kind is not GroupKind.MAMBA for group in self.groups]
        modules = max(group.prefill_lookahead for group in self.groups)
        return Model(self.groups, drafts, modules, self.seed)

    def lengths(self, rules: Rules = SPEC) -> list[int]:
        """The hits of a resend with everything cached: within the cap and the horizon."""
        cap, limit = self.num_tokens - 1, horizon(self.policy, self.num_tokens)
        return [
            length
            for length in range(self.alignment, cap + 1, self.alignment)
            if all(
                within_reach(
                    rules.shape(geometry(rules.group(group), self.alignment)),
                    length // group.block_size,
                    cap // group.block_size,
                    limit // group.block_size,
                )
                for group in self.looked_up
            )
        ]

    def content(self, length: int, rules: Rules = SPEC) -> list[tuple[int, int]]:
        """The blocks (group, block) that a hit reads: its required runs without lookahead."""
        return [
            (index, block)
            for index, group in enumerate(self.looked_up)
            for block in rules.run(group, self.alignment, length)
            if block < length // group.block_size
        ]

    def prompt(self, name: str, shared: int = 0) -> list[Token]:
        """A request's tokens; the first ``shared`` are those of request "a"."""
        length = self.num_tokens + self.model.modules
        return [(("a" if token < shared else name), self.seed, token) for token in range(length)]

    def sufficient(
        self, rules: Rules = SPEC, elsewhere: str | None = None
    ) -> Iterator[tuple[int, Errors]]:
        """The error of each hit when exactly the blocks that it reads are right.

        The others hold what the request ``elsewhere`` computed, or nothing.
        """
        for length in self.lengths(rules):
            held = dict[tuple[int, int], str]()
            if elsewhere is not None:
                sizes = enumerate(group.block_size for group in self.looked_up)
                held = {
                    (index, block): elsewhere
                    for index, size in sizes
                    for block in range(length // size)
                }
            held |= dict.fromkeys(self.content(length, rules), "a")
            yield length, self.errors(length, held)

    def necessary(self, garbage: Sequence[str] = ("x", "y")) -> Iterator[tuple[int, int, Errors]]:
        """The smallest error, of each hit and group, when one block of it holds other content.

        The other content is that of each request in ``garbage``; the largest error counts.
        """
        for length in self.lengths():
            blocks = self.content(length)
            for wanted in range(len(self.groups)):
                found = [
                    self.without(length, each, garbage) for each in blocks if each[0] == wanted
                ]
                if found:
                    yield length, wanted, min(found, key=max)

    def without(self, length: int, block: tuple[int, int], garbage: Sequence[str]) -> Errors:
        """The error of a hit when a block (group, block) holds what another request computed."""
        right, found = dict.fromkeys(self.content(length), "a"), Errors(0.0, 0.0)
        for other in garbage:
            found = max(found, self.errors(length, right | {block: other}), key=max)
            if found.largest > WRONG:
                break
        return found

    def shared(self, rules: Rules = SPEC) -> Iterator[tuple[int, int, Errors]]:
        """What a request gets that shares exactly its first tokens with one that is cached whole.

        For each number of shared tokens, near boundaries where they are many: that, the hit, and
        its error.
        """
        cap, limit = self.num_tokens - 1, horizon(self.policy, self.num_tokens)
        near = 2 + max(group.prefill_lookahead for group in self.groups)
        for shared in range(1, self.num_tokens):
            if self.alignment > _LONG and near <= shared % self.alignment < self.alignment - 1:
                continue
            sizes = [group.block_size for group in self.looked_up]
            length = longest_valid_hit(
                tuple(map(rules.group, self.looked_up)),
                self.alignment,
                cap,
                limit,
                # A hash covers everything up to the end of its block.
                lambda group, block: (block + 1) * sizes[group] <= shared,  # noqa: B023, at once
                lambda shape, *rest: valid_boundary(rules.shape(shape), *rest),
            )
            if length:
                held = dict.fromkeys(self.content(length, rules), "a")
                yield shared, length, self.errors(length, held, "b", shared)

    def errors(
        self, length: int, held: Mapping[tuple[int, int], str], request: str = "a", shared: int = 0
    ) -> Errors:
        """The error of resuming ``request`` after ``length`` tokens from what is ``held``.

        ``held`` says of each block (group, block) which request computed it.
        """
        pages, tables = self._filled(held)
        tokens = self.prompt(request, shared)
        wanted, errors = self._uncached(request, shared).answer, Errors(0.0, 0.0)
        for start, end in self._steps(length):
            pages.new_step_starts()
            found = self._step(pages, tables, tokens, start, end)
            drafts = zip(found.drafts, wanted.drafts, strict=True)
            errors = Errors(
                max(errors.target, difference(found.logits, wanted.logits[start:end])),
                max([errors.drafts, *(difference(has, due[start:end]) for has, due in drafts)]),
            )
        return errors

    def _steps(self, length: int) -> Iterator[tuple[int, int]]:
        """Prefill in chunks, then decode."""
        start, decoded = length, max(length, self.num_tokens - 1)
        while start < self.num_tokens:
            end = min(start + self.chunk, decoded) if start < decoded else start + 1
            yield start, end
            start = end

    def _uncached(self, request: str, shared: int = 0) -> Uncached:
        key = f"{request}{shared}"
        if key not in self._prompts:
            self._prompts[key] = Uncached(self.model, self.prompt(request, shared))
        return self._prompts[key]

    def _filled(self, held: Mapping[tuple[int, int], str]) -> tuple[Pages, list[list[int]]]:
        """A pool with what is held, in tables of distinct blocks."""
        tables, free = [], 1
        for group in self.groups:
            blocks = math.ceil(self.num_tokens / group.block_size)
            tables.append([*range(free, free + blocks)])
            free += blocks
        pages = Pages(self.model, free)
        for layer in self.model.layers:
            size, unit = (of[layer.group].block_size for of in (self.groups, self.looked_up))
            for (index, block), request in held.items():
                if index != layer.group:
                    continue
                wrote, end = self._uncached(request), (block + 1) * unit
                if self.model.is_recurrent(layer):
                    place = tables[index][(end - 1) // size]
                    pages.write_state(layer, place, wrote.states[layer][end])
                else:
                    tokens = range(block * unit, end)
                    entries = wrote.entries[layer][tokens.start : end]
                    pages.write(layer, tables[index], tokens, entries)
        return pages, tables

    def _step(
        self, pages: Pages, tables: list[list[int]], tokens: list[Token], start: int, end: int
    ) -> Answer:
        sizes = {
            index: group.block_size
            for index, group in enumerate(self.groups)
            if group.kind is GroupKind.MAMBA
        }
        last = {index: tables[index][(start - 1) // size] for index, size in sizes.items()}
        cache = Paged(pages, tables, last)
        answer = self.model.run(tokens, cache, start, end)
        for layer, states in cache.kept.items():
            place = tables[layer.group][(end - 1) // sizes[layer.group]]
            pages.write_state(layer, place, states[-1])
        return answer


WRONG_RULES = {
    "window - 2": Rules(
        group=lambda group: (
            group if group.window is None else replace(group, window=max(group.window - 1, 1))
        )
    ),
    "tail - 1": Rules(shape=lambda shape: replace(shape, tail=max(int(shape.tail) - 1, 0))),
    "no lookahead": Rules(shape=lambda shape: replace(shape, lookahead=0)),
    "lookahead of one token": Rules(group=lambda group: replace(group, prefill_lookahead=1)),
}
"""Specs that are nearly right: a tail of ceil((w-2)/b) blocks; of one block less; no lookahead
block; and a lookahead of 1 token however many modules there are."""
