"""What the gate replays: every history can be made and told apart, and faults are noticed."""

from dataclasses import replace

import pytest

from conformance.configurations import Profile
from conformance.history_families import engines
from conformance.plays import Origin, Play, plays
from conformance.replay import replay
from conformance.tests import broken_managers as broken
from spec.claims import Divergence

QUICK = list(plays(Profile.QUICK, fine=True))


def test_every_history_can_be_made_and_is_another() -> None:
    made = [play.history(whole_blocks=False, retains=True) for play in QUICK]
    assert len({repr(history) for history in made}) == len(QUICK)
    assert {play.origin for play in QUICK} == {Origin.GENERATED, Origin.FAMILY, Origin.FINE}
    assert len({play.describe() for play in QUICK}) == len(QUICK)


@pytest.mark.parametrize("profile", Profile)
def test_profiles_cover_more_and_more(profile: Profile) -> None:
    more = set(plays(profile, fine=True))
    if profile is not Profile.THOROUGH:  # there families go by their histories' own numbers
        assert set(QUICK) <= more
    aligned = set(plays(profile, fine=False))
    assert {play.origin for play in more - aligned} == {Origin.FINE}
    if profile is not Profile.QUICK:
        families = {p.name.split(".")[0] for p in aligned if p.origin is Origin.FAMILY}
        assert families == {str(number) for number, _ in enumerate(engines())}


@pytest.mark.parametrize(
    "play", [QUICK[0], QUICK[-1], Play.written(QUICK[0].history(False, True), "x")]
)
def test_a_history_survives_json(play: Play) -> None:
    assert Play.from_json(play.as_json()) == play
    again = Play.written(play.history(False, True), "written")
    assert replace(again.history(False, True), about="") == replace(
        play.history(False, True), about=""
    )


def test_targets_without_retention_are_asked_without() -> None:
    kept = [play.history(False, True).engine.retention_interval for play in QUICK]
    assert any(interval is not None for interval in kept)
    others = [p.history(False, False) for p in QUICK if p.origin is not Origin.FINE]
    assert {history.engine.retention_interval for history in others} == {None}


def test_what_follows_from_a_fault_is_none_of_the_causes() -> None:
    histories = [play.history(False, True) for play in QUICK[:20]]
    told = [replay(history, broken.Broken(broken.StaleHit)) for history in histories]
    assert any(len(outcome.causes) < len(outcome.findings) for outcome in told)
    for outcome in told:
        states = [f.signature.divergence for f in outcome.causes]
        assert Divergence.UNSOUND not in states[:-1]
        assert outcome.causes == outcome.findings[: len(outcome.causes)]


def test_lost_hits_hide_nothing() -> None:
    histories = [play.history(False, True) for play in QUICK[:20]]
    told = [replay(history, broken.Broken(broken.Forgets)) for history in histories]
    lost = [
        o for o in told if {f.signature.divergence for f in o.findings} == {Divergence.LOST_HIT}
    ]
    assert any(len(outcome.findings) > 1 for outcome in lost)
    assert all(outcome.causes == outcome.findings for outcome in lost)
