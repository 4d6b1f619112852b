"""What the gate replays: every history can be made and told apart, and faults are noticed."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.plays import Abilities, Origin, Play, plays, possible
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests import broken_managers as broken
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind

ALL, OLD = Abilities(), Abilities(False, (), False, False, False, looks_ahead=False)
EVERY = list(plays(Profile.QUICK, fine=True))
MADE = [play for play in EVERY if play.origin is not Origin.CORPUS]
"""Without the corpus, some of whose histories these sources made."""
QUICK = [play for play in MADE if not play.of_scheduler]


def test_every_history_can_be_made_and_is_another() -> None:
    made = [play.history(ALL) for play in QUICK]
    assert len({repr(history) for history in made}) == len(QUICK)
    of_schedulers = {play.origin for play in MADE if play.of_scheduler}
    elsewhere = {Origin.WRITTEN, Origin.CORPUS}
    assert {play.origin for play in QUICK} == {*Origin} - elsewhere - of_schedulers
    assert of_schedulers == {Origin.LAYERS, Origin.SPREAD, Origin.SCENARIOS}
    assert len({play.describe() for play in EVERY}) == len(EVERY)


def test_every_history_of_a_scheduler_can_be_made_and_is_another() -> None:
    scheduled = [play for play in MADE if play.of_scheduler]
    assert scheduled
    assert len({repr(play.workload()) for play in scheduled}) == len(scheduled)
    for play in (*scheduled[:3], scheduled[-1]):
        with pytest.raises(ValueError, match="none of a manager"):
            play.history(ALL)


@pytest.mark.parametrize("profile", Profile)
def test_profiles_cover_more_and_more(profile: Profile) -> None:
    more = set(plays(profile, fine=True))
    assert set(EVERY) <= more
    aligned = set(plays(profile, fine=False))
    fine = {Origin.FINE, Origin.FINE_SITUATION, Origin.FINE_GENERATED, Origin.FINE_TWINS}
    assert {play.origin for play in more - aligned} == fine | {Origin.MODULES, Origin.CORPUS}


def test_twins_have_the_same_tokens_and_other_keys() -> None:
    made = [p.history(ALL) for p in plays(Profile.DEFAULT, fine=True) if "twins" in p.origin]
    keys = set[tuple[str, ...]]()
    for history in made:
        for name, twin in history.requests.items():
            if not name.startswith("twin of "):
                continue
            own = history.requests[name.removeprefix("twin of ")]
            assert own.token_ids == twin.token_ids
            differing = [key for key in vars(own) if getattr(own, key) != getattr(twin, key)]
            assert len(differing) == 1
            keys.add(tuple(differing))
    assert keys == {("cache_salt",), ("lora_name",), ("images",)}


def test_what_is_kept_for_equal_tokens_is_noticed_by_twins() -> None:
    subject = broken.Broken(broken.KeepsFirstKeys)
    for history in series("twins")[:3]:
        own = {name: r for name, r in history.requests.items() if not name.startswith("twin")}
        steps = tuple(step for step in history.steps if getattr(step, "request", "") in own)
        assert not replay(replace(history, requests=own, steps=steps), subject).causes
        assert replay(history, subject).causes


@pytest.mark.parametrize("play", [QUICK[0], QUICK[-1], Play.written(QUICK[0].history(ALL), "x")])
def test_a_history_survives_json(play: Play) -> None:
    assert Play.from_json(play.as_json()) == play
    again = Play.written(play.history(ALL), "written")
    assert replace(again.history(ALL), about="") == replace(play.history(ALL), about="")


def test_what_a_release_cannot_have_is_left_out() -> None:
    some = [play.history(ALL).engine for play in QUICK]
    assert any(engine.retention_interval is not None for engine in some)
    assert any(engine.full_sequence_must_fit for engine in some)
    assert any(engine.mamba_checkpoint_alignment for engine in some)
    assert any(engine.mamba_shared_prefix_checkpoint for engine in some)
    for play in QUICK:
        old = play.history(OLD)
        assert old == possible(play.history(ALL), OLD)
        engine = old.engine
        assert (engine.retention_interval, engine.mamba_checkpoint_alignment) == (None, None)
        assert not engine.full_sequence_must_fit
        assert not engine.mamba_shared_prefix_checkpoint
        assert Play.written(play.history(ALL), "x").history(Abilities(retained_kinds=())) == (
            play.history(ALL)
        )


def test_no_group_opts_out_where_windows_cannot() -> None:
    histories = [play.history(ALL) for play in QUICK]
    opting = [h for h in histories if not all(g.prefix_cacheable for g in h.engine.groups)]
    assert opting
    for history in opting:
        left = possible(history, Abilities(windows_opt_out=False))
        assert all(group.prefix_cacheable for group in left.engine.groups)
        assert not left.steps


def test_retention_is_asked_for_where_it_thins_something_out() -> None:
    windows = Abilities(retained_kinds=(GroupKind.SLIDING_WINDOW,))
    intervals = {
        any(group.kind is GroupKind.SLIDING_WINDOW for group in engine.groups)
        for play in QUICK
        if (engine := play.history(windows).engine).retention_interval is not None
    }
    assert intervals == {True}


def test_what_follows_from_a_fault_is_none_of_the_causes() -> None:
    histories = [play.history(ALL) for play in QUICK[:20]]
    told = [replay(history, broken.Broken(broken.StaleHit)) for history in histories]
    assert any(len(outcome.causes) < len(outcome.findings) for outcome in told)
    for outcome in told:
        causes = {found.signature for found in outcome.causes}
        for found in outcome.findings:
            assert found.cause is None or found.cause in causes


def test_lost_hits_hide_nothing() -> None:
    histories = [play.history(ALL) for play in QUICK[:20]]
    told = [replay(history, broken.Broken(broken.Forgets)) for history in histories]
    lost = [
        o for o in told if {f.signature.divergence for f in o.findings} == {Divergence.LOST_HIT}
    ]
    assert any(len(outcome.findings) > 1 for outcome in lost)
    assert all(outcome.causes == outcome.findings for outcome in lost)
