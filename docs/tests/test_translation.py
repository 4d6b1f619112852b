"""The explorer's JavaScript against the Python that it was made of, and wrong translations."""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import get_context
from random import Random
from typing import Any

import pytest
from py_mini_racer import JSEvalException, JSTimeoutException, MiniRacer

from docs import explorer
from docs.choices import Choices, controls
from docs.translation.expressions import CannotTranslate
from docs.translation.translator import translated
from hitproof.spec.attention import attends, lookahead_blocks, tail_blocks
from hitproof.spec.groups import BlockGeometry, GroupKind
from hitproof.spec.hits import in_required_run, required_run, run_start
from hitproof.spec.mask import in_mask, next_boundary
from hitproof.spec.releases.fine import witness_unit
from hitproof.spec.retention import in_retained_mask, replay_boundary
from hitproof.spec.terms import INTEGERS, is_multiple

INPUTS = 1000
_HARNESS = """
const asked = {};
const outcome = (find) => {
  try { return find(); } catch (error) {
    if (error instanceof py.PythonError) return "refuses";
    throw error;
  }
};
function differing(HITPROOF, cases) {
  return cases.findIndex(({ name, given, due }) =>
    JSON.stringify(outcome(() => py.write(HITPROOF[name](...py.read(given))))) !== due);
}
"""


Engine = Callable[[str], Any]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Evaluates JavaScript, in a process of its own: the engine has crashed when it was closed."""
    with get_context("fork").Pool(1) as process:
        yield lambda script: process.apply(_evaluated, (script,))


@cache
def _started() -> MiniRacer:
    return MiniRacer()


def _evaluated(script: str) -> Any:
    return _started().eval(script, timeout_sec=60)


def text(thing: Any) -> str:
    return json.dumps(thing, separators=(",", ":"), ensure_ascii=False)


def differing(engine: Engine, script: str, cases: list[dict[str, Any]]) -> int:
    """The first case in which the script answers otherwise; -1 if there is none."""
    found = engine(
        f"(() => {{ {script}\n{_HARNESS}\nreturn differing(HITPROOF, {text(cases)}); }})()"
    )
    assert isinstance(found, int)
    return found


# --- the explorer as a whole


def blocks(rng: Random, full: int) -> str:
    """A list of blocks as it is typed in, often with a few gaps."""
    found, at = list[str](), 0
    while at < full:
        end = min(full - 1, at + int(rng.expovariate(2 / full)))
        if rng.random() < 0.85:
            found.append(f"{at} - {end}" if end > at else str(at))
        at = end + rng.choice((2, 2, 3, 5))
    return ", ".join(found) or "none"


def choices(rng: Random) -> Choices:
    """Choices that are mostly possible, of few tokens, so that every clause decides often."""
    tokens, eagle = rng.randint(1, 200), rng.random() < 0.5
    chunked, count = rng.random() < 0.15 and not eagle, rng.choice((1, 1, 2, 2, 3))
    made = {"groups": str(count), "prompt": str(tokens), "EAGLE": "on" if eagle else "off"}
    made["retention"] = rng.choice(("dense", "latest", "16", "32", "48"))
    made["horizon"] = rng.choice(("hashed", "capped"))
    if eagle and rng.random() < 0.3:
        made["MTP modules"] = str(rng.randint(1, 5))
    if rng.random() < 0.3:
        made["hit"] = str(16 * rng.randint(1, 8))
    for number in range(count):
        kinds = ("full_attention", "chunked_local" if chunked else "sliding_window")
        kind = rng.choice(kinds if chunked or rng.random() < 0.7 else ("mamba", *kinds))
        size = 8 if chunked else rng.choice((1, 2, 4, 8, 16, 16, 6))
        group = {"kind": kind, "block size": str(size)}
        if kind == "sliding_window":
            group["window"] = str(rng.randint(1, 60))
        if kind == "chunked_local":
            group["chunk"] = str(size * rng.randint(1, 5))
        if eagle and kind != "mamba" and rng.random() < 0.3:
            group["draft layers"] = "yes"
        if rng.random() < 0.05:
            group["prefix caching"] = "off"
        if rng.random() < 0.6:
            group["cached"] = blocks(rng, tokens // size)
        if rng.random() < 0.4:
            group["mask"] = blocks(rng, tokens // size)
            group["cached"] = rng.choice(("mask", "registered"))
        made |= {f"{name} {number}": value for name, value in group.items()}
    if rng.random() < 0.05:  # what no engine can have, or nobody can read
        made[rng.choice(list(made))] = rng.choice(("x", "-1", "7-", "", "0", "9999999999", "é"))
    return made


EDGES: list[Choices] = [
    {"kind 0": "full_attention", "block size 0": "0"},
    {"kind 0": "full_attention", "block size 0": "1", "EAGLE": "on", "MTP modules": "0"},
    {"kind 0": "sliding_window", "block size 0": "4", "window 0": "0"},
    {"kind 0": "sliding_window", "block size 0": "4", "window 0": "1"},
]
"""What is just possible, and what just is not."""


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    rng = Random(20)
    asked: list[Choices] = [{}, *EDGES, *(choices(rng) for _ in range(INPUTS))]
    return [
        {"name": "answer", "given": [each], "due": text(explorer.answer(each))} for each in asked
    ]


def test_the_inputs_reach_what_the_page_can_say(answers: list[dict[str, Any]]) -> None:
    said = "".join(each["due"] for each in answers)
    refused = [each["due"] for each in answers if '"refused"' in each["due"]]
    assert len(set(refused)) > 15
    assert len(refused) < INPUTS / 2
    for words in (
        *("missing from mask", "waste in mask", "has no waste", '"longest hit"', '"within_reach"'),
        *('"has_required_run"', "Mamba continues", "its own chunk", "lookahead = 2 blocks"),
        *("past the lookahead horizon", "opts out", "retention_keeps_only_promised_blocks"),
    ):
        assert words in said, words


def test_a_thousand_random_inputs_are_answered_as_the_spec_does(
    engine: Engine, answers: list[dict[str, Any]]
) -> None:
    assert len(answers) > INPUTS
    at = differing(engine, explorer.script(), answers)
    assert at == -1, answers[at]


def test_what_can_be_chosen_is_the_same(engine: Engine, answers: list[dict[str, Any]]) -> None:
    asked = [each["given"][0] for each in answers[:200]]
    cases = [{"name": "controls", "given": [each], "due": text(controls(each))} for each in asked]
    assert differing(engine, explorer.script(), cases) == -1


# --- clauses on their own


def geometry_of(kind: str, numbers: list[int]) -> BlockGeometry:
    segment, tail, lookahead, size, chunk = numbers
    return BlockGeometry(GroupKind(kind), segment, tail, lookahead, size, chunk)


def run(kind: str, numbers: list[int], block: int, boundary: int) -> list[Any]:
    group = geometry_of(kind, numbers)
    found = required_run(group, boundary)
    return [
        run_start(group, boundary),
        found.start,
        found.stop,
        in_required_run(group, block, boundary),
    ]


def mask(kind: str, numbers: list[int], block: int, replays: list[int], every: int) -> list[Any]:
    group = geometry_of(kind, numbers)
    interval = every * numbers[0] or None
    return [
        next_boundary(group, block),
        in_mask(group, block),
        in_retained_mask(group, block, replays, interval),
    ]


def small(one: int, other: int, size: int, limit: int) -> list[Any]:
    """Clauses on numbers, also on those below zero."""
    return [
        attends(one, other, None),
        attends(one, other, size),
        attends(one, other, None, size),
        tail_blocks(size, limit),
        lookahead_blocks(size, limit),
        replay_boundary(one, other, limit, size),
        is_multiple(one, size),
        INTEGERS.floor_div(one, size),
        INTEGERS.ceil_div(one, size),
        witness_unit(GroupKind.MAMBA, one, size),
    ]


CLAUSES: dict[str, Callable[..., Any]] = {"run": run, "mask": mask, "small": small}


def asked(rng: Random, name: str) -> list[Any]:
    if name == "small":
        return [rng.randint(-30, 30), rng.randint(-30, 30), rng.randint(1, 9), rng.randint(1, 9)]
    size = rng.randint(1, 5)
    shape = [rng.randint(1, 5), rng.randint(0, 9), rng.randint(0, 3), size, rng.randint(1, 17)]
    given: list[Any] = [rng.choice([str(kind) for kind in GroupKind]), shape, rng.randint(-3, 40)]
    if name == "run":
        return [*given, rng.randint(1, 30)]
    return [*given, [rng.randint(0, 30), rng.randint(0, 30)], rng.randint(0, 4)]


@pytest.fixture(scope="module")
def clauses() -> list[dict[str, Any]]:
    rng, cases = Random(9), list[dict[str, Any]]()
    for number in range(INPUTS):
        name = list(CLAUSES)[number % len(CLAUSES)]
        given = asked(rng, name)
        cases.append({"name": name, "given": given, "due": text(CLAUSES[name](*given))})
    return cases


def test_clauses_are_the_same_on_a_thousand_random_inputs(
    engine: Engine, clauses: list[dict[str, Any]]
) -> None:
    at = differing(engine, translated(CLAUSES), clauses)
    assert at == -1, clauses[at]


# --- wrong translations are refuted

_WRONG = {
    "add": "sub",
    "sub": "add",
    "mul": "add",
    "floordiv": "mod",
    "and": "or",
    "or": "and",
    "eq": "lt",
    "lt": "le",
    "le": "lt",
    "otherwise": "both",
    "both": "otherwise",
    "all": "any",
    "any": "all",
    "max": "min",
    "min": "max",
    "neg": "int",
}
_SITE = re.compile(rf"\bpy\.({'|'.join(_WRONG)})\(")


_ALIKE = (
    # 0 has been answered before.
    "function spec_hits_valid_hit: if (((py.lt(length, 0))",
    # The page asks for boundaries past the extension only.
    "function spec_retention_serves_follow_ups: return py.and(py.and(py.lt(extension, boundary)",
)
"""Where ``<`` and ``<=`` are the same, and why."""


def mutants(script: str) -> Iterator[tuple[str, str]]:
    """Where in a clause of the spec one operation is another, and the script with it."""
    start = script.index("const HITPROOF")
    for site in _SITE.finditer(script, start):
        line = script.rfind("\n", 0, site.start()) + 1
        holder = script.rfind("\nfunction", 0, site.start())
        of_class = script.rfind("\nclass", 0, site.start())
        head = script[max(holder, of_class) + 1 :].partition("(")[0].partition(" extends")[0]
        told = script[line : script.find("\n", line)]
        if head.split()[1].startswith("spec_") and not told.startswith("throw"):
            wrong = f"py.{_WRONG[site[1]]}("
            yield (
                f"{head}: {told} [{site.start() - line}]",
                script[: site.start()] + wrong + script[site.end() :],
            )


def survives(engine: Engine, script: str, cases: list[dict[str, Any]]) -> bool:
    try:
        return differing(engine, script, cases) == -1
    except (JSEvalException, JSTimeoutException):
        return False


@pytest.mark.slow
def test_each_wrong_operation_is_refuted(engine: Engine, answers: list[dict[str, Any]]) -> None:
    wrong = dict(mutants(explorer.script()))
    left = [where for where, script in wrong.items() if survives(engine, script, answers[:200])]
    assert len(wrong) > 40
    assert len(left) == len(_ALIKE)
    assert all(where.startswith(_ALIKE) for where in left), left


# --- what cannot be translated


def test_code_without_a_translation_is_refused() -> None:
    for function, what in (
        (_with_power, r"BinOp: x \*\* 2"),
        (_with_set, "Global"),
        (_with_import, "dumps"),
    ):
        with pytest.raises(CannotTranslate, match=what):
            translated({"f": function})


def _with_power(x: int) -> int:
    return int(x**2)


def _with_set() -> None:
    global INPUTS
    INPUTS = 1


def _with_import(x: int) -> str:
    return json.dumps(x)
