"""vLLM's own functions are proved for all lengths, and faults past any bound are refuted."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.prover import DEFAULTS
from hitproof.proofs.second_solver import Opinion, Query, opinion
from hitproof.spec.claims import Status
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.gate import gate
from hitproof.vllm_integration.gate.obligations import Obligation
from hitproof.vllm_integration.gate.unbounded import (
    Unbounded,
    check_agreement,
    proved_in_words,
    resting,
    statements,
    unless_known,
)
from hitproof.vllm_integration.tests.conftest import Copy, Judge, edits, release
from hitproof.vllm_integration.tests.forkserver import PYTHON

WINDOW = "lookup sliding_window"
TIERS = ("storing", "asking")
WINDOWS = Configuration(1, 3, 4, Group(GroupKind.SLIDING_WINDOW, 4, 9), 4)
CAUSE = (
    "With EAGLE, boundaries near the start of a request are lost where blocks are smaller than the "
    "alignment"
)
NEAR_START = "1 < segment and hit < tail"
EXACTLY = f"where {NEAR_START}, a hit is served only if segment + 1 blocks follow it"


def settled(
    root: Path,
    *names: str,
    questions: Path | None = None,
    proved: Sequence[str] = (),
    seed: str = "0",
) -> dict[str, dict[str, Any]]:
    """What is known of these statements about a target, of all by default.

    What Z3 is asked for that is written to files, where there is a directory for them. The hash
    seed is that of workers, unless another is given. ``proved`` has digests of what is proved
    already.
    """
    program = "hitproof.vllm_integration.tests.unbounded_program"
    words = [os.environ[PYTHON], "-m", program, str(root), *names]
    environment = os.environ | {"PYTHONHASHSEED": seed, "HITPROOF_PROVED": ",".join(proved)}
    if questions:
        environment["HITPROOF_QUESTIONS"] = str(questions)
    result = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, dict[str, Any]] = json.loads(result.stdout[result.stdout.index("{") :])
    return found


ABSENT = {
    # Coordinators make the hashes there, masks know where replays resume, and none is Mamba's.
    "0.23.0": (
        *("mask mamba latest", "hashes", "replay", "replay eagle"),
        *(name for name in statements(Profile.DEFAULT) if name.endswith(" inside")),
    )
}


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("version", ["0.33.0", "0.30.0", "0.23.0"])
def test_functions_are_proved_for_all_lengths(version: str) -> None:
    found = settled(release(version))
    tiers = [name for name in found if version == "0.23.0" and name.split()[0] in TIERS]
    for name in (*ABSENT.get(version, ()), *tiers):
        assert found.pop(name)["status"] == Status.NOT_APPLICABLE
    assert {
        name: (each["status"], each["detail"]) for name, each in found.items()
    } == dict.fromkeys(found, (Status.PROVED, ""))
    outside = {name: [*each["outside"].values()] for name, each in found.items()}
    block_0 = "a block is kept needlessly where block == 0 and"
    lost = f"a hit is lost only where {NEAR_START} for some group"
    assert {name: told for name, told in outside.items() if told} == {
        "lookup sliding_window eagle": [EXACTLY],
        "mask sliding_window eagle dense": [f"{block_0} tail + 1 == segment"],
        "mask sliding_window eagle interval": [
            f"{block_0} tail + 1 == segment",
            f"{block_0} boundary == 0",
        ],
        "mask sliding_window eagle latest": [f"{block_0} boundary == 0"],
        "mask chunked_local dense": ["a block is kept needlessly where (block + 1) % chunk == 0"],
        "mask mamba dense": ["a block is kept needlessly where (block + 1) % segment != 0"],
        **_outside_of_tiers(found, block_0),
        "coordinator full_attention sliding_window eagle": [lost],
        "coordinator full_attention eagle sliding_window eagle": [lost],
        "serving full_attention eagle sliding_window eagle": [lost],
    }


OF_ONE_GROUP = [
    name for name in statements(Profile.DEFAULT) if not name.startswith(("coordinator", "serving"))
]


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("of_masks_and_lookups", [True, False])
def test_cvc5_agrees_with_all_that_proofs_rest_on(
    of_masks_and_lookups: bool, tmp_path: Path
) -> None:
    """Impossible paths, invariants and conclusions are all questions that Z3 answers by "unsat".

    If it did so wrongly, cvc5 would be seen to disagree: it finds the models that Z3 finds.
    """
    first = ("lookup", "mask", "hashes")
    names = [name for name in OF_ONE_GROUP if name.startswith(first) is of_masks_and_lookups]
    found = settled(release("0.33.0"), *names, questions=tmp_path)
    assert {each["status"] for each in found.values()} == {Status.PROVED}
    files = tmp_path.iterdir()
    questions = (Query(path, {}, path.suffix[1:], path.read_text()) for path in files)
    limit = DEFAULTS.second_resource_limit
    counts = Counter((each.expected, opinion(each, limit)) for each in questions)
    print(dict(counts))
    for answer in ("sat", "unsat"):
        assert counts[answer, Opinion.DISAGREES] == 0
        assert counts[answer, Opinion.AGREES] > 99 * counts[answer, Opinion.UNKNOWN]


@pytest.mark.release
@pytest.mark.long
def test_every_boundary_at_which_a_repaired_fault_bites_is_told() -> None:
    """https://github.com/vllm-project/vllm/pull/44082."""
    name = "mask sliding_window eagle dense"
    answer = settled(release("0.22.1"), name)[name]
    where = "tail < segment and segment <= block and block % segment == 0"
    (cause,) = answer["outside"]
    found = [Unbounded.from_answer(name, answer)]
    assert unless_known(found, {cause}) == found
    (refuted,) = unless_known(found, set())
    assert refuted.status is Status.REFUTED
    assert refuted.detail == f"a block is missing where {where}"


def _outside_of_tiers(found: Mapping[str, Any], block_0: str) -> dict[str, list[str]]:
    """The same divergences, where there is a Mooncake store whose masks start at any block."""
    of_groups = {
        "sliding_window eagle": f"{block_0} tail + 1 == segment",
        "chunked_local": "a block is kept needlessly where (block + 1) % chunk == 0",
        "mamba": "a block is kept needlessly where (block + 1) % segment != 0",
    }
    named = {f"{mask} {group}": [told] for mask in TIERS for group, told in of_groups.items()}
    return {name: told for name, told in named.items() if name in found}


FULL_AND_WINDOW = "coordinator full_attention sliding_window"


FAULTS = edits("unbounded")


@pytest.mark.release
@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refuted(broken_copy: Copy, fault: str) -> None:
    """Also past any bound, with values, and where a known divergence has one case more or less."""
    wanted = FAULTS[fault]
    name, version = wanted["statement"], wanted.get("version", "0.33.0")
    found = settled(broken_copy(version, {wanted["old"]: wanted["new"]}), name)[name]
    assert found["status"] == Status.REFUTED, found["detail"]
    assert found["outside"] or not wanted.get("outside")
    assert found["detail"].startswith(wanted.get("detail", ""))
    if reaches := wanted.get("reaches"):
        shown = found["evidence"]
        assert eval(reaches, shown["configuration"] | shown)
        assert found["detail"].endswith(f" tokens ({shown['spec_hit']} expected)")
    if wanted.get("shows") == "groups":
        assert found["evidence"]["configuration"]["groups"]


FULL_AND_WINDOW = "coordinator full_attention sliding_window"


@pytest.mark.release
@pytest.mark.long
def test_what_rests_on_the_same_code_is_proved_once(broken_copy: Copy) -> None:
    """Also where it is that of another release, or where only other code is edited."""
    names = WINDOW, "lookup mamba", FULL_AND_WINDOW
    first = settled(release("0.33.0"), *names)
    digests = [each for name in names for each in first[name]["proved"]]
    assert len(digests) == len(names)
    before = settled(release("0.30.0"), *names, proved=digests)
    callee = "blocks = cdiv(window_size - 1, block_size)"
    edited = broken_copy("0.33.0", {callee: callee.replace("- 1", "- 2 + 1")})
    after = settled(edited, *names[:2], proved=digests)
    for found, anew in ((before, {FULL_AND_WINDOW}), (after, {WINDOW})):
        assert {each["status"] for each in found.values()} == {Status.PROVED}
        assert {name for name, each in found.items() if each["proved"]} == anew


@pytest.mark.release
@pytest.mark.long
def test_z3_is_asked_the_same_with_each_hash_seed(tmp_path: Path) -> None:
    """Once a coordinator of 0.23.0 was not proved with one of them."""
    name, asked = "coordinator sliding_window sliding_window", []
    for seed in "123":
        directory = tmp_path / seed
        directory.mkdir()
        found = settled(release("0.23.0"), name, questions=directory, seed=seed)[name]
        assert found["status"] == Status.PROVED, found["detail"]
        asked.append({each.name: each.read_text() for each in directory.iterdir()})
    assert asked[0] == asked[1] == asked[2]


@pytest.mark.release
@pytest.mark.long
def test_two_windows_with_draft_layers_show_the_fault_that_is_known() -> None:
    name = "coordinator sliding_window eagle sliding_window eagle"
    found = settled(release("0.33.0"), name)[name]
    assert found["status"] == Status.REFUTED, found["detail"]
    assert found["evidence"]["signature"]["divergence"] == "wrong drafts"


@pytest.mark.release
@pytest.mark.long
def test_what_sizes_that_coincide_decide_is_not_taken_as_given(broken_copy: Copy) -> None:
    made = "        self.hash_block_size = hash_block_size\n        self.dcp_world_size"
    coincide = "any(each.block_size == hash_block_size for each in self.single_type_managers)"
    hit = "            hit_length = curr_hit_length\n"
    lost = hit.replace("= curr", "= self.coincide and curr_hit_length > 99 and 9 or curr")
    edits = {made: f"        self.coincide = {coincide}\n{made}", hit: lost}
    found = settled(broken_copy("0.33.0", edits), FULL_AND_WINDOW)[FULL_AND_WINDOW]
    assert "coincide, which is not the same in all coordinators" in found["detail"]
    assert found["status"] == Status.INCONCLUSIVE


@pytest.mark.release
@pytest.mark.long
def test_check_reports_a_fault_past_any_bound(
    broken_copy: Copy, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = FAULTS["for a block size above 64"]
    monkeypatch.setattr(gate, "statements", lambda _: [fault["statement"]])
    code, report = judge(broken_copy("0.33.0", {fault["old"]: fault["new"]}))
    assert code == 1
    assert [(each["status"], each["bound"]) for each in report["unbounded"]] == [("refuted", None)]
    found = {(each["claim"], each["signature"]["kind"]) for each in report["findings"]}
    assert ("lookup_returns_longest_valid_hit", "mamba") in found


# --- the gate


def test_quick_profile_leaves_out_what_takes_long() -> None:
    quick, default, thorough = (set(statements(each)) for each in Profile)
    assert quick < default < thorough
    assert {WINDOW, f"{WINDOW} eagle"} <= default - quick


@pytest.mark.parametrize(
    ("outside", "configuration", "agrees"),
    [
        ({}, WINDOWS, False),
        ({CAUSE: EXACTLY}, WINDOWS, True),
        ({}, replace(WINDOWS, ranks=(2, 1)), True),
        ({}, replace(WINDOWS, hash_block_size=2), True),
        ({}, replace(WINDOWS, group=replace(WINDOWS.group, eagle=True)), True),
    ],
)
def test_what_is_proved_may_not_be_refuted_up_to_a_bound(
    outside: dict[str, str], configuration: Configuration, agrees: bool
) -> None:
    claim = "lookup_returns_longest_valid_hit"
    refuted = Obligation(claim, configuration, Status.REFUTED, 1, 1, "")
    proved = Unbounded(WINDOW, Status.PROVED, outside=outside)
    with nullcontext() if agrees else pytest.raises(InternalError, match="proved for all lengths"):
        check_agreement([proved], [refuted])


def test_registration_is_proved_only_with_the_masks_that_it_asks_for() -> None:
    name, masks = "registration chunked_local", "mask chunked_local dense"
    proved = [Unbounded(each, Status.PROVED) for each in (masks, name)]
    assert resting(proved) == proved
    (alone,) = resting(proved[1:])
    assert alone.status is Status.INCONCLUSIVE


@pytest.mark.parametrize("missing", ["lookup mamba", "lookup full_attention eagle", "hashes"])
def test_coordinator_is_proved_only_with_the_lookups_that_it_calls(missing: str) -> None:
    name = "coordinator full_attention eagle mamba"
    calls = ["hashes", "lookup full_attention eagle", "lookup full_attention", "lookup mamba"]
    proved = [Unbounded(each, Status.PROVED) for each in (*calls, name)]
    assert resting(proved) == proved
    (*_, found) = resting([each for each in proved if each.name != missing])
    assert found.status is Status.INCONCLUSIVE
    assert found.detail.startswith("it rests on what is said of the lookup of ")


def test_what_is_not_proved_is_said_with_the_reason() -> None:
    absent = Unbounded("mask mamba latest", Status.NOT_APPLICABLE, "it predates that")
    lambdas = Unbounded("lookup mamba", Status.INCONCLUSIVE, "Lambda (manager.py:7)")
    shown = proved_in_words(
        [Unbounded(WINDOW, Status.PROVED, outside={CAUSE: EXACTLY}), lambdas, absent], verbose=True
    )
    assert shown == [
        "proved for all lengths, sizes and cache contents: 1 of 2 statements about lookups, masks, "
        "registration and freeing (1 outside known divergences)",
        f"  but for lookup of sliding window: {EXACTLY}",
        "  not proved for all lengths: lookup of mamba: Lambda (manager.py:7)",
    ]
