"""Facts: what a subject did when it was asked something, as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hitproof.conformance.findings.crashes import crash_defect

Answer: TypeAlias = int | str
"""A number of tokens, whether a block is registered (0 or 1), block tables, or what was raised."""

Outcome: TypeAlias = str | Sequence[Answer]
"""What was raised, or an answer for each of the blocks, prompts or cache states."""


@dataclass(frozen=True)
class Fact:
    """One recorded behaviour of a subject.

    Attributes:
        what: the name of a method of `conformance.subject.subjects.Subject` that says what is
            registered or hit, or a lookup (`conformance.comparison.answers`).
        given: what it was given: chunks; the prompt's tokens and the retention interval; the
            prompts' lengths, the tokens that they share, and the interval; the tokens that the
            lookup may serve.
        outcome: the result. For a lookup one answer for each of its `states_of`.
    """

    what: str
    given: tuple[Any, ...]
    outcome: Outcome

    def as_json(self) -> list[Any]:
        """The fact as JSON; `from_json` reads it."""
        return [self.what, self.given, self.outcome]

    @staticmethod
    def from_json(data: list[Any]) -> "Fact":
        """Inverse of `as_json`."""
        what, given, outcome = data
        return Fact(what, _frozen(given), outcome)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


Call: TypeAlias = tuple[str, Callable[..., tuple[Any, ...]], Callable[[Any], Sequence[Answer]]]
"""A method whose calls are facts: what these are about, what they were given, by the arguments of
the method, and how a result is told."""
Keep: TypeAlias = Callable[
    [str, tuple[Any, ...], Callable[[], Any], Callable[[Any], Sequence[Answer]]], Any
]
"""Runs something, and keeps what it gave as a fact; returns the result."""


@dataclass(eq=False)
class Kept:
    """An object some of whose calls are kept as facts.

    Attributes:
        of: the object.
        keep: runs a call and keeps it.
        calls: those that are kept, by method.
    """

    of: Any
    keep: Keep
    calls: Mapping[str, Call]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.of, name)
        if name not in self.calls:
            return method
        what, given, told = self.calls[name]

        def run(*arguments: Any, **named: Any) -> Any:
            about = given(*arguments, **named)
            return self.keep(what, about, lambda: method(*arguments, **named), told)

        return run


def raised(error: Exception) -> str:
    """What was raised, by type, class of message and place."""
    parameters = dict(crash_defect(error).parameters)
    message = f" ({parameters['message']})" if "message" in parameters else ""
    site = f" in {parameters['site']}" if "site" in parameters else ""
    return f"{parameters['error']}{message}{site}"
