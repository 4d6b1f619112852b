"""A small model whose logits depend on every entry that its layers read.

Float64 on the CPU, seeded, and written as models are, without the spec's predicates: they are what
is tested with it. A pre-norm transformer with one layer of each KV cache group a round, several
rounds, and optionally a draft head.

- Attention sees all earlier tokens, those of a window, or those of its own chunk. Its entry of a
  token is a key and a value.
- A linear recurrence stands for Mamba and Gated DeltaNet: one state, which each token decays and to
  which it adds the outer product of its key and value.
- Module j of the draft head combines, at token i, what the module before it has there (the first
  one the target's hidden state) with the token i + j, and attends in its groups. So its entries
  depend on the j tokens that follow (Li et al., EAGLE, 2024; vLLM's MTP modules).

What a token stands for (`Token`) is anything that changes its embedding: its id, the LoRA adapter,
an image. An entry that is not there is NaN, and so is all that is computed from it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress, count
from typing import Protocol
from zlib import crc32

import torch
from torch import Tensor

from hitproof.spec.groups import Group, GroupKind

WIDTH = 12
"""Numbers in a hidden state, a key, and a value."""
VOCABULARY = 24
"""Logits of a position."""
ROUNDS = 2
"""Layers of each group, those of the draft head apart."""
Token = tuple[object, ...]
"""What the embedding of a token depends on."""


@dataclass(frozen=True)
class Layer:
    """A layer that keeps something of each token.

    Attributes:
        group: its group, an index.
        place: its place among the layers of the group.
        module: the module of the draft head that it belongs to, from 1 on; 0 for the target.
    """

    group: int
    place: int
    module: int = 0


class Cache(Protocol):
    """What the layers have kept of one request's earlier tokens, and where they keep the next."""

    def write(self, layer: Layer, first: int, entries: Tensor) -> None:
        """Keep the entries of the tokens from ``first`` on, one a row."""

    def read(self, layer: Layer, end: int) -> Tensor:
        """The entries of the first ``end`` tokens, NaN where there is none."""

    def state(self, layer: Layer) -> Tensor:
        """The state of the recurrence before the pass."""

    def keep(self, layer: Layer, states: Tensor) -> None:
        """Keep states: those after each token of the pass."""


@dataclass(frozen=True)
class Answer:
    """What a pass computes.

    Attributes:
        hidden: the target's last hidden state of each token, from ``start``.
        logits: the target's, from ``start``.
        drafts: those of each module of the draft head, from the pass's ``first``.
    """

    hidden: Tensor
    logits: Tensor
    drafts: tuple[Tensor, ...]


class Model:
    """A model with layers in ``groups``, seeded.

    Its draft head has ``modules`` modules, 0 for none, with a layer in each of the groups for which
    ``drafts`` says so. Groups for which ``modelled`` does not say so have no layers.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        drafts: Sequence[bool] = (),
        modules: int = 0,
        seed: int = 1,
        modelled: Sequence[bool] | None = None,
    ) -> None:
        self.groups = tuple(groups)
        have = [*range(len(self.groups))] if modelled is None else [*compress(count(), modelled)]
        drafts = [on and group in have for group, on in enumerate(drafts)]
        self.modules = modules if any(drafts) else 0
        self._random = torch.Generator().manual_seed(seed)
        self._target = [Layer(group, place) for place in range(ROUNDS) for group in have]
        self._drafting = [
            [Layer(group, ROUNDS + module, module + 1) for group, on in enumerate(drafts) if on]
            for module in range(self.modules)
        ]
        self._weights = {layer: self._layer() for layer in self.layers}
        self._combine = [(self._matrix(), self._matrix()) for _ in range(self.modules)]
        self._unembed = self._matrix(WIDTH, VOCABULARY)
        self._decay = torch.linspace(0.8, 0.99, WIDTH, dtype=torch.float64)

    @cached_property
    def layers(self) -> list[Layer]:
        """All layers, in the order in which they compute."""
        return [*self._target, *(layer for module in self._drafting for layer in module)]

    def is_recurrent(self, layer: Layer) -> bool:
        """Whether the layer keeps one state, and no entry of each token."""
        return self.groups[layer.group].kind is GroupKind.MAMBA

    def run(
        self,
        tokens: Sequence[Token],
        cache: Cache,
        start: int,
        end: int,
        earlier: Tensor | None = None,
    ) -> Answer:
        """Compute the tokens from ``start`` to ``end``; ``tokens`` are at least ``modules`` more.

        ``earlier`` are hidden states of the target's tokens just before ``start`` that the draft
        head computes again.
        """
        hidden = torch.stack([_embedding(token) for token in tokens[start:end]])
        hidden = hidden + _positions(start, end)
        for layer in self._target:
            hidden = self._apply(layer, hidden, cache, start, end)
        drafts, first = [], start
        before = hidden
        if earlier is not None:
            before, first = torch.cat([earlier, hidden]), start - len(earlier)
        for module, layers in enumerate(self._drafting, 1):
            following = [_embedding(token) for token in tokens[first + module : end + module]]
            of_hidden, of_token = self._combine[module - 1]
            before = _norm(before) @ of_hidden + _norm(torch.stack(following)) @ of_token
            for layer in layers:
                before = self._apply(layer, before, cache, first, end)
            drafts.append(_norm(before) @ self._unembed)
        return Answer(hidden, _norm(hidden) @ self._unembed, tuple(drafts))

    def _matrix(self, rows: int = WIDTH, columns: int = WIDTH) -> Tensor:
        drawn = torch.randn(rows, columns, generator=self._random, dtype=torch.float64)
        return drawn / math.sqrt(rows)

    def _layer(self) -> Mapping[str, Tensor]:
        return {name: self._matrix() for name in ("query", "key", "value", "out", "in", "of")}

    def _apply(self, layer: Layer, hidden: Tensor, cache: Cache, start: int, end: int) -> Tensor:
        weights, normed = self._weights[layer], _norm(hidden)
        query, key, value = (normed @ weights[name] for name in ("query", "key", "value"))
        if self.is_recurrent(layer):
            states = self._recur(cache.state(layer), key, value)
            cache.keep(layer, states)
            mixed = torch.einsum("td,tde->te", query, states)
        else:
            cache.write(layer, start, torch.cat([key, value], 1))
            mixed = attention(query, cache.read(layer, end), self.groups[layer.group], start)
        hidden = hidden + mixed @ weights["out"]
        return hidden + torch.tanh(_norm(hidden) @ weights["in"]) @ weights["of"]

    def _recur(self, state: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The state after each token."""
        states = []
        for key, value in zip(keys, values, strict=True):
            state = self._decay[:, None] * state + torch.outer(key, value)
            states.append(state)
        return torch.stack(states)


def attention(query: Tensor, entries: Tensor, group: Group, start: int) -> Tensor:
    """The values that each query, the first at token ``start``, attends to, by its softmax."""
    at = torch.arange(start, start + len(query))[:, None]
    of = torch.arange(len(entries))[None, :]
    seen = of <= at
    if group.window is not None:
        seen &= of > at - group.window
    if group.chunk is not None:
        seen &= of // group.chunk == at // group.chunk
    absent = entries.isnan().any(1)
    keys, values = entries.nan_to_num().chunk(2, 1)
    scores = (query @ keys.T / math.sqrt(WIDTH)).masked_fill(~seen, -math.inf)
    mixed = scores.softmax(1) @ values
    # A weight of zero times NaN is NaN: only what is read may spoil the result.
    return mixed.masked_fill((seen & absent).any(1)[:, None], math.nan)


def _norm(hidden: Tensor) -> Tensor:
    return hidden / hidden.square().mean(-1, keepdim=True).sqrt()


@lru_cache(maxsize=100_000)
def _embedding(token: Token) -> Tensor:
    drawn = torch.Generator().manual_seed(crc32(repr(token).encode()))
    return torch.randn(WIDTH, generator=drawn, dtype=torch.float64)


def _positions(start: int, end: int) -> Tensor:
    """Sines and cosines of each position."""
    at = torch.arange(start, end, dtype=torch.float64)[:, None]
    angles = at / 50 ** (torch.arange(WIDTH // 2, dtype=torch.float64) * 2 / WIDTH)
    return torch.cat([angles.sin(), angles.cos()], 1)
