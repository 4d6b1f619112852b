"""Two requests that use a block pool, and what is wrong with it after each thing they do."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TypeAlias

from hitproof.conformance.checks.pool_faults import (
    COUNT,
    IN_USE,
    NAMES,
    NULL,
    violation,
    wrong_with,
)
from hitproof.conformance.checks.pool_order import UNPIN, Unpinned, misordered, order
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.pools import Key, Pool
from hitproof.spec import pool as clauses
from hitproof.spec.claims import Divergence
from hitproof.spec.pool import CACHE, EVICT, FREE, GET, RESET, TOUCH, BlockState

Operation: TypeAlias = tuple[str, str, int, Key]
"""What is done: the method, the request, a block or a number of blocks, and a key. What a method
does not need is "", `_ALL` or `_NO_KEY`."""

_NO_KEY: Key = (b"", 0)
_ALL = -1
KEYS: tuple[Key, ...] = ((b"x", 0), (b"y", 0), (b"x", 1))
_LOOKUPS: tuple[tuple[bytes, tuple[int, ...]], ...] = (
    (b"x", (0,)),
    (b"y", (0,)),
    (b"x", (1,)),
    (b"x", (0, 1)),
)
_REQUESTS = ("A", "B")
_MOST_AT_ONCE = 3


class World:
    """A new pool, and the block tables of the requests that use it.

    ``unpins`` is whether requests unpin blocks, too, where the pool can.

    Attributes:
        steps: what was done so far, in words.
    """

    def __init__(self, pool: Pool, unpins: bool = False) -> None:
        self._pool = pool
        self._unpinned = Unpinned(pool) if unpins else None
        self._tables: dict[str, list[int]] = {request: [] for request in _REQUESTS}
        self._now = pool.snapshot()
        self._content: dict[int, Key | None] = dict.fromkeys(range(len(self._now.ref_counts)))
        blocks = len(self._now.ref_counts)
        self.steps = [
            f"a pool of {blocks} blocks, block {self._now.null_block} the null block; "
            f"requests A and B"
        ]

    def possible(self) -> Iterator[Operation]:
        """What callers may do next."""
        for request, table in self._tables.items():
            for count in range(1, min(self._now.free_count, _MOST_AT_ONCE) + 1):
                yield GET.name, request, count, _NO_KEY
            yield from self._possible_with(request, [b for b in table if b != self._null])
            if table:
                yield FREE.name, request, _ALL, _NO_KEY
        for block, keys in enumerate(self._now.carried):
            if keys:
                yield EVICT.name, "", block, _NO_KEY
        yield RESET.name, "", _ALL, _NO_KEY

    def _possible_with(self, request: str, table: list[int]) -> Iterator[Operation]:
        held = {self._content[block] for block in table}
        for block in table:
            if not self._now.carried[block]:
                content = self._content[block]
                for key in KEYS if content is None else (content,):
                    # A request has each key once: its hashes differ from block to block.
                    if key == content or key not in held:
                        yield CACHE.name, request, block, key
        for key in KEYS:
            found = self._pool.get_cached_block(key[0], [key[1]])
            if found and key not in held and found[0] not in table:
                yield TOUCH.name, request, found[0], key
        if table:
            yield FREE.name, request, table[0], _NO_KEY
            if self._unpinned and self._unpinned.is_possible:
                yield UNPIN, request, table[-1], _NO_KEY

    def do(self, operation: Operation, judged: bool = True) -> list[Violation]:
        """Do one thing; what is wrong afterwards, or with how it was done."""
        method = operation[0]
        before, was = self._states() if judged else [], self._now
        try:
            changed, violations = _METHODS[method](self, *operation[1:])
            if self._unpinned:
                reuses = method in (GET.name, RESET.name)
                violations += self._unpinned.wrong(method, tuple(changed) if reuses else ())
            if not judged:
                return []
            self._now = self._pool.snapshot()
            found = {ask: self._pool.get_cached_block(*ask) for ask in _LOOKUPS}
        except Exception as error:
            crash = crash_of(error)
            self.steps.append(f"{operation[1]}: {method}".removeprefix(": "))
            counts = method in (GET.name, TOUCH.name, FREE.name, UNPIN)
            claim = COUNT if counts else NAMES
            return [
                violation(
                    claim,
                    Divergence.CRASH,
                    crash_defect(crash, method=method),
                    f"{method} is done",
                    f"it raises {crash!r:.100}",
                )
            ]
        violations += self._broken(method, before, changed)
        if not violations and method != UNPIN:
            violations += misordered(method == GET.name, was, self._now, tuple(changed))
        return violations + self._not_found(method, found)

    def refresh(self) -> None:
        """See the pool as it is, after operations that were not judged."""
        self._now = self._pool.snapshot()

    # --- the operations: which blocks the pool is asked to change, and how ---

    def _get_new_blocks(self, request: str, count: int, _: Key) -> "_Done":
        free = Counter(self._now.free_queue)
        blocks = self._pool.get_new_blocks(count)
        self._tables[request] += blocks
        self._content |= dict.fromkeys(blocks)
        listed = ", ".join(map(str, blocks))
        self.steps.append(f"{request}: get_new_blocks({count}) hands out {listed}")
        violations = []
        if len(blocks) != count:
            what = f"get_new_blocks({count}) hands out {len(blocks)} blocks"
            wrong = Defect(Code.HANDED_OUT_COUNT_WRONG)
            spec = f"get_new_blocks({count}) hands out {count} block{'s' * (count > 1)}"
            violations.append(violation(COUNT, Divergence.CRASH, wrong, spec, what))
        for block, times in Counter(blocks).items():
            if times > free[block]:
                claim, code = (
                    (NULL, Code.NULL_BLOCK_HANDED_OUT)
                    if block == self._null
                    else (IN_USE, Code.BLOCK_IN_USE_HANDED_OUT)
                )
                violations.append(
                    violation(
                        claim,
                        Divergence.UNSOUND,
                        Defect(code),
                        "what is handed out comes from the free queue",
                        f"block {block} is handed out",
                    )
                )
        return dict.fromkeys(blocks, GET.after), violations

    def _touch(self, request: str, block: int, key: Key) -> "_Done":
        # A table may start with null blocks, which a hit touches as well.
        hit = [block] if self._tables[request] else [self._null, block]
        self._pool.touch(hit)
        self._tables[request] += hit
        listed = ", ".join(map(str, hit))
        self.steps.append(f"{request}: touch({listed}), found under {_words(key)}")
        return {block: TOUCH.after}, []

    def _cache_full_blocks(self, request: str, block: int, key: Key) -> "_Done":
        self._content[block] = key
        self._pool.cache_full_block(block, key)
        self.steps.append(f"{request}: cache_full_blocks({block}) under {_words(key)}")
        return {block: CACHE.after}, []

    def _free_blocks(self, request: str, block: int, _: Key) -> "_Done":
        table = self._tables[request]
        if block != _ALL:  # as a sliding window does with what it has left behind
            blocks = [block]
            table[table.index(block)] = self._null
        else:
            blocks = table[::-1]
            table.clear()
        self._pool.free_blocks(blocks)
        self.steps.append(f"{request}: free_blocks({', '.join(map(str, blocks))})")
        return {b: FREE.after for b in blocks if b != self._null}, []

    def _unpin_blocks(self, request: str, block: int, _: Key) -> "_Done":
        table = self._tables[request]
        table[table.index(block)] = self._null
        assert self._unpinned is not None
        self._unpinned.unpin(block)
        self.steps.append(f"{request}: unpin_blocks({block})")
        now = self._pool.snapshot()
        return {block: FREE.after}, order(block, now.ref_counts[block], now.free_queue)

    def _evict_blocks(self, _: str, block: int, __: Key) -> "_Done":
        self._pool.evict_blocks([block])
        self.steps.append(f"evict_blocks({block})")
        return {block: EVICT.after}, []

    def _reset_prefix_cache(self, *_: object) -> "_Done":
        states = self._states()
        possible = all(RESET.possible(state) for state in states)
        did = self._pool.reset_prefix_cache()
        self.steps.append(f"reset_prefix_cache() returns {did}")
        changed = dict.fromkeys(range(len(states)), RESET.after) if possible else {}
        if did is possible:
            return changed, []
        says = Defect(Code.RESET_WHILE_IN_USE if did else Code.RESET_REFUSED)
        wrong = Divergence.UNSOUND if did else Divergence.WASTE
        spec = f"a reset is {'' if possible else 'not '}possible"
        return changed, [violation(NAMES, wrong, says, spec, f"it returns {did}")]

    # --- what is wrong ---

    def _broken(
        self, method: str, before: list[BlockState], changed: dict[int, "_After"]
    ) -> list[Violation]:
        now, after = self._now, self._states()
        violations = [
            violation(claim, wrong, defect, spec, f"block {block}: {defect.sentence}")
            for block, state in enumerate(after)
            for claim, wrong, code, spec in wrong_with(state)
            for defect in (Defect.of(code, method=method),)
        ]
        length = len(now.free_queue)
        if not clauses.is_free_queue_length(now.free_count, length):
            more = now.free_count > length
            violations.append(
                violation(
                    COUNT,
                    Divergence.CRASH if more else Divergence.WASTE,
                    Defect.of(
                        Code.FREE_COUNT_TOO_HIGH if more else Code.FREE_COUNT_TOO_LOW, method=method
                    ),
                    f"{length} blocks are in the free queue",
                    f"the count of free blocks is {now.free_count}",
                )
            )
        if violations:
            return violations
        for block, state in enumerate(before):
            expected = changed[block](state) if block in changed else state
            named = after[block].named
            if named == expected.named:
                continue
            lost = named < expected.named
            code = Code.KEY_LOST if lost else Code.KEY_NOT_REMOVED
            violations.append(
                violation(
                    NAMES,
                    Divergence.LOST_HIT if lost else Divergence.UNSOUND,
                    Defect.of(code, method=method),
                    f"block {block} is found under {expected.named} keys",
                    f"it is found under {named}",
                )
            )
        return violations

    def _not_found(
        self, method: str, found: dict[tuple[bytes, tuple[int, ...]], list[int] | None]
    ) -> list[Violation]:
        violations = []
        for (block_hash, groups), blocks in found.items():
            keys = [(block_hash, group) for group in groups]
            if blocks is None:
                if not {key for key, _ in self._now.named}.issuperset(keys):
                    continue
                claim, wrong, code = NAMES, Divergence.LOST_HIT, Code.CACHED_BLOCK_NOT_FOUND
            elif self._null in blocks:
                claim, wrong, code = NULL, Divergence.UNSOUND, Code.NULL_BLOCK_FOUND
            elif len(blocks) != len(keys) or not self._now.named.issuperset(
                zip(keys, blocks, strict=True)
            ):
                claim, wrong, code = NAMES, Divergence.UNSOUND, Code.UNCACHED_BLOCK_FOUND
            else:
                continue
            entries = [f"{_words(key)}: {block}" for key, block in sorted(self._now.named)]
            asked = f"get_cached_block({block_hash.decode()}, {list(groups)})"
            violations.append(
                violation(
                    claim,
                    wrong,
                    Defect.of(code, method=method),
                    f"the cache holds {', '.join(entries) or 'nothing'}",
                    f"{asked} returns {blocks}",
                )
            )
        return violations

    @property
    def _null(self) -> int:
        return self._now.null_block

    def _states(self) -> list[BlockState]:
        """Each block as the clauses see it."""
        now = self._now
        holders = Counter(block for table in self._tables.values() for block in table)
        queued = Counter(now.free_queue)
        named: dict[int, set[Key]] = {}
        for key, block in now.named:
            named.setdefault(block, set()).add(key)
        return [
            BlockState(
                null=block == now.null_block,
                ref_count=ref_count,
                holders=holders[block],
                queued=queued[block],
                keys=len(now.carried[block]),
                named=len(named.get(block, ())),
                stale=len((named.get(block, set()) | now.carried[block]) - {self._content[block]}),
            )
            for block, ref_count in enumerate(now.ref_counts)
        ]

    def canonical(self) -> Hashable:
        """Equal for states that differ in the numbers of blocks and the names of requests only."""
        seen = list(self._tables.values())
        return min(repr(self._renamed(tables)) for tables in (seen, seen[::-1]))

    def _renamed(self, tables: Sequence[Sequence[int]]) -> Hashable:
        now = self._now
        order = dict.fromkeys((now.null_block, *now.free_queue, *tables[0], *tables[1]))
        order |= dict.fromkeys(range(len(now.ref_counts)))
        number = {block: position for position, block in enumerate(order)}
        found = [self._pool.get_cached_block(*ask) for ask in _LOOKUPS]
        return (
            [
                (now.ref_counts[block], self._content[block], sorted(now.carried[block]))
                for block in order
            ],
            [number[block] for block in now.free_queue],
            now.free_count,
            [[number[block] for block in table] for table in tables],
            sorted((key, number[block]) for key, block in now.named),
            [blocks and [number[block] for block in blocks] for blocks in found],
        )

    def picture(self) -> tuple[str, ...]:
        """The pool as it is: a line for each block."""
        now = self._now
        lines = [f"{'block':<7}{'references':<12}{'held by':<9}{'free queue':<12}{'keys':<10}cache"]
        for block, state in enumerate(self._states()):
            held = [name for name, table in self._tables.items() if block in table]
            carried = " ".join(_words(key) for key in sorted(now.carried[block]))
            named = " ".join(_words(key) for key, b in sorted(now.named) if b == block)
            queued = [str(n) for n, b in enumerate(now.free_queue, 1) if b == block]
            count = "null" if state.null else str(state.ref_count)
            lines.append(
                f"{block:<7}{count:<12}{' '.join(held):<9}{' '.join(queued):<12}"
                f"{carried:<10}{named}".rstrip()
            )
        return (*lines, f"count of free blocks: {now.free_count}")


_After: TypeAlias = Callable[[BlockState], BlockState]
_Done: TypeAlias = tuple[dict[int, _After], list[Violation]]


_METHODS: dict[str, Callable[[World, str, int, Key], _Done]] = {
    GET.name: World._get_new_blocks,
    TOUCH.name: World._touch,
    CACHE.name: World._cache_full_blocks,
    FREE.name: World._free_blocks,
    UNPIN: World._unpin_blocks,
    EVICT.name: World._evict_blocks,
    RESET.name: World._reset_prefix_cache,
}


def _words(key: Key) -> str:
    return f"{key[0].decode()}/{key[1]}"
