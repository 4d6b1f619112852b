"""The selected part of a check: claims and codes, configurations and histories.

What a restricted run leaves out is counted, and reported with its result.
"""

import json
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout, judged_from_json
from hitproof.conformance.words import count
from hitproof.spec.claims import CLAIMS
from hitproof.vllm_integration.gate.obligations import Obligation, Task

_NAMES = (
    *CLAIMS,
    *MEANINGS,
    *sorted({claim for meaning in MEANINGS.values() for claim in meaning.claims} - {*CLAIMS}),
)


def names_from(start: str) -> list[str]:
    """The claims, sanity rules and codes that start so."""
    return [name for name in _NAMES if name.startswith(start)]


class NothingSelected(ValueError):
    """The selection matches nothing; the message is one sentence that names the remedy."""


@dataclass(frozen=True)
class Selection:
    """What of a check is wanted; all of it where nothing is named.

    Attributes:
        only: claims, sanity rules and codes, by name or glob.
        configurations: configurations, layouts and histories: a part of their names, a glob, or a
            configuration as JSON, which need not be one that the profile has.
    """

    only: tuple[str, ...] = ()
    configurations: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not (self.only or self.configurations)

    @cached_property
    def names(self) -> frozenset[str]:
        """The claims, sanity rules and codes that are named. Raises `NothingSelected`."""
        found: set[str] = set()
        for pattern in self.only:
            name_only = pattern.partition("(")[0]  # findings have codes with parameters
            matching = {name for name in _NAMES if fnmatchcase(name, name_only)}
            if not matching:
                like = get_close_matches(pattern, _NAMES, 3, 0.5)
                raise NothingSelected(
                    f"no claim, sanity rule or code is called {pattern!r}; "
                    + (f"did you mean {' or '.join(like)}?" if like else "see `hitproof explain`")
                )
            found |= matching
        return frozenset(found)

    @cached_property
    def claims(self) -> frozenset[str]:
        """The claims that are checked: those that are named, and those that the codes break."""
        if not self.only:
            return frozenset(CLAIMS)
        of_codes = {
            claim
            for code, meaning in MEANINGS.items()
            if code in self.names
            for claim in (CLAIMS if meaning.any_claim else meaning.claims)
        }
        return frozenset(CLAIMS) & (self.names | of_codes)

    @cached_property
    def _exact(self) -> tuple[Configuration | Layout, ...]:
        """The configurations that are written as JSON. Raises `NothingSelected`."""
        found = []
        for text in self.configurations:
            if text.lstrip().startswith("{"):
                try:
                    judged = judged_from_json({"model": "", **json.loads(text)})
                    _ = judged.looked_up  # refuses sizes that do not fit together
                except (ValueError, KeyError, TypeError) as error:
                    raise NothingSelected(
                        f"--configuration {text} is not a configuration ({error!r}); write it as "
                        "`hitproof check --format json` does, or a part of its name"
                    ) from None
                found.append(judged)
        return tuple(found)

    def tasks(self, todo: Sequence[Task]) -> list[Task]:
        """The tasks that are wanted. Raises `NothingSelected`."""
        checks = {CHECKS[claim] for claim in self.claims}
        exact = [
            Task(claim, judged)
            for judged in self._exact
            for claim in {check: claim for claim, check in CHECKS.items()}.values()
            if is_about(claim, judged)
        ]
        wanted = [each for each in todo if self._names_place(each.configuration.describe())]
        return [each for each in dict.fromkeys([*exact, *wanted]) if CHECKS[each.claim] in checks]

    def histories(self, plays: Iterable[Play]) -> list[Play]:
        """The histories that are wanted; any claim may break in any of them."""
        return [play for play in plays if self._names_place(play.describe())]

    def check_any(self, todo: Sequence[Task], plays: Sequence[Play]) -> None:
        """Raise `NothingSelected` where nothing would be judged."""
        if not self.tasks(todo) and not self.histories(plays):
            raise NothingSelected(
                f"nothing is judged with {self.describe()}; `hitproof configs` lists the "
                "configurations of a profile"
            )

    def _names_place(self, name: str) -> bool:
        if not self.configurations:
            return True
        return any(_matches(name.lower(), pattern.lower()) for pattern in self.configurations)

    def has_obligation(self, obligation: Obligation) -> bool:
        """Whether an obligation is wanted."""
        return obligation.claim in self.claims

    def has(self, signature: Signature) -> bool:
        """Whether findings of a signature are wanted."""
        return self.names_any({signature.claim, str(signature.code)})

    def names_any(self, names: Set[str]) -> bool:
        """Whether what has these names is wanted."""
        return not self.only or not self.names.isdisjoint(names)

    def judgement(self, whole: Judgement) -> tuple[Judgement, int]:
        """The findings that are wanted, and how many others are new.

        Entries that did not reproduce are not reported: they may, in what was not checked.
        """

        def is_wanted(finding: Finding) -> bool:
            grown = finding.grown is not None and self.has(finding.grown.of)
            return grown or self.has(finding.signature)

        new = tuple(finding for finding in whole.new if is_wanted(finding))
        known = tuple((finding, entry) for finding, entry in whole.known if is_wanted(finding))
        return Judgement(new, known, ()), len(whole.new) - len(new)

    def describe(self) -> str:
        """The options that say so."""
        options = [f"--only {each}" for each in self.only]
        return " ".join([*options, *(f"--configuration {each!r}" for each in self.configurations)])


@dataclass(frozen=True)
class Restricted:
    """What a run has judged that was not to judge all, or has ended at the first new finding.

    Attributes:
        selection: what was wanted.
        stopped: whether it ended at the first new finding.
        checks: checks that were run on a configuration or layout, and all of them.
        histories: histories that were replayed, and all of them.
        others: new findings of other claims, rules and codes, which are not shown.
    """

    selection: Selection
    stopped: bool
    checks: tuple[int, int]
    histories: tuple[int, int]
    others: int = 0

    @property
    def left_out(self) -> int:
        """The number of claims that were not checked on purpose."""
        return len(CLAIMS) - len(self.selection.claims)

    def describe(self) -> str:
        """What was judged and what was left out, as one line."""
        why = [self.selection.describe()] if not self.selection.is_all else []
        why += ["stopped at the first new finding (-x)"] if self.stopped else []
        parts = [
            f"restricted run, {', '.join(why)}: {_of(self.checks)} checks and "
            f"{_of(self.histories)} histories judged"
        ]
        if self.left_out:
            parts.append(f"{self.left_out} of {count(CLAIMS, 'claim')} left out")
        if not self.selection.is_all:
            parts.append("what the target reads is left out")
        if self.others:
            parts.append(f"{count(self.others, 'new finding')} of other claims or codes not shown")
        return "; ".join([*parts, "this is no verdict on the rest"])

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "only": list(self.selection.only),
            "configurations": list(self.selection.configurations),
            "stopped_at_first": self.stopped,
            "checks": self.checks[0],
            "checks_of": self.checks[1],
            "histories": self.histories[0],
            "histories_of": self.histories[1],
            "claims_left_out": sorted(CLAIMS.keys() - self.selection.claims),
            "findings_not_shown": self.others,
            "note": self.describe(),
        }


def _of(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"


_GLOB = "*?["


def _matches(name: str, pattern: str) -> bool:
    if any(sign in pattern for sign in _GLOB):
        return fnmatchcase(name, pattern)
    return pattern in name


@dataclass(frozen=True)
class Wanted:
    """What of a check is wanted, what is tried first, and how far it goes.

    Attributes:
        selection: what is judged.
        first: the names of places (`place_of`) that are judged before all others.
        exit_first: whether it ends at the first new finding.
    """

    selection: Selection = Selection()
    first: Collection[str] = ()
    exit_first: bool = False


EVERYTHING = Wanted()
