"""The watcher: a shadow for each manager that is made, and errors of our own kept to ourselves."""

import weakref
from collections.abc import Callable, Mapping
from time import perf_counter
from types import ModuleType
from typing import Any

from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.playing.transcript import Transcript
from hitproof.conformance.subject.failures import CannotJudge, refusal_of
from hitproof.vllm_integration.shadow.beside_reference import Lockstep
from hitproof.vllm_integration.shadow.hooks import Given, Method
from hitproof.vllm_integration.shadow.judged import Call, Judged
from hitproof.vllm_integration.shadow.recorder import Recorder
from hitproof.vllm_integration.shadow.report import Report
from hitproof.vllm_integration.shadow.scope import scope_of
from hitproof.vllm_integration.shadow.shadow import KNOWN_METHODS, Shadow
from hitproof.vllm_integration.shadow.single_lookups import Lookups

_TOLERATED = 10


class Watch:
    """`vllm_integration.shadow.hooks.Watcher` for a process.

    Arguments:
        report: where what is seen goes.
        policies: the release's policies.
        reference: those of the reference; None where it does not follow the release.
        thorough: see `Shadow`.
        records: whether ``transcripts`` has what is asked of each manager.
        judges: which requests are judged, by their ids.
        on_off: called when the watch gives up, after too many errors of its own; None if it
            never does.
    """

    def __init__(
        self,
        report: Report,
        policies: JudgedPolicies,
        *,
        reference: Policies | None = None,
        thorough: bool,
        records: bool = False,
        judges: Callable[[str], bool] = lambda _: True,
        on_off: Callable[[str], None] | None = None,
    ) -> None:
        from vllm.v1.core import kv_cache_utils

        self.report = report
        self.on = True
        self.transcripts: list[Transcript] = []
        self._records = records
        self._policies = policies
        self._reference = reference
        self._thorough = thorough
        self._judges = judges
        self._on_off = on_off
        self._utils: ModuleType = kv_cache_utils
        self._shadows: weakref.WeakKeyDictionary[Any, Shadow] = weakref.WeakKeyDictionary()
        self._lookups = Lookups(report, kv_cache_utils)
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        self._busy: list[str] = []

    def made(self, manager: Any, overridden: list[str]) -> None:
        """See `vllm_integration.shadow.hooks.Watcher`."""
        if not self.on:
            return
        with _Guard(self, "making a shadow"):
            self.report.managers += 1
            self._made.add(manager)
            try:
                if overridden:
                    raise CannotJudge(f"{type(manager).__name__} overrides {', '.join(overridden)}")
                use_eagle = bool(getattr(manager, "use_eagle", False))
                scope = scope_of(
                    manager.coordinator, manager.max_model_len, use_eagle, self._policies
                )
                recorder = Recorder(scope.engine) if self._records and scope.caches else None
                if recorder is not None:
                    self.transcripts.append(recorder.transcript)
                label = f"manager {self.report.managers}"
                judged = Judged(manager, scope, self._policies, self._utils, self.report, label)
                lockstep = self._in_lockstep(judged) if self._thorough else None
                shadow = Shadow(judged, self._thorough, self._judges, recorder, lockstep)
                self._shadows[manager] = shadow
            except Exception as error:
                reason = refusal_of(error, asked=False)
                self.report.not_judged[f"a manager: {reason}"] += 1

    def _in_lockstep(self, judged: Judged) -> Lockstep | None:
        try:
            return Lockstep(judged, self._reference)
        except Exception as error:
            reason = refusal_of(error, asked=False)
            self.report.not_judged[f"lockstep of a manager: {reason}"] += 1
            return None

    def around(self, manager: Any, name: str, method: Method, given: Given) -> Any:
        """See `vllm_integration.shadow.hooks.Watcher`."""
        shadow = self._shadows.get(manager) if self.on else None
        inner = any(outer in KNOWN_METHODS for outer in self._busy)
        if shadow is None or inner:
            if self.on and not inner and manager not in self._made:
                self.report.not_judged["calls of a manager created before the shadow"] += 1
            return self._inside(name, method, given)
        call: Call | None = None
        with _Guard(self, name):
            call = Call(name, given.values())
            shadow.before(call)
        began = perf_counter()
        try:
            result = self._inside(name, method, given)
        except BaseException as error:
            if call is not None:
                with _Guard(self, name):
                    shadow.raised(call, error)
            raise
        if call is not None:
            with _Guard(self, name):
                shadow.after(call, result, perf_counter() - began)
        return result

    def around_lookup(
        self, owner: Any, method: Method, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Any:
        """See `vllm_integration.shadow.hooks.Watcher`."""
        result = method(owner, *arguments, **keywords)
        if self.on and not self._busy:
            with _Guard(self, "find_longest_cache_hit"):
                self._lookups.judge(owner, method, arguments, keywords, result)
        return result

    def _inside(self, name: str, method: Method, given: Given) -> Any:
        self._busy.append(name)
        try:
            return method(*given.arguments, **given.keywords)
        finally:
            self._busy.pop()

    def failed(self, what: str, error: Exception) -> None:
        """An error of our own; too many of them end the watch where that was asked for."""
        self.report.errors[f"{what}: {error!r:.200}"] += 1
        if self._on_off is not None and self.report.errors.total() >= _TOLERATED:
            self.on = False
            self._shadows.clear()
            self._on_off(f"{_TOLERATED} errors of its own, the last of them {error!r:.200}")


class _Guard:
    """Keeps our own errors from the manager's caller."""

    __slots__ = ("_watch", "_what")

    def __init__(self, watch: Watch, what: str) -> None:
        self._watch = watch
        self._what = what

    def __enter__(self) -> None:
        """Nothing to set up."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self._watch.failed(self._what, error)
        return True
