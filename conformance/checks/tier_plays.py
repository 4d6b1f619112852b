"""What a tier of chunks stores and loads of requests that a scheduler serves."""

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from functools import partial

from hitproof.conformance.checks.outcomes import Case
from hitproof.conformance.checks.spaces import resumed_at
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import LOAD, STORE, TierMaskEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import ROLES, block_role
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import OFFLOADING, Layout
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.tiers import Load, TierPlays, TierSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, alignment
from hitproof.spec.hits import in_required_run
from hitproof.spec.mask import is_due, next_boundary

_ROLES: Mapping[GroupKind, str] = {
    GroupKind.FULL_ATTENTION: "prefix",
    GroupKind.SLIDING_WINDOW: "tail",
    GroupKind.CHUNKED_LOCAL: "chunk",
    GroupKind.MAMBA: "state",
}


def locals_of(layout: Layout, end: int) -> list[int]:
    """Local hits that are tried, below ``end`` tokens: none, and on blocks inside and past a chunk.

    In tokens, all of whole blocks.
    """
    every, align = alignment(layout.groups), layout.alignment
    return [local for local in sorted({0, every, align, align + every}) if local < end]


def play_cases(subject: TierSubject, layout: Layout, last: int) -> Iterator[Case]:
    """Judge what is stored of requests of up to ``last`` tokens, and loaded for later ones.

    Each length on a boundary is computed in one step, in two that meet at any block, and block by
    block; then loads from what the longest leaves are judged for each local hit and each length.
    """
    plays, every = _Plays(subject, layout, last), alignment(layout.groups)
    first = _told(plays, layout)
    for end in range(layout.alignment, last + 1, layout.alignment):
        ways = [[end], *([stop, end] for stop in range(every, end, every))]
        ways.append([*range(every, end + 1, every)])
        for ends in ways if len(ways) > 3 else ways[:-1]:
            yield _stored(plays, layout, tuple(ends))
    for local in locals_of(layout, last):
        for length in range(local + every, last + 1, every):
            yield _loaded(plays, layout, local, length)
    if any(_told(each, layout) != first for each in (plays, _Plays(subject, layout, last))):
        raise CannotJudge("asked again, the tier answers otherwise: it keeps state")


class _Plays:
    """Requests that are served by another scheduler after one of them has crashed."""

    def __init__(self, subject: TierSubject, layout: Layout, last: int) -> None:
        self._new = partial(subject.tier_plays, layout, last)
        self._plays = self._new()

    def stored(self, ends: Sequence[int]) -> Sequence[Set[int] | None]:
        """See `TierPlays`."""
        try:
            return self._plays.stored(ends)
        except Exception:
            self._plays = self._new()
            raise

    def loaded(self, local: int, length: int) -> Load | None:
        """See `TierPlays`."""
        try:
            return self._plays.loaded(local, length)
        except Exception:
            self._plays = self._new()
            raise


def _told(plays: TierPlays, layout: Layout) -> object:
    """What is stored of a short request."""
    try:
        return plays.stored([layout.alignment])
    except Exception as error:
        return type(crash_of(error))


def _stored(plays: TierPlays, layout: Layout, ends: tuple[int, ...]) -> Case:
    *earlier, end = ends
    start = earlier[0] if len(earlier) == 1 else 0
    try:
        told = plays.stored(ends)
    except Exception as error:
        return _crash(layout, STORE, start, end, crash_of(error))
    found = []
    for looked_up in layout.looked_up:
        due = due_chunks(looked_up, end, ends)
        for group_id in looked_up.group_ids:
            kept = told[group_id]
            if kept is None:
                continue
            found += [
                _left_out(layout, looked_up, group_id, start, end, kept, chunk)
                for chunk in sorted(due - kept)
            ]
    return Case(1, 1, found)


def due_chunks(looked_up: LookedUp, final: int, ends: Container[int]) -> set[int]:
    """The chunks of a group that must be stored of a request of which ``final`` tokens are kept.

    There are states only where its steps end, in tokens.
    """
    shape, size = looked_up.shape, looked_up.group.block_size
    due = {chunk for chunk in range(final // size) if is_due(shape, chunk, final // size)}
    if looked_up.group.kind is GroupKind.MAMBA:
        return {chunk for chunk in due if (chunk + 1) * size in ends}
    return due


def left_out(looked_up: LookedUp, chunk: int, end: int = 0, tier: str = OFFLOADING) -> Defect:
    """The defect of a chunk that is not stored; a hit may require it that ends at ``end``."""
    boundary = int(next_boundary(looked_up.shape, chunk))
    if not in_required_run(looked_up.shape, chunk, boundary):
        boundary = end
    role = ROLES[block_role(looked_up, chunk, boundary)]
    return Defect.of(Code.TIER_BLOCK_LEFT_OUT, block=role, mask=STORE, tier=tier)


def _loaded(plays: TierPlays, layout: Layout, local: int, length: int) -> Case:
    try:
        told = plays.loaded(local, length)
    except Exception as error:
        return _crash(layout, LOAD, local, length, crash_of(error))
    if told is None:
        return Case(1, 1, [])
    found = []
    read = _read(layout, told.hit)
    for group_id, group in enumerate(layout.groups):
        if not group.prefix_cacheable:
            continue
        here = told.local // group.block_size
        due = {block for block in read[group_id] if block >= here}
        loaded = told.blocks[group_id]
        found += [
            _wrong_load(layout, group, group_id, told, block)
            for block in sorted(due.symmetric_difference(loaded))
        ]
    return Case(1, 1, found)


def _read(layout: Layout, length: int) -> dict[int, Set[int]]:
    """The blocks of each group that a request reads when it continues after that many tokens."""
    read = resumed_at(layout.in_blocks, length)
    return {
        group_id: {block for owner, block in read if owner == number}
        for number, looked_up in enumerate(layout.in_blocks.looked_up)
        for group_id in looked_up.group_ids
    }


def _left_out(
    layout: Layout,
    looked_up: LookedUp,
    group_id: int,
    start: int,
    end: int,
    kept: Set[int],
    chunk: int,
) -> TierMaskEvidence:
    shape, boundary = looked_up.shape, int(next_boundary(looked_up.shape, chunk))
    defect = left_out(looked_up, chunk)
    role = dict(defect.parameters)["block"]
    group, length = looked_up.group, boundary * looked_up.group.block_size
    return TierMaskEvidence(
        Signature(
            "tier_keeps_every_reachable_block",
            Divergence.LOST_HIT,
            group.kind,
            bool(shape.lookahead),
            defect,
        ),
        layout,
        f"chunk {chunk} is a {role} chunk of the hit of {in_tokens(length)}",
        f"chunk {chunk} of group {group_id} is not stored",
        STORE,
        start,
        end,
        group_id,
        frozenset(kept),
        chunk,
    )


def _wrong_load(
    layout: Layout, group: Group, group_id: int, told: Load, block: int
) -> TierMaskEvidence:
    role, loaded = _ROLES[group.kind], told.blocks[group_id]
    if block in loaded:
        divergence, spec = Divergence.WASTE, f"the request does not read block {block} of the load"
        defect = Defect.of(Code.TIER_BLOCK_LOADED_UNREAD, tier=OFFLOADING)
    else:
        divergence = Divergence.UNSOUND
        spec = f"block {block} is a {role} block of the hit of {in_tokens(told.hit)}"
        defect = Defect.of(Code.TIER_BLOCK_NOT_LOADED, block=role, tier=OFFLOADING)
    return TierMaskEvidence(
        Signature("tier_loads_the_served_run", divergence, group.kind, layout.drops_block, defect),
        layout,
        spec,
        f"block {block} of group {group_id} is {'' if block in loaded else 'not '}loaded with what "
        "is of its place",
        LOAD,
        told.local,
        told.hit,
        group_id,
        frozenset(loaded),
        block,
    )


def _crash(layout: Layout, mask: str, start: int, end: int, crash: Exception) -> Case:
    claim = "tier_loads_the_served_run" if mask == LOAD else "tier_keeps_every_reachable_block"
    defect = crash_defect(crash, tier=OFFLOADING)
    signature = Signature(claim, Divergence.CRASH, layout.kinds, layout.drops_block, defect)
    evidence = TierMaskEvidence(
        signature,
        layout,
        "the request is served",
        f"raises {crash!r}",
        mask,
        start,
        end,
        layout.looked_up[0].group_ids[0],
        frozenset(),
        None,
    )
    return Case(1, 1, [evidence])
