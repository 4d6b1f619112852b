"""What an exception of a subject is, as a defect: its type, the class of its message, its place."""

import ast
import linecache
import re
import traceback
from functools import lru_cache
from types import FrameType

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code

_JUDGES = ("hitproof.conformance.", "hitproof.vllm_integration.")
_ABOUT_NAMES = (AttributeError, NameError, TypeError)
_LONGEST = 100
_VALUES = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b|(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])"), "#"),
    (re.compile(r"(?<=[-_:/ ])\d+\b"), "#"),
    (re.compile(r"\b[a-z]\b(?!')"), "#"),  # the name of a request, perhaps
    (re.compile(r"(?<=\brequest )\w+$"), "#"),
    (re.compile(r"#(?:, ?#)+"), "#"),
    (re.compile(r"<[^<>]*>"), "<>"),
    (re.compile(r"(?<=\w)\([^()]*\)"), ""),
    (re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}"), "()"),
)
_QUOTED = re.compile(r"b?'[^']*'|b?\"[^\"]*\"")


def crash_defect(error: BaseException, **parameters: str | None) -> Defect:
    """The defect of a subject that raises ``error``, with further parameters of the code.

    It has the function of the subject that raised, without a line number, and the first line of
    the message without values, so that another exception elsewhere is another defect. An assertion
    without a message is known by what it asserts.
    """
    passed = _subjects_frames(error)
    return Defect.of(
        Code.RAISES_EXCEPTION,
        error=type(error).__name__,
        message=message_class(error) or (_asserted(*passed[-1]) if passed else None),
        site=passed[-1][0].f_code.co_qualname.partition(".<locals>")[0] if passed else None,
        **parameters,
    )


def message_class(error: BaseException) -> str:
    """The first line of an exception's message, with values left out: numbers, texts, objects.

    Quoted names stay where the exception is about names of the code.
    """
    text = next(iter(str(error).strip().splitlines()), "")
    if not isinstance(error, _ABOUT_NAMES):
        text = _QUOTED.sub("''", text)
    before = ""
    while text != before:  # values may be nested
        before = text
        for pattern, stands_for in _VALUES:
            text = pattern.sub(stands_for, text)
    return text[:_LONGEST].strip()


def _subjects_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of the subject that the exception passed, innermost last, each with its line.

    The subject's package is the first one past the judging code. A function inside a function,
    such as a comprehension, is named by that function.
    """
    package, frames = None, []
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_JUDGES) and ".tests." not in module:
            continue
        top = module.partition(".")[0]
        if package in (None, top):
            package = top
            frames.append((frame, line))
    return frames


def _asserted(frame: FrameType, line: int) -> str | None:
    return _assertions(frame.f_code.co_filename).get(line)


@lru_cache(maxsize=64)
def _assertions(filename: str) -> dict[int, str]:
    """What a file's assertions without a message assert, under each of their lines."""
    try:
        module = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return {}
    return {
        line: ast.unparse(node.test)[:_LONGEST]
        for node in ast.walk(module)
        if isinstance(node, ast.Assert) and node.msg is None
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
