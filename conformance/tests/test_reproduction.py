"""Each kind of evidence is shown on a whole manager that has the fault, and on no other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.emulation.releases import Policies, ReplayPolicy
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import (
    AdmissionEvidence,
    Evidence,
    FineLookupEvidence,
    HashEvidence,
    LookupEvidence,
    PoolEvidence,
    RetentionEvidence,
    SharedPrefixEvidence,
    smallest,
)
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.playing.expectations import Registered, Returns, Served, TableLengths
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.reproduce.attempts import Rules
from hitproof.conformance.reproduce.reproduction import reproduce
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.hashing import Prompt
from hitproof.conformance.subject.managers import Hit, Manager
from hitproof.conformance.tests import reference_subject
from hitproof.conformance.tests.broken_managers import (
    Broken,
    Forgets,
    ShorterHit,
    StaleHit,
    Wrapped,
    patched,
    raises,
)
from hitproof.conformance.tests.editing import CASES, edited, faults
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.conformance.tests.subjects_for_tests import (
    BrokenSubject,
    longer_tail,
    no_lookahead,
    shorter_tail,
)
from hitproof.conformance.tests.test_pool_check import PLAIN
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import EagleGroups

FULL, SLIDING, MAMBA = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
REFERENCE = ReferenceManagers()
RULES = Rules(LookaheadHorizon.HASHED, EagleGroups.FLAGGED)
WINDOW = single_group(SLIDING, 2, 1, 4, False, 6)
SEGMENTS = single_group(SLIDING, 1, 3, 2, True, 6)


FAULTS_OF_CHECKS = faults(CASES / "reference.toml", reference_subject.__name__)


def evidence_of(subject: Any, judged: Configuration | Layout, claim: str) -> Evidence:
    """The smallest evidence against a claim."""
    found = smallest(CHECKS[claim](subject, judged).evidence)
    against = [e for s, e in found.items() if s.claim == claim and "hashes" not in str(s.defect)]
    return min(against, key=lambda e: e.size)


LongerHit = patched(  # of requests that are not the first
    "LongerHit",
    get_computed_blocks=lambda m, name: (
        m.inner if name == "a" else StaleHit(m.inner)
    ).get_computed_blocks(name),
)
DropsSalt = patched(
    "DropsSalt",
    add_request=lambda m, name, r: m.inner.add_request(name, replace(r, cache_salt=None)),
)
DropsPath = patched(
    "DropsPath",
    add_request=lambda m, name, r: m.inner.add_request(name, replace(r, lora_path=None)),
)


class Raises(Wrapped):
    """Raises when the second request is looked up."""

    def get_computed_blocks(self, name: str) -> Hit:
        if name == "b":
            raise ValueError(name)
        return self.inner.get_computed_blocks(name)


Refuses = patched("Refuses", allocate_slots=raises(ValueError("a fault")))


class LongTables(Wrapped):
    """Returns a block too many in each table."""

    def get_computed_blocks(self, name: str) -> Hit:
        hit = self.inner.get_computed_blocks(name)
        if name == "a":
            return hit
        return Hit(hit.length, tuple((*table, 0) for table in hit.tables))


def dense(engine: EngineConfiguration) -> Manager:
    """A manager that thins out nothing."""
    plain = replace(engine, retention_interval=None)
    return ReferenceManagers(Policies(thinned_kinds=frozenset())).start(plain)


class Starts:
    """A subject of one function."""

    def __init__(self, start: Callable[[EngineConfiguration], Manager]) -> None:
        self.start = start


UNSOUND = evidence_of(
    BrokenSubject(shape=shorter_tail), WINDOW, "hit_has_every_block_attention_reads"
)
LOST = evidence_of(BrokenSubject(shape=longer_tail), WINDOW, "lookup_returns_longest_valid_hit")
WASTED = evidence_of(BrokenSubject(mask=longer_tail), SEGMENTS, "mask_keeps_only_reachable_blocks")
LEFT_OUT = evidence_of(
    BrokenSubject(mask=no_lookahead), SEGMENTS, "mask_keeps_every_reachable_block"
)
with edited(FAULTS_OF_CHECKS["retention"]["keeps everything"]):
    KEPT = evidence_of(ReferenceSubject(), WINDOW, "retention_keeps_only_promised_blocks")
with edited(FAULTS_OF_CHECKS["retention"]["forgets its last block"]):
    FORGOTTEN = evidence_of(ReferenceSubject(), WINDOW, "retention_keeps_resends_and_extensions")
with edited(FAULTS_OF_CHECKS["sharing"]["salts"]):
    SALTS = evidence_of(ReferenceSubject(), PLAIN, "reused_content_is_determined_by_the_hit")
with edited(FAULTS_OF_CHECKS["sharing"]["paths"]):
    PATHS = evidence_of(ReferenceSubject(), PLAIN, "reused_content_is_determined_by_the_hit")
LAYOUT = Layout((Group(FULL, 2), Group(SLIDING, 1, 2, eagle=True), Group(MAMBA, 2)), 6, True, 1)


SHORT = Defect.of(Code.HIT_TOO_SHORT, run="whole", short="one")
MISSED = Defect.of(Code.JUNCTION_NOT_HIT, found="nothing", retention="latest")


def lookup_evidence(
    judged: Configuration | Layout, divergence: Divergence, **values: Any
) -> LookupEvidence:
    """Evidence of a lookup, as its check would give it."""
    signature = Signature("common_hit_is_the_longest", divergence, judged.kinds, True, SHORT)
    return LookupEvidence(
        signature, judged, "", "", **{"max_length": 5, "actual_hit": None, **values}
    )


ALL_OF_LAYOUT = (frozenset({0, 1}), frozenset({1, 2, 3, 4}), frozenset({0, 1}))
JOINT = lookup_evidence(LAYOUT, Divergence.LOST_HIT, cached=ALL_OF_LAYOUT, spec_hit=4, actual_hit=2)
CRASH = lookup_evidence(WINDOW, Divergence.CRASH, cached=(frozenset({0}),), spec_hit=2)
TABLES = lookup_evidence(
    WINDOW, Divergence.UNSOUND, cached=(frozenset({0}),), spec_hit=2, actual_hit=2
)
JUNCTION = SharedPrefixEvidence(
    Signature("retention_keeps_junctions", Divergence.LOST_HIT, SLIDING, False, MISSED),
    WINDOW,
    spec="",
    actual="",
    num_tokens=14,
    shared=8,
    interval=0,
    spec_hit=8,
    actual_hit=0,
)

RAISED = RetentionEvidence(
    replace(FORGOTTEN.signature, divergence=Divergence.CRASH),
    WINDOW,
    spec="",
    actual="",
    num_tokens=8,
    interval=0,
    registered=frozenset(),
    block=None,
    decisive_hit=0,
)

FAULTS: dict[str, tuple[Evidence, Any, type]] = {
    "a hit without its tail": (UNSOUND, Broken(LongerHit), Served),
    "a hit too short": (LOST, Broken(ShorterHit), Served),
    "a joint hit too short": (JOINT, Broken(ShorterHit), Served),
    "a crash": (CRASH, Broken(Raises), Returns),
    "tables longer than the hit": (TABLES, Broken(LongTables), TableLengths),
    "an unreachable block registered": (WASTED, Starts(dense), Registered),
    "a reachable block left out": (LEFT_OUT, Broken(Forgets), Served),
    "a block kept for no hit": (KEPT, Starts(dense), Registered),
    "registration that raises": (RAISED, Broken(Refuses), Returns),
    "a promised hit forgotten": (
        FORGOTTEN,
        ReferenceManagers(Policies(replays=ReplayPolicy.ALIGNMENT_DROPPED)),
        Served,
    ),
    "a junction not kept": (JUNCTION, ReferenceManagers(Policies(junctions=False)), Served),
    "a salt that is not hashed": (SALTS, Broken(DropsSalt), Served),
    "an adapter's path that is not hashed": (PATHS, Broken(DropsPath), Served),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_shown_on_a_manager_that_has_it(name: str) -> None:
    evidence, subject, kind = FAULTS[name]
    found = reproduce(evidence, subject, RULES)
    assert (found.detail, type(found.expected)) == ("", kind)
    assert found.history is not None
    assert len(found.history.requests) <= 3


@pytest.mark.parametrize("name", FAULTS)
def test_a_manager_without_the_fault_does_not_show_it(name: str) -> None:
    evidence, _, _ = FAULTS[name]
    found = reproduce(evidence, REFERENCE, RULES)
    assert found.history is None
    assert found.detail in (
        "the manager does what the spec demands there",
        "the manager does not raise",
    )


def test_evidence_survives_json() -> None:
    for evidence, _, _ in FAULTS.values():
        assert Evidence.from_json(evidence.as_json()) == evidence


def test_a_cache_state_with_a_block_that_is_never_registered_is_out_of_reach() -> None:
    found = reproduce(JOINT, Broken(Forgets), RULES)
    assert found.history is None
    assert "of group 2 is not registered, so the state is out of reach" in found.detail


def test_another_fault_is_not_taken_for_this_one() -> None:
    assert isinstance(LOST, LookupEvidence)
    found = reproduce(replace(LOST, max_length=11), Broken(LongerHit), RULES)
    assert found.history is None
    assert "wrong in another way" in found.detail
    assert "the manager raises ValueError" in reproduce(LOST, Broken(Raises), RULES).detail


@pytest.mark.parametrize(
    ("evidence", "detail"),
    [
        (PoolEvidence(LOST.signature, WINDOW, "", "", ("take one block",), ()), "pool alone"),
        (AdmissionEvidence(LOST.signature, WINDOW, "", "", ("one step",)), "it was found on one"),
        (
            FineLookupEvidence(LOST.signature, WINDOW, "", "", frozenset(), 4, 2, 0),
            "fine-grained lookup",
        ),
        (
            HashEvidence(
                replace(SALTS.signature, defect=Defect.of(Code.HASH_MISMATCH, hashes="lookahead")),
                WINDOW,
                "",
                "",
                (),
                (Prompt((0,) * 3), Prompt((0,) * 3, "x")),
            ),
            "hashes that look ahead",
        ),
    ],
)
def test_what_no_history_can_show_says_so(evidence: Evidence, detail: str) -> None:
    found = reproduce(evidence, REFERENCE, RULES)
    assert (found.history, found.expected) == (None, None)
    assert detail in found.detail


def managers_seen(wrap: Callable[[ReferenceManager], Manager]) -> Sequence[Manager]:
    """Every manager that a reproduction starts."""
    seen: list[Manager] = []

    def start(engine: EngineConfiguration) -> Manager:
        seen.append(wrap(REFERENCE.start(engine)))
        return seen[-1]

    reproduce(LOST, Starts(start), RULES)
    return seen


def test_attempts_are_few() -> None:
    assert 1 <= len(managers_seen(Wrapped)) <= 60
