"""Traces: the states of a history, what each step changes, and why a finding is one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.conformance.explain.traces import (
    Change,
    Entry,
    Field,
    Standing,
    State,
    Trace,
    changes,
    chosen,
    in_runs,
    runs,
)
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.tracing import States, traced
from hitproof.conformance.judge.tracing import trace_of as trace_of_states
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests import test_replay
from hitproof.conformance.tests.editing import rows_of

TWICE = read(
    json.dumps(
        {
            "engine": {
                "groups": [
                    {"kind": "full_attention", "block_size": 4},
                    {"kind": "sliding_window", "block_size": 4, "window": 5},
                ],
                "num_gpu_blocks": 16,
                "hash_block_size": 4,
                "max_model_len": 32,
            },
            "requests": {"a": {"prompt": [[1, 9]]}, "b": {"prompt": [[1, 9]]}},
            "steps": [
                {"do": "schedule", "request": "a"},
                {"do": "finish", "request": "a"},
                {"do": "schedule", "request": "b"},
            ],
        }
    )
)
"""A prompt, and the same once more."""


def trace_of(subject: type[broken.Wrapped], history: History = TWICE) -> Trace:
    return traced(history, broken.Broken(subject))[1]


def shown(state: State) -> dict[str, tuple[str, ...]]:
    return {name: field.items for name, field in state.fields().items()}


def plain(outcome: ReplayOutcome) -> tuple[object, ...]:
    found = [(f.as_json(), f.rows) for f in outcome.findings]
    return outcome.steps, outcome.lookups, found, outcome.ended


def test_what_follows_from_a_finding_names_it() -> None:
    found = [b for s in trace_of(broken.OtherBlock).steps for b in s.broken]
    first = found[0]
    assert first.follows_from is None
    assert first.headline in [each.follows_from for each in found[1:]]


BROKEN = rows_of(Path(test_replay.__file__), "a_broken_manager_is_caught")


@pytest.mark.parametrize("subject", dict.fromkeys(subject for subject, _ in BROKEN))
def test_traced_and_untraced_runs_are_the_same(subject: str) -> None:
    """Every finding is in the trace, at its step, also after exceptions."""
    steps = 0
    for history in test_replay.histories(4):
        untraced = replay(history, broken.named(subject))
        outcome, trace = traced(history, broken.named(subject))
        assert plain(outcome) == plain(untraced)
        told = [(s.number, b.code) for s in trace.steps for b in s.broken]
        assert sorted(told) == sorted((f.step, str(f.signature.defect)) for f in outcome.findings)
        steps += len(trace.steps)
        data = json.loads(json.dumps(trace.as_json()))
        assert Trace.model_validate(data) == trace
    assert steps


def test_a_history_that_an_exception_ends_is_traced_up_to_it() -> None:
    ended = [
        (outcome, trace)
        for history in test_replay.histories(20)
        for outcome, trace in [traced(history, broken.Broken(broken.CrashesHalfway))]
        if outcome.ended
    ]
    assert ended
    for outcome, trace in ended:
        assert trace.ended == outcome.ended == trace.steps[-1].deviation
        assert len(trace.steps) == len(outcome.steps) + 1
        assert trace.up_to(0).steps == trace.steps[:1]
        assert trace.up_to(0).ended == ""


def test_a_history_that_is_too_long_keeps_the_states_where_something_breaks() -> None:
    first, finish, resend = TWICE.steps
    history = replace(TWICE, steps=(first, *[finish] * 60, resend, *[resend] * 60))
    subject, states = broken.OtherBlock, States(most=200)
    outcome = replay(history, broken.Broken(subject), noted=states)
    whole, cut = trace_of(subject, history), trace_of_states(history, outcome, states)
    assert whole.is_whole
    assert not cut.is_whole
    assert len(cut.steps) < len(whole.steps) == len(outcome.steps)
    assert cut.start == whole.start
    assert any(step.broken for step in cut.steps)
    assert all(step == whole.steps[step.number] for step in cut.steps)
    assert [s.number for s in cut.steps if s.broken] == [s.number for s in whole.steps if s.broken]


STATE = State(
    requests={"a": Standing(state="running", computed=4, tokens=9)},
    tables={"a": ((0, 0, 3), (5, 4))},
    cached=(Entry(group=0, prefix="a[0:4]", blocks=(3, 7)),),
    ref_counts={3: 1, 4: 2, 5: 1, 6: 1},
    free_queue=((7, 9), (2, 1)),
)


def test_fields_are_short() -> None:
    assert shown(STATE) == {
        "request a": ("running, 4 of 9 tokens computed",),
        "block table of a, group 0": ("null x2", "3"),
        "block table of a, group 1": ("5-4",),
        "cached, group 0": ("a[0:4]: 3", "a[0:4]: 7"),
        # Of blocks that are held as often as tables have them, once, nothing need be said.
        "reference counts": ("4: 2", "6: 1"),
        "free queue": ("7-9", "2-1"),
    }
    assert not list(runs([]))
    assert not list(in_runs(()))
    assert list(runs([1, 2, 1, 0, 5, 5])) == [(1, 2), (1, 0), (5, 5), (5, 5)]
    assert list(in_runs((0, 4, 5, 0))) == ["null", "4-5", "null"]


def test_changes_are_what_differs() -> None:
    assert changes(STATE, STATE) == []
    entry = Entry(group=0, prefix="a[0:4]", blocks=(7, 8))
    after = STATE.model_copy(update={"cached": (entry,), "tables": {}})
    found = {change.name: change for change in changes(STATE, after)}
    assert list(found) == [
        "cached, group 0",
        "reference counts",
        "block table of a, group 0",
        "block table of a, group 1",
    ]
    cached = found["cached, group 0"]
    assert (cached.added, cached.removed) == (("a[0:4]: 8",), ("a[0:4]: 3",))
    assert found["block table of a, group 1"] == Change(
        "block table of a, group 1", Field(("5-4",)), None
    )


def test_of_a_long_history_the_steps_that_break_something_are_kept() -> None:
    trace = trace_of(broken.ShorterHit)
    last = trace.steps[-1]
    fine = trace.steps[0]
    many = [
        (last if number == 50 else fine).model_copy(update={"number": number})
        for number in range(100)
    ]
    kept = [step.number for step in chosen(many, 20)]
    assert kept == [0, 1, 2, *range(45, 51), *range(95, 100)]
    assert chosen(many, 100) == many
