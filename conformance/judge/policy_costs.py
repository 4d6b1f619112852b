"""What policies cost: hits that later requests lose because a policy is not at its best value.

Nothing is run but the spec. On a fixed set of layouts a request is served to an empty cache that
registers exactly what is promised (`conformance.judge.promises`) and evicts nothing; then later
requests are looked up, and each hits all that it should (`conformance.judge.judged_lookups`).
This is done under the target's policies, and again with the best value of one of them. A Mamba
state is there at the end of each block, as if every chunk ended with one.

Later requests: a resend of the prompt, an extension of it, the next turn of the conversation, and
siblings, which share a prefix with the prompt; under sparse retention also another sibling after
the first was served. What is retained is varied beside every policy but the default retention:
nothing set, the latest boundary only, an interval.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    Lookup,
    RequestInput,
    Schedule,
    Step,
)
from hitproof.conformance.judge.judged_lookups import LookupJudge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scope.layouts import Layout, hash_unit, is_possible, of_model
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.subject.managers import Hit
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.spec.releases.policies import POLICIES, DefaultRetention, SparseRetention

_PRODUCER = "a"


class Who(StrEnum):
    """What a later request is to the prompt that was served before."""

    RESEND = "resend"
    """The same prompt."""
    EXTENSION = "extension"
    """The prompt and more."""
    NEXT_TURN = "next turn"
    """The prompt, its output and more."""
    SIBLING = "sibling"
    """A prefix of the prompt, and something else."""
    SECOND_SIBLING = "second sibling"
    """The same, after a sibling with that prefix was served, too."""


@dataclass(frozen=True)
class Later:
    """A later request: its kind, and how many tokens it shares and has of its own."""

    who: Who
    shared: int
    own: int

    @property
    def num_tokens(self) -> int:
        """All its tokens."""
        return self.shared + self.own

    def request(self, fresh: int) -> RequestInput:
        """Its tokens; those that it does not share are numbered from ``fresh`` on."""
        return RequestInput((*range(self.shared), *range(fresh, fresh + self.own)))


@dataclass(frozen=True)
class LostHit:
    """A later request that hits less than it would with the best value of a policy.

    Attributes:
        layout: the groups.
        interval: the retention interval in tokens, None for dense retention.
        best_interval: the one beside the best value; another if the policy decides it.
        prompt: tokens of the prompt that was served before.
        later: the later request.
        hit: its hit in tokens.
        best: its hit in tokens with the best value.
    """

    layout: Layout
    interval: int | None
    best_interval: int | None
    prompt: int
    later: Later
    hit: int
    best: int

    @property
    def history(self) -> History:
        """What was served, and the later request's lookup."""
        return history(self.layout, self.interval, self.prompt, self.later)


@dataclass(frozen=True)
class Cost:
    """What one policy costs.

    Attributes:
        policy: its name.
        value: its value.
        best: the best value, against which the cost is counted.
        lost: how many later requests hit less than with the best value.
        hits: how many later requests hit anything with the best value.
        lost_tokens: how many tokens they hit less, all together.
        tokens: how many tokens are hit with the best value, all together.
        gained: how many later requests hit more than with the best value. They may where not all
            that is reachable is kept, since another boundary is then kept for a resend.
        example: the smallest loss, on the layout of a real model if there is one; None if nothing
            is lost.
    """

    policy: str
    value: str
    best: str
    lost: int
    hits: int
    lost_tokens: int
    tokens: int
    gained: int
    example: LostHit | None


def costs(values: Mapping[str, str]) -> dict[str, Cost]:
    """What each policy costs that has a best value and another one in ``values``, by name.

    ``values`` are those of all policies. The others stay as they are, except that hits can end
    inside blocks only where prompts' ends are kept, too: for the hits of the newest releases.
    """
    return {
        name: _cost(name, tuple((each, str(values[each])) for each in POLICIES))
        for name, policy in POLICIES.items()
        if policy.best is not None and values[name] != policy.best
    }


@cache
def _cost(name: str, values: tuple[tuple[str, str], ...]) -> Cost:
    own, best = dict(values), str(POLICIES[name].best)
    better = own | {name: best}
    lost: list[LostHit] = []
    hits = tokens = gained = 0
    for layout in layouts():
        for interval, of_best in _intervals(name, own, better, layout):
            found = later_hits(layout, interval, _judged(own))
            for (prompt, later), due in later_hits(layout, of_best, _judged(better)).items():
                hit = found[prompt, later]
                hits, tokens, gained = hits + (due > 0), tokens + due, gained + (hit > due)
                if hit < due:
                    lost.append(LostHit(layout, interval, of_best, prompt, later, hit, due))
    return Cost(
        name,
        own[name],
        best,
        lost=len(lost),
        hits=hits,
        lost_tokens=sum(each.best - each.hit for each in lost),
        tokens=tokens,
        gained=gained,
        example=min(lost, key=_size, default=None),
    )


def _judged(values: Mapping[str, str]) -> JudgedPolicies:
    if (values["hit_granularity"], values["fine_tail"]) == (HitGranularity.FINE, FineTail.NONE):
        values = {**values, "fine_tail": str(POLICIES["fine_tail"].eras[-1].value)}
    return JudgedPolicies.of(values)


def _size(lost: LostHit) -> tuple[Any, ...]:
    layout, later = lost.layout, lost.later
    retained = -1 if lost.interval is None else lost.interval
    return (
        *(not layout.model, layout, lost.prompt, later.num_tokens),
        *(list(Who).index(later.who), retained),
    )


def _intervals(
    name: str, own: Mapping[str, str], better: Mapping[str, str], layout: Layout
) -> list[tuple[int | None, int | None]]:
    """The retention intervals to judge under, each with the one beside the best value."""
    if name == "default_retention":
        return [(_default(own), _default(better))]
    if own["sparse_retention"] == SparseRetention.NONE:
        return [(None, None)]
    return [(interval, interval) for interval in (None, 0, 2 * layout.alignment)]


def _default(values: Mapping[str, str]) -> int | None:
    return 0 if values["default_retention"] == DefaultRetention.LATEST else None


@cache
def layouts() -> tuple[Layout, ...]:
    """The layouts on which costs are counted: real models, and Mamba with hashes of half a block.

    Each with EAGLE and without, as far as an engine can have that. Equal groups hold equal blocks,
    so one of them is enough.
    """
    full, states = Group(GroupKind.FULL_ATTENTION, 2), Group(GroupKind.MAMBA, 2)
    half = Layout((full, states), 6, False, hash_unit((full, states)) // 2)
    drafting = replace(half, groups=(replace(full, eagle=True), states), use_eagle=True)
    models = (of_model(model, use_eagle) for model in MODELS for use_eagle in (False, True))
    return tuple(
        replace(layout, groups=tuple(dict.fromkeys(layout.groups)))
        for layout in (*filter(is_possible, models), half, drafting)
    )


def _past(layout: Layout) -> set[int]:
    """How far past a boundary prompts and shared prefixes end, in tokens."""
    return {0, layout.lookahead_tokens}


def _later(layout: Layout, prompt: int, known: int) -> Iterator[Later]:
    align = layout.alignment
    yield Later(Who.RESEND, prompt, 0)
    yield Later(Who.EXTENSION, prompt, align + 1)
    yield Later(Who.NEXT_TURN, known, align + 1)
    ends = {end + past for end in range(align, prompt, align) for past in _past(layout)}
    for shared in sorted(end for end in ends if end < prompt):
        # Long enough that no boundary of a sibling's own end lies in what is shared.
        yield Later(Who.SIBLING, shared, 3 * align)
        yield Later(Who.SECOND_SIBLING, shared, 3 * align)


@cache
def later_hits(
    layout: Layout, interval: int | None, policies: JudgedPolicies
) -> dict[tuple[int, Later], int]:
    """What later requests hit, in tokens, each with the prompt that was served before."""
    return {
        (prompt, later): hit
        for prompt in sorted(layout.num_tokens + past for past in _past(layout) | {1})
        for later, hit in _after(layout, interval, policies, prompt)
    }


def _after(
    layout: Layout, interval: int | None, policies: JudgedPolicies, prompt: int
) -> Iterator[tuple[Later, int]]:
    """Later requests after a prompt was served, and what each hits."""
    scene = _scene(layout, prompt)
    cached = _Cache(scene, _engine(layout, interval, scene.requests), policies)
    cached.serve(_PRODUCER)
    for name, later in scene.later.items():
        # Under dense retention another sibling changes nothing: all that is shared is there.
        if later.who is Who.SECOND_SIBLING and interval is not None:
            after = cached.copy()
            after.serve(f"{Who.SIBLING} {later.shared}", later.shared)
            yield later, after.hit(name)
        else:
            yield later, cached.hit(name)


def history(layout: Layout, interval: int | None, prompt: int, later: Later) -> History:
    """A history in which a prompt is served, and the later request looked up."""
    align, scene = layout.alignment, _scene(layout, prompt)
    names = [_PRODUCER, *(name for name, each in scene.later.items() if each == later)]
    if later.who is Who.SECOND_SIBLING:
        names.insert(1, f"{Who.SIBLING} {later.shared}")
    requests = {name: scene.requests[name] for name in names}
    steps: list[Step] = []
    for name in names[:-1]:
        decoded = max(len(requests[name].output) - 1, 0)  # the last token is not computed
        chunks = -(-len(requests[name].prompt) // align)
        steps += [Schedule(name, align)] * (chunks + decoded) + [Finish(name)]
    engine = _engine(layout, interval, requests)
    return History(engine, requests, (*steps, Lookup(names[-1])))


class _Scene(NamedTuple):
    """A prompt with its output, and later requests by name."""

    later: dict[str, Later]
    requests: dict[str, RequestInput]
    prefixes: Prefixes


@cache
def _scene(layout: Layout, prompt: int) -> _Scene:
    known = prompt + _output(layout)
    later = {f"{each.who} {each.shared}": each for each in _later(layout, prompt, known)}
    requests = {_PRODUCER: RequestInput(tuple(range(prompt)), tuple(range(prompt, known)))}
    fresh = known
    for name, each in later.items():
        requests[name] = each.request(fresh)
        fresh += each.own
    return _Scene(later, requests, Prefixes(requests, layout.hash_block_size))


def _output(layout: Layout) -> int:
    """Tokens of the output."""
    return layout.alignment + 1


def _engine(
    layout: Layout, interval: int | None, requests: Mapping[str, RequestInput]
) -> EngineConfiguration:
    """The engine, with a pool in which nothing is evicted."""
    longest = max(len(request.token_ids) for request in requests.values()) + 1
    blocks = sum(longest // group.block_size + 2 for group in layout.groups)
    return EngineConfiguration(
        groups=layout.groups,
        num_gpu_blocks=1 + len(requests) * blocks,
        hash_block_size=layout.hash_block_size,
        max_model_len=longest,
        use_eagle=layout.use_eagle,
        retention_interval=interval,
    )


class _Cache:
    """What is cached where exactly what is promised is registered, and nothing is evicted."""

    def __init__(
        self, scene: _Scene, engine: EngineConfiguration, policies: JudgedPolicies
    ) -> None:
        self._engine = engine
        _, self._requests, self._prefixes = scene
        self._judge = LookupJudge(engine, self._requests, self._prefixes, policies)
        self._cached: dict[tuple[int, Name], tuple[int, ...]] = {}

    def copy(self) -> "_Cache":
        """Another one with the same content."""
        other = copy(self)
        other._cached = dict(self._cached)
        return other

    def hit(self, request: str) -> int:
        """What a request hits with all its prompt, in tokens."""
        return self._judge.due_hit(request, len(self._requests[request].prompt), self._cached)

    def serve(self, request: str, end: int | None = None) -> None:
        """Look a request up, compute all but its last token, and register what is promised.

        What comes after the token ``end``, which no other request shares, may be left out.
        """
        given, promises, hit = self._requests[request], self._judge.promises, self.hit(request)
        answer = Hit(hit, ())
        shared = self._judge.shared(request, len(given.prompt), answer, self._cached)
        last = len(given.token_ids) - 1
        computed = last if end is None else min(end, last)
        for index, group in enumerate(self._engine.groups):
            for block in range(hit // group.block_size, computed // group.block_size):
                if promises.promised(request, index, block, shared):
                    self._register(request, index, (block + 1) * group.block_size)
            for ends in promises.entries_inside(request, index, shared).values():
                if ends.start <= computed:
                    self._register(request, index, ends.start)

    def _register(self, request: str, index: int, end: int) -> None:
        self._cached[index, self._prefixes.name(request, end)] = (1,)
