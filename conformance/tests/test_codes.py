"""The codes: each has a meaning, uses its parameters, and is produced where a subject is broken."""

import ast
import json
import re
import string
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.codes import (
    MEANINGS,
    Defect,
    UnknownCode,
    named,
    worst_class,
)
from hitproof.conformance.findings.former_prose import from_prose
from hitproof.conformance.findings.meaning import Code, Parameter
from hitproof.conformance.findings.signatures import Signature
from hitproof.spec.claims import CLAIMS, Divergence

HERE = Path(__file__).resolve().parent
PROSE = json.loads((HERE / "former_prose.json").read_text())
"""Every pattern that the ledger, the faults and the survey had before there were codes."""

BESIDE_CLAIMS = {"block_pool", "block_hashes", "lockstep", "scheduler"}
"""What whole managers are judged by that is no claim of its own."""


def values(parameter: Parameter) -> list[str]:
    """Values that the parameter can have: all of them, or one where any is possible."""
    return ["AnyName"] if isinstance(parameter.phrases, str) else list(parameter.phrases)


def examples(code: Code) -> list[Defect]:
    """Defects of the code, in which every value of every parameter occurs."""
    parameters = MEANINGS[code].parameters
    most = max((len(values(each)) for each in parameters), default=1)
    found = [
        Defect.of(code, **{each.name: (values(each) * most)[n] for each in parameters})
        for n in range(most)
    ]
    needed = {each.name: values(each)[0] for each in parameters if not each.optional}
    return [*found, Defect.of(code, **needed)]


@pytest.mark.parametrize("code", Code)
def test_a_code_has_a_meaning_and_uses_each_parameter(code: Code) -> None:
    meaning = MEANINGS[code]
    used = [name for _, name, _, _ in string.Formatter().parse(meaning.sentence) if name]
    assert sorted(used) == sorted(each.name for each in meaning.parameters)
    assert meaning.means.endswith(".")
    assert meaning.effect.endswith(".")
    assert meaning.classes
    assert set(meaning.claims) <= CLAIMS.keys() | BESIDE_CLAIMS
    assert all(each.about for each in meaning.parameters)


def test_names_are_in_kebab_case_and_codes_have_one_meaning() -> None:
    assert set(MEANINGS) == set(Code)
    assert all(set(code) <= set(string.ascii_lowercase + "-") for code in Code)
    assert len({meaning.sentence for meaning in MEANINGS.values()}) == len(Code)


def test_each_defect_has_a_sentence_of_its_own_and_is_read_back() -> None:
    sentences: dict[str, Defect] = {}
    for code in Code:
        for defect in examples(code):
            assert Defect.read(str(code), dict(defect.parameters)) == defect
            assert sentences.setdefault(defect.sentence, defect) == defect
            assert "{" not in defect.sentence
            assert "  " not in defect.sentence
            signature = Signature("block_pool", "crash", "mamba", False, defect)
            told = json.loads(json.dumps(signature.as_json()))
            assert told["pattern"] == defect.sentence
            assert Signature.from_json(told) == signature


@pytest.mark.parametrize("told", PROSE, ids=[each["pattern"] for each in PROSE])
def test_former_sentences_are_read(told: dict[str, Any]) -> None:
    defect = Defect.read(told["code"], told["parameters"])
    assert from_prose(told["pattern"]) == defect
    raw = {"claim": "block_pool", "divergence": "crash", "kind": "mamba", "eagle": False}
    signature = Signature("block_pool", "crash", "mamba", False, defect)
    assert Signature.from_json(raw | {"pattern": told["pattern"]}) == signature


@pytest.mark.parametrize(
    ("parameters", "now"),
    [
        ({"block": "lookahead", "dropping": "several"}, "wrong drafts"),
        ({"block": "required", "dropping": "several"}, "unsound"),
    ],
)
def test_what_was_unsound_in_drafts_only_is_read_as_wrong_drafts(
    parameters: dict[str, str], now: str
) -> None:
    raw = {"claim": "common_hit_is_valid_for_every_group", "kind": "full_attention", "eagle": True}
    raw |= {"divergence": "unsound", "code": "group-lacks-block", "parameters": parameters}
    assert Signature.from_json(raw).divergence == now


@pytest.mark.parametrize(
    "sentence",
    [
        *(each["pattern"] + "," for each in PROSE),
        *(each["pattern"][:-1] for each in PROSE if not each["pattern"].startswith("raises ")),
        "",
        "raises",
        "raises a ValueError",
        "touch raises",
        "raises {error}",
        "raises ValueError, and more",
        "lookahead-block-unregistered",
        "lookahead block is not registered",
    ],
)
def test_other_sentences_are_refused(sentence: str) -> None:
    with pytest.raises(ValueError, match="name its code instead of the pattern"):
        from_prose(sentence)


def test_exceptions_keep_their_names() -> None:
    assert from_prose("raises KeyError") == Defect.of(Code.RAISES_EXCEPTION, error="KeyError")
    assert from_prose("touch raises KeyError") == Defect.of(
        Code.RAISES_EXCEPTION, error="KeyError", method="touch"
    )
    assert from_prose("raises KeyError, with dense retention") == Defect.of(
        Code.RAISES_EXCEPTION, error="KeyError", retention="dense"
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lookahead-block-unregisterd", "did you mean lookahead-block-unregistered"),
        ("Hit-Too-Short", "did you mean hit-too-short"),
        ("zzz", "see hitproof explain --codes"),
    ],
)
def test_an_unknown_code_is_refused_with_what_is_near(name: str, near: str) -> None:
    with pytest.raises(UnknownCode, match=near):
        named(name)


POOL = [name for name, claim in CLAIMS.items() if "BlockPool.touch" in claim.symbols]


@pytest.mark.parametrize("name", POOL)
def test_what_a_claim_on_the_pool_means_at_worst_is_what_its_codes_mean(name: str) -> None:
    order = list(Divergence)
    of_codes = [worst_class(code) for code, meaning in MEANINGS.items() if name in meaning.claims]
    assert CLAIMS[name].divergence is min(of_codes, key=order.index)


def test_whole_managers_are_judged_by_the_class_of_the_code() -> None:
    assert len(POOL) == 5
    assert worst_class(Code.FREE_COUNT_WRONG) is Divergence.CRASH
    assert worst_class(Code.BLOCK_LEAKED) is Divergence.WASTE
    assert worst_class(Code.BLOCK_QUEUED_TWICE) is Divergence.UNSOUND


def produced() -> set[str]:
    """The codes that tests expect of broken subjects, here and in vllm_integration."""
    found = set()
    for folder in (HERE, HERE.parents[1] / "vllm_integration" / "tests"):
        for path in {*folder.glob("test_*.py")} - {HERE / "test_codes.py"}:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "Code":
                    found.add(str(Code[node.attr]))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= set(re.findall(r"[a-z]+(?:-[a-z]+)+", node.value)) & set(Code)
    return found


def test_every_code_is_expected_of_a_broken_subject() -> None:
    assert not set(Code) - produced()
