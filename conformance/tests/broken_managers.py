"""The reference with one fault each."""

# ruff: noqa: F401  # what rows of cases/managers.toml name

import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from textwrap import indent
from typing import Any, TypeAlias

from hitproof.conformance.emulation.releases import SPEC, Policies
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.subject import managers
from hitproof.conformance.subject.managers import (
    Cleared,
    Hit,
    Manager,
    OfferedState,
    Removed,
    Stored,
)
from hitproof.conformance.tests.editing import CASES
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind

Patch: TypeAlias = Callable[..., Any]
"""A method, or what one does to a right answer."""


class Broken:
    """The reference with its manager wrapped."""

    def __init__(
        self, wrap: Callable[[ReferenceManager], Manager], policies: Policies = SPEC
    ) -> None:
        self._wrap = wrap
        self._reference = ReferenceManagers(policies)

    def start(self, engine: EngineConfiguration) -> Manager:
        return self._wrap(self._reference.start(engine))


def named(name: str) -> Broken:
    """The reference with its manager wrapped in the class of that name."""
    return Broken(globals().get(name) or __getattr__(name))


class Wrapped:
    """Passes everything on."""

    def __init__(self, manager: ReferenceManager) -> None:
        self.inner = manager
        self.pool = manager._manager.block_pool
        self.managers = manager._manager.groups
        self.groups = manager._engine.groups
        self.alignment = manager._engine.alignment
        self.last = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def kinds(self) -> list[str]:
        """The kind of each group but the last."""
        return [*(group.kind for group in self.groups[:-1]), ""]

    def whole(self, name: str) -> list[Stored]:
        """All blocks of a request, as events of a hit."""
        return [
            Stored(n, tuple(self.block_keys(name, n)), None, (), group.block_size, None, None)
            for n, group in enumerate(self.groups)
        ]

    def states(self) -> list[OfferedState]:
        """The null block as the state of the first tokens of the last request."""
        return [
            OfferedState(self.last, number, 0, group.block_size)
            for number, group in enumerate(self.groups)
            if self.last and group.kind is GroupKind.MAMBA and self.block_keys(self.last, number)
        ]

    def other_states(self) -> list[OfferedState]:
        """A state of it, if there are any, under each group that has none."""
        keeps = [group.kind is GroupKind.MAMBA for group in self.groups]
        return [
            OfferedState(self.last, number, 1, self.groups[number].block_size)
            for number, has_states in enumerate(keeps)
            if self.last and any(keeps) and not has_states
        ]

    def from_on(self, name: str, start: int) -> list[int]:
        """The blocks of full attention from a token on."""
        tables = zip(self.groups, self.inner.observe().tables[name], strict=True)
        return [
            block
            for group, table in tables
            if group.kind is GroupKind.FULL_ATTENTION
            for block in table[max(0, start) // group.block_size :]
            if block
        ]


class LooksNotAhead:
    """The reference with hashes that cover their blocks only, whatever the engine has."""

    def start(self, engine: EngineConfiguration) -> Manager:
        started = ReferenceManagers().start(engine)
        started._engine = replace(
            engine, use_eagle=False, num_hash_lookahead_tokens=0, num_speculative_tokens=0
        )
        return started


class LooksOneTokenAhead:
    """The reference as if there were one MTP module, however many there are.

    Lookups drop one block, blocks are registered as soon as they are computed, and freed when their
    window is left.
    """

    def start(self, engine: EngineConfiguration) -> Manager:
        groups = tuple(replace(group, prefill_lookahead=1) for group in engine.groups)
        return ReferenceManagers().start(replace(engine, groups=groups))


class _Shifts:
    """The reference, but a method of it is asked for other numbers of computed tokens."""

    def start(self, engine: EngineConfiguration) -> Manager:
        started = ReferenceManagers().start(engine)
        self.shift(started._manager, max(0, engine.num_prefill_lookahead - 1))
        return started

    def shift(self, manager: KVCacheManager, again: int) -> None:
        """Shift it, where the last ``again`` tokens are computed again."""
        raise NotImplementedError


class RegistersDrafts(_Shifts):
    """The reference, but it registers blocks before their entries are final."""

    def shift(self, manager: KVCacheManager, again: int) -> None:
        registered = manager.registration.num_tokens

        def num_tokens(group: Group, num_computed_tokens: int) -> int:
            return min(registered(group, num_computed_tokens + again), num_computed_tokens)

        manager.registration.num_tokens = num_tokens  # type: ignore[method-assign]  # the fault


class RegistersLate(_Shifts):
    """The reference, but its blocks wait for one token more than is computed again."""

    def shift(self, manager: KVCacheManager, again: int) -> None:
        registered = manager.registration.num_tokens

        def num_tokens(group: Group, num_computed_tokens: int) -> int:
            return registered(group, max(0, num_computed_tokens - min(again, 1)))

        manager.registration.num_tokens = num_tokens  # type: ignore[method-assign]  # the fault


class FreesTheWindowOfDrafts(_Shifts):
    """The reference, but it frees what only the tokens that are computed again read."""

    def shift(self, manager: KVCacheManager, again: int) -> None:
        free = manager.remove_skipped_blocks

        def remove_skipped_blocks(request_id: str, total_computed_tokens: int) -> None:
            free(request_id, total_computed_tokens + again)

        manager.remove_skipped_blocks = remove_skipped_blocks  # type: ignore[method-assign]  # the fault


class FreesBeforeItRegisters(KVCacheManager):
    """Registers nothing of earlier steps before it frees what is read no more."""

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        if num_computed_tokens != request.num_computed_tokens:
            super().cache_blocks(request, num_computed_tokens)


class CountsOneStepForAdmission:
    """The reference, but it admits by the blocks of one step's tokens where several are ahead."""

    def start(self, engine: EngineConfiguration) -> Manager:
        return ReferenceManagers().start(replace(engine, max_num_batched_tokens=1))


def raises(error: Exception) -> Patch:
    """Raise such an error; its message may name the arguments."""

    def patched(*given: Any) -> Any:
        raise type(error)(*(str(each).format(*given) for each in error.args))

    return patched


def without(field: str) -> Patch:
    """Requests are hashed without a field."""
    return lambda self, name, request: self.inner.add_request(
        name, replace(request, **{field: None})
    )


_PATCHES: dict[str, dict[str, Any]] = tomllib.loads((CASES / "managers.toml").read_text("utf-8"))
_CHANGES = {
    "hit": ("get_computed_blocks", "hit = m.inner.get_computed_blocks(name)\n{}"),
    "prefix": (
        "get_computed_blocks_for_connector",
        "right = m.inner.get_computed_blocks_for_connector(name, cap)\n{}",
    ),
    "new": ("allocate_slots", "return m.inner.allocate_slots(name, replace(allocation, **{}))"),
    "refuses": (
        "allocate_slots",
        "return None if {} else m.inner.allocate_slots(name, allocation)",
    ),
    "table": (
        "allocate_slots",
        "tables = m.inner.allocate_slots(name, allocation)\n"
        "return None if tables is None else tuple([{} for table in tables])",
    ),
    "seen": ("observe", "seen = m.inner.observe()\n{}"),
    "event": (
        "observe",
        "seen = m.inner.observe()\n"
        "events = [replace(event, **{}) if isinstance(event, Stored) else event\n"
        "          for event in seen.events or ()]\n"
        "return replace(seen, events=tuple(events))",
    ),
    "progress": ("set_progress", "m.inner.set_progress(name, replace(progress, **{}))"),
    "starts": ("__init__", "Wrapped.__init__(m, manager)\n{}\n"),
}
"""The method of each change of an answer, and its text around the row's."""
_GIVEN = {"__init__": "manager"} | {
    method: ", ".join(
        each.name + ("" if each.default is each.empty else f"={each.default!r}")
        for each in [*inspect.signature(function).parameters.values()][1:]
    )
    for protocol in vars(managers).values()
    if inspect.isclass(protocol)
    for method, function in vars(protocol).items()
    if inspect.isfunction(function) and not method.startswith("_")
}
"""The parameters of each method of managers."""


def _methods(row: Mapping[str, Any]) -> dict[str, Any]:
    """The methods of a row of ``cases/managers.toml``."""
    made: dict[str, Any] = {}
    for each in row.get("like", ()):
        made |= _methods(_PATCHES[each])
    for key, text in row.items():
        if isinstance(text, bool):
            made[key] = text
        elif key != "like":
            method, around = _CHANGES.get(key, (key, "{}"))
            is_answer = around.endswith("{}") and "\n" not in text
            if is_answer and not text.startswith("raise "):
                text = f"return {text}"
            text = around.replace("{}", text)
            exec(f"def {method}(m, {_GIVEN[method]}):\n{indent(text, '    ')}", globals(), made)
    return made


def patched(name: str, **patches: Any) -> type[Wrapped]:
    """A class of managers with other methods."""
    return type(name, (Wrapped,), patches)


def __getattr__(name: str) -> Any:
    """The class of a row of ``cases/managers.toml``."""
    if name not in _PATCHES:
        raise AttributeError(name)
    return globals().setdefault(name, patched(name, **_methods(_PATCHES[name])))
