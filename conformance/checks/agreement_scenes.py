"""What the check of agreement plays: computed requests, later ones, and the expected hits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from hitproof.conformance.histories.schema import EngineConfiguration, History, RequestInput
from hitproof.conformance.scope.layouts import Layout, without_flags
from hitproof.conformance.subject.registering import ServingSubject
from hitproof.spec.groups import Group, geometry
from hitproof.spec.hits import required_run, valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.releases.sequential import longest_joint_hit
from hitproof.spec.retention import replay_boundary

_FRESH = 1_000
PRODUCER = "a"
"""The computed request."""

Blocks = frozenset[tuple[int, int]]
"""Blocks of the computed request, by group and position."""


@dataclass(frozen=True)
class Scene:
    """A layout under one retention mode, as the subject's release treats it."""

    subject: ServingSubject
    layout: Layout
    mode: str
    known: dict[tuple[int, Blocks], int]
    """The hits of dense caching, by tokens and state."""

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups as lookup treats them."""
        return self.treated.shared

    @cached_property
    def treated(self) -> Layout:
        """The layout with the flags that decide which groups drop a block."""
        drops_all = self.subject.eagle_groups is EagleGroups.ALL
        return without_flags(self.layout) if drops_all else self.layout

    @cached_property
    def policy(self) -> LookaheadHorizon:
        """The lookahead horizon; one group alone never peeks past the cap."""
        alone = len(self.layout.groups) == 1
        return LookaheadHorizon.CAPPED if alone else self.subject.lookahead_horizon

    @property
    def interval(self) -> int | None:
        """The retention interval in tokens."""
        return {"dense": None, "interval": 2 * self.layout.alignment, "latest": 0}[self.mode]

    @cached_property
    def shapes(self) -> list[tuple[int, Group]]:
        """The groups that hits require something of, with their indices."""
        return [(n, group) for n, group in enumerate(self.groups) if group.prefix_cacheable]

    def runs(self, length: int) -> Iterator[Blocks]:
        """The required run of a hit of ``length`` tokens, of each group."""
        for index, group in self.shapes:
            shape = geometry(group, self.layout.alignment)
            run = required_run(shape, length // group.block_size)
            yield frozenset((index, block) for block in run)

    def due(self, num_tokens: int, state: Blocks, promised: Sequence[int]) -> tuple[int, int]:
        """The least and the most tokens that a request may hit when ``state`` is cached of it."""

        def cached(index: int, block: int) -> bool:
            return (index, block) in state

        align, policy = self.layout.alignment, self.policy
        key = num_tokens, state
        if key not in self.known:
            self.known[key] = longest_joint_hit(self.groups, align, num_tokens, policy, cached)
        best = self.known[key]
        if self.interval is None or best == 0:
            return best, best
        limits = num_tokens - 1, horizon(policy, num_tokens)
        valid = partial(valid_hit, self.groups, align, cap=limits[0], horizon=limits[1])
        return next((b for b in promised if b <= best and valid(b, cached=cached)), 0), best

    def engine(self, num_tokens: int, num_requests: int) -> EngineConfiguration:
        """The engine, with a pool in which nothing is evicted unasked."""
        blocks = sum(num_tokens // group.block_size + 3 for group in self.layout.groups)
        return EngineConfiguration(
            groups=self.layout.groups,
            num_gpu_blocks=1 + blocks * (1 + num_requests // 8),
            hash_block_size=self.layout.hash_block_size,
            max_model_len=num_tokens,
            use_eagle=self.layout.use_eagle,
            retention_interval=self.interval,
            variant=self.layout.variant,
        )


@dataclass(frozen=True)
class Later:
    """A later request: how much of the computed one it shares, and its name."""

    name: str
    who: str
    shared: int
    request: RequestInput

    @property
    def num_tokens(self) -> int:
        """Its tokens."""
        return len(self.request.prompt)


@dataclass(frozen=True)
class Computed:
    """A request that was computed: its prompt, its output, and where its chunks end."""

    scene: Scene
    prompt: int
    output: int
    chunk: int
    every_set: bool
    """Whether every set of required runs is evicted."""

    @property
    def tokens(self) -> RequestInput:
        """The request."""
        end = self.prompt + self.output
        return RequestInput(tuple(range(self.prompt)), tuple(range(self.prompt, end)))

    @cached_property
    def later(self) -> tuple[Later, ...]:
        """The later requests."""
        return tuple(self._later())

    def _later(self) -> Iterator[Later]:
        align, known = self.scene.layout.alignment, self.prompt + self.output
        more = align + 1

        def request(who: str, shared: int, fresh: int) -> Later:
            tokens = (*range(shared), *range(_FRESH, _FRESH + fresh))
            return Later(f"{who} {shared}", who, shared, RequestInput(tokens))

        yield request("resend", self.prompt, 0)
        yield request("extension", self.prompt, more)
        if self.output:
            yield request("turn", known, more)
        for shared in range(1, self.prompt):
            yield request("sibling", shared, more)

    @property
    def history(self) -> History:
        """The history without its steps."""
        later = {each.name: each.request for each in self.later}
        longest = max(len(request.prompt) for request in later.values())
        engine = self.scene.engine(max(longest, self.prompt + self.output) + 1, len(later))
        return History(engine, {PRODUCER: self.tokens, **later}, ())

    @cached_property
    def promised(self) -> list[int]:
        """The boundaries that sparse retention promises for its prompt, in tokens."""
        scene, align, prompt = self.scene, self.scene.layout.alignment, self.prompt
        lookahead = scene.treated.lookahead_tokens
        limit = horizon(scene.policy, prompt)
        boundaries = [
            replay_boundary(prompt - 1, limit, lookahead, align),
            replay_boundary(prompt, prompt, lookahead, align),
        ]
        if scene.interval:
            boundaries += range(scene.interval, prompt + 1, scene.interval)
        return sorted({boundary for boundary in boundaries if boundary > 0}, reverse=True)
