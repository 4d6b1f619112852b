"""vLLM's lookups, of one group by its manager and of several by the coordinator.

Imported in the worker process only.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from hitproof.conformance.exploration.watch import do_not_watch
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, definitions, spelled
from hitproof.vllm_integration.adapter.parts import Parts, parallel

_GIVEN = ("block_pool", "max_length")


class VllmLookup:
    """``find_longest_cache_hit`` of one manager class, ready for one configuration."""

    def __init__(
        self,
        function: Callable[..., Any],
        keywords: dict[str, Any],
        keys: Sequence[Sequence[bytes]],
        block_size: int,
    ) -> None:
        self.keys = keys
        self.inputs = (keywords, *keywords.values())
        self._function = function
        self._keywords = spelled(function, keywords)
        self._given = tuple(spelled(function, dict.fromkeys(_GIVEN)))
        self._block_size = block_size

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        given = dict(zip(self._given, (pool, max_length), strict=True))
        returned = self._function(**given, **self._keywords)
        # Newer lookups also return the hit length; before, it follows from the tables.
        match returned:
            case (tuple() as tables, int() as hit_length):
                return LookupAnswer(hit_length, tables)
            case (list() as first, *_):
                return LookupAnswer(len(first) * self._block_size, returned)
        raise CannotJudge(
            f"find_longest_cache_hit returned {returned!r:.80}, which hitproof cannot read"
        )


def group_lookup(
    parts: Parts,
    configuration: Configuration,
    align: int,
    hashes: list[bytes],
    view: Any,
    keys: Sequence[bytes],
) -> VllmLookup:
    """The lookup of one group, for hits that end on multiples of ``align`` tokens.

    ``view`` has the ``hashes`` as the group sees them, ``keys`` those of its blocks, or of the
    hash blocks on which hits may end. Raises `CannotJudge`.
    """
    manager = parts.varied_manager_class(configuration.group)
    function = attribute(manager, "find_longest_cache_hit")
    # Newer lookups make their own view of the hashes; before, the caller did.
    resolves = any(
        "resolve_block_hashes" in inspect.unwrap(each).__code__.co_names
        for each in definitions(function)
    )
    values = {
        "block_hashes": hashes if resolves else view,
        "kv_cache_group_ids": list(range(configuration.members)),
        "kv_cache_spec": parts.spec(parts.on_one_rank(configuration)),
        "drop_eagle_block": configuration.group.eagle,
        "use_eagle": configuration.group.eagle,
        "alignment_tokens": align,
        **parallel(configuration),
    }
    where = f"{manager.__name__}.find_longest_cache_hit"
    keywords = arguments(function, values, where, given=_GIVEN)
    if not {"block_hashes", "kv_cache_spec", "alignment_tokens"} <= keywords.keys() or (
        configuration.group.eagle and not {"drop_eagle_block", "use_eagle"} & keywords.keys()
    ):
        raise CannotJudge(
            f"{where}{inspect.signature(function)} lacks a parameter that hitproof fills: "
            f"{', '.join(sorted(values.keys() - keywords.keys()))}"
        )
    return VllmLookup(function, keywords, [keys], configuration.group.block_size)


class VllmCommonLookup:
    """``find_longest_cache_hit`` of a real coordinator, ready for one layout."""

    def __init__(self, coordinator: Any, hashes: list[bytes], keys: Sequence[Sequence[bytes]]):
        self.keys = keys
        self._owners = (coordinator, *coordinator.single_type_managers)
        self._find = attribute(coordinator, "find_longest_cache_hit")
        self._hashes = hashes
        managers = coordinator.single_type_managers
        specs = [group.kv_cache_spec for group in coordinator.kv_cache_config.kv_cache_groups]
        self.inputs = (coordinator, *managers, *specs, hashes)
        self._hash_block_size = getattr(coordinator, "hash_block_size", managers[0].block_size)

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """See `conformance.subject.lookups.Lookup`."""
        for owner in self._owners:
            owner.block_pool = pool
        hashed = self._hashes[: (max_length + 1) // self._hash_block_size]
        returned = self._find(hashed, max_length)
        match returned:
            case (tuple() as tables, int() as hit_length, *_):
                return LookupAnswer(hit_length, tables)
        raise CannotJudge(
            f"find_longest_cache_hit of the coordinator returned {returned!r:.80}, which hitproof "
            f"cannot read"
        )


do_not_watch(*(each.__call__.__code__ for each in (VllmLookup, VllmCommonLookup)))


def hits_per_group(coordinator: Any, request: Any, cap: int) -> tuple[Any, Sequence[int]] | None:
    """The longest hits of each group alone, of at most ``cap`` tokens: their blocks and lengths.

    None where the release has no such lookup.
    """
    find = getattr(coordinator, "find_longest_cache_hit_per_group", None)
    return None if find is None else find(request.block_hashes, cap)
