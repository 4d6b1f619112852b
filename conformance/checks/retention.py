"""The check of retention: the producer keeps the blocks of every hit that it promises.

It judges the real coordinator's ``cache_blocks`` on prompts of many lengths, each with the
latest-boundary-only policy and with an interval of two alignments. An interval that does not fall
on boundaries must be refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import RetentionEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import ROLES, block_role
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.registering import RetentionSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import BlockGeometry
from hitproof.spec.hits import in_required_run, required_run
from hitproof.spec.mask import next_boundary
from hitproof.spec.retention import (
    SPARSE_KINDS,
    hit_instead,
    in_retained_mask,
    serves_follow_ups,
    sibling_boundary,
)

_REPLAYS = "retention_keeps_resends_and_extensions"
_SIBLINGS = "retention_keeps_siblings"
_ONLY = "retention_keeps_only_promised_blocks"


def check_retention(subject: RetentionSubject, configuration: Configuration) -> CheckResult:
    """Judge what the producer keeps of prompts that end at each distance from a boundary.

    Kinds that retention does not thin out settle nothing, and no claim is judged on them. Mamba
    states are taken to exist at every block edge: the prompt was computed block by block.
    """
    if configuration.group.kind not in SPARSE_KINDS:
        return CheckResult({}, (), 0, 0)
    claims = (_REPLAYS, _SIBLINGS, _ONLY)
    return finished(claims, partial(_cases, subject, configuration))


def _cases(subject: RetentionSubject, configuration: Configuration) -> Iterator[Case]:
    size, segment = configuration.group.block_size, configuration.shape.segment
    bound = configuration.num_blocks
    near = range(segment + 1) if segment <= 4 else (0, 1, 2, segment - 1, segment)
    # Prompts that end near the bound, near the first boundary and near the second.
    counts = {end - distance for end in (bound, 2 * segment + 1) for distance in near}
    counts |= {1, segment, segment + 1}
    lengths = {blocks * size + more for blocks in counts for more in (0, 1)}
    first: tuple[int, int, Sequence[bool]] | None = None
    for interval in (0, 2 * configuration.alignment):
        for num_tokens in sorted(n for n in lengths if 0 < n <= bound * size):
            try:
                registered = subject.retained(configuration, num_tokens, interval)
            except Exception as error:
                crash = _crash(configuration, num_tokens, interval, crash_of(error))
                siblings = {_SIBLINGS: {crash.signature}} if interval else {}
                yield Case(1, 1, [crash], contradicts=siblings)
                continue
            if len(registered) != num_tokens // size:
                raise CannotJudge(f"not all of {num_tokens // size} blocks are accounted for")
            evidence = list(_evidence(subject, configuration, num_tokens, interval, registered))
            yield Case(1, 1, evidence, contradicts=_contradicts(subject, evidence))
            first = first or (num_tokens, interval, registered)
    if first is not None and subject.retained(configuration, *first[:2]) != first[2]:
        raise CannotJudge("asked again, the producer retains other blocks: it keeps state")
    yield _refusal(subject, configuration)


def _refusal(subject: RetentionSubject, configuration: Configuration) -> Case:
    """Whether an interval that `check_interval` rejects is refused."""
    align, num_tokens = configuration.alignment, configuration.group.block_size
    interval = 2 * align + 1 if align > 1 else -1
    try:
        registered = subject.retained(configuration, num_tokens, interval)
    except Exception as error:
        crash = crash_of(error)
        refused = isinstance(crash, (ValueError, AssertionError))
        return Case(1, 1, [] if refused else [_crash(configuration, num_tokens, interval, crash)])
    kind, drops = configuration.group.kind, configuration.lookahead_tokens > 0
    defect = Defect(Code.INTERVAL_NOT_REFUSED)
    accepted = RetentionEvidence(
        signature=Signature(_SIBLINGS, Divergence.LOST_HIT, kind, drops, defect),
        configuration=configuration,
        num_tokens=num_tokens,
        interval=interval,
        registered=frozenset(i for i, held in enumerate(registered) if held),
        block=None,
        decisive_hit=0,
        spec=f"an interval of {interval} is refused: hits end at multiples of {in_tokens(align)}",
        actual="it is accepted",
    )
    return Case(1, 1, [accepted])


def _evidence(
    subject: RetentionSubject,
    configuration: Configuration,
    num_tokens: int,
    interval: int,
    registered: Sequence[bool],
) -> Iterator[RetentionEvidence]:
    shape, size = configuration.shape, configuration.group.block_size
    resend, extension = configuration.replays(num_tokens, subject.lookahead_horizon)
    every = interval // size or None
    policy = _policy(interval)
    for block, held in enumerate(registered):
        promised, sibling = promised_to(shape, block, resend, extension, every)
        kept = bool(in_retained_mask(shape, block, list(promised.values())))
        if kept == held or (held and in_retained_mask(shape, block, [sibling])):
            continue
        ends = [*promised.values(), sibling]
        if held and can_be_used(shape, block, extension, len(registered), ends, _holds(registered)):
            continue
        yield _divergence(configuration, num_tokens, interval, policy, registered, block, promised)


def _contradicts(
    subject: RetentionSubject, evidence: Sequence[RetentionEvidence]
) -> dict[str, set[Signature]]:
    """The claims that missing blocks contradict: one block may be promised to several."""
    contradicts: dict[str, set[Signature]] = {}
    for each in evidence:
        if each.block is not None and each.block not in each.registered:
            configuration, shape = each.configuration, each.configuration.shape
            every = each.interval // configuration.group.block_size or None
            replays = configuration.replays(each.num_tokens, subject.lookahead_horizon)
            promised, _ = promised_to(shape, each.block, *replays, every)
            for name in needing(shape, each.block, promised):
                claim = _SIBLINGS if name == "sibling" else _REPLAYS
                contradicts.setdefault(claim, set()).add(each.signature)
    return contradicts


def needing(shape: BlockGeometry, block: int, promised: Mapping[str, int]) -> list[str]:
    """Whose promised hits need the block."""
    return [
        name
        for name, boundary in promised.items()
        if boundary >= 1 and in_required_run(shape, block, boundary)
    ]


def _holds(registered: Sequence[bool]) -> Callable[[int], bool]:
    return lambda block: block < len(registered) and registered[block]


def promised_to(
    shape: BlockGeometry, block: int, resend: int, extension: int, every: int | None
) -> tuple[dict[str, int], int]:
    """The promised boundaries by the kind of later request, and the deciding sibling boundary.

    All in blocks; ``every`` is the retention interval. The sibling's is 0 without an interval, and
    not promised where the prompt does not complete its run.
    """
    promised = {"resend": resend, "extension": extension}
    sibling = 0 if every is None else sibling_boundary(shape, block, every)
    if sibling <= extension:
        promised["sibling"] = sibling
    return promised, sibling


def can_be_used(
    shape: BlockGeometry,
    block: int,
    extension: int,
    computed: int,
    promised: Iterable[int],
    kept: Callable[[int], bool],
) -> bool:
    """Whether a hit that is not promised can use a block, given the promised boundaries.

    ``computed`` blocks are computed, and those of them that are not ``kept`` never will be.
    """
    left = {hit_instead(shape, boundary, kept) for boundary in promised}
    first = max(next_boundary(shape, block), extension + shape.segment)
    # Later runs start later; but for windows none but the first has the block and fewer others.
    later = range(first, max(first, block + shape.tail) + 1, shape.segment)
    return any(
        serves_follow_ups(shape, block, boundary, extension, computed, kept) for boundary in later
    ) or any(in_required_run(shape, block, boundary) for boundary in left if boundary)


def kept_later(
    shape: BlockGeometry, promised: int, num_blocks: int, kept: Callable[[int], bool]
) -> str | None:
    """Whether the run of the boundary after a promised one is kept, as far as it is computed."""
    later = [b for b in required_run(shape, promised + shape.segment) if b < num_blocks]
    more = set(later).difference(required_run(shape, promised))
    return "later" if more and all(map(kept, later)) else None


def _policy(interval: int) -> str:
    return "latest" if interval == 0 else "interval"


def _crash(
    configuration: Configuration, num_tokens: int, interval: int, crash: Exception
) -> RetentionEvidence:
    raised = crash_defect(crash, retention=_policy(interval))
    kind, drops = configuration.group.kind, configuration.lookahead_tokens > 0
    return RetentionEvidence(
        signature=Signature(_REPLAYS, Divergence.CRASH, kind, drops, raised),
        configuration=configuration,
        num_tokens=num_tokens,
        interval=interval,
        registered=frozenset(),
        block=None,
        decisive_hit=0,
        spec="blocks are registered",
        actual=f"raises {crash!r}",
    )


def _divergence(
    configuration: Configuration,
    num_tokens: int,
    interval: int,
    policy: str,
    registered: Sequence[bool],
    block: int,
    promised: dict[str, int],
) -> RetentionEvidence:
    group, shape = configuration.group, configuration.shape
    long = "alignment" if configuration.lookahead_tokens == configuration.alignment else None
    if registered[block]:
        claim, divergence = _ONLY, Divergence.WASTE
        boundary = 0 if block in required_run(shape, 0) else next_boundary(shape, block)
        defect = Defect.of(
            Code.UNPROMISED_BLOCK_KEPT,
            hit="empty" if boundary == 0 else "unpromised",
            retention=policy,
            lookahead=long,
        )
        spec = f"block {block} is in the required run of no promised hit; do not register it"
        actual = f"block {block} is registered"
    else:
        name = needing(shape, block, promised)[0]
        boundary = promised[name]
        earlier = required_run(shape, boundary - shape.segment)
        instead = boundary == shape.segment or all(registered[b] for b in earlier)
        claim = _SIBLINGS if name == "sibling" else _REPLAYS
        divergence = Divergence.LOST_HIT
        defect = Defect.of(
            Code.PROMISED_HIT_LOST,
            hit=name,
            kept="earlier" if instead else "none",
            instead=kept_later(shape, boundary, len(registered), _holds(registered)),
            retention=policy,
            lookahead=long,
        )
        role = ROLES[block_role(configuration, block, boundary)]
        length = boundary * group.block_size
        spec = (
            f"block {block} is the {role} block of the {name}'s hit of {in_tokens(length)}; keep it"
        )
        actual = f"block {block} is not registered, so that hit is lost"
    return RetentionEvidence(
        signature=Signature(
            claim, divergence, group.kind, configuration.lookahead_tokens > 0, defect
        ),
        configuration=configuration,
        num_tokens=num_tokens,
        interval=interval,
        registered=frozenset(i for i, held in enumerate(registered) if held),
        spec=spec,
        actual=actual,
        block=block,
        decisive_hit=boundary * group.block_size,
    )
