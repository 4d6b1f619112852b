"""Failures: what an exception says, and of whom. Checks, replay and shadow all ask here.

An exception that comes up while a subject is asked is one of four kinds. Either hitproof itself
says why it cannot judge (`CannotJudge`, `Predates`), or that it is wrong (`InternalError`); all
else is the subject's own: it crashes. Where hitproof runs beside a subject that somebody else
drives, as in a shadow, nothing that its own code raises is the subject's.
"""

from enum import Enum, auto

from hitproof.conformance.histories.schema import HistoryError
from hitproof.spec.groups import ConfigurationError


class CannotJudge(Exception):
    """The subject lacks something a check needs; the message says precisely what."""


class Refuses(CannotJudge):
    """The subject's own validation refuses the configuration, so nothing is asked of it."""

    @classmethod
    def of(cls, error: Exception) -> "Refuses":
        """The refusal that the subject raised ``error`` for."""
        return cls(
            f"not applicable: the target refuses this configuration ({error or repr(error)})"
        )


REFUSALS = (AssertionError, NotImplementedError, ValueError)
"""What validation raises."""


class Predates(Exception):
    """The subject predates a feature that it is asked for; the message says which."""


class InternalError(Exception):
    """Hitproof itself is wrong, as when paths do not cover each state, or evidence not replays."""


class FailureKind(Enum):
    """What an exception means for what was asked.

    Attributes:
        NOT_APPLICABLE: the subject's release does not have it.
        INCONCLUSIVE: it cannot be judged; nothing is said of the subject.
        CRASH: the subject raises at a call that is allowed: a finding.
        INTERNAL: hitproof itself is wrong.
    """

    NOT_APPLICABLE = auto()
    INCONCLUSIVE = auto()
    CRASH = auto()
    INTERNAL = auto()


def classify(error: BaseException, *, asked: bool = True) -> FailureKind:
    """The kind of an exception that came up while the subject was ``asked``, or only looked at."""
    match error:
        case Predates():
            return FailureKind.NOT_APPLICABLE
        case CannotJudge():
            return FailureKind.INCONCLUSIVE
        case InternalError():
            return FailureKind.INTERNAL
        case _ if asked:
            return FailureKind.CRASH
        case HistoryError() | ConfigurationError():  # somebody's use of it that the spec has not
            return FailureKind.INCONCLUSIVE
        case _:
            return FailureKind.INTERNAL


def crash_of(error: Exception) -> Exception:
    """The exception, if it is the subject's own; any other is raised again."""
    if classify(error) is not FailureKind.CRASH:
        raise error
    return error


def refusal_of(error: Exception, *, asked: bool = True) -> str:
    """Why something is not judged; an exception that does not say so is raised again."""
    if classify(error, asked=asked) not in (FailureKind.NOT_APPLICABLE, FailureKind.INCONCLUSIVE):
        raise error
    return str(error)
