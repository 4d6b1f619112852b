"""The report of a shadow: how much was judged, what diverges, and what was not judged and why."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.bundled import LEDGER

LEDGERS = (LEDGER,)


def load_known(version: str | None, paths: Iterable[Path] = LEDGERS) -> dict[Signature, str]:
    """The known divergences of a release with their reasons; None is newer than any.

    Raises `conformance.ledger.ledger.LedgerError`.
    """
    known: dict[Signature, str] = {}
    for path in paths:
        for entry in load(path):
            if entry.applies_to(version):
                known.setdefault(entry.signature, entry.reason.strip())
    return known


@dataclass
class Report:
    """What the shadow of one process saw.

    Attributes:
        known: the ledger's divergences, by signature.
        managers: managers that were shadowed.
        operations: calls of them that were judged.
        lookups: lookups that were judged, those of managers and of single groups.
        hits: those of them that served tokens.
        alone: those of them that were made on single groups, without a manager.
        blocks: blocks that were judged to be registered, or rightly not.
        audits: how often the whole pool was judged.
        compared: calls after which manager and reference were compared.
        new: findings that the ledger does not have; the first of each signature.
        times: how often each signature was found.
        not_judged: what was not judged, by the reason.
        errors: errors of the shadow's own, by their text.
        on_new: is called with each finding that the ledger does not have.
        on_first: is called with the first finding of each signature, known or new.
    """

    known: Mapping[Signature, str] = field(default_factory=dict)
    managers: int = 0
    operations: int = 0
    lookups: int = 0
    hits: int = 0
    alone: int = 0
    blocks: int = 0
    audits: int = 0
    compared: int = 0
    new: list[Occurrence] = field(default_factory=list)
    times: Counter[Signature] = field(default_factory=Counter)
    not_judged: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    on_new: Callable[[Occurrence], None] | None = None
    on_first: Callable[[Occurrence], None] | None = None

    def add(self, violation: Violation, given: tuple[str, ...], call: str) -> None:
        """Record a finding."""
        signature = violation.signature
        finding = Occurrence(violation, call=call, given=given, known=self.known.get(signature, ""))
        self.times[signature] += 1
        first = self.times[signature] == 1
        if first and not finding.known:
            self.new.append(finding)
        if first and self.on_first is not None:
            self.on_first(finding)
        if self.on_new is not None and not finding.known:
            self.on_new(finding)

    @property
    def num_known(self) -> dict[Signature, int]:
        """How often each known divergence was found."""
        return {s: times for s, times in self.times.items() if s in self.known}

    @property
    def num_new(self) -> dict[Signature, int]:
        """How often each other divergence was found."""
        return {s: times for s, times in self.times.items() if s not in self.known}

    def lines(self) -> list[str]:
        """The report as people read it."""
        if not self.managers and not self.lookups:
            return [
                "no KVCacheManager was shadowed and no lookup judged: this run shows nothing about "
                "vLLM's prefix cache",
                *self._not_judged(),
            ]
        lines = [
            f"{count(self.managers, 'manager')} shadowed, {count(self.operations, 'operation')}, "
            f"{count(self.lookups, 'lookup')} judged ({self.hits} with a hit, "
            f"{self.alone} without a manager), "
            f"{count(self.blocks, 'registered block')}, {count(self.audits, 'audit')} of pools"
            + (f", {self.compared} compared with the reference" if self.compared else ""),
            f"divergences: {sum(self.num_new.values())} new, "
            f"{sum(self.num_known.values())} known of {count(self.num_known, 'signature')}",
        ]
        for signature, times in self.num_new.items():
            lines.append(f"  new, {count(times, 'time')}: {_line(signature)}")
        for signature, times in self.num_known.items():
            lines.append(f"  known, {count(times, 'time')}: {_line(signature)}")
        return lines + self._not_judged()

    def _not_judged(self) -> list[str]:
        lines = [
            f"not judged, {count(times, 'time')}: {why}"
            for why, times in self.not_judged.most_common()
        ]
        return lines + [
            f"defect in hitproof, {count(n, 'time')}: {what}" for what, n in self.errors.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """The counts as JSON; without the findings."""
        return {
            **{name: getattr(self, name) for name in _COUNTS},
            "found": [{**s.as_json(), "times": n} for s, n in self.times.items()],
            **picked(self, "not_judged", "errors"),
        }

    def merge(self, data: Mapping[str, Any]) -> None:
        """Add what another process saw, as `as_json` gives it."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + data[name])
        for found in data["found"]:
            times = found["times"]
            self.times[Signature.from_json({k: v for k, v in found.items() if k != "times"})] += (
                times
            )
        self.not_judged.update(data["not_judged"])
        self.errors.update(data["errors"])


_COUNTS = tuple(each.name for each in fields(Report) if each.type is int)
"""The fields of a report that are numbers."""


def _line(signature: Signature) -> str:
    eagle = ", EAGLE" if signature.eagle else ""
    kind = signature.kind.replace("_", " ")
    return f"{signature.divergence}: {kind}{eagle}: {signature.pattern} ({signature.claim})"
