"""The check of fine-grained hits: lookups that may end inside a block, for all cached entries.

A block may be entered under any prefix that ends inside it, so the cache states of a request are
all sets of its hash blocks. Few are enough here, since full attention looks into one block only
and Mamba at one entry; each state is run on its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.spaces import of_missing
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Space, SymbolicBlock
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import FineLookupEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge, InternalError
from hitproof.conformance.subject.lookups import FineLookupSubject, Lookup, LookupAnswer
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import longest_valid_hit, valid_hit
from hitproof.spec.releases.fine import FINE_KINDS, at_hash_units, is_held

_CLAIM = "fine_grained_hit_is_vouched_for"

_SCALES = ((2, 3), (4, 2))
"""Hash blocks in a block, and blocks in the longest request."""


def check_fine(subject: FineLookupSubject, configuration: Configuration) -> CheckResult:
    """Judge the lookup of a group whose blocks are several hash blocks.

    Kinds whose blocks cannot be entered inside settle nothing, nor do alignments of several
    blocks, since fine-grained hits have none. Real models add nothing to the grid: only the hash
    blocks in a block matter.
    """
    size, scales = configuration.group.block_size, scales_of(configuration)
    if not scales:
        return CheckResult({}, (), 0, 0)
    subjects = [
        replace(configuration, hash_block_size=size // units, num_blocks=blocks, members=1)
        for units, blocks in scales
    ]
    return finished((_CLAIM,), partial(_cases, subject, subjects))


def scales_of(configuration: Configuration) -> list[tuple[int, int]]:
    """Hash blocks in a block, and blocks in the longest request; none where nothing is judged."""
    group, size = configuration.group, configuration.group.block_size
    aligned_hits_only = group.kind not in FINE_KINDS or configuration.alignment != size
    if aligned_hits_only or configuration.model:
        return []
    return [(units, blocks) for units, blocks in _SCALES if size % units == 0]


def _cases(subject: FineLookupSubject, configurations: list[Configuration]) -> Iterator[Case]:
    for configuration in configurations:
        lookup = subject.fine_lookup(configuration)
        unit = configuration.hash_block_size
        count = configuration.num_blocks * configuration.group.block_size // unit
        if [len(keys) for keys in lookup.keys] != [count]:
            raise CannotJudge(f"fine-grained lookup has no key for each of {count} hash blocks")
        states = entered_states(count)
        keys = {(0, key): (0, block) for block, key in enumerate(lookup.keys[0])}
        space = Space(keys, unit, ())
        for max_length in (*range(0, (count + 1) * unit, unit), count * unit - 1):
            found = [
                judge_entered(configuration, lookup, space, max_length, each) for each in states
            ]
            evidence = [_replayed(lookup, space, item) for item in found if item is not None]
            yield Case(len(states), len(states), evidence)


def entered_states(count: int) -> list[frozenset[int]]:
    """All sets of ``count`` entries, small ones first: what is judged, in that order."""
    return [frozenset(s) for n in range(count + 1) for s in combinations(range(count), n)]


def is_vouched_for(
    configuration: Configuration,
    max_length: int,
    cached: frozenset[int],
    length: int,
    drops_block: bool,
) -> bool:
    """Whether entries back a hit of ``length`` tokens, with its lookahead block if any."""
    group, unit = configuration.group, configuration.hash_block_size
    alone = at_hash_units(group, unit)
    if not drops_block:
        alone = replace(alone, eagle=False)
    return valid_hit(
        [alone], unit, length, max_length, max_length, _held(configuration, max_length, cached)
    )


def _held(
    configuration: Configuration, max_length: int, cached: frozenset[int]
) -> Callable[[int, int], bool]:
    group, unit = configuration.group, configuration.hash_block_size

    def held(_: int, number: int) -> bool:
        units, reach = group.block_size // unit, max_length // unit
        return bool(is_held(group.kind, number, units, reach, cached.__contains__))

    return held


def judge_entered(
    configuration: Configuration,
    lookup: Lookup,
    space: Space,
    max_length: int,
    cached: frozenset[int],
) -> FineLookupEvidence | None:
    """What is wrong with the answer when exactly those entries are cached."""
    group, unit = configuration.group, configuration.hash_block_size
    held_blocks = frozenset((0, block) for block in cached)
    answer = replay(space, lookup, max_length, held_blocks)
    in_units, held = at_hash_units(group, unit), _held(configuration, max_length, cached)
    valid = partial(is_vouched_for, configuration, max_length, cached)
    expected = longest_valid_hit([in_units], unit, max_length, max_length, held)
    served = None if isinstance(answer, Exception) else answer.hit_length
    if isinstance(answer, Exception):
        divergence, defect = Divergence.CRASH, crash_defect(answer)
    elif not valid(answer.hit_length, True):
        alone = valid(answer.hit_length, False)
        missing = "lookahead" if alone and _table_holds(configuration, answer) else None
        divergence, defect = of_missing(missing), Defect.of(Code.FINE_HIT_UNVOUCHED, block=missing)
    elif not _table_holds(configuration, answer):
        divergence, defect = Divergence.UNSOUND, Defect(Code.FINE_TABLE_WRONG)
    elif answer.hit_length < expected:
        divergence, defect = Divergence.LOST_HIT, Defect(Code.FINE_HIT_TOO_SHORT)
    else:
        return None
    return FineLookupEvidence(
        signature=Signature(_CLAIM, divergence, group.kind, configuration.drops_block, defect),
        configuration=configuration,
        entered=cached,
        max_length=max_length,
        spec=f"hit of {in_tokens(expected)}",
        actual=f"raises {answer!r}" if served is None else f"hit of {in_tokens(served)}",
        spec_hit=expected,
        actual_hit=served,
    )


def _table_holds(configuration: Configuration, answer: LookupAnswer) -> bool:
    """Whether each block in the table is the right one, with an entry that backs the hit."""
    units = configuration.group.block_size // configuration.hash_block_size
    hit = answer.hit_length // configuration.hash_block_size
    ends = [min(end, hit) for end in range(units, hit + units, units)]
    for table in answer.tables:
        if len(table) != len(ends) or not all(isinstance(b, SymbolicBlock) for b in table):
            return False
        for block, (end, found) in enumerate(zip(ends, table, strict=True)):
            if configuration.group.kind is GroupKind.MAMBA:
                right = found.index == hit - 1 if end == hit else found.is_null_block
            else:
                right = end - 1 <= found.index < (block + 1) * units
            if not right:
                return False
    return len(answer.tables) == 1


def _replayed(lookup: Lookup, space: Space, evidence: FineLookupEvidence) -> FineLookupEvidence:
    again = judge_entered(
        evidence.configuration, lookup, space, evidence.max_length, evidence.entered
    )
    if again is None or again.signature != evidence.signature:
        raise InternalError(f"a counterexample does not replay: {evidence}")
    return evidence
