"""The events that vLLM's pool has, of the reference's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hitproof.conformance.subject.managers import Cleared, Event, Removed, Stored
from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.hashing import ExtraKeys, block_hashes_of_size
from hitproof.reference.pool import BlockPool
from hitproof.reference.request import Request


class WatchedPool(BlockPool):
    """A pool that records how the set of cached blocks changes."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self._events: list[Event] = []

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        events, self._events = self._events, []
        return tuple(events)

    def cache_full_blocks(
        self,
        request: Request,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool],
    ) -> list[int]:
        """Also records it."""
        registered = super().cache_full_blocks(
            request,
            blocks,
            num_cached_blocks,
            num_full_blocks,
            block_size,
            kv_cache_group_id,
            block_mask,
        )
        self._events += self._stored(request, registered, block_size, kv_cache_group_id)
        return registered

    def reset_prefix_cache(self) -> bool:
        """Also records it."""
        done = super().reset_prefix_cache()
        if done:
            self._events.append(Cleared())
        return done

    def _evict(self, block: KVCacheBlock) -> None:
        key, group = block.block_hash, block.group_id
        super()._evict(block)
        if key is not None and key not in self._first[group]:
            self._events.append(Removed(group, (key,)))

    def _stored(
        self, request: Request, registered: Iterable[int], block_size: int, group: int
    ) -> list[Stored]:
        """An event for each run of blocks, after a parent that is cached, so that it is known.

        Where the block before a run is not cached, the first of the run has an event of its own,
        whose tokens begin after the last block that is.
        """
        hashes = block_hashes_of_size(request.block_hashes, request.hash_block_size, block_size)
        cached, events = self._first[group], list[Stored]()
        lora = None if request.lora_request is None else request.lora_request.name
        for index in registered:
            before = next((i for i in reversed(range(index)) if hashes[i] in cached), -1)
            start, end = (before + 1) * block_size, (index + 1) * block_size
            parent = hashes[before] if before >= 0 else None
            new = Stored(
                group=group,
                keys=(hashes[index],),
                parent=parent,
                token_ids=tuple(request.all_token_ids[start:end]),
                block_size=end - start,
                lora_name=lora,
                extra_keys=(shown(request.extra_keys(start, end)),),
            )
            last = events[-1] if events else None
            if last and last.keys[-1] == parent and last.block_size == new.block_size == block_size:
                events[-1] = replace(
                    last,
                    keys=last.keys + new.keys,
                    token_ids=last.token_ids + new.token_ids,
                    extra_keys=(last.extra_keys or ()) + (new.extra_keys or ()),
                )
            else:
                events.append(new)
        return events


def shown(keys: ExtraKeys) -> tuple[object, ...] | None:
    """The extra keys of a block as events show them; None when there are none."""
    lora = () if keys.lora is None else (keys.lora,)
    salt = () if keys.salt is None else (keys.salt,)
    return (*lora, *keys.items, *salt) or None
