"""Histories that may show the evidence of a finding on a whole manager.

One request computes a prompt, blocks that are not in the cache state are evicted, and another
request is looked up. `conformance.reproduce.reproduction` plays them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hitproof.conformance.findings.evidence import (
    LATER,
    AdmissionEvidence,
    AgreementEvidence,
    ConnectorEvidence,
    Evidence,
    FineLookupEvidence,
    HashEvidence,
    LookupEvidence,
    MaskEvidence,
    PoolEvidence,
    RetentionEvidence,
    SharedPrefixEvidence,
    TierLookupEvidence,
    TierMaskEvidence,
)
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.schema import (
    Embeddings,
    EngineConfiguration,
    Evict,
    Finish,
    History,
    Image,
    Lookup,
    RequestInput,
    Schedule,
    Step,
)
from hitproof.conformance.playing.expectations import (
    Expected,
    LocalPrefix,
    Registered,
    Returns,
    Served,
    TableLengths,
)
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, without_flags
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.hashing import Prompt
from hitproof.spec.claims import Divergence
from hitproof.spec.connector import longest_local_prefix
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.mask import in_mask, next_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.releases.sequential import longest_joint_hit

_FRESH = 1_000_000
"""Token ids from here on occur in no shared prefix."""


@dataclass(frozen=True)
class Rules:
    """The policies of a subject's release for lookups with several groups."""

    lookahead_horizon: LookaheadHorizon
    eagle_groups: EagleGroups


class OutOfReach(Exception):
    """No history can show the evidence; the message says why."""


@dataclass(frozen=True)
class Attempt:
    """A history that may show the evidence.

    ``cached`` has for each group the blocks of the first request that must be cached at the end;
    None where the subject decides that.
    """

    history: History
    expected: Expected
    cached: tuple[frozenset[int], ...] | None = None


def attempts(evidence: Evidence, rules: Rules) -> Iterator[Attempt]:
    """The histories, the most likely first. Raises `OutOfReach` when there can be none."""
    for attempt in _attempts(evidence, rules):
        engine = replace(attempt.history.engine, variant=evidence.configuration.variant)
        yield replace(attempt, history=replace(attempt.history, engine=engine))


def _attempts(evidence: Evidence, rules: Rules) -> Iterator[Attempt]:
    match evidence:
        case HashEvidence():
            yield from _sharing(evidence)
        case PoolEvidence():
            raise OutOfReach(refusal("demonstration-pool"))
        case AdmissionEvidence():
            raise OutOfReach(refusal("demonstration-admission"))
        case TierLookupEvidence() | TierMaskEvidence():
            raise OutOfReach(refusal("demonstration-tier"))
        case FineLookupEvidence():
            raise OutOfReach(refusal("demonstration-fine-lookup"))
        case AgreementEvidence(history=history, spec_hit=due, or_more=or_more):
            crash = evidence.signature.divergence == Divergence.CRASH
            yield Attempt(history, Returns() if crash else Served(LATER, due, or_more))
        case LookupEvidence(configuration=Configuration() as one):
            for engine in _engines(one, rules):
                own = dict.fromkeys(range(-one.members, 0), evidence.cached[0])
                yield from _lookups(evidence, engine, own)
        case LookupEvidence(configuration=Layout() as layout):
            engine = _Engine(layout.groups, layout.use_eagle, layout.hash_block_size, rules)
            yield from _lookups(evidence, engine, _of_groups(layout, evidence.cached))
        case SharedPrefixEvidence():
            yield from _junction(evidence, rules)
        case RetentionEvidence():
            yield from _retention(evidence, rules)
        case MaskEvidence():
            for engine in _engines(evidence.configuration, rules):
                yield from _registration(evidence, engine)
        case _:
            raise TypeError(f"no history for {evidence}")


@dataclass(frozen=True)
class _Engine:
    """The groups side by side in the manager."""

    groups: tuple[Group, ...]
    use_eagle: bool
    hash_block_size: int
    rules: Rules
    retention: int | None = None

    @property
    def layout(self) -> Layout:
        """The groups as lookup treats them."""
        layout = Layout(self.groups, 1, self.use_eagle, self.hash_block_size)
        drops_all = self.use_eagle and self.rules.eagle_groups is EagleGroups.ALL
        return without_flags(layout) if drops_all else layout

    @property
    def mamba_block_size(self) -> int | None:
        """The block size at which chunks end for Mamba's sake."""
        return max((g.block_size for g in self.groups if g.kind is GroupKind.MAMBA), default=None)

    def hit(self, num_tokens: int, cached: Sequence[frozenset[int]]) -> int:
        """The hit that the spec expects for a request of ``num_tokens`` tokens."""
        several = len(self.groups) > 1
        return longest_joint_hit(
            self.layout.shared,
            self.layout.alignment,
            num_tokens,
            self.rules.lookahead_horizon if several else LookaheadHorizon.CAPPED,
            lambda group, block: block in cached[group],
        )

    def local_prefix(self, num_tokens: int, cached: Sequence[frozenset[int]]) -> tuple[int, bool]:
        """The local prefix that a connector must get for it, and whether that lacks a state."""
        length = longest_local_prefix(
            self.layout.shared,
            self.layout.alignment,
            num_tokens - 1,
            horizon(self.rules.lookahead_horizon, num_tokens),
            lambda group, block: block in cached[group],
        )
        return length, self.hit(num_tokens, cached) < length

    def full_blocks(self, num_tokens: int) -> list[frozenset[int]]:
        """Every full block of ``num_tokens`` tokens, for each group that uses prefix caching."""
        return [
            frozenset(range(num_tokens // group.block_size if group.prefix_cacheable else 0))
            for group in self.groups
        ]

    def chunk_ends(self, num_tokens: int, chunks: Sequence[int] = ()) -> list[int]:
        """Where the chunks of a prompt end; a Mamba state is kept at the end of one only."""
        size = self.mamba_block_size
        ends = set(chunks) if size is None else set(range(size, num_tokens, size))
        return sorted({end for end in ends if end < num_tokens} | {num_tokens})

    def history(
        self, requests: dict[str, RequestInput], steps: Sequence[Step], about: str = ""
    ) -> History:
        """The history, in a pool that is large enough for all of it."""
        longest = max(len(request.prompt) for request in requests.values())
        blocks = sum(
            len(request.prompt) // group.block_size + 3
            for request in requests.values()
            for group in self.groups
        )
        engine = EngineConfiguration(
            groups=self.groups,
            num_gpu_blocks=1 + blocks,
            hash_block_size=self.hash_block_size,
            max_model_len=longest + 1,
            use_eagle=self.use_eagle,
            retention_interval=self.retention,
        )
        return History(engine, requests, tuple(steps), about)


def _engines(configuration: Configuration, rules: Rules) -> Iterator[_Engine]:
    """The group alone where possible; else with full attention, which gives the alignment."""
    group, unit = configuration.group, configuration.hash_block_size
    drafts = group.eagle and group.kind is not GroupKind.MAMBA
    if configuration.members == 1 and configuration.alignment == group.block_size == unit:
        yield _Engine((replace(group, eagle=drafts),), group.eagle, unit, rules)
    yield _Engine(configuration.layout, group.eagle, unit, rules)


def _of_groups(layout: Layout, cached: tuple[frozenset[int], ...]) -> dict[int, frozenset[int]]:
    """The cache state of each group that takes part in prefix caching."""
    return {
        group: blocks
        for looked_up, blocks in zip(layout.looked_up, cached, strict=True)
        for group in looked_up.group_ids
    }


def _computed(name: str, ends: Sequence[int]) -> Iterator[Schedule]:
    """Compute a request in chunks with the given ends."""
    for start, end in pairwise((0, *ends)):
        yield Schedule(name, end - start)


def _tokens(num_tokens: int, shared: int | None = None, fresh: int = _FRESH) -> RequestInput:
    """A prompt of ``num_tokens`` tokens; the first ``shared`` are the same in every prompt."""
    common = num_tokens if shared is None else shared
    return RequestInput((*range(common), *range(fresh, fresh + num_tokens - common)))


def _lookups(
    evidence: LookupEvidence, engine: _Engine, own: dict[int, frozenset[int]]
) -> Iterator[Attempt]:
    """A lookup on a cache state: blocks that are not in it are evicted when they are computed."""
    align, served = engine.layout.alignment, evidence.max_length
    state = {group % len(engine.groups): blocks for group, blocks in own.items()}
    sizes = [group.block_size for group in engine.groups]
    needed = max((max(state[g], default=-1) + 1) * sizes[g] for g in state)
    later = {more for size in sizes for more in (size, size + 1)} | {2, align, align + 1, 0}
    for num_tokens in dict.fromkeys((served + 1, *(served + more for more in sorted(later)))):
        least = max(num_tokens, needed)
        whole = -(-least // align) * align
        for computed in dict.fromkeys((least, whole, whole + align)) if num_tokens else ():
            full = engine.full_blocks(computed)
            cached = [full[g] & state.get(g, full[g]) for g in range(len(sizes))]
            ends = engine.chunk_ends(computed)
            steps: list[Step] = []
            for (start, end), chunk in zip(pairwise((0, *ends)), _computed("a", ends), strict=True):
                steps.append(chunk)
                # A block may be registered later than it is filled, with its boundary.
                first = start // align * align
                for group, size in enumerate(sizes):
                    blocks = frozenset(range(first // size, end // size)) & full[group]
                    if blocks - cached[group]:
                        unwanted = sorted(blocks - cached[group])
                        steps.append(Evict("a", group, tuple(unwanted)))
            history = engine.history(
                {"a": _tokens(computed), "b": _tokens(num_tokens)}, [*steps, Lookup("b")]
            )
            hit = engine.hit(num_tokens, cached)
            expected: Expected = Served("b", hit)
            if evidence.signature.divergence == Divergence.CRASH:
                expected = Returns()
            elif isinstance(evidence, ConnectorEvidence):
                expected = LocalPrefix("b", *engine.local_prefix(num_tokens, cached))
            elif evidence.spec_hit == evidence.actual_hit:
                expected = TableLengths("b", tuple(map(len, engine.full_blocks(hit))))
            yield Attempt(history, expected, tuple(cached))


def _registration(evidence: MaskEvidence, engine: _Engine) -> Iterator[Attempt]:
    """What dense retention registers: a block too many, or a block that a later request misses."""
    configuration = evidence.configuration
    size, shape = configuration.group.block_size, configuration.shape
    computed, block = configuration.num_blocks * size, evidence.block
    steps: list[Step] = [*_computed("a", engine.chunk_ends(computed, evidence.chunks))]
    request = {"a": _tokens(computed)}
    if block is None:
        yield Attempt(engine.history(request, steps), Returns())
        return
    if not in_mask(shape, block):
        group = len(engine.groups) - 1
        yield Attempt(engine.history(request, steps), Registered("a", group, block, False))
        return
    run = (next_boundary(shape, block) + shape.lookahead) * size
    for shared in dict.fromkeys((min(run, computed), min(run + size, computed), computed)):
        yield _sibling(engine, computed, shared, steps)


def _sibling(
    engine: _Engine, computed: int, shared: int, steps: Sequence[Step], every: int | None = None
) -> Attempt:
    """A request that shares the first tokens of the computed one, and continues differently.

    It hits at least what it would hit if all were cached, rounded down to ``every`` tokens.
    """
    num_tokens = shared + engine.layout.alignment
    hit = engine.hit(num_tokens, engine.full_blocks(shared))
    history = engine.history(
        {"a": _tokens(computed), "b": _tokens(num_tokens, shared)}, [*steps, Lookup("b")]
    )
    promised = hit if every is None else hit // every * every
    return Attempt(history, Served("b", promised, or_more=True))


def _retention(evidence: RetentionEvidence, rules: Rules) -> Iterator[Attempt]:
    """What sparse retention registers: a block too many, or a promised hit that is lost."""
    if evidence.signature.code is Code.INTERVAL_NOT_REFUSED:
        return  # no history has such an engine
    configuration, computed = evidence.configuration, evidence.num_tokens
    group, interval = configuration.group, evidence.interval
    engine = _Engine(
        configuration.layout, group.eagle, configuration.hash_block_size, rules, interval
    )
    steps: list[Step] = [*_computed("a", engine.chunk_ends(computed))]
    request = {"a": _tokens(computed)}
    if evidence.block is None:
        yield Attempt(engine.history(request, steps), Returns())
        return
    if evidence.signature.divergence == Divergence.WASTE:
        yield Attempt(engine.history(request, steps), Registered("a", 1, evidence.block, False))
        return
    resend = engine.hit(computed, engine.full_blocks(computed))
    lookup = [*steps, Lookup("b")]
    attempts = [
        Attempt(
            engine.history({**request, "b": _tokens(computed)}, lookup),
            Served("b", resend, or_more=True),
        ),
        _sibling(engine, computed, computed, steps),
    ]
    if interval:
        shared = min(evidence.decisive_hit + configuration.lookahead_tokens, computed)
        attempts.append(_sibling(engine, computed, shared, steps, interval))
    for attempt in attempts:
        if (
            isinstance(attempt.expected, Served)
            and attempt.expected.tokens == evidence.decisive_hit
        ):
            yield attempt


def _junction(evidence: SharedPrefixEvidence, rules: Rules) -> Iterator[Attempt]:
    """Three prompts in sequence that share a prefix and nothing else."""
    configuration, length = evidence.configuration, evidence.num_tokens
    align = configuration.alignment
    engine = _Engine(
        configuration.layout,
        configuration.group.eagle,
        configuration.hash_block_size,
        rules,
        evidence.interval,
    )
    requests = {
        name: _tokens(length, evidence.shared, _FRESH + number * length)
        for number, name in enumerate("abc")
    }
    steps: list[Step] = []
    for name in "ab":
        steps += [Schedule(name, align) for _ in range(0, length, align)]
        steps.append(Finish(name))
    crash = evidence.signature.divergence == Divergence.CRASH
    expected = Returns() if crash else Served("c", evidence.spec_hit, or_more=True)
    yield Attempt(engine.history(requests, [*steps, Lookup("c")]), expected)


def _sharing(evidence: HashEvidence) -> Iterator[Attempt]:
    """Two requests whose hashes are wrongly equal or wrongly different; the second is looked up."""
    first, second = sorted(evidence.prompts, key=lambda prompt: -prompt.num_generated)
    if "hashes" in dict(evidence.signature.defect.parameters):
        raise OutOfReach(refusal("demonstration-hash-lookahead"))
    size = len(first.tokens) // 3
    group = Group(GroupKind.FULL_ATTENTION, size)
    rules = Rules(LookaheadHorizon.CAPPED, EagleGroups.FLAGGED)
    engine = _Engine((group,), False, size, rules)
    same = 0
    while same < len(first.tokens) and first.agreed(same + 1) == second.agreed(same + 1):
        same += 1
    for ahead in (), (_FRESH,):
        requests = {"a": _request(first), "b": _request(replace(second, num_generated=0), ahead)}
        num_tokens = len(second.tokens) + len(ahead)
        hit = engine.hit(num_tokens, engine.full_blocks(same))
        computed = [Schedule("a")] * (1 + first.num_generated)
        history = engine.history(requests, [*computed, Lookup("b")])
        yield Attempt(history, Served("b", hit))


def _request(prompt: Prompt, more: tuple[int, ...] = ()) -> RequestInput:
    return RequestInput(
        (*prompt.given, *more),
        prompt.generated,
        lora_name=prompt.adapter[0] or None,
        lora_path=prompt.adapter[1] or None,
        cache_salt=prompt.salt or None,
        images=tuple(Image(*image) for image in prompt.images),
        embeddings=tuple(
            Embeddings(place, (value,))
            for place, value in enumerate(prompt.embeddings)
            if not (prompt.is_token_ids and prompt.is_token_ids[place])
        ),
    )
