"""Histories computed in the blocks of managers: right ones give the logits of no caching."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="the model computes with torch, which releases bring along")

import torch

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.generator import fine_history, history
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    RequestInput,
    Schedule,
)
from hitproof.conformance.histories.vectors import vectors
from hitproof.conformance.numeric.caches import Pages, Uncached
from hitproof.conformance.numeric.computed_replay import numeric_replay
from hitproof.conformance.numeric.model import WIDTH, Model
from hitproof.conformance.numeric.outcome import WRONG, NumericOutcome, Showing
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.subject.managers import ManagerSubject
from hitproof.conformance.tests.broken_managers import (
    Broken,
    FreesWindow,
    IgnoresAdapters,
    LooksOneTokenAhead,
    OtherBlock,
    RegistersDrafts,
    SharesKeys,
    StaleHit,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind

REFERENCE = ReferenceManagers()
FULL, MAMBA = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, 6)


def generated() -> Iterator[History]:
    return map(history, range(40))


def generated_fine() -> Iterator[History]:
    return map(fine_history, range(25))


def of_modules() -> Iterator[History]:
    return iter(series("modules")[::4])


def of_families() -> Iterator[History]:
    return iter([*series("families")[::6], *series("fine_families")[::8]])


def frozen() -> Iterator[History]:
    return iter(vectors().values())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("histories", [generated, generated_fine, of_modules, of_families, frozen])
def test_under_the_reference_logits_are_those_of_no_caching(
    histories: Callable[[], Iterator[History]],
) -> None:
    passes = 0
    for number, played in enumerate(histories()):
        try:
            outcome, numbers = numeric_replay(played, REFERENCE)
        except CannotJudge:  # of a release with other policies
            continue
        assert not outcome.findings, number
        assert not numbers.wrong, number
        passes += numbers.passes
    assert passes > 50


def sharing(groups: tuple[Group, ...]) -> History:
    """A prompt in chunks, its output, and two requests that share it."""
    unit = min(group.block_size for group in groups)
    configuration = EngineConfiguration(groups, 60, unit, 64, max_num_batched_tokens=12)
    return History(
        configuration,
        {
            "a": RequestInput(tuple(range(21)), (50, 51, 52, 53)),
            "b": RequestInput((*range(17), 99, 98, 97)),
            "c": RequestInput((*range(21), 77, 78, 79)),
        },
        (
            *[Schedule("a")] * 6,
            Schedule("b"),
            Schedule("c"),
            Finish("a"),
            Schedule("b"),
            Schedule("c"),
        ),
    )


HYBRID = sharing((FULL, WINDOW, replace(MAMBA, block_size=2)))


def shown(played: History, subject: ManagerSubject) -> tuple[set[Showing], NumericOutcome]:
    """What numbers show of the findings that say that content is wrong."""
    outcome, numbers = numeric_replay(played, subject)
    found = [numbers.of(each) for each in outcome.findings]
    return {each[0] for each in found if each is not None}, numbers


@pytest.mark.long
@pytest.mark.parametrize("wrong", [StaleHit, OtherBlock, FreesWindow])
def test_wrong_content_gives_wrong_output(wrong: type) -> None:
    found, numbers = shown(HYBRID, Broken(wrong))
    assert Showing.OUTPUT in found
    assert numbers.wrong
    found, numbers = shown(HYBRID, REFERENCE)
    assert not found
    assert not numbers.wrong


def test_a_window_hole_gives_wrong_output_and_the_repaired_manager_does_not() -> None:
    """The oldest block that the next token reads is freed, and poisoned."""
    played = sharing((FULL, WINDOW))
    found, numbers = shown(played, Broken(FreesWindow))
    assert found == {Showing.OUTPUT}
    assert "not a number" in numbers.wrong[0].in_words
    assert shown(played, REFERENCE)[0] == set()


@pytest.mark.long
@pytest.mark.slow
def test_the_judge_finds_what_numbers_show() -> None:
    """Also where a state is freed before it is read, and nothing is written into its block."""
    wrong = 0
    for played in series("families")[::7]:
        outcome, numbers = numeric_replay(played, Broken(FreesWindow))
        found = {each.signature.divergence for each in outcome.findings}
        assert not numbers.wrong or Divergence.UNSOUND in found
        wrong += bool(numbers.wrong)
    assert wrong


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("subject", [LooksOneTokenAhead(), RegistersDrafts()])
def test_wrong_drafts_are_shown_and_the_output_is_right(subject: ManagerSubject) -> None:
    shows = set()
    for played in of_modules():
        if played.engine.mamba_checkpoint_alignment:  # of a release with other policies
            continue
        found, numbers = shown(played, subject)
        assert all(each.errors.target <= WRONG for each in numbers.wrong)
        shows |= found
    assert Showing.DRAFTS in shows
    assert Showing.OUTPUT not in shows


def test_what_no_request_reads_is_not_shown() -> None:
    found, numbers = shown(HYBRID, Broken(SharesKeys))
    assert Showing.NOT in found
    assert not numbers.wrong


def test_an_adapter_changes_what_is_computed() -> None:
    plain = sharing((FULL,))
    requests = {**plain.requests, "c": replace(plain.requests["c"], lora_name="poet")}
    played = replace(plain, requests=requests)
    assert not shown(played, REFERENCE)[1].wrong
    found, numbers = shown(played, Broken(IgnoresAdapters))
    assert found
    assert any(WRONG < each.errors.target < 1e3 for each in numbers.wrong)


def test_numbers_are_kept_as_json() -> None:
    _, numbers = numeric_replay(HYBRID, Broken(FreesWindow))
    assert numbers.as_json()["wrong"][0]["target"] is None
    assert NumericOutcome.from_json(numbers.as_json()) == numbers


def test_of_other_findings_nothing_is_said() -> None:
    """Numbers are about content; other classes of findings do not change it."""
    outcome, numbers = numeric_replay(HYBRID, Broken(StaleHit))
    for each in outcome.findings:
        wrong = each.signature.divergence in (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)
        assert (numbers.of(each) is not None) == wrong


# --- pages ---------------------------------------------------------------------------------------


def test_requests_of_one_step_read_states_as_they_were_before_it() -> None:
    model = Model([MAMBA])
    pages, layer = Pages(model, 4), model.layers[0]
    ones = torch.ones(WIDTH, WIDTH, dtype=torch.float64)
    pages.write_state(layer, 1, ones)
    assert pages.state(layer, 1).isnan().all()
    pages.new_step_starts()
    assert torch.equal(pages.state(layer, 1), ones)
    pages.write_state(layer, 1, 2 * ones)
    pages.copy(1, 2)
    assert torch.equal(pages.state(layer, 2), ones)
    pages.poison(1)
    assert pages.state(layer, 1).isnan().all()


def test_copies_of_one_step_are_of_what_was_there_before_all_of_them() -> None:
    model = Model([MAMBA])
    pages, layer = Pages(model, 4), model.layers[0]
    ones = torch.ones(WIDTH, WIDTH, dtype=torch.float64)
    for block in (1, 2):
        pages.write_state(layer, block, block * ones)
    pages.new_step_starts()
    pages.copy(1, 2)
    pages.copy(2, 3)
    assert torch.equal(pages.state(layer, 2), ones)
    assert torch.equal(pages.state(layer, 3), 2 * ones)
    pages.new_step_starts()
    pages.copy(2, 3)
    assert torch.equal(pages.state(layer, 3), ones)


def test_the_null_block_is_never_written() -> None:
    model = Model([FULL])
    pages, layer = Pages(model, 3), model.layers[0]
    entries = Uncached(model, [(token,) for token in range(8)]).entries[layer]
    pages.write(layer, [0, 2], range(8), entries)
    assert pages.slots(layer)[0].isnan().all()
    assert torch.equal(pages.slots(layer)[2], entries[4:])
