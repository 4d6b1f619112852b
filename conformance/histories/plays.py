"""The histories that the gate replays on whole managers (`conformance.judge.judged_replay`).

First those of the ledger, which show known divergences; then the corpus and the series
(`conformance.histories.corpus`), and generated ones (`conformance.histories.generator`). Sources
have full attention first. No hit depends on that, so about half of their histories are turned.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from hitproof.conformance.histories.corpus import corpus, num_of, one_of, workload_of
from hitproof.conformance.histories.generator import fine_history, history
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.scenarios import FEATURES, scenario
from hitproof.conformance.histories.schema import Evict, Expect, History, Hold, Load, Step
from hitproof.conformance.histories.workload_json import is_workload, read_workload, write_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.retention import SPARSE_KINDS


def is_turned(name: str) -> bool:
    """Whether the history of this name is turned: as good as a throw of dice."""
    return crc32(f"order {name}".encode()) % 2 == 1


def turned(history: History) -> History:
    """The history with the groups in reverse, and whatever its steps say of each."""
    last = len(history.engine.groups) - 1

    def turn(step: Step) -> Step:
        if isinstance(step, Evict | Hold):
            return replace(step, group=last - step.group)
        if isinstance(step, Expect):
            tables = step.tables and step.tables[::-1]
            return replace(step, tables=tables, cached=step.cached and step.cached[::-1])
        return step

    engine = replace(history.engine, groups=history.engine.groups[::-1])
    return replace(history, engine=engine, steps=tuple(map(turn, history.steps)))


def turned_workload(history: SchedulerHistory) -> SchedulerHistory:
    """The scheduler history with the groups of the deployment, and their layers, in reverse."""
    asked = history.deployment
    deployment = replace(asked, groups=asked.groups[::-1], layers=asked.layers[::-1])
    return replace(history, deployment=deployment)


@dataclass(frozen=True)
class Abilities:
    """What histories can ask of a release.

    Attributes:
        registers_tails: whether it registers tails of prompts inside blocks, which generated
            histories avoid (`conformance.histories.generator.history`).
        retained_kinds: the kinds that its retention interval thins out; an engine without such
            a kind gets no interval.
        fits_whole: whether it has ``full_sequence_must_fit``.
        exports_states: whether it has ``mamba_checkpoint_alignment``.
        keeps_shared_states: whether it has ``mamba_shared_prefix_checkpoint``.
        hashes_look_ahead: whether it has ``num_hash_lookahead_tokens``.
        looks_ahead: whether several MTP modules can look ahead in prefill: it has
            ``num_prefill_lookahead``. Earlier releases apply one module repeatedly.
        windows_opt_out: whether a window can opt out of prefix caching; if not, no group does.
        reserves_blocks: whether it has ``reserved_blocks``.
    """

    registers_tails: bool = False
    retained_kinds: Collection[GroupKind] = SPARSE_KINDS
    fits_whole: bool = True
    exports_states: bool = True
    keeps_shared_states: bool = True
    hashes_look_ahead: bool = True
    looks_ahead: bool = True
    windows_opt_out: bool = True
    reserves_blocks: bool = True

    def common(self, other: "Abilities") -> "Abilities":
        """What histories can ask of both releases."""
        either = {name: value and getattr(other, name) for name, value in vars(self).items()}
        tails = self.registers_tails or other.registers_tails
        kinds = [kind for kind in self.retained_kinds if kind in other.retained_kinds]
        return Abilities(**either | {"registers_tails": tails, "retained_kinds": kinds})

    def as_json(self) -> dict[str, Any]:
        """The abilities as JSON; `from_json` reads it."""
        return vars(self) | {"retained_kinds": list(self.retained_kinds)}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Abilities":
        """Inverse of `as_json`."""
        return Abilities(**data | {"retained_kinds": list(map(GroupKind, data["retained_kinds"]))})


def possible(history: History, abilities: Abilities) -> History:
    """The history without features that the release does not have.

    Where groups cannot opt out of prefix caching, a history with such a group has no steps.
    """
    engine = history.engine
    cacheable = tuple(group for group in engine.groups if group.prefix_cacheable)
    if not abilities.windows_opt_out and cacheable != engine.groups:
        engine = replace(engine, groups=cacheable, full_sequence_must_fit=False)
        return replace(history, engine=engine, steps=())
    retains = any(group.kind in abilities.retained_kinds for group in engine.groups)
    exported = engine.mamba_checkpoint_alignment
    shared = engine.mamba_shared_prefix_checkpoint and abilities.keeps_shared_states
    ahead = engine.num_hash_lookahead_tokens if abilities.hashes_look_ahead else 0
    groups = engine.groups
    if not abilities.looks_ahead:
        groups = tuple(replace(group, prefill_lookahead=1) for group in groups)
    engine = replace(
        engine,
        groups=groups,
        num_hash_lookahead_tokens=ahead,
        retention_interval=engine.retention_interval if retains else None,
        full_sequence_must_fit=engine.full_sequence_must_fit and abilities.fits_whole,
        mamba_checkpoint_alignment=exported if abilities.exports_states else None,
        mamba_shared_prefix_checkpoint=shared,
    )
    steps = history.steps
    if not abilities.reserves_blocks:
        steps = tuple(
            replace(step, reserved_blocks=0) if isinstance(step, Load) else step for step in steps
        )
    return replace(history, engine=engine, steps=steps)


class Origin(StrEnum):
    """Where a history comes from."""

    WRITTEN = "written"
    FAMILY = "family"
    MODULES = "several modules"
    SITUATION = "situation"
    EDGE = "edge"
    CONNECTION = "connection"
    UNCACHED = "uncached"
    FINE_SITUATION = "fine situation"
    FINE = "fine family"
    FINE_GENERATED = "fine generated"
    TWINS = "twins"
    FINE_TWINS = "fine twins"
    GENERATED = "generated"
    CORPUS = "corpus"
    """Distilled from the others; of managers and of schedulers, as are those that are written."""
    LAYERS = "layers"
    """Of whole schedulers, as are the next two; all others are of managers."""
    SPREAD = "spread layers"
    SCENARIOS = "scenarios"


_OF_SCHEDULERS = frozenset({Origin.LAYERS, Origin.SPREAD, Origin.SCENARIOS})
"""Origins of scheduler histories."""

_SERIES = {
    Origin.FAMILY: "families",
    Origin.MODULES: "modules",
    Origin.SITUATION: "situations",
    Origin.EDGE: "edges",
    Origin.CONNECTION: "connections",
    Origin.UNCACHED: "uncached",
    Origin.FINE_SITUATION: "fine_situations",
    Origin.FINE: "fine_families",
    Origin.TWINS: "twins",
    Origin.FINE_TWINS: "fine_twins",
    Origin.LAYERS: "layers",
    Origin.SPREAD: "spread_layers",
}
"""The series (`conformance.histories.corpus`) that an origin is; histories go by their numbers."""


@dataclass(frozen=True)
class Play:
    """A history that is replayed.

    Attributes:
        origin: where it comes from.
        name: its name within that origin: the seed, its number in the series, twice for a family
            and after "1:" for layers, or the reader's own name for it.
        text: the history as JSON, if it is written out.
    """

    origin: Origin
    name: str
    text: str = ""

    def describe(self) -> str:
        """The history in words, as shown in findings and obligations."""
        return f"{self.origin} history {self.name}"

    def as_json(self) -> dict[str, Any]:
        """The history as JSON; `from_json` reads it."""
        return {"origin": str(self.origin), "history": self.name, "text": self.text}

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Play":
        """Inverse of `as_json`; raises KeyError, ValueError or TypeError on anything else."""
        return Play(Origin(data["origin"]), data["history"], data["text"])

    @staticmethod
    def written(played: History, name: str) -> "Play":
        """A history that is written out."""
        return Play(Origin.WRITTEN, name, write(played))

    @staticmethod
    def written_workload(played: SchedulerHistory, name: str) -> "Play":
        """A scheduler history that is written out."""
        return Play(Origin.WRITTEN, name, write_workload(played))

    @property
    def of_scheduler(self) -> bool:
        """Whether a whole scheduler plays it: it has a `workload` instead of a `history`."""
        return self.origin in _OF_SCHEDULERS or is_workload(self.text)

    def workload(self) -> SchedulerHistory:
        """The scheduler history. Raises ValueError when there is none."""
        if self.text:
            return read_workload(self.text, self.name)
        if self.origin is Origin.SCENARIOS:
            made = scenario(self.name)
        else:
            made = workload_of(_SERIES[self.origin], int(self.name.rpartition(":")[2]))
        return turned_workload(made) if is_turned(self.describe()) else made

    def history(self, abilities: Abilities) -> History:
        """The history of a manager, adapted to the release unless it is written out.

        Raises ValueError when there is no such history.
        """
        match self.origin:
            case origin if origin in _OF_SCHEDULERS:
                raise ValueError(f"the {self.describe()} is none of a manager")
            case Origin.WRITTEN:
                return read(self.text, self.name)
            case Origin.CORPUS:
                return possible(read(self.text, self.name), abilities)
            case Origin.GENERATED:
                made = history(self.name, abilities.registers_tails)
            case Origin.FINE_GENERATED:
                made = fine_history(self.name)
            case origin:
                made = one_of(_SERIES[origin], int(self.name.partition(".")[0]))
        made = turned(made) if is_turned(self.describe()) else made
        variant = made.engine.variant or self._variant
        made = replace(made, engine=replace(made.engine, variant=variant))
        return possible(made, abilities)

    @property
    def _variant(self) -> int:
        """Another for each history of an origin, whichever are played."""
        return crc32(self.name.encode()) % _VARIANTS


@cache
def _is_fine(text: str) -> bool:
    """Whether it is a history of a manager whose hits may end inside blocks."""
    if is_workload(text):
        return False
    engine = read(text).engine
    return is_fine_grained(engine.groups, engine.hash_block_size)


_VARIANTS = 1_000


class _Some(NamedTuple):
    """How many histories of an origin each profile replays, from the first; None for all.

    The quick profile has one in ``every`` of these.
    """

    quick: int | None = None
    default: int | None = None
    thorough: int | None = None
    every: int = 1


_REPLAYED = {
    Origin.GENERATED: _Some(15, 150, 6_800),
    Origin.FAMILY: _Some(every=4),
    Origin.MODULES: _Some(every=4),
    Origin.SITUATION: _Some(every=10),  # they are long
    Origin.EDGE: _Some(every=4),
    Origin.TWINS: _Some(every=4),
    Origin.CONNECTION: _Some(every=4),
    Origin.UNCACHED: _Some(every=4),
    # Models, and then mixes of layers.
    Origin.LAYERS: _Some(86, 162, every=3),
    Origin.SPREAD: _Some(6, 48),
    # Each feature comes first as often as each other.
    Origin.SCENARIOS: _Some(2 * len(FEATURES), 20 * len(FEATURES), 600 * len(FEATURES)),
    Origin.FINE_SITUATION: _Some(every=10),
    Origin.FINE: _Some(28, 112),  # the first are the most revealing
    Origin.FINE_GENERATED: _Some(6, 40, 2_300),
    Origin.FINE_TWINS: _Some(2, 28),
}
"""What profiles replay beside the corpus, in turn."""
_OFFLOADS = _Some(8, 80, 500)
"""How many scenarios there are of each way to offload."""
_OFFLOADED_RARELY = "two connectors", "little room", "reads fail", "answers later", "lazily"
"""Kinds that these have in turn."""
_BESIDE_OFFLOADS = (
    "states",
    "windows, drafts",
    "hits inside blocks, asked twice",
    "states, drafts",
    "windows, few blocks",
    "hits inside blocks, draft head, asked twice",
    "block sizes, drafts",
    "windows and states, planned ahead, drafts",
    "windows, resets",
    "two windows, drafts",
    "windows, stops, priorities",
)
"""What those of them have in turn that scenarios of each feature have rarely."""
_COPIED_MEANWHILE = _Some(2, 12, 200)
"""How many scenarios there are of each kind that goes on with other things during copies."""
_MEANWHILE = (
    "preempting",
    "preempting, states",
    "preempting, windows, drafts",
    "preempting, resets",
    "preempting, gives up, planned ahead",
    "short steps, windows",
    "short steps, hits inside blocks, asked twice",
    "sampled too, drafts",
    "sampled too, windows, planned ahead",
    "writes fail",
    "writes fail, windows",
)
"""These kinds, and what stores write of outputs, or fail to write."""
_LAST_TOKENS = _Some(2, 12, 200)
"""How many scenarios have a request of which one token is left to compute, near the length."""
_BESIDE_LAST_TOKENS = "hits inside blocks", "windows", "states", "planned ahead"
"""What those have in turn."""
_STATES = _Some(2, 16, 200)
"""How many scenarios have states with the second model runner, which says where it finds them."""
_BESIDE_STATES = "states", "states, drafts", "states, draft head, few blocks", "states, gives up"
"""What those have in turn."""
_GIVING_WAY = _Some(3, 15, 200)
"""How many scenarios have requests that are preempted in the step that schedules them, or in that
after which they are sent."""
_WAYS = "gives way", "hands over, planned ahead", "gives way, drafts"
"""What those have in turn."""
_EACH_TOGETHER = _Some(1, 4, 100)
"""How many scenarios there are of each of some kinds that say little one by one."""
TOGETHER = (
    "gives up loads, few blocks",
    "gives up loads, few blocks, planned ahead",
    "prompts give way, drafts",
    "prompts give way, images",
    "images, images moved, few blocks",
    "images, drafts, planned ahead",
    "grammars, drafts, planned ahead",
    "windows, connector, planned ahead, gives up",
    "host pool, planned ahead, few blocks, gives up",
    "no prefix caching, connector, grows",
    "loads beside prompts",
    "loads beside prompts, drafts, planned ahead",
)
"""These kinds."""
_RARE_PAIRS = (
    "embeddings, offloads, resets, salts, windows and states",
    "asks for more, follow-up, host pool, watermark, whole prompts",
    "adapters, chunks, pauses, reset before a request, salts",
    "asks for more, pauses, skips reading, whole prompts, windows and states",
    "embeddings, precisions, two windows, watermark",
    "context parallel, follow-up, salts",
    "embeddings, hits inside blocks, outside the cache",
    "embeddings, host pool, salts",
    "no prefix caching, skips reading",
    "resets, retention",
)
"""What scenarios of each feature have beside each other in no default profile."""
_CORPUS = _Some(quick=80)
"""The first add most."""
_FINE = (Origin.FINE_SITUATION, Origin.FINE, Origin.FINE_GENERATED, Origin.FINE_TWINS)
"""Histories with hits inside blocks."""


def distilled(histories: Iterable[tuple[str, str]], fine: bool) -> Iterator[Play]:
    """The distilled histories, by name, that a target plays; ``fine`` as for `plays`."""
    for name, text in histories:
        if fine or not _is_fine(text):
            yield Play(Origin.CORPUS, name, text)


def plays(profile: Profile, fine: bool, seed: str = "1") -> Iterator[Play]:
    """What a profile replays besides the ledger's histories.

    The corpus, the series, and generated ones. ``fine`` is whether hits may end inside blocks.
    ``seed`` is what those that are generated are generated from.
    """
    yield from distilled(islice(corpus().items(), getattr(_CORPUS, profile)), fine)
    for origin, some in _REPLAYED.items():
        if origin in _FINE and not fine:
            continue
        most = getattr(some, profile)
        for number in range(
            0,
            num_of(_SERIES[origin]) if most is None else most,
            some.every if profile is Profile.QUICK else 1,
        ):
            match origin:
                case Origin.FAMILY:
                    yield Play(origin, f"{number}.{number}")
                case Origin.MODULES:
                    engine = one_of("modules", number).engine
                    if fine or not is_fine_grained(engine.groups, engine.hash_block_size):
                        yield Play(origin, str(number))
                case Origin.LAYERS | Origin.SPREAD:
                    yield Play(origin, f"1:{number}")
                case _:
                    yield Play(origin, str(number) if origin in _SERIES else f"{seed}:{number}")
        if origin is Origin.SCENARIOS:
            place = [each.name for each in FEATURES].index("offloads")
            for turn in range(getattr(_OFFLOADS, profile)):
                beside = _BESIDE_OFFLOADS[turn % len(_BESIDE_OFFLOADS)]
                number = place + turn * len(FEATURES)
                rare = _OFFLOADED_RARELY[turn % len(_OFFLOADED_RARELY)]
                hows = "offloads", "store", "umbp", "in chunks", "in blocks", "evicting"
                for how in (*hows, rare):
                    yield Play(origin, f"{seed}:{number} with {how}, {beside}")
            for turn in range(getattr(_COPIED_MEANWHILE, profile)):
                for each in _MEANWHILE:
                    yield Play(origin, f"{seed}:{turn} with {each}")
            for turn in range(getattr(_LAST_TOKENS, profile)):
                beside = _BESIDE_LAST_TOKENS[turn % len(_BESIDE_LAST_TOKENS)]
                yield Play(origin, f"{seed}:{turn} with {beside}, one token left")
            for turn in range(getattr(_STATES, profile)):
                beside = _BESIDE_STATES[turn % len(_BESIDE_STATES)]
                yield Play(origin, f"{seed}:{turn} with {beside}, second runner")
            for turn in range(getattr(_GIVING_WAY, profile)):
                yield Play(origin, f"{seed}:{turn} with {_WAYS[turn % len(_WAYS)]}")
            for turn in range(getattr(_EACH_TOGETHER, profile)):
                for each in TOGETHER:
                    yield Play(origin, f"{seed}:{turn} with {each}")
            for turn, pairs in enumerate(() if profile is Profile.QUICK else _RARE_PAIRS):
                yield Play(origin, f"{seed}:{turn} with {pairs}")
