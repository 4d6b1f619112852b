"""What an exception of a subject is, as a defect: its type, the class of its message, its place."""

import re
import traceback

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code

_JUDGES = ("hitproof.conformance.", "hitproof.vllm_integration.")
_ABOUT_NAMES = (AttributeError, NameError, TypeError)
_LONGEST = 100
_VALUES = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b|(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])"), "#"),
    (re.compile(r"(?<=[-_:/ ])\d+\b"), "#"),
    (re.compile(r"\b[a-z]\b(?!')"), "#"),  # the name of a request, perhaps
    (re.compile(r"#(?:, ?#)+"), "#"),
    (re.compile(r"<[^<>]*>"), "<>"),
    (re.compile(r"(?<=\w)\([^()]*\)"), ""),
    (re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}"), "()"),
)
_QUOTED = re.compile(r"b?'[^']*'|b?\"[^\"]*\"")


def crash_defect(error: BaseException, **parameters: str | None) -> Defect:
    """The defect of a subject that raises ``error``, with further parameters of the code.

    It has the function of the subject that raised, without a line number, and the first line of
    the message without values, so that another exception elsewhere is another defect.
    """
    return Defect.of(
        Code.RAISES_EXCEPTION,
        error=type(error).__name__,
        message=message_class(error) or None,
        site=_site(error),
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


def _site(error: BaseException) -> str | None:
    """The innermost function of the subject that the exception passed; None if it passed none.

    The subject's package is the first one past the judging code. Functions inside a function, such
    as comprehensions, count as that function.
    """
    package = site = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_JUDGES) and ".tests." not in module:
            continue
        top = module.partition(".")[0]
        if package in (None, top):
            package, site = top, frame.f_code.co_qualname.partition(".<locals>")[0]
    return site
