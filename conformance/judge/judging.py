"""Judging one manager at one call: where it violates the spec, by the spec alone.

Questions about the cache refer to the manager's own cache, so a fault counts where it happens and
not again in its consequences.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hitproof.conformance.checks.mask import UNREGISTERED, unreachable
from hitproof.conformance.findings.codes import Defect, worst_class
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import block_role
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Naming
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content import null_read
from hitproof.conformance.judge.pool_invariants import violated_invariants
from hitproof.conformance.judge.promises import NOTHING_SHARED, JudgedPolicies, Promises, Shared
from hitproof.conformance.playing.checkpoints import exports_states
from hitproof.conformance.playing.expectations import (
    Expected,
    Held,
    HeldOnce,
    Registered,
    Returns,
    Served,
    TableLengths,
)
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.managers import Hit, Observation
from hitproof.conformance.words import in_tokens
from hitproof.spec.attention import attends
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import required_run, valid_hit
from hitproof.spec.mask import next_boundary
from hitproof.spec.releases.fine import (
    at_hash_units,
    longest_fine_hit,
    peek,
    valid_fine_hit,
    witness_entries,
)
from hitproof.spec.releases.horizons import horizon
from hitproof.spec.releases.policies import Junctions
from hitproof.spec.releases.sequential import longest_joint_hit
from hitproof.spec.retention import junction_boundary
from hitproof.spec.terms import INTEGERS

Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks registered under each key, by group and name."""

Entries = Callable[[int, int], bool]
"""Whether a group's block, by position, is registered; a hash unit, where hits are fine-grained."""

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_FINE = "fine_grained_hit_is_vouched_for"
_PROMISES = {
    "resend": "retention_keeps_resends_and_extensions",
    "extension": "retention_keeps_resends_and_extensions",
    "sibling": "retention_keeps_siblings",
    "junction": "retention_keeps_junctions",
}


class Judge:
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
        self._engine = engine
        self._requests = requests
        self._prefixes = prefixes
        policies = policies.on(engine)
        self._policy = policies.horizon
        self._groups = policies.groups(engine)
        self.promises = Promises(engine, requests, self._groups, policies)
        self._keeps_junctions = policies.junctions is Junctions.KEPT
        self.loaded: set[str] = set()
        self._fine = policies.fine(engine)
        self._shapes = [
            geometry(group, group.block_size if self._fine else engine.alignment)
            for group in self._groups
        ]
        # The groups as lookup treats them: blocks are hash units where hits may end inside blocks.
        self._alignment = engine.hash_block_size if self._fine else engine.alignment
        self._hit_groups = [
            at_hash_units(group, self._alignment) if self._fine else group for group in self._groups
        ]
        self._hit_shapes = [geometry(group, self._alignment) for group in self._hit_groups]

    def crash(self, call: str, error: Exception) -> Violation:
        """The manager raised at a call that the history allows."""
        kinds, eagle = self._kinds()
        raises = Defect.of(Code.RAISES_EXCEPTION, error=type(error).__name__)
        signature = Signature(call, Divergence.CRASH, kinds, eagle, raises)
        raised = f"{call} raises {error!r:.200}"
        return Violation(signature, f"{call} returns", raised, Returns())

    def keys(self, wrong: tuple[Divergence, Name, Name]) -> Violation:
        """Two blocks have wrong keys, as `conformance.histories.naming.Names.learn` tells."""
        divergence, first, second = wrong
        shared = divergence == Divergence.UNSOUND
        defect = Defect(Code.TWO_CONTENTS_UNDER_KEY if shared else Code.TWO_KEYS_FOR_CONTENT)
        kinds, eagle = self._kinds()
        return Violation(
            Signature("block_hashes", divergence, kinds, eagle, defect),
            "a key stands for one content, and a content has one key",
            f"{first} and {second}" if shared else first,
        )

    def hit(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Violation | None:
        """Judge a lookup's answer for a request of ``num_tokens`` tokens."""
        entries = self._entries(request, num_tokens, cached)
        expected = self._due_hit(request, num_tokens, entries)
        kinds, eagle = self._kinds()

        def violation(claim: str, divergence: Divergence, defect: Defect) -> Violation:
            return Violation(
                Signature(claim, divergence, kinds, eagle, defect),
                f"hit of {in_tokens(expected)}",
                f"hit of {in_tokens(hit.length)}, tables {hit.tables}",
                Served(request, expected),
            )

        # In sequential lookup a valid hit may be longer than the one that is due.
        skips = self._requests[request].skip_reading_prefix_cache and hit.length
        if skips or not self._is_valid(self._groups, hit.length, num_tokens, entries):
            return violation(
                _FINE if self._fine else _EAGLE if eagle else _TABLE,
                Divergence.UNSOUND,
                self._cannot_serve(hit.length, num_tokens, entries),
            )
        if hit.length < expected:
            short = (expected - hit.length) // self._alignment
            whole = all(
                expected // group.block_size >= shape.tail
                for group, shape in zip(self._hit_groups, self._hit_shapes, strict=True)
            )
            claim = _FINE if self._fine else _LONGEST
            sizes = {g.block_size for g in self._groups if g.kind is GroupKind.FULL_ATTENTION}
            lost = Defect.of(
                Code.HIT_TOO_SHORT,
                run="whole" if whole else "cut",
                short="one" if short == 1 else "several",
                sizes="several" if self._fine and len(sizes) > 1 else None,
            )
            return violation(claim, Divergence.LOST_HIT, lost)
        return self._wrong_table(request, num_tokens, hit, cached)

    def _wrong_table(
        self, request: str, num_tokens: int, hit: Hit, cached: Cached
    ) -> Violation | None:
        """What is wrong with the block tables of a valid hit."""
        (kinds, eagle), unsound = self._kinds(), Divergence.UNSOUND
        lengths = [INTEGERS.ceil_div(hit.length, group.block_size) for group in self._groups]
        for index, group in enumerate(self._groups):
            table = hit.tables[index]
            if not group.prefix_cacheable:
                continue
            if len(table) != lengths[index]:
                return Violation(
                    Signature(_TABLE, unsound, kinds, eagle, Defect(Code.TABLE_LENGTH_WRONG)),
                    f"hit of {in_tokens(hit.length)}: block table of group {index} of length "
                    f"{lengths[index]}",
                    f"block table of length {len(table)}: {table}",
                    TableLengths(request, tuple(lengths)),
                )
            for place, blocks in self._blocks_read(request, index, hit.length, num_tokens, cached):
                if table[place] not in blocks:
                    due = " or ".join(map(str, sorted(blocks)))
                    return Violation(
                        Signature(_TABLE, unsound, kinds, eagle, Defect(Code.TABLE_BLOCK_WRONG)),
                        f"hit of {in_tokens(hit.length)}: block {due} at position {place} of the "
                        f"block table of group {index}",
                        f"block {table[place]}" if table[place] else "the null block",
                    )
        return None

    def _blocks_read(
        self, request: str, index: int, length: int, num_tokens: int, cached: Cached
    ) -> Iterator[tuple[int, set[int]]]:
        """The positions at which a hit reads a group's table, with the blocks allowed there."""
        group, seen, shape = self._groups[index], self._hit_groups[index], self._hit_shapes[index]
        end = length // seen.block_size
        for block in required_run(shape, end) if end else ():
            if block >= end:
                continue
            entries: Iterable[int] = (block,)
            if self._fine:
                reach = peek(group, num_tokens - 1, horizon(self._policy, num_tokens))
                entries = witness_entries(group, seen.block_size, block, reach)
            names = [self._prefixes.name(request, (e + 1) * seen.block_size) for e in entries]
            found = {block_id for name in names for block_id in cached.get((index, name), ())}
            yield block * seen.block_size // group.block_size, found

    def due_hit(self, request: str, num_tokens: int, cached: Cached) -> int:
        """The hit, in tokens, that a request of ``num_tokens`` tokens is due."""
        return self._due_hit(request, num_tokens, self._entries(request, num_tokens, cached))

    def _due_hit(self, request: str, num_tokens: int, entries: Entries) -> int:
        if self._requests[request].skip_reading_prefix_cache:
            return 0
        groups, alignment = self._groups, self._alignment
        if self._fine:
            reach = horizon(self._policy, num_tokens)
            return longest_fine_hit(groups, alignment, num_tokens - 1, reach, entries)
        return longest_joint_hit(groups, alignment, num_tokens, self._policy, entries)

    def shared(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Shared:
        """The prefix shown to be shared beyond a lookup's hit, if retention depends on it."""
        dense = self._engine.retention_interval is None
        dense = dense and not (self._fine and self._engine.keeps_shared_states)
        if dense or self._requests[request].skip_reading_prefix_cache:
            return NOTHING_SHARED
        entries, alignment = self._entries(request, num_tokens, cached), self._alignment
        seen = kept = 0
        for alone in dict.fromkeys(group for group in self._groups if group.prefix_cacheable):
            length = next(
                length
                for length in range((num_tokens - 1) // alignment * alignment, -1, -alignment)
                if self._is_valid(self._asked_alone(alone), length, num_tokens, entries)
            )
            seen = max(seen, length)
            shape = self._hit_shapes[self._groups.index(alone)]
            drops = shape.lookahead * self._hit_groups[self._groups.index(alone)].block_size
            if alone.kind is GroupKind.FULL_ATTENTION and drops == self.promises.lookahead_tokens:
                kept = max(kept, junction_boundary(length + drops, drops, alignment))
        return Shared(kept if self._keeps_junctions and kept > hit.length else 0, seen)

    def shared_boundary(
        self, request: str, num_tokens: int, hit: Hit, cached: Cached
    ) -> Violation | None:
        """Judge that a prefix reported by a lookup as shared is shared: some group has it."""
        end, entries = hit.shared_prefix_boundary, self._entries(request, num_tokens, cached)
        if not end or (
            hit.length < end < num_tokens
            and end % self._alignment == 0
            and any(
                self._is_valid(groups, end, num_tokens, entries)
                for alone in self._groups
                if alone.prefix_cacheable
                for groups in (self._asked_alone(alone), self._asked_alone(alone, drops=False))
            )
        ):
            return None
        kinds, eagle = self._kinds()
        return Violation(
            Signature(
                _PROMISES["junction"],
                Divergence.WASTE,
                kinds,
                eagle,
                Defect(Code.SHARED_PREFIX_BOUNDARY_WRONG),
            ),
            f"hit of {in_tokens(hit.length)}, and no shared prefix that ends at token {end}",
            f"a shared prefix of {in_tokens(end)}",
        )

    def _asked_alone(self, alone: Group, drops: bool = True) -> list[Group]:
        """The groups, with only that one and its equals taking part in prefix caching."""
        return [
            replace(group, prefix_cacheable=group == alone, eagle=group.eagle and drops)
            for group in self._groups
        ]

    def _entries(self, request: str, num_tokens: int, cached: Cached) -> Entries:
        """Whether a group has the request's prefix up to the end of a block, or of a hash unit.

        Only keys count for which all tokens that the hash covers are known.
        """
        known = num_tokens - self._engine.num_hash_lookahead_tokens

        def entered(group: int, block: int) -> bool:
            end = (block + 1) * self._hit_groups[group].block_size
            return end <= known and (group, self._prefixes.name(request, end)) in cached

        return entered

    def _is_valid(
        self, groups: Sequence[Group], length: int, num_tokens: int, entries: Entries
    ) -> bool:
        cap, reach = num_tokens - 1, horizon(self._policy, num_tokens)
        valid = valid_fine_hit if self._fine else valid_hit
        return valid(groups, self._alignment, length, cap, reach, entries)

    def _cannot_serve(self, length: int, num_tokens: int, entries: Entries) -> Defect:
        """Why a hit that was served cannot be: the first group that cannot serve it."""
        if length % self._alignment:
            return Defect(Code.HIT_UNALIGNED)
        for group in self._groups:
            alone = self._asked_alone(group)
            if group.prefix_cacheable and not self._is_valid(alone, length, num_tokens, entries):
                return Defect.of(Code.HIT_TOO_LONG, group=group.kind)
        return Defect(Code.HIT_FOR_SKIPPING_REQUEST)

    def registered(
        self,
        request: str,
        group_index: int,
        block: int,
        is_registered: bool,
        shared: Shared = NOTHING_SHARED,
        gone: bool = False,
    ) -> Violation | None:
        """Judge whether a computed block of a request should be registered.

        ``gone`` is whether the request gave up the block before its hash was known.
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
                claim = _PROMISES[who]
                defect = Defect.of(Code.PROMISED_BLOCK_UNREGISTERED, hit=who, freed=freed)
            spec, actual = f"register block {block}", f"block {block} is not registered"
        return Violation(
            self.of_group(group_index, claim, defect, divergence),
            f"group {group_index}: {spec}",
            f"group {group_index}: {actual}",
            Registered(request, group_index, block, not is_registered),
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
                _PROMISES[who],
                Defect.of(code, hit=who, states=states),
                Divergence.LOST_HIT,
            ),
            f"group {group_index}: request {request} has an entry at token {need}",
            f"group {group_index}: no such entry is cached",
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

    def pool_claim(self, claim: str, defect: Defect, spec: str, actual: str) -> Violation:
        """An operation on the pool violated a claim."""
        kinds, eagle = self._kinds()
        worst = worst_class(defect.code)
        return Violation(Signature(claim, worst, kinds, eagle, defect), spec, actual)

    def policy(self, call: str, field: str, real: str, reference: str) -> Violation:
        """The two managers differ, and neither violates the spec."""
        kinds, eagle = self._kinds()
        differs = Defect.of(Code.LOCKSTEP_DIFFERENCE, field=field, method=call)
        signature = Signature("lockstep", Divergence.POLICY_CHANGE, kinds, eagle, differs)
        return Violation(signature, reference[:300], real[:300])

    def tables(self, seen: Observation, computed: Mapping[str, int]) -> Violation | None:
        """Judge the tables of requests whose next token is at position ``computed``.

        They must hold every block that this token reads, and those that its step writes.
        """
        for request, tables in seen.tables.items():
            for number, (group, table) in enumerate(zip(self._groups, tables, strict=True)):
                first = self._first_block_read(group, computed.get(request, 0))
                if group.kind is not GroupKind.MAMBA and 0 in table[first:]:
                    return self.freed(request, number, first, table)
        return None

    def freed(self, request: str, number: int, first: int, table: Sequence[int]) -> Violation:
        """A request's table in a group has a null block from ``first`` on, where all are read."""
        return Violation(
            self.of_group(number, _TABLE, null_read(request in self.loaded)),
            f"request {request}, group {number}: blocks from {first} on are read",
            f"its table {tuple(table)} has the null block at position {table.index(0, first)}"
            if 0 in table[first:]
            else f"its table is {tuple(table)}",
            Held(request, number, first),
        )

    @staticmethod
    def _first_block_read(group: Group, query: int) -> int:
        first = next(token for token in range(query + 1) if _attends(group, query, token))
        return first // group.block_size

    def pool(self, seen: Observation) -> Violation | None:
        """Judge the pool's invariants: no block leaks, and none is both free and in use."""
        wrong = next(violated_invariants(self._engine, self._requests, self._prefixes, seen), None)
        if wrong is None:
            return None
        code, spec, actual = wrong
        kinds, eagle = self._kinds()
        signature = Signature("block_pool", worst_class(code), kinds, eagle, Defect(code))
        return Violation(signature, spec, actual, self._held_twice(seen))

    @staticmethod
    def _held_twice(seen: Observation) -> Expected | None:
        """The expectation that a request that holds a block twice holds it once."""
        for request, tables in seen.tables.items():
            held = Counter(block for table in tables for block in table if block)
            if max(held.values(), default=0) > 1:
                return HeldOnce(request)
        return None

    def of_group(
        self, number: int, claim: str, defect: Defect, divergence: Divergence = Divergence.UNSOUND
    ) -> Signature:
        """The signature of what is wrong with one group, an index."""
        eagle = bool(self._shapes[number].lookahead)
        return Signature(claim, divergence, self._groups[number].kind, eagle, defect)

    def _kinds(self) -> tuple[str, bool]:
        """The kinds in words, and whether a group drops a lookahead block."""
        kinds = " + ".join(dict.fromkeys(group.kind for group in self._groups))
        return kinds, any(shape.lookahead for shape in self._shapes)


def _attends(group: Group, query: int, token: int) -> bool:
    return bool(attends(query, token, group.window, group.chunk))
