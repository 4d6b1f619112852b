"""One exception means the same wherever it comes up: in each check, in replay and in lockstep."""

from collections.abc import Callable
from typing import Any

import pytest

from hitproof.conformance.exploration.explorer import BudgetExceeded
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.lockstep.playing import run
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.subject.failures import (
    CannotJudge,
    FailureKind,
    InternalError,
    Predates,
    classify,
    crash_of,
    raised,
    refusal_of,
)
from hitproof.conformance.tests.broken_managers import Broken, patched, raises
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import ConfigurationError, GroupKind

WINDOW = single_group(GroupKind.SLIDING_WINDOW, 2, 1, 4, False, 6)
PLAIN = single_group(GroupKind.FULL_ATTENTION, 4, 1, None, False, 24)

KINDS: list[tuple[BaseException, FailureKind, FailureKind]] = [
    (Predates("since 0.30"), FailureKind.NOT_APPLICABLE, FailureKind.NOT_APPLICABLE),
    (CannotJudge("no such method"), FailureKind.INCONCLUSIVE, FailureKind.INCONCLUSIVE),
    (BudgetExceeded("too many runs"), FailureKind.INCONCLUSIVE, FailureKind.INCONCLUSIVE),
    (InternalError("a hole"), FailureKind.INTERNAL, FailureKind.INTERNAL),
    (HistoryError("odd"), FailureKind.INCONCLUSIVE, FailureKind.INCONCLUSIVE),
    (ConfigurationError("odd"), FailureKind.CRASH, FailureKind.INCONCLUSIVE),
    (AssertionError("theirs"), FailureKind.CRASH, FailureKind.INTERNAL),
    (SystemExit(3), FailureKind.CRASH, FailureKind.INTERNAL),
]
"""What an exception means while a subject is asked, and while it is only looked at."""


@pytest.mark.parametrize(("error", "asked", "seen"), KINDS, ids=lambda each: repr(each))
def test_each_kind(error: BaseException, asked: FailureKind, seen: FailureKind) -> None:
    assert classify(error) is asked
    assert classify(error, asked=False) is seen


def test_what_is_no_crash_passes_and_so_does_what_is_no_refusal() -> None:
    crash, refusal = ValueError("theirs"), CannotJudge("no such method")
    assert crash_of(crash) is crash
    assert refusal_of(refusal) == "no such method"
    with pytest.raises(CannotJudge):
        crash_of(refusal)
    with pytest.raises(ValueError, match="theirs"):
        refusal_of(crash)
    with pytest.raises(ValueError, match="ours"):
        refusal_of(ValueError("ours"), asked=False)


class Plain:
    """An object of ours, handed to a subject."""

    __module__ = "hitproof.plain"


class Asking:
    """Another one, which answers some questions only when they are asked."""

    __module__, stands_for = "hitproof.asking", "ModelConfig"

    def __getattr__(self, name: str) -> bool:
        raise AttributeError(f"no {name}", name=name, obj=self)


def reading(given: Any) -> Exception:
    """What comes of a subject that reads an attribute of what it is ``given``."""
    source = compile("def read(given):\n    return given.limit\n", "/a/vllm/core/asks.py", "exec")
    theirs: dict[str, Any] = {"__name__": "vllm.core.asks"}
    exec(source, theirs)
    try:
        theirs["read"](given)
    except AttributeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(("given", "what"), [(Plain(), "Plain"), (Asking(), "ModelConfig")])
def test_what_a_stand_in_lacks_is_no_crash_of_the_subject(given: Any, what: str) -> None:
    error = reading(given)
    assert classify(error) is FailureKind.INCONCLUSIVE
    assert refusal_of(error) == (
        f"hitproof's stand-in for {what} has no attribute 'limit', which vllm/core/asks.py:2 "
        "reads; this is a limit of hitproof"
    )
    with pytest.raises(CannotJudge, match="stand-in"):
        crash_of(error)


def test_what_the_subject_itself_lacks_is_its_crash() -> None:
    error = reading(object())
    assert classify(error) is FailureKind.CRASH
    assert raised(error) == (
        "AttributeError: 'object' object has no attribute 'limit' (vllm/core/asks.py:2)"
    )


def raising(error: Exception) -> Broken:
    return Broken(patched("Raises", get_computed_blocks=raises(error)))


def in_lockstep(error: Exception) -> list[Any]:
    reference = ReferenceManagers()
    return run(history("test:0"), raising(error), reference, JudgedPolicies()).findings


def replayed(error: Exception) -> list[Any]:
    return replay(history("test:0"), raising(error)).findings


@pytest.mark.parametrize("played", [replayed, in_lockstep])
def test_histories_go_by_it(played: Callable[[Exception], list[Any]]) -> None:
    (crash,) = played(KeyError("theirs"))
    assert crash.signature.divergence == Divergence.CRASH
    for error in CannotJudge("no such method"), Predates("since 0.30"), InternalError("a hole"):
        with pytest.raises(type(error)):
            played(error)
