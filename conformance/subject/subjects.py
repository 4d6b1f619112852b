"""Subjects: anything with a lookup, a mask and a block pool that can be checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups


class CannotJudge(Exception):
    """The subject lacks something that a check needs; the message says precisely what."""


class Predates(Exception):
    """The subject predates a feature that it is asked for; the message says which."""


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


Key: TypeAlias = tuple[bytes, int]
"""What a cached block is found under: a block hash and the number of a group."""


@dataclass(frozen=True)
class PoolSnapshot:
    """All that a block pool knows at one moment. Blocks go by their numbers.

    Attributes:
        null_block: the null block.
        ref_counts: the reference count of each block.
        free_queue: the blocks in the free queue, the next to be handed out first.
        free_count: how many blocks the pool says are free.
        carried: the keys that each block carries.
        named: each entry of the cache, as the key and the block that it names.
    """

    null_block: int
    ref_counts: tuple[int, ...]
    free_queue: tuple[int, ...]
    free_count: int
    carried: tuple[frozenset[Key], ...]
    named: frozenset[tuple[Key, int]]


class Pool(Protocol):
    """A subject's block pool. Methods are called as vLLM's ``BlockPool`` names them."""

    def get_new_blocks(self, count: int) -> list[int]:
        """Hand out ``count`` blocks."""

    def touch(self, blocks: Sequence[int]) -> None:
        """Count one more holder of each block."""

    def free_blocks(self, blocks: Sequence[int]) -> None:
        """Count one holder less; the first block is to be handed out first."""

    def cache_full_block(self, block: int, key: Key) -> None:
        """Register one block (``cache_full_blocks`` of a request of one block)."""

    def evict_blocks(self, blocks: Sequence[int]) -> None:
        """Declare the content of the blocks invalid."""

    def reset_prefix_cache(self) -> bool:
        """Forget all keys, unless a block is held; whether it did."""

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[int] | None:
        """The block found under the hash in each of the groups; None if one has none."""

    def snapshot(self) -> PoolSnapshot:
        """What the pool knows now."""


@dataclass(frozen=True, order=True)
class Prompt:
    """What a request computes its blocks from.

    Attributes:
        tokens: its token ids.
        salt: the cache salt, or "".
        adapter: the LoRA adapter's name and path, or two times "".
    """

    tokens: tuple[int, ...]
    salt: str = ""
    adapter: tuple[str, str] = ("", "")


class Subject(Protocol):
    """What is judged.

    All methods raise `CannotJudge` when an entry point is missing or a probe of a policy crashes,
    and `Predates` when the subject's release is older than what is asked for.
    """

    def lookup(self, judged: Configuration | Layout) -> Lookup:
        """The lookup of one group by its manager, or of several by the coordinator."""

    def connector_lookup(self, layout: Layout) -> Lookup:
        """What lookup tells a KV connector that loads Mamba states.

        ``inputs`` may be empty: it is explored without merging.
        """

    def registered(self, configuration: Configuration, chunks: Sequence[int]) -> list[bool]:
        """Which blocks the producer registers for one request of ``num_blocks`` blocks.

        The request is computed in ``chunks``: token counts at which blocks are registered,
        ascending. The result has one entry a block.
        """

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        """Which blocks a KV connector would store of a request that it has ``end`` blocks of.

        The result has one entry for each of the ``num_blocks``.
        """

    def registered_when_final(
        self, configuration: Configuration, num_tokens: int, not_final: int, alone: bool
    ) -> list[bool]:
        """Which full blocks the producer registers of a prompt of ``num_tokens`` tokens.

        A draft model computes the last ``not_final`` tokens anew. The group stands beside full
        attention, as in `retained`, or ``alone``.
        """

    @property
    def eagle_groups(self) -> EagleGroups:
        """Which groups drop a lookahead block."""

    @property
    def lookahead_horizon(self) -> LookaheadHorizon:
        """How far past the cap the lookup over several groups peeks."""

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        """Which full blocks the producer registers for a prompt of ``num_tokens`` tokens.

        The group stands beside a full-attention group whose block size is the alignment, under
        a retention ``interval`` in tokens, 0 for the latest boundary only.
        """

    def fine_lookup(self, configuration: Configuration) -> Lookup:
        """The lookup of the configuration's group, asked for hits that end on any hash block.

        ``keys`` has the key of the prefix that ends with each hash block of the request.
        """

    def hits(
        self,
        configuration: Configuration,
        prompts: Sequence[Sequence[int]],
        interval: int | None,
    ) -> list[int]:
        """The hit of each prompt (its token ids), in tokens, when they come in this order.

        Each is looked up, computed and freed; chunks end on boundaries, and nothing is evicted.
        The groups are the configuration's `layout`; ``interval`` as in `retained`, or None for
        dense retention.
        """

    def pool(self, num_blocks: int) -> Pool:
        """A new block pool of ``num_blocks`` blocks, the null block among them."""

    def block_hashes(
        self, prompt: Prompt, hash_block_size: int, block_size: int, hash_lookahead: int
    ) -> list[bytes]:
        """The hash of each full block of a prompt, for a group of ``block_size`` tokens a block.

        Hashes are computed for ``hash_block_size`` tokens each and cover ``hash_lookahead``
        tokens past their block.
        """

    def source(self, entry: str) -> str:
        """Where an entry point is, as file:line.

        ``entry`` is "lookup" or "mask" and a kind of group, "lookup" and "several" or "connector",
        "block_pool" or "block_hash".
        """
