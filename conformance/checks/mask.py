"""The check of the mask: the producer registers the reachable blocks and no others."""

from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import partial
from itertools import product

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import MaskEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import ROLES, block_role
from hitproof.conformance.scope.configurations import Configuration, LookedUp
from hitproof.conformance.subject.failures import CannotJudge, Predates, crash_of
from hitproof.conformance.subject.registering import MaskSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.attention import attends
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import required_run
from hitproof.spec.mask import in_mask, in_stored_mask, is_due, next_boundary

_KEPT = "mask_keeps_every_reachable_block"
_ONLY = "mask_keeps_only_reachable_blocks"


def check_mask(subject: MaskSubject, configuration: Configuration) -> CheckResult:
    """Judge what the producer registers of prompts of several lengths, in one chunk and in many.

    Where its block size is the alignment the group is judged alone, too. Where the release has it,
    the check also judges what a KV connector has to store of requests that end at each block, and
    what is registered while a draft model recomputes the last tokens.
    """
    return finished((_KEPT, _ONLY), partial(_mask_cases, subject, configuration))


def _mask_cases(subject: MaskSubject, configuration: Configuration) -> Iterator[Case]:
    size, shape = configuration.group.block_size, configuration.shape
    answers: list[tuple[Callable[[], list[bool]], list[bool]]] = []
    for alone in _settings(configuration):
        for chunks in _chunkings(configuration, alone):
            full = chunks[-1] // size
            due = [
                bool(is_due(shape, block, full)) and _is_kept(configuration, block, chunks)
                for block in range(full)
            ]
            # The blocks of a hit that only a longer request can have may be there already.
            early = {block for block in range(full) if in_mask(shape, block)}
            ask = partial(subject.registered, configuration, chunks, alone)
            registered = partial(_remembered, answers, ask)
            yield _judged(configuration, chunks, registered, due, optional=early)
    for first, before in answers[:1]:
        if first() != before:
            raise CannotJudge("asked again, the producer registers other blocks: it keeps state")
    for cases in (_stored_cases, _draft_cases):
        with suppress(Predates):
            yield from cases(subject, configuration)


def _remembered(
    answers: list[tuple[Callable[[], list[bool]], list[bool]]], ask: Callable[[], list[bool]]
) -> list[bool]:
    answers.append((ask, ask()))
    return answers[-1][1]


def _settings(configuration: Configuration) -> list[bool]:
    """Whether the group is judged alone: not, also, or, where both would be looked up as one, only.

    Beside full attention of the same block size a group of full attention is looked up with it. On
    several ranks only full attention alone is possible in every release.
    """
    if configuration.ranks != (1, 1):
        return [True]
    if configuration.shape.segment > 1:
        return [False]
    return [True] if configuration.group.kind is GroupKind.FULL_ATTENTION else [False, True]


def _chunkings(configuration: Configuration, alone: bool) -> Iterator[tuple[int, ...]]:
    """Where the chunks of each prompt end, in tokens."""
    size, bound = configuration.group.block_size, configuration.num_blocks
    segment = configuration.shape.segment
    yield tuple(blocks * size for blocks in range(1, bound + 1))
    if alone and configuration.group.kind is not GroupKind.FULL_ATTENTION:
        return
    more = range(1 + configuration.drops_block)
    near = {k * segment + blocks for k in (1, 2) for blocks in more}
    for blocks in sorted({*(n for n in near if n < bound), bound}):
        yield (blocks * size,)
    if configuration.group.kind is not GroupKind.MAMBA:  # whose chunks end on blocks
        yield tuple(sorted({*range(size // 2 + size, bound * size, 2 * size + 1), bound * size}))


def _is_kept(configuration: Configuration, block: int, chunks: tuple[int, ...]) -> bool:
    """Whether a block is there to be registered: a Mamba block keeps a state where a chunk ends."""
    ends = (block + 1) * configuration.group.block_size
    return configuration.group.kind is not GroupKind.MAMBA or ends in chunks


def _stored_cases(subject: MaskSubject, configuration: Configuration) -> Iterator[Case]:
    """What a connector stores of requests that end at each block."""
    size, bound = configuration.group.block_size, configuration.num_blocks
    shape = configuration.shape
    if configuration.group.kind is not GroupKind.SLIDING_WINDOW or configuration.model:
        return
    for end in range(1, bound + 1):
        wanted = [bool(in_stored_mask(shape, block, end)) for block in range(bound)]
        stored = partial(subject.stored, configuration, end)
        yield _judged(configuration, (end * size,), stored, wanted, "store")
    if configuration.alignment != size:  # the same for all alignments
        return
    for alignment in (*((size + 1,) if size > 1 else ()), None):
        unaligned = partial(subject.stored_unaligned, configuration, alignment)
        read = [
            _is_read(configuration, block, bound * size, alignment or 1) for block in range(bound)
        ]
        # What no hit reads may be stored, too: the mask has no more than blocks.
        yield _judged(configuration, (bound * size,), unaligned, read, "store", range(bound))


def _is_read(configuration: Configuration, block: int, num_tokens: int, alignment: int) -> bool:
    """Whether a request that resumes at a multiple of ``alignment`` reads a token of the block."""
    group = configuration.group
    tokens = range(block * group.block_size, (block + 1) * group.block_size)
    return any(
        token < end and bool(attends(end, token, group.window, group.chunk))
        for end in range(alignment, num_tokens + 1, alignment)
        for token in tokens
    )


def _draft_cases(subject: MaskSubject, configuration: Configuration) -> Iterator[Case]:
    """What is registered while the last tokens are not final."""
    size, shape = configuration.group.block_size, configuration.shape
    if not shape.lookahead or configuration.model or configuration.ranks != (1, 1):
        return
    last = (2 * shape.segment + shape.lookahead + 1) * size
    for alone in _settings(configuration):
        ahead = {1, configuration.alignment - 1} & {*range(1, configuration.alignment)}
        # Elsewhere inside a block no block more or less is full or final.
        near = {0, 1, size // 2, size - 1}
        lengths = [length for length in range(1, last + 1) if length % size in near]
        for num_tokens, not_final in product(lengths, sorted(ahead)):
            full, final = num_tokens // size, (num_tokens - not_final) // size
            held = partial(
                subject.registered_when_final, configuration, num_tokens, not_final, alone
            )
            due = [bool(is_due(shape, block, final)) for block in range(full)]
            # Once its boundary is reached a block may be registered before its run is final.
            optional = {block for block in range(final) if next_boundary(shape, block) <= full}
            yield _judged(configuration, (num_tokens,), held, due, "drafting", optional)
            if not alone and configuration.group.kind is GroupKind.FULL_ATTENTION:
                # Retention does not thin out full attention, so the same must be registered.
                held = partial(held, interval=0)
                try:
                    thinned = _judged(configuration, (num_tokens,), held, due, "drafting", optional)
                except Predates:  # retention of nothing else is refused
                    continue
                yield thinned


def _judged(
    configuration: Configuration,
    chunks: tuple[int, ...],
    ask: Callable[[], list[bool]],
    due: list[bool],
    during: str | None = None,
    optional: Container[int] = (),
) -> Case:
    """Whether the ``due`` blocks are registered, and no others except ``optional`` ones."""
    try:
        registered = ask()
    except Exception as error:
        return Case(1, 1, [_mask_crash(configuration, chunks, crash_of(error), during)])
    if len(registered) != len(due):
        raise CannotJudge(f"{len(registered)} of {len(due)} blocks are accounted for")
    return Case(
        1,
        1,
        [
            _mask_evidence(configuration, chunks, registered, block, during)
            for block, (held, wanted) in enumerate(zip(registered, due, strict=True))
            if held != wanted and not (held and block in optional)
        ],
    )


def _mask_crash(
    configuration: Configuration, chunks: tuple[int, ...], crash: Exception, during: str | None
) -> MaskEvidence:
    raised = crash_defect(crash, during=during)
    kind, drops = configuration.group.kind, configuration.drops_block
    return MaskEvidence(
        signature=Signature(_KEPT, Divergence.CRASH, kind, drops, raised),
        configuration=configuration,
        chunks=chunks,
        registered=frozenset(),
        block=None,
        spec="blocks are registered",
        actual=f"raises {crash!r}",
    )


def _mask_evidence(
    configuration: Configuration,
    chunks: tuple[int, ...],
    registered: list[bool],
    block: int,
    during: str | None,
) -> MaskEvidence:
    shape, size = configuration.shape, configuration.group.block_size
    boundary = next_boundary(shape, block)
    if not in_mask(shape, block):
        boundary = chunks[-1] // size
    if registered[block] and in_mask(shape, block) and boundary > chunks[-1] // size:
        claim, divergence = _ONLY, Divergence.WASTE
        defect = Defect.of(Code.BLOCK_REGISTERED_EARLY, during=during)
        spec = f"no hit can use block {block} before the request has {in_tokens(boundary * size)}"
        actual = f"block {block} is registered"
    elif registered[block] and in_mask(shape, block):
        claim, divergence = _ONLY, Divergence.WRONG_DRAFTS
        defect = Defect.of(Code.UNFINAL_BLOCK_REGISTERED, during=during)
        spec = f"block {block} is not final; do not register it yet"
        actual = f"block {block} is registered"
    elif registered[block]:
        claim, divergence = _ONLY, Divergence.WASTE
        defect = unreachable(configuration, block, during)
        spec = f"block {block} is in no required run; do not register it"
        actual = f"block {block} is registered"
    else:
        role = block_role(configuration, block, boundary)
        claim, divergence = _KEPT, Divergence.LOST_HIT
        defect = Defect.of(UNREGISTERED[role], during=during)
        hit = f"the hit of {in_tokens(boundary * size)}"
        spec = f"block {block} is the {ROLES[role]} block of {hit}; keep it"
        actual = f"block {block} is not registered, so that hit is lost"
    return MaskEvidence(
        signature=Signature(
            claim, divergence, configuration.group.kind, configuration.drops_block, defect
        ),
        configuration=configuration,
        chunks=chunks,
        registered=frozenset(i for i, held in enumerate(registered) if held),
        spec=spec,
        actual=actual,
        block=block,
    )


UNREGISTERED = {
    "L": Code.LOOKAHEAD_BLOCK_UNREGISTERED,
    "p": Code.PREFIX_BLOCK_UNREGISTERED,
    "t": Code.TAIL_BLOCK_UNREGISTERED,
    "c": Code.CHUNK_BLOCK_UNREGISTERED,
    "s": Code.STATE_BLOCK_UNREGISTERED,
}
"""What it is to leave a block out, by its role (`conformance.findings.strips.block_role`)."""


def unreachable(of: Configuration | LookedUp, block: int, during: str | None = None) -> Defect:
    """The defect to register a block that is in no required run."""
    group, shape = of.group, of.shape
    if group.chunk is not None:
        ends_chunk = (block + 1) * group.block_size % group.chunk == 0
        place = "chunk-end" if ends_chunk else "inside-chunk"
        return Defect.of(Code.UNREACHABLE_BLOCK_REGISTERED, place=place, during=during)
    if group.kind is GroupKind.MAMBA:
        place = "between-boundaries"
        return Defect.of(Code.UNREACHABLE_BLOCK_REGISTERED, place=place, during=during)
    first = required_run(shape, shape.segment).start
    filled = shape.tail + shape.lookahead >= shape.segment
    return Defect.of(
        Code.UNREACHABLE_BLOCK_REGISTERED,
        place="before-first-run" if block < first else "between-runs",
        segment="filled" if filled else "unfilled",
        during=during,
    )
