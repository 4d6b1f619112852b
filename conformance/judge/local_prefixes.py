"""Judging the local prefix that a manager reports to a KV connector (`spec.connector`)."""

from collections.abc import Callable, Iterator

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Part, Table
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.judge.judged_lookups import Cached, Cap, Entries, LookupJudge
from hitproof.conformance.playing.expectations import LocalPrefix
from hitproof.conformance.subject.managers import Hit
from hitproof.conformance.words import in_tokens, kinds_of
from hitproof.spec.claims import Divergence
from hitproof.spec.connector import (
    is_fully_loaded,
    longest_local_prefix,
    may_diverge,
    valid_local_boundary,
)
from hitproof.spec.hits import valid_boundary, valid_hit
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import Formula

_STATES_ONLY = "local_prefix_lacks_states_only"
_LONGEST = "local_prefix_is_the_longest"

_Valid = Callable[..., Formula]


class LocalPrefixJudge(LookupJudge):
    """Judges local prefixes, where they may differ from hits, and hits end on boundaries only."""

    @property
    def judges_local_prefixes(self) -> bool:
        """Whether a local prefix of the configuration may be longer than its hit.

        Hashes do not look ahead where there is a KV connector.
        """
        sequential = self._policy is LookaheadHorizon.CANDIDATE
        connects = not self._engine.num_hash_lookahead_tokens
        return may_diverge(self._groups) and connects and not self._fine and not sequential

    def local_prefix(
        self,
        request: str,
        num_tokens: int,
        prefix: Hit,
        flagged: bool,
        cached: Cached,
        cap: Cap = None,
    ) -> Violation | None:
        """Judge what is reported for a request of ``num_tokens`` tokens, of at most ``cap``."""
        entries = self._entries(request, num_tokens, cached)
        most = num_tokens - 1 if cap is None else cap
        reach = self._reach(most, num_tokens)
        skips = self._requests[request].skip_reading_prefix_cache
        due = 0
        if not skips:
            due = longest_local_prefix(self._groups, self._alignment, most, reach, entries)
        kinds = kinds_of(self._hit_groups)
        _, eagle = self._kinds()

        def violation(signature: Signature, damages: tuple[Part, ...] = ()) -> Violation:
            has_states = valid_hit(self._groups, self._alignment, due, most, reach, entries)
            expected = LocalPrefix(request, due, lacks_state=not has_states)
            actual = f"local prefix of {in_tokens(prefix.length)}{', flagged' if flagged else ''}"
            return Violation(
                signature,
                f"local prefix of {in_tokens(due)}" + ("" if cap is None else f", at most {cap}"),
                f"{actual}, tables {prefix.tables}",
                expected if cap is None else None,
                damages=damages,
            )

        def unsound(defect: Defect) -> Violation:
            of = Divergence.UNSOUND
            return violation(Signature.booked(defect, of, kinds, eagle, _STATES_ONLY))

        if skips and prefix.length:
            return unsound(Defect(Code.HIT_FOR_SKIPPING_REQUEST))
        if prefix.length % self._alignment or not 0 <= prefix.length <= most:
            return unsound(Defect(Code.LOCAL_PREFIX_OFF_BOUNDARY))
        if lacking := list(self._lacking(prefix.length, flagged, most, reach, entries)):
            groups = dict.fromkeys(number for number, _ in lacking)
            damaged = tuple(Table(request, number, prefix.length) for number in groups)
            return violation(lacking[0][1], damaged)
        if prefix.length < due:
            alone = any(
                valid_hit(self._asked_alone(group), self._alignment, length, most, reach, entries)
                for group in dict.fromkeys(g for g in self._groups if g.prefix_cacheable)
                for length in range(most // self._alignment * self._alignment, due, -1)
            )
            short = Defect.of(Code.LOCAL_PREFIX_TOO_SHORT, alone="yes" if alone else "no")
            return violation(Signature(_LONGEST, Divergence.LOST_HIT, kinds, eagle, short))
        if not flagged:
            return self.wrong_table(request, num_tokens, prefix, cached)
        return self.wrong_table(request, num_tokens, prefix, cached, is_fully_loaded)

    def _lacking(
        self, length: int, flagged: bool, cap: int, horizon: int, entries: Entries
    ) -> Iterator[tuple[int, Signature]]:
        """The groups that lack a block of a local prefix, those of more than lookahead first."""
        for drops in (False, True):
            for number, group in enumerate(self._groups):
                loaded = is_fully_loaded(group.kind)
                valid: _Valid = valid_local_boundary if loaded and flagged else valid_boundary
                alone = self._asked_alone(group, drops)
                if not group.prefix_cacheable or valid_hit(
                    alone, self._alignment, length, cap, horizon, entries, valid
                ):
                    continue
                lacks = Defect.of(
                    Code.LOCAL_PREFIX_LACKS_BLOCK,
                    block="state" if loaded else "lookahead" if drops else "required",
                    flagged="yes" if flagged else "no",
                )
                divergence = Divergence.WRONG_DRAFTS if drops else Divergence.UNSOUND
                yield number, self.of_group(number, _STATES_ONLY, lacks, divergence)
