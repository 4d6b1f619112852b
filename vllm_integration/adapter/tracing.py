"""Which lines of the target's source a call runs, and which of them decides on its answer.

Imported in the worker process only.
"""

import ast
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hitproof.conformance.findings.places import Location, Passed, Why
from hitproof.vllm_integration.adapter.overrides import in_place

_MOST_LINES = 300_000
"""Lines that are traced at most, so that a long case takes seconds only."""

_Trace = Callable[[FrameType, str, Any], Any]


class Tracing:
    """What was run of the target's ``vllm/v1``, and of classes that replace vLLM's own.

    The last call of ``entry``, the function that is judged, decides on the answer; without it the
    order of the lines does.
    """

    def __init__(self, entry: Any = None) -> None:
        package = os.path.dirname(sys.modules["vllm"].__file__ or "")
        self._root = os.path.dirname(package) + os.sep
        files = (inspect.getsourcefile(each) for each in in_place.values())
        self._traced = (os.path.join(package, "v1") + os.sep, *filter(None, files))
        self._entry = None if entry is None else code_of(entry)
        self._below = 0
        self._number = 0
        self._lines: dict[tuple[str, int], tuple[bool, int]] = {}
        self._last_call: list[tuple[CodeType, int]] = []
        self._raised: tuple[BaseException, CodeType, int] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Trace what is run inside the context."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def passed(self, crashes: bool) -> Passed:
        """What was run; ``crashes`` says that it is an exception that is judged."""
        ordered = sorted(self._lines, key=self._lines.__getitem__)
        return Passed(
            self._decides(crashes),
            tuple((self._name(file), line) for file, line in ordered),
            sum(below for below, _ in self._lines.values()),
        )

    def _decides(self, crashes: bool) -> Location | None:
        if crashes and self._raised is not None:
            _, code, line = self._raised
            return self._location(code, line, Why.RAISES)
        for code, line in reversed(self._last_call):
            if branch := branches(code.co_filename).get(line):
                return self._location(code, branch, Why.BRANCH)
        if self._entry is not None:
            return self._location(self._entry, self._entry.co_firstlineno, Why.FUNCTION)
        return None

    def _location(self, code: CodeType, line: int, why: Why) -> Location:
        function = code.co_qualname.partition(".<locals>")[0]
        return Location(self._name(code.co_filename), line, function, why)

    def _name(self, file: str) -> str:
        return file.removeprefix(self._root)

    def _called(self, frame: FrameType, event: str, argument: Any) -> _Trace | None:
        del event, argument
        if self._number > _MOST_LINES or not frame.f_code.co_filename.startswith(self._traced):
            return None
        if frame.f_code is self._entry:
            self._below += 1
            self._last_call.clear()
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> _Trace:
        code, line = frame.f_code, frame.f_lineno
        if event == "line":
            self._number += 1
            place, order = (code.co_filename, line), (bool(self._below), self._number)
            self._lines[place] = max(order, self._lines.get(place, order))
            if code is self._entry:
                self._last_call.append((code, line))
        elif event == "exception":
            error = argument[1]
            if self._raised is None or self._raised[0] is not error:
                self._raised = error, code, line
        elif event == "return" and code is self._entry:
            self._below -= 1
        return self._ran


def code_of(function: Any) -> CodeType | None:
    """The code of a function or method; None for anything else, such as a class."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return code if isinstance(code, CodeType) else None


@cache
def branches(file: str) -> dict[int, int]:
    """The lines at which the source decides what is run next, and the first of each decision."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError):
        return {}
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
                decided = test
            case ast.IfExp() | ast.BoolOp() | ast.Compare():
                decided = node
            case ast.Match(subject=subject):
                decided = subject
            case _:
                continue
        for line in range(decided.lineno, (decided.end_lineno or decided.lineno) + 1):
            found[line] = min(decided.lineno, found.get(line, decided.lineno))
    return found
