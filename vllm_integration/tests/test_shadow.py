"""The shadow under pytest and in an engine: on upstream's own tests, and on broken managers."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree

import pytest

from hitproof.conformance.histories.json_format import read, read_lines
from hitproof.conformance.tests.editing import programs
from hitproof.vllm_integration.tests.conftest import Copy, hitproof, release
from hitproof.vllm_integration.tests.forkserver import PYTHON
from hitproof.vllm_integration.tests.test_aliases import HISTORY

HOME = Path(__file__).resolve().parents[2]
GUIDE = HOME / "docs" / "pages" / "commands" / "shadow.md"
PLUGIN = "hitproof.vllm_integration.shadow.pytest_plugin"
UPSTREAM = (
    "tests/v1/core/test_prefix_caching.py",
    "tests/v1/core/test_single_type_kv_cache_manager.py",
)
NEW = "divergences: 0 new"

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="this interpreter lacks what vLLM imports"
)


def installed(path: Path) -> None:
    """Have hitproof's entry points found, as where it is installed."""
    metadata = path / "hitproof-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hitproof\nVersion: 0\n")
    groups = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [
        line
        for group, names in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))


def run(
    version: str | Path,
    *arguments: object,
    path: Path | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run Python where the release, or a copy, is the vLLM that gets imported, in its directory."""
    root = release(version) if isinstance(version, str) else version
    paths = [root, HOME / "src", *([] if path is None else [path])]
    settings = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        [os.environ[PYTHON], "-P", *map(str, arguments)],
        cwd=cwd or root,
        env={**os.environ, **settings, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def shadowed(
    version: str | Path, *arguments: object, path: Path | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pytest on the release under the shadow."""
    plain = ("--noconftest", "-p", "no:cacheprovider", "-q", "-W", "ignore", "-rf")
    return run(version, "-m", "pytest", *plain, "-p", PLUGIN, *arguments, path=path, cwd=cwd)


@pytest.mark.long
@pytest.mark.release
def test_upstreams_tests_of_0_23_conform_and_their_record_replays(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    result = shadowed("0.23.0", *UPSTREAM, "--hitproof-record", record)
    assert result.returncode == 0, result.stdout[-3000:]
    assert NEW in result.stdout
    assert "83 passed" in result.stdout
    # Their hits and tables were judged, and what was not is reported: as the guide shows it.
    shown = re.search(r"test_single_type_kv_cache_manager.py\n(.*?)\.\.\.", GUIDE.read_text(), re.S)
    assert shown is not None
    assert shown[1] in result.stdout
    assert "blocks or tables were changed past the manager" in result.stdout
    histories = read_lines(record.read_bytes(), record.name, read)
    assert sum(len(history.steps) for history in histories) > 100
    replayed = hitproof("replay", record, "0.23.0", "--format", "json")
    told = json.loads(replayed.stdout)
    # What the shadow knows from the ledger: the extension that sparse retention forgets.
    found = {f["claim"] for each in told["histories"] for f in each["findings"]}
    assert (replayed.returncode, found) == (1, {"retention_keeps_resends_and_extensions"})
    assert not any(each["unsettled"] for each in told["histories"])


@pytest.mark.long
@pytest.mark.release
def test_upstreams_tests_of_0_33_conform() -> None:
    # The other file imports einops, which the managers do not; a hisparse connector asks a server.
    files = UPSTREAM if find_spec("einops") else UPSTREAM[1:]
    result = shadowed("0.33.0", *files, "-k", "not hisparse")
    assert result.returncode == 0, result.stdout[-3000:]
    assert NEW in result.stdout


OPT = """{"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768,
"num_attention_heads": 12, "num_hidden_layers": 12, "ffn_dim": 3072, "vocab_size": 50272,
"max_position_embeddings": 2048, "word_embed_proj_dim": 768, "torch_dtype": "float16"}"""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("kind", ["simple_kv_offload", "mooncake_store"])
def test_upstreams_tests_of_tiers_pass_as_the_guide_says(kind: str, tmp_path: Path) -> None:
    row = re.search(rf"^\| `(\S*{kind}\S*)` \| (\d+) \|(.*)", GUIDE.read_text(), re.M)
    assert row is not None
    (config := tmp_path / "facebook" / "opt-125m" / "config.json").parent.mkdir(parents=True)
    config.write_text(OPT)
    root = release("0.33.0")
    unfit = "not misaligned_local_prefix and not tier_summary"  # they take a fixture of conftest.py
    result = shadowed(
        root, *root.glob(row[1]), "-k", unfit, "--no-hitproof-shadow-require", cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert f"{row[2]} passed" in result.stdout
    for number in re.findall(r"\d+", row[3]):
        assert re.search(rf"\b{number} (times|lookups judged)", result.stdout), number


SCENARIOS = programs(__file__)["SCENARIOS"]
BROKEN = {
    "a_block_less": "code  : hit-too-short(run=whole, short=one)",
    "a_block_left_out": "code  : prefix-block-unregistered",
    "a_leak": "code  : reference-count-wrong",
    "a_stale_key": "code  : key-finds-block-without-it",
    "a_key_that_is_dropped": "code  : key-finds-nothing",
    "tables_that_outlive_their_request": "code  : freed-request-holds-blocks",
    "another_free_order": "code  : lockstep-difference(field=free_queue, method=free)",
    "a_reset_that_keeps_keys": "code  : key-not-removed(method=reset_prefix_cache)",
    "a_window_freed_too_early": "code  : null-block-read",
}


@pytest.mark.long
@pytest.mark.release
def test_broken_managers_fail_their_tests_and_sound_ones_do_not(tmp_path: Path) -> None:
    file, report = tmp_path / "test_scenarios.py", tmp_path / "report.xml"
    file.write_text(SCENARIOS)
    result = shadowed("0.23.0", file, f"--junitxml={report}", "-o", "junit_family=xunit1")
    failed = {
        case.attrib["name"].partition("[")[2].rstrip("]"): f"{failure.text} {failure.attrib}"
        for case in ElementTree.parse(report).iter("testcase")
        for failure in case.findall("failure")
    }
    assert failed.keys() == BROKEN.keys(), result.stdout[-4000:]
    for name, shown in BROKEN.items():
        assert shown in failed[name], failed[name]
    assert "1 xfailed" in result.stdout
    assert result.returncode == 1
    assert "blocks or tables were changed past the manager" in result.stdout
    assert "allocate_slots raised ValueError" in result.stdout


HISTORIES = programs(__file__)["HISTORIES"]
RENAMED = programs(__file__)["RENAMED"]


@pytest.mark.long
@pytest.mark.release
def test_a_renamed_release_is_judged_by_what_the_user_says(
    broken_copy: Copy, tmp_path: Path
) -> None:
    """Calls by the new names are seen, and their arguments known."""
    names = {
        "get_computed_blocks": "find_computed_blocks",
        "num_new_tokens": "new_tokens",
        "find_longest_cache_hit": "find_cache_hit",
    }
    fork = broken_copy("0.33.0", names)
    (tmp_path / "test_renamed.py").write_text(RENAMED % HISTORY)
    asked = tmp_path / "test_renamed.py", "--hitproof-release", "0.33.0"
    aliases = [f"--hitproof-alias={new}={old}" for old, new in names.items()]
    result = shadowed(fork, *asked, *aliases)
    assert result.returncode == 0, result.stdout[-3000:]
    assert "3 lookups judged" in result.stdout
    assert NEW in result.stdout
    unsaid = shadowed(fork, *asked)
    assert unsaid.returncode == 1
    assert "use --alias find_computed_blocks=get_computed_blocks" in unsaid.stdout
    refused = shadowed(fork, *asked, "--hitproof-alias=zzz=free")
    assert refused.returncode == 4
    assert "nothing named zzz" in refused.stderr


UNSEEN = (
    *("other-content-read", "draft-entry-of-other-token", "key-names-other-content"),
    *("state-read-too-early", "freed=before-hash", "after=rejection", "unread-block-held"),
    *("local_prefix_", "group-hit-wrong", "zeroed-blocks-wrong"),
    *("uncached-block-reported", "hit-not-reported", "hit-reported-twice"),
    *("admission-not-kept", "admitted-without-space", "key-lost", "scratch-block-not-first"),
    *("common-prefix-not-shared", "event-spans-other-blocks"),
)
"""The shadow has no content model; it judges the blocks that a request still has, and does not know
which drafts in flight will be rejected. It asks nothing itself, so it sees no local prefix, no
common prefix, no hit of a group and no blocks to be zeroed that the scheduler did not ask for. It
judges no events, no admission, and not which free blocks are taken, or lose their keys, in a
call."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("version", ["0.23.0", "0.33.0"])
def test_the_shadow_sees_what_replay_sees(version: str, tmp_path: Path) -> None:
    (tmp_path / "histories.py").write_text(HISTORIES)
    result = run(version, tmp_path / "histories.py", HOME)
    assert result.returncode == 0, result.stderr[-3000:]
    line = next(line for line in result.stdout.splitlines() if line.startswith("TOLD "))
    told = json.loads(line.removeprefix("TOLD "))
    assert len(told) > 60
    some = 0
    for name, (replayed, seen) in told.items():
        if any("two-contents-under-key" in finding for finding in replayed):
            # Equal hashes are equal content to it: it sees that caches differ, but not why.
            assert (name, bool(seen)) == (name, True)
            continue
        unseen: tuple[str, ...] = UNSEEN
        if name.startswith("freed_before_drafts"):  # what a request has given up is not judged
            unseen = (*unseen, "block-unregistered")
        if name.startswith("block_held_twice"):  # nor what a load is given, and frees
            unseen = (*unseen, "handed-blocks-wrong", "eviction-order-wrong")
        # A test may mean to be refused, so what the manager raises is the test's affair.
        wanted = [f for f in replayed if " crash " not in f and not any(p in f for p in unseen)]
        assert (name, seen) == (name, wanted)
        some += bool(seen)
    assert some > 10


RUNS = """
import sys, pytest
plain = ["--noconftest", "-p", "no:cacheprovider", "-q", "-W", "ignore"]
for number, arguments in enumerate(sys.argv[1:]):
    print("RUN", number)
    print("EXIT", int(pytest.main([*plain, *arguments.split()])))
"""


@pytest.mark.long
@pytest.mark.release
def test_what_fails_a_run_though_no_test_fails(tmp_path: Path) -> None:
    nothing, scenarios = tmp_path / "test_nothing.py", tmp_path / "test_scenarios.py"
    nothing.write_text("def test_nothing(): pass\n")
    scenarios.write_text(SCENARIOS)
    shadow, expected = f"-p {PLUGIN}", f"{scenarios}::test_expected_to_fail"
    runs = [
        f"{shadow} {nothing}",
        f"{shadow} {nothing} --no-hitproof-shadow-require",
        f"{shadow} {expected}",
        f"{shadow} {scenarios}::test_sound --hitproof-policy lookahead_horizon=far",
        f"{shadow} {scenarios}::test_sound --hitproof-ledger {tmp_path / 'none.toml'}",
        # By its entry point it is off, until it is switched on.
        f"{scenarios}::test_sound",
        f"{scenarios}::test_sound --hitproof-shadow",
    ]
    installed(tmp_path)
    (tmp_path / "runs.py").write_text(RUNS)
    result = run("0.23.0", tmp_path / "runs.py", *runs, path=tmp_path)
    out = result.stdout.split("RUN ")[1:]
    codes = [int(text.split("EXIT ")[1]) for text in out]
    # Nothing was judged; that was allowed; a divergence where the test is expected to fail; usage.
    assert codes == [1, 0, 1, 4, 4, 0, 0], result.stdout[-3000:] + result.stderr[-3000:]
    for text in out[:2]:
        assert "no KVCacheManager was shadowed and no lookup judged" in text
    assert "1 xfailed" in out[2]
    assert ["hitproof shadow of vLLM 0.23.0" in text for text in out[5:]] == [False, True]
    assert "2 managers shadowed" in out[6]
    assert "the policy lookahead_horizon has no value 'far'" in result.stderr
    assert "none.toml cannot be read" in result.stderr


ENGINE = programs(__file__)["ENGINE"]


@pytest.mark.long
@pytest.mark.release
def test_an_engine_is_judged_and_left_as_it_is(tmp_path: Path) -> None:
    installed(tmp_path)
    (tmp_path / "engine.py").write_text(ENGINE)
    vector = HOME / "conformance/vectors/full_and_sliding_window.json"
    settings = {
        "HITPROOF_SHADOW": "1",
        "HITPROOF_SHADOW_FILE": str(tmp_path / "findings.jsonl"),
        "VLLM_PLUGINS": "hitproof_shadow",
    }
    result = run("0.23.0", tmp_path / "engine.py", vector, path=tmp_path, environment=settings)
    assert result.returncode == 0, result.stderr[-3000:]
    log = result.stdout + result.stderr
    told: dict[str, tuple[bool, int, list[dict[str, Any]]]] = {
        case: (same, running, written)
        for line in result.stdout.splitlines()
        if line.startswith("TOLD ")
        for case, same, running, written in [json.loads(line.removeprefix("TOLD "))]
    }
    assert all(same for same, _, _ in told.values())
    seen = {case: written[-1]["summary"] for case, (_, _, written) in told.items() if written}
    # It is loaded once, sees every manager, and finds nothing where there is nothing.
    assert told["sound"][1] == 1
    assert len(told["sound"][2]) == 1
    assert (seen["sound"]["managers"], seen["sound"]["errors"]) == (6, {})
    assert min(seen["sound"][what] for what in ("lookups", "hits", "blocks", "audits")) > 0
    # Its own errors are not seen outside, and end it.
    for broken in ("broken _as_reference", "broken before", "broken after"):
        assert sum(seen[broken]["errors"].values()) == 10
    assert log.count("the shadow switches itself off") == 3
    # A sample judges a share of the requests, and audits all the same.
    assert (seen["sample"]["lookups"], seen["sample"]["not_judged"]) == (0, {})
    assert seen["sample"]["audits"] > 0
    # It is off without the switch, and with a setting that it cannot use.
    assert told["bad sample"][1:] == told["off"][1:] == (0, [])
    assert "HITPROOF_SHADOW_SAMPLE is a share of the lookups such as 0.1, not '2'" in log
    # A fault is written once, and logged.
    *found, _ = told["broken lookup"][2]
    signatures = [json.dumps(each["signature"]) for each in found]
    assert len(set(signatures)) == len(signatures)
    assert any("lost hit" in signature for signature in signatures)
    assert "hitproof: lost hit: full attention + sliding window" in log
