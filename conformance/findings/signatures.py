"""Signatures: the identity of a divergence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.findings.codes import MEANINGS, Defect
from hitproof.conformance.findings.former_prose import from_prose
from hitproof.conformance.findings.meaning import Code
from hitproof.spec.claims import CLAIMS, Divergence

SEVERITY = tuple(Divergence)
_PLACES = {claim: place for place, claim in enumerate(CLAIMS)}
_BEFORE_THE_CODE = ("claim", "divergence", "kind", "eagle")


@dataclass(frozen=True)
class Signature:
    """The structure of a divergence: findings with equal signatures have one cause.

    Attributes:
        claim: the claim that is broken.
        divergence: the class, a `hitproof.spec.claims.Divergence`.
        kind: the group's kind, the kinds of several, joined by " + ", or what is judged if that is
            no group.
        eagle: whether the group, or one of several, drops a lookahead block; for what is retained
            of Mamba, whether the full attention beside it does.
        defect: how it is broken, as a code with parameters that do not depend on sizes.
    """

    claim: str
    divergence: str
    kind: str
    eagle: bool
    defect: Defect

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

        The sentence is derived from the code, so the pattern is not read where there is a code.
        What was written before there were codes has a pattern only. Raises KeyError, ValueError or
        TypeError on anything else.
        """
        raw = dict(data)
        claim, divergence, kind, eagle = (raw.pop(name) for name in _BEFORE_THE_CODE)
        pattern, code = raw.pop("pattern", None), raw.pop("code", None)
        parameters = raw.pop("parameters", {})
        if raw:
            raise TypeError(f"a signature has no {min(raw)}; remove it")
        if code is not None:
            defect = Defect.read(code, parameters)
        elif pattern is not None:
            defect = from_prose(pattern)
        else:
            raise KeyError("code")
        return Signature(claim, _divergence(divergence, defect), kind, eagle, defect)

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
        """Sorts the most severe first; of a class, in the order of the claims.

        Claims on one group come before those on what follows from it, so causes before effects.
        """
        place = _PLACES.get(self.claim, len(_PLACES))
        return SEVERITY.index(Divergence(self.divergence)), place, self.claim, self.pattern


def _divergence(written: str, defect: Defect) -> str:
    """The class as it is called now: before there were wrong drafts, these were unsound."""
    only = MEANINGS[defect.code].classes
    drafts = only == (Divergence.WRONG_DRAFTS,) or ("block", "lookahead") in defect.parameters
    return Divergence.WRONG_DRAFTS if written == Divergence.UNSOUND and drafts else written
