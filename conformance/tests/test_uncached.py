"""Engines without prefix caching: nothing is hit or registered, and all else holds."""

from dataclasses import replace

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.schema import EngineConfiguration, HistoryError
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.subject.managers import ManagerSubject
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_replay import REFERENCE, shown
from hitproof.spec.groups import Group, GroupKind

HISTORIES = series("uncached")


class CachesAllTheSame:
    """Has the prefix cache on."""

    def start(self, engine: EngineConfiguration) -> ReferenceManager:
        return ReferenceManagers().start(replace(engine, enable_prefix_caching=True))


def test_the_reference_passes() -> None:
    for history in HISTORIES:
        outcome = replay(history, REFERENCE)
        assert shown(outcome) == []
        assert not any(lookup.served for lookup in outcome.lookups)
    steps = {step for history in HISTORIES for step in replay(history, REFERENCE).steps}
    assert {"", "no space", "refused: blocks are in use"} <= steps
    kinds = {group.kind for history in HISTORIES for group in history.engine.groups}
    assert kinds == set(GroupKind)


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (CachesAllTheSame(), "waste: "),
        (broken.Broken(broken.FreesWindow), "unsound: null-block-read"),
        (broken.Broken(broken.Leaks), "waste: block-leaked"),
        (broken.Broken(broken.Refuses), "waste: allocation-refused"),
    ],
)
def test_a_broken_manager_is_caught(subject: ManagerSubject, words: str) -> None:
    seen = {text for history in HISTORIES for text in shown(replay(history, subject))}
    assert any(text.startswith(words) for text in seen), seen


def test_what_such_an_engine_cannot_have() -> None:
    engine = HISTORIES[0].engine
    with pytest.raises(HistoryError, match="leave retention_interval"):
        replace(engine, retention_interval=0)
    with pytest.raises(HistoryError, match="block_size of at least max_model_len"):
        replace(engine, groups=(*engine.groups, Group(GroupKind.MAMBA, 2)))
