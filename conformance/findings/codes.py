"""The codes of divergences: what a finding is a case of, stable over releases of hitproof.

Each code has one `Meaning`, a row of ``codes.toml``. The sentence that is shown of a divergence is
made here, from its code and its parameters.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hitproof.conformance.findings.meaning import Code, Meaning, Parameter
from hitproof.conformance.findings.rules import Rule
from hitproof.spec.claims import CLAIMS, Divergence

_RULE = Parameter(
    "rule",
    "the rule that they break",
    {each.parameter: f"; the rule is that {each}" for each in Rule},
    claims={each.parameter: each.sanity_rule for each in Rule},
)


def _meanings() -> Iterator[tuple[Code, Meaning]]:
    rows = tomllib.loads((Path(__file__).parent / "codes.toml").read_text(encoding="utf-8"))
    texts, shared = rows.pop("texts"), rows.pop("parameters")
    known = {name: Parameter(**each) for name, each in shared.items()} | {"planning": _RULE}

    def text(written: str) -> str:
        return texts[written[1:]] if written.startswith("$") else written

    for name, row in rows.items():
        parameters = tuple(
            known[each[1:]] if isinstance(each, str) else Parameter(key, **each)
            for key, each in row.get("parameters", {}).items()
        )
        claims = tuple(row["claims"])
        if claims == ("$planning",):
            claims = tuple(each.sanity_rule for each in Rule)
        yield (
            Code(name),
            Meaning(
                row["sentence"],
                text(row["means"]),
                text(row["effect"]),
                claims,
                tuple(map(Divergence, row["classes"])),
                parameters,
                row.get("any_claim", False),
            ),
        )


MEANINGS: Mapping[Code, Meaning] = dict(_meanings())
"""What each code means."""


class UnknownCode(ValueError):
    """No code has that name; the message has those that are near."""


def worst_class(code: Code) -> Divergence:
    """What the code can be for users at worst."""
    return min(MEANINGS[code].classes, key=list(Divergence).index)


def booked(code: Code, parameters: Mapping[str, str], claim: str = "") -> str:
    """The claim or sanity rule under which a divergence is booked.

    That is the one that a parameter decides on; otherwise ``claim``, what its judge or an older
    file names, where the code can contradict it, or else the first one of the code.
    """
    meaning = MEANINGS[code]
    for each in meaning.parameters:
        if decided := each.claims.get(parameters.get(each.name, "")):
            return decided
    known = meaning.any_claim and claim in CLAIMS
    return claim if known or claim in meaning.claims or not meaning.claims else meaning.claims[0]


def named(name: str) -> Code:
    """The code of that name. Raises `UnknownCode`."""
    try:
        return Code(name)
    except ValueError:
        near = get_close_matches(str(name), list(Code), cutoff=0.5)
        hint = "see hitproof explain --codes"
        if near:
            hint = f"did you mean {', '.join(near)}? All are in hitproof explain --codes"
        raise UnknownCode(f"there is no code {name!r}; {hint}") from None


@dataclass(frozen=True)
class Defect:
    """How a claim is broken: a code and the values of its parameters, sorted by name.

    Raises ValueError, with one sentence, when the code cannot have those parameters.
    """

    code: Code
    parameters: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        known = {parameter.name: parameter for parameter in MEANINGS[self.code].parameters}
        values = dict(self.parameters)
        if unknown := sorted(values.keys() - known.keys()):
            raise ValueError(f"the code {self.code} has no parameter {unknown[0]}; remove it")
        for name, parameter in known.items():
            if name in values:
                parameter.phrase(values[name])
            elif not parameter.optional:
                raise ValueError(f"the code {self.code} needs the parameter {name}; add it")

    @staticmethod
    def of(code: Code, **parameters: str | None) -> "Defect":
        """The defect with those parameters; None stands for one that is left out."""
        return Defect.read(code, {n: v for n, v in parameters.items() if v is not None})

    @staticmethod
    def read(code: str, parameters: Any) -> "Defect":
        """From a code's name and its parameters, as JSON and TOML have them.

        Raises ValueError or TypeError, with one sentence, when there is no such defect.
        """
        if not isinstance(parameters, Mapping) or not _are_text(
            [*parameters, *parameters.values()]
        ):
            raise TypeError(f"the parameters of {code} are not a table of names and strings")
        return Defect(named(code), tuple(sorted(parameters.items())))

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.parameters)
        return f"{self.code}({values})" if values else str(self.code)

    def booked(self, claim: str = "") -> str:
        """The claim or sanity rule under which it is booked; see `booked`."""
        return booked(self.code, dict(self.parameters), claim)

    @property
    def sentence(self) -> str:
        """What is wrong, in words that do not depend on sizes."""
        meaning, values = MEANINGS[self.code], dict(self.parameters)
        return meaning.sentence.format(
            **{
                each.name: each.phrase(values[each.name]) if each.name in values else ""
                for each in meaning.parameters
            }
        )


def _are_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
