"""Footprints: counts are exact, and a known divergence that grows is noticed."""

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.checks import connector
from hitproof.conformance.checks.block_tables import wrong_in_tables
from hitproof.conformance.checks.lookup import check_common_hit, check_lookup, judge_answer
from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.spaces import space_of
from hitproof.conformance.exploration.explorer import replay
from hitproof.conformance.exploration.symbolic import Question
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.footprints import (
    Footprint,
    Growth,
    Judged,
    growth,
    in_words,
    name_of,
    place_of,
    play_at,
)
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.plays import Origin, Play, plays
from hitproof.conformance.judge.judged_replay import replay as play
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.ledger.ledger import Entry, LedgerError
from hitproof.conformance.ledger.records import (
    UNRELEASED,
    Reach,
    Record,
    choose,
    outside,
    path_of,
    read,
    shrunk,
    to_json,
)
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.brute_force import states
from hitproof.conformance.tests.editing import cases
from hitproof.conformance.tests.subjects_for_tests import (
    Answer,
    BrokenSubject,
    Shape,
    longer_tail,
    no_lookahead,
    shorter_tail,
    unchanged,
)
from hitproof.conformance.tests.test_common_hit_check import COMMON_BROKEN, small_layouts
from hitproof.conformance.tests.test_connector_check import CONNECTOR_BROKEN
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
WINDOW = single_group(SLIDING, 1, 2, 4, True, 9)
OTHER = single_group(SLIDING, 1, 2, 4, True, 11)


def nothing_beyond(most: int) -> Answer:
    """Serves nothing where it could serve more than ``most`` tokens."""

    def answer(found: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
        del pool
        tables: list[list[Any]] = [[] for _ in range(configuration.members)]
        return LookupAnswer(0, tables) if found.hit_length > most else found

    return answer


def one_boundary_less(found: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    """Serves what is surely wrong or lost, and is no state of the pool."""
    del pool
    length = max(found.hit_length - configuration.alignment, 0)
    blocks = length // configuration.group.block_size
    return LookupAnswer(length, [table[:blocks] for table in found.tables])


def raises(found: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
    del pool, configuration
    if found.hit_length:
        raise ValueError("it is long")
    return found


def by_brute_force(subject: Any, judged: Configuration | Layout) -> Counter[str]:
    """How many cache states diverge in all, by code, each state run on its own."""
    lookup, wrong = subject.lookup(judged), Counter[str]()
    several = isinstance(judged, Layout) and len(judged.groups) > 1
    policy = subject.lookahead_horizon if several else LookaheadHorizon.CAPPED
    for max_length in judged.max_lengths:
        space = space_of(judged, lookup, max_length, policy)
        for cached in states(space.keys.values()):
            answer = replay(space, lookup, max_length, cached)
            found = judge_answer(judged, lookup, max_length, policy, cached, answer)
            if found is not None:
                wrong[found.signature.code] += 1
    return wrong


def by_code(result: CheckResult) -> dict[str, int]:
    """How many cache states diverge, by code; signatures of one code share them."""
    return {signature.code: each.size for signature, each in result.footprints.items()}


@pytest.mark.parametrize(
    ("shape", "answer"),
    [
        (no_lookahead, None),
        (shorter_tail, None),
        (longer_tail, None),
        (unchanged, nothing_beyond(2)),
        (unchanged, one_boundary_less),
        (unchanged, raises),
    ],
)
def test_the_states_of_a_group_are_counted_exactly(shape: Shape, answer: Answer | None) -> None:
    for segment, window, eagle in itertools.product((1, 2), (2, 4), (False, True)):
        configuration = single_group(SLIDING, 2, segment, window, eagle, 7)
        subject = BrokenSubject(shape, answer)
        found = check_lookup(subject, configuration)
        assert by_code(found) == by_brute_force(subject, configuration)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMON_BROKEN)
def test_the_states_of_layouts_are_counted_exactly(name: str) -> None:
    subject, *_ = COMMON_BROKEN[name]
    refuted = 0
    for layout in small_layouts():
        result = check_common_hit(subject, layout)
        if Status.REFUTED in result.statuses.values():
            assert by_code(result) == by_brute_force(subject, layout)
            refuted += 1
        if refuted == 3:
            break
    assert refuted


def right_prefix(
    request: connector._Request, cached: frozenset[Question], answer: LookupAnswer | Exception
) -> bool:
    if isinstance(answer, Exception) or (served := request.hit(answer)) is None:
        return False
    return (
        wrong_in_tables(request.layout, answer) is None
        and request.needs(served, answer.diverged) <= cached
        and served.length == request.expected(cached).length
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CONNECTOR_BROKEN)
def test_the_states_of_local_prefixes_are_counted_exactly(name: str) -> None:
    subject, *_ = CONNECTOR_BROKEN[name]
    refuted = 0
    for layout in filter(connector.is_judged, small_layouts()):
        result = connector.check_local_prefix(subject, layout)
        if Status.REFUTED not in result.statuses.values():
            continue
        lookup, wrong = subject.connector_lookup(layout), Counter[str]()
        for max_length in layout.max_lengths:
            space = space_of(layout, lookup, max_length, subject.lookahead_horizon)
            request = connector._Request(
                lookup, max_length, space, layout, subject.lookahead_horizon
            )
            for cached in states(space.keys.values()):
                answer = replay(space, lookup, max_length, cached)
                if not right_prefix(request, cached, answer):
                    wrong[request.evidence(cached, answer).signature.code] += 1
        assert by_code(result) == wrong
        refuted += 1
        if refuted == 3:
            break
    assert refuted


def test_a_footprint_is_of_what_is_answered_not_of_how_it_came_up() -> None:
    rows = {(1, "a"): 3, (2, "b"): 1 << 90}
    assert Footprint.of(rows) == Footprint.of(dict(reversed(rows.items())))
    assert Footprint.of(rows).size == 3 + (1 << 90)
    assert Footprint.of([(1, "a"), (1, "a")]) == Footprint.of({(1, "a"): 2})
    assert Footprint.of({(1, "a"): 2}) != Footprint.of({(1, "b"): 2})
    assert Footprint.from_json(json.loads(json.dumps(Footprint.of(rows).as_json()))) == (
        Footprint.of(rows)
    )


def test_how_footprints_differ() -> None:
    few, many, others = Footprint(1, "a"), Footprint(2, "b"), Footprint(1, "c")
    assert growth(few, few) is None
    assert growth(few, many) is Growth.MORE
    assert growth(None, few) is Growth.ELSEWHERE
    assert growth(few, others) is Growth.OTHERWISE
    assert growth(many, few) is Growth.LESS
    assert growth(few, None) is Growth.LESS
    assert "1 diverging case here on record, now 2" in in_words(few, many)
    assert "some answers differ" in in_words(few, others)


# --- a subject with a known divergence, and what becomes of it --------------------------------


def reach(subject: BrokenSubject, *judged: Configuration) -> list[Reach]:
    return [
        Reach(signature, each, footprint)
        for each in judged
        for check in (check_lookup, check_mask)
        for signature, footprint in check(subject, each).footprints.items()
    ]


def entries(reached: list[Reach]) -> list[Entry]:
    anything = SpecifierSet("")
    return [Entry(each.signature, each.judged, anything, "why", "", "why") for each in reached]


def held(
    before: list[Reach], after: list[Reach], judged: list[Configuration]
) -> tuple[set[Growth], bool]:
    """How known divergences have grown, and whether some have shrunk."""
    record = Record.of("0.33.0", "quick", before)
    found = outside(after, record, {each.signature for each in before})
    settled = {(each.signature.claim, place_of(one)) for each in before for one in judged}
    return {each.growth for each in found}, bool(shrunk(after, record, entries(before), settled))


KNOWN = BrokenSubject(unchanged, nothing_beyond(4))


@pytest.mark.parametrize(
    ("subject", "judged", "grown", "less"),
    [
        (KNOWN, [WINDOW], set(), False),
        (BrokenSubject(unchanged, nothing_beyond(2)), [WINDOW], {Growth.MORE}, False),
        (BrokenSubject(unchanged, nothing_beyond(6)), [WINDOW], set(), True),
        (KNOWN, [WINDOW, OTHER], {Growth.ELSEWHERE}, False),
    ],
)
def test_what_grows_and_what_shrinks_is_noticed(
    subject: BrokenSubject, judged: list[Configuration], grown: set[Growth], less: bool
) -> None:
    assert held(reach(KNOWN, WINDOW), reach(subject, *judged), judged) == (grown, less)


def two_or_nothing(instead: int) -> Answer:
    """Serves ``instead`` tokens where six are expected."""

    def answer(found: LookupAnswer, pool: Any, configuration: Configuration) -> LookupAnswer:
        del pool, configuration
        if found.hit_length != 6:
            return found
        return LookupAnswer(instead, [table[:instead] for table in found.tables])

    return answer


def test_other_answers_in_as_many_states_are_noticed() -> None:
    full = single_group(FULL, 1, 1, None, False, 7)
    before = reach(BrokenSubject(unchanged, two_or_nothing(2)), full)
    after = reach(BrokenSubject(unchanged, two_or_nothing(3)), full)
    assert {each.signature for each in before} == {each.signature for each in after}
    assert held(before, after, [full]) == ({Growth.OTHERWISE}, False)


def every_block_but(block: int) -> Callable[[int], bool]:
    return lambda other: other != block


@pytest.mark.parametrize(("left_out", "growths"), [(3, {Growth.OTHERWISE}), (2, set())])
def test_masks_say_which_block(left_out: int, growths: set[Growth]) -> None:
    full = single_group(FULL, 1, 1, None, False, 5)
    before = reach(BrokenSubject(registers=every_block_but(2)), full)
    after = reach(BrokenSubject(registers=every_block_but(left_out)), full)
    assert held(before, after, [full]) == (growths, False)


def test_what_was_not_judged_is_not_missed() -> None:
    before = reach(KNOWN, WINDOW, OTHER)
    record = Record.of("0.33.0", "quick", before)
    found = reach(KNOWN, WINDOW)
    claims = {each.signature.claim for each in before}
    judged = {(claim, place_of(WINDOW)) for claim in claims}
    assert not shrunk(found, record, entries(before), judged)
    (less,) = shrunk(
        found, record, entries(before), judged | {(c, place_of(OTHER)) for c in claims}
    )
    assert [place for place, _, _ in less.places] == [place_of(OTHER)]


def test_histories_have_footprints_of_steps_and_answers() -> None:
    played = next(
        each
        for each in (history(f"replay:{number}") for number in range(60))
        if play(each, broken.Broken(broken.ShorterHit)).findings
    )

    def found() -> dict[Signature, Footprint]:
        outcome = play(played, broken.Broken(broken.ShorterHit))
        return {each.signature: each.footprint for each in outcome.findings}

    assert found() == found()
    outcome = play(played, broken.Broken(broken.ShorterHit))
    for each in outcome.findings:
        assert each.footprint.size == each.times
        assert Footprint.of([(each.step + 1, *each.rows[0][1:]), *each.rows[1:]]) != each.footprint


def test_a_divergence_is_looked_for_in_a_history_that_shows_it() -> None:
    """Its entry speaks of other releases, too, which may show it in other histories only."""
    own, other = (Play(Origin.WRITTEN, name, f'"{name}"') for name in ("own", "other"))
    generated = Play(Origin.FINE_GENERATED, "1:7")
    signature = Signature("first", "unsound", "mamba", False, Defect(Code.HIT_OFF_BOUNDARY))
    written = {place_of(each): each for each in (own, other)}

    def chosen(*places: Judged) -> Play:
        reached = [Reach(signature, each, Footprint(1, "")) for each in places]
        return Record.of("1", "quick", reached).history(signature, own, written)

    assert chosen() == chosen(WINDOW) == own
    assert chosen(generated, own) == own
    assert chosen(WINDOW, generated) == generated
    assert chosen(other) == other


def test_what_is_played_is_found_by_the_name_of_its_place() -> None:
    every = list(plays(Profile.QUICK, fine=True))
    assert {each.origin for each in every} == set(Origin) - {Origin.WRITTEN}
    assert [play_at(place_of(each)) for each in every] == every
    written = Play(Origin.WRITTEN, "1:7")
    assert play_at(place_of(written)) is play_at(place_of(WINDOW)) is None
    assert play_at("corpus history 1:7") is None


def test_what_follows_from_a_finding_is_in_its_footprint() -> None:
    def made(*actual: str) -> Footprint:
        outcome = ReplayOutcome()
        short = Signature("first", "unsound", "mamba", False, Defect(Code.HIT_OFF_BOUNDARY))
        later = replace(short, claim="second")
        outcome.add(Violation(short, "spec", "actual"), 0, "step")
        for each in actual:
            outcome.add(Violation(later, "spec", each), 1, "step", short)
        (cause,) = outcome.causes
        return cause.footprint

    assert growth(made(), made("a")) is Growth.MORE
    assert growth(made("a"), made("b")) is Growth.OTHERWISE
    assert growth(made("a"), made("a")) is None


# --- records -------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "own.toml"


def some(name: str, footprint: Footprint | None = None) -> Record:
    found = reach(KNOWN, WINDOW)
    if footprint is not None:
        found = [replace(each, footprint=footprint) for each in found]
    return Record.of(name, "quick", found)


@pytest.mark.parametrize(
    ("on_record", "version", "chosen"),
    [
        (["0.32.0", "0.33.0"], "0.32.0", "0.32.0"),
        (["0.32.0", "0.33.0"], None, "0.33.0"),
        (["0.9.0", "0.33.0"], "0.34.0.dev1", "0.33.0"),
        (["0.32.0", "0.33.0"], "0.31.0", None),
        (["0.33.0", UNRELEASED], None, UNRELEASED),
        ([UNRELEASED], "0.33.0", None),
        ([], None, None),
    ],
)
def test_a_target_is_held_against_its_release_or_the_newest(
    on_record: list[str], version: str | None, chosen: str | None
) -> None:
    record = choose({name: some(name) for name in on_record}, version)
    assert (None if record is None else record.name) == chosen


def test_records_are_read_back_and_a_release_alike_adds_no_line(ledger: Path) -> None:
    first = replace(some("0.33.0"), refused=frozenset({"ranks history 1:1"}))
    refused = {"ranks history 1:2", "layers history 1:3"}
    both = first.and_also(Record.of("0.33.0", "default", reach(KNOWN, OTHER), refused))
    assert both.refused == first.refused | refused
    small = Footprint(1, "a")
    records = {
        "0.9.0": Record("0.9.0", frozenset({"quick"}), {}),
        "0.31.0": some("0.31.0", small),
        "0.32.0": replace(some("0.32.0", small), refused=first.refused),
        "0.33.0": both,
        UNRELEASED: Record(UNRELEASED, frozenset({"quick"}), {}),
    }
    path_of(ledger).write_text(to_json(records))
    assert read(ledger) == records
    (found,) = reach(KNOWN, OTHER)
    told = path_of(ledger).read_text()
    size, digest = found.footprint.size, found.footprint.digest
    assert f'"{place_of(OTHER)}": "0.33.0 {size} {digest}; {UNRELEASED} none"' in told
    assert f'"{place_of(WINDOW)}": "0.31.0 1 a; 0.33.0 ' in told
    assert name_of(found.signature) in told
    assert both.has(found.signature)


def test_a_ledger_without_records_is_read(ledger: Path) -> None:
    assert read(ledger) == {}


@cases("text")
def test_bad_records_are_refused_in_a_sentence(ledger: Path, text: str) -> None:
    path_of(ledger).write_text(text)
    with pytest.raises(LedgerError, match="has no footprints"):
        read(ledger)


def test_places_have_names_of_their_own() -> None:
    other_unit = replace(WINDOW, hash_block_size=7)
    of_model = replace(WINDOW, model="some model")
    written = [Play(Origin.WRITTEN, "x", text) for text in ("{}", "{ }")]
    generated = Play(Origin.GENERATED, "1:0")
    every: list[Judged] = [WINDOW, OTHER, other_unit, of_model, *written, generated]
    assert len({place_of(each) for each in every}) == len(every)
