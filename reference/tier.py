"""The smallest tier that satisfies `spec.tiers`: a set of keys, on the reference's own scans."""

from collections.abc import Collection, Sequence

from hitproof.reference.hashing import block_hashes_of_size
from hitproof.reference.lookup import Pool
from hitproof.reference.spec_groups import find_hit, spec_groups
from hitproof.spec.groups import Group, geometry, whole_blocks
from hitproof.spec.mask import is_due
from hitproof.spec.tiers import is_loaded, is_stored

Key = tuple[int, bytes]
"""A block's key: the index of its group, and its hash."""


class Tier:
    """A second store of blocks. vLLM: ``MooncakeStoreCoordinator``, with what it stores.

    ``groups`` are as `share_eagle` gives them. Lengths are in tokens; hits end on multiples of
    ``alignment``. A group that opts out of prefix caching is not stored.

    Attributes:
        stored: the keys of the blocks that it has.
        shared: the groups, equal ones together, as lookups ask for them.
    """

    def __init__(self, groups: Sequence[Group], alignment: int, hash_block_size: int) -> None:
        self.stored: set[Key] = set()
        self._groups = groups
        self._shapes = [geometry(group, alignment) for group in groups]
        self.shared = spec_groups(groups, alignment, hash_block_size)
        self._hash_block_size = hash_block_size

    def store(self, block_hashes: Sequence[bytes], start: int, end: int) -> None:
        """Take over what a step computed that filled the tokens from ``start`` up to ``end``."""
        for number, kept in enumerate(self.store_mask(start, end)):
            first = whole_blocks(start, self._groups[number].block_size)
            keys = self._keys(block_hashes, number)
            self.stored |= {keys[first + block] for block, each in enumerate(kept) if each}

    def store_mask(self, start: int, end: int) -> list[list[bool]]:
        """For each group, which of the blocks of that step are stored."""
        masks = []
        for group, shape in zip(self._groups, self._shapes, strict=True):
            first, last = (whole_blocks(tokens, group.block_size) for tokens in (start, end))
            blocks = range(first, last) if group.prefix_cacheable else ()
            masks.append([bool(is_stored(shape, block, first, last)) for block in blocks])
        return masks

    def lookup_mask(self, length: int) -> list[list[bool]]:
        """For each group, which blocks of a request of ``length`` tokens a lookup asks for."""
        masks = []
        for group, shape in zip(self._groups, self._shapes, strict=True):
            end = whole_blocks(length, group.block_size) if group.prefix_cacheable else 0
            masks.append([bool(is_due(shape, block, end)) for block in range(end)])
        return masks

    def find_longest_hit(
        self, block_hashes: Sequence[bytes], cap: int, horizon: int, local: Pool
    ) -> int:
        """The longest hit of at most ``cap`` tokens whose blocks are stored or local.

        ``horizon`` is the lookahead horizon.
        """
        pool = _StoredOrLocal(self.stored, local)
        return find_hit(self.shared, len(self._groups), block_hashes, cap, horizon, pool).length

    def load_mask(self, hit: int, local: Sequence[Collection[int]]) -> list[list[bool]]:
        """For each group, which blocks of a ``hit`` are loaded; ``local`` are blocks of each."""
        masks = []
        for group, shape, here in zip(self._groups, self._shapes, local, strict=True):
            end = whole_blocks(hit, group.block_size) if group.prefix_cacheable else 0
            loaded = [bool(is_loaded(shape, b, end, here.__contains__)) for b in range(end)]
            masks.append(loaded)
        return masks

    def _keys(self, block_hashes: Sequence[bytes], number: int) -> list[Key]:
        size = self._groups[number].block_size
        hashes = block_hashes_of_size(block_hashes, self._hash_block_size, size)
        return [(number, each) for each in hashes]


class _StoredOrLocal:
    """Both stores as a lookup sees them."""

    def __init__(self, stored: Collection[Key], local: Pool) -> None:
        self.null_block = local.null_block
        self._stored = stored
        self._local = local

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> Sequence[object] | None:
        """Something for each group that has the block in either store, or None if any has not."""
        for group_id in kv_cache_group_ids:
            here = (group_id, block_hash) in self._stored
            if not here and self._local.get_cached_block(block_hash, (group_id,)) is None:
                return None
        return [block_hash] * len(kv_cache_group_ids)
