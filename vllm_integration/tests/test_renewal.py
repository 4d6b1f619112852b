"""The renewed record has what histories show now, and what checks have shown before."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger import records
from hitproof.conformance.ledger.ledger import LedgerError, load
from hitproof.conformance.ledger.records import Record
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.survey.renewal import checked, main, with_histories
from hitproof.vllm_integration.survey.survey import read
from hitproof.vllm_integration.verdict import Verdict

RELEASE = "0.33.0"
KEPT = records.read(LEDGER)[RELEASE]
SHOWN, OTHER = (each.signature for each in read()[-1].sightings[:2])


def renewed(**changes: Any) -> Record:
    """The record after one history, which shows nothing but for the ``changes``."""
    play = Play(Origin.GENERATED, "1")
    record = replace(
        KEPT,
        footprints={
            name_of(SHOWN): {place_of(play): Footprint(7, "before"), "a layout": Footprint(1, "x")},
            name_of(OTHER): {place_of(play): Footprint(7, "before")},
        },
        refused=frozenset({place_of(play)}),
    )
    return with_histories(record, [replace(Played(play), **changes)])


@pytest.mark.parametrize("refused", ["", "too small"])
def test_what_a_history_shows_now_replaces_what_it_showed(refused: str) -> None:
    record = renewed(signatures=(SHOWN,), footprints=(Footprint(2, "now"),), refused=refused)
    (place, footprint), (kept, _) = sorted(record.footprints[name_of(SHOWN)].items(), reverse=True)
    assert (footprint, kept) == (Footprint(2, "now"), "a layout")
    assert record.refused == ({place} if refused else set())
    assert not record.has(OTHER)


def test_what_could_not_be_judged_stays_as_it_was() -> None:
    record = renewed(unsettled="it crashed")
    assert record.has(OTHER)
    assert len(record.footprints[name_of(SHOWN)]) == len(record.refused) + 1 == 2


ENTRIES = [each for each in load(LEDGER) if each.applies_to(RELEASE)]
KNOWN = [each.signature for each in read()[-1].sightings]
UNTOLD = replace(SHOWN, kind="full_attention + full_attention")


@pytest.mark.parametrize(
    ("found", "unsettled", "expected"),
    [
        (KNOWN, (), Verdict.CONFORMS),
        ([*KNOWN, UNTOLD], (), Verdict.DIVERGES),
        (KNOWN[1:], (), Verdict.DIVERGES),
        (KNOWN, ("it hangs",), Verdict.INCONCLUSIVE),
        ([*KNOWN, UNTOLD], ("it hangs",), Verdict.DIVERGES),
    ],
)
def test_check_is_said_to_pass_only_if_all_is_known_and_judged(
    found: list[Signature], unsettled: tuple[str, ...], expected: Verdict
) -> None:
    places = dict(KEPT.footprints) | {name_of(UNTOLD): {"a layout": Footprint(1, "x")}}
    own = {place for each in places.values() for place in each}
    said = checked(read()[-1], found, replace(KEPT, footprints=places), ENTRIES, own, unsettled)
    assert (said.verdict, said.detail) == (expected.label, "".join(unsettled))
    assert said.new == ((UNTOLD,) if UNTOLD in found else ())


@pytest.mark.parametrize("plays", [True, False])
def test_what_check_does_not_play_is_not_what_it_finds(plays: bool) -> None:
    record = renewed(unsettled="kept")
    own = set(record.footprints[name_of(OTHER)]) if plays else set()
    said = checked(read()[-1], [OTHER], record, [], own, ())
    assert said.new == ((OTHER,) if plays else ())
    assert (said.verdict == Verdict.DIVERGES.label) is plays


def test_a_release_that_is_not_surveyed_is_refused() -> None:
    with pytest.raises(LedgerError, match=r"0\.1\.0 is not surveyed; name some of 0\.14\.0"):
        main(["0.1.0"])
