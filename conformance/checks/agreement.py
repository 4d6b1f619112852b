"""The check of agreement: producer and consumer together, on whole managers.

A request is computed in chunks and registered by the method that a scheduler calls; blocks are
evicted; later requests are looked up. Each must hit what it would if every computed block had been
registered (*dense caching*), or under sparse retention what was promised, and never more. Up to the
layout's bound all lengths and chunkings of the grid are played, each with every later request: a
resend, extensions, requests that share a prefix of any length, and the next turn of a conversation.
Whole required runs are evicted: for the longest request every set of them, for the others one after
the other, from the end.

What is played is beside what is judged: the module has more than 400 lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import LATER, AgreementEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Lookup,
    RequestInput,
    Schedule,
    Step,
)
from hitproof.conformance.playing.player import SKIPPED, Player
from hitproof.conformance.scope.layouts import Layout, without_flags
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.registering import ServingSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.spec.hits import required_run, valid_hit
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.releases.sequential import longest_joint_hit
from hitproof.spec.retention import SPARSE_KINDS, replay_boundary

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


CLAIMS = {
    "dense": "lookup_agrees_under_dense_retention",
    "interval": "lookup_agrees_under_interval_retention",
    "latest": "lookup_agrees_under_latest_retention",
}
"""The claim of each retention mode."""

_SHORT = 4
"""Tokens of requests that are computed in fewer ways."""
_MOST_RUNS = 4
"""How many of the last runs are evicted in every combination."""


def _grid() -> frozenset[tuple[Group, ...]]:
    def full(size: int) -> Group:
        return Group(GroupKind.FULL_ATTENTION, size)

    def sliding(size: int, window: int) -> Group:
        return Group(GroupKind.SLIDING_WINDOW, size, window)

    chunked = Group(GroupKind.CHUNKED_LOCAL, 1, chunk=2)
    mamba = Group(GroupKind.MAMBA, 2)
    alone = full(2), sliding(1, 3), sliding(2, 3), chunked, mamba
    pairs = (
        (full(1), sliding(2, 3)),
        (full(2), sliding(1, 2)),
        (full(2), sliding(1, 3)),
        (full(2), mamba),
        (full(1), chunked),
        (sliding(1, 2), sliding(2, 3)),
    )
    return frozenset((*((group,) for group in alone), *pairs))


_GRID = _grid()


def is_in_grid(layout: Layout) -> bool:
    """Whether the check is about the layout: some with one group of each kind, and some pairs."""
    plain = without_flags(layout).groups
    again = len(plain) == 1 and plain != layout.groups  # a flag says nothing about one group
    kinds = {group.kind for group in plain}
    # vLLM refuses EAGLE beside chunks, and draft layers are no Mamba layers.
    refused = layout.use_eagle and (GroupKind.CHUNKED_LOCAL in kinds or kinds == {GroupKind.MAMBA})
    return plain in _GRID and not (layout.model or refused or again)


def check_agreement(subject: ServingSubject, layout: Layout) -> CheckResult:
    """Judge what later requests hit, in each retention mode.

    Layouts whose groups are not thinned out have dense retention only.
    """
    sparse = any(group.kind in SPARSE_KINDS for group in layout.groups)
    modes = CLAIMS if sparse else ("dense",)
    known: dict[tuple[int, Blocks], int] = {}
    results = [
        finished((CLAIMS[mode],), partial(_cases, Scene(subject, layout, mode, known)))
        for mode in modes
    ]
    return CheckResult(
        statuses={claim: status for result in results for claim, status in result.statuses.items()},
        evidence=tuple(evidence for result in results for evidence in result.evidence),
        paths=sum(result.paths for result in results),
        states=sum(result.states for result in results),
        detail=next((result.detail for result in results if result.detail), ""),
        footprints={
            signature: footprint
            for result in results
            for signature, footprint in result.footprints.items()
        },
        refuting={claim: found for result in results for claim, found in result.refuting.items()},
    )


def _cases(scene: Scene) -> Iterator[Case]:
    layout = scene.layout
    if is_fine_grained(layout.groups, layout.hash_block_size):
        raise CannotJudge("hits that end inside blocks are not judged here")
    bound, align = layout.num_tokens, layout.alignment
    played = [(bound, align), (bound - 1, align + 1)]
    if bound > _SHORT:
        played += [(bound, bound), (bound - align, align + 1)]
    for number, (prompt, chunk) in enumerate(played):
        yield _case(Computed(scene, prompt, 0 if number == 0 else 1 + align, chunk, number == 0))


def _case(computed: Computed) -> Case:
    """One computed request, every state that evictions leave of it, and every later request."""
    found: list[AgreementEvidence] = []
    lookups, left = 0, None
    while left is None or left:
        run = _Run(computed)
        try:
            run.compute()
            if left is None:
                left = dict.fromkeys(_evictions(computed, run.dense))
            for state in list(left):
                if run.gone <= state:
                    del left[state]
                    run.evict(state)
                    for later in computed.later:
                        lookups += 1
                        found += run.judged(later)
        except CannotJudge:
            raise
        except Exception as error:
            found.append(run.crash(crash_of(error)))
            break
    return Case(max(lookups, 1), max(lookups, 1), found)


def _evictions(computed: Computed, dense: Blocks) -> Iterator[Blocks]:
    """What is evicted, in the order in which one manager can go through it, as far as it can."""
    layout = computed.scene.layout
    ends = range(layout.alignment, layout.num_tokens + 1, layout.alignment)
    runs = [[run & dense for run in computed.scene.runs(end)] for end in ends]
    whole = [frozenset[tuple[int, int]]().union(*of_groups) for of_groups in runs]
    states: set[Blocks] = {frozenset()}
    if computed.every_set:
        last = whole[-_MOST_RUNS:]
        for count in range(1, len(last) + 1):
            states |= {frozenset().union(*some) for some in combinations(last, count)}
        states |= {run for of_groups in runs for run in of_groups}
    else:
        states |= {frozenset().union(*whole[start:]) for start in range(len(whole))}
    yield from sorted(states, key=lambda state: (len(state), sorted(state)))


class _Run:
    """A manager on which the request is computed, and what has happened to it."""

    def __init__(self, computed: Computed) -> None:
        self._computed = computed
        self._history = computed.history
        self._steps: list[Step] = []
        self._ends: set[int] = set()
        self.gone: Blocks = frozenset()
        self._player: Player | None = None

    def _play(self, step: Step) -> str:
        self._steps.append(step)
        if self._player is None:
            manager = self._computed.scene.subject.manager(self._history.engine)
            self._player = Player(self._history, manager)
        return self._player.play(step)

    def compute(self) -> None:
        """Compute and register the request, chunk by chunk, and free it."""
        for _ in range(self._computed.prompt + self._computed.output):
            deviation = self._play(Schedule(PRODUCER, self._computed.chunk))
            if "no space" in deviation:
                raise CannotJudge("no blocks are free in a pool that has them")
            if deviation.startswith((SKIPPED, "preempted")):
                break
            assert self._player is not None
            self._ends.add(self._player.num_computed_tokens(PRODUCER))
        self._play(Finish(PRODUCER))

    @property
    def dense(self) -> Blocks:
        """The blocks that were computed; of a Mamba group those whose state a chunk left behind."""
        scene, last = self._computed.scene, max(self._ends)
        return frozenset(
            (index, block)
            for index, group in scene.shapes
            for block in range(last // group.block_size)
            if group.kind is not GroupKind.MAMBA
            or scene.subject.keeps_every_state
            or (block + 1) * group.block_size in self._ends
        )

    def evict(self, state: Blocks) -> None:
        """Evict further blocks, so that those of ``state`` are gone."""
        for index, _ in self._computed.scene.shapes:
            more = sorted(block for of, block in state - self.gone if of == index)
            if more:
                self._play(Evict(PRODUCER, index, tuple(more)))
        self.gone = state

    def judged(self, later: Later) -> Iterator[AgreementEvidence]:
        """Look a later request up, and compare the hit with the expected one."""
        scene, length = self._computed.scene, later.num_tokens
        self._play(Lookup(later.name))
        self._steps.pop()
        assert self._player is not None
        hit = self._player.hits[later.name].length
        sizes = dict(scene.shapes)
        state = frozenset(
            (index, block)
            for index, block in self.dense - self.gone
            if (block + 1) * sizes[index].block_size <= later.shared
        )

        due, best = scene.due(length, state, self._computed.promised)
        if not due <= hit <= best:
            yield self._evidence(later, state, due if hit < due else best, hit)

    def _evidence(self, later: Later, state: Blocks, due: int, hit: int) -> AgreementEvidence:
        scene = self._computed.scene
        short = hit < due
        if short:  # all else that dense caching would have does not matter
            state &= frozenset().union(*scene.runs(due))
        code = Code.AGREED_HIT_TOO_SHORT if short else Code.AGREED_HIT_TOO_LONG
        return AgreementEvidence(
            signature=self._signature(
                Divergence.LOST_HIT if short else Divergence.UNSOUND, Defect(code)
            ),
            configuration=scene.layout,
            spec=f"the later request hits {in_tokens(due)}",
            actual=f"it hits {in_tokens(hit)}",
            cached=tuple(
                frozenset(block for index, block in state if index == looked_up.group_ids[0])
                for looked_up in scene.layout.looked_up
            ),
            max_length=later.num_tokens - 1,
            spec_hit=due,
            actual_hit=hit,
            history=self._shown(later),
            or_more=short and scene.interval is not None,
        )

    def crash(self, error: Exception) -> AgreementEvidence:
        """Evidence of an exception at the last step."""
        scene = self._computed.scene
        raised = crash_defect(error)
        return AgreementEvidence(
            signature=self._signature(Divergence.CRASH, raised),
            configuration=scene.layout,
            spec="the request is computed, and later ones are looked up",
            actual=f"raises {error!r}",
            cached=tuple(frozenset() for _ in scene.layout.looked_up),
            max_length=self._computed.prompt - 1,
            spec_hit=0,
            actual_hit=None,
            history=self._shown(None),
            or_more=False,
        )

    def _signature(self, divergence: Divergence, defect: Defect) -> Signature:
        scene = self._computed.scene
        return Signature(
            CLAIMS[scene.mode], divergence, scene.layout.kinds, scene.treated.drops_block, defect
        )

    def _shown(self, later: Later | None) -> History:
        """The history as far as it went, with the later request that shows the divergence."""
        requests, steps = {PRODUCER: self._computed.tokens}, list(self._steps)
        if later is not None:
            requests[LATER] = later.request
            steps.append(Lookup(LATER))
        elif isinstance(last := steps[-1], Lookup):
            requests[LATER] = self._history.requests[last.request]
            steps[-1] = Lookup(LATER)
        return replace(self._history, requests=requests, steps=tuple(steps))
