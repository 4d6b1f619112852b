"""The renewed record has what histories show now, and what checks have shown before."""

from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.findings.footprints import Footprint, name_of, place_of
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.ledger import records
from hitproof.conformance.ledger.records import Record
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.obligations import Played
from hitproof.vllm_integration.survey.renewal import with_histories
from hitproof.vllm_integration.survey.survey import read

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
