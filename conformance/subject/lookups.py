"""Lookups of a subject: of one group by its manager, of several by the coordinator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups


@dataclass(frozen=True)
class LookupAnswer:
    """What one lookup returned.

    Attributes:
        hit_length: tokens served from the cache.
        tables: for each group of the configuration or layout, its block table up to the hit, one
            entry a block; an empty one for a group that opts out of prefix caching.
        diverged: whether the hit is flagged as a local prefix that lacks a Mamba state
            (`spec.connector`).
    """

    hit_length: int
    tables: Sequence[Sequence[Any]]
    diverged: bool = False


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


class HorizonSubject(Protocol):
    """Has a lookup that peeks past what it may serve."""

    @property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """How far past the cap the lookup over several groups peeks."""


class LookupSubject(HorizonSubject, Protocol):
    """Looks up hits that end on boundaries."""

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The lookup of one group by its manager, or of several by the coordinator."""

    @property
    def eagle_groups(self) -> EagleGroups:
        """Which groups drop a lookahead block."""


class ConnectorSubject(HorizonSubject, Protocol):
    """Looks up local prefixes, for a KV connector."""

    def connector_lookup(self, layout: Layout) -> Lookup:
        """What lookup tells a KV connector that loads Mamba states.

        ``inputs`` may be empty: it is explored without merging.
        """


class FineLookupSubject(Protocol):
    """Looks up hits that end inside blocks."""

    def fine_lookup(self, configuration: Configuration) -> Lookup:
        """The lookup of the configuration's group, asked for hits that end on any hash block.

        ``keys`` has the key of the prefix that ends with each hash block of the request.
        """
