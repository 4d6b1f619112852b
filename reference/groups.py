"""The blocks that requests hold in one group: allocation, registration and release.

vLLM: ``vllm/v1/core/single_type_kv_cache_manager.py``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hitproof.reference.pool import BlockPool, KVCacheBlock
from hitproof.reference.registration import Mask
from hitproof.reference.request import Request
from hitproof.spec.admission import blocks_at_once
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.sharing import final_tokens
from hitproof.spec.terms import ceil_div

Blocks = Sequence[KVCacheBlock]


@dataclass(frozen=True)
class Configuration:
    """What a manager is made for: the model's groups, its pool and its scheduler.

    Attributes:
        groups: the KV cache groups, in the order of their ids.
        num_blocks: blocks in the pool, the null block included.
        max_model_len: the most tokens that a request can have.
        hash_block_size: tokens under one hash of a request.
        alignment: what hits are a multiple of, in tokens.
        max_num_batched_tokens: the most tokens in flight, for admission: of one step, or of those
            that are scheduled before its results are known.
        enable_caching: whether blocks are shared between requests at all.
        use_eagle: whether an EAGLE or MTP draft model runs.
        retention_interval: see `reference.registration`; None is dense.
        num_speculative_blocks: blocks that a Mamba group keeps for draft tokens
            (``MambaSpec.num_speculative_blocks``).
        max_concurrent_batches: steps that are scheduled before the results of the first are known.
    """

    groups: tuple[Group, ...]
    num_blocks: int
    max_model_len: int
    hash_block_size: int
    alignment: int
    max_num_batched_tokens: int
    enable_caching: bool = True
    use_eagle: bool = False
    retention_interval: int | None = None
    num_speculative_blocks: int = 0
    max_concurrent_batches: int = 1


@dataclass(frozen=True)
class Step:
    """What a request takes slots for, in tokens from its start.

    Attributes:
        computed: what is computed before, by a connector, too.
        main: what has slots for the model itself.
        slots: what has slots, those for drafts to come included.
        whole: whether that is all of its tokens, and it is asked what it holds of them at once.
    """

    computed: int
    main: int
    slots: int
    whole: bool = False


def num_skipped_tokens(group: Group, num_computed_tokens: int) -> int:
    """How many tokens from the start are no longer read; below 0 when nothing was computed.

    After ``num_computed_tokens`` the next token reads the rest (`spec.attention`), and later
    ones read no earlier tokens. With several MTP modules the draft layers compute the last ones
    again, and read the window of the first of them. vLLM: ``get_num_skipped_tokens``.
    """
    match group.kind:
        case GroupKind.SLIDING_WINDOW:
            final = int(final_tokens(num_computed_tokens, group.prefill_lookahead))
            return max(0, final + 1 - (group.window or 1))
        case GroupKind.CHUNKED_LOCAL:
            chunk = group.chunk or 1
            return num_computed_tokens // chunk * chunk
        case GroupKind.MAMBA:
            return num_computed_tokens - 1
        case _:
            return 0


class GroupManager:
    """The blocks of one group. vLLM: ``SingleTypeKVCacheManager``.

    Attributes:
        req_to_blocks: each request's blocks, in the order of its tokens. Null blocks replace
            those that the layers no longer read.
        num_cached_block: how many of a request's blocks were registered or passed over, for
            requests that have registered any.
    """

    def __init__(self, group: Group, group_id: int, pool: BlockPool, given: Configuration) -> None:
        self.group = group
        self.block_size = group.block_size
        self.group_id = group_id
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        self.num_cached_block: dict[str, int] = {}
        self._num_removed: dict[str, int] = {}
        self._pool = pool
        # The most that a request holds at once; None where it holds all its blocks.
        self._most: int | None = None
        if group.window is not None or group.chunk is not None:
            self._most = int(
                blocks_at_once(group, given.max_num_batched_tokens, given.max_model_len)
            )

    def get_num_blocks_to_allocate(self, request_id: str, step: Step, hit: Blocks) -> int:
        """How many free blocks it takes to give the request slots, where it starts with a ``hit``.

        Hit blocks that are free count, since they leave the free queue too.
        """
        table = self.req_to_blocks.get(request_id, [])
        skipped = self._num_skipped(step.computed)
        covered, evictable = len(table), 0
        # What it alone holds comes back before the most that it holds at once is reached.
        own = sum(block.ref_cnt == 1 for block in table[skipped:])
        if request_id not in self.num_cached_block:
            covered = max(skipped, len(hit) + len(table))
            own = evictable = _num_evictable(hit[max(0, skipped - len(table)) :])
        most = self._most if step.whole else None
        required: int = ceil_div(step.slots, self.block_size)
        return self._num_new(required, covered, own, most) + evictable

    def add_local_computed_blocks(self, request_id: str, hit: Blocks, computed: int) -> None:
        """Give a new request its hit: the blocks that are still read, null blocks before them."""
        skipped = max(self._num_skipped(computed), 0)
        self._pool.touch(hit[skipped:])
        self.req_to_blocks[request_id] = [self._pool.null_block] * skipped + [*hit[skipped:]]
        self.num_cached_block[request_id] = len(self.req_to_blocks[request_id])

    def allocate_external_computed_blocks(self, request_id: str, computed: int) -> None:
        """Allocate blocks for the computed tokens, which a connector fills."""
        if num_skipped_tokens(self.group, computed) < max(self.block_size, computed):
            self._extend(request_id, computed)

    def allocate_new_blocks(self, request_id: str, step: Step) -> list[KVCacheBlock]:
        """Allocate blocks until the request has its slots; returns them."""
        return self._extend(request_id, step.slots)

    def cache_blocks(self, request: Request, num_tokens: int, mask: Mask) -> None:
        """Register the request's full blocks up to ``num_tokens`` tokens that ``mask`` keeps."""
        first = self.num_cached_block.get(request.request_id, 0)
        hashed = len(request.block_hashes) * request.hash_block_size
        full = min(num_tokens, hashed) // self.block_size
        if full <= first:
            return
        blocks = self.req_to_blocks[request.request_id]
        kept = zip(range(first, full), mask(first, full), strict=True)
        new = {place: blocks[place] for place, is_kept in kept if is_kept}
        new = {place: block for place, block in new.items() if not block.is_null}
        self._pool.cache_full_blocks(request, new, self.block_size, self.group_id)
        self.num_cached_block[request.request_id] = full

    def remove_skipped_blocks(self, request_id: str, computed: int) -> None:
        """Free the blocks that the request no longer reads, and put null blocks in their place."""
        blocks = self.req_to_blocks.get(request_id, [])
        skipped, before = self._num_skipped(computed), self._num_removed.get(request_id, 0)
        skipped, removed = min(skipped, len(blocks)), []
        for index in range(skipped - 1, before - 1, -1):
            if not blocks[index].is_null:
                removed.append(blocks[index])
                blocks[index] = self._pool.null_block
        if skipped > before:
            self._num_removed[request_id] = skipped
        self._release(removed, finished=False)

    def free(self, request_id: str) -> None:
        """Free all the request's blocks, last first: prefixes are worth more than tails."""
        self._release(reversed(self.req_to_blocks.pop(request_id, [])))
        self.num_cached_block.pop(request_id, None)
        self._num_removed.pop(request_id, None)

    def new_step_starts(self) -> None:
        """The scheduler begins a new step."""

    def _num_skipped(self, computed: int) -> int:
        return num_skipped_tokens(self.group, computed) // self.block_size

    def _num_new(self, required: int, covered: int, own: int, most: int | None) -> int:
        """How many of the required blocks are new; ``most`` is what it may hold at once."""
        new = max(required - covered, 0)
        return new if most is None else min(new, max(most - own, 0))

    def _release(self, blocks: Iterable[KVCacheBlock], finished: bool = True) -> None:
        """Free blocks, as the request is finished or as its layers no longer read them."""
        del finished
        self._pool.free_blocks(blocks)

    def _extend(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        blocks = self.req_to_blocks[request_id]
        missing = ceil_div(num_tokens, self.block_size) - len(blocks)
        new_blocks = self._pool.get_new_blocks(max(missing, 0))
        blocks += new_blocks
        return new_blocks


class MambaManager(GroupManager):
    """A Mamba group in align mode: one running state, and the states at block ends.

    A step writes its last state into the block that the step ends in; the blocks in between stay
    null. Draft tokens take ``num_speculative_blocks`` more blocks, which later steps reuse as the
    running state moves on. vLLM: ``MambaManager`` with ``mamba_cache_mode`` "align".
    """

    def __init__(self, group: Group, group_id: int, pool: BlockPool, given: Configuration) -> None:
        super().__init__(group, group_id, pool, given)
        self._max_states = 1 + given.max_concurrent_batches
        self._drafts = given.num_speculative_blocks
        self._running: set[str] = set()
        self._last_state_block: dict[str, int] = {}
        self._cached_this_step: set[bytes | None] = set()

    def get_num_blocks_to_allocate(self, request_id: str, step: Step, hit: Blocks) -> int:
        """One block for the running state and, in the first step, those for draft tokens.

        A state that was cached in this very step is not computed yet when this step reads it, so
        the number returned then never fits and defers the request to the next step. Lookahead
        tokens need no state: draft models have no Mamba layers. vLLM 0.23 does not count the
        blocks for a connector's tokens, and so may run out of blocks.
        """
        if hit and hit[-1].block_hash in self._cached_this_step:
            return len(self._pool.blocks) + 1
        held, drafts = len(self.req_to_blocks.get(request_id, ())), self._drafts
        required = self._num_required(step)
        missing = required - len(hit) - held
        if missing > 0:
            states = 1
            if step.whole:
                # A chunk reads the state that an earlier one, maybe in flight, has left.
                states = max(1, min(missing - drafts, self._max_states - (held > 0)))
            missing = states if request_id in self._running else states + drafts
        needed = missing + _num_evictable(hit)
        if not held and step.computed > len(hit) * self.block_size and not step.whole:
            loaded = ceil_div(step.computed, self.block_size)
            needed = max(needed, 1 + min(required - loaded, 1 + drafts))
        return needed

    def allocate_new_blocks(self, request_id: str, step: Step) -> list[KVCacheBlock]:
        """Move the running state to the block that the step ends in; returns the new blocks."""
        blocks, drafts, null = self.req_to_blocks[request_id], self._drafts, self._pool.null_block
        required, before = self._num_required(step), len(blocks)
        if required <= before:
            return []
        running = request_id in self._running
        if blocks:
            self._last_state_block[request_id] = before - 1 - (drafts if running else 0)
        skipped = required - drafts - 1
        blocks.extend([null] * (skipped - before))
        for index in range(before - drafts, min(before, skipped)) if running else ():
            blocks.append(blocks[index])
            blocks[index] = null
        blocks.extend(self._pool.get_new_blocks(required - len(blocks)))
        self._running.add(request_id)
        return blocks[before:]

    def cache_blocks(self, request: Request, num_tokens: int, mask: Mask) -> None:
        """As in other groups, and record what this step cached."""
        first = self.num_cached_block.get(request.request_id, 0)
        super().cache_blocks(request, num_tokens, mask)
        full = self.num_cached_block.get(request.request_id, 0)
        blocks = self.req_to_blocks[request.request_id][first:full]
        self._cached_this_step.update(block.block_hash for block in blocks if block.block_hash)

    def remove_skipped_blocks(self, request_id: str, computed: int) -> None:
        """Free the states before the last one."""
        super().remove_skipped_blocks(request_id, computed)
        last = self._last_state_block.get(request_id)
        if last is not None and last < ceil_div(computed, self.block_size) - 1:
            blocks = self.req_to_blocks[request_id]
            self._release([blocks[last]])
            blocks[last] = self._pool.null_block

    def free(self, request_id: str) -> None:
        """Also drop the running state."""
        self._running.discard(request_id)
        self._last_state_block.pop(request_id, None)
        super().free(request_id)

    def new_step_starts(self) -> None:
        """States that earlier steps cached are computed now."""
        self._cached_this_step.clear()

    def _num_required(self, step: Step) -> int:
        return int(ceil_div(step.main, self.block_size)) + self._drafts


def _num_evictable(blocks: Blocks) -> int:
    return sum(block.ref_cnt == 0 and not block.is_null for block in blocks)
