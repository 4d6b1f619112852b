"""What is proved of the target's functions for all lengths, sizes and cache contents.

The worker proves it (`vllm_integration.worker.unbounded`). What is proved without a bound is never
refuted up to one: that would be a defect of hitproof.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import InternalError
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.gate.obligations import Obligation

SECONDS = 20.0
"""For one proof; there may be two of them for a statement."""

_EAGLE = "eagle"
_LOOKUPS = (
    "hit_has_every_block_attention_reads",
    "eagle_needs_tail_plus_one",
    "lookup_returns_longest_valid_hit",
)
"""The claims that a statement about a lookup is about."""


_STATEMENTS = (
    "lookup sliding_window eagle",
    "mask sliding_window eagle interval",
    "lookup sliding_window",
    "mask sliding_window interval",
    "mask sliding_window eagle latest",
    "mask sliding_window latest",
    "lookup full_attention eagle",
    "lookup full_attention",
    "lookup chunked_local",  # vLLM asserts that it has no draft layers
    "lookup mamba eagle",
    "lookup mamba",
    "mask sliding_window eagle dense",
    "mask sliding_window dense",
    "mask full_attention dense",
    "mask mamba latest",
    *(f"skipped {kind}" for kind in GroupKind),
)
"""The statements, those that take longest first: what it is about, the kind, and the rest."""


def statements(profile: Profile) -> list[str]:
    """The statements that are put to the target.

    The quick profile has those that take about a second.
    """
    quick = list(_STATEMENTS[_STATEMENTS.index("lookup full_attention eagle") :])
    return quick if profile is Profile.QUICK else list(_STATEMENTS)


@dataclass(frozen=True)
class Unbounded:
    """One statement about a function of the target, for all lengths, and how it ended.

    Attributes:
        name: what the statement is about: "lookup", "mask" or "skipped" tokens, the kind, and the
            rest.
        status: proved for all lengths, refuted by values, or inconclusive.
        detail: what fails, or why nothing is known.
        outside: the causes of known divergences, outside of which it is proved.
        evidence: the counterexample, where there is one.
    """

    name: str
    status: Status
    detail: str = ""
    outside: tuple[str, ...] = ()
    evidence: LookupEvidence | None = None

    @classmethod
    def from_answer(cls, name: str, answer: Mapping[str, Any]) -> "Unbounded":
        """What the worker says."""
        raw = answer["evidence"]
        evidence = None if raw is None else LookupEvidence.from_json(raw)
        assert evidence is None or isinstance(evidence, LookupEvidence)
        outside = tuple(answer["outside"])
        return cls(name, Status(answer["status"]), answer["detail"], outside, evidence)

    def describe(self) -> str:
        """What the statement is about, in words."""
        what, kind, *rest = self.name.split()
        of = {"lookup": "lookup of", "mask": "mask of", "skipped": "tokens skipped by"}[what]
        told = [" with EAGLE" if each == _EAGLE else f", {each} retention" for each in rest]
        return f"{of} {kind.replace('_', ' ')}{''.join(told)}"

    def as_json(self) -> dict[str, Any]:
        """The statement as JSON; it has no bound."""
        return {
            "name": self.name,
            "status": str(self.status),
            "bound": None,
            "detail": self.detail,
            "outside": list(self.outside),
        }

    def is_about(self, configuration: Configuration) -> bool:
        """Whether it says something of the lookup of such a group."""
        group = configuration.group
        eagle = f" {_EAGLE}" if group.eagle else ""
        return self.name == f"lookup {group.kind}{eagle}" and _is_meant(configuration, group)


def _is_meant(configuration: Configuration, group: Group) -> bool:
    """Whether a configuration has what statements take for granted."""
    alone = configuration.ranks == (1, 1) and configuration.members == 1
    hashed = configuration.hash_block_size == group.block_size
    reads = group.window is None or group.window > 1
    whole = group.chunk is None or group.chunk % group.block_size == 0
    return alone and hashed and reads and whole and group.prefill_lookahead == 1


def check_agreement(proved: Sequence[Unbounded], obligations: Iterable[Obligation]) -> None:
    """Raise `InternalError` where something is refuted that is proved for all lengths."""
    whole = [each for each in proved if each.status is Status.PROVED and not each.outside]
    for obligation in obligations:
        configuration = obligation.configuration
        if obligation.status is not Status.REFUTED or obligation.claim not in _LOOKUPS:
            continue
        if not isinstance(configuration, Configuration):
            continue
        for each in whole:
            if each.is_about(configuration):
                raise InternalError(
                    f"the {each.describe()} is proved for all lengths, but refuted for "
                    f"{configuration.describe()}"
                )


def proved_in_words(found: Sequence[Unbounded]) -> list[str]:
    """How many statements are proved, and of each other one why it is not."""
    found = [each for each in found if each.status is not Status.NOT_APPLICABLE]
    proved = [each for each in found if each.status is Status.PROVED]
    but = [each for each in proved if each.outside]
    spared = f" ({len(but)} outside known divergences)" if but else ""
    lines = [
        f"proved for all lengths, sizes and cache contents: {len(proved)} of "
        f"{count(found, 'statement')} about lookups, masks and skipped tokens{spared}"
    ]
    for each in found:
        if each.status is not Status.PROVED:
            lines.append(f"  not proved for all lengths: {each.describe()}: {each.detail}")
    return lines
