"""``hitproof explain CODE``: every code, with an example where the survey has one."""

import json
import tomllib

import pytest
from typer.testing import CliRunner, Result

from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import RULES
from hitproof.conformance.ledger.ledger import load
from hitproof.spec.claims import CLAIMS
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.bundled import FAULTS, LEDGER, SURVEY
from hitproof.vllm_integration.survey import faults, survey

FOUND = {each.signature.code for release in survey.read() for each in release.sightings}


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["explain", *arguments])


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("code", Code)
def test_a_code_is_explained(code: Code) -> None:
    meaning, text = MEANINGS[code], explain(code)
    assert text.exit_code == 0, text.output
    words = " ".join(text.output.split())
    assert words.startswith(f"{code}: ")
    assert all(part in words for part in (meaning.means, meaning.effect, *meaning.claims))
    assert all(f"{each.name} = " in words for each in meaning.parameters)
    assert ("none is known in the surveyed releases" in words) == (code not in FOUND)
    told = json.loads(explain(code, "--format", "json").output)
    assert (told["code"], told["sentence"]) == (code, meaning.sentence)
    assert [each["claim"] for each in told["claims"]] == list(meaning.claims)
    assert (told["example"] is None) == (code not in FOUND)
    if told["example"] is not None:
        assert told["example"]["signature"]["code"] == code
        assert told["example"]["fault"]["title"] in words
        assert " ".join(told["example"]["spec"].split()) in words


def test_what_is_known_fits_its_code() -> None:
    """The class and the claim of each known divergence are among those of its code."""
    known = {entry.signature for entry in load(LEDGER)}
    known |= {signature for fault in faults.load() for signature in fault.signatures}
    known |= {each.signature for release in survey.read() for each in release.sightings}
    for signature in known:
        meaning = MEANINGS[signature.code]
        assert signature.divergence in meaning.classes, signature
        assert signature.claim == signature.defect.booked(signature.claim), signature


def test_what_is_on_record_cites_nothing_but_claims_and_sanity_rules() -> None:
    ledger = tomllib.loads(LEDGER.read_text())["divergence"]
    documented = tomllib.loads(FAULTS.read_text())["fault"]
    names = {entry["signature"]["claim"] for entry in ledger}
    names |= {signature[0] for fault in documented for signature in fault["signatures"]}
    for release in json.loads(SURVEY.read_text()):
        names |= {each["claim"] for each in release["check"]["new"]}
        names |= {each["signature"]["claim"] for each in release["findings"]}
    assert names <= CLAIMS.keys() | RULES.keys()
    assert names & RULES.keys()


def test_all_codes_are_listed() -> None:
    text = explain("--codes").output
    assert [line.split()[0] for line in text.splitlines()] == list(Code)
    told = json.loads(explain("--codes", "--format", "json").output)
    assert [each["code"] for each in told["codes"]] == list(Code)
