"""The lives of the requests of one manager: their tables, and the blocks they register."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from hitproof.conformance.emulation.managers import EmulatedRegistration
from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.judge.promises import NOTHING_SHARED, Shared
from hitproof.reference.groups import num_skipped_tokens
from hitproof.reference.registration import Mask
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.policies import Junctions
from hitproof.spec.retention import SPARSE_KINDS
from hitproof.spec.terms import ceil_div
from hitproof.vllm_integration.shadow.judged import Call, Judged, numbers
from hitproof.vllm_integration.shadow.real import named, tables_of


@dataclass
class _Life:
    """What is known of a request that holds blocks.

    Attributes:
        frontier: for each group, the blocks that are settled: hit, registered or passed over.
        waiting: for each group, blocks before it that are not registered yet and not due.
        kept: for each group, under sparse retention, the blocks that were hit or registered.
        spare: for each group, blocks that were registered and that no promised hit needs. They
            are judged when all that is promised is computed: what is left of it may need them.
        shared: the prefix that its lookup showed to be shared.
        loaded: whether a connector loaded some of it.
        planned: the most computed tokens of a step that was planned with others in flight.
    """

    frontier: list[int]
    waiting: list[set[int]]
    kept: list[set[int]]
    spare: list[set[int]]
    shared: Shared = NOTHING_SHARED
    loaded: bool = False
    planned: int = 0


@dataclass(frozen=True)
class Found:
    """What a lookup answered.

    Attributes:
        blocks: the blocks, the very object.
        length: the hit in tokens.
        shared: the prefix that it showed to be shared.
    """

    blocks: Any
    length: int
    shared: Shared


class Lives:
    """Judges what a manager does with requests that hold blocks."""

    def __init__(self, judged: Judged) -> None:
        self._judged = judged
        engine, policies = judged.scope.engine, judged.policies
        self._registration = EmulatedRegistration(
            Policies(
                horizon=policies.horizon,
                sparse_kinds=frozenset(k for k in SPARSE_KINDS if policies.thins_out(k)),
                junctions=policies.junctions is Junctions.KEPT,
            ),
            judged.groups,
            engine.alignment,
            engine.retention_interval,
        )
        self._lives: dict[str, _Life] = {}
        # What is wrong with a block that is not as the reference would have it: under dense
        # retention the same for every request.
        self._known: dict[tuple[int, int, bool], Violation | None] = {}

    def clear(self) -> None:
        """Nothing is known of any request any more."""
        self._lives.clear()

    def end(self, name: str) -> None:
        """The request gave its blocks up."""
        self._lives.pop(name, None)

    def allocated(self, call: Call, found: Found | None) -> None:
        """The request of an allocation got what it asked for; ``found`` is its lookup's answer."""
        judged, request = self._judged, call.values["request"]
        name = request.request_id
        local = request.num_computed_tokens + call.number("num_new_computed_tokens")
        start = local + call.number("num_external_computed_tokens")
        end = min(start + call.number("num_new_tokens"), judged.scope.engine.max_model_len)
        tables = tables_of(judged.managers, name)
        if name not in self._lives:
            self._admitted(call, request, found, local, tables)
        life = self._lives[name]
        life.loaded = life.loaded or start > local
        if getattr(request, "num_output_placeholders", 0):
            life.planned = max(life.planned, start)
        self._judge_tables(call, name, tables, start, end)
        if not call.values.get("delay_cache_blocks"):
            self._registered(call, request, min(end, request.num_tokens), end)

    def cached(self, call: Call) -> None:
        """Blocks of a request were to be registered."""
        request, computed = call.values["request"], call.number("num_computed_tokens")
        if request.request_id in self._lives:
            self._registered(call, request, computed, computed)

    def _admitted(
        self,
        call: Call,
        request: Any,
        found: Found | None,
        local: int,
        tables: Sequence[Sequence[Any]],
    ) -> None:
        blocks = call.values.get("new_computed_blocks")
        shared = NOTHING_SHARED
        if found is not None:
            shared = found.shared
            if not getattr(request, "shared_prefix_boundary", 0):
                shared = shared._replace(kept=0)  # the caller of the lookup did not pass it on
        served = blocks is not None and any(map(len, blocks.blocks))
        if served and (found is None or found.blocks is not blocks or found.length != local):
            self._judged.report.not_judged["a hit that no lookup of the manager returned"] += 1
        null = self._judged.cache.null_block
        for number in range(len(self._judged.groups)):
            hit = blocks.blocks[number] if blocks is not None and served else ()
            table = tables[number]
            if list(table[: len(hit)]) != list(hit) and any(
                mine is not theirs and mine is not null
                for mine, theirs in zip(table, hit, strict=False)
            ):
                self._judged.wrong(
                    call,
                    Defect(Code.TABLE_BLOCK_WRONG),
                    f"group {number}: the table begins with the hit {numbers([hit])[0]}",
                    f"group {number}: it is {numbers([table])[0]}",
                )
        self._lives[request.request_id] = _Life(
            [local // group.block_size for group in self._judged.groups],
            [set() for _ in self._judged.groups],
            [set(range(local // group.block_size)) for group in self._judged.groups],
            [set() for _ in self._judged.groups],
            shared,
        )

    def _judge_tables(
        self, call: Call, name: str, tables: Sequence[Sequence[Any]], start: int, end: int
    ) -> None:
        """The step that computes from ``start`` to ``end`` has every block that it needs."""
        null = self._judged.cache.null_block
        drafts = self._judged.scope.engine.num_speculative_tokens
        for number, (group, table) in enumerate(zip(self._judged.groups, tables, strict=True)):
            states = group.kind is GroupKind.MAMBA
            # With drafts the running state may lie in a block behind.
            if not group.prefix_cacheable or (states and drafts):
                continue
            size = group.block_size
            last = ceil_div(end, size)
            # What several MTP modules read besides is drafts, which the lookup is judged for.
            target = replace(group, prefill_lookahead=1)
            first = max(num_skipped_tokens(target, start), 0) // size
            if states:
                first = last - 1
            if end > start and (
                len(table) < last or any(block is null for block in table[first:last])
            ):
                life, judge = self._lives[name], self._judged.judge
                if life.loaded:
                    judge.loaded.add(name)
                found, rejected = numbers([table])[0], start < life.planned
                self._judged.add(judge.freed(name, number, first, found, rejected), call)

    def _registered(self, call: Call, request: Any, computed: int, end: int) -> None:
        """Judge what is registered of a request's blocks up to ``computed`` tokens."""
        if not self._judged.scope.caches:
            return
        life = self._lives[request.request_id]
        for number, group in enumerate(self._judged.groups):
            if group.prefix_cacheable:
                self._judge_group(call, request, life, number, group, computed, end)

    def _judge_group(
        self,
        call: Call,
        request: Any,
        life: _Life,
        number: int,
        group: Group,
        computed: int,
        end: int,
    ) -> None:
        size = group.block_size
        hashes = self._judged.cache.hashes(request.block_hashes, number)
        first = life.frontier[number]
        last = min(self._registration.num_tokens(group, computed) // size, len(hashes))
        table = self._judged.managers[number].req_to_blocks.get(request.request_id, ())
        judged = [*sorted(life.waiting[number])]
        if last > first:
            life.frontier[number] = last
            mask: Mask = self._registration.mask(
                group,
                request.num_prompt_tokens,
                getattr(request, "shared_prefix_boundary", 0),
                self._judged.scope.engine.num_hash_lookahead_tokens,
            )
            new, suffix = table[first:last], self._judged.cache.suffix(number)
            find = self._judged.cache.entries.get
            self._judged.report.blocks += len(new)
            judged += [
                position
                for position, block, due, block_hash in zip(
                    count(first), new, mask(first, last), hashes[first:last], strict=False
                )
                if (find(block_hash + suffix) is not block if due else block.block_hash is not None)
            ]
        ahead = max(first, last)
        judged += [p for p, b in enumerate(table[ahead:], ahead) if b.block_hash is not None]
        if retained := self._judged.judge.promises.is_retained(group):
            life.kept[number] |= {p for p, b in enumerate(table) if b.block_hash is not None}
        for position in judged:
            self._judge_block(call, request, life, number, position, computed, end)
        if retained:
            self._judge_spare(call, request.request_id, life, number, computed)

    def _judge_spare(self, call: Call, name: str, life: _Life, number: int, computed: int) -> None:
        """Judge the spare blocks, once all that is promised is computed."""
        judge, shared = self._judged.judge, life.shared
        for position in sorted(life.spare[number]):
            if judge.promises.are_computed(name, number, position, shared, computed):
                life.spare[number].discard(position)
                kept = life.kept[number].__contains__
                wasted = judge.registered(name, number, position, True, shared, kept=kept)
                self._judged.add(wasted, call)

    def _carries_its_own(self, request: Any, number: int, position: int, key: Any) -> bool:
        """Whether a block carries no key, its own, or that of a prefix that ends inside it.

        From 0.26 on the tail of a prompt is registered so; the spec has no clause on that where
        hits are aligned.
        """
        if key is None:
            return True
        units = self._judged.groups[number].block_size // self._judged.scope.engine.hash_block_size
        inside = request.block_hashes[position * units : (position + 1) * units - 1]
        own = self._judged.cache.hashes(request.block_hashes, number)[position : position + 1]
        return any(key == self._judged.cache.key(number, each) for each in (*inside, *own))

    def _judge_block(
        self,
        call: Call,
        request: Any,
        life: _Life,
        number: int,
        position: int,
        computed: int,
        end: int,
    ) -> None:
        """One block that is not as the reference would have it."""
        group, name = self._judged.groups[number], request.request_id
        size, block = group.block_size, self._judged.managers[number].req_to_blocks[name][position]
        ids = self._judged.cache.ids(
            number, named(request, (position + 1) * size, self._judged.scope.engine.hash_block_size)
        )
        waited = position in life.waiting[number]
        life.waiting[number].discard(position)
        if block.is_null:
            return
        is_registered = block.block_id in ids
        if not (
            is_registered or self._carries_its_own(request, number, position, block.block_hash)
        ):
            self._judged.wrong(
                call,
                Defect(Code.KEY_NAMES_OTHER_CONTENT),
                f"group {number}: block {block.block_id} is registered under the prefix that "
                f"its request {name} has up to token {(position + 1) * size}",
                "it is registered under another key",
            )
            return
        # A step leaves one state, that of its end. What waits was left by an earlier step.
        one_state = group.kind is GroupKind.MAMBA and self._judged.scope.states_at_ends
        ends_here = waited or computed == end == (position + 1) * size
        if not is_registered and one_state and not ends_here:
            return
        promised = self._judged.judge.promises.promised(name, number, position, life.shared)
        reach = self._judged.judge.promises.reach_tokens
        if not is_registered and not any(b * size + reach <= computed for b in promised.values()):
            life.waiting[number].add(position)
            return
        if is_registered and self._judged.judge.promises.is_retained(group):
            life.spare[number].add(position)
            return
        dense = self._judged.scope.engine.retention_interval is None
        place = number, position, is_registered
        if dense and place in self._known:
            violation = self._known[place]
        else:
            violation = self._judged.judge.registered(
                name, number, position, is_registered, life.shared
            )
            if dense:
                self._known[place] = violation
        self._judged.add(violation, call)
