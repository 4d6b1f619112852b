"""What a real manager has cached, and the events about it, by the keys of its requests.

Imported in the worker process only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import Cleared, Event, Removed, Stored
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.vllm_integration.adapter.inspection import attribute

_KINDS = {
    "mla_attention": GroupKind.FULL_ATTENTION,
    "sink_full_attention": GroupKind.FULL_ATTENTION,
    "sliding_window_mla": GroupKind.SLIDING_WINDOW,
    "chunked_local_attention": GroupKind.CHUNKED_LOCAL,
}
_NO_KIND = "unknown"
"""Said of classes of specs that have no name in events."""


class VllmCache:
    """The hash map of a real ``BlockPool``.

    ``utils`` is the target's module ``kv_cache_utils``, ``requests`` has the manager's real
    requests, ``registers_tails`` is whether the ends of prompts inside blocks are registered.
    """

    def __init__(
        self,
        utils: ModuleType,
        engine: EngineConfiguration,
        pool: Any,
        requests: Mapping[str, Any],
        registers_tails: bool,
    ) -> None:
        self._utils = utils
        self._engine = engine
        self._pool = pool
        self._requests = requests
        self._external = attribute(utils, "maybe_convert_block_hash")
        self._unit_keys: set[bytes] = set()
        self._block_hash_list = attribute(utils, "BlockHashListWithBlockSize")
        self._block_keys: dict[tuple[str, int], list[bytes]] = {}
        # Entries inside blocks are shown only where hits may end inside blocks.
        self._hides_tails = registers_tails and not is_fine_grained(
            engine.groups, engine.hash_block_size
        )
        self._tail_keys: set[tuple[int | None, bytes]] = set()
        self._num_hashes: dict[str, int] = {}
        self._keys: dict[Any, bytes] = {}
        self._splits: dict[Any, tuple[int, bytes]] = {}

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        """The request's hashes as the target groups them into blocks."""
        if not self._engine.groups[group].prefix_cacheable:
            return []
        hashes = self._requests[name].block_hashes
        size, hash_size = self._engine.groups[group].block_size, self._engine.hash_block_size
        if size != hash_size:
            hashes = self._block_hash_list(hashes, hash_size, size)
        known = self._block_keys.setdefault((name, group), [])
        for index in range(len(known), len(hashes)):
            known.append(bytes(hashes[index]))
            self._keys[self._external(known[-1])] = known[-1]
        return known

    def unit_keys(self, name: str) -> Sequence[Any]:
        """The request's hashes, one for each hash unit."""
        hashes = [bytes(key) for key in self._requests[name].block_hashes]
        for key in hashes:
            if key not in self._unit_keys:
                self._unit_keys.add(key)
                self._keys[self._external(key)] = key
        return hashes

    def cached(self) -> dict[tuple[int, Any], tuple[int, ...]]:
        """The hash map, read directly: no public method returns the order of several blocks.

        From 0.26 on the tail of a prompt that ends inside a block is also registered, under the
        hash of its last hash block. Where hits end on block edges only, these entries are
        omitted.
        """
        tails = self._tails()
        found = {}
        for key, held in attribute(self._pool.cached_block_hash_to_block, "_cache").items():
            split = self._splits.get(key)
            if split is None:
                split = self._utils.get_group_id(key), bytes(self._utils.get_block_hash(key))
                self._splits[key] = split
            if split not in tails:
                found[split] = block_ids(held)
        return found

    def _tails(self) -> set[tuple[int | None, bytes]]:
        """The keys of prefixes that end inside a block of a group."""
        hash_size = self._engine.hash_block_size
        for request in self._requests.values() if self._hides_tails else ():
            known = self._num_hashes.get(request.request_id, 0)
            self._num_hashes[request.request_id] = len(request.block_hashes)
            for index in range(known, len(request.block_hashes)):
                key = bytes(request.block_hashes[index])
                self._keys[self._external(key)] = key
                for number, group in enumerate(self._engine.groups):
                    if (index + 1) * hash_size % group.block_size:
                        self._tail_keys.add((number, key))
        return self._tail_keys

    def events(self, taken: Iterable[Any]) -> tuple[Event, ...]:
        """The events ``taken`` from the manager, except those about tails only (see `cached`)."""
        tails = self._tails()
        events = (self._event(event) for event in taken)
        return tuple(
            event
            for event in events
            if isinstance(event, Cleared)
            or not event.keys
            or not tails.issuperset((event.group, key) for key in event.keys)
        )

    def _event(self, event: Any) -> Event:
        match type(event).__name__:
            case "BlockStored":
                extra = tuple(event.extra_keys or ()) if hasattr(event, "extra_keys") else None
                return Stored(
                    group=getattr(event, "group_idx", None),
                    keys=tuple(self._key(key) for key in event.block_hashes),
                    parent=self._key(event.parent_block_hash),
                    token_ids=tuple(event.token_ids),
                    block_size=event.block_size,
                    lora_name=getattr(event, "lora_name", None),
                    extra_keys=extra,
                    kind=self._kind(event),
                    window=getattr(event, "kv_cache_spec_sliding_window", None),
                    ahead=self._ahead(event),
                    medium=getattr(event, "medium", None),
                    lora_id=getattr(event, "lora_id", None),
                    says_numbers=hasattr(event, "lora_id"),
                )
            case "BlockRemoved":
                keys = tuple(self._key(key) for key in event.block_hashes)
                medium = getattr(event, "medium", None)
                return Removed(getattr(event, "group_idx", None), keys, medium)
            case "AllBlocksCleared":
                return Cleared()
            case other:
                raise CannotJudge(f"hitproof does not know events of type {other}")

    @staticmethod
    def _kind(event: Any) -> str | None:
        """The kind of the group of an event; variants of a kind, as of MLA, are that kind."""
        if not hasattr(event, "kv_cache_spec_kind"):
            return None
        said = event.kv_cache_spec_kind or ""
        return None if said == _NO_KIND else _KINDS.get(said, said)

    @staticmethod
    def _ahead(event: Any) -> tuple[tuple[int, ...], ...] | None:
        if not hasattr(event, "lookahead_token_ids"):
            return None
        return tuple(map(tuple, event.lookahead_token_ids or ()))

    def _key(self, external: Any) -> Any:
        """The key for the form that events show, if a request has it."""
        return None if external is None else self._keys.get(external, external)


def free_queue(pool: Any) -> Iterator[int]:
    """Follow the links from head to tail; a cycle is followed far enough to be detected."""
    queue = attribute(pool, "free_block_queue")
    block = attribute(queue, "fake_free_list_head").next_free_block
    tail = attribute(queue, "fake_free_list_tail")
    for _ in range(2 * len(pool.blocks)):
        if block is None or block is tail:
            return
        yield block.block_id
        block = block.next_free_block


def block_ids(held: Any) -> tuple[int, ...]:
    """The blocks that the hash map has under one key: None, one of them, or several."""
    if held is None:
        return ()
    return tuple([each.block_id for each in (held.values() if isinstance(held, dict) else (held,))])
