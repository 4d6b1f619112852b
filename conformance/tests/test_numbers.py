"""What the spec takes for granted of models, in numbers: required runs are enough, and no less is.

Layouts come from `conformance.numeric.layouts`; they are dealt out to a few cases, for several
processes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

pytest.importorskip("torch", reason="the model computes with torch, which releases bring along")

import torch

from hitproof.conformance.numeric.layouts import inside_blocks, presets, small, windows
from hitproof.conformance.numeric.model import Model
from hitproof.conformance.numeric.outcome import EXACT, WRONG, Errors
from hitproof.conformance.numeric.resuming import WRONG_RULES, Experiment
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon

pytestmark = pytest.mark.slow

FULL, WINDOW = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.SLIDING_WINDOW, 2, 4)
MAMBA = Group(GroupKind.MAMBA, 4)
Source = Callable[[], Iterator[Experiment]]


def of_presets() -> Iterator[Experiment]:
    return (experiment for _, experiment in presets())


PARTS = 3
DEALT = [
    pytest.param(source, part, id=f"{source.__name__}-{part}")
    for source in (small, windows, inside_blocks, of_presets)
    for part in range(PARTS)
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors are tiny, and other tests run beside."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.long
@pytest.mark.parametrize(("source", "part"), DEALT)
def test_required_runs_are_sufficient_and_necessary(source: Source, part: int) -> None:
    hits = blocks = 0
    for experiment in islice(source(), part, None, PARTS):
        for length, errors in experiment.sufficient():
            assert errors.largest <= EXACT, (experiment.groups, length)
            hits += 1
        for length, group, errors in experiment.necessary():
            assert errors.largest > WRONG, (experiment.groups, length, group)
            blocks += 1
    assert hits
    assert blocks


@pytest.mark.long
@pytest.mark.parametrize(("source", "part"), DEALT)
def test_requests_that_share_a_prefix_may_share_its_blocks(source: Source, part: int) -> None:
    hits = 0
    for experiment in islice(source(), part, None, PARTS):
        for shared, length, errors in experiment.shared():
            assert errors.largest <= EXACT, (experiment.groups, shared, length)
            hits += 1
    assert hits


@pytest.mark.parametrize("modules", [1, 2, 3])
@pytest.mark.parametrize("groups", [(FULL,), (FULL, WINDOW), (FULL, MAMBA), (WINDOW,)])
def test_without_lookahead_drafts_are_wrong_exactly_where_it_is_for(
    groups: tuple[Group, ...], modules: int
) -> None:
    """Where the tokens that follow a hit differ, drafts are wrong, and the output is not."""
    looking = [replace(group, prefill_lookahead=modules) for group in groups]
    experiment, wrong = Experiment.of(looking, True, 14), 0
    for shared, length, errors in experiment.shared(WRONG_RULES["no lookahead"]):
        assert errors.target <= EXACT
        if shared < length + modules:
            wrong += 1
            assert errors.drafts > WRONG, (shared, length)
        else:
            assert errors.drafts <= EXACT, (shared, length)
    assert wrong


@pytest.mark.parametrize("name", ["window - 2", "tail - 1"])
def test_a_tail_that_is_too_short_is_refuted(name: str) -> None:
    """Wherever it asks for less than the spec, with other content in place of what it leaves."""
    rules, refuted = WRONG_RULES[name], 0
    for experiment in islice(windows(), 0, None, 5):
        for length, errors in experiment.sufficient(rules, elsewhere="x"):
            if experiment.content(length, rules) == experiment.content(length):
                assert errors.largest <= EXACT
            else:
                assert WRONG < errors.target < 1e3, (experiment.groups, length)
                refuted += 1
    assert refuted


def test_one_token_of_lookahead_is_refuted_with_two_modules() -> None:
    window = Group(GroupKind.SLIDING_WINDOW, 1, 3, prefill_lookahead=2)
    experiment = Experiment.of([window], True, 9)
    found = list(experiment.shared(WRONG_RULES["lookahead of one token"]))
    assert max(errors.target for *_, errors in found) <= EXACT
    assert min(errors.drafts for *_, errors in found) > WRONG
    assert max(errors.largest for *_, errors in experiment.shared()) <= EXACT


@pytest.mark.parametrize("policy", [LookaheadHorizon.CAPPED, LookaheadHorizon.HASHED])
@pytest.mark.parametrize("num_tokens", [8, 9, 12, 13])
def test_hits_within_the_cap_and_the_horizon_are_right(
    policy: LookaheadHorizon, num_tokens: int
) -> None:
    experiment = Experiment.of([FULL, WINDOW], True, num_tokens)
    experiment = replace(experiment, policy=policy)
    assert max(experiment.lengths(), default=0) <= num_tokens - 1
    found = [*experiment.sufficient(), *(pair[1:] for pair in experiment.shared())]
    assert all(errors.largest <= EXACT for _, errors in found)
    # The last token is recomputed, and the lookahead block of a hit has four tokens.
    most = num_tokens - 1 if policy is LookaheadHorizon.CAPPED else num_tokens
    assert len(experiment.lengths()) == most // 4 - 1


def test_what_is_read_and_not_there_is_seen() -> None:
    experiment = Experiment.of([FULL, MAMBA], False, 9)
    assert experiment.errors(4, {(0, 0): "a", (1, 0): "a"}).largest <= EXACT
    for held in ({(0, 0): "a"}, {(1, 0): "a"}, {}):
        assert experiment.errors(4, held) == Errors(float("inf"), 0.0)


def test_the_seed_makes_the_model() -> None:
    first, again, other = (Model([FULL], seed=seed) for seed in (1, 1, 2))
    layer = first.layers[0]
    same = first._weights[layer]["query"]
    assert torch.equal(same, again._weights[layer]["query"])
    assert not torch.equal(same, other._weights[layer]["query"])
