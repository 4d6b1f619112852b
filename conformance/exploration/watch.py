"""What a lookup does between two questions, watched instruction by instruction.

Merging compares what a suspended run holds (`conformance.exploration.canonical`). That is enough if
nothing else decides what it does next. So each instruction is looked at before it is done that may

- change an object: those that it changes must be compared by value, or gone, when it asks again,
  and gone when it is finished. A lookup that changes what outlives it keeps state, unless nothing
  that it runs reads the attribute that it stored (`conformance.exploration.attributes`);
- call code that is not written in Python (`conformance.exploration.calls`);
- tell block tables apart by what merging forgets, through ``is`` or an equality that asks ``is``.

What is let pass is listed; all else is a reason not to merge.
"""

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hitproof.conformance.exploration.attributes import Attributes
from hitproof.conformance.exploration.bytecode import is_generator
from hitproof.conformance.exploration.notes import Notes
from hitproof.conformance.exploration.sites import sites_of


class Watch(Notes):
    """Watches a run of what ``entry`` calls, once begun.

    Attributes:
        active: whether it has begun, and not ended.
    """

    def __init__(
        self, entry: CodeType, attributes: Attributes, inputs: Iterable[object] = ()
    ) -> None:
        super().__init__(attributes, inputs)
        self._entry = entry
        self.active = False
        self._collects = False
        self._before = sys.gettrace()
        self._tracers: dict[int, Any] = {}

    def begin(self, innermost: FrameType | None = None) -> None:
        """Watch from now on, beside what will be called the frames from ``innermost`` outwards."""
        self.active = True
        self._collects = gc.isenabled()
        gc.disable()  # it would run callbacks and finalizers that are not the lookup's
        if innermost is None:
            self.resume()
        while innermost is not None and innermost.f_code is not self._entry:
            if id(innermost.f_code) not in _UNWATCHED:
                innermost.f_trace = self._follow(innermost)
            innermost = innermost.f_back

    def resume(self) -> None:
        """Go on watching, once begun."""
        if self.active:
            sys.settrace(self._entered)

    def pause(self) -> None:
        """Stop watching for now."""
        sys.settrace(None)

    def end(self) -> None:
        """Stop watching, and restore the trace function that was set before."""
        self.active = False
        sys.settrace(self._before)
        if self._collects:
            gc.enable()

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        if frame.f_code.co_filename in _OURS or id(frame.f_code) in _UNWATCHED:
            return None
        if is_generator(frame.f_code):
            self.change(frame)
        return self._follow(frame)

    def _follow(self, frame: FrameType) -> Any:
        code = frame.f_code
        known = self._tracers.get(id(code))
        if known is not None:
            frame.f_trace_lines = False
            frame.f_trace_opcodes = True
            return known
        self.attributes.reads_of(code)
        sites = sites_of(code)
        if not sites:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        find = sites.get

        def follow(running: FrameType, event: str, _: Any) -> Any:
            site = find(running.f_lasti)
            if site is not None and event == "opcode":
                site(self, running)
            return follow

        self._tracers[id(code)] = follow  # of code that `sites_of` keeps
        return follow


_UNWATCHED: dict[int, CodeType] = {}


def do_not_watch(*codes: CodeType) -> None:
    """Name code of hitproof's own between the entry and the target."""
    _UNWATCHED.update((id(code), code) for code in codes)


_OURS = frozenset(map(str, Path(__file__).parent.glob("*.py")))
"""Files whose code is not the lookup's."""
