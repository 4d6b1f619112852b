"""The mask check notices faults in what connectors store, and in what is registered too early."""

from collections.abc import Callable
from typing import Any

import pytest

from hitproof.conformance.checks.mask import check_mask
from hitproof.conformance.checks.retention import check_retention
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import Configuration, single_group
from hitproof.conformance.subject.failures import CannotJudge, Predates
from hitproof.conformance.tests.reference_subject import ReferenceSubject
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind

WINDOW = single_group(GroupKind.SLIDING_WINDOW, 2, 3, 2, False, 10)
ALIGNED = single_group(GroupKind.SLIDING_WINDOW, 2, 1, 3, False, 10)
EARLY = single_group(GroupKind.SLIDING_WINDOW, 2, 3, 4, True, 9)
DRAFTED = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 2, True, 6)
UNTHINNED = single_group(GroupKind.FULL_ATTENTION, 2, 2, None, True, 6)


class StoresBoundariesOnly(ReferenceSubject):
    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        del end
        return super().stored(configuration, 0)


class StoresTheLastBlock(ReferenceSubject):
    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        return [*super().stored(configuration, end)[:-1], True]


class StoresTooFew(ReferenceSubject):
    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        return super().stored(configuration, end)[1:]


class StoresUnalignedTooFew(ReferenceSubject):
    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        found = super().stored_unaligned(configuration, alignment)
        return found if alignment else [False, *found[1:]]


class StoresMultiplesOnly(ReferenceSubject):
    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        found = super().stored_unaligned(configuration, alignment)
        size = configuration.group.block_size
        return [not alignment or (block + 1) * size % alignment == 0 for block in range(len(found))]


class StoringCrashes(ReferenceSubject):
    def stored(self, *_: Any) -> list[bool]:
        raise IndexError("made to fail")


class Registers(ReferenceSubject):
    """Takes another number of tokens for those that are not final."""

    def __init__(self, taken: Callable[[Configuration, int, int | None], int]) -> None:
        self._taken = taken

    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        taken = self._taken(configuration, not_final, interval)
        return super().registered_when_final(configuration, num_tokens, taken, alone)


AT_ONCE = Registers(lambda *_: 0)
AT_ONCE_UNDER_RETENTION = Registers(lambda _, ahead, interval: ahead if interval is None else 0)
LATE = Registers(lambda configuration, ahead, _: ahead + configuration.group.block_size)


class RegistersBeforeTheBoundary(ReferenceSubject):
    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        del interval
        held = super().registered_when_final(configuration, num_tokens, not_final, alone)
        final = (num_tokens - not_final) // configuration.group.block_size
        return [each or block == 1 < final for block, each in enumerate(held)]


class RegisteringCrashes(ReferenceSubject):
    def registered_when_final(self, *_: Any, **__: Any) -> list[bool]:
        raise IndexError("made to fail")


@pytest.mark.parametrize(
    ("subject", "configuration", "divergence", "code", "during"),
    [
        (StoresBoundariesOnly(), WINDOW, "lost hit", Code.TAIL_BLOCK_UNREGISTERED, "store"),
        (StoresUnalignedTooFew(), ALIGNED, "lost hit", Code.TAIL_BLOCK_UNREGISTERED, "store"),
        (StoresMultiplesOnly(), ALIGNED, "lost hit", Code.TAIL_BLOCK_UNREGISTERED, "store"),
        (StoresTheLastBlock(), WINDOW, "waste", Code.UNREACHABLE_BLOCK_REGISTERED, "store"),
        (StoringCrashes(), WINDOW, "crash", Code.RAISES_EXCEPTION, "store"),
        (AT_ONCE, DRAFTED, "wrong drafts", Code.UNFINAL_BLOCK_REGISTERED, "drafting"),
        (
            AT_ONCE_UNDER_RETENTION,
            UNTHINNED,
            "wrong drafts",
            Code.UNFINAL_BLOCK_REGISTERED,
            "drafting",
        ),
        (LATE, DRAFTED, "lost hit", Code.LOOKAHEAD_BLOCK_UNREGISTERED, "drafting"),
        (RegistersBeforeTheBoundary(), EARLY, "waste", Code.BLOCK_REGISTERED_EARLY, "drafting"),
        (RegisteringCrashes(), DRAFTED, "crash", Code.RAISES_EXCEPTION, "drafting"),
    ],
)
def test_a_fault_is_found(
    subject: ReferenceSubject,
    configuration: Configuration,
    divergence: str,
    code: Code,
    during: str,
) -> None:
    assert not check_mask(ReferenceSubject(), configuration).evidence
    found = check_mask(subject, configuration).evidence
    assert {item.signature.divergence for item in found} == {divergence}
    assert code in {item.signature.code for item in found}
    assert {dict(item.signature.defect.parameters)["during"] for item in found} == {during}


def test_blocks_that_are_not_accounted_for_are_inconclusive() -> None:
    result = check_mask(StoresTooFew(), WINDOW)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}
    assert "9 of 10 blocks" in result.detail


def test_older_targets_are_judged_by_what_they_have() -> None:
    class Old(ReferenceSubject):
        def stored(self, *_: Any) -> list[bool]:
            raise Predates("the target is older")

        def registered_when_final(self, *_: Any, **__: Any) -> list[bool]:
            raise Predates("the target is older")

    for configuration in (WINDOW, DRAFTED):
        assert set(check_mask(Old(), configuration).statuses.values()) == {Status.PROVED}


def test_a_target_that_should_have_it_is_inconclusive() -> None:
    class Missing(ReferenceSubject):
        def stored(self, *_: Any) -> list[bool]:
            raise CannotJudge("masks of what is stored cannot be found")

    result = check_mask(Missing(), WINDOW)
    assert set(result.statuses.values()) == {Status.INCONCLUSIVE}


class KeepsState(ReferenceSubject):
    """Registers nothing of what it was asked about before."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: set[Any] = set()

    def registered(self, *given: Any) -> list[bool]:
        found = super().registered(*given)
        if given in self._asked:
            return [False] * len(found)
        self._asked.add(given)
        return found

    def retained(self, *given: Any) -> list[bool]:
        found = super().retained(*given)
        if given in self._asked:
            return [not held for held in found]
        self._asked.add(given)
        return found


@pytest.mark.parametrize("check", [check_mask, check_retention])
def test_a_producer_that_keeps_state_is_not_proved(check: Any) -> None:
    result = check(KeepsState(), single_group(GroupKind.SLIDING_WINDOW, 4, 2, 6, True, 8))
    assert {*result.statuses.values()} == {Status.INCONCLUSIVE}
    assert "keeps state" in result.detail
