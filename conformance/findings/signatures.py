"""Signatures: the identity of a divergence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import RULES, cited, sort_of
from hitproof.spec.claims import CLAIMS, Divergence

SEVERITY = tuple(Divergence)
_PLACES = {name: place for place, name in enumerate((*CLAIMS, *RULES))}
_BEFORE_THE_CODE = ("claim", "divergence", "kind", "eagle")
OF_SCHEDULER = "scheduler, "
"""Starts the kind where a group is judged as a whole scheduler uses it."""


@dataclass(frozen=True)
class Signature:
    """The structure of a divergence: findings with equal signatures have one cause.

    Attributes:
        claim: the claim or the sanity rule that is broken.
        divergence: the class, a `hitproof.spec.claims.Divergence`.
        kind: the group's kind, after `OF_SCHEDULER` where a whole scheduler is judged; the kinds of
            several, joined by " + ", or what is judged if that is no group.
        eagle: whether the group, or one of several, drops a lookahead block; for what is retained
            of Mamba, whether the full attention beside it does.
        defect: how it is broken, as a code with parameters that do not depend on sizes.
    """

    claim: str
    divergence: str
    kind: str
    eagle: bool
    defect: Defect

    @staticmethod
    def booked(
        defect: Defect, divergence: str, kind: str, eagle: bool, claim: str = ""
    ) -> "Signature":
        """The signature under the claim or sanity rule that the defect decides on.

        ``claim`` is what its judge names; see `hitproof.conformance.findings.codes.booked`.
        """
        return Signature(defect.booked(claim), divergence, kind, eagle, defect)

    def as_json(self) -> dict[str, Any]:
        """The signature as JSON; `from_json` reads it."""
        return {
            **{name: getattr(self, name) for name in _BEFORE_THE_CODE},
            "pattern": self.pattern,
            "code": self.code,
            "parameters": dict(self.defect.parameters),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Signature":
        """Inverse of `as_json`.

        The sentence is derived from the code, so the pattern is not read. Raises KeyError,
        ValueError or TypeError on anything else.
        """
        raw = dict(data)
        claim, divergence, kind, eagle = (raw.pop(name) for name in _BEFORE_THE_CODE)
        raw.pop("pattern", None)
        defect = Defect.read(raw.pop("code"), raw.pop("parameters", {}))
        if raw:
            raise TypeError(f"a signature has no {min(raw)}; remove it")
        return Signature.booked(defect, divergence, kind, eagle, cited(claim).name)

    @property
    def sentence(self) -> str:
        """The claim or the sanity rule that is broken, in one sentence."""
        return cited(self.claim).sentence

    @property
    def group_kind(self) -> str:
        """The kind without what says that a whole scheduler is judged."""
        return self.kind.removeprefix(OF_SCHEDULER)

    @property
    def code(self) -> Code:
        """The code of how it is broken."""
        return self.defect.code

    @property
    def pattern(self) -> str:
        """How it is broken, in words that do not depend on sizes."""
        return self.defect.sentence

    @property
    def headline(self) -> str:
        """What is broken where, in a line."""
        return f"{self.kind.replace('_', ' ')}: {self.pattern}"

    @property
    def severity(self) -> tuple[int, int, str, str]:
        """Sorts the most severe first; of a class, in the order of the claims and sanity rules.

        Claims on one group come before those on what follows from it, so causes before effects.
        """
        place = _PLACES.get(self.claim, len(_PLACES))
        return SEVERITY.index(Divergence(self.divergence)), place, self.claim, self.pattern


def in_lines(signature: Signature, given: Sequence[str], spec: str, actual: str) -> Iterator[str]:
    """A case of a divergence as people read it, the headline first."""
    yield f"{signature.divergence}: {signature.headline}"
    yield f"code  : {signature.defect}"
    yield f"{sort_of(signature.claim):<6}: {signature.claim}"
    yield f"        {signature.sentence}"
    for number, fact in enumerate(given):
        yield f"{'' if number else 'given :':<7} {fact}"
    yield f"spec  : {spec}"
    yield f"vllm  : {actual}"
