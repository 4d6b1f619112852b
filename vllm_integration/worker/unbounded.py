"""vLLM's own functions, proved for all sizes, lengths and cache contents.

Each statement is put to `proofs.unbounded`. The function then runs natively on many values, which
must agree with what is proved; and what fails is a counterexample only if it shows there.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FunctionType
from typing import Any

from hitproof.conformance.checks.fine_hits import judge_entered
from hitproof.conformance.checks.lookup import judge_answer
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Space
from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge, InternalError, Predates
from hitproof.conformance.subject.lookups import Lookup
from hitproof.proofs.errors import PathError
from hitproof.proofs.unbounded.lookups import AnyHashes, AnyInsideLookup, AnyLookup
from hitproof.proofs.unbounded.masks import AnyMask, Retention, is_due
from hitproof.proofs.unbounded.proving import Statement
from hitproof.proofs.unbounded.skipping import AnySkipping, skips_right
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import NULL, Listing, Record
from hitproof.spec.claims import Status
from hitproof.spec.groups import BlockGeometry, Group, GroupKind, geometry
from hitproof.spec.hits import required_run, valid_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import Term, greatest
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, spelled
from hitproof.vllm_integration.adapter.parts import Parts, stand_in_hashes
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.admitting import Admitting, Replaying
from hitproof.vllm_integration.worker.coordinators import Coordinated, CoordinatedInside, Served
from hitproof.vllm_integration.worker.freeing import Freeing
from hitproof.vllm_integration.worker.registering import Registering
from hitproof.vllm_integration.worker.settling import (
    MASK_PARAMETERS,
    Departure,
    OfManager,
    Outcome,
    Settling,
    Shown,
    Trial,
    combinations_of,
    numbers_in,
    with_departures,
)
from hitproof.vllm_integration.worker.tier_masks import TierMask

TIER_MASKS = {"storing": "stored", "asking": "asked"}
"""The statements about masks of tiers, and what they are about."""

HASHES = "hashes"
"""The statement about the hashes of blocks that have several."""

INSIDE = "inside"
"""Ends the names of statements about hits that may end inside blocks."""

_RESOLVE = "resolve_block_hashes"

_FAR = 1000
"""Up to which number in the code a function is run on sizes next to it."""


def settle(subject: VllmSubject, name: str, seconds: float, proved: set[str]) -> Outcome:
    """Prove the statement of that name, or refute it by values; see `Settling.settle`."""
    return _named(subject, name).settle(seconds, name, proved)


def _named(subject: VllmSubject, name: str) -> Settling:
    if name == HASHES:
        return _Hashes(subject)
    what, *more = name.split()
    if what in TIER_MASKS:
        return TierMask(subject, TIER_MASKS[what], *kinds_in(name)[0])
    if what == "coordinator":
        made = CoordinatedInside if INSIDE in more else Coordinated
        return made(subject, kinds_in(name.removesuffix(f" {INSIDE}")))
    if what == "serving":
        return Served(subject, kinds_in(name))
    if what == "replay":
        return Replaying(subject, "eagle" in more)
    kind, *more = more
    if what == "admission":
        return Admitting(subject, GroupKind(kind))
    if what == "freeing":
        return Freeing(subject, GroupKind(kind))
    if what == "registration":
        return Registering(subject, GroupKind(kind))
    if what == "skipped":
        return _Skipping(subject, GroupKind(kind))
    eagle = "eagle" in more
    if what == "lookup" and INSIDE in more:
        return _LookupInside(subject, GroupKind(kind), eagle)
    if what == "mask":
        return _Mask(subject, GroupKind(kind), eagle, Retention(more[-1]))
    return _LookupOfKind(subject, GroupKind(kind), eagle)


def kinds_in(name: str) -> list[tuple[GroupKind, bool]]:
    """The kinds in the name of a statement about a coordinator, and whether they drop a block."""
    _, *words = name.split()
    after = [*words[1:], ""]
    return [
        (GroupKind(word), then == "eagle")
        for word, then in zip(words, after, strict=True)
        if word != "eagle"
    ]


class _LookupOfKind(Settling):
    """The lookup of one kind of group, of any sizes."""

    def __init__(self, subject: VllmSubject, kind: GroupKind, eagle: bool) -> None:
        self._subject = subject
        self._parts: Parts = subject.parts
        self._kind = kind
        self._eagle = eagle
        self._manager = self._parts.manager_class(kind)
        self._function = attribute(self._manager, "find_longest_cache_hit")
        self.assumptions = combinations_of(f"lookup {kind}{' eagle' if eagle else ''}")

    def statement(self, here: Arithmetic, known: tuple[Departure, ...] = ()) -> Statement:
        """What holds of the lookup outside of these divergences."""
        any_ = AnyLookup(here, self._kind, self._eagle, known[0].needed if known else None)
        window, chunk = (None if each is None else 2 for each in (any_.window, any_.chunk))
        of_group = Group(self._kind, 1, window, self._eagle, chunk)
        resolve = getattr(self._parts.utils, _RESOLVE, None)
        fields = {
            "block_size": any_.block_size,
            "sliding_window": any_.window,
            "attention_chunk_size": any_.chunk,
        }
        pool = {
            "null_block": NULL,
            "hash_block_size": any_.block_size if resolve is None else any_.hash_block_size,
            "get_cached_block": any_.get_cached_block(),
        }
        spec = type(self._parts.spec(of_group))
        values = {
            "block_hashes": any_.hashes if resolve is None else any_.finer_hashes,
            "max_length": any_.max_length,
            "kv_cache_group_ids": Listing([0]),
            "block_pool": Record(self._parts.pools.BlockPool, pool),
            "kv_cache_spec": Record(spec, {n: v for n, v in fields.items() if v is not None}),
            "drop_eagle_block": self._eagle,
            "use_eagle": self._eagle,
            "alignment_tokens": any_.alignment,
        }
        where = f"{self._manager.__name__}.find_longest_cache_hit"
        keywords = spelled(self._function, arguments(self._function, values, where))
        premises = any_.premises
        if self._kind is GroupKind.SLIDING_WINDOW:
            # A window of one token reads nothing before it, and no model has one.
            premises = (*premises, any_.window >= 2)
        return Statement(
            self._function,
            keywords,
            premises,
            any_.conclusions,
            any_.shapes,
            any_.sizes,
            contracts={} if resolve is None else {resolve: any_.resolve()},
            reads=(),
        )

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where the real function runs, on sizes like these and on others."""
        chance, numbers = trial.chance, numbers_in(self._function)
        for number in range(trial.tries):
            near = trial.sizes if number % 2 else {}
            configuration, max_length = self._chosen(chance, near, numbers)
            cached = _some_blocks(chance, configuration, max_length)
            evidence = self._judged(configuration, max_length, cached)
            if not trial.known:
                is_wrong = evidence is not None
            else:  # what is lost, and no more, is lost where that is known
                hit = _longest(configuration, max_length, cached)
                served = _longest(configuration, max_length, cached, trial.known[0].needed)
                actual = hit if evidence is None else evidence.actual_hit
                is_wrong = actual != served or (evidence is not None and actual == hit)
            if is_wrong:
                yield Shown.of_lookup(configuration.describe(), evidence)

    def _chosen(
        self, chance: random.Random, sizes: Mapping[str, int], numbers: set[int]
    ) -> tuple[Configuration, int]:
        """A configuration, and how many tokens may be served: small, or next to a number."""
        marks = [each + apart for each in sorted(numbers) if 2 < each < _FAR for apart in (0, 1, 2)]

        def size(least: int, most: int, given: int | None = None) -> int:
            if given is not None and chance.random() < 0.8:
                return max(least, given)
            return (
                chance.choice(marks)
                if marks and chance.random() < 0.2
                else (chance.randint(least, most))
            )

        block_size = size(1, 4, sizes.get("block_size"))
        chunked, window = (
            self._kind is GroupKind.CHUNKED_LOCAL,
            self._kind is GroupKind.SLIDING_WINDOW,
        )
        given = sizes.get("alignment", 0) // block_size or None
        segment = 1 if chunked else size(1, 4, given)
        blocks = size(1, 12, sizes.get("max_length", 0) // block_size or None)
        by_segment = segment * block_size * size(1, 3) + chance.randint(0, 2)
        widths = (size(2, 4 * block_size), by_segment, chance.choice([2, blocks * block_size]))
        group = Group(
            self._kind,
            block_size,
            max(
                2,
                chance.choice(widths)
                if sizes.get("window") is None
                else (size(2, 4 * block_size, sizes["window"])),
            )
            if window
            else None,
            self._eagle,
            block_size * size(1, 4) if chunked else None,
        )
        bound = blocks + chance.randint(0, 3)  # there may be more hashes than may be served
        units = [n for n in range(1, block_size + 1) if block_size % n == 0]
        unit = chance.choice(units) if hasattr(self._parts.utils, _RESOLVE) else block_size
        configuration = Configuration(1, bound, segment * block_size, group, unit)
        return configuration, blocks * block_size + chance.choice([0, block_size - 1])

    def _judged(
        self, configuration: Configuration, max_length: int, cached: frozenset[int]
    ) -> LookupEvidence | None:
        """What is wrong with the real lookup's answer."""
        policy = LookaheadHorizon.CAPPED
        lookup = self._subject.lookup(configuration)
        space = space_of(configuration, lookup, max_length, policy)
        state = frozenset((0, block) for block in cached)
        answer = replay(space, lookup, max_length, state)
        return judge_answer(configuration, lookup, max_length, policy, state, answer)


def _longest(
    configuration: Configuration,
    max_length: int,
    cached: frozenset[int],
    needed: Callable[[BlockGeometry, int], int] | None = None,
) -> int:
    """The longest hit, in tokens; ``needed`` says how many blocks past it have to be cached."""
    shape, size = configuration.shape, configuration.group.block_size
    most = max_length // size

    def is_valid(boundary: int) -> bool:
        lookahead = needed(shape, boundary) if needed else shape.lookahead
        asked = replace(shape, lookahead=lookahead)
        return bool(valid_boundary(asked, boundary, most, most, cached.__contains__))

    return greatest(shape.segment, most, is_valid) * size


def _some_blocks(
    chance: random.Random, configuration: Configuration, max_length: int
) -> frozenset[int]:
    """Blocks that are cached: those of some hit, most, or any."""
    bound = max_length // configuration.group.block_size
    every = range(configuration.num_blocks)
    density = chance.choice([0.5, 0.8, 0.95, 1.0])
    some = {block for block in every if chance.random() < density}
    if chance.random() < 0.5:
        segment = configuration.shape.segment
        boundary = chance.randint(0, bound // segment) * segment
        run = set(required_run(configuration.shape, boundary)) if boundary else set()
        some = run if chance.random() < 0.5 else run | {b for b in some if chance.random() < 0.5}
    return frozenset(some).intersection(every)


class _LookupInside(Settling):
    """The lookup of one kind of group, of any sizes, for hits that may end inside blocks."""

    def __init__(self, subject: VllmSubject, kind: GroupKind, eagle: bool) -> None:
        self._subject, self._kind, self._eagle = subject, kind, eagle
        self._parts: Parts = subject.parts
        self._lookup(2, 2, 2)  # the release may have none
        self._manager = self._parts.manager_class(kind)
        self._function = attribute(self._manager, "find_longest_cache_hit")

    def _lookup(self, units: int, unit: int, blocks: int) -> tuple[Configuration, Lookup]:
        group = Group(self._kind, units * unit, eagle=self._eagle)
        configuration = Configuration(1, blocks, units * unit, group, unit)
        return configuration, self._subject.fine_lookup(configuration)

    def statement(self, here: Arithmetic, known: tuple[Departure, ...] = ()) -> Statement:
        """What holds of the lookup."""
        del known
        any_ = AnyInsideLookup(here, self._kind, self._eagle)
        of_group = type(self._parts.spec(Group(self._kind, 1, None, self._eagle)))
        pool = {
            "null_block": NULL,
            "hash_block_size": any_.unit,
            "get_cached_block": any_.get_cached_block(),
        }
        values = {
            "block_hashes": any_.hashes,
            "max_length": any_.max_length,
            "kv_cache_group_ids": Listing([0]),
            "block_pool": Record(self._parts.pools.BlockPool, pool),
            "kv_cache_spec": Record(of_group, {"block_size": any_.block_size}),
            "drop_eagle_block": self._eagle,
            "use_eagle": self._eagle,
            "alignment_tokens": any_.unit,
        }
        where = f"{self._manager.__name__}.find_longest_cache_hit"
        keywords = spelled(self._function, arguments(self._function, values, where))
        of_blocks = attribute(self._parts.utils, "BlockHashListWithBlockSize")
        return Statement(
            self._function,
            keywords,
            any_.premises,
            any_.conclusions,
            any_.shapes,
            any_.sizes,
            contracts={of_blocks: any_.of_blocks()},
            reads=(),
        )

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """What is wrong where the real function runs, on sizes like these and on others."""
        chance, sizes = trial.chance, trial.sizes
        marks = [each for each in sorted(numbers_in(self._function)) if 2 < each < _FAR]
        near = max(2, sizes.get("block_size", 2) // max(1, sizes.get("hash_block_size", 1)))
        for number in range(trial.tries):
            units = min(near, _FAR) if number % 4 == 0 else chance.randint(2, 5)
            blocks = chance.randint(1, 4)
            if marks and chance.random() < 0.1:
                blocks = (chance.choice(marks) + chance.randint(0, 2 * units)) // units + 1
            unit, count = chance.randint(1, 3), units * blocks
            configuration, lookup = self._lookup(units, unit, blocks)
            keys = {(0, key): (0, place) for place, key in enumerate(lookup.keys[0])}
            density = chance.choice([0.3, 0.7, 0.9, 1.0])
            entered = {place for place in range(count) if chance.random() < density}
            whole = chance.randint(0, blocks)
            entered |= {(block + 1) * units - 1 for block in range(whole)}
            most = chance.randint(0, count) * unit + chance.randrange(unit)
            most = min(most, count * unit)
            told = configuration, lookup, Space(keys, unit, ()), most, frozenset(entered)
            wrong = judge_entered(*told)
            if wrong is not None:
                where = f"{configuration.describe()}: a lookup of {most} tokens"
                yield Shown(f"{where}, with entries {sorted(entered)}: {wrong.actual}")


def _hash_of(
    resolve: Any, hashes: Any, unit: Any, size: Any, alignment: Any, place: Any
) -> tuple[Any, Any]:
    """How many hashes a group sees, and the one of some block."""
    seen = resolve(
        hashes, unit, size, supports_fine_grained_hash_lookup=True, alignment_tokens=alignment
    )
    return len(seen), seen[place]


class _Hashes(Settling):
    """Which hashes a group sees whose blocks have several."""

    def __init__(self, subject: VllmSubject) -> None:
        self._resolve = getattr(subject.parts.utils, _RESOLVE, None)
        if self._resolve is None:
            raise Predates(f"the target has no {_RESOLVE}")

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any hashes."""
        del known
        any_ = AnyHashes(here)
        values = {
            "resolve": self._resolve,
            "hashes": any_.hashes,
            "unit": any_.hash_block_size,
            "size": any_.block_size,
            "alignment": any_.alignment,
            "place": any_.place,
        }
        return Statement(
            _hash_of, values, any_.premises, any_.conclusions, sizes=any_.sizes, reads=()
        )

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Sizes for which another hash is seen."""
        chance = trial.chance
        for _ in range(trial.tries):
            unit, times, blocks = (chance.randint(1, 6) for _ in range(3))
            place, size = chance.randrange(blocks), times * unit
            hashes = stand_in_hashes(blocks * times + chance.randrange(times))
            aligned = size * chance.randint(1, 3)
            found = _hash_of(self._resolve, hashes, unit, size, aligned, place)
            if found != (blocks, hashes[(place + 1) * times - 1]):
                told = f"{len(hashes)} hashes of {unit} tokens, blocks of {size}"
                yield Shown(f"{told}: {found[0]} are seen, that of block {place} is {found[1]!r}")


class _Skipping(OfManager):
    """How many tokens a kind takes for skipped."""

    method = "get_num_skipped_tokens"

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any request."""
        del known
        any_ = AnySkipping(here, self._kind)
        fields = {"sliding_window": any_.limit, "attention_chunk_size": any_.limit}
        own = Record(self._manager, fields | {"extra_retained_tokens": any_.extra})
        keywords = self._given({"self": own, "num_computed_tokens": any_.computed}, given=())
        return Statement(self._function, keywords, (), any_.conclusions, sizes=any_.sizes, reads=())

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Numbers of computed tokens for which too many or too few are skipped."""
        chance, sizes = trial.chance, trial.sizes
        window = self._kind is GroupKind.SLIDING_WINDOW
        chunked = self._kind is GroupKind.CHUNKED_LOCAL
        for number in range(trial.tries):
            limit, computed = chance.randint(1, 12), chance.randint(1, 40)
            if number == 0:
                computed = sizes.get("computed", computed)
                limit = sizes.get("window", sizes.get("chunk", limit))
            group = Group(
                self._kind, 1, limit if window else None, False, limit if chunked else None
            )
            configuration = Configuration(1, 1, 1, group, 1)
            pool = self._parts.pool(configuration)
            made = self._parts.manager(self._manager, configuration, pool)
            skipped = made.get_num_skipped_tokens(computed)
            of_kind = limit if window or chunked else None
            if not all(
                skips_right(self._kind, computed, skipped, token, of_kind)
                for token in range(computed)
            ):
                yield Shown(f"{group} skips {skipped} of {computed}")


class _Mask(Settling):
    """The mask of a kind under a retention."""

    def __init__(
        self, subject: VllmSubject, kind: GroupKind, eagle: bool, retention: Retention
    ) -> None:
        self._parts = parts = subject.parts
        self._kind, self._eagle, self._retention = kind, eagle, retention
        self._manager = manager = parts.manager_class(kind)
        function = parts.find_mask(manager)
        if function is None or (retention is not Retention.DENSE and not parts.thins_out(kind)):
            raise Predates(f"{manager.__name__} has no such mask")
        self._function: Any = function
        self._where = f"{manager.__name__}.{function.__name__}"
        # Before 0.23 it is asked only where hits end on fewer boundaries than blocks.
        self._of_instances = isinstance(function, FunctionType)
        self.assumptions = combinations_of(f"mask {kind}{' eagle' if eagle else ''} {retention}")

    def _called(
        self,
        start: Term,
        end: Term,
        alignment: Term,
        spec: Any,
        interval: Term,
        promised: Term,
        manager: Any,
    ) -> dict[str, Any]:
        """The arguments of a call."""
        own = {
            "start": start,
            "end": end,
            "alignment": alignment,
            "spec": spec,
            "eagle": self._eagle,
            "interval": interval,
            "boundaries": (promised,),
            "num_prompt_tokens": promised + 1,  # the last token is computed anew
        }
        named = {name: own[of] for name, of in MASK_PARAMETERS.items() if of in own}
        values = {"self": manager, **named}
        return spelled(self._function, arguments(self._function, values, self._where))

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any blocks."""
        any_ = AnyMask(here, self._kind, self._eagle, self._retention)
        any_.due = with_departures(known, any_.siblings, any_.block, any_.boundary, any_.due)
        sizes = {
            "block_size": any_.block_size,
            "sliding_window": any_.window,
            "attention_chunk_size": any_.chunk,
        }
        fields = {name: size for name, size in sizes.items() if size is not None}
        limits = {name: None if size is None else 2 for name, size in sizes.items()}
        group = Group(
            self._kind, 1, limits["sliding_window"], self._eagle, limits["attention_chunk_size"]
        )
        of_group = Record(type(self._parts.spec(group)), fields)
        end = any_.start + any_.length
        manager = Record(self._manager, fields)
        given = self._called(
            any_.start, end, any_.alignment, of_group, any_.interval, any_.promised, manager
        )
        wide = () if any_.window is None else (any_.window >= 2,)
        sparse = (any_.segment >= 2,) if self._of_instances else ()
        premises = (*any_.premises, *wide, *sparse)
        stated = self._function, given, premises, any_.conclusions, any_.shapes, any_.sizes
        return Statement(*stated, reads=())

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Blocks that the mask wrongly keeps or leaves out."""
        chance, latest = trial.chance, self._retention is Retention.LATEST
        marks = [0, *(each for each in sorted(numbers_in(self._function)) if 0 < each < _FAR)]
        window = self._kind is GroupKind.SLIDING_WINDOW
        chunked = self._kind is GroupKind.CHUNKED_LOCAL
        for _ in range(trial.tries):
            size = chance.randint(1, 4)
            segment = 1 if chunked else chance.randint(1 + self._of_instances, 6)
            start = chance.randint(0, 9) + chance.choice(marks)
            width = chance.randint(2, 6 * size) if window else None
            chunk = size * chance.randint(1, 6) if chunked else None
            group = Group(self._kind, size, width, self._eagle, chunk)
            alignment = segment * size
            shape = geometry(group, alignment)
            end, apart = start + chance.randint(0, 20), segment * chance.randint(1, 3)
            promised = chance.randint(0, 20 * size + alignment)
            thinned = self._retention is Retention.INTERVAL
            interval = apart * size if thinned else 0 if latest else None
            spec = self._parts.spec(group)
            own = Configuration(1, 1, alignment, group, size)
            manager = (
                self._parts.manager(self._manager, own, self._parts.pool(own))
                if self._of_instances
                else None
            )
            given = self._called(start, end, alignment, spec, interval, promised, manager)
            mask = self._function(**given)
            siblings = replace(shape, segment=apart) if thinned else shape
            boundary = promised // alignment * segment
            for block in range(start, end):
                kept = True if mask is None else mask[block - start]
                due = is_due(shape, block, self._retention, boundary, apart)
                due = with_departures(trial.known, siblings, block, boundary, due)
                if kept is not due:
                    answer = "keeps" if kept else "leaves out"
                    asked = f"blocks {start} to {end - 1}, interval {interval}"
                    of = f"{group}, alignment {alignment}, replays resume at {promised}"
                    yield Shown(f"{of}: the mask of {asked}, {answer} block {block}")


def settled(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The operation: what is known of the statement ``name``.

    ``proved`` has digests of what is proved already; the answer has more.
    """
    before, began = set(message["proved"]), time.process_time()
    proved = set(before)
    try:
        outcome = settle(subject, message["name"], message["seconds"], proved)
    except Predates as error:
        outcome = Outcome(Status.NOT_APPLICABLE, str(error))
    except (CannotJudge, Unsupported) as error:
        outcome = Outcome(Status.INCONCLUSIVE, str(error))
    except PathError as error:
        raise InternalError(str(error)) from error
    return {
        "status": outcome.status,
        "detail": outcome.detail,
        "outside": {each.cause: each.told(message["name"]) for each in outcome.outside},
        "evidence": None if outcome.evidence is None else outcome.evidence.as_json(),
        "proved": sorted(proved - before),
        "cpu": time.process_time() - began,
    }
