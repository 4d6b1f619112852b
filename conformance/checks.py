"""The checks: each judges one claim, or several at once, on a subject and a configuration."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from conformance.configurations import Configuration
from conformance.exploration import (
    Candidate,
    Exploration,
    ExplorationError,
    Path,
    SymbolicBlock,
    candidates,
    explore,
    replay,
)
from conformance.findings import ROLES, Evidence, Signature, block_role, smallest
from conformance.outcomes import Case, CheckResult, finished
from conformance.retention_check import check_retention
from conformance.subjects import CannotJudge, Lookup, LookupAnswer, Subject
from spec.claims import Divergence
from spec.groups import GroupKind
from spec.hits import longest_valid_hit, required_run
from spec.mask import in_mask, next_boundary

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_KEPT = "mask_keeps_every_reachable_block"
_ONLY = "mask_keeps_only_reachable_blocks"

_SMALL = 5
"""Requests up to this many blocks are explored for every length, and without merging, too."""


def check_lookup(subject: Subject, configuration: Configuration) -> CheckResult:
    """Judge the lookup for every cache state, up to the configuration's bound in blocks."""
    eagle = (_EAGLE,) if configuration.group.eagle else ()
    return finished((_TABLE, *eagle, _LONGEST), partial(_lookup_cases, subject, configuration))


def check_mask(subject: Subject, configuration: Configuration) -> CheckResult:
    """Judge what the producer registers, for a request in one chunk and in many."""
    return finished((_KEPT, _ONLY), partial(_mask_cases, subject, configuration))


CHECKS: dict[str, Callable[[Subject, Configuration], CheckResult]] = {
    _TABLE: check_lookup,
    _EAGLE: check_lookup,
    _LONGEST: check_lookup,
    _KEPT: check_mask,
    _ONLY: check_mask,
    "retention_keeps_resends_and_extensions": check_retention,
    "retention_keeps_siblings": check_retention,
    "retention_keeps_only_promised_blocks": check_retention,
}
"""The check of each claim, by the claim's name."""


def _lookup_cases(subject: Subject, configuration: Configuration) -> Iterator[Case]:
    lookup = subject.lookup(configuration)
    size, bound = configuration.group.block_size, configuration.num_blocks
    for max_length in _max_lengths(configuration):
        blocks = min(max_length // size, bound)
        exploration = explore(configuration, lookup, max_length)
        evidence = _lookup_evidence(configuration, lookup, max_length, exploration)
        if exploration.merged and blocks <= _SMALL:
            apart = explore(configuration, lookup, max_length, merging=False)
            again = _lookup_evidence(configuration, lookup, max_length, apart)
            if smallest(again).keys() != smallest(evidence).keys():
                raise CannotJudge("the lookup depends on something that merging forgets")
        yield Case(len(exploration.paths), 1 << blocks, evidence, exploration.coarse)


def _max_lengths(configuration: Configuration) -> list[int]:
    """How many tokens the lookups may serve: every small length, then the bound.

    Below the bound, lengths that start the scan at each distance from a boundary; where a
    segment is long, at those next to one. A length that ends inside a block is tried, too.
    """
    size, bound = configuration.group.block_size, configuration.num_blocks
    segment = configuration.shape.segment
    distances = range(segment) if segment <= _SMALL else (0, 1, segment - 1)
    last_boundary = bound // segment * segment
    near = {last_boundary - distance for distance in distances} | {bound}
    small = range(min(bound, _SMALL) + 1)
    blocks = {*small, *(b for b in near if b > 0)}
    return sorted({b * size for b in blocks} | {b * size + size - 1 for b in small})


def _lookup_evidence(
    configuration: Configuration, lookup: Lookup, max_length: int, exploration: Exploration
) -> list[Evidence]:
    """The smallest evidence of each signature among the paths, replayed."""
    hits = candidates(configuration, max_length)
    diverging = smallest(
        _evidence(configuration, hits, max_length, cached, path.answer)
        for path in exploration.paths
        for cached in _diverging_completions(configuration, hits, path)
    )
    return [_replayed(lookup, evidence) for evidence in diverging.values()]


def _diverging_completions(
    configuration: Configuration, hits: tuple[Candidate, ...], path: Path
) -> Iterator[frozenset[int]]:
    """Cache states of the path at which the answer is wrong, one for each way to be wrong."""
    held = frozenset(block for block, cached in path.answers.items() if cached)
    missing = path.answers.keys() - held
    if _malformed(configuration, hits, path.answer):
        yield held
        return
    assert isinstance(path.answer, LookupAnswer)  # _malformed covers exceptions
    served = path.answer.hit_length
    if not next(hit for hit in hits if hit.length == served).required <= held:
        yield held  # blocks that were not asked about are missing in this completion
    for hit in hits:
        if hit.length > served and missing.isdisjoint(hit.required):
            yield held | hit.required


def _malformed(
    configuration: Configuration, hits: tuple[Candidate, ...], answer: LookupAnswer | Exception
) -> tuple[str, Divergence, str] | None:
    """Claim, class and pattern of an answer that is wrong whatever is cached."""
    if isinstance(answer, Exception):
        return _LONGEST, Divergence.CRASH, f"raises {type(answer).__name__}"
    if answer.hit_length not in {hit.length for hit in hits}:
        claim = _EAGLE if configuration.group.eagle else _TABLE
        return claim, Divergence.UNSOUND, "hit off the boundaries within reach"
    boundary = answer.hit_length // configuration.group.block_size
    if len(answer.tables) != configuration.members or any(
        len(table) != boundary for table in answer.tables
    ):
        return _TABLE, Divergence.UNSOUND, "block table as long as the hit is not"
    run = required_run(configuration.shape, boundary)
    for member, table in enumerate(answer.tables):
        for position, block in enumerate(table):
            if not isinstance(block, SymbolicBlock):
                return _TABLE, Divergence.UNSOUND, "block table holds something else than blocks"
            in_place = block.index == position and block.member == member
            if not in_place and not (block.is_null_block and position not in run):
                return _TABLE, Divergence.UNSOUND, "block table holds another block"
    return None


def _evidence(
    configuration: Configuration,
    hits: tuple[Candidate, ...],
    max_length: int,
    cached: frozenset[int],
    answer: LookupAnswer | Exception,
) -> Evidence:
    """What is wrong with ``answer`` when exactly the blocks in ``cached`` are cached."""
    expected = max(hit.length for hit in hits if hit.required <= cached)
    claim, divergence, pattern = _classified(configuration, hits, cached, expected, answer)
    if isinstance(answer, Exception):
        actual, actual_hit = f"raises {answer!r}", None
    else:
        actual, actual_hit = f"hit of {answer.hit_length} tokens", answer.hit_length
    return Evidence(
        signature=Signature(
            claim, divergence, configuration.group.kind, configuration.drops_block, pattern
        ),
        configuration=configuration,
        cached=cached,
        max_length=max_length,
        chunks=(),
        spec=f"hit of {expected} tokens",
        actual=actual,
        spec_hit=expected,
        actual_hit=actual_hit,
    )


def _replayed(lookup: Lookup, evidence: Evidence) -> Evidence:
    """The evidence, once a concrete run of the lookup and of the spec has confirmed it."""
    configuration, cached = evidence.configuration, evidence.cached
    assert evidence.max_length is not None
    horizon = min(evidence.max_length, configuration.num_blocks * configuration.group.block_size)
    expected = longest_valid_hit(
        (configuration.group,),
        configuration.alignment,
        horizon,
        horizon,
        lambda _group, block: block in cached,
    )
    hits = candidates(configuration, evidence.max_length)
    answers = [replay(configuration, lookup, evidence.max_length, cached) for _ in range(2)]
    again = [
        # The text of an exception may hold addresses, which differ from run to run.
        replace(
            _evidence(configuration, hits, evidence.max_length, cached, answer),
            actual=evidence.actual,
        )
        for answer in answers
    ]
    if again[0] != again[1]:
        raise CannotJudge("lookup does not return the same when it is run twice")
    if expected != evidence.spec_hit or again[0] != evidence:
        raise ExplorationError(f"a counterexample does not replay: {evidence}")
    return evidence


def _classified(
    configuration: Configuration,
    hits: tuple[Candidate, ...],
    cached: frozenset[int],
    expected: int,
    answer: LookupAnswer | Exception,
) -> tuple[str, Divergence, str]:
    """Claim, class and pattern of a wrong answer; a right one does not replay."""
    served = None if isinstance(answer, Exception) else answer.hit_length
    hit = next((hit for hit in hits if hit.length == served), None)
    malformed = _malformed(configuration, hits, answer)
    if served is None or hit is None or (malformed and hit.required <= cached):
        assert malformed
        return malformed
    whole = max(expected, served) // configuration.group.block_size >= configuration.shape.tail
    run = "whole run" if whole else "run cut at the start of the request"
    if not hit.required <= cached:
        claim = _EAGLE if configuration.group.eagle else _TABLE
        return claim, Divergence.UNSOUND, f"{run}, a required block is not cached"
    if served >= expected:
        raise ExplorationError(f"a right answer is taken for a wrong one ({configuration})")
    short = (expected - served) // configuration.alignment
    by = "one boundary" if short == 1 else "several boundaries"
    step = "one block" if configuration.shape.segment == 1 else "several blocks"
    return _LONGEST, Divergence.LOST_HIT, f"{run}, {by} short, {step} a segment"


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
        cached=frozenset(),
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
        cached=frozenset(i for i, held in enumerate(registered) if held),
        max_length=None,
        chunks=chunks,
        spec=spec,
        actual=actual,
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
