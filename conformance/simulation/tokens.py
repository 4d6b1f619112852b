"""Token ids as ranges, of which long prompts have few: their hashes, and what they share."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hitproof.reference.request import hash_block_tokens

TokenRanges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive ranges (first, last) of token ids, in order."""


def joined(ranges: Iterable[tuple[int, int]]) -> TokenRanges:
    """The same tokens in the fewest ranges, so that equal prompts are equal."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and found[-1][1] + 1 == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return tuple(found)


def num_tokens(ranges: TokenRanges) -> int:
    """How many tokens they are."""
    return sum(last - first + 1 for first, last in ranges)


def block_hashes(ranges: TokenRanges, hash_block_size: int, lookahead: int = 0) -> Iterator[bytes]:
    """The hash of each whole block; each covers ``lookahead`` tokens past its block."""
    tokens = array("q")
    for first, last in ranges:
        tokens.extend(range(first, last + 1))
    parent: bytes | None = None
    for end in range(hash_block_size, len(tokens) - lookahead + 1, hash_block_size):
        ahead = tokens[end : end + lookahead]
        block = tokens[end - hash_block_size : end]
        parent = hash_block_tokens(parent, block, None, ahead)
        yield parent


@dataclass
class _Node:
    """A place in the tree of prompts; ``request`` is the last one that passed it."""

    edges: dict[int, "_Edge"] = field(default_factory=dict)
    request: int = -1


@dataclass
class _Edge:
    """Consecutive token ids that lead to a node."""

    first: int
    count: int
    node: _Node


@dataclass(frozen=True)
class Shared:
    """What a request shares with those before it.

    Attributes:
        tokens: the length of the longest common prefix.
        prompt: the longest prompt of theirs that it begins with, in tokens; 0 for none.
        request: the number of the last request that has that prefix; None where there is none.
    """

    tokens: int
    prompt: int
    request: int | None


class SharedPrefixes:
    """The token sequences of requests as a radix tree."""

    def __init__(self) -> None:
        self._root = _Node()
        self._prompts: set[tuple[int, int]] = set()

    def shared(self, ranges: TokenRanges) -> Shared:
        """What a sequence shares with those that were added."""
        tokens = prompt = 0
        request: int | None = None
        for edge, common in self._path(ranges):
            tokens += common
            request = edge.node.request
            if common == edge.count and (id(edge.node), tokens) in self._prompts:
                prompt = tokens
        return Shared(tokens, prompt, request)

    def add(self, ranges: TokenRanges, num_prompt_tokens: int, request: int) -> None:
        """Add a sequence, whose first ``num_prompt_tokens`` tokens are a prompt."""
        node, tokens = self._root, 0
        for first, count in _cut(ranges, num_prompt_tokens):
            while count:
                edge = node.edges.get(first)
                if edge is None:
                    edge = node.edges[first] = _Edge(first, count, _Node())
                if edge.count > count:
                    rest = _Edge(first + count, edge.count - count, edge.node)
                    middle = _Node({rest.first: rest}, edge.node.request)
                    edge.count, edge.node = count, middle
                node = edge.node
                node.request = request
                tokens += edge.count
                first, count = first + edge.count, count - edge.count
            if tokens == num_prompt_tokens:
                self._prompts.add((id(node), tokens))

    def _path(self, ranges: TokenRanges) -> Iterator[tuple[_Edge, int]]:
        """The edges that a sequence runs along, each with how many of its tokens are common."""
        node = self._root
        for first, last in ranges:
            while first <= last:
                edge = node.edges.get(first)
                if edge is None:
                    return
                common = min(edge.count, last - first + 1)
                yield edge, common
                if common < edge.count:
                    return
                node, first = edge.node, first + common


def _cut(ranges: Sequence[tuple[int, int]], at: int) -> Iterator[tuple[int, int]]:
    """Each range as its first token and its length, cut after ``at`` tokens."""
    for first, last in ranges:
        count = last - first + 1
        if 0 < at < count:
            yield first, at
            yield first + at, count - at
        else:
            yield first, count
        at -= count
