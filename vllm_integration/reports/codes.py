"""What codes mean, as people and as programs read it."""

from functools import partial
from typing import Any

from rich.console import Console

from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.meaning import Code, Parameter
from hitproof.conformance.findings.rules import cited, sort_of
from hitproof.conformance.picking import picked
from hitproof.vllm_integration.reports.printing import print_text, whole, wrapped
from hitproof.vllm_integration.survey.examples import Example

_LABEL = 10


def codes_json() -> dict[str, Any]:
    """All codes as JSON."""
    return {"codes": [_meaning_json(code) for code in Code]}


def code_json(code: Code, example: Example | None) -> dict[str, Any]:
    """What a code means, with an example, as JSON."""
    return _meaning_json(code) | {"example": None if example is None else _example_json(example)}


def _meaning_json(code: Code) -> dict[str, Any]:
    meaning = MEANINGS[code]
    return {
        "code": code,
        **picked(meaning, "sentence", "classes", "any_claim", "means", "effect"),
        "claims": [
            {"claim": name, "cites": sort_of(name), "sentence": cited(name).sentence}
            for name in meaning.claims
        ],
        "parameters": [
            {
                **picked(each, "name", "about", "optional"),
                "values": None if isinstance(each.phrases, str) else list(each.phrases),
            }
            for each in meaning.parameters
        ],
    }


def _example_json(example: Example) -> dict[str, Any]:
    sighting, fault = example.sighting, example.fault
    return {
        "release": example.release,
        **picked(sighting, "signature", "given", "spec", "source", vllm="actual"),
        "fault": None if fault is None else picked(fault, "number", "title"),
    }


def print_codes(console: Console) -> None:
    """Every code with its class and its sentence."""
    codes = [(code, ", ".join(MEANINGS[code].classes), _sentence(code)) for code in Code]
    print_text(console, "codes.txt", codes=codes, width=max(map(len, Code)))


def print_code(code: Code, example: Example | None, console: Console) -> None:
    """What a code means, with an example."""
    meaning = MEANINGS[code]
    named = [(f"{sort_of(name)} {name}", cited(name).sentence) for name in meaning.claims]
    named += [("any claim", "where a check that is about it finds it")] * meaning.any_claim
    print_text(
        console,
        "codes.txt",
        codes=(),
        code=code,
        sentence=_sentence(code),
        meaning=meaning,
        named=named,
        example=example,
        described=_described,
        wrapped=partial(_wrapped, console),
    )


def _described(parameter: Parameter) -> str:
    free = isinstance(parameter.phrases, str)
    values = "any name" if free else " | ".join(parameter.phrases)
    optional = ", optional" if parameter.optional else ""
    return f"{parameter.name} = {values}{optional}: {parameter.about}"


def _sentence(code: Code) -> str:
    """The code's sentence, with the names of parameters in angle brackets: in square, optional."""
    meaning = MEANINGS[code]
    names = {p.name: f" [{p.name}]" if p.optional else f"<{p.name}>" for p in meaning.parameters}
    return meaning.sentence.format(**names)


def _wrapped(console: Console, label: str, text: str) -> str:
    """A fact under its label; what does not fit goes on below it."""
    head = f"  {label:<{_LABEL}}{':' if label else ' '} "
    below = " " * (len(head) + len(text) - len(text.lstrip()))
    lines = wrapped(console, f"{head}{text}", below, len(head) + 20)
    return "\n".join(map(whole, lines))
