"""The check of what lookup tells a KV connector that loads Mamba states (`spec.connector`)."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from hitproof.conformance.checks import explored
from hitproof.conformance.checks.block_tables import wrong_in_tables
from hitproof.conformance.checks.counting import Judging, Need, diverging_states
from hitproof.conformance.checks.explored import Answer, Request
from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.checks.spaces import of_missing, read_by, space_of, worst_missing
from hitproof.conformance.exploration.explorer import Path, replay
from hitproof.conformance.exploration.symbolic import Candidate, Question
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import ConnectorEvidence
from hitproof.conformance.findings.footprints import Row
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import InternalError
from hitproof.conformance.subject.lookups import ConnectorSubject, Lookup, LookupAnswer
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.connector import is_fully_loaded, longest_local_prefix, may_diverge
from hitproof.spec.groups import GroupKind
from hitproof.spec.hits import longest_valid_hit
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.releases.horizons import LookaheadHorizon

_STATES_ONLY = "local_prefix_lacks_states_only"
_LONGEST = "local_prefix_is_the_longest"

_FEW = 8
"""Tokens that show whether lookup knows full attention from its absence."""


def is_judged(layout: Layout) -> bool:
    """Whether the local prefix may differ from the hit: Mamba beside others, hits on boundaries.

    Elsewhere the local prefix is the hit, which other claims are about. Without full attention it
    is the hit as well, and few tokens show whether lookup treats it so.
    """
    kinds = {looked_up.group.kind for looked_up in layout.looked_up}
    return (
        len(layout.groups) > 1
        and GroupKind.MAMBA in kinds
        and (may_diverge(layout.groups) or layout.num_tokens <= _FEW)
        and not is_fine_grained(layout.groups, layout.hash_block_size)
    )


def check_local_prefix(subject: ConnectorSubject, layout: Layout) -> CheckResult:
    """Judge the lookup for connectors for every cache state, up to the bound in tokens.

    A layout on which hits may end inside blocks settles nothing.
    """
    if not is_judged(layout):
        return CheckResult({}, (), 0, 0)
    return finished((_STATES_ONLY, _LONGEST), partial(_cases, subject, layout))


def needed(layout: Layout, required: frozenset[Question], flagged: bool) -> frozenset[Question]:
    """The questions ``required`` by a hit that a local prefix requires, too, flagged or not."""
    if not flagged or not may_diverge(layout.shared):
        return required
    return frozenset(question for question in required if not _is_state(layout, question))


def _is_state(layout: Layout, question: Question) -> bool:
    return bool(is_fully_loaded(layout.looked_up[question[0]].group.kind))


@dataclass(frozen=True)
class _Request(Request[ConnectorEvidence]):
    """A lookup for connectors, and how its answers are judged."""

    layout: Layout
    policy: LookaheadHorizon

    def is_state(self, question: Question) -> bool:
        """Whether a question is about what a connector loads anyway."""
        return _is_state(self.layout, question)

    def needs(self, hit: Candidate, flagged: bool) -> frozenset[Question]:
        """What must be cached for a local prefix of that length, flagged or not."""
        return needed(self.layout, hit.required, flagged)

    def expected(self, cached: frozenset[Question]) -> Candidate:
        """The expected local prefix when exactly ``cached`` is cached."""
        return max(
            (hit for hit in self.space.hits if self.needs(hit, True) <= cached),
            key=lambda hit: hit.length,
        )

    def hit(self, answer: LookupAnswer) -> Candidate | None:
        """The local prefix that was served, if one may be of that length."""
        return next((hit for hit in self.space.hits if hit.length == answer.hit_length), None)

    def due(self, cached: frozenset[Question]) -> int:
        """Asks the spec itself, see `Request.due`."""
        cap, horizon = self.layout.reach(self.max_length, self.policy)
        return longest_local_prefix(
            tuple(looked_up.group for looked_up in self.layout.looked_up),
            self.layout.alignment,
            cap,
            horizon,
            lambda number, block: (number, block) in cached,
        )

    def contradicted(self, cached: frozenset[Question], answer: Answer) -> Iterator[str]:
        """Decided by each claim's own sentence, not by what the divergence is booked under."""
        if isinstance(answer, Exception):
            yield _LONGEST
            return
        if answer.hit_length != self.expected(cached).length:
            yield _LONGEST
        hit = self.hit(answer)
        lacks = hit is None or not self.needs(hit, answer.diverged) <= cached
        if lacks or wrong_in_tables(self.layout, answer):
            yield _STATES_ONLY

    def diverging_completions(self, path: Path) -> Iterator[frozenset[Question]]:
        """Cache states of the path at which the answer is wrong, one for each way to be wrong."""
        held = frozenset(question for question, cached in path.answers.items() if cached)
        missing = path.answers.keys() - held
        answer = path.answer
        if isinstance(answer, Exception) or (served := self.hit(answer)) is None:
            yield held
            return
        needs = self.needs(served, answer.diverged)
        malformed = wrong_in_tables(self.layout, answer)
        if malformed or not needs <= held:
            yield held  # blocks that were not asked about are missing in this completion
        if malformed and missing.isdisjoint(read_by(self.layout, served) & needs):
            yield held | (needs - missing)
        for hit in self.space.hits:
            needed = self.needs(hit, True)
            if hit.length > served.length and missing.isdisjoint(needed):
                yield held | needed
                yield held | (frozenset(self.space.keys.values()) - missing)

    def evidence(self, cached: frozenset[Question], answer: Answer) -> ConnectorEvidence:
        """What is wrong with ``answer`` when exactly ``cached`` is cached."""
        expected = self.expected(cached)
        lacks_state = not expected.required <= cached
        signature = _classified(self, cached, expected, answer)
        spec = _in_words(expected.length, lacks_state)
        if isinstance(answer, Exception):
            actual, actual_hit = f"raises {answer!r}", None
        else:
            actual, actual_hit = _in_words(answer.hit_length, answer.diverged), answer.hit_length
            wrong = wrong_in_tables(self.layout, answer)
            if wrong is not None and wrong.defect == signature.defect:
                spec, actual = wrong.spec, wrong.actual
        return ConnectorEvidence(
            signature=signature,
            configuration=self.layout,
            cached=tuple(
                frozenset(block for owner, block in cached if owner == number)
                for number in range(len(self.layout.looked_up))
            ),
            max_length=self.max_length,
            spec=spec,
            actual=actual,
            spec_hit=expected.length,
            actual_hit=actual_hit,
        )

    def diverging_states(self, path: Path) -> Counter[tuple[Code, Row]]:
        """Counted from the path."""
        judging, questions = self._judging(path.answer), self.space.questions
        return diverging_states(path, questions, self._needs, judging, self.max_length)

    @cached_property
    def _needs(self) -> list[Need]:
        return [Need(hit.length, self.needs(hit, True)) for hit in self.space.hits]

    def _judging(self, answer: Answer) -> Judging:
        """How the cache states of a path with that answer are judged, by `_classified`."""
        malformed, needed = None, None
        if isinstance(answer, Exception):
            malformed = Code.RAISES_EXCEPTION, str(crash_defect(answer))
        elif (served := self.hit(answer)) is None:
            malformed = Code.LOCAL_PREFIX_OFF_BOUNDARY, ""
        else:
            blocks = self.needs(served, answer.diverged)
            read = read_by(self.layout, served) & blocks
            wrong = wrong_in_tables(self.layout, answer)
            needed = read, read if wrong else blocks
            if wrong is not None:
                malformed = wrong.defect.code, f"{wrong.spec}: {wrong.actual}"
        return Judging(
            needed, malformed, Code.LOCAL_PREFIX_LACKS_BLOCK, Code.LOCAL_PREFIX_TOO_SHORT
        )


def _cases(subject: ConnectorSubject, layout: Layout) -> Iterator[Case]:
    lookup = subject.connector_lookup(layout)
    requests = _requests(subject, layout, lookup)
    return explored.cases(requests, lookup, lambda: subject.connector_lookup(layout))


def _requests(subject: ConnectorSubject, layout: Layout, lookup: Lookup) -> Iterator[_Request]:
    policy = subject.lookahead_horizon
    for max_length in layout.max_lengths:
        space = space_of(layout, lookup, max_length, policy)
        replay(space, lookup, max_length, frozenset())  # which makes the request
        yield _Request(lookup, max_length, space, layout, policy)


def _in_words(length: int, flagged: bool) -> str:
    return f"local prefix of {in_tokens(length)}{', flagged' if flagged else ''}"


def _classified(
    request: _Request, cached: frozenset[Question], expected: Candidate, answer: Answer
) -> Signature:
    """What is wrong with an answer; a right one does not replay."""
    layout = request.layout
    signature = partial(Signature, kind=layout.kinds, eagle=layout.drops_block)
    unsound = partial(signature, _STATES_ONLY, Divergence.UNSOUND)
    if isinstance(answer, Exception):
        return signature(_LONGEST, Divergence.CRASH, defect=crash_defect(answer))
    served = request.hit(answer)
    if served is None:
        return unsound(defect=Defect(Code.LOCAL_PREFIX_OFF_BOUNDARY))
    missing = request.needs(served, answer.diverged) - cached
    wrong = wrong_in_tables(layout, answer)
    question, what = worst_missing(layout, missing, served.length) if missing else (None, "")
    if question and not (wrong and what == "lookahead"):
        looked_up = layout.looked_up[question[0]]
        divergence, flagged = of_missing(what), "yes" if answer.diverged else "no"
        if request.is_state(question):
            what = "state"
        lacks = Defect.of(Code.LOCAL_PREFIX_LACKS_BLOCK, block=what, flagged=flagged)
        return signature(_STATES_ONLY, divergence, kind=looked_up.group.kind, defect=lacks)
    if wrong:
        return unsound(defect=wrong.defect)
    if served.length >= expected.length:
        raise InternalError(f"a right answer is taken for a wrong one ({layout})")
    alone = "yes" if _longest_alone(request, cached) > expected.length else "no"
    short = Defect.of(Code.LOCAL_PREFIX_TOO_SHORT, alone=alone)
    return signature(_LONGEST, Divergence.LOST_HIT, defect=short)


def _longest_alone(request: _Request, cached: frozenset[Question]) -> int:
    """The longest hit that is valid for some set of groups, in tokens."""
    layout = request.layout
    cap, horizon = layout.reach(request.max_length, request.policy)

    def alone(number: int) -> int:
        group = layout.looked_up[number].group
        held = {block for owner, block in cached if owner == number}
        return longest_valid_hit(
            (group,), layout.alignment, cap, horizon, lambda _, block: block in held
        )

    return max(map(alone, range(len(layout.looked_up))))
