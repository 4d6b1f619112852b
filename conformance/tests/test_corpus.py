"""The corpus of histories: as it is written, and played by every profile."""

import json

import pytest

from hitproof.conformance.histories.corpus import CORPUS, corpus
from hitproof.conformance.histories.json_format import as_json, read
from hitproof.conformance.histories.plays import Abilities, Origin, Play, plays
from hitproof.conformance.histories.workload_json import (
    is_workload,
    read_workload,
    workload_as_json,
)
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.releases.fine import is_fine_grained


def test_each_line_is_a_history_as_it_is_written() -> None:
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    assert list(corpus().values()) == lines  # no two have one name
    of_schedulers = [line for line in lines if is_workload(line)]
    assert 0 < len(of_schedulers) < len(lines)
    for line in lines:
        plain = workload_as_json(read_workload(line)) if is_workload(line) else as_json(read(line))
        assert json.dumps(plain) == line


@pytest.mark.parametrize("profile", Profile)
def test_every_profile_plays_the_first_of_it(profile: Profile) -> None:
    played = [play for play in plays(profile, fine=True) if play.origin is Origin.CORPUS]
    first = list(corpus().items())[: len(played)]
    assert [(play.name, play.text) for play in played] == first
    assert (len(played) == len(corpus())) == (profile is not Profile.QUICK)
    assert played
    assert any(play.of_scheduler for play in played)
    aligned = [play for play in plays(profile, fine=False) if play.origin is Origin.CORPUS]
    fine = set(played).difference(aligned)
    assert fine
    for play in played:
        if not play.of_scheduler:
            engine = play.history(Abilities()).engine
            assert (play in fine) == is_fine_grained(engine.groups, engine.hash_block_size)


def test_a_release_plays_what_it_can_have() -> None:
    old = Abilities(retained_kinds=(), hashes_look_ahead=False, looks_ahead=False)
    several = [play for play in plays(Profile.DEFAULT, True) if play.origin is Origin.CORPUS]
    made = [play.history(old).engine for play in several if not play.of_scheduler]
    assert {engine.retention_interval for engine in made} == {None}
    assert {engine.num_hash_lookahead_tokens for engine in made} == {0}
    asked = [play.history(Abilities()).engine for play in several if not play.of_scheduler]
    assert any(engine.retention_interval is not None for engine in asked)
    assert Play.from_json(several[0].as_json()) == several[0]
