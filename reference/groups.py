"""The blocks that requests hold in one group: allocation, registration and release.

vLLM: ``vllm/v1/core/single_type_kv_cache_manager.py``.
"""

from collections.abc import Iterable, Sequence

from hitproof.reference.free_queue import KVCacheBlock
from hitproof.reference.pool import BlockPool
from hitproof.reference.registration import Mask
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.sharing import final_tokens
from hitproof.spec.terms import ceil_div

Blocks = Sequence[KVCacheBlock]


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

    def __init__(
        self,
        group: Group,
        group_id: int,
        block_pool: BlockPool,
        max_admission_blocks: int | None = None,
    ) -> None:
        self.group = group
        self.block_size = group.block_size
        self.group_id = group_id
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}
        self._num_removed: dict[str, int] = {}
        self._pool = block_pool
        self._max_admission_blocks = max_admission_blocks

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Blocks,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        """How many free blocks it takes to give the request slots for ``num_tokens`` tokens.

        Hit blocks that are free count, since they leave the free queue too. ``num_tokens``
        includes ``num_tokens_main_model`` and lookahead tokens. With ``apply_admission_cap`` the
        answer is at most what the request holds at once, rather than what one step would take.
        """
        del num_tokens_main_model
        required: int = ceil_div(num_tokens, self.block_size)
        table = self.req_to_blocks.get(request_id, ())
        skipped = num_skipped_tokens(self.group, total_computed_tokens) // self.block_size
        covered, evictable = len(table), 0
        # What it alone holds comes back before the most that it holds at once is reached.
        own = sum(block.ref_cnt == 1 and not block.is_null for block in table[skipped:])
        if request_id not in self.num_cached_block:
            covered = max(skipped, len(new_computed_blocks) + len(table))
            own = evictable = _num_evictable(new_computed_blocks[max(0, skipped - len(table)) :])
        most = self._max_admission_blocks if apply_admission_cap else None
        return self._num_new(required, covered, own, most) + evictable

    def add_local_computed_blocks(
        self, request_id: str, new_computed_blocks: Blocks, total_computed_tokens: int
    ) -> None:
        """Give a new request its hit: the blocks that are still read, null blocks before them."""
        skipped = num_skipped_tokens(self.group, total_computed_tokens) // self.block_size
        skipped = max(skipped, 0)
        used = new_computed_blocks[skipped:]
        self._pool.touch(used)
        blocks = [self._pool.null_block] * skipped + list(used)
        self.req_to_blocks[request_id] = blocks
        self.num_cached_block[request_id] = len(blocks)

    def allocate_external_computed_blocks(
        self, request_id: str, total_computed_tokens: int
    ) -> None:
        """Allocate blocks for tokens up to ``total_computed_tokens`` that a connector fills."""
        skipped = num_skipped_tokens(self.group, total_computed_tokens)
        if skipped < max(self.block_size, total_computed_tokens):
            self._extend(request_id, total_computed_tokens)

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[KVCacheBlock]:
        """Allocate blocks until the request has slots for ``num_tokens`` tokens; returns them."""
        del num_tokens_main_model
        return self._extend(request_id, num_tokens)

    def cache_blocks(self, request: Request, num_tokens: int, mask: Mask) -> None:
        """Register the request's full blocks up to ``num_tokens`` tokens that ``mask`` keeps."""
        first = self.num_cached_block.get(request.request_id, 0)
        full = min(num_tokens, request.num_hashed_tokens) // self.block_size
        if full <= first:
            return
        self._pool.cache_full_blocks(
            request,
            self.req_to_blocks[request.request_id],
            first,
            full,
            self.block_size,
            self.group_id,
            mask(first, full),
        )
        self.num_cached_block[request.request_id] = full

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the blocks that the request no longer reads, and put null blocks in their place."""
        blocks = self.req_to_blocks.get(request_id, [])
        skipped = num_skipped_tokens(self.group, total_computed_tokens) // self.block_size
        removed = []
        skipped, before = min(skipped, len(blocks)), self._num_removed.get(request_id, 0)
        for index in range(skipped - 1, before - 1, -1):
            if not blocks[index].is_null:
                removed.append(blocks[index])
                blocks[index] = self._pool.null_block
        if skipped > before:
            self._num_removed[request_id] = skipped
        self._release(removed, finished=False)

    def free(self, request_id: str) -> None:
        """Free all the request's blocks, last first: prefixes are worth more than tails."""
        blocks = self.req_to_blocks.pop(request_id, [])
        self._release(reversed(blocks))
        self.num_cached_block.pop(request_id, None)
        self._num_removed.pop(request_id, None)

    def new_step_starts(self) -> None:
        """The scheduler begins a new step."""

    def _num_new(self, required: int, covered: int, own: int, most: int | None) -> int:
        """How many of the required blocks are new; ``most`` is what it may hold at once."""
        new = max(required - covered, 0)
        return new if most is None else min(new, max(most - own, 0))

    def _release(self, blocks: Iterable[KVCacheBlock], finished: bool = True) -> None:
        """Free blocks, as the request is finished or as its layers no longer read them."""
        del finished
        self._pool.free_blocks(blocks)

    def _extend(self, request_id: str, num_tokens: int) -> list[KVCacheBlock]:
        blocks = self.req_to_blocks.setdefault(request_id, [])
        missing = ceil_div(num_tokens, self.block_size) - len(blocks)
        new_blocks = self._pool.get_new_blocks(max(missing, 0))
        blocks.extend(new_blocks)
        return new_blocks


class MambaManager(GroupManager):
    """A Mamba group in align mode: one running state, and the states at block ends.

    A step writes its last state into the block that the step ends in; the blocks in between stay
    null. Draft tokens take ``num_speculative_blocks`` more blocks, which later steps reuse as the
    running state moves on. vLLM: ``MambaManager`` with ``mamba_cache_mode`` "align".
    """

    def __init__(
        self,
        group: Group,
        group_id: int,
        block_pool: BlockPool,
        num_speculative_blocks: int = 0,
        max_states: int = 1,
    ) -> None:
        super().__init__(group, group_id, block_pool)
        self._max_states = max_states
        self._num_speculative_blocks = num_speculative_blocks
        self._running: set[str] = set()
        self._last_state_block: dict[str, int] = {}
        self._cached_this_step: set[bytes] = set()

    def get_num_blocks_to_allocate(
        self,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Blocks,
        total_computed_tokens: int,
        num_tokens_main_model: int,
        apply_admission_cap: bool = False,
    ) -> int:
        """One block for the running state and, in the first step, those for draft tokens.

        A state that was cached in this very step is not computed yet when this step reads it, so
        the number returned then never fits and defers the request to the next step. Lookahead
        tokens need no state: draft models have no Mamba layers. vLLM 0.23 does not count the
        blocks for a connector's tokens, and so may run out of blocks.
        """
        del num_tokens
        if new_computed_blocks and new_computed_blocks[-1].block_hash in self._cached_this_step:
            return len(self._pool.blocks) + 1
        held, drafts = len(self.req_to_blocks.get(request_id, ())), self._num_speculative_blocks
        required, hit = self._num_required(num_tokens_main_model), len(new_computed_blocks)
        missing = required - hit - held
        if missing > 0:
            states = 1
            if apply_admission_cap:
                # A chunk reads the state that an earlier one, maybe in flight, has left.
                states = max(1, min(missing - drafts, self._max_states - (held > 0)))
            missing = states if request_id in self._running else states + drafts
        needed = missing + _num_evictable(new_computed_blocks)
        if not held and total_computed_tokens > hit * self.block_size and not apply_admission_cap:
            loaded = ceil_div(total_computed_tokens, self.block_size)
            needed = max(needed, 1 + min(required - loaded, 1 + drafts))
        return needed

    def allocate_new_blocks(
        self, request_id: str, num_tokens: int, num_tokens_main_model: int
    ) -> list[KVCacheBlock]:
        """Move the running state to the block that the step ends in; returns the new blocks."""
        del num_tokens
        blocks = self.req_to_blocks.setdefault(request_id, [])
        required, drafts = self._num_required(num_tokens_main_model), self._num_speculative_blocks
        before = len(blocks)
        if required <= before:
            return []
        running = request_id in self._running
        if running:
            self._last_state_block[request_id] = before - 1 - drafts
        elif blocks:
            self._last_state_block[request_id] = before - 1
        skipped = required - drafts - 1
        blocks.extend([self._pool.null_block] * (skipped - before))
        for index in range(before - drafts, min(before, skipped)) if running else ():
            blocks.append(blocks[index])
            blocks[index] = self._pool.null_block
        blocks.extend(self._pool.get_new_blocks(required - len(blocks)))
        self._running.add(request_id)
        return blocks[before:]

    def cache_blocks(self, request: Request, num_tokens: int, mask: Mask) -> None:
        """As in other groups, and record what this step cached."""
        first = self.num_cached_block.get(request.request_id, 0)
        super().cache_blocks(request, num_tokens, mask)
        full = self.num_cached_block.get(request.request_id, 0)
        for block in self.req_to_blocks.get(request.request_id, [])[first:full]:
            if block.block_hash is not None:
                self._cached_this_step.add(block.block_hash)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        """Free the states before the last one."""
        super().remove_skipped_blocks(request_id, total_computed_tokens)
        last = self._last_state_block.get(request_id)
        if last is None or last >= ceil_div(total_computed_tokens, self.block_size) - 1:
            return
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

    def _num_required(self, num_tokens: int) -> int:
        return int(ceil_div(num_tokens, self.block_size)) + self._num_speculative_blocks


def _num_evictable(blocks: Blocks) -> int:
    return sum(block.ref_cnt == 0 and not block.is_null for block in blocks)
