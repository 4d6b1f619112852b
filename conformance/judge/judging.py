"""Judging one manager at one call: where it violates the spec, by the spec alone.

Questions about the cache refer to the manager's own cache, so a fault counts where it happens and
not again in its consequences.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from hitproof.conformance.checks.mask import UNREGISTERED, unreachable
from hitproof.conformance.checks.retention import can_be_used, kept_later
from hitproof.conformance.findings.codes import Defect, worst_class
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Books, Key, Part, Table
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import block_role
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.generator import most_blocks
from hitproof.conformance.histories.naming import Name, Naming
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content import null_read
from hitproof.conformance.judge.followers import UNTOLD
from hitproof.conformance.judge.local_prefixes import LocalPrefixJudge
from hitproof.conformance.judge.pool_invariants import unshared_heads, violated_invariants
from hitproof.conformance.judge.promises import NOTHING_SHARED, PROMISED_BY, JudgedPolicies, Shared
from hitproof.conformance.playing.checkpoints import exports_states
from hitproof.conformance.playing.expectations import (
    Expected,
    Held,
    HeldOnce,
    Registered,
    RegisteredInside,
    Returns,
)
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.managers import Observation, Tables
from hitproof.spec.admission import first_token_read
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, whole_blocks
from hitproof.spec.hits import in_required_run
from hitproof.spec.mask import next_boundary

_TABLE = "hit_has_every_block_attention_reads"
_OF_THE_BOOKS = (Code.FREE_QUEUE_WRONG, Code.FREE_COUNT_WRONG, Code.USAGE_WRONG)


class Judge(LocalPrefixJudge):
    """Judges managers of one configuration on the requests of one history.

    ``loaded`` contains the requests for which a KV connector has loaded tokens.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        prefixes: Naming,
        policies: JudgedPolicies,
    ) -> None:
        super().__init__(engine, requests, prefixes, policies)
        self._every_state = policies.every_state
        self.loaded: set[str] = set()

    def crash(
        self, call: str, error: Exception, request: str = "", held: Iterable[int] = ()
    ) -> Violation:
        """The manager raised at a call that the history allows, for a request if there is one.

        That may follow from wrong tables of the request, from the blocks that it ``held``, or from
        wrong books.
        """
        kinds, eagle = self._kinds()
        defect = crash_defect(error)
        signature = Signature.booked(defect, Divergence.CRASH, kinds, eagle)
        raised = f"{call} raises {error!r:.200}"
        tables: list[Part] = [Table(request, index, 0) for index in range(len(self._groups))]
        tables += map(Block, held)
        return Violation(
            signature,
            f"{call} returns",
            raised,
            Returns(),
            (frozenset([*tables, Books()]),),
            tuple(Table(request, index) for index in range(len(self._groups)) if request),
        )

    def keys(self, wrong: tuple[Divergence, Name, Name]) -> Violation:
        """Two blocks have wrong keys, as `conformance.histories.naming.Names.learn` tells."""
        divergence, first, second = wrong
        shared = divergence == Divergence.UNSOUND
        defect = Defect(Code.TWO_CONTENTS_UNDER_KEY if shared else Code.TWO_KEYS_FOR_CONTENT)
        kinds, eagle = self._kinds()
        return Violation(
            Signature.booked(defect, divergence, kinds, eagle),
            "a key stands for one content, and a content has one key",
            f"{first} and {second}" if shared else first,
            damages=(Key(first),),
        )

    def registered(
        self,
        request: str,
        group_index: int,
        block: int,
        is_registered: bool,
        shared: Shared = NOTHING_SHARED,
        gone: bool = False,
        kept: Callable[[int], bool] = lambda _: False,
        num_computed: int = 0,
    ) -> Violation | None:
        """Judge whether a computed block of a request should be registered.

        ``gone`` is whether the request gave up the block before its hash was known, ``kept`` says
        which blocks of the group were registered, and ``num_computed`` how many are computed.
        """
        group, shape = self._groups[group_index], self._shapes[group_index]
        alignment = self._engine.alignment
        promised = self.promises.promised(request, group_index, block, shared)
        if bool(promised) == is_registered:
            return None
        if is_registered and self.promises.may_be_retained(group_index, block, shared.seen):
            return None
        boundary = next_boundary(shape, block)
        retained = self.promises.is_retained(group)
        if is_registered and retained:
            ends = self.promises.boundaries(request, group_index, block, shared)
            extension = self.promises.extension(request, group_index)
            if can_be_used(shape, block, extension, num_computed, ends, kept):
                return None
        configuration = Configuration(1, block + 2, alignment, group, self._engine.hash_block_size)
        if is_registered:
            claim, divergence = "mask_keeps_only_reachable_blocks", Divergence.WASTE
            defect = unreachable(configuration, block)
            if retained:
                claim = "retention_keeps_only_promised_blocks"
                defect = Defect(Code.UNPROMISED_BLOCK_REGISTERED)
            spec, actual = f"do not register block {block}", f"block {block} is registered"
        else:
            claim, divergence = "mask_keeps_every_reachable_block", Divergence.LOST_HIT
            freed = "before-hash" if gone else None
            role = block_role(configuration, block, boundary)
            defect = Defect.of(UNREGISTERED[role], freed=freed)
            if retained:
                who = next(iter(promised))
                claim = PROMISED_BY[who]
                instead = kept_later(shape, promised[who], num_computed, kept)
                several = who == "resend" and self._engine.num_hash_lookahead_tokens > 1
                defect = Defect.of(
                    Code.PROMISED_BLOCK_UNREGISTERED,
                    hit=who,
                    freed=freed,
                    instead=instead,
                    modules="several" if several else None,
                )
            spec, actual = f"register block {block}", f"block {block} is not registered"
        return Violation(
            self.of_group(group_index, claim, defect, divergence),
            f"group {group_index}: {spec}",
            f"group {group_index}: {actual}",
            Registered(request, group_index, block, not is_registered),
            (frozenset([Table(request, group_index), self._key(request, group_index, block)]),),
        )

    def _key(self, request: str, group_index: int, block: int) -> Part:
        size = self._groups[group_index].block_size
        return Key(self._prefixes.name(request, (block + 1) * size))

    def may_be_left(self, request: str, group_index: int, block: int) -> bool:
        """Whether a block serves the hit that is left where a promised one is lost.

        That is the one a boundary earlier.
        """
        group, shape = self._groups[group_index], self._shapes[group_index]
        ends = self.promises.boundaries(request, group_index, block)
        return self.promises.is_retained(group) and any(
            in_required_run(shape, block, end - shape.segment)
            for end in ends
            if end > shape.segment
        )

    def left_out_inside(
        self, request: str, group_index: int, who: str, ends: Sequence[int], given_up: bool
    ) -> Violation:
        """None of the entries ``ends`` inside a block is cached, though a promised hit needs one.

        None was ever registered or, if ``given_up``, it is gone though its block was not needed.
        """
        code = Code.PROMISED_ENTRY_EVICTED if given_up else Code.PROMISED_ENTRY_UNREGISTERED
        states = exports_states(self._engine, self._groups[group_index])
        need = str(ends[0]) if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
        return Violation(
            self.of_group(
                group_index,
                PROMISED_BY[who],
                Defect.of(code, hit=who, states=states),
                Divergence.LOST_HIT,
            ),
            f"group {group_index}: request {request} has an entry at token {need}",
            f"group {group_index}: no such entry is cached",
            RegisteredInside(
                request, group_index, tuple(e // self._engine.hash_block_size - 1 for e in ends)
            ),
        )

    def not_promised(self, group_index: int, end: int) -> Violation:
        """An entry that ends inside a block is cached, and no promised hit needs it."""
        return Violation(
            self.of_group(
                group_index,
                "retention_keeps_only_promised_blocks",
                Defect(Code.UNPROMISED_ENTRY_REGISTERED),
                Divergence.WASTE,
            ),
            f"group {group_index}: no entry at token {end}",
            f"group {group_index}: there is an entry",
        )

    def of_pool(self, defect: Defect, spec: str, actual: str) -> Violation:
        """An operation on the pool went wrong."""
        kinds, eagle = ("block_pool", False) if defect.code in UNTOLD else self._kinds()
        worst = worst_class(defect.code)
        return Violation(Signature.booked(defect, worst, kinds, eagle), spec, actual)

    def report(
        self, index: int, defect: Defect, spec: str, actual: str, expected: Expected | None
    ) -> Violation:
        """The events about a hit say something wrong of a group."""
        signature = self.of_group(index, "", defect, worst_class(defect.code))
        return Violation(signature, spec, actual, expected)

    def policy(self, call: str, field: str, real: str, reference: str) -> Violation:
        """The two managers differ, and neither violates the spec."""
        kinds, eagle = self._kinds()
        differs = Defect.of(Code.LOCKSTEP_DIFFERENCE, field=field, method=call)
        signature = Signature.booked(differs, Divergence.POLICY_CHANGE, kinds, eagle)
        return Violation(signature, reference[:300], real[:300])

    def tables(
        self, seen: Observation, computed: Mapping[str, int], rejected: Container[str]
    ) -> Violation | None:
        """Judge the tables of requests whose next token is at position ``computed``.

        They must hold every block that this token reads, and those that its step writes. The
        ``rejected`` requests have drafts in flight that turn out wrong.
        """
        for request, tables in seen.tables.items():
            for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
                first = self._first_block_read(group, computed.get(request, 0))
                if group.kind is not GroupKind.MAMBA and 0 in table[first:]:
                    return self.freed(request, number, first, table, request in rejected)
        return None

    def unsent(self, request: str, tables: Tables, computed: int) -> Iterator[Violation]:
        """Judge that a request which ends holds what its next token, at ``computed``, would read.

        A KV connector that sends it sends that. Of Mamba states it is one.
        """
        for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
            first, end = self._first_block_read(group, computed), -(-computed // group.block_size)
            if group.kind is GroupKind.MAMBA:
                missing = computed > 0 and not any(table)
            else:
                missing = len(table) < end or 0 in table[first:end]
            if missing and group.prefix_cacheable:
                yield self.freed(request, number, first, table)

    def freed(
        self, request: str, number: int, first: int, table: Sequence[int], rejected: bool = False
    ) -> Violation:
        """A request's table in a group has a null block from ``first`` on, where all are read.

        ``rejected``: see `conformance.judge.content.null_read`.
        """
        return Violation(
            self.of_group(number, _TABLE, null_read(request in self.loaded, rejected)),
            f"request {request}, group {number}: blocks from {first} on are read",
            f"its table {tuple(table)} has the null block at position {table.index(0, first)}"
            if 0 in table[first:]
            else f"its table is {tuple(table)}",
            Held(request, number, first),
        )

    def unread(self, request: str, tables: Tables, settled: int) -> Iterator[Violation]:
        """Judge that a request holds no block that none of its steps reads any more.

        Steps in flight are not done with the tokens after the ``settled`` ones, and draft layers of
        several MTP modules compute the last of those again.
        """
        start = max(0, settled - max(0, self._engine.num_prefill_lookahead - 1))
        for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                # Each step in flight has its states: where it ends, and what it exports.
                each = 2 if self._engine.mamba_checkpoint_alignment else 1
                most = most_blocks(self._engine, group)
                most += each * (self._engine.max_concurrent_batches - 1)
                # Drafts that are rejected may have been given that many blocks of their own.
                most += self._engine.num_speculative_tokens // group.block_size
                held = sum(map(bool, table))
                if held > most and not self._every_state:
                    yield self._unread(number, f"{most} states of {request} at most", table)
                continue
            first = self._first_block_read(group, start)
            if any(table[:first]):
                yield self._unread(number, f"blocks of {request} from {first} on", table)

    def _unread(self, number: int, spec: str, table: Sequence[int]) -> Violation:
        defect = Defect(Code.UNREAD_BLOCK_HELD)
        return Violation(
            self.of_group(number, "", defect, Divergence.WASTE),
            f"group {number}: {spec} are held",
            f"its table is {tuple(table)}",
        )

    @staticmethod
    def _first_block_read(group: Group, query: int) -> int:
        first = first_token_read(query, group.window, group.chunk)
        return int(whole_blocks(first, group.block_size))

    def pool(self, seen: Observation) -> Iterator[Violation]:
        """Judge the pool's invariants: no block leaks, and none is both free and in use."""
        kinds, eagle = self._kinds()
        found = violated_invariants(self._engine, self._requests, self._prefixes, seen)
        for code, spec, actual, blocks in found:
            wrong_as = Defect(code)
            signature = Signature.booked(wrong_as, worst_class(code), kinds, eagle)
            evidence = tuple(self._may_explain(block, seen) for block in sorted(blocks))
            wrong: tuple[Part, ...] = tuple(map(Block, sorted(blocks)))
            if code in _OF_THE_BOOKS:
                evidence, wrong = (*evidence, frozenset([Books()])), (*wrong, Books())
            expected = self._held_twice(seen)
            yield Violation(signature, spec, actual, expected, evidence, wrong)
        if (unshared := next(unshared_heads(seen), None)) is not None:
            number, actual, blocks = unshared
            defect = Defect(Code.COMMON_PREFIX_NOT_SHARED)
            yield Violation(
                self.of_group(number, "", defect),
                f"group {number}: the blocks of the common prefix head the tables of all requests",
                actual,
                evidence=tuple(self._may_explain(block, seen) for block in sorted(blocks)),
            )

    def _may_explain(self, block: int, seen: Observation) -> frozenset[Part]:
        """The parts that can be why a block is wrong: itself, its keys, and tables that hold it."""
        tables = (
            Table(request, number, position * group.block_size + 1)
            for request, of_all in seen.tables.items()
            for number, (group, table) in enumerate(zip(self._groups, of_all, strict=True))
            for position, held in enumerate(table)
            if held == block
        )
        names = (Key(name) for (_, name), ids in seen.cached.items() if block in ids)
        return frozenset([Block(block), *tables, *names])

    @staticmethod
    def _held_twice(seen: Observation) -> Expected | None:
        """The expectation that a request that holds a block twice holds it once."""
        for request, tables in seen.tables.items():
            held = Counter(block for table in tables for block in table if block)
            if max(held.values(), default=0) > 1:
                return HeldOnce(request)
        return None
