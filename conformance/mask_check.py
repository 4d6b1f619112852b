"""The check of the mask: the producer registers the reachable blocks and no others."""

from collections.abc import Iterator
from functools import partial

from conformance.configurations import Configuration
from conformance.findings import Evidence, Signature
from conformance.outcomes import Case, CheckResult, finished
from conformance.strips import ROLES, block_role
from conformance.subjects import CannotJudge, Subject
from spec.claims import Divergence
from spec.groups import GroupKind
from spec.hits import required_run
from spec.mask import in_mask, next_boundary

_KEPT = "mask_keeps_every_reachable_block"
_ONLY = "mask_keeps_only_reachable_blocks"


def check_mask(subject: Subject, configuration: Configuration) -> CheckResult:
    """Judge what the producer registers, for a request in one chunk and in many."""
    return finished((_KEPT, _ONLY), partial(_mask_cases, subject, configuration))


def _mask_cases(subject: Subject, configuration: Configuration) -> Iterator[Case]:
    size, bound = configuration.group.block_size, configuration.num_blocks
    shape = configuration.shape
    whole = (bound * size,)
    one_by_one = tuple(blocks * size for blocks in range(1, bound + 1))
    uneven = tuple(sorted({*range(size // 2 + size, bound * size, 2 * size + 1), bound * size}))
    wanted = [bool(in_mask(shape, block)) for block in range(bound)]
    for chunks in dict.fromkeys((whole, one_by_one, uneven)):
        try:
            registered = subject.registered(configuration, chunks)
        except CannotJudge:
            raise
        except Exception as crash:
            yield Case(1, 1, [_mask_crash(configuration, chunks, crash)])
            continue
        if len(registered) != bound:
            raise CannotJudge(f"{len(registered)} of {bound} blocks are accounted for")
        evidence = [
            _mask_evidence(configuration, chunks, registered, block)
            for block in range(bound)
            if registered[block] != wanted[block]
        ]
        yield Case(1, 1, evidence)


def _mask_crash(
    configuration: Configuration, chunks: tuple[int, ...], crash: Exception
) -> Evidence:
    pattern = f"raises {type(crash).__name__}"
    kind, drops = configuration.group.kind, configuration.drops_block
    return Evidence(
        signature=Signature(_KEPT, Divergence.CRASH, kind, drops, pattern),
        configuration=configuration,
        cached=(frozenset(),),
        max_length=None,
        chunks=chunks,
        spec="blocks are registered",
        actual=f"raises {crash!r}",
    )


def _mask_evidence(
    configuration: Configuration, chunks: tuple[int, ...], registered: list[bool], block: int
) -> Evidence:
    shape, size = configuration.shape, configuration.group.block_size
    boundary = next_boundary(shape, block)
    if registered[block]:
        claim, divergence = _ONLY, Divergence.WASTE
        pattern = f"a block {unreachable_place(configuration, block)}"
        spec = f"block {block} is in no required run; do not register it"
        actual = f"block {block} is registered"
    else:
        name = ROLES[block_role(configuration, block, boundary)]
        claim, divergence = _KEPT, Divergence.LOST_HIT
        pattern = f"the {name} block is left out"
        spec = f"block {block} is the {name} block of the hit of {boundary * size} tokens; keep it"
        actual = f"block {block} is not registered, so that hit is lost"
    return Evidence(
        signature=Signature(
            claim, divergence, configuration.group.kind, configuration.drops_block, pattern
        ),
        configuration=configuration,
        cached=(frozenset(i for i, held in enumerate(registered) if held),),
        max_length=None,
        chunks=chunks,
        spec=spec,
        actual=actual,
        block=block,
    )


def unreachable_place(configuration: Configuration, block: int) -> str:
    """Where a block stands that is in no required run."""
    group, shape = configuration.group, configuration.shape
    if group.chunk is not None:
        ends_chunk = (block + 1) * group.block_size % group.chunk == 0
        return "at the end of a chunk" if ends_chunk else "inside a chunk"
    if group.kind is GroupKind.MAMBA:
        return "between boundaries"
    first = required_run(shape, shape.segment).start
    where = "before the first run" if block < first else "between runs"
    filled = shape.tail + shape.lookahead == shape.segment
    return f"{where}, which {'just fills' if filled else 'does not fill'} a segment"
