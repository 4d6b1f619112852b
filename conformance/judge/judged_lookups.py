"""Judging one answer of a manager's lookup, by the spec alone, on the manager's own cache."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hitproof.conformance.checks.block_tables import wrong_length
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Evidence, Key, Part, Table
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Naming
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.promises import (
    NOTHING_SHARED,
    PROMISED_BY,
    JudgedPolicies,
    Promises,
    Shared,
)
from hitproof.conformance.playing.expectations import Served, TableLengths
from hitproof.conformance.scope.configurations import has_possible_chunks
from hitproof.conformance.subject.managers import Hit
from hitproof.conformance.words import in_tokens, kinds_of
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import required_run, valid_hit
from hitproof.spec.releases.fine import (
    at_hash_units,
    longest_fine_hit,
    peek,
    valid_fine_hit,
    witness_entries,
)
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import Junctions
from hitproof.spec.releases.sequential import longest_joint_hit
from hitproof.spec.retention import junction_boundary
from hitproof.spec.terms import ceil_div

Cached = Mapping[tuple[int, Name], tuple[int, ...]]
"""The blocks registered under each key, by group and name."""

Entries = Callable[[int, int], bool]
"""Whether a group's block, by position, is registered; a hash unit, where hits are fine-grained."""

Cap = int | None
"""The most tokens that a lookup may serve, where that is not all but the last of its request."""


@dataclass(frozen=True)
class _Registered:
    """`Entries` of one request, as they are: ``of_groups`` has the positions of each group."""

    of_groups: tuple[frozenset[int], ...]

    def __call__(self, group: int, block: int) -> bool:
        return block in self.of_groups[group]


_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_FINE = "fine_grained_hit_is_vouched_for"


class LookupJudge:
    """Judges what lookups of managers of one configuration answer, on requests of one history."""

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
        self._groups = self.groups = policies.groups(engine)
        self.promises = Promises(engine, requests, self._groups, policies)
        self._keeps_junctions = policies.junctions is Junctions.KEPT
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
        self._alone: dict[tuple[Group, bool], list[Group]] = {}
        # The last ones: several things are judged of one answer.
        self._due: tuple[tuple[str, int, _Registered], int] | None = None
        self._by_groups: tuple[tuple[int, _Registered], tuple[int, int]] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether an engine can have the configuration, as far as the spec knows."""
        alignment = self._engine.alignment
        return all(has_possible_chunks(group, alignment) for group in self._groups)

    def hit(
        self, request: str, num_tokens: int, hit: Hit, cached: Cached, cap: Cap = None
    ) -> Violation | None:
        """Judge a lookup's answer for a request of ``num_tokens`` tokens.

        With a ``cap`` only hits that end on boundaries are judged, and none of sequential lookups.
        """
        if cap is not None and (self._fine or self._policy is LookaheadHorizon.CANDIDATE):
            return None
        entries = self._entries(request, num_tokens, cached)
        expected = self._due_hit(request, num_tokens, entries, cap)
        kinds, eagle = self._kinds()

        def violation(
            claim: str, divergence: Divergence, defect: Defect, damages: Iterable[Part] = ()
        ) -> Violation:
            return Violation(
                Signature.booked(defect, divergence, kinds, eagle, claim),
                f"hit of {in_tokens(expected)}" + ("" if cap is None else f", at most {cap}"),
                f"hit of {in_tokens(hit.length)}, tables {hit.tables}",
                Served(request, expected) if cap is None else None,
                self._keys_to(request, expected) if divergence == Divergence.LOST_HIT else (),
                tuple(damages),
            )

        # In sequential lookup a valid hit may be longer than the expected one.
        skips = self._requests[request].skip_reading_prefix_cache and hit.length
        if skips or not self._is_valid(self._groups, hit.length, num_tokens, entries, cap):
            holds = self.wrong_table(request, num_tokens, hit, cached) is None
            defect = self._cannot_serve(hit.length, num_tokens, entries, holds, cap)
            drafts = ("block", "lookahead") in defect.parameters
            return violation(
                _FINE if self._fine else _EAGLE if eagle else _TABLE,
                Divergence.WRONG_DRAFTS if drafts else Divergence.UNSOUND,
                defect,
                self._damaged(request, hit, num_tokens, entries),
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
        return self.wrong_table(request, num_tokens, hit, cached)

    @property
    def judges_group_hits(self) -> bool:
        """Whether hits of each group alone are judged.

        Hits of sequential lookups, of several MTP modules, and by hashes that look ahead, which
        engines with connectors do not have, are not.
        """
        engine = self._engine
        ahead = engine.num_hash_lookahead_tokens > 0 or engine.num_prefill_lookahead > 1
        return not ahead and self._policy is not LookaheadHorizon.CANDIDATE

    def group_hits(
        self,
        request: str,
        num_tokens: int,
        cap: int,
        lengths: Sequence[int],
        tables: Sequence[Sequence[int]],
        cached: Cached,
    ) -> Iterator[Violation]:
        """Judge the longest hits, of at most ``cap`` tokens, of each group alone, their blocks."""
        entries = self._entries(request, num_tokens, cached)
        for index, group in enumerate(self._groups):
            if not group.prefix_cacheable:
                continue
            alone = self._asked_alone(group)
            due = self._longest_up_to(cap, alone, num_tokens, entries)
            end = ceil_div(due, group.block_size)
            blocks = self._blocks_read(request, index, due, num_tokens, cached)
            if lengths[index] != due:
                how = "long" if lengths[index] > due else "short"
            elif len(tables[index]) != end or any(tables[index][at] not in ok for at, ok in blocks):
                how = "table"
            else:
                continue
            short = how == "short"
            defect = Defect.of(Code.GROUP_HIT_WRONG, hit=how)
            divergence = Divergence.LOST_HIT if short else Divergence.UNSOUND
            yield Violation(
                self.of_group(index, _LONGEST if short else _TABLE, defect, divergence),
                f"group {index} alone: hit of {in_tokens(due)}",
                f"hit of {in_tokens(lengths[index])}, blocks {tuple(tables[index])}",
            )

    def _keys_to(self, request: str, end: int) -> Evidence:
        """The keys of a request's prefixes up to the token ``end``: with a wrong one hits end."""
        unit = self._engine.hash_block_size
        ends = range(unit, end + 1, unit)
        return (frozenset(Key(self._prefixes.name(request, each)) for each in ends),)

    def _damaged(self, request: str, hit: Hit, num_tokens: int, entries: Entries) -> Iterator[Part]:
        """What a hit that cannot be served leaves wrong.

        The tables of the groups that cannot serve it are, up to its end; a block that reaches
        beyond will be written.
        """
        aligned = hit.length % self._alignment == 0
        for index, group in enumerate(self._groups):
            alone = self._asked_alone(group)
            due, table = hit.length // group.block_size, hit.tables[index]
            if not aligned or not self._is_valid(alone, hit.length, num_tokens, entries):
                shifted = not aligned or len(table) != due  # what follows is in another place
                yield Table(request, index, None if shifted else hit.length)
            yield from map(Block, table[due:])

    def wrong_table(
        self,
        request: str,
        num_tokens: int,
        hit: Hit,
        cached: Cached,
        lags: Callable[[GroupKind], bool] = lambda _: False,
    ) -> Violation | None:
        """What is wrong with the block tables of a valid hit.

        Those of groups of a kind that ``lags`` may be shorter, and are not read.
        """
        (kinds, eagle), unsound = self._kinds(), Divergence.UNSOUND
        lengths = [ceil_div(hit.length, group.block_size) for group in self._groups]
        for index, group in enumerate(self._groups):
            table = hit.tables[index]
            if not group.prefix_cacheable:
                continue
            if lags(group.kind) and len(table) <= lengths[index]:
                continue
            if len(table) != lengths[index]:
                other = wrong_length(len(table), lengths[index])
                return Violation(
                    Signature(_TABLE, unsound, kinds, eagle, other),
                    f"hit of {in_tokens(hit.length)}: block table of group {index} of length "
                    f"{lengths[index]}",
                    f"block table of length {len(table)}: {table}",
                    TableLengths(request, tuple(lengths)),
                    damages=(Table(request, index), *map(Block, table[lengths[index] :])),
                )
            for place, blocks in self._blocks_read(request, index, hit.length, num_tokens, cached):
                if table[place] not in blocks:
                    due = " or ".join(map(str, sorted(blocks)))
                    return Violation(
                        Signature(_TABLE, unsound, kinds, eagle, Defect(Code.TABLE_BLOCK_WRONG)),
                        f"hit of {in_tokens(hit.length)}: block {due} at position {place} of the "
                        f"block table of group {index}",
                        f"block {table[place]}" if table[place] else "the null block",
                        damages=(Table(request, index, hit.length),),
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
        """The expected hit, in tokens, of a request of ``num_tokens`` tokens."""
        return self._due_hit(request, num_tokens, self._entries(request, num_tokens, cached))

    def _due_hit(self, request: str, num_tokens: int, entries: _Registered, cap: Cap = None) -> int:
        if cap is not None:
            return self._longest(request, num_tokens, entries, cap)
        key = request, num_tokens, entries
        if self._due is None or self._due[0] != key:
            self._due = key, self._longest(request, num_tokens, entries, None)
        return self._due[1]

    def _longest(self, request: str, num_tokens: int, entries: Entries, cap: Cap) -> int:
        if self._requests[request].skip_reading_prefix_cache:
            return 0
        groups, alignment = self._groups, self._alignment
        if cap is not None:
            return self._longest_up_to(cap, groups, num_tokens, entries)
        if self._fine:
            reach = horizon(self._policy, num_tokens)
            return longest_fine_hit(groups, alignment, num_tokens - 1, reach, entries)
        return longest_joint_hit(groups, alignment, num_tokens, self._policy, entries)

    def _longest_up_to(
        self, cap: int, groups: Sequence[Group], num_tokens: int, entries: Entries
    ) -> int:
        return next(
            length
            for length in range(cap // self._alignment * self._alignment, -1, -self._alignment)
            if self._is_valid(groups, length, num_tokens, entries, cap)
        )

    def junction(self, request: str, num_tokens: int, hit: int, cached: Cached) -> int:
        """The end of the prefix that a lookup with that hit shows to be shared, in tokens; or 0."""
        entries = self._entries(request, num_tokens, cached)
        kept, _ = self._shown_and_seen(num_tokens, entries)
        return kept if self._keeps_junctions and kept > hit else 0

    def shared(self, request: str, num_tokens: int, hit: Hit, cached: Cached) -> Shared:
        """The prefix shown to be shared beyond a lookup's hit, if retention depends on it."""
        dense = self._engine.retention_interval is None
        dense = dense and not (self._fine and self._engine.keeps_shared_states)
        if dense or self._requests[request].skip_reading_prefix_cache:
            return NOTHING_SHARED
        return self._shown(num_tokens, hit, self._entries(request, num_tokens, cached))

    def _shown(self, num_tokens: int, hit: Hit, entries: _Registered) -> Shared:
        """What the groups show of a prefix to be shared, beyond a hit."""
        key = num_tokens, entries
        if self._by_groups is None or self._by_groups[0] != key:
            self._by_groups = key, self._shown_and_seen(num_tokens, entries)
        kept, seen = self._by_groups[1]
        return Shared(kept if self._keeps_junctions and kept > hit.length else 0, seen)

    def _shown_and_seen(self, num_tokens: int, entries: Entries) -> tuple[int, int]:
        """The junction that the groups, each alone, show, and the most that one of them shows.

        Full attention holds all of what is shared, to the last whole block, with the lookahead
        block if it drops one. So it decides the expected hit of the next request: what each of its
        groups shows, since lookups ask one of them no further than the one before.
        """
        alignment, seen = self._alignment, 0
        shown: list[int] = []
        for alone in dict.fromkeys(group for group in self._groups if group.prefix_cacheable):
            length = next(
                length
                for length in range((num_tokens - 1) // alignment * alignment, -1, -alignment)
                if self._is_valid(self._asked_alone(alone), length, num_tokens, entries)
            )
            seen = max(seen, length)
            shape = self._hit_shapes[self._groups.index(alone)]
            drops = shape.lookahead * self._hit_groups[self._groups.index(alone)].block_size
            if alone.kind is GroupKind.FULL_ATTENTION:
                shown.append(length + drops if length else 0)
        lookahead = self.promises.lookahead_tokens
        kept = int(junction_boundary(min(shown, default=0), lookahead, alignment))
        return kept, seen

    def shared_boundary(
        self, request: str, num_tokens: int, hit: Hit, cached: Cached
    ) -> Violation | None:
        """Judge that a prefix reported by a lookup as shared is shared: some group has it.

        One that full attention shows to be shared has to be reported where it is kept for it.
        """
        end, entries = hit.shared_prefix_boundary, self._entries(request, num_tokens, cached)
        kinds, eagle = self._kinds()
        if not end and self._depends_on_junctions(request):
            due = self._shown(num_tokens, hit, entries).kept
            # A state that is computed in this very step is not served yet, but is there already.
            if due > self._due_hit(request, num_tokens, entries):
                return Violation(
                    Signature(
                        PROMISED_BY["junction"],
                        Divergence.LOST_HIT,
                        kinds,
                        eagle,
                        Defect(Code.SHARED_PREFIX_UNREPORTED),
                    ),
                    f"hit of {in_tokens(hit.length)}, and a shared prefix of at least "
                    f"{in_tokens(due)}",
                    "no shared prefix",
                )
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
        return Violation(
            Signature(
                PROMISED_BY["junction"],
                Divergence.WASTE,
                kinds,
                eagle,
                Defect(Code.SHARED_PREFIX_BOUNDARY_WRONG),
            ),
            f"hit of {in_tokens(hit.length)}, and no shared prefix that ends at token {end}",
            f"a shared prefix of {in_tokens(end)}",
        )

    def _depends_on_junctions(self, request: str) -> bool:
        """Whether a group keeps a shared prefix only where a lookup has reported it.

        Under dense retention, too, there is a Mamba state only where a chunk ends.
        """
        return (
            self._keeps_junctions
            and not self._requests[request].skip_reading_prefix_cache
            and any(
                group.prefix_cacheable
                and (group.kind is GroupKind.MAMBA or self.promises.is_retained(group))
                for group in self._groups
            )
        )

    def _asked_alone(self, alone: Group, drops: bool = True) -> list[Group]:
        """The groups, with only that one and its equals taking part in prefix caching."""
        known = self._alone.get((alone, drops))
        if known is None:
            known = self._alone[alone, drops] = [
                replace(group, prefix_cacheable=group == alone, eagle=group.eagle and drops)
                for group in self._groups
            ]
        return known

    def _entries(self, request: str, num_tokens: int, cached: Cached) -> _Registered:
        """Whether a group has the request's prefix up to the end of a block, or of a hash unit.

        Only keys count for which all tokens that the hash covers are known.
        """
        known, unit = (
            num_tokens - self._engine.num_hash_lookahead_tokens,
            self._engine.hash_block_size,
        )

        def registered(group: int, size: int) -> Iterator[int]:
            for end in range(size, known + 1, size):
                if end % unit == 0 and (group, self._prefixes.name(request, end)) in cached:
                    yield end // size - 1

        return _Registered(
            tuple(
                frozenset(registered(index, group.block_size))
                for index, group in enumerate(self._hit_groups)
            )
        )

    def _is_valid(
        self, groups: Sequence[Group], length: int, num_tokens: int, found: Entries, cap: Cap = None
    ) -> bool:
        most = num_tokens - 1 if cap is None else cap
        valid = valid_fine_hit if self._fine else valid_hit
        reach = self._reach(most, num_tokens)
        return valid(groups, self._alignment, length, most, reach, found)

    def _reach(self, most: int, num_tokens: int) -> int:
        """The lookahead horizon of a lookup that may serve at most ``most`` tokens."""
        capped = self._policy is LookaheadHorizon.CAPPED
        return most if capped else horizon(self._policy, num_tokens)

    def _cannot_serve(
        self, length: int, num_tokens: int, entries: Entries, holds: bool, cap: Cap
    ) -> Defect:
        """Why a hit that was served cannot be: the first group that cannot serve it.

        One that lacks more than its lookahead block goes before one that lacks only that: then only
        drafts are wrong, if the block tables have what the hit reads (``holds``).
        """
        if length % self._alignment:
            return Defect(Code.HIT_UNALIGNED)
        for block, drops in ((None, False), ("lookahead", True)):
            for group in self._groups:
                alone = self._asked_alone(group, drops)
                valid = self._is_valid(alone, length, num_tokens, entries, cap)
                if group.prefix_cacheable and not valid:
                    lacks = block if holds else None
                    several = "several" if lacks and group.prefill_lookahead > 1 else None
                    return Defect.of(
                        Code.HIT_TOO_LONG, group=group.kind, block=lacks, modules=several
                    )
        return Defect(Code.HIT_FOR_SKIPPING_REQUEST)

    def of_group(
        self, number: int, claim: str, defect: Defect, divergence: Divergence = Divergence.UNSOUND
    ) -> Signature:
        """The signature of what is wrong with one group, an index; see `Defect.booked`."""
        eagle = bool(self._shapes[number].lookahead)
        return Signature.booked(defect, divergence, self._groups[number].kind, eagle, claim)

    def _kinds(self) -> tuple[str, bool]:
        """The kinds in words, and whether a group drops a lookahead block."""
        return kinds_of(self._groups), any(shape.lookahead for shape in self._shapes)
