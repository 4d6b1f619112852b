"""Subjects: anything with a lookup and a mask that the checks can judge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from conformance.configurations import Configuration
from conformance.layouts import Layout
from spec.retention import LookaheadHorizon


class CannotJudge(Exception):
    """The subject lacks something a check needs; the message says precisely what."""


class Predates(Exception):
    """The subject is older than what it is asked for; the message says what that is."""


@dataclass(frozen=True)
class LookupAnswer:
    """What one lookup returned.

    Attributes:
        hit_length: tokens served from the cache.
        tables: for each group of the configuration or layout, its block table up to the hit, one
            entry a block; an empty one for a group that opts out of prefix caching.
    """

    hit_length: int
    tables: Sequence[Sequence[Any]]


class Lookup(Protocol):
    """A subject's lookup, made ready for one configuration or layout."""

    @property
    def keys(self) -> Sequence[Sequence[bytes]]:
        """For each set of groups that are looked up together, the key of block i of the request.

        The sets are those of ``looked_up``, in that order.
        """

    @property
    def inputs(self) -> Sequence[object]:
        """Objects that the subject is handed again, unchanged, on every run."""

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """Look up a request, serving at most ``max_length`` tokens.

        With one group the request has as many hashed blocks as there are keys. A coordinator
        looks up a request of ``max_length`` + 1 tokens.

        ``pool`` answers ``get_cached_block(key, kv_cache_group_ids)`` and has ``null_block``
        and ``hash_block_size``, as vLLM's ``BlockPool`` does.
        """


class Subject(Protocol):
    """What is judged. Both methods raise `CannotJudge` when an entry point is missing."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The lookup of one group by its manager, or of several by the coordinator.

        Raises `Predates` when the subject's release has no groups that opt out of prefix caching
        and the layout has one.
        """

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
        a retention ``interval`` in tokens, 0 for the latest boundary only. None: the subject is
        older than sparse retention.
        """

    def source(self, entry: str) -> str:
        """Where an entry point is, as file:line.

        ``entry`` is "lookup" or "mask" and a kind of group, or "lookup" and "several".
        """
