"""The check of lookups: of one group by its own manager, of several groups by the coordinator."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from typing import TypeVar

from hitproof.conformance.checks.block_tables import wrong_in_tables
from hitproof.conformance.checks.concrete_runs import Concrete
from hitproof.conformance.checks.counting import Judging, Need, diverging_states
from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.exploration.explorer import Exploration, Path, explore, replay
from hitproof.conformance.exploration.symbolic import Candidate, Question, Space
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import LookupEvidence, smallest
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, is_possible, without_flags
from hitproof.conformance.subject.failures import CannotJudge, InternalError, Predates
from hitproof.conformance.subject.lookups import Lookup, LookupAnswer, LookupSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.hits import longest_valid_hit, required_run, within_reach
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.releases.sequential import longest_joint_hit, one_pass_suffices

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_COMMON_VALID = "common_hit_is_valid_for_every_group"
_COMMON_LONGEST = "common_hit_is_the_longest"


_Confirmed = TypeVar("_Confirmed", bound=LookupEvidence)


def check_lookup(subject: LookupSubject, configuration: Configuration) -> CheckResult:
    """Judge a group's own lookup for every cache state, up to the bound in blocks."""
    eagle = (_EAGLE,) if configuration.group.eagle else ()
    return finished((_TABLE, *eagle, _LONGEST), partial(_cases, subject, configuration))


def check_common_hit(subject: LookupSubject, layout: Layout) -> CheckResult:
    """Judge the coordinator's lookup for every cache state, up to the bound in tokens.

    Where groups drop in turn (`spec.releases.sequential`), only requests of few blocks are judged,
    and layouts that have no such request are not. Where all groups drop a block, flags mean
    nothing, and a layout that is not possible without them settles nothing.
    """
    claims = (_COMMON_VALID, _COMMON_LONGEST)
    try:
        all_drop = layout.use_eagle and subject.eagle_groups is EagleGroups.ALL
    except CannotJudge as reason:
        return CheckResult(dict.fromkeys(claims, Status.INCONCLUSIVE), (), 0, 0, str(reason))
    if all_drop:
        layout = without_flags(layout)
        if not is_possible(layout):
            return CheckResult({}, (), 0, 0)
    return finished(claims, partial(_cases, subject, layout))


def judge_answer(
    judged: Configuration | Layout,
    lookup: Lookup,
    max_length: int,
    policy: LookaheadHorizon,
    cached: frozenset[Question],
    answer: LookupAnswer | Exception,
) -> LookupEvidence | None:
    """What is wrong with one answer of a lookup when exactly ``cached`` is cached, if anything.

    The blocks in the answer's tables are `SymbolicBlock`s. Of ``lookup`` only the keys are asked.
    """
    space = space_of(judged, lookup, max_length, policy)
    request = _Request(judged, lookup, max_length, policy, space)
    return _evidence(request, cached, answer) if _is_wrong(request, cached, answer) else None


def space_of(
    judged: Configuration | Layout, lookup: Lookup, max_length: int, policy: LookaheadHorizon
) -> Space:
    """What a lookup of at most ``max_length`` tokens can ask, and what it may serve."""
    cap, horizon = judged.reach(max_length, policy)
    keys = {
        (group_id, key): (number, block)
        for number, (looked_up, keys) in enumerate(zip(judged.looked_up, lookup.keys, strict=True))
        for group_id in looked_up.group_ids
        for block, key in enumerate(keys)
    }
    hits = [
        _candidate(judged, length)
        for length in range(judged.alignment, cap + 1, judged.alignment)
        if all(
            within_reach(looked_up.shape, length // size, cap // size, horizon // size)
            for looked_up in judged.looked_up
            for size in (looked_up.group.block_size,)
        )
    ]
    several = len(judged.looked_up) > 1
    return Space(keys, judged.hash_block_size, (Candidate(0, frozenset()), *hits), several)


def _candidate(judged: Configuration | Layout, length: int) -> Candidate:
    return Candidate(
        length,
        frozenset(
            (number, block)
            for number, looked_up in enumerate(judged.looked_up)
            for block in required_run(looked_up.shape, length // looked_up.group.block_size)
        ),
    )


_FEW = 10
"""Blocks of the longest requests that are explored without merging: up to 2^n runs."""


@dataclass(frozen=True)
class _Request:
    """One lookup with all that judging it takes; ``cached`` states are sets of questions."""

    judged: Configuration | Layout
    lookup: Lookup
    max_length: int
    policy: LookaheadHorizon
    space: Space

    @property
    def num_blocks(self) -> int:
        """How many blocks the lookup can ask about."""
        _, horizon = self.judged.reach(self.max_length, self.policy)
        return sum(horizon // looked_up.group.block_size for looked_up in self.judged.looked_up)

    @property
    def sequential(self) -> bool:
        """Whether groups drop their lookahead blocks in turn, so that validity has a candidate."""
        return (
            isinstance(self.judged, Layout)
            and self.judged.drops_block
            and self.policy is LookaheadHorizon.CANDIDATE
            and one_pass_suffices(self.judged.shared)
        )

    def expected(self, cached: frozenset[Question]) -> int:
        """The hit that lookup must return when exactly ``cached`` is cached, in tokens."""
        if not self.sequential:
            return max(hit.length for hit in self.space.hits if hit.required <= cached)
        judged = self.judged
        return longest_joint_hit(
            tuple(looked_up.group for looked_up in judged.looked_up),
            judged.alignment,
            self.max_length + 1,
            self.policy,
            lambda number, block: (number, block) in cached,
        )

    def hit(self, length: int | None) -> Candidate | None:
        """The hit of that length, if lookup may serve it."""
        return next((hit for hit in self.space.hits if hit.length == length), None)


def _cases(subject: LookupSubject, judged: Configuration | Layout) -> Iterator[Case]:
    one_group = isinstance(judged, Configuration) or len(judged.groups) == 1
    policy = LookaheadHorizon.CAPPED if one_group else subject.lookahead_horizon
    lookup = subject.lookup(judged)
    concrete = Concrete(lookup)
    refusal: CannotJudge | None = None
    for max_length in judged.max_lengths:
        space = space_of(judged, lookup, max_length, policy)
        request = _Request(judged, lookup, max_length, policy, space)
        if request.sequential and request.num_blocks > _FEW:
            if max_length == judged.max_lengths[0]:
                raise Predates("without a margin only requests of few blocks are judged")
            break
        before = concrete.runs
        try:
            if refusal is None:
                exploration = explore(space, lookup, max_length, merging=not request.sequential)
        except CannotJudge as error:
            refusal = error
        if refusal is not None:  # nothing is proved, but a wrong answer is wrong all the same
            answers = list(concrete.answers(space, max_length))
            yield Case(0, 0, _evidence_of(request, answers), runs=concrete.runs - before)
            continue
        evidence = _evidence_in(request, exploration)
        counted = _counted(request, exploration.paths) if evidence else {}
        otherwise = list(concrete.disagreeing(space, max_length, exploration))
        evidence += _evidence_of(request, otherwise)
        runs = concrete.runs - before
        states = 1 << request.num_blocks
        coarse = exploration.coarse
        yield Case(len(exploration.paths), states, evidence, coarse, counted, runs)
        if otherwise:
            raise CannotJudge("the lookup does not answer as it does when it is explored")
    if refusal is not None:
        raise refusal
    before = concrete.runs
    concrete.do_again(subject.lookup(judged))
    yield Case(0, 0, (), runs=concrete.runs - before)


def _evidence_of(
    request: _Request, answers: Sequence[tuple[frozenset[Question], LookupAnswer | Exception]]
) -> list[LookupEvidence]:
    """The evidence in answers that were given in whole cache states."""
    wrong = []
    for cached, answer in answers:
        path = Path({q: q in cached for q in request.space.keys.values()}, answer, 1)
        if any(True for _ in _diverging_completions(request, path)):
            wrong.append(_evidence(request, cached, answer))
    return [_replayed(request, evidence) for evidence in smallest(wrong).values()]


def _evidence_in(request: _Request, exploration: Exploration) -> list[LookupEvidence]:
    """The smallest evidence of each signature among the paths, replayed."""
    diverging = smallest(
        _evidence(request, cached, path.answer)
        for path in exploration.paths
        for cached in _diverging_completions(request, path)
    )
    return [_replayed(request, evidence) for evidence in diverging.values()]


def _counted(request: _Request, paths: Iterable[Path]) -> Counter[tuple[Code, Row]]:
    """How many cache states diverge, by code and by what the lookup answers."""
    counted: Counter[tuple[Code, Row]] = Counter()
    needs = [Need(hit.length, hit.required) for hit in request.space.hits]
    for path in paths:
        if not any(True for _ in _diverging_completions(request, path)):
            continue
        if request.sequential:
            counted.update(_one_by_one(request, path))
        else:
            judging = _judging(request, path.answer)
            questions, most = request.space.questions, request.max_length
            counted.update(diverging_states(path, questions, needs, judging, most))
    return counted


def _judging(request: _Request, answer: LookupAnswer | Exception) -> Judging:
    """How the cache states of a path with that answer are judged, by `_classified`."""
    judged, malformed = request.judged, _malformed(request, answer)
    words, needed = str(malformed and malformed.defect), None
    if isinstance(answer, LookupAnswer):
        table = wrong_in_tables(judged, answer)
        words = "" if table is None else f"{table.spec}: {table.actual}"
        hit = request.hit(answer.hit_length)
        if hit is not None:
            read = read_by(judged, hit)
            needed = read, read if malformed else hit.required
    alone = isinstance(judged, Configuration)
    return Judging(
        needed,
        None if malformed is None else (malformed.code, words),
        Code.REQUIRED_BLOCK_UNCACHED if alone else Code.GROUP_LACKS_BLOCK,
        Code.HIT_TOO_SHORT,
    )


def read_by(judged: Configuration | Layout, hit: Candidate) -> frozenset[Question]:
    """The required blocks of a hit that attention reads: not the lookahead blocks."""
    sizes = [looked_up.group.block_size for looked_up in judged.looked_up]
    return frozenset((n, block) for n, block in hit.required if block < hit.length // sizes[n])


def _one_by_one(request: _Request, path: Path) -> Iterator[tuple[Code, Row]]:
    """The diverging cache states of a path where the hit that is due is no maximum."""
    held = frozenset(question for question, cached in path.answers.items() if cached)
    unasked = sorted(frozenset(request.space.keys.values()) - path.answers.keys())
    for more in chain.from_iterable(combinations(unasked, n) for n in range(len(unasked) + 1)):
        cached = held.union(more)
        if _is_wrong(request, cached, path.answer):
            found = _evidence(request, cached, path.answer)
            defect = found.signature.defect
            yield defect.code, (request.max_length, found.actual_hit, found.spec_hit, str(defect))


def _is_wrong(
    request: _Request, cached: frozenset[Question], answer: LookupAnswer | Exception
) -> bool:
    """Whether the answer is wrong when exactly ``cached`` is cached."""
    if _malformed(request, answer) is not None:
        return True
    assert isinstance(answer, LookupAnswer)  # _malformed covers exceptions
    hit = request.hit(answer.hit_length)
    assert hit is not None
    return not hit.required <= cached or hit.length != request.expected(cached)


def _diverging_completions(request: _Request, path: Path) -> Iterator[frozenset[Question]]:
    """Cache states of the path at which the answer is wrong, one for each way to be wrong."""
    held = frozenset(question for question, cached in path.answers.items() if cached)
    missing = path.answers.keys() - held
    served = None
    if isinstance(path.answer, LookupAnswer):
        served = request.hit(path.answer.hit_length)
    if served is None or _malformed(request, path.answer):
        yield held
        if served is not None and missing.isdisjoint(read_by(request.judged, served)):
            yield held | (served.required - missing)
        return
    if not served.required <= held:
        yield held  # blocks that were not asked about are missing in this completion
    if request.sequential:  # more blocks never shorten what is left, so all of them show a lost hit
        everything = held | (frozenset(request.space.keys.values()) - missing)
        if request.expected(everything) > served.length:
            yield everything
        return
    for hit in request.space.hits:
        if hit.length > served.length and missing.isdisjoint(hit.required):
            yield held | hit.required


def _malformed(request: _Request, answer: LookupAnswer | Exception) -> Signature | None:
    """What is wrong with an answer that is wrong whatever is cached."""
    judged = request.judged
    several = isinstance(judged, Layout)
    if isinstance(answer, Exception):
        claim = _COMMON_LONGEST if several else _LONGEST
        return _signature(judged, claim, Divergence.CRASH, crash_defect(answer))
    if request.hit(answer.hit_length) is None:
        claim = _COMMON_VALID if several else _EAGLE if judged.drops_block else _TABLE
        off = Defect.of(Code.HIT_OFF_BOUNDARY, modules=_modules(judged))
        return _signature(judged, claim, Divergence.UNSOUND, off)
    found = wrong_in_tables(judged, answer)
    claim = _COMMON_VALID if several else _TABLE
    return None if found is None else _signature(judged, claim, Divergence.UNSOUND, found.defect)


def _evidence(
    request: _Request, cached: frozenset[Question], answer: LookupAnswer | Exception
) -> LookupEvidence:
    """What is wrong with ``answer`` when exactly ``cached`` is cached."""
    judged = request.judged
    expected = request.expected(cached)
    signature, spec = (
        _classified(request, cached, expected, answer),
        f"hit of {in_tokens(expected)}",
    )
    if isinstance(answer, Exception):
        actual, actual_hit = f"raises {answer!r}", None
    else:
        actual, actual_hit = f"hit of {in_tokens(answer.hit_length)}", answer.hit_length
        wrong = wrong_in_tables(judged, answer)
        if wrong is not None and wrong.defect == signature.defect:
            spec, actual = wrong.spec, wrong.actual
    return LookupEvidence(
        signature=signature,
        configuration=judged,
        cached=tuple(
            frozenset(block for owner, block in cached if owner == number)
            for number in range(len(judged.looked_up))
        ),
        max_length=request.max_length,
        spec=spec,
        actual=actual,
        spec_hit=expected,
        actual_hit=actual_hit,
    )


def _replayed(request: _Request, evidence: LookupEvidence) -> LookupEvidence:
    """The evidence, once a concrete run of the lookup and of the spec has confirmed it."""
    judged = request.judged
    cap, horizon = judged.reach(request.max_length, request.policy)
    groups = tuple(looked_up.group for looked_up in judged.looked_up)

    def held(number: int, block: int) -> bool:
        return block in evidence.cached[number]

    if request.sequential:
        length = request.max_length + 1
        expected = longest_joint_hit(groups, judged.alignment, length, request.policy, held)
    else:
        expected = longest_valid_hit(groups, judged.alignment, cap, horizon, held)

    def again(cached: frozenset[Question]) -> LookupEvidence:
        answer = replay(request.space, request.lookup, request.max_length, cached)
        return _evidence(request, cached, answer)

    return confirmed(evidence, expected, again)


def confirmed(
    evidence: _Confirmed, expected: int, again: Callable[[frozenset[Question]], _Confirmed]
) -> _Confirmed:
    """The evidence, once ``again`` gives it twice for its cache state, and the hit is as expected.

    Raises `CannotJudge` when the two differ, and `InternalError` when they are not as it was.
    """
    cached = frozenset(
        (number, block) for number, blocks in enumerate(evidence.cached) for block in blocks
    )
    # The text of an exception may hold addresses, which differ from run to run.
    first, second = (replace(again(cached), actual=evidence.actual) for _ in range(2))
    if first != second:
        raise CannotJudge("lookup does not return the same when it is run twice")
    if expected != evidence.spec_hit or first != evidence:
        raise InternalError(f"a counterexample does not replay: {evidence}")
    return evidence


def _classified(
    request: _Request,
    cached: frozenset[Question],
    expected: int,
    answer: LookupAnswer | Exception,
) -> Signature:
    """What is wrong with an answer; a right one does not replay."""
    judged = request.judged
    served = None if isinstance(answer, Exception) else answer.hit_length
    hit = request.hit(served)
    malformed = _malformed(request, answer)
    if served is None or hit is None or (malformed and hit.required <= cached):
        assert malformed
        return malformed
    whole = all(
        max(expected, served) // looked_up.group.block_size >= looked_up.shape.tail
        for looked_up in judged.looked_up
    )
    run = "whole" if whole else "cut"
    if not hit.required <= cached:
        _, what = worst_missing(judged, hit.required - cached, hit.length)
        if malformed and what == "lookahead":
            return malformed  # attention reads what the tables lack
        if isinstance(judged, Layout):
            return _missing(judged, hit.required - cached, hit.length)
        claim = _EAGLE if judged.group.eagle else _TABLE
        block = what if what == "lookahead" else None
        wrong = Defect.of(Code.REQUIRED_BLOCK_UNCACHED, run=run, block=block)
        return _signature(judged, claim, of_missing(what), wrong)
    if served >= expected:
        raise InternalError(f"a right answer is taken for a wrong one ({judged})")
    short = (expected - served) // judged.alignment
    several = any(looked_up.shape.segment > 1 for looked_up in judged.looked_up)
    claim = _COMMON_LONGEST if isinstance(judged, Layout) else _LONGEST
    lost = Defect.of(
        Code.HIT_TOO_SHORT,
        run=run,
        short="one" if short == 1 else "several",
        segment="several" if several else "one",
    )
    return _signature(judged, claim, Divergence.LOST_HIT, lost)


def _missing(layout: Layout, missing: frozenset[Question], served: int) -> Signature:
    """Which kind of group lacks a block of the served hit, in tokens, and which block."""
    (number, _), what = worst_missing(layout, missing, served)
    flagged = sum(looked_up.group.eagle for looked_up in layout.looked_up)
    dropping = "several" if flagged > 1 else "one" if flagged else "none"
    modules = _modules(layout)
    lacks = Defect.of(Code.GROUP_LACKS_BLOCK, block=what, dropping=dropping, modules=modules)
    wrong = _signature(layout, _COMMON_VALID, of_missing(what), lacks)
    return replace(wrong, kind=layout.looked_up[number].group.kind)


def _modules(judged: Configuration | Layout) -> str | None:
    """The parameter of a divergence where draft layers look further ahead than the next token."""
    ahead = max(looked_up.group.prefill_lookahead for looked_up in judged.looked_up)
    return "several" if ahead > 1 else None


def worst_missing(
    judged: Configuration | Layout, missing: frozenset[Question], served: int
) -> tuple[Question, str]:
    """The missing block of a served hit, in tokens, that matters most, and what it is to the hit.

    That is "required", or "lookahead" where nothing else is missing.
    """
    sizes = [looked_up.group.block_size for looked_up in judged.looked_up]
    read = {(number, block) for number, block in missing if block < served // sizes[number]}
    return min(read or missing), "required" if read else "lookahead"


def of_missing(block: str | None) -> Divergence:
    """What a hit without a block is: attention does not read the lookahead block.

    It only shows that the entries of draft layers were computed for the same next token.
    """
    return Divergence.WRONG_DRAFTS if block == "lookahead" else Divergence.UNSOUND


def _signature(
    judged: Configuration | Layout, claim: str, divergence: Divergence, defect: Defect
) -> Signature:
    return Signature(claim, divergence, judged.kinds, judged.drops_block, defect)
