"""The codes: each has a meaning, uses its parameters, and is produced where a subject is broken."""

import ast
import json
import re
import string
from functools import cache
from pathlib import Path

import pytest

from hitproof.conformance.findings.codes import MEANINGS, Defect, UnknownCode, named, worst_class
from hitproof.conformance.findings.meaning import Code, Parameter
from hitproof.conformance.findings.rules import RULES, Rule, SanityRule, cited
from hitproof.conformance.findings.signatures import Signature
from hitproof.spec.claims import CLAIMS, Divergence

HERE = Path(__file__).resolve().parent
KEPT = "mask_keeps_every_reachable_block"
NAMES = "cached_key_names_its_content"


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
    assert meaning.claims or meaning.any_claim
    assert set(meaning.claims) <= CLAIMS.keys() | RULES.keys()
    decided = {claim for each in meaning.parameters for claim in each.claims.values()}
    assert decided <= set(meaning.claims)
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
            signature = Signature(defect.booked(KEPT), "crash", "mamba", False, defect)
            told = json.loads(json.dumps(signature.as_json()))
            assert told["pattern"] == defect.sentence
            assert Signature.from_json(told) == signature


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


@pytest.mark.parametrize("code", Code)
def test_every_possible_signature_of_a_code_cites_a_claim_or_a_sanity_rule(code: Code) -> None:
    meaning = MEANINGS[code]
    for defect in examples(code):
        assert defect.booked(KEPT) in {*meaning.claims, *([KEPT] * meaning.any_claim)}
        for claim in meaning.claims:
            assert cited(defect.booked(claim)).sentence


@pytest.mark.parametrize(
    ("code", "parameters", "claim"),
    [
        (Code.DERIVED_GROUPS_WRONG, {"rule": "padding"}, "planning_padding"),
        (Code.PROMISED_HIT_MISSED, {"by": "mask", "to": "sibling"}, KEPT),
        (
            Code.PROMISED_HIT_MISSED,
            {"by": "retention", "to": "sibling"},
            "retention_keeps_siblings",
        ),
        (Code.NULL_BLOCK_READ, {"after": "load"}, "step_reads_what_was_computed"),
        (Code.NULL_BLOCK_READ, {}, "hit_has_every_block_attention_reads"),
    ],
)
def test_a_parameter_may_decide_what_is_contradicted(
    code: Code, parameters: dict[str, str], claim: str
) -> None:
    defect = Defect.of(code, **parameters)
    assert defect.booked() == claim
    assert defect.booked(KEPT) == claim


def test_a_name_of_nothing_is_refused() -> None:
    raw = {"claim": "made_up", "divergence": "waste", "kind": "mamba", "eagle": False}
    with pytest.raises(ValueError, match="no claim or sanity rule is called 'made_up'; see"):
        Signature.from_json(raw | {"code": "block-leaked"})


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_sanity_rule_says_why_it_is_expected_and_is_shown_broken(rule: SanityRule) -> None:
    assert rule.name not in CLAIMS
    assert rule.name.islower()
    assert all(text.endswith(".") for text in (rule.sentence, rule.reason))
    assert rule.symbols
    codes = {code for code, meaning in MEANINGS.items() if rule.name in meaning.claims}
    assert codes & produced()


def test_each_rule_of_planning_is_a_sanity_rule() -> None:
    planning = [name for name in RULES if name.startswith("planning_")]
    assert planning == [rule.sanity_rule for rule in Rule]
    shown = (HERE / "test_derivation.py").read_text()
    assert all(re.search(rf"\bRule\.{rule.name}\b", shown) for rule in Rule)


@cache
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
        for path in folder.glob("cases/*.toml"):
            text = path.read_text(encoding="utf-8")
            if path.name != "rows.toml":
                text = "".join(re.findall(r"^(?:code|shows) = .*\n", text, re.M))
            found |= set(re.findall(r"[a-z]+(?:-[a-z]+)+", text)) & set(Code)
    return found


def test_every_code_is_expected_of_a_broken_subject() -> None:
    assert not set(Code) - produced()
