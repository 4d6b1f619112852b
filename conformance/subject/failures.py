"""Failures: what an exception means, and whose fault it is, for checks, replay and shadow.

An exception that comes up while a subject is asked is one of four kinds. Either hitproof itself
says why it cannot judge (`CannotJudge`, `Predates`, and `HistoryError` of what no history can ask
for), or that it is wrong (`InternalError`), or its call does not reach the subject, which lacks a
name or a parameter, or the subject reads what an object of hitproof's lacks that stands in for one
of its own; all else is the subject's: it crashes. Where hitproof does not drive the subject, as in
a shadow, nothing that its own code raises is the subject's.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import Enum, auto
from pathlib import Path
from traceback import walk_tb
from types import FrameType

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
        case HistoryError():  # no subject has it: what is asked of it has no history
            return FailureKind.INCONCLUSIVE
        case AttributeError() | TypeError() if asked and _unreached(error):
            return FailureKind.INCONCLUSIVE
        case _ if asked:
            return FailureKind.CRASH
        case ConfigurationError():  # a use of it that the spec does not have
            return FailureKind.INCONCLUSIVE
        case _:
            return FailureKind.INTERNAL


def crash_of(error: Exception) -> Exception:
    """The exception, if it is the subject's own; any other is raised again.

    One that says that the subject was not reached becomes a `CannotJudge`.
    """
    if classify(error) is FailureKind.CRASH:
        return error
    unreached = _unreached(error)
    if unreached and not isinstance(error, CannotJudge):
        raise CannotJudge(unreached) from error
    raise error


def _unreached(error: BaseException) -> str:
    """What the subject lacks, or hitproof where it stands in for a part of it; otherwise empty."""
    frames = list(walk_tb(error.__traceback__))
    if not (frames and _is_ours(frames[-1][0])):
        return _not_stood_in_for(error, frames)
    match error:
        case AttributeError(name=str() as name, obj=lacking):
            kind = lacking if isinstance(lacking, type) else type(lacking)
            if kind.__module__ == "builtins" or _is_of_ours(kind):
                return _not_stood_in_for(error, frames)
            return f"{kind.__name__} has no {name}{instead(name, dir(lacking))}"
        case TypeError() if _NOT_CALLED.search(str(error)):
            return str(error)
    return ""


def _not_stood_in_for(error: BaseException, frames: list[tuple[FrameType, int]]) -> str:
    """What the subject reads of an object of ours that lacks it; otherwise empty."""
    if not (isinstance(error, AttributeError) and error.name and _is_of_ours(type(error.obj))):
        return ""
    while frames and frames[-1][0].f_code.co_name == "__getattr__":
        frames.pop()
    if not frames or _is_ours(frames[-1][0]):
        return ""
    what = getattr(error.obj, "stands_for", type(error.obj).__name__)
    return (
        f"hitproof's stand-in for {what} has no attribute {error.name!r}, which "
        f"{_place(*frames[-1])} reads; this is a limit of hitproof"
    )


def raised(error: BaseException) -> str:
    """An exception in one line: its type, its message, and the line that raises it."""
    said = f"{type(error).__name__}: {error}".strip(": ").replace("\n", " ")[:300]
    frames = list(walk_tb(error.__traceback__))
    return f"{said} ({_place(*frames[-1])})" if frames else said


def _place(frame: FrameType, line: int) -> str:
    """The file from its top package on, and the line."""
    file = Path(frame.f_code.co_filename)
    depth = frame.f_globals.get("__name__", "").count(".") + 1 + (file.stem == "__init__")
    return f"{'/'.join(file.parts[-depth:])}:{line}"


def _is_ours(frame: FrameType) -> bool:
    return bool(frame.f_globals.get("__name__", "").startswith(_OURS))


def _is_of_ours(kind: type) -> bool:
    return kind.__module__.startswith(_OURS)


_OURS = "hitproof."
_NOT_CALLED = re.compile(
    r"\(\) (got an unexpected keyword argument|missing \d+ required|takes .* positional argument)"
)
_ALIKE = 0.5
"""How alike names have to be for one to be taken for a new name of the other."""


def like(name: str, others: Iterable[str]) -> str:
    """The public name that is most like one; empty if none is like it."""
    public = [other for other in others if not other.startswith("_")]
    return next(iter(get_close_matches(name, public, 1, _ALIKE)), "")


def instead(name: str, others: Iterable[str]) -> str:
    """How to say that one of the ``others`` is meant by a name that is missing."""
    new = like(name, others)
    return f"; if {new} is its new name, use --alias {new}={name}" if new else ""


def refusal_of(error: Exception, *, asked: bool = True) -> str:
    """Why something is not judged; an exception that does not say so is raised again."""
    if classify(error, asked=asked) not in (FailureKind.NOT_APPLICABLE, FailureKind.INCONCLUSIVE):
        raise error
    return _unreached(error) or str(error)
