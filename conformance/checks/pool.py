"""The check of the block pool: what must hold of each block holds after every operation.

Two requests use a small pool in every way that callers may: they take blocks, register them, hit
what is cached, give blocks back one by one and all at once; content is declared invalid and the
cache is reset. All sequences of operations up to a depth are tried, states that differ in names
only merged; then long ones on a larger pool, drawn with fixed seeds. After each operation the
clauses of `spec.pool` are evaluated on what the pool says of itself.

Merging cannot see a fault in what a pool does not show; the long sequences can. In these, blocks
are also unpinned, where the pool can (`conformance.checks.pool_order`).
"""

import random
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Sequence
from functools import partial

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.pool_faults import COUNT, IN_USE, NAMES, NULL, ORDER, contradicts
from hitproof.conformance.checks.pool_model import Operation, World
from hitproof.conformance.findings.evidence import PoolEvidence, smallest
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.pools import PoolSubject
from hitproof.spec.groups import GroupKind

_BLOCKS, _DEPTH = 4, 5
"""The exhaustive part: blocks of the pool, the null block among them, and operations in a row."""
_MANY_BLOCKS, _MANY_STEPS, _SEEDS = 7, 200, range(5)
"""The long sequences: blocks, operations in each, and the seeds of their random choices."""

_Start = Callable[[], World]


def is_judged_once(configuration: Configuration) -> bool:
    """Whether a check of what all groups share runs here: on one configuration of each profile."""
    group = configuration.group
    plain = group.kind is GroupKind.FULL_ATTENTION and not group.eagle
    alone = configuration.members == 1 and not configuration.model
    return plain and alone and configuration.shape.segment == 1 and 1 < group.block_size <= 4


def check_pool(subject: PoolSubject, configuration: Configuration) -> CheckResult:
    """Judge the block pool, which all groups share: most configurations settle nothing."""
    if not is_judged_once(configuration):
        return CheckResult({}, (), 0, 0)
    return finished((IN_USE, COUNT, NULL, NAMES, ORDER), partial(_cases, subject, configuration))


def _cases(subject: PoolSubject, configuration: Configuration) -> Iterator[Case]:
    case = _exhaustive(lambda: World(subject.pool(_BLOCKS)), configuration)
    yield case
    known = {evidence.signature for evidence in case.evidence}
    for seed in _SEEDS:
        case = _long(lambda: World(subject.pool(_MANY_BLOCKS), True), configuration, seed, known)
        yield case
        known |= {evidence.signature for evidence in case.evidence}


def _exhaustive(start: _Start, configuration: Configuration) -> Case:
    """Every sequence of up to `_DEPTH` operations, the shortest first.

    What comes after a divergence is not explored, unless only the order of the queue is wrong:
    after that the other claims are judged as before, and the order is not counted again.
    """
    known: set[tuple[Hashable, bool]] = {(start().canonical(), False)}
    misordered: set[tuple[Operation, ...]] = set()
    contradicted: dict[str, set[Signature]] = {}
    cut = False
    evidence: dict[Signature, PoolEvidence] = {}
    counted: Counter[tuple[Code, Row]] = Counter()
    frontier: list[tuple[Operation, ...]] = [()]
    tried = 0
    for _ in range(_DEPTH):
        reached = []
        for done in frontier:
            for operation in _after(start, done).possible():
                world = _after(start, done)
                violations = world.do(operation)
                tried += 1
                if done in misordered:
                    violations = _but_order(violations)
                if violations:
                    for claim, found_as in contradicts(violations).items():
                        contradicted.setdefault(claim, set()).update(found_as)
                    for violation in violations:
                        counted[violation.signature.code, _row(world, violation)] += 1
                    new = {v.signature for v in violations} - evidence.keys()
                    if new:
                        found = _evidence(start, configuration, (*done, operation))
                        evidence |= {s: e for s, e in found.items() if s in new}
                if _but_order(violations):
                    cut = True
                    continue
                state, after = world.canonical(), bool(violations) or done in misordered
                if known.isdisjoint({(state, False), (state, after)}):
                    known.add((state, after))
                    reached.append((*done, operation))
                    if after:
                        misordered.add(reached[-1])
        frontier = reached
    shown, states = list(evidence.values()), len({state for state, _ in known})
    return Case(tried, states, shown, counted=counted, contradicts=contradicted, cut=cut)


def _but_order(violations: Sequence[Violation]) -> list[Violation]:
    """The violations after which the pool is no longer as callers expect."""
    return [violation for violation in violations if violation.signature.claim != ORDER]


def _row(world: World, violation: Violation) -> Row:
    """What was done, and what the pool is like after it."""
    return *world.steps, *violation.answer


def _long(
    start: _Start, configuration: Configuration, seed: int, known: Container[Signature]
) -> Case:
    """One long sequence; what it breaks is cut down to the operations that it takes."""
    choose, world = random.Random(seed), start()
    done: list[Operation] = []
    found: list[Violation] = []
    counted: Counter[tuple[Code, Row]] = Counter()
    evidence: list[PoolEvidence] = []
    while len(done) < _MANY_STEPS and not _but_order(found):
        done.append(choose.choice(list(world.possible())))
        broken = world.do(done[-1])
        broken = _but_order(broken) if found else broken
        found += broken
        counted.update((v.signature.code, (seed, len(done), *v.answer)) for v in broken)
        if new := [v.signature for v in broken if v.signature not in known]:
            short = _shortened(start, done, new[0])
            evidence += _evidence(start, configuration, short).values()
    cut, also = bool(_but_order(found)), contradicts(found)
    return Case(len(done), 1, evidence, counted=counted, contradicts=also, cut=cut)


def _after(start: _Start, done: Sequence[Operation]) -> World:
    """A new pool on which this was done before."""
    world = start()
    for operation in done:
        world.do(operation, judged=False)
    world.refresh()
    return world


def _shortened(
    start: _Start, done: Sequence[Operation], signature: Signature
) -> tuple[Operation, ...]:
    """The operations without those that the divergence does not need."""
    needed, size = tuple(done), len(done) // 2
    while size:
        position = 0
        while position < len(needed):
            fewer = needed[:position] + needed[position + size :]
            cut = _diverges(start, fewer, signature)
            if cut is None:
                position += size
            else:
                needed = cut
        size //= 2
    return needed


def _diverges(
    start: _Start, operations: Sequence[Operation], signature: Signature
) -> tuple[Operation, ...] | None:
    """The operations up to the first divergence if it is this one, and all were possible."""
    world = start()
    for count, operation in enumerate(operations, 1):
        if operation not in world.possible():
            return None
        broken = {violation.signature for violation in world.do(operation)}
        if broken:
            return tuple(operations[:count]) if signature in broken else None
    return None


def _evidence(
    start: _Start, configuration: Configuration, operations: Sequence[Operation]
) -> dict[Signature, PoolEvidence]:
    """What the last of these operations breaks, replayed."""
    found = [_replay(start, configuration, operations) for _ in range(2)]
    if found[0] != found[1] or not found[0]:
        raise CannotJudge("the pool does not do the same when the same is done again")
    return found[0]


def _replay(
    start: _Start, configuration: Configuration, operations: Sequence[Operation]
) -> dict[Signature, PoolEvidence]:
    world = _after(start, operations[:-1])
    return smallest(
        PoolEvidence(
            signature=violation.signature,
            configuration=configuration,
            spec=violation.spec,
            actual=violation.actual,
            steps=tuple(world.steps),
            picture=world.picture(),
        )
        for violation in world.do(operations[-1])
    )
