"""vLLM's lookups over several groups, proved for all sizes, lengths and cache contents.

The attributes of a coordinator are those of real ones that are set up with several sizes: what is
the same in all of them stays, what is one of the sizes in all of them becomes its symbol, and the
rest is unknown. In some of them sizes coincide, since coordinators compare them.
"""

import inspect
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from types import ModuleType
from typing import Any, ClassVar

from hitproof.conformance.checks.lookup import judge_answer
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Space
from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.proofs.unbounded.coordinators import AnyCoordinator, Asked
from hitproof.proofs.unbounded.lookups import GroupHit
from hitproof.proofs.unbounded.machine import Machine, Path
from hitproof.proofs.unbounded.proving import Statement
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Contract, Listing, Marks, Record, Unknown, is_same
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import required_run
from hitproof.spec.releases.fine import FINE_KINDS, longest_fine_hit
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.terms import Formula, not_
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, spelled
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.adapter.tiers import INNER, VllmTierLookup, coordinator_class
from hitproof.vllm_integration.worker.settling import (
    DEPARTURES,
    Departure,
    Settling,
    Shown,
    Trial,
    numbers_in,
)

_FIND = "find_longest_cache_hit"
_INSIDE = "enable_partial_hash_hits"

INSIDE_BLOCKS = (
    "whether hits may end inside blocks depends on sizes here, and is not the same for all of these"
)
"""Why nothing is said of a coordinator."""
_FAR = 64
"""Up to which size one that a proof names is tried."""

_UNITS = (2, 5, 11)
"""Hash block sizes of the real coordinators."""
_TIMES = (3, 2, 5)
"""Hashes in a block of each group of them; of a group that has alignments, their product."""


class Coordinated(Settling):
    """The lookup over groups of these kinds, each with or without a draft layer.

    Attributes:
        method: the name of the coordinator's lookup.
        kinds: the kinds, and which have draft layers.
        parts: the target's modules.
        real: real coordinators, each of other sizes.
        samples: their layouts.
        of_hashes: the groups whose blocks have one hash each in all of them.
    """

    method: ClassVar[str] = _FIND
    inside: ClassVar[bool] = False
    """Whether it is about hits that may end inside blocks."""

    def __init__(self, subject: VllmSubject, kinds: Sequence[tuple[GroupKind, bool]]) -> None:
        self._subject, self.kinds = subject, kinds
        self._alone = len(kinds) == 1
        flagged = [eagle for _, eagle in kinds]
        self._use_eagle = any(flagged)
        self._flagged = not all(flagged) and self._use_eagle
        if self._flagged and subject.eagle_groups is EagleGroups.ALL:
            raise CannotJudge("every group drops a block, whichever is flagged")
        self.policy = LookaheadHorizon.CAPPED if self._alone else self._reaches()
        if self.policy is LookaheadHorizon.CANDIDATE:
            raise CannotJudge("lookups without a margin are not executed on symbols")
        known = [each for kind, eagle in kinds for each in _known_of(kind, eagle)]
        self.assumptions = ((),) if self._alone else (tuple(dict.fromkeys(known)),)
        self.parts = subject.parts
        self.of_hashes: frozenset[int] = frozenset()
        self._sample()
        if self._ends_elsewhere() and {kind for kind, _ in kinds} <= {*FINE_KINDS}:
            # Hits end on block edges if and only if states have one hash each.
            states = [n for n, (kind, _) in enumerate(kinds) if kind is GroupKind.MAMBA]
            self.of_hashes = frozenset(states if states == [1] and len(kinds) == 2 else ())
            self._sample()
        if self._ends_elsewhere():
            raise CannotJudge(INSIDE_BLOCKS)
        self._function = attribute(self.real[0], self.method)

    def _sample(self) -> None:
        self.samples = [*map(self._sampled, range(len(_UNITS))), *self._coincidences()]
        self.real: tuple[Any, ...] = tuple(self._lookup(each).inputs[0] for each in self.samples)

    def _ends_elsewhere(self) -> bool:
        """Whether hits of some of them end inside blocks, or of some do not if they should."""
        return any(getattr(each, _INSIDE, False) is not self.inside for each in self.real)

    def _reaches(self) -> LookaheadHorizon:
        return self._subject.lookahead_horizon

    def _lookup(self, layout: Layout) -> Any:
        return self._subject.lookup(layout)

    # --- the statement

    def statement(self, here: Arithmetic, known: tuple[Departure, ...] = ()) -> Statement:
        """What holds of the real coordinator, with symbols for sizes."""

        def spared(hit: GroupHit) -> Formula:
            holds: Formula = True
            boundary = hit.other // hit.group.block_size
            for each in _known_of(hit.group.kind, hit.group.eagle) if known else ():
                holds = holds & not_(each.at(hit.shape, hit=boundary))
            return holds

        restricted = self.inside, self.of_hashes
        any_ = AnyCoordinator(here, self.kinds, self.policy, spared, *restricted)
        lifted = Lifted(self, any_)
        own = lifted.record
        made = Record(own.python_type)  # the same on all paths, which go on as one
        values = {
            "self": made,
            "block_hashes": any_.hashes,
            "max_cache_hit_length": any_.cap,
            "max_length": any_.cap,
            "cached_block_pool": lifted.pool,
            "apply_eagle": True,
        }
        function = self._function.__func__
        where = f"the coordinator's {self.method}"
        keywords = spelled(function, arguments(function, values, where))

        def find(machine: Machine, **given: Any) -> Any:
            """Call it on a coordinator that may set attributes and has those of the real one."""
            made.born, made.attributes = machine.tick(), dict(own.attributes)
            return machine.call(function, (), given)

        return Statement(
            Contract(find),
            keywords,
            tuple(any_.premises),
            any_.conclusions,
            any_.shapes,
            any_.sizes,
            True,
            stands_for=lifted.any_view,
            reads=(function, own, str(self.policy), *lifted.lookups),
        )

    def _sampled(self, number: int) -> Layout:
        """A layout of sizes that have as little as possible to do with each other."""
        return self._of_sizes(number, [times + 10 * number for times in _TIMES[: len(self.kinds)]])

    def _coincidences(self) -> list[Layout]:
        """Layouts where blocks of one group, of the others, or of all are hash blocks, or equal.

        So what a coordinator decides by comparing sizes is not the same in all samples.
        """
        if self._alone:
            return []
        times = _TIMES[: len(self.kinds)]
        every = range(len(times))
        one = [[1 if place == at else each for place, each in enumerate(times)] for at in every]
        rest = [[each if place == at else 1 for place, each in enumerate(times)] for at in every]
        same = [[times[0]] * len(times), [1] * len(times)]
        return [self._of_sizes(len(_UNITS) + at, each) for at, each in enumerate(one + rest + same)]

    def _of_sizes(self, number: int, times: Sequence[int]) -> Layout:
        """The layout of this number, whose groups have blocks of these many hash blocks."""
        unit = _UNITS[number % len(_UNITS)]
        groups = []
        for place, (kind, _) in enumerate(self.kinds):
            each = 1 if self._alone or place in self.of_hashes else times[place]
            if kind is GroupKind.CHUNKED_LOCAL and not self._alone:
                each = math.prod(times)
            groups.append(self._group(place, each * unit, 1000 * number + 97 + place, 7 + number))
        return self._layout(groups, unit, 1)

    def _group(self, place: int, size: int, window: int, chunk: int) -> Group:
        kind, eagle = self.kinds[place]
        return Group(
            kind,
            size,
            window if kind is GroupKind.SLIDING_WINDOW else None,
            eagle and self._flagged,
            chunk * size if kind is GroupKind.CHUNKED_LOCAL else None,
        )

    def _layout(self, groups: Sequence[Group], unit: int, num_tokens: int) -> Layout:
        return Layout(tuple(groups), num_tokens, self._use_eagle, unit)

    # --- values

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where real coordinators run, on sizes like these and on others."""
        chance = trial.chance
        numbers = [n for n in numbers_in(self._function) if 2 < n < 200]
        for _ in range(trial.tries // 10):
            layout = self.some_layout(chance, trial.sizes, numbers)
            if layout is None:
                continue
            lookup = self._lookup(layout)
            for _ in range(10):
                most = chance.randint(
                    max(0, layout.num_tokens - 3 * layout.alignment), layout.num_tokens - 1
                )
                policy = self.policy
                space = space_of(layout, lookup, most, policy)
                state = some_blocks(chance, layout, most)
                answer = replay(space, lookup, most, state)
                found = judge_answer(layout, lookup, most, policy, state, answer)
                if found is not None and not _is_known(found, trial.known):
                    yield Shown.of_lookup(layout.describe(), found)

    def some_layout(
        self, chance: random.Random, sizes: Mapping[str, int], numbers: Sequence[int]
    ) -> Layout | None:
        """A layout by chance, of sizes that may be those given or near the numbers."""

        def near(name: str, most: int, least: int = 1) -> int:
            given = sizes.get(name, 0)
            near = least <= given < _FAR and chance.random() < 0.5
            return given if near else chance.randint(least, most)

        unit = near("hash_block_size", 3)
        times = [
            1
            if self._alone or place in self.of_hashes
            else max(1, near(f"block_size_{place}", 4 * unit) // unit)
            for place in range(len(self.kinds))
        ]
        for place, (kind, _) in enumerate(self.kinds):
            if kind is GroupKind.CHUNKED_LOCAL and not self._alone:
                times[place] = math.lcm(*times)
        groups = [
            self._group(place, size, near(f"window_{place}", 4 * size + 1, 2), chance.randint(1, 3))
            for place, size in enumerate(each * unit for each in times)
        ]
        if len(set(groups)) < len(groups):
            return None  # groups that are alike are looked up together
        layout = self._layout(groups, unit, 1)
        segments = chance.randint(1, 5) + (
            chance.choice(numbers) if numbers and chance.random() < 0.1 else 0
        )
        return replace(layout, num_tokens=segments * layout.alignment + chance.randint(0, 3 * unit))


def _is_known(evidence: LookupEvidence, known: tuple[Departure, ...]) -> bool:
    """Whether the expected hit is one that a known divergence of some group loses."""
    layout = evidence.configuration
    assert isinstance(layout, Layout)
    return any(
        each.at(looked_up.shape, hit=evidence.spec_hit // looked_up.group.block_size)
        for looked_up in layout.looked_up
        for each in _known_of(looked_up.group.kind, looked_up.group.eagle)
        if each in known
    )


def _known_of(kind: GroupKind, eagle: bool) -> tuple[Departure, ...]:
    """The known divergences of a group's lookup."""
    return DEPARTURES.get(f"lookup {kind}{' eagle' if eagle else ''}", ())


def some_blocks(chance: random.Random, layout: Layout, most: int) -> frozenset[tuple[int, int]]:
    """Blocks that are cached: those of some hit of each group, most, or any."""
    density = chance.choice([0.0, 0.5, 0.8, 0.95, 1.0])
    common = chance.random() < 0.5
    boundary = chance.randint(0, most // layout.alignment + 1) * layout.alignment
    state: set[tuple[int, int]] = set()
    for number, each in enumerate(layout.looked_up):
        size = each.group.block_size
        every = range((most + 1) // size)
        if not common:
            boundary = chance.randint(0, most // layout.alignment + 1) * layout.alignment
        run = set(required_run(each.shape, boundary // size)) if boundary else set()
        more = {block for block in every if chance.random() < density}
        state |= {(number, block) for block in (run | more).intersection(every)}
    return frozenset(state)


class CoordinatedInside(Coordinated):
    """The same of hits that may end inside blocks, where Mamba blocks have several hashes."""

    inside = True

    def _lookup(self, layout: Layout) -> Any:
        return self._subject.inside_lookup(layout)

    def _sampled(self, number: int) -> Layout:
        """A layout where only blocks that hits may end in have several hashes."""
        times = [
            each + 10 * number if kind in FINE_KINDS else 1
            for each, (kind, _) in zip(_TIMES, self.kinds, strict=False)
        ]
        return self._of_sizes(number, times)

    def _coincidences(self) -> list[Layout]:
        """Layouts where all blocks but those of states are hash blocks, or others are like them."""
        states = [3 if kind is GroupKind.MAMBA else 1 for kind, _ in self.kinds]
        fine = [3 if kind in FINE_KINDS else 1 for kind, _ in self.kinds]
        return [self._of_sizes(len(_UNITS) + n, each) for n, each in enumerate((states, fine))]

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where real coordinators run, on sizes like these and on others."""
        chance, sizes = trial.chance, trial.sizes
        for _ in range(trial.tries // 4):
            unit = chance.randint(1, 3)
            times = [
                chance.randint(1 + (kind is GroupKind.MAMBA), 4) if kind in FINE_KINDS else 1
                for kind, _ in self.kinds
            ]
            for place in range(len(times)):
                near = sizes.get(f"block_size_{place}", 0) // sizes.get("hash_block_size", 1)
                if 1 < times[place] <= near < _FAR and chance.random() < 0.3:
                    times[place] = near
            windows = [chance.randint(2, 4 * unit + 1) for _ in times]
            groups = [self._group(n, each * unit, windows[n], 2) for n, each in enumerate(times)]
            count = chance.randint(1, 4 * max(times))
            layout = self._layout(groups, unit, count * unit + chance.randint(1, unit))
            lookup, most = self._lookup(layout), layout.num_tokens - 1
            keys = {
                (number, key): (number, place)
                for number, of_group in enumerate(lookup.keys)
                for place, key in enumerate(of_group)
            }
            density = chance.choice([0.3, 0.7, 0.9, 1.0])
            entered = {each for each in keys.values() if chance.random() < density}
            answer = replay(Space(keys, unit, ()), lookup, most, frozenset(entered))
            wrong = self._wrong(layout, most, entered, answer)
            if wrong:
                told = f"a lookup of {most} tokens, with entries {sorted(entered)}"
                yield Shown(f"{layout.describe()}: {told}, {wrong}")

    def _wrong(self, layout: Layout, most: int, entered: set[tuple[int, int]], answer: Any) -> str:
        """What is wrong with an answer, if anything."""
        if isinstance(answer, Exception):
            return f"raises {answer!r}"
        unit, hit = layout.hash_block_size, answer.hit_length
        reach = horizon(self.policy, layout.num_tokens)
        expected = longest_fine_hit(
            layout.shared, unit, most, reach, lambda group, entry: (group, entry) in entered
        )
        if hit != expected:
            return f"hits {hit} tokens ({expected} expected)"
        for number, (table, group) in enumerate(zip(answer.tables, layout.shared, strict=True)):
            right = len(table) == -(-hit // group.block_size) and all(
                self._is_right(group, found, place, hit // unit, group.block_size // unit)
                for place, found in enumerate(table)
            )
            if not right:
                return f"has other blocks than those of its hit of {hit} tokens in group {number}"
        return ""

    @staticmethod
    def _is_right(group: Group, found: Any, place: int, hit: int, units: int) -> bool:
        """Whether a block in a table, for a hit of that many hash units, is the right one."""
        end = (place + 1) * units
        if group.kind is GroupKind.FULL_ATTENTION:
            return bool(min(end, hit) - 1 <= found.index < end)
        if group.kind is GroupKind.MAMBA:
            return bool(found.index == hit - 1 if hit <= end else found.is_null_block)
        read = place in required_run(geometry(group, group.block_size), hit)
        return not read or bool(found.index == place)


class Served(Coordinated):
    """The lookup of the Mooncake store over groups of these kinds: what finds the blocks."""

    method = INNER

    def __init__(self, subject: VllmSubject, kinds: Sequence[tuple[GroupKind, bool]]) -> None:
        if not hasattr(coordinator_class(subject.parts), INNER):
            raise Predates(f"the coordinator of the Mooncake store has no {INNER}")
        super().__init__(subject, kinds)

    def _reaches(self) -> LookaheadHorizon:
        """As far as it finds a lookahead block that ends with the request."""
        unit, most, reaches = 2, 3, LookaheadHorizon.HASHED
        groups = [Group(GroupKind.FULL_ATTENTION, 1), Group(GroupKind.SLIDING_WINDOW, unit, unit)]
        layout = Layout(tuple(groups), most + 1, True, 1)
        lookup = self._lookup(layout)
        state = frozenset({*((0, block) for block in range(most + 1)), (1, 0), (1, 1)})
        answer = replay(space_of(layout, lookup, most, reaches), lookup, most, state)
        lost = judge_answer(layout, lookup, most, reaches, state, answer)
        return LookaheadHorizon.CAPPED if lost else reaches

    def _lookup(self, layout: Layout) -> Any:
        lookup = self._subject.tier_lookup(layout)
        assert isinstance(lookup, VllmTierLookup)
        return lookup.find_blocks()


class Lifted:
    """A coordinator by its attributes, with symbols for sizes.

    Attributes:
        record: the coordinator.
        pool: its block pool.
        signatures: the lookups of its groups.
        gives_length: for each of them, whether it returns the length, too.
    """

    def __init__(self, of: Coordinated, any_: AnyCoordinator) -> None:
        self._of, self._any = of, any_
        told = [_sizes(layout) for layout in of.samples]
        self._symbols = {
            tuple(each[name] for each in told): symbol
            for name, symbol in any_.sizes.items()
            if name != "num_tokens"
        }
        self._known: dict[tuple[int, ...], Any] = {}
        parts = of.parts
        base = attribute(parts.managers, "SingleTypeKVCacheManager")
        self._open = (
            attribute(parts.coordinators, "KVCacheCoordinator"),
            base,
            attribute(parts.interface, "KVCacheSpec"),
            attribute(parts.interface, "KVCacheConfig"),
            attribute(parts.interface, "KVCacheGroupSpec"),
            attribute(parts.pools, "BlockPool"),
            type(of.real[0]),
        )
        self._resolves = hasattr(parts.utils, "resolve_block_hashes")
        self.signatures = []
        self.gives_length = []
        for number, (kind, _) in enumerate(of.kinds):
            function = attribute(parts.manager_class(kind), _FIND)
            self.signatures.append(function)
            self.gives_length.append(self._returns_length(number, function))
        self.record: Record = self._lift(of.real)
        for number, manager in enumerate(self.record.attributes.get("single_type_managers", ())):
            manager.attributes[_FIND] = any_.lookup(number, self._read)
        self.pool: Record = self.record.attributes.get("block_pool", Record(object))

    @property
    def lookups(self) -> tuple[Any, ...]:
        """What is asked about the groups' own lookups, which are not executed."""
        signatures = (str(inspect.signature(each)) for each in self.signatures)
        return (*signatures, *self.gives_length, self._resolves)

    def _returns_length(self, number: int, function: Callable[..., Any]) -> bool:
        """Whether a group's lookup returns the length, too."""
        coordinator, layout = self._of.real[0], self._of.samples[0]
        alone = Configuration(1, 1, layout.alignment, layout.groups[number], layout.hash_block_size)
        config = getattr(coordinator, "kv_cache_config", coordinator)
        values = {
            "block_hashes": [],
            "max_length": 0,
            "kv_cache_group_ids": [0],
            "block_pool": self._of.parts.pool(alone),
            "kv_cache_spec": config.kv_cache_groups[number].kv_cache_spec,
            "drop_eagle_block": False,
            "use_eagle": False,
            "alignment_tokens": layout.alignment,
        }
        keywords = spelled(function, arguments(function, values, _FIND))
        return isinstance(function(**keywords)[-1], int)

    def _read(self, machine: Machine, number: int, *given: Any, **named: Any) -> Asked:
        """What a group's lookup is called with. Raises `Unsupported` unless it is of the group."""
        function = self.signatures[number]
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        told = dict(bound.arguments)
        own = self._specs()[number]
        ids, hashes = told.pop("kv_cache_group_ids"), told.pop("block_hashes")
        if not isinstance(ids, Listing) or ids.items != [number]:
            raise Unsupported("a lookup of other groups")
        if told.pop("kv_cache_spec") is not own:
            raise Unsupported("a lookup with the spec of another group")
        if told.pop("block_pool") is not self.pool:
            raise Unsupported("a lookup in another pool")
        if hashes is self._any.hashes and not self._resolves:
            machine.path.require("each group's lookup has hashes of its blocks", self._are_own(own))
        elif not self._is_view(hashes, own, machine.path):
            raise Unsupported("a lookup with other hashes")
        drops = machine.truth(told.pop("drop_eagle_block", told.pop("use_eagle", False)))
        most, alignment = told.pop("max_length"), told.pop("alignment_tokens")
        if any(value != 1 for value in told.values()):
            raise Unsupported(f"a lookup with {', '.join(told)}")
        return Asked(most, drops, alignment, self.gives_length[number])

    def any_view(self, found: Sequence[tuple[Any, Path]]) -> Any:
        """The one of several hashes of one group's blocks that says so."""
        hashes = [each for each, _ in found]
        for spec in self._specs():
            if found and all(self._is_view(each, spec, path) for each, path in found):
                return next((each for each in hashes if each is not self._any.hashes), hashes[0])
        return None

    def _specs(self) -> list[Record]:
        config = self.record.attributes.get("kv_cache_config", self.record)
        groups = config.attributes["kv_cache_groups"].items
        return [each.attributes["kv_cache_spec"] for each in groups]

    def _is_view(self, hashes: Any, spec: Record, path: Path) -> bool:
        """Whether these are hashes of the group's blocks, or what it makes these of itself."""
        if hashes is self._any.hashes:
            return self._resolves or path.knowledge.follows(self._are_own(spec))
        if (
            not isinstance(hashes, Record)
            or hashes.attributes.get("block_hashes") is not self._any.hashes
        ):
            return False
        size = spec.attributes["block_size"]
        scale = size // self._any.hash_block_size
        return is_same(hashes.attributes.get("scale_factor"), scale)

    def _are_own(self, spec: Record) -> Formula:
        """Whether a group's blocks have one hash each."""
        holds: Formula = spec.attributes["block_size"] == self._any.hash_block_size
        return holds

    def _lift(self, values: tuple[Any, ...]) -> Any:
        first, *others = values
        key = tuple(map(id, values))
        if key in self._known:
            return self._known[key]
        if any(type(each) is not type(first) for each in others):
            return Unknown("not the same in all coordinators")
        if type(first) is int and values in self._symbols:
            return self._symbols[values]
        plain = first is None or type(first) in (bool, int, str)
        if plain or callable(first) or isinstance(first, (Enum, ModuleType, type)):
            same = all(each == first for each in others)
            return first if same else Unknown("not the same in all coordinators")
        made: Any
        if isinstance(first, (list, tuple)):
            if len({len(each) for each in values}) > 1:
                return Unknown("not the same in all coordinators")
            items = [self._lift(each) for each in zip(*values, strict=True)]
            if isinstance(first, list):
                made = Listing(items)
            else:
                items = [self._looking_up(each, items) for each in items]
                made = type(first)(*items) if hasattr(first, "_fields") else tuple(items)
        elif isinstance(first, (set, frozenset)):
            small = range(16)
            if any(each != first for each in others) or not first <= set(small):
                return Unknown("not the same in all coordinators")
            made = Marks([each in first for each in small])
        else:
            made = Record(type(first))
            self._known[key] = made
            if isinstance(first, self._open):
                names = [name for name in vars(first) if all(name in vars(each) for each in others)]
                for name in names:
                    made.attributes[name] = self._lift(tuple(vars(each)[name] for each in values))
        self._known[key] = made
        return made

    def _looking_up(self, item: Any, beside: Sequence[Any]) -> Any:
        """A manager's class beside the ids of its groups, with its lookup."""
        ids = next((each.items for each in beside if isinstance(each, Listing)), None)
        if isinstance(item, type) and hasattr(item, _FIND) and ids:
            number = ids[0]
            if getattr(item, _FIND).__func__ is not self.signatures[number].__func__:
                raise Unsupported(f"the lookup of {item.__name__}")
            return Record(item, {_FIND: self._any.lookup(number, self._read)})
        return item


def _sizes(layout: Layout) -> dict[str, int]:
    """The sizes of a layout by the names of `AnyCoordinator.sizes`."""
    sizes = {"alignment": layout.alignment, "hash_block_size": layout.hash_block_size}
    for number, group in enumerate(layout.groups):
        told = {"block_size": group.block_size, "window": group.window, "chunk": group.chunk}
        sizes |= {f"{name}_{number}": each for name, each in told.items() if each is not None}
    return sizes
