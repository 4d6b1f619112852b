"""The checks of tiers (`spec.tiers`): what they serve, and what they store, ask for and load."""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from hitproof.conformance.checks import explored
from hitproof.conformance.checks.block_tables import WrongTable
from hitproof.conformance.checks.explored import Answer
from hitproof.conformance.checks.lookup import LookupRequest, requests_of
from hitproof.conformance.checks.mask import unreachable
from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.spaces import resumed_at, space_of
from hitproof.conformance.checks.tier_plays import locals_of, play_cases
from hitproof.conformance.exploration.explorer import Path
from hitproof.conformance.exploration.symbolic import Candidate, Question
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import (
    LOAD,
    LOOKUP,
    STORE,
    TierLocalEvidence,
    TierLookupEvidence,
    TierMaskEvidence,
)
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.strips import ROLES, block_role
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import UMBP, Layout
from hitproof.conformance.subject.failures import CannotJudge, Predates, crash_of
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer
from hitproof.conformance.subject.tiers import TierMasks, TierSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.mask import in_mask, is_due, next_boundary
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import ceil_div
from hitproof.spec.tiers import is_loaded, is_stored, longest_tier_hit

_KEPT = "tier_keeps_every_reachable_block"
_ONLY = "tier_keeps_only_reachable_blocks"
_LONGEST = "tier_hit_is_the_longest"
_LOADS = "tier_loads_the_served_run"


def has_tier(layout: Layout) -> bool:
    """Whether a tier is judged there: where hits end on boundaries only, but for chunks."""
    return not is_fine_grained(layout.groups, layout.hash_block_size)


def check_tier_lookup(subject: TierSubject, layout: Layout) -> CheckResult:
    """Judge a tier's lookup for every set of stored blocks, up to the bound in tokens."""
    if not has_tier(layout):
        return CheckResult({}, (), 0, 0)
    return finished((_LONGEST,), partial(_lookup_cases, subject, layout))


def check_tier_masks(subject: TierSubject, layout: Layout) -> CheckResult:
    """Judge what a tier stores of each step, asks for and loads, up to a few boundaries."""
    if not has_tier(layout):
        return CheckResult({}, (), 0, 0)
    return finished((_KEPT, _ONLY, _LOADS), partial(_mask_cases, subject, layout))


@dataclass(frozen=True)
class _TierRequest(LookupRequest):
    """A lookup in a tier. It is judged as one in the prefix cache is, but for its tables."""

    judged: Layout

    def wrong_table(self, answer: LookupAnswer) -> WrongTable | None:
        """Nothing: what is loaded is asked for separately (`TierMasks.loaded`)."""
        del answer
        return None

    def contradicted(self, cached: frozenset[Question], answer: Answer) -> Iterator[str]:
        """The claim on lookups, if the answer contradicts any of the core's."""
        if any(True for _ in super().contradicted(cached, answer)):
            yield _LONGEST

    def evidence(self, cached: frozenset[Question], answer: Answer) -> TierLookupEvidence:
        """What is wrong with ``answer`` when exactly ``cached`` is stored."""
        found = super().evidence(cached, answer)
        signature = replace(found.signature, claim=_LONGEST)
        return TierLookupEvidence(**vars(found) | {"signature": signature})


@dataclass(frozen=True)
class _LongerRequest(_TierRequest):
    """A lookup whose hits are what the tier adds to ``local`` tokens that the prefix cache has."""

    local: int

    @property
    def merging(self) -> bool:
        """False: a connector keeps what it knows of each request."""
        return False

    @property
    def watching(self) -> bool:
        """False: it keeps the time that its lookups take."""
        return False

    def hit(self, length: int | None) -> Candidate | None:
        """The hit that ends there, with what it takes of the tier."""
        found = super().hit(length)
        here = _local(self.judged, self.local)
        return found and replace(found, required=found.required - here)

    def out_of_reach(self, length: int) -> frozenset[Question]:
        """Empty for a hit to which the tier adds nothing."""
        return super().out_of_reach(length) if length > self.local else frozenset()

    def due(self, cached: frozenset[Question]) -> int:
        """Asks the spec itself. A hit that adds less than a chunk is not worth a load."""
        return longest_hit(self.judged, self.max_length, self.local, cached, self.policy)

    def defect(self, defect: Defect) -> Defect:
        """The defect of a lookup in the tier, for that of one in the prefix cache."""
        return Defect.read(defect.code, {**dict(defect.parameters), "tier": self.judged.tier})

    def evidence(self, cached: frozenset[Question], answer: Answer) -> TierLookupEvidence:
        """What is wrong with ``answer`` when exactly ``cached`` is stored."""
        found = super().evidence(cached, answer)
        signature = replace(found.signature, defect=self.defect(found.signature.defect))
        found = replace(found, signature=signature)
        if not self.local:
            return found
        return TierLocalEvidence(**vars(found) | {"local": self.local})


class _ChunkRequest(_LongerRequest):
    """A lookup in a tier of chunks.

    Its hits may end on any token from which the request can go on: those on boundaries are
    promised. The whole of a request may be served, of which the last token is computed again.
    """

    def hit(self, length: int | None) -> Candidate | None:
        """The hit that ends there, on whatever token, if what it takes can be stored at all."""
        if length is None or not self.local <= length <= self.max_length + 1:
            return None
        if self.out_of_reach(length) and (found := super().hit(length)):
            return found
        end = min(length, self.max_length)
        taken = resumed_at(self.judged, end, drafting=True) if length > self.local else frozenset()
        taken -= _local(self.judged, self.local)
        return Candidate(length, taken) if taken <= {*self.space.keys.values()} else None

    def diverging_states(self, path: Path) -> Counter[tuple[Code, Row]]:
        """See `LookupRequest`."""
        counted: Counter[tuple[Code, Row]] = Counter()
        for (code, row), states in super().diverging_states(path).items():
            counted[_OF_CHUNKS.get(code, code), row] += states
        return counted

    def defect(self, defect: Defect) -> Defect:
        """See `_LongerRequest`."""
        match defect.code:
            case Code.HIT_TOO_SHORT:
                return Defect(Code.TIER_HIT_TOO_SHORT)
            case Code.HIT_OFF_BOUNDARY | Code.GROUP_LACKS_BLOCK:
                block = dict(defect.parameters).get("block", "required")
                return Defect.of(Code.TIER_HIT_LACKS_BLOCK, block=block)
            case _:
                return super().defect(defect)

    def is_wrong(self, cached: frozenset[Question], answer: Answer) -> bool:
        """A hit that ends on another token may be longer than the expected one."""
        hit = None if isinstance(answer, Exception) else self.hit(answer.hit_length)
        return hit is None or not hit.required <= cached or hit.length < self.expected(cached)

    def contradicted(self, cached: frozenset[Question], answer: Answer) -> Iterator[str]:
        """The claim on lookups."""
        if self.is_wrong(cached, answer):
            yield _LONGEST


def longest_hit(
    layout: Layout,
    max_length: int,
    local: int,
    stored: Container[Question],
    policy: LookaheadHorizon = LookaheadHorizon.HASHED,
) -> int:
    """The longest hit, in tokens, for a request of one token more than ``max_length``.

    ``local`` is how many of its tokens the prefix cache has, ``stored`` are chunks. What adds less
    than a chunk is not worth a load.
    """
    cap, horizon = layout.reach(max_length, policy)
    here = _local(layout, local)
    longest = longest_tier_hit(
        tuple(each.group for each in layout.looked_up),
        layout.alignment,
        cap,
        horizon,
        lambda number, block: (number, block) in stored,
        lambda number, block: (number, block) in here,
    )
    return longest if longest - local >= _least(layout) else local


_OF_CHUNKS = {
    Code.HIT_TOO_SHORT: Code.TIER_HIT_TOO_SHORT,
    Code.GROUP_LACKS_BLOCK: Code.TIER_HIT_LACKS_BLOCK,
    Code.HIT_OFF_BOUNDARY: Code.TIER_HIT_LACKS_BLOCK,
}


def _named(layout: Layout) -> dict[str, str]:
    """The parameter of codes that are of an offloading tier, or the Mooncake store, without it."""
    return {"tier": UMBP} if layout.beside_umbp else {}


def _least(layout: Layout) -> int:
    """The tokens of the longest chunk: what offloading adds at least, by vLLM's choice."""
    if not layout.blocks_per_chunk:
        return 1
    return max(each.group.block_size for each in layout.looked_up)


def _local(layout: Layout, length: int) -> frozenset[Question]:
    """The whole chunks that a local hit of that many tokens covers."""
    sizes = [each.group.block_size for each in layout.looked_up]
    read = resumed_at(layout, length)
    return frozenset((n, chunk) for n, chunk in read if (chunk + 1) * sizes[n] <= length)


def _lookup_cases(subject: TierSubject, layout: Layout) -> Iterator[Case]:
    if not layout.tier:
        lookup = subject.tier_lookup(layout, 0)
        requests = requests_of(subject, layout, lookup, _TierRequest)
        yield from explored.cases(requests, lookup, lambda: subject.tier_lookup(layout, 0))
        return
    for local in locals_of(layout, layout.num_tokens - 1):
        lookup = subject.tier_lookup(layout, local)
        yield from explored.cases(
            _longer_requests(layout, lookup, local),
            lookup,
            partial(subject.tier_lookup, layout, local),
        )


def _longer_requests(layout: Layout, lookup: Lookup, local: int) -> Iterator[_LongerRequest]:
    policy = LookaheadHorizon.HASHED
    here = _local(layout, local)
    for max_length in layout.max_lengths:
        if max_length < local:
            continue
        space = space_of(layout, lookup, max_length, policy)
        hits = [Candidate(hit.length, hit.required - here) for hit in space.hits]
        longer = (hit for hit in hits if hit.length - local >= _least(layout))
        space = replace(space, hits=(Candidate(local, frozenset()), *longer))
        made = _ChunkRequest if layout.blocks_per_chunk else _LongerRequest
        yield made(lookup, max_length, space, layout, policy, local)


def _mask_cases(subject: TierSubject, layout: Layout) -> Iterator[Case]:
    if layout.blocks_per_chunk:
        yield from play_cases(subject, layout, _last(layout))
        return
    masks, align = subject.tier_masks(layout), layout.alignment
    first = _told(masks, align)
    for end in range(align, _last(layout) + 1, align):
        for start in range(0, end, align):
            yield _judged(layout, STORE, start, end, partial(masks.stored, start, end))
        with suppress(Predates):
            yield _judged(layout, LOOKUP, 0, end, partial(masks.asked_for, end))
        yield _judged(layout, LOAD, 0, end, partial(masks.loaded, end))
    if any(_told(each, align) != first for each in (masks, subject.tier_masks(layout))):
        raise CannotJudge("asked again, the tier answers otherwise: it keeps state")


def _told(masks: TierMasks, length: int) -> list[object]:
    """What is told of a step, and of a hit, of that length."""
    told: list[object] = []
    for ask in (partial(masks.stored, 0), masks.loaded):
        try:
            told.append([None if each is None else [*map(bool, each)] for each in ask(length)])
        except Exception as error:
            told.append(type(crash_of(error)))
    return told


def _last(layout: Layout) -> int:
    """The length, in tokens, by which every required run is whole and there is a segment more."""
    segments = [
        ceil_div(each.shape.tail + each.shape.lookahead, each.shape.segment)
        for each in layout.looked_up
    ]
    chunks = [ceil_div(each.shape.chunk, layout.alignment) for each in layout.looked_up]
    return int((max(*segments, *chunks) + 2) * layout.alignment)


def _judged(
    layout: Layout,
    mask: str,
    start: int,
    end: int,
    ask: Callable[[], Sequence[Sequence[bool] | None]],
) -> Case:
    """Compare the mask of each group with its required and its optional blocks."""
    try:
        masks = ask()
    except Predates:
        raise
    except Exception as error:
        return Case(1, 1, [_crash(layout, mask, start, end, crash_of(error))])
    if len(masks) != len(layout.groups):
        raise CannotJudge(f"the tier has {len(masks)} masks for {len(layout.groups)} groups")
    found = []
    for looked_up in layout.looked_up:
        size = looked_up.group.block_size
        first, last = start // size, end // size
        for group_id in looked_up.group_ids:
            told = masks[group_id]
            if told is None:
                continue
            marked = frozenset(first + place for place, each in enumerate(told) if each)
            due, optional = _due(looked_up, mask, first, last)
            found += [
                _evidence(layout, looked_up, group_id, mask, start, end, marked, block)
                for block in sorted((due - marked) | (marked - due - optional))
            ]
    return Case(1, 1, found)


def _due(looked_up: LookedUp, mask: str, first: int, last: int) -> tuple[set[int], set[int]]:
    """The blocks that a mask must have, and those that it may have."""
    shape, blocks = looked_up.shape, range(first, last)
    if mask == STORE:
        return {block for block in blocks if is_stored(shape, block, first, last)}, set()
    if mask == LOOKUP:
        asked = {block for block in blocks if is_due(shape, block, last)}
        return asked, {block for block in blocks if in_mask(shape, block)}
    return {block for block in blocks if is_loaded(shape, block, last, lambda _: False)}, set()


def _crash(layout: Layout, mask: str, start: int, end: int, crash: Exception) -> TierMaskEvidence:
    claim = _LOADS if mask == LOAD else _KEPT
    defect = crash_defect(crash, **_named(layout))
    return TierMaskEvidence(
        signature=Signature(claim, Divergence.CRASH, layout.kinds, layout.drops_block, defect),
        configuration=layout,
        spec="a mask is returned",
        actual=f"raises {crash!r}",
        mask=mask,
        start=start,
        end=end,
        group=layout.looked_up[0].group_ids[0],
        marked=frozenset(),
        block=None,
    )


def _evidence(
    layout: Layout,
    looked_up: LookedUp,
    group_id: int,
    mask: str,
    start: int,
    end: int,
    marked: frozenset[int],
    block: int,
) -> TierMaskEvidence:
    shape, size = looked_up.shape, looked_up.group.block_size
    verb = {STORE: "stored", LOOKUP: "asked for", LOAD: "loaded"}[mask]
    is_not = "" if block in marked else "not "
    if mask == LOAD and block in marked:
        claim, divergence = _LOADS, Divergence.WASTE
        defect = Defect.of(Code.TIER_BLOCK_LOADED_UNREAD, **_named(layout))
        spec = f"the request does not read block {block}"
    elif mask == LOAD:
        role = ROLES[block_role(looked_up, block, end // size)]
        claim, divergence = _LOADS, Divergence.UNSOUND
        defect = Defect.of(Code.TIER_BLOCK_NOT_LOADED, block=role, **_named(layout))
        spec = f"block {block} is a {role} block of the hit of {in_tokens(end)}"
    elif block in marked:
        claim, divergence = _ONLY, Divergence.WASTE
        where, spec = {"place": "outside"}, f"block {block} is not of these tokens"
        if not in_mask(shape, block):
            where = dict(unreachable(looked_up, block).parameters)
            spec = f"no hit requires block {block}"
        defect = Defect.of(Code.TIER_BLOCK_UNREACHABLE, mask=mask, **where, **_named(layout))
    else:
        boundary = int(next_boundary(shape, block))
        role = ROLES[block_role(looked_up, block, boundary)]
        claim, divergence = _KEPT, Divergence.LOST_HIT
        defect = Defect.of(Code.TIER_BLOCK_LEFT_OUT, block=role, mask=mask, **_named(layout))
        spec = f"block {block} is a {role} block of the hit of {in_tokens(boundary * size)}"
    return TierMaskEvidence(
        signature=Signature(claim, divergence, looked_up.group.kind, bool(shape.lookahead), defect),
        configuration=layout,
        spec=spec,
        actual=f"block {block} of group {group_id} is {is_not}{verb}",
        mask=mask,
        start=start,
        end=end,
        group=group_id,
        marked=marked,
        block=block,
    )
