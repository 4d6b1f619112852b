"""Test cases of findings: their text, and how they end on targets that have the fault or not."""

import json
import subprocess
import sys
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.demonstration import CaseOutcome, Demonstration
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.histories.workload_json import is_workload, read_workload
from hitproof.conformance.scope.limits import refusal
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.reproduce.cases import write_and_run
from hitproof.vllm_integration.reproduce.run_cases import _called
from hitproof.vllm_integration.reproduce.source_text import (
    Bracketed,
    call,
    laid_out,
    literal,
    one_line,
)
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, Limits
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import Copy, Edits, hitproof, limits

NOWHERE = Target("nowhere", None, None)


def case(name: str, body: str, error: str = "AssertionError") -> Demonstration:
    """A test with one line."""
    return Demonstration(name, True, pytest=f"def test_{name}():\n    {body}\n", error=error)


CASES = (
    case("fails", "assert 1 == 2"),
    case("passes", "assert 1 == 1"),
    case("crashes", "raise ValueError('as it should')", "ValueError"),
    case("breaks", "raise TypeError('not what it is about')"),
    Demonstration("unreadable", True, pytest="import no_such_module\n", error="AssertionError"),
    Demonstration("none", False, "nothing shows it"),
)
OUTCOMES = {
    "fails": CaseOutcome.FAILS,
    "passes": CaseOutcome.PASSES,
    "crashes": CaseOutcome.FAILS,
    "breaks": CaseOutcome.BREAKS,
    "unreadable": CaseOutcome.BREAKS,
}


def test_how_cases_end(tmp_path: Path) -> None:
    ran = write_and_run(tmp_path / "new", CASES, NOWHERE, Limits())
    assert {name: shown.outcome for name, shown in ran.items()} == OUTCOMES
    assert ran["crashes"].said == "ValueError: as it should"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        f"test_{name}.py" for name in sorted(OUTCOMES)
    ]


def test_how_cases_end_without_pytest(tmp_path: Path) -> None:
    for shown in CASES[:-1]:
        file = tmp_path / f"{shown.name}.py"
        file.write_text(shown.pytest)
        error, _ = _called(str(file))
        passes = OUTCOMES[shown.name] is CaseOutcome.PASSES
        assert (error == "") == passes
        assert (error == shown.error) == (OUTCOMES[shown.name] is CaseOutcome.FAILS)


def test_a_case_that_does_not_come_to_an_end(tmp_path: Path) -> None:
    endless = case("endless", "import time; time.sleep(600)")
    ran = write_and_run(tmp_path, [endless], NOWHERE, Limits(timeout=0.5))
    assert ran["endless"].outcome is CaseOutcome.BREAKS
    assert "did not finish" in ran["endless"].said


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailure, match="name another directory with --pytest"):
        write_and_run(tmp_path / "file", CASES, NOWHERE, Limits())


def test_source_is_laid_out_as_ruff_does() -> None:
    short = call("f", "1", flag="True")
    assert laid_out("x = ", short) == "    x = f(1, flag=True)"
    names = [f"argument_number_{n}" for n in range(4)]
    within = laid_out("on_the_left = ", call("f", *names))
    assert within == f"    on_the_left = f(\n        {', '.join(names)}\n    )"
    apart = laid_out("x = ", call("f", *names, *names))
    assert apart.splitlines()[1:3] == [f"        {name}," for name in names[:2]]
    names_on_the_left = ", ".join(f"a_long_name_{number}" for number in range(5))
    wrapped = laid_out(f"{names_on_the_left} = ", call("manager.get_computed_blocks", "request"))
    assert wrapped.splitlines()[1:] == ["        manager.get_computed_blocks(request)", "    )"]
    listed = laid_out("on_the_left = ", Bracketed("[", tuple(("", name) for name in names), "]"))
    assert listed.endswith("argument_number_3,\n    ]")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -3,
        1.5,
        'a "quoted" \n line',
        b"bytes \x00",
        (1,),
        (),
        [],
        [1, 2, 3],
        list(range(40)),
        [*range(3, 20), 7, 7, *range(100, 120)],
        ["a", ("b", [1])],
        {"a": [1], 2: {}},
    ],
)
def test_literals_mean_what_they_are_of(value: object) -> None:
    text = one_line(literal(value))
    assert eval(text) == value
    assert len(text) < 80


class Mode(IntEnum):
    """Numbers, whose text is no source."""

    PLAIN = 1


def test_a_member_of_an_enum_is_no_literal() -> None:
    with pytest.raises(TypeError, match="has no literal"):
        literal(Mode.PLAIN)


REPLAYED = "; `hitproof replay` plays the history on the target's own scheduler"
NOT_PLAYED = {
    "the fault does not show in what a public method returns",
    f"the fault does not show in what the scheduler's methods return{REPLAYED}",
}

NOT_WRITTEN = {
    refusal("demonstration-hash-lookahead"),
    "it is of a tier behind a KV connector, and no history of a manager has one",
    *(
        f"a test {lacks}{REPLAYED}"
        for lacks in (
            "does not follow the pages that a host's pool backs",
            "does not follow what a connector keeps in host memory",
            "does not tell what a failed load has spoilt",
            "has groups of one precision",
            "has no grammars beside hashes, counts of drafts and transfers",
            "has no hashes or whole images beside streaming sessions",
            "has no layers that draft beside a connector",
            "has no pipeline",
            "has no resets of their own, and no encoder cache connector",
        )
    ),
}

UNWRITTEN = {
    "A request of one token that a KV connector loads is looked up a second time",
    "An event says that a block is removed while a copy of it is cached",
    "Stored events do not say what comes before blocks that were left out",
    "The event of a block in part begins at its last hash unit",
    "The next input of a streaming session writes its Mamba state into the null block",
}
"""Faults that have no test, for the reasons above."""

WRITTEN_BESIDE = {"The state of a hit inside a block is registered as the state of the block's end"}
"""Faults whose history in the ledger is of a manager, which no public method shows; a test below
writes the one of a scheduler."""


@pytest.mark.long
@pytest.mark.release
def test_every_finding_of_a_release_has_a_test_that_fails_there(tmp_path: Path) -> None:
    """No false alarm: each known divergence shows on the whole manager, and its test proves it.

    What only the content of pages shows, or an entry inside a block, no public method returns.
    What has no test is in `NOT_WRITTEN`.
    """
    result = hitproof(
        *("check", "--quick", "--verbose", "--format", "json", "--pytest", tmp_path, "0.33.0")
    )
    report = json.loads(result.stdout)
    every: list[dict[str, Any]] = report["findings"] + report["known_divergences"]
    every = [each for each in every if each["detail"] not in NOT_WRITTEN]
    found = [each for each in every if each["reproduced"] is not None]
    assert len(found) >= 30
    for other in (each for each in every if each not in found):
        assert "origin" in other["configuration"]
        assert other["detail"] in NOT_PLAYED
    assert {(f["reproduced"], f["outcome"]) for f in found} == {(True, "fails as it should")}
    causes = {each["cause"] for each in every}
    assert causes - {each["cause"] for each in found} == WRITTEN_BESIDE | UNWRITTEN
    crashes = [f for f in found if f["signature"]["divergence"] == "crash"]
    assert {f["error"] for f in crashes} > {"AssertionError", "IndexError", "ValueError"}
    refused = [f for f in found if f["signature"]["code"] == "layers-refused"]
    assert {f["error"] for f in found if f not in (*crashes, *refused)} == {"AssertionError"}
    assert {path.name for path in tmp_path.iterdir()} == {f"test_{f['name']}.py" for f in found}
    assert all(f["vector"].get("steps") or f["vector"]["requests"] for f in found)
    of_schedulers = [f["pytest"] for f in found if f["signature"]["kind"] == "scheduler"]
    assert len(of_schedulers) >= 4
    assert all("scheduler = " in text or "EngineCore)" in text for text in of_schedulers)
    assert any("Workers(" in text for text in of_schedulers)
    ruff = [sys.executable, "-m", "ruff"]
    for how in (["format", "--check", "--line-length", "88"], ["check", "--select", "E,F,W"]):
        subprocess.run([*ruff, *how, "--isolated", tmp_path], check=True)
    text = "\n".join(f["pytest"] for f in found)
    imported = {line.split()[1].split(".")[0] for line in text.splitlines() if " import " in line}
    assert imported <= {
        "collections",
        "concurrent",
        "os",
        "torch",
        "types",
        "typing",
        "unittest",
        "vllm",
    }


@pytest.mark.release
def test_a_case_fails_with_the_fault_and_passes_without_it(
    broken_copy: Copy, tmp_path: Path
) -> None:
    """The tests of a broken copy's findings, on the copy and on the release itself.

    The ledger is empty, so the release's own findings are among them: those fail on both.
    """
    copy = broken_copy(
        "0.23.0",
        {"blocks = cdiv(window_size - 1, block_size)": "blocks = (window_size - 1) // block_size"},
    )
    (tmp_path / "empty.toml").write_text("")
    cases = tmp_path / "cases"
    options = ("--histories", 30, "--shrink-budget", 40, "--ledger", tmp_path / "empty.toml")
    result = hitproof("lockstep", "--format", "json", *options, "--pytest", cases, copy)
    shown = [Demonstration(**found["case"]) for found in json.loads(result.stdout)["findings"]]
    assert {each.outcome for each in shown} == {CaseOutcome.FAILS}
    assert any("@patch.dict(os.environ" in each.pytest for each in shown)
    ran = write_and_run(cases, shown, resolve("0.23.0"), limits())
    fixed = {name for name, each in ran.items() if each.outcome is CaseOutcome.PASSES}
    assert any("longer_than_sliding_window_can_serve" in name for name in fixed)
    assert any("promised" in name for name in ran.keys() - fixed)


ADAPTERS = """{"kind": "scheduler", "version": 1,
 "deployment": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_gpu_blocks": 20,
                "max_model_len": 20, "max_num_batched_tokens": 20, "max_loras": 1},
 "requests": {"a": {"prompt": [[1, 9]], "output": [20], "lora_name": "x"},
              "b": {"prompt": [[1, 9]], "output": [21], "lora_name": "y", "after": "a"},
              "c": {"prompt": [[1, 9]], "output": [22], "after": "b", "after_reset": true}}}"""


SESSION = """{"kind": "scheduler", "version": 1,
 "deployment": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_gpu_blocks": 20,
                "max_model_len": 30, "max_num_batched_tokens": 8,
                "encoder": {"budget": 4, "cache_size": 6}},
 "requests": {"a": {"prompt": [[1, 9]], "output": [20, 21], "session": "s",
                    "images": [{"identifier": "cat", "offset": 0, "length": 3}]},
              "b": {"prompt": [[1, 9], 20, [30, 35]], "output": [40], "after": "a", "session": "s",
                    "images": [{"identifier": "cat", "offset": 0, "length": 3},
                               {"identifier": "dog", "offset": 12, "length": 2}]}}}"""

EXPORTED = """{"kind": "scheduler", "version": 1,
 "deployment": {"groups": [{"kind": "full_attention", "block_size": 16},
                           {"kind": "mamba", "block_size": 16}],
                "num_gpu_blocks": 40, "max_model_len": 200, "max_num_batched_tokens": 200,
                "prefix_match_unit": 8, "mamba_checkpoint_alignment": 8},
 "requests": {"a": {"prompt": [[1, 48]], "output": [148]},
              "b": {"prompt": [[1, 68]], "output": [206], "after": "a"},
              "c": {"prompt": [[1, 60]], "output": [306], "after": "b"}}}"""


EVICTS = "if sync_blocks_to_evict and not self.recompute_kv_load_failures:"
PLACED = "layers_by_spec[spec].append(layer_name)"
REPORTS = "if not self.enable_kv_cache_events or num_cached_blocks == 0:"
ADMITS = "            # First check and fail if the full request sequence won't fit."
EVICTED = "mm_hash, num_free_embeds = self.freeable.popitem(last=False)"
STOPPED = "        request.num_computed_tokens = safe_frontier"
GOES_ON = "        del session._all_token_ids[keep_end:]"
COUNTED = "spec_decoding_stats = self.make_spec_decoding_stats("
LATE = "            and end >= prefill_end\n"
NEWEST = "0.33.0"
SHOWN: dict[str, tuple[str | Edits, str | Edits, str]] = {
    "scheduler_promised_hit_missed_chunks_mamba_extension": ("0.32.0", NEWEST, ""),
    "skipping_request_loads": ("0.30.0", "0.31.0", ""),
    "encoder_output_missing_drafts": ("0.27.0", "0.28.0", ""),
    "image_split_first": ("0.32.0", NEWEST, ""),
    "session_session_tokens_wrong_2": ("0.32.0", NEWEST, ""),
    "session_delivered_tokens_wrong_2": ("0.30.0", "0.31.0", ""),
    "scheduler_grammar_ignored_mask_async": ("0.31.0", NEWEST, ""),
    "scheduler_grammar_ignored_state_async": ("0.29.0", NEWEST, ""),
    "scheduler_admitted_out_of_turn_grammar": ("0.30.0", "0.31.0", ""),
    "min_tokens_stuck": ("0.28.0", "0.29.0", ""),
    # What one adapter computed is served to another; a session has its images elsewhere.
    "adapters": (
        {'[("lora", lora_request.lora_name, lora_request.lora_path)]': "[]"},
        NEWEST,
        "after_reset=True",
    ),
    "told images": ({"mm_position.offset + base": "mm_position.offset"}, NEWEST, "engine.converse"),
    # The state of a hit inside a block is served as the state of the block's end (BUGS 24). A
    # scheduler that ends the chunk at the end of that block does not have the fault.
    "exported": (
        NEWEST,
        {LATE: LATE.replace("prefill_end", "prefill_end and start % block_size == 0")},
        "is_mamba_prefill_checkpoint_valid",
    ),
    "states_not_counted_for_admission_4": (
        NEWEST,
        {ADMITS: "            return None"},
        "is not None",
    ),
    "hit_in_part_reported_as_block_1": (NEWEST, {REPORTS: "if True:"}, "kv_cache_report_mode"),
    "hit_reported_with_null_blocks_3": (NEWEST, {REPORTS: "if True:"}, "not in reported"),
    "failed_load_delivered_3": (NEWEST, {EVICTS: "if sync_blocks_to_evict:"}, "=__name__"),
    "scheduler_derived_groups_wrong_own_layers": (
        NEWEST,
        {PLACED: f"layer_name in group.layer_names and {PLACED}"},
        "model_executor.allocate(config)",
    ),
    "image_encoded_again": (
        NEWEST,
        {
            EVICTED: "own = {each.identifier for each in request.mm_features}\n"
            "            mm_hash = min(self.freeable, key=own.__contains__)\n"
            "            num_free_embeds = self.freeable.pop(mm_hash)"
        },
        "not in kept",
    ),
    "session_other_content_read_mamba_4": (
        NEWEST,
        {
            STOPPED: "        if safe_frontier < request.num_computed_tokens:\n"
            "            self._free_request_blocks(request)\n"
            f"            safe_frontier = 0\n{STOPPED}"
        },
        "engine.converse(ends)",
    ),
    "session_draft_entry_of_other_token_full_attention_3": (
        NEWEST,
        {
            GOES_ON: f"{GOES_ON}\n"
            "        session.num_computed_tokens = min(session.num_computed_tokens, keep_end - 1)"
        },
        "engine.converse(ends)",
    ),
    "scheduler_drafts_counted_wrong": (
        NEWEST,
        {
            COUNTED: "padded = min(scheduled_spec_token_ids) < 0\n"
            f"                {COUNTED.replace('= ', '= spec_decoding_stats if padded else ')}"
        },
        "engine.counted == engine.tried",
    ),
}
"""Histories, of the ledger or above, where they show a fault, where not, and what is in the test.

A target is a release, or how a copy of the newest differs.
"""
WRITTEN = {"adapters": ADAPTERS, "told images": SESSION, "exported": EXPORTED}


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("name", SHOWN)
def test_a_case_fails_with_its_fault_and_passes_without_it(
    name: str, broken_copy: Copy, tmp_path: Path
) -> None:
    *targets, written = SHOWN[name]
    faulty, right = (
        resolve(each if isinstance(each, str) else str(broken_copy(NEWEST, each)))
        for each in targets
    )
    text = WRITTEN.get(name) or (LEDGER.parent / f"known/{name}.json").read_text()
    if is_workload(text):
        play = Play.written_workload(read_workload(text), "history")
    else:
        play = Play.written(read(text), "history")
    with closing(Session.of(faulty, limits())) as session:
        found = session.play(play).signatures
        shown = session.finding((found[0], play), "shown").demonstration
    assert shown.reproduced
    assert "hitproof" not in shown.pytest
    assert written in shown.pytest
    for target, outcome in ((faulty, CaseOutcome.FAILS), (right, CaseOutcome.PASSES)):
        assert write_and_run(tmp_path, [shown], target, limits())["shown"].outcome is outcome
