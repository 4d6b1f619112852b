"""Judging one manager at one call: where it breaks the spec, by the spec alone.

What is asked about the cache is asked about the manager's own cache, so a fault counts where it
happens and not again in all that follows from it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from conformance.configurations import Configuration
from conformance.expectations import (
    Expected,
    Held,
    HeldOnce,
    Registered,
    Returns,
    Served,
    TableLengths,
)
from conformance.findings import ROLES, Signature, block_role
from conformance.histories import EngineConfiguration, RequestInput
from conformance.managers import Hit, Observation
from conformance.mask_check import unreachable_place
from conformance.naming import Name, Prefixes
from spec.attention import attends
from spec.claims import Divergence
from spec.groups import Group, GroupKind, geometry, share_eagle
from spec.hits import in_required_run, longest_valid_hit, required_run, within_reach
from spec.mask import next_boundary
from spec.retention import (
    SPARSE_KINDS,
    LookaheadHorizon,
    horizon,
    in_retained_mask,
    replay_boundary,
    sibling_boundary,
)

Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks registered under each key, by group and name."""

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"


@dataclass(frozen=True)
class Violation:
    """Where a manager breaks the spec.

    Attributes:
        signature: what it is a case of.
        spec: what the spec says.
        actual: what the manager did.
        expected: what the spec demands, where that can be asked of the manager's public methods.
    """

    signature: Signature
    spec: str
    actual: str
    expected: Expected | None = None


class Judge:
    """Judges managers of one configuration on the requests of one history."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Prefixes,
        policy: LookaheadHorizon,
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._prefixes = prefixes
        # The coordinator of one group never peeks past the cap.
        self._policy = policy if len(engine.groups) > 1 else LookaheadHorizon.CAPPED
        self._groups = share_eagle(engine.groups, engine.use_eagle)
        self._shapes = [geometry(group, engine.alignment) for group in self._groups]

    def crash(self, call: str, error: Exception) -> Violation:
        """The manager raised at a call that the history allows."""
        kinds, eagle = self._kinds()
        signature = Signature(
            call, Divergence.CRASH, kinds, eagle, f"raises {type(error).__name__}"
        )
        raised = f"{call} raises {error!r:.200}"
        return Violation(signature, f"{call} returns", raised, Returns())

    def keys(self, wrong: tuple[Divergence, Name, Name]) -> Violation:
        """Two blocks have wrong keys, as `conformance.naming.Names.learn` tells."""
        divergence, first, second = wrong
        shared = divergence == Divergence.UNSOUND
        pattern = "two contents share a key" if shared else "one content has two keys"
        kinds, eagle = self._kinds()
        return Violation(
            Signature("block_hashes", divergence, kinds, eagle, pattern),
            "a key stands for one content, and a content has one key",
            f"{first} and {second}" if shared else first,
        )

    def hit(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Violation | None:
        """Judge a lookup's answer for a request of ``num_tokens`` tokens."""
        cap, peek = num_tokens - 1, horizon(self._policy, num_tokens)

        def held(group: int, block: int) -> bool:
            end = (block + 1) * self._groups[group].block_size
            return end <= num_tokens and (group, self._prefixes.name(request, end)) in cached

        expected = longest_valid_hit(self._groups, self._engine.alignment, cap, peek, held)
        kinds, eagle = self._kinds()
        if self._requests[request].skip_reading_prefix_cache:
            expected = 0

        def violation(claim: str, divergence: Divergence, pattern: str) -> Violation:
            return Violation(
                Signature(claim, divergence, kinds, eagle, pattern),
                f"hit of {expected} tokens",
                f"hit of {hit.length} tokens, tables {hit.tables}",
                Served(request, expected),
            )

        if hit.length > expected:
            return violation(
                _EAGLE if eagle else _TABLE,
                Divergence.UNSOUND,
                self._cannot_serve(hit.length, cap, peek, held),
            )
        if hit.length % self._engine.alignment:
            return violation(_TABLE, Divergence.UNSOUND, "off the boundaries")
        if hit.length < expected:
            short = (expected - hit.length) // self._engine.alignment
            by = "one boundary" if short == 1 else "several boundaries"
            whole = all(
                expected // group.block_size >= shape.tail
                for group, shape in zip(self._groups, self._shapes, strict=True)
            )
            run = "whole run" if whole else "run cut at the start of the request"
            return violation(_LONGEST, Divergence.LOST_HIT, f"{run}, {by} short")
        for index, (group, shape) in enumerate(zip(self._groups, self._shapes, strict=True)):
            boundary, table = hit.length // group.block_size, hit.tables[index]
            if len(table) != boundary:
                lengths = tuple(hit.length // group.block_size for group in self._groups)
                wrong = violation(
                    _TABLE, Divergence.UNSOUND, "block table as long as the hit is not"
                )
                return replace(wrong, expected=TableLengths(request, lengths))
            for block in required_run(shape, boundary) if boundary else ():
                name = self._prefixes.name(request, (block + 1) * group.block_size)
                if block < boundary and table[block] not in cached[index, name]:
                    wrong = violation(_TABLE, Divergence.UNSOUND, "block table holds another block")
                    return replace(wrong, expected=None)
        return None

    def _cannot_serve(
        self, length: int, cap: int, peek: int, held: Callable[[int, int], bool]
    ) -> str:
        """The first group that cannot serve a hit that was served, by its kind."""
        for index, (group, shape) in enumerate(zip(self._groups, self._shapes, strict=True)):
            size = group.block_size
            boundary = length // size
            reached = within_reach(shape, boundary, cap // size, peek // size)
            if not (reached and all(held(index, b) for b in required_run(shape, boundary))):
                return f"longer than {group.kind.replace('_', ' ')} serves"
        return "off the boundaries"

    def registered(
        self, request: str, group_index: int, block: int, is_registered: bool
    ) -> Violation | None:
        """Judge that a computed block of a request is registered, or that it is not."""
        group, shape = self._groups[group_index], self._shapes[group_index]
        interval, alignment = self._engine.retention_interval, self._engine.alignment
        boundary = next_boundary(shape, block)
        promised = {"hit": boundary}
        if interval is not None and group.kind in SPARSE_KINDS:
            promised = self._promised(request, group_index, block, interval)
            wanted = bool(in_retained_mask(shape, block, tuple(promised.values())))
        else:
            wanted = bool(in_required_run(shape, block, boundary))
        if wanted == is_registered:
            return None
        configuration = Configuration(1, block + 2, alignment, group, self._engine.hash_block_size)
        where = "" if interval is None else "retention_"
        if is_registered:
            claim, divergence = "mask_keeps_only_reachable_blocks", Divergence.WASTE
            pattern = f"a block {unreachable_place(configuration, block)}"
            if where:
                claim, pattern = (
                    "retention_keeps_only_promised_blocks",
                    "a block of no promised hit",
                )
            spec, actual = f"do not register block {block}", f"block {block} is registered"
        else:
            claim, divergence = "mask_keeps_every_reachable_block", Divergence.LOST_HIT
            pattern = f"the {ROLES[block_role(configuration, block, boundary)]} block is left out"
            if where:
                who = next(
                    name
                    for name, end in promised.items()
                    if end >= 1 and in_required_run(shape, block, end)
                )
                sibling = who == "sibling"
                claim = f"retention_keeps_{'siblings' if sibling else 'resends_and_extensions'}"
                pattern = f"a block of a promised {who} is left out"
            spec, actual = f"register block {block}", f"block {block} is not registered"
        drops = bool(shape.lookahead)
        return Violation(
            Signature(claim, divergence, group.kind, drops, pattern),
            f"group {group_index}: {spec}",
            f"group {group_index}: {actual}",
            Registered(request, group_index, block, not is_registered),
        )

    def _promised(
        self, request: str, group_index: int, block: int, interval: int
    ) -> dict[str, int]:
        """The boundaries that sparse retention promises, in blocks of the group."""
        size, prompt = self._groups[group_index].block_size, len(self._requests[request].prompt)
        lookahead = max(
            shape.lookahead * group.block_size
            for group, shape in zip(self._groups, self._shapes, strict=True)
        )
        alignment = self._engine.alignment
        resend = replay_boundary(prompt - 1, horizon(self._policy, prompt), lookahead, alignment)
        extension = replay_boundary(prompt, prompt, lookahead, alignment)
        promised = {"resend": resend // size, "extension": extension // size}
        if interval:
            shape = self._shapes[group_index]
            promised["sibling"] = sibling_boundary(shape, block, interval // size)
        return promised

    def policy(self, call: str, field: str, real: str, reference: str) -> Violation:
        """The two differ, and neither breaks the spec."""
        kinds, eagle = self._kinds()
        signature = Signature(
            "lockstep", Divergence.POLICY_CHANGE, kinds, eagle, f"{field} after {call}"
        )
        return Violation(signature, reference[:300], real[:300])

    def tables(self, seen: Observation, computed: Mapping[str, int]) -> Violation | None:
        """Judge the tables of requests whose next token is at position ``computed``.

        They hold every block that this token reads, and those that its step writes.
        """
        for request, tables in seen.tables.items():
            for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
                first = self._first_block_read(group, computed.get(request, 0))
                if group.kind is not GroupKind.MAMBA and 0 in table[first:]:
                    kinds, eagle = self._kinds()
                    pattern = f"{group.kind.replace('_', ' ')}: a block that is read was freed"
                    return Violation(
                        Signature(_TABLE, Divergence.UNSOUND, kinds, eagle, pattern),
                        f"request {request}, group {number}: blocks from {first} on are read",
                        f"its table is {table}",
                        Held(request, number, first),
                    )
        return None

    @staticmethod
    def _first_block_read(group: Group, query: int) -> int:
        first = next(token for token in range(query + 1) if _attends(group, query, token))
        return first // group.block_size

    def pool(self, seen: Observation) -> Violation | None:
        """Judge the pool's books: nothing leaks, and nothing is free and in use at once."""
        wrong = next(self._wrong_books(seen), None)
        if wrong is None:
            return None
        kinds, eagle = self._kinds()
        signature = Signature("block_pool", Divergence.UNSOUND, kinds, eagle, wrong[0])
        return Violation(signature, wrong[0], wrong[1], self._held_twice(seen))

    @staticmethod
    def _held_twice(seen: Observation) -> Expected | None:
        """That a request which holds a block twice does not."""
        for request, tables in seen.tables.items():
            held = Counter(block for table in tables for block in table if block)
            if max(held.values(), default=0) > 1:
                return HeldOnce(request)
        return None

    def _wrong_books(self, seen: Observation) -> Iterator[tuple[str, str]]:
        blocks, free = set(range(1, self._engine.num_gpu_blocks)), set(seen.free_queue)
        held = Counter(
            block for tables in seen.tables.values() for table in tables for block in table if block
        )
        if len(free) != len(seen.free_queue) or not free <= blocks:
            yield "the free queue holds each free block once", f"free queue {seen.free_queue}"
        if seen.num_free_blocks != len(seen.free_queue):
            yield (
                "the free counter is the length of the free queue",
                f"{seen.num_free_blocks}, but {len(seen.free_queue)} in the queue",
            )
        if dict(held) != dict(seen.ref_counts):
            wrong = {
                block
                for block in held.keys() | seen.ref_counts.keys()
                if held[block] != seen.ref_counts.get(block, 0)
            }
            yield "a reference count is the number of tables' entries", f"blocks {sorted(wrong)}"
        if free & held.keys():
            yield "no block is free and in use", f"blocks {sorted(free & held.keys())}"
        contents: dict[int, tuple[int, Name]] = {}
        for group, block, name in self._contents(seen):
            if contents.setdefault(block, (group, name)) != (group, name):
                first_group, first_name = contents[block]
                yield (
                    "a block in use holds one content",
                    f"block {block} holds {first_name} for group {first_group} and {name} for "
                    f"group {group}",
                )
        if blocks - free - held.keys():
            yield "no block leaks", f"blocks {sorted(blocks - free - held.keys())}"
        registered = Counter(block for ids in seen.cached.values() for block in ids)
        if registered and (max(registered.values()) > 1 or not registered.keys() <= blocks):
            yield "a block is registered under one key at most", f"registered {registered}"
        if abs(seen.usage - (1 - len(free) / len(blocks))) > 1e-9:
            yield "usage is the share of blocks in use", f"usage {seen.usage}"

    def _contents(self, seen: Observation) -> Iterator[tuple[int, int, Name]]:
        """Each block in a table: its group, the block, and the prefix that it ends."""
        for request, tables in seen.tables.items():
            num_tokens = len(self._requests[request].token_ids)
            for group, table in enumerate(tables):
                size = self._groups[group].block_size
                for position, block in enumerate(table):
                    end = (position + 1) * size
                    full = end <= num_tokens
                    name = self._prefixes.name(request, end) if full else f"{request}[0:{end}]"
                    if block:
                        yield group, block, name

    def _kinds(self) -> tuple[str, bool]:
        """The kinds in words, and whether a group drops a lookahead block."""
        kinds = " + ".join(dict.fromkeys(group.kind for group in self._groups))
        return kinds, any(shape.lookahead for shape in self._shapes)


def _attends(group: Group, query: int, token: int) -> bool:
    return bool(attends(query, token, group.window, group.chunk))
