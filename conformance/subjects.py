"""Subjects: anything with a lookup and a mask that the checks can judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.configurations import Configuration
from spec.retention import LookaheadHorizon


class CannotJudge(Exception):
    """The subject lacks something a check needs; the message says precisely what."""


@dataclass(frozen=True)
class LookupAnswer:
    """What one lookup returned.

    Attributes:
        hit_length: tokens served from the cache.
        tables: for each group that shares the lookup, its block table up to the hit, one
            entry a block.
    """

    hit_length: int
    tables: Sequence[Sequence[Any]]


class Lookup(Protocol):
    """A subject's lookup, made ready for one configuration."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The key under which block i of the request is registered."""

    @property
    def inputs(self) -> Sequence[object]:
        """Objects that the subject is handed again, unchanged, on every run."""

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """Look up a request of ``len(keys)`` hashed blocks, serving at most ``max_length`` tokens.

        ``pool`` answers ``get_cached_block(key, kv_cache_group_ids)`` and has ``null_block``
        and ``hash_block_size``, as vLLM's ``BlockPool`` does.
        """


class Subject(Protocol):
    """What is judged. Both methods raise `CannotJudge` when an entry point is missing."""

    def lookup(self, configuration: Configuration) -> Lookup:
        """The lookup of the configuration's group."""

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        """Which blocks the producer registers for one request of ``num_blocks`` blocks.

        The request is computed in ``chunks``: token counts at which blocks are registered,
        ascending. The result has one entry a block.
        """

    @property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """How far past the cap the lookup over several groups peeks."""

    def retained(
        self, configuration: Configuration, num_tokens: int, interval: int
    ) -> list[bool] | None:
        """Which full blocks the producer registers for a prompt of ``num_tokens`` tokens.

        The group stands beside a full-attention group whose block size is the alignment, under
        a retention ``interval`` in tokens, 0 for the latest boundary only. None: the subject
        does not thin out groups of this kind.
        """

    def fine_lookup(self, configuration: Configuration) -> Lookup | None:
        """The lookup of the configuration's group, asked for hits that end on any hash block.

        ``keys`` has the key of the prefix that ends with each hash block of the request. None: the
        subject is older than fine-grained hits.
        """

    def hits(
        self,
        configuration: Configuration,
        prompts: Sequence[Sequence[int]],
        interval: int | None,
    ) -> list[int] | None:
        """The hit of each prompt (its token ids), in tokens, when they come in this order.

        Each is looked up, computed and freed; chunks end on boundaries, and nothing is evicted.
        The groups are the configuration's `layout`; ``interval`` as in `retained`, or None for
        dense retention. None: the subject does not keep junctions.
        """

    def source(self, entry: str) -> str:
        """Where an entry point ("lookup full_attention", "mask sliding_window") is: file:line."""
