"""Requests in random order on a small pool, and the invariants after every step.

A content model runs beside the manager: what the forward pass has written into each block. So a hit
is judged by the content that would be read, not by its length.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hitproof.reference.configuration import KVCacheConfig
from hitproof.reference.hashing import LoRA, block_hashes_of_size
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.policies import VLLM_0_23, VLLM_0_30, Policies
from hitproof.reference.registration import Registration
from hitproof.reference.request import Request
from hitproof.reference.tests.building import CHUNKED, FULL, MAMBA, SLIDING
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.groups import Group, alignment, geometry, share_eagle
from hitproof.spec.hits import longest_valid_hit, required_run
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon

LAYOUTS: list[tuple[Group, ...]] = [
    (Group(FULL, 2),),
    (Group(SLIDING, 2, window=4),),
    (Group(SLIDING, 2, window=1),),
    (Group(CHUNKED, 2, chunk=4),),
    (Group(MAMBA, 2),),
    (Group(FULL, 2), Group(SLIDING, 2, window=4)),
    (Group(FULL, 4), Group(SLIDING, 1, window=3), Group(SLIDING, 1, window=3)),
    (Group(FULL, 4), Group(SLIDING, 2, window=3, eagle=True), Group(SLIDING, 2, window=6)),
    (Group(SLIDING, 3, window=5), Group(SLIDING, 2, window=4)),
    (Group(FULL, 2), Group(CHUNKED, 2, chunk=6)),
    (Group(FULL, 2), Group(MAMBA, 2), Group(MAMBA, 2)),
    (Group(FULL, 2), Group(MAMBA, 4)),
    (Group(FULL, 2), Group(SLIDING, 1, window=4), Group(FULL, 4, prefix_cacheable=False)),
]

MAX_TOKENS = 28

Page = tuple[object, ...]


@dataclass
class Live:
    """A request and what it computes: the adapter matters as much as the tokens."""

    request: Request

    def page(self, token: int) -> Page:
        """What the forward pass writes for ``token``: it depends on everything before it."""
        lora = self.request.lora_request
        return (None if lora is None else lora.name, *self.request.all_token_ids[: token + 1])


class Life(RuleBasedStateMachine):
    """One engine. Each rule is something that a scheduler does."""

    def __init__(self) -> None:
        super().__init__()
        self.kv: KVCacheManager
        self.running: list[Live] = []
        self.waiting: list[Live] = []
        self.content: dict[tuple[int, int], Page] = {}
        self.count = 0

    @initialize(
        groups=st.sampled_from(LAYOUTS),
        use_eagle=st.booleans(),
        num_blocks=st.integers(8, 40),
        policies=st.sampled_from([Policies(), VLLM_0_23, VLLM_0_30]),
        every=st.sampled_from([None, None, 0, 1, 2]),
    )
    def start(
        self,
        groups: tuple[Group, ...],
        use_eagle: bool,
        num_blocks: int,
        policies: Policies,
        every: int | None,
    ) -> None:
        self.align = alignment(groups)
        if any(not group.prefix_cacheable for group in groups):
            self.align = max(self.align, *(group.block_size for group in groups))
        self.groups = share_eagle(groups, use_eagle)
        self.dense = every is None
        interval = None if every is None else every * self.align
        self.policies = policies
        self.kv = KVCacheManager(
            KVCacheConfig(num_blocks, groups),
            MAX_TOKENS,
            1,
            scheduler_block_size=self.align,
            use_eagle=use_eagle,
            retention_interval=interval,
            policies=policies,
        )
        self.horizon = LookaheadHorizon.CAPPED if len(groups) == 1 else policies.horizon
        policies = replace(policies, horizon=self.horizon)
        self.registration = Registration(self.groups, self.align, interval, policies)

    @rule(
        shared=st.integers(0, MAX_TOKENS - 4),
        own=st.lists(st.integers(0, 1), min_size=1, max_size=3),
        lora=st.sampled_from([None, None, LoRA("x")]),
        salt=st.sampled_from([None, None, None, "x"]),
    )
    def arrive(self, shared: int, own: list[int], lora: LoRA | None, salt: str | None) -> None:
        """A request comes in; most of its prompt is one that others have, too."""
        if len(self.waiting) < 3:
            self.count += 1
            tokens = [*range(10, 10 + shared), *own]
            new = Request(f"{self.count}", tokens, 1, lora_request=lora, cache_salt=salt)
            self.waiting.append(Live(new))

    @precondition(lambda self: self.waiting)
    @rule(
        data=st.data(),
        fit=st.booleans(),
        reserved=st.integers(0, 2),
        segments=st.sampled_from([0, 0, 1, 2]),
    )
    def admit(self, data: Any, fit: bool, reserved: int, segments: int) -> None:
        """A waiting or preempted request takes its hit and computes its first chunk.

        A connector may load up to ``segments`` times the alignment after the hit.
        """
        live = self.waiting[0]
        request = live.request
        blocks, hit = self.kv.get_computed_blocks(request)
        assert hit == self.longest_hit(request)
        for index, group in enumerate(self.groups):
            if group.prefix_cacheable:
                run = required_run(geometry(group, self.align), hit // group.block_size)
                table = blocks.blocks[index]
                assert len(table) == hit // group.block_size
                assert not any(table[block].is_null for block in run if block < len(table))
        loaded = min(segments, (request.num_tokens - 1 - hit) // self.align) * self.align
        count = self.chunk(data, request, hit + loaded)
        added = self.kv.allocate_slots(
            request,
            count,
            hit,
            blocks if hit else None,
            num_external_computed_tokens=loaded,
            full_sequence_must_fit=fit,
            reserved_blocks=reserved,
        )
        if added is None:
            return
        assert self.kv.block_pool.num_free_blocks >= reserved
        self.running.append(self.waiting.pop(0))
        request.num_computed_tokens = hit + loaded
        self.write(live, hit, hit + loaded)
        self.compute(live, count)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), lookahead=st.integers(0, 2))
    def advance(self, data: Any, lookahead: int) -> None:
        """A running request computes its next chunk, or decodes a token; else it is preempted."""
        live = data.draw(st.sampled_from(self.running))
        request = live.request
        if request.num_computed_tokens == request.num_tokens:
            if request.num_tokens == MAX_TOKENS:
                return
            request.append_output_token_ids(data.draw(st.integers(0, 1)))
        count = self.chunk(data, request, request.num_computed_tokens)
        if self.kv.allocate_slots(request, count, num_lookahead_tokens=lookahead) is None:
            self.stop(live)
            self.waiting.append(live)
        else:
            self.compute(live, count)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), preempted=st.booleans())
    def leave(self, data: Any, preempted: bool) -> None:
        """A request is finished, or preempted."""
        live = data.draw(st.sampled_from(self.running))
        self.stop(live)
        if preempted:
            self.waiting.append(live)

    @rule()
    def next_step(self) -> None:
        """The scheduler begins a new step."""
        self.kv.new_step_starts()

    @rule()
    def reset(self) -> None:
        """The cache is reset, unless requests hold blocks."""
        nothing_held = not any(any(table) for live in self.running for table in self.ids(live))
        assert self.kv.reset_prefix_cache() == nothing_held
        assert not nothing_held or not [*self.kv.block_pool.cached_blocks()]

    @invariant()
    def every_block_is_free_or_held(self) -> None:
        """Nothing leaks: reference counts are what the tables say."""
        if not hasattr(self, "kv"):
            return
        pool = self.kv.block_pool
        held: Counter[int] = Counter()
        for live in self.running:
            for table in self.ids(live):
                held.update(table)
        del held[0]
        free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
        assert sorted([*free, *held]) == [*range(1, len(pool.blocks))]
        assert all(
            pool.blocks[block].ref_cnt == held[block] for block in range(1, len(pool.blocks))
        )
        shared = [pool.blocks[block] for block, count in held.items() if count > 1]
        assert all(block.block_hash is not None for block in shared)
        assert self.kv.usage == 1 - len(free) / (len(pool.blocks) - 1)

    @invariant()
    def what_is_cached_is_found(self) -> None:
        """Blocks and the map from hashes to blocks agree."""
        if not hasattr(self, "kv"):
            return
        pool = self.kv.block_pool
        found = {}
        for group, block_hash, blocks in pool.cached_blocks():
            assert pool.get_cached_block(block_hash, [group]) == [blocks[0]]
            found.update({block.block_id: (block_hash, group) for block in blocks})
        marked = [block for block in pool.blocks if block.block_hash is not None]
        assert found == {block.block_id: (block.block_hash, block.group_id) for block in marked}
        assert pool.null_block.block_hash is None

    @invariant()
    def lookup_finds_the_longest_valid_hit(self) -> None:
        """For every request, whether it waits or runs."""
        for live in (*self.waiting, *self.running):
            hashes, cap = live.request.block_hashes, live.request.num_tokens - 1
            hit = self.kv.coordinator.find_longest_cache_hit(hashes, cap)
            assert hit.length == self.longest_hit(live.request)

    @invariant()
    def requests_hold_blocks_of_their_own_prefix(self) -> None:
        """And what they registered is what retention asks for."""
        for live in self.running:
            request = live.request
            tables = self.kv.get_blocks(request.request_id).blocks
            for index, (group, table) in enumerate(zip(self.groups, tables, strict=True)):
                hashes = block_hashes_of_size(request.block_hashes, 1, group.block_size)
                kept = self.registration.mask(group, request.registered)(0, MAX_TOKENS)
                until = self.registration.num_tokens(group, request.num_computed_tokens)
                for place, block in enumerate(table):
                    if block.block_hash is not None:
                        assert (block.block_hash, block.group_id) == (hashes[place], index)
                        assert kept[place] or not self.dense
                    elif group.prefix_cacheable and (place + 1) * group.block_size <= until:
                        assert block.is_null or not kept[place]

    def longest_hit(self, request: Request) -> int:
        """What the spec asks for, on what is cached now."""
        keys = {(group, key) for group, key, _ in self.kv.block_pool.cached_blocks()}
        hashes = [block_hashes_of_size(request.block_hashes, 1, g.block_size) for g in self.groups]

        def cached(group: int, block: int) -> bool:
            return block < len(hashes[group]) and (group, hashes[group][block]) in keys

        peek = horizon(self.horizon, request.num_tokens)
        return longest_valid_hit(self.groups, self.align, request.num_tokens - 1, peek, cached)

    def chunk(self, data: Any, request: Request, start: int) -> int:
        """How many tokens to compute next. Mamba's chunks end on boundaries, or at the end."""
        left = request.num_tokens - start
        count: int = data.draw(st.integers(1, left))
        if count < left and any(group.kind is MAMBA for group in self.groups):
            count = min(max((start + count) // self.align * self.align - start, 1), left)
            count = count if (start + count) % self.align == 0 else left
        return count

    def compute(self, live: Live, count: int) -> None:
        """Run the forward pass on the content model."""
        start = live.request.num_computed_tokens
        end = start + count
        for group, table in zip(self.groups, self.ids(live), strict=True):
            for block, slot, token in self.read(group, table, start):
                assert block != 0, f"{group} reads token {token} from the null block"
                assert self.content[block, slot] == live.page(token)
        self.write(live, start, end)
        live.request.num_computed_tokens = end

    def write(self, live: Live, start: int, end: int) -> None:
        """Write the pages of the tokens from ``start`` to ``end`` that have a block."""
        for group, table in zip(self.groups, self.ids(live), strict=True):
            for token in range(max(start, end - 1 if group.kind is MAMBA else 0), end):
                block, slot = self.where(group, table, token)
                if block:
                    self.content[block, slot] = live.page(token)

    def read(self, group: Group, table: list[int], start: int) -> Iterator[tuple[int, int, int]]:
        """The pages that computing the token at ``start`` reads, and the tokens in them.

        A group that opts out of prefix caching needs nothing of what a hit skips.
        """
        if not group.prefix_cacheable:
            return
        if group.kind is MAMBA:
            reads: Any = partial(reads_state, start)
        else:
            reads = partial(attends, start, window=group.window, chunk=group.chunk)
        for token in range(start):
            if reads(token):
                yield *self.where(group, table, token), token

    def where(self, group: Group, table: list[int], token: int) -> tuple[int, int]:
        """The block and the slot in it; a Mamba block has one."""
        slot = 0 if group.kind is MAMBA else token % group.block_size
        return table[token // group.block_size], slot

    def ids(self, live: Live) -> tuple[list[int], ...]:
        """The request's block ids, one list a group."""
        return self.kv.get_block_ids(live.request.request_id)

    def stop(self, live: Live) -> None:
        """Free a request's blocks."""
        self.running.remove(live)
        self.kv.free(live.request)
        live.request.num_computed_tokens = 0
        live.request.num_preemptions += 1

    def teardown(self) -> None:
        """When all requests have left, every block is free, and the cache can be reset."""
        if hasattr(self, "kv"):
            for live in [*self.running]:
                self.stop(live)
            assert self.kv.usage == 0
            assert self.kv.reset_prefix_cache()
