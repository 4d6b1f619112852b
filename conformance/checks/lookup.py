"""The check of lookups: of one group by its own manager, of several groups by the coordinator."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, combinations

from hitproof.conformance.checks import explored
from hitproof.conformance.checks.block_tables import WrongTable, wrong_in_tables
from hitproof.conformance.checks.counting import Judging, Need, diverging_states
from hitproof.conformance.checks.explored import Answer, Request
from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.spaces import (
    can_resume,
    candidate,
    of_missing,
    out_of_reach,
    read_by,
    space_of,
    worst_missing,
)
from hitproof.conformance.exploration.explorer import Path
from hitproof.conformance.exploration.symbolic import Candidate, Question
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, is_possible, without_flags
from hitproof.conformance.subject.failures import CannotJudge, InternalError, Predates
from hitproof.conformance.subject.lookups import HorizonSubject, Lookup, LookupAnswer, LookupSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence, Status
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups
from hitproof.spec.releases.sequential import longest_joint_hit, one_pass_suffices
from hitproof.spec.terms import ceil_div

_TABLE = "hit_has_every_block_attention_reads"
_EAGLE = "eagle_needs_tail_plus_one"
_LONGEST = "lookup_returns_longest_valid_hit"
_COMMON_VALID = "common_hit_is_valid_for_every_group"
_COMMON_LONGEST = "common_hit_is_the_longest"


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
    answer: Answer,
) -> LookupEvidence | None:
    """What is wrong with one answer of a lookup when exactly ``cached`` is cached, if anything.

    The blocks in the answer's tables are `SymbolicBlock`s. Of ``lookup`` only the keys are asked.
    """
    space = space_of(judged, lookup, max_length, policy)
    request = LookupRequest(lookup, max_length, space, judged, policy)
    return request.evidence(cached, answer) if request.is_wrong(cached, answer) else None


_FEW = 10
"""Blocks of the longest requests that are explored without merging: up to 2^n runs."""


@dataclass(frozen=True)
class LookupRequest(Request[LookupEvidence]):
    """A lookup of one group or of several, and how its answers are judged."""

    judged: Configuration | Layout
    policy: LookaheadHorizon

    def wrong_table(self, answer: LookupAnswer) -> WrongTable | None:
        """What is wrong with the block tables of an answer, whatever is cached."""
        return wrong_in_tables(self.judged, answer)

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
        """The hit of that length, if lookup may serve it.

        One whose lookahead blocks are out of reach is only what attention reads of it.
        """
        if length is not None and self.out_of_reach(length):
            return Candidate(length, read_by(self.judged, candidate(self.judged, length)))
        return next((hit for hit in self.space.hits if hit.length == length), None)

    def out_of_reach(self, length: int) -> frozenset[Question]:
        """The lookahead blocks of a hit that ends within the cap that lookup cannot ask about."""
        cap, horizon = self.judged.reach(self.max_length, self.policy)
        return out_of_reach(self.judged, length, cap, horizon)

    @property
    def merging(self) -> bool:
        """False where the expected hit is no maximum."""
        return not self.sequential

    def due(self, cached: frozenset[Question]) -> int:
        """Asks the spec itself, see `Request.due`."""
        judged = self.judged
        cap, horizon = judged.reach(self.max_length, self.policy)
        groups = tuple(looked_up.group for looked_up in judged.looked_up)

        def held(number: int, block: int) -> bool:
            return (number, block) in cached

        if self.sequential:
            return longest_joint_hit(
                groups, judged.alignment, self.max_length + 1, self.policy, held
            )
        return longest_valid_hit(groups, judged.alignment, cap, horizon, held)

    def is_wrong(self, cached: frozenset[Question], answer: Answer) -> bool:
        """Whether the answer is wrong when exactly ``cached`` is cached."""
        if _malformed(self, answer) is not None:
            return True
        assert isinstance(answer, LookupAnswer)  # _malformed covers exceptions
        hit = self.hit(answer.hit_length)
        assert hit is not None
        return not hit.required <= cached or hit.length != self.expected(cached)

    def contradicted(self, cached: frozenset[Question], answer: Answer) -> Iterator[str]:
        """Decided by each claim's own sentence, not by what the divergence is booked under."""
        judged, several = self.judged, isinstance(self.judged, Layout)
        served = None if isinstance(answer, Exception) else answer.hit_length
        if served != self.expected(cached):
            yield _COMMON_LONGEST if several else _LONGEST
        if isinstance(answer, Exception):
            return
        hit, table = self.hit(served), self.wrong_table(answer)
        lacks = hit is None or not hit.required <= cached or bool(self.out_of_reach(hit.length))
        if several:
            if lacks or table:
                yield _COMMON_VALID
            return
        if table or not can_resume(judged, served, cached):
            yield _TABLE
        kept = table is not None and table.defect.code is Code.TABLE_LENGTH_WRONG
        if judged.looked_up[0].group.eagle and (lacks or kept):
            yield _EAGLE

    def diverging_completions(self, path: Path) -> Iterator[frozenset[Question]]:
        """Cache states of the path at which the answer is wrong, one for each way to be wrong."""
        held = frozenset(question for question, cached in path.answers.items() if cached)
        missing = path.answers.keys() - held
        served = None
        if isinstance(path.answer, LookupAnswer):
            served = self.hit(path.answer.hit_length)
        if served is None or _malformed(self, path.answer):
            yield held
            if served is not None and missing.isdisjoint(read_by(self.judged, served)):
                yield held | (served.required - missing)
            return
        if not served.required <= held:
            yield held  # blocks that were not asked about are missing in this completion
        if self.sequential:  # more blocks never shorten what is left: all of them show a lost hit
            everything = held | (frozenset(self.space.keys.values()) - missing)
            if self.expected(everything) > served.length:
                yield everything
            return
        for hit in self.space.hits:
            if hit.length > served.length and missing.isdisjoint(hit.required):
                yield held | hit.required

    def evidence(self, cached: frozenset[Question], answer: Answer) -> LookupEvidence:
        """What is wrong with ``answer`` when exactly ``cached`` is cached."""
        judged, expected = self.judged, self.expected(cached)
        signature = _classified(self, cached, expected, answer)
        spec = f"hit of {in_tokens(expected)}"
        if isinstance(answer, Exception):
            actual, actual_hit = f"raises {answer!r}", None
        else:
            actual, actual_hit = f"hit of {in_tokens(answer.hit_length)}", answer.hit_length
            wrong = self.wrong_table(answer)
            if wrong is not None and wrong.defect == signature.defect:
                spec, actual = wrong.spec, wrong.actual
        return LookupEvidence(
            signature=signature,
            configuration=judged,
            cached=tuple(
                frozenset(block for owner, block in cached if owner == number)
                for number in range(len(judged.looked_up))
            ),
            max_length=self.max_length,
            spec=spec,
            actual=actual,
            spec_hit=expected,
            actual_hit=actual_hit,
        )

    def diverging_states(self, path: Path) -> Counter[tuple[Code, Row]]:
        """Counted from the path, or one by one where the expected hit is no maximum."""
        if self.sequential:
            return Counter(self._one_by_one(path))
        judging, questions = self._judging(path.answer), self.space.questions
        return diverging_states(path, questions, self._needs, judging, self.max_length)

    @cached_property
    def _needs(self) -> list[Need]:
        return [Need(hit.length, hit.required) for hit in self.space.hits]

    def _one_by_one(self, path: Path) -> Iterator[tuple[Code, Row]]:
        """The diverging cache states of a path where the expected hit is no maximum."""
        held = frozenset(question for question, cached in path.answers.items() if cached)
        unasked = sorted(frozenset(self.space.keys.values()) - path.answers.keys())
        for more in chain.from_iterable(combinations(unasked, n) for n in range(len(unasked) + 1)):
            cached = held.union(more)
            if self.is_wrong(cached, path.answer):
                found = self.evidence(cached, path.answer)
                defect = found.signature.defect
                yield defect.code, (self.max_length, found.actual_hit, found.spec_hit, str(defect))

    def _judging(self, answer: Answer) -> Judging:
        """How the cache states of a path with that answer are judged, by `_classified`."""
        judged, malformed = self.judged, _malformed(self, answer)
        words, needed = str(malformed and malformed.defect), None
        if isinstance(answer, LookupAnswer):
            table = self.wrong_table(answer)
            words = "" if table is None else f"{table.spec}: {table.actual}"
            hit = self.hit(answer.hit_length)
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


def _cases(subject: LookupSubject, judged: Configuration | Layout) -> Iterator[Case]:
    lookup = subject.lookup(judged)
    requests = requests_of(subject, judged, lookup)
    return explored.cases(requests, lookup, lambda: subject.lookup(judged))


def requests_of(
    subject: HorizonSubject,
    judged: Configuration | Layout,
    lookup: Lookup,
    made: type[LookupRequest] = LookupRequest,
) -> Iterator[LookupRequest]:
    """The requests that are judged, from short to long, each one ``made``."""
    one_group = isinstance(judged, Configuration) or len(judged.groups) == 1
    policy = LookaheadHorizon.CAPPED if one_group else subject.lookahead_horizon
    for max_length in judged.max_lengths:
        space = space_of(judged, lookup, max_length, policy)
        request = made(lookup, max_length, space, judged, policy)
        if request.sequential and request.num_blocks > _FEW:
            if max_length == judged.max_lengths[0]:
                raise Predates("without a margin only requests of few blocks are judged")
            return
        yield request


def _malformed(request: LookupRequest, answer: Answer) -> Signature | None:
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
    found = request.wrong_table(answer)
    if found is not None:
        claim = _COMMON_VALID if several else _TABLE
        return _signature(judged, claim, Divergence.UNSOUND, found.defect)
    unasked = request.out_of_reach(answer.hit_length)
    return _lacking(judged, unasked, answer.hit_length, 0) if unasked else None


def _classified(
    request: LookupRequest, cached: frozenset[Question], expected: int, answer: Answer
) -> Signature:
    """What is wrong with an answer; a right one does not replay."""
    judged = request.judged
    served = None if isinstance(answer, Exception) else answer.hit_length
    hit = request.hit(served)
    malformed = _malformed(request, answer)
    if served is None or hit is None or (malformed and hit.required <= cached):
        assert malformed
        return malformed
    if not hit.required <= cached:
        missing = hit.required - cached
        _, what = worst_missing(judged, missing, hit.length)
        if malformed and what == "lookahead":
            return malformed  # attention reads what the tables lack
        return _lacking(judged, missing, hit.length, expected)
    if served >= expected:
        raise InternalError(f"a right answer is taken for a wrong one ({judged})")
    short = ceil_div(expected - served, judged.alignment)
    several = any(looked_up.shape.segment > 1 for looked_up in judged.looked_up)
    claim = _COMMON_LONGEST if isinstance(judged, Layout) else _LONGEST
    lost = Defect.of(
        Code.HIT_TOO_SHORT,
        run=_run(judged, expected),
        short="one" if short == 1 else "several",
        segment="several" if several else "one",
    )
    return _signature(judged, claim, Divergence.LOST_HIT, lost)


def _run(judged: Configuration | Layout, length: int) -> str:
    """Whether the runs that a hit requires, in tokens, are whole or start before block 0."""
    whole = all(
        length // looked_up.group.block_size >= looked_up.shape.tail
        for looked_up in judged.looked_up
    )
    return "whole" if whole else "cut"


def _lacking(
    judged: Configuration | Layout, missing: frozenset[Question], served: int, expected: int
) -> Signature:
    """What it is to serve a hit without these blocks (both hits in tokens)."""
    if isinstance(judged, Layout):
        return _missing(judged, missing, served)
    _, what = worst_missing(judged, missing, served)
    block, run = what if what == "lookahead" else None, _run(judged, max(expected, served))
    wrong = Defect.of(Code.REQUIRED_BLOCK_UNCACHED, run=run, block=block)
    return _signature(judged, _EAGLE if judged.group.eagle else _TABLE, of_missing(what), wrong)


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


def _signature(
    judged: Configuration | Layout, claim: str, divergence: Divergence, defect: Defect
) -> Signature:
    return Signature(claim, divergence, judged.kinds, judged.drops_block, defect)
