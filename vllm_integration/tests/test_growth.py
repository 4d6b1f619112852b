"""What the gate says of a known divergence that grows, moves, shrinks or has no footprint."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger.ledger import Entry, judge
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.commands import footprints
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.growth import held_start_ups
from hitproof.vllm_integration.gate.obligations import Played, histories, of_entries
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.check import report_json
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import Copy, limits, release
from hitproof.vllm_integration.tests.reports import (
    CONFIGURATION,
    answers_otherwise,
    grown,
    grown_elsewhere,
    held,
    known,
    shrunk,
    unrecorded,
    unrecorded_profile,
)
from hitproof.vllm_integration.verdict import Verdict

HISTORY = """{"engine": {"groups": [{"kind": "full_attention", "block_size": 1}],
 "num_gpu_blocks": %d, "hash_block_size": 1, "max_model_len": 2}, "requests": {}, "steps": []}"""

UNEVEN = Play(Origin.SCENARIOS, "1:302")
"""Blocks of two sizes, of which none is a multiple of the other."""


def test_a_known_divergence_within_its_footprint_conforms() -> None:
    report = held(lambda now: now)
    assert report.verdict is Verdict.CONFORMS
    assert report.record is not None
    assert not report.judgement.new
    assert not report.shrunk


@pytest.mark.parametrize(
    ("make", "verdict"),
    [
        (known, Verdict.CONFORMS),
        (grown, Verdict.DIVERGES),
        (grown_elsewhere, Verdict.DIVERGES),
        (answers_otherwise, Verdict.DIVERGES),
        (shrunk, Verdict.DIVERGES),
        (unrecorded, Verdict.INCONCLUSIVE),
        (unrecorded_profile, Verdict.INCONCLUSIVE),
        # Its configuration is on record all the same.
        (lambda: held(lambda now: Footprint(now.size - 1, ""), "default"), Verdict.DIVERGES),
    ],
)
def test_what_footprints_decide(make: Callable[[], Report], verdict: Verdict) -> None:
    """What is printed of them is in ``golden/printed``."""
    assert make().verdict is verdict


@pytest.mark.parametrize("make", [grown, grown_elsewhere])
def test_what_has_grown_is_a_new_finding_at_its_place(make: Callable[[], Report]) -> None:
    (first, *others) = make().judgement.new
    assert not others
    assert first.signature.code is Code.KNOWN_DIVERGENCE_GROWN
    assert first.grown is not None
    assert first.grown.places == (place_of(CONFIGURATION),)


def test_what_a_policy_has_judged_as_another_configuration_has_the_place_of_its_task() -> None:
    flagged = replace(CONFIGURATION, num_blocks=CONFIGURATION.num_blocks + 1)
    report = held(lambda _: None, place=flagged)
    (found,) = report.judgement.new
    assert found.grown is not None
    assert found.grown.places == (place_of(flagged),)


def test_a_baseline_is_named_and_findings_are_held_against_it() -> None:
    report = grown()
    assert report.baseline == "0.33.0"
    told = report_json(report)
    assert told["footprints"] == {"of": "0.33.0", "profiles": ["quick"]}
    assert all(each["new_against_baseline"] for each in told["findings"])
    report.target = Target("0.33.0", Path("/x"), "0.33.0")
    assert not report.baseline


def test_the_remedy_names_the_command_and_the_ledger(tmp_path: Path) -> None:
    target = Target("0.33.0", None, "0.33.0")
    said = footprints.remedy_for(target, tmp_path / "own.toml")
    assert f"hitproof footprints 0.33.0 --ledger {tmp_path / 'own.toml'}" in said
    assert "--baseline" in said


def test_what_stands_for_an_entry_that_could_not_be_judged_leaves_it_unsettled() -> None:
    """On record an entry's divergence shows in another history than its own."""
    signature = known().judgement.known[0][0].signature
    own, other = (Play(Origin.WRITTEN, name, HISTORY % size) for name, size in (("a", 2), ("b", 3)))
    entries = [
        Entry(each, play, SpecifierSet(""), "it was so", "", "it was so")
        for each, play in ((signature, own), (replace(signature, eagle=not signature.eagle), other))
    ]
    shown = {name_of(signature): {place_of(other): Footprint(1, "a")}}
    record = Record("0.9.0", frozenset({"quick"}), shown)
    assert [play for _, play in of_entries(entries)] == [own, other]
    stands = of_entries(entries, record)
    assert stands == [(signature, other), (entries[1].signature, other)]
    assert own not in histories(Profile.QUICK, entries, "fine", record)
    assert judge([], entries).stale == tuple(entries)
    assert judge([], entries, {each for each, play in stands if play == other}).stale == ()


def test_start_up_that_refuses_more_than_on_record_is_inconclusive() -> None:
    refused = Played(UNEVEN, refused="AssertionError: no multiple")
    found = Played(UNEVEN, refused="ValueError", signatures=(shrunk().reached[0].signature,))
    record = Record("0.33.0", frozenset({"quick"}), {})
    (held_to_it,) = held_start_ups([refused], record)
    assert held_to_it.unsettled == (
        "start-up refuses a deployment that 0.33.0 accepts: AssertionError: no multiple"
    )
    assert held_start_ups([found, Played(UNEVEN)], record) == [found, Played(UNEVEN)]
    for same in (None, replace(record, refused=frozenset({place_of(UNEVEN)}))):
        assert held_start_ups([refused], same) == [refused]


@pytest.mark.long
@pytest.mark.release
def test_start_up_that_no_longer_takes_the_multiple_of_block_sizes_is_seen(
    broken_copy: Copy,
) -> None:
    lcm = "scheduler_block_size = math.lcm(*group_block_sizes)"
    broken = broken_copy("0.33.0", {lcm: "scheduler_block_size = max(group_block_sizes)"})
    for root, refuses in ((release("0.33.0"), False), (broken, True)):
        target = Target("it", root, "0.33.0")
        with opened(Run(target, Profile.QUICK, limits=limits())) as sessions:
            played = sessions.settle([], [UNEVEN], lambda *_: None)[1]
        report = Report(target, Profile.DEFAULT, played=played)
        assert bool(report.refused) is refuses
        record = Record.of("0.33.0", "default", [], report.refused)
        assert held_start_ups(played, record) == list(played)
