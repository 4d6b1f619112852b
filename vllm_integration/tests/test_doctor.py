"""Doctor: models' groups, what requests hit, and why not more, on real releases."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.findings.rules import Rule
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.tests.editing import cases
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.commands import doctor as commands_doctor
from hitproof.vllm_integration.gate import doctor as gate_doctor
from hitproof.vllm_integration.gate.doctor import (
    Diagnosis,
    OutOfReach,
    Wanted,
    bundled_drafts,
    bundled_models,
    read_model,
    with_paths,
)
from hitproof.vllm_integration.gate.doctor_history import history_of, write_histories
from hitproof.vllm_integration.reports.doctor import (
    bar,
    causes,
    cells,
    diagnosis_json,
    facts,
    shortest_in_words,
)
from hitproof.vllm_integration.reports.html.pages import doctor_page
from hitproof.vllm_integration.sandbox.driver import Worker
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import limits, link
from hitproof.vllm_integration.tests.forkserver import PYTHON

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("0.23.0", "0.28.0", "0.33.0")
LENGTHS = (700, 2400)
ANSWER, QUESTION = 16, 50
EAGLE = (
    "--speculative-config",
    '{"method": "eagle", "model": "llama-3-8b-eagle", "num_speculative_tokens": 2}',
)
MTP = ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}')
CACHED = ("--enable-prefix-caching",)
CONFIGURATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "llama": ("llama-3-8b", ()),
    "llama eagle": ("llama-3-8b", EAGLE),
    "mistral": ("mistral-7b-v0.1", ()),
    "gemma 3": ("gemma-3-27b", ()),
    "gemma 3 in blocks of 32": ("gemma-3-27b", ("--block-size", "32")),
    "gpt-oss": ("gpt-oss-20b", ()),
    "llama 4": ("llama-4-scout", ()),
    "deepseek": ("deepseek-v3", ()),
    "jamba": ("jamba-1.5-mini", CACHED),
    "qwen3-next": ("qwen3-next-80b-a3b", CACHED),
    "qwen3-next mtp": ("qwen3-next-80b-a3b", (*CACHED, *MTP)),
    "falcon-h1": ("falcon-h1-7b", CACHED),
    "qwen3-next on 4 ranks": ("qwen3-next-80b-a3b", (*CACHED, "--tensor-parallel-size", "4")),
}
NEWER: dict[str, tuple[str, tuple[str, ...]]] = {
    "gemma 4": ("gemma-4-26b-a4b", ()),
    "deepseek v4": ("deepseek-v4-flash", ()),
    "deepseek v4 mtp": ("deepseek-v4-flash", MTP),
    "qwen3.5": ("qwen3.5-9b", ()),
    "granite": ("granite-4.0-h-small", ()),
    "gpt-oss eagle": (
        "gpt-oss-20b",
        (
            "--speculative-config",
            '{"method": "eagle3", "model": "gpt-oss-20b-eagle3", "num_speculative_tokens": 2}',
        ),
    ),
}
"""What older releases do not know, or not with the transformers that is installed."""
NEWEST = RELEASES[-1]
ALIKE = {
    "gemma 4": "Gemma-4-like",
    "deepseek v4": "DeepSeek-V4-like",
    "llama": "Llama-3-like",
    "mistral": "Mistral-7B-v0.1-like",
    "gemma 3": "Gemma-3-like",
    "gpt-oss": "gpt-oss-like",
    "llama 4": "Llama-4-Scout-like",
    "qwen3-next": "Qwen3-Next-like",
}


def wanted(name: str) -> Wanted:
    model, arguments = (CONFIGURATIONS | NEWER)[name]
    return Wanted(read_model(model), with_paths(arguments), LENGTHS, ANSWER, QUESTION)


_OLDER = (pytest.param(release, marks=pytest.mark.long) for release in RELEASES[:-1])


@pytest.fixture(scope="module", params=[NEWEST, *_OLDER])
def deployed(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each configuration is and hits on a release."""
    target = resolve(request.param)
    names = [*CONFIGURATIONS, *(NEWER if request.param == NEWEST else ())]
    with Worker(target, limits()) as worker:
        yield (
            request.param,
            {name: worker.ask(60, **wanted(name).asked(wanted(name).arguments)) for name in names},
        )


def groups_of(answer: dict[str, Any]) -> list[Group]:
    return sorted(
        Group(GroupKind(each["kind"]), each["block_size"], each["window"], False, each["chunk"])
        for each in answer["deployment"]["groups"]
    )


@pytest.mark.long
@pytest.mark.release
def test_the_deployments(deployed: tuple[str, dict[str, Any]]) -> None:
    _, answers = deployed
    assert {name: each["refused"] for name, each in answers.items()} == dict.fromkeys(answers, "")
    for answer in answers.values():
        assert answer["broken_rules"] == []
        assert len(answer["rows"]) == 4 * len(LENGTHS)
        for row in answer["rows"]:
            assert row["hit"] <= row["best"] <= min(row["shared"], row["tokens"] - 1)
            assert (row["hit"] < row["best"]) == (row["shortfall"] is not None)


@pytest.mark.long(keep=1)
@pytest.mark.release
def test_the_presets_are_what_the_target_derives(deployed: tuple[str, dict[str, Any]]) -> None:
    _, answers = deployed
    for name, preset in ALIKE.items():
        if name not in answers:
            continue
        groups = [replace(group, eagle=False) for group in _preset(preset).groups]
        assert groups_of(answers[name]) == sorted(groups), name


@pytest.mark.long
@pytest.mark.release
@pytest.mark.slow
def test_hits_are_those_of_the_scheduler_alone(deployed: tuple[str, dict[str, Any]]) -> None:
    """The groups are given to the target's scheduler by another way, without the model."""
    release, answers = deployed
    asked, expected = [], []
    for name, answer in answers.items():
        if name in NEWER:
            continue
        for row in answer["rows"]:
            if row["prompt"] > LENGTHS[0] and name != "jamba":
                continue  # judging every step of long prompts takes long
            if row["reuse"] in ("second turn", "sibling") and name not in ("jamba", "gpt-oss"):
                continue
            history = history_of(answer["deployment"], row, ANSWER, QUESTION)
            if history is None:
                continue
            asked.append(write_workload(history))
            expected.append((name, row["reuse"], row["prompt"], row["hit"]))
    root = resolve(release).root
    ended = subprocess.run(
        [os.environ[PYTHON], "-m", "hitproof.vllm_integration.tests.doctored_schedulers"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), str(ROOT / "src")]),
            "VLLM_LOGGING_LEVEL": "ERROR",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        },
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    line = next(each for each in ended.stdout.splitlines() if each.startswith("hits "))
    hits = json.loads(line.removeprefix("hits "))
    found = [(*each[:3], hit) for each, hit in zip(expected, hits, strict=True)]
    assert found == expected


@pytest.mark.release
def test_draft_layers_are_in_the_groups_of_the_presets(
    deployed: tuple[str, dict[str, Any]],
) -> None:
    release, answers = deployed
    if release != NEWEST:  # before, groups were not flagged but for one model
        assert answers["llama eagle"]["deployment"]["use_eagle"]
        return
    for name, preset in (
        ("gpt-oss eagle", "gpt-oss-like"),
        ("deepseek v4 mtp", "DeepSeek-V4-like"),
        ("qwen3-next mtp", "Qwen3-Next-like"),
    ):
        flags = [(group.kind, group.window) for group in _preset(preset).groups if group.eagle]
        flagged = [
            (each["kind"], each["window"])
            for each in answers[name]["deployment"]["groups"]
            if each["eagle"]
        ]
        assert flagged == flags, name


def _preset(name: str) -> Model:
    return next(model for model in MODELS if model.name == name)


@pytest.mark.release
def test_what_is_known_of_releases(deployed: tuple[str, dict[str, Any]]) -> None:
    """Faults and policies that releases have are seen, and not where they have them not."""
    release, answers = deployed

    def parts(name: str) -> dict[tuple[str, int], str]:
        return {
            (row["reuse"], row["prompt"]): row["shortfall"]["part"]
            for row in answers[name]["rows"]
            if row["shortfall"]
        }

    assert not parts("llama")
    assert not parts("deepseek")
    latest_only = release == "0.33.0"
    assert (parts("gemma 3").get(("sibling", 2400)) == "retention") == latest_only
    # The prompt ends on a block edge, and the boundary of its resend inside the last chunk.
    assert (parts("jamba").get(("resend", 2400)) == "chunk split") == (release == "0.28.0")


PLANNING = "vllm/v1/core/kv_cache_planning.py"
FLAG = "group.is_eagle_group = not draft_layer_names"
POOL = "    size = bytes_per_block * num_blocks\n"


@pytest.mark.long
@pytest.mark.release
@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "old", "new", "configuration", "rule"),
    [
        (PLANNING, FLAG, FLAG.replace("not ", ""), "llama eagle", Rule.DRAFTS),
        (PLANNING, POOL, POOL.replace("\n", " // 2\n"), "gemma 3", Rule.POOL),
        (
            "vllm/v1/core/kv_cache_utils.py",
            "scheduler_block_size = math.lcm(*group_block_sizes)",
            "scheduler_block_size = 2 * math.lcm(*group_block_sizes)",
            "gpt-oss",
            Rule.SCHEDULER_BLOCK,
        ),
    ],
)
def test_a_target_that_derives_wrongly(
    path: str, old: str, new: str, configuration: str, rule: Rule, tmp_path: Path
) -> None:
    original = resolve(NEWEST).root
    assert original is not None
    root = tmp_path / "checkout"
    text = (original / path).read_text()
    assert old in text
    link(original, root, {path: text.replace(old, new)})
    asked = wanted(configuration)
    with Worker(resolve(str(root)), limits()) as worker:
        answer = worker.ask(60, **asked.asked(asked.arguments))
    assert answer["refused"] == ""
    assert rule in {broken["rule"] for broken in answer["broken_rules"]}


def test_every_model_that_comes_with_hitproof_can_be_read() -> None:
    assert len(bundled_models()) >= 14
    for name in bundled_models():
        assert read_model(name).greatest_length > 0


def test_a_model_is_a_name_a_directory_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(read_model("llama-3-8b").config)
    assert read_model(str(tmp_path)) == replace(read_model(str(file)), name=str(tmp_path))
    assert read_model(str(tmp_path)).greatest_length == 8192


def test_draft_models_are_named_absolutely(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    monkeypatch.chdir(tmp_path)
    said = '{"method": "eagle", "model": "draft"}'
    expected = {"method": "eagle", "model": str(tmp_path / "draft")}
    option, value = with_paths(["--speculative-config", said])
    assert (option, json.loads(value)) == ("--speculative-config", expected)
    (joined,) = with_paths([f"--speculative-config={said}"])
    assert json.loads(joined.partition("=")[2]) == expected
    assert with_paths(["--speculative-config", "no json"]) == ("--speculative-config", "no json")


def test_quantization_and_replicas_decide_nothing_about_the_cache(tmp_path: Path) -> None:
    raw = json.loads(read_model("gpt-oss-20b").config)
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}
    (tmp_path / "config.json").write_text(json.dumps(raw | {"quantization_config": scheme}))
    model = read_model(str(tmp_path))
    assert model.quantized_cache
    assert not read_model("gpt-oss-20b").quantized_cache
    asked = Wanted(model, ("-dp", "2", "--quantization=fp8", "--seed", "1"), (1,), 1, 1)
    assert asked.asked(asked.arguments)["arguments"] == ["--seed", "1", "--max-model-len", "65536"]


@pytest.mark.parametrize(
    ("hit", "best", "drawn"), [(0, 0, "····"), (4, 8, "██░░"), (0, 1, "░···"), (8, 8, "████")]
)
def test_a_bar(hit: int, best: int, drawn: str) -> None:
    assert bar({"hit": hit, "best": best, "tokens": 8}, 4) == drawn


def a_diagnosis() -> Diagnosis:
    group = {
        "kind": "full_attention", "block_size": 16, "window": None, "chunk": None, "eagle": False,
        "prefix_cacheable": True, "spec": "<b>Spec</b>", "layers": 32, "first_layer": "layers.0",
    }  # fmt: skip
    deployment = {
        "device": "a GPU", "left_out": ["torchvision"], "text_only": True, "groups": [group],
        "alignment": 16,
        "scheduler_block_size": 16,
        "hash_block_size": 16, "num_blocks": 9, "use_eagle": False, "hash_lookahead": 0,
        "retention": None, "prefix_caching": True, "mamba_cache_mode": None, "max_model_len": 64,
        "max_num_batched_tokens": 64, "async_scheduling": True, "speculative_method": None,
        "num_speculative_tokens": 0, "tier": None,
    }  # fmt: skip
    shortfall = {"part": "mask", "code": None, "group": 0, "sentence": "it <i>lacks</i> one"}
    row = {
        "reuse": "resend", "prompt": 40, "tokens": 40, "shared": 40, "hit": 16, "best": 32,
        "shortfall": shortfall,
    }  # fmt: skip
    model = read_model("llama-3-8b")
    asked = Wanted(model, (), (40,), 1, 1)
    return Diagnosis(Target("fork", None, None), asked, deployment, [row], [], 17, 17)


def test_the_page_escapes_what_the_target_says() -> None:
    page = doctor_page(a_diagnosis(), "hitproof doctor llama-3-8b")
    assert "&lt;b&gt;Spec" in page
    assert "<i>lacks" not in page
    assert 'aria-label="16 of 32 tokens"' in page


TIER = {
    "name": "ItsConnector", "room": 3, "alignment": 64, "blocks_per_chunk": 4, "lookahead": 64,
    "stores_sampled": False, "never_stored": [1], "shortest": 129, "shortest_at_best": 128,
}  # fmt: skip


def test_a_tier_in_words() -> None:
    plain = a_diagnosis()
    row = plain.rows[0] | {"of_tier": 16, "emptied": False}
    alone = row | {"hit": 0, "of_tier": 0, "emptied": True}
    found = replace(plain, rows=[row, alone], deployment=plain.deployment | {"tier": TIER})
    said = [line for line in facts(found) if "tier" in line]
    assert said == [
        "a tier, ItsConnector, with room for 3 chunks of 4 blocks, whose hits end on multiples of "
        "64 tokens and take 64 tokens more that are stored",
        "the tier never serves sampled tokens: it stores prompts alone",
        "the tier stores nothing of groups 1",
    ]
    assert shortest_in_words(found).endswith(
        "with the pool emptied, hits begin with a prompt of 129 tokens (128 possible): 0 of 16 "
        "tokens in all"
    )
    assert [cells(each)[3] for each in found.rows] == ["16 (tier 16)", "0"]
    assert [line.partition(":")[0] for line in causes(found)] == [
        "resend of 40",
        "resend from the tier of 40",
    ]
    page = doctor_page(found, "hitproof doctor llama-3-8b")
    assert "From the tier, the pool emptied" in page
    assert "16 (tier 16)" in page
    empty = found.deployment | {"tier": TIER | {"room": 0}}
    assert any("nothing fits" in line for line in facts(replace(found, deployment=empty)))


def test_json_has_it_all() -> None:
    printed = json.loads(json.dumps(diagnosis_json(a_diagnosis())))
    assert printed["requests"][0]["shortfall"]["part"] == "mask"
    assert printed["shortest_prompt"] == 17


@pytest.mark.parametrize(
    ("reuse", "lengths"), [("resend", [40, 40]), ("second turn", [40, 44]), ("sibling", [42, 42])]
)
def test_a_row_is_a_history(reuse: str, lengths: list[int], tmp_path: Path) -> None:
    found = a_diagnosis()
    row = found.rows[0] | {"reuse": reuse}
    (path,) = write_histories(found.deployment, [row], 2, 2, tmp_path)
    history = read_workload(path.read_text())
    assert [len(each.prompt) for each in history.requests.values()] == lengths
    assert history.about.endswith("hits 16, at best 32")
    several_states = found.deployment | {"mamba_cache_mode": "all"}
    for unsaid in (several_states, found.deployment | {"tier": {}}):
        assert history_of(unsaid, row, 2, 2) is None


VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
    "image_size": 28, "patch_size": 14, "model_type": "siglip_vision_model",
}  # fmt: skip
WHISPER = {
    "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
    "is_encoder_decoder": True, "torch_dtype": "float16",
}  # fmt: skip


def multimodal() -> str:
    """A checkpoint whose text part is a bundled model."""
    text = json.loads(read_model("gemma-3-27b").config)
    text["num_hidden_layers"] = 6
    del text["architectures"]
    return json.dumps(
        {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "text_config": text,
            "vision_config": VISION,
        }
    )


def tier(name: str, **extra: Any) -> list[str]:
    """The arguments of a KV connector."""
    said = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return ["--kv-transfer-config", json.dumps(said)]


IN_CHUNKS = tier("OffloadingConnector", cpu_bytes_to_use=1 << 33, block_size=64)
SAMPLED = tier("OffloadingConnector", cpu_bytes_to_use=1 << 33, offload_prompt_only=False)
TIERS: dict[str, tuple[str, list[str]]] = {
    "chunks": ("llama-3-8b", IN_CHUNKS),
    "chunks and drafts": ("llama-3-8b", [*IN_CHUNKS, *EAGLE]),
    "blocks and drafts": (
        "llama-3-8b",
        [*tier("OffloadingConnector", cpu_bytes_to_use=1 << 33), *EAGLE],
    ),
    "sampled, too": ("llama-3-8b", SAMPLED),
    "small": ("llama-3-8b", tier("OffloadingConnector", cpu_bytes_to_use=1 << 25)),
    "windows": ("gpt-oss-20b", ["--kv-offloading-size", "8"]),
    "states": ("qwen3-next-80b-a3b", ["--kv-offloading-size", "8", *CACHED]),
    "simple": ("gpt-oss-20b", tier("SimpleCPUOffloadConnector")),
    "store": ("gpt-oss-20b", tier("MooncakeStoreConnector")),
    "store and drafts": ("llama-3-8b", [*tier("MooncakeStoreConnector"), *EAGLE]),
}


UNSOUND: dict[str, set[str]] = {
    "0.22.1": {"blocks and drafts"},
    "0.28.0": {"sampled, too"},
    "0.33.0": set(),
}
"""What `check` finds there, too: hits without the block for drafts, and of a token not computed."""


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", UNSOUND)
def test_tiers(release: str) -> None:
    """What each serves once the pool is empty, as far as it is stored; what it lacks has a part."""
    parts: dict[str, set[str]] = {}
    unsound: set[str] = set()
    with Worker(resolve(release), limits()) as worker:
        for name, (model, arguments) in TIERS.items():
            asked = Wanted(
                read_model(model), tuple(with_paths(arguments)), (1200,), ANSWER, QUESTION
            )
            answer = worker.ask(60, **asked.asked(asked.arguments, shortest=True))
            if name == "states" and release == "0.22.1":
                assert "External KV connector is not verified yet" in answer["refused"]
                continue
            assert not answer["refused"], name
            if answer["broken_rules"]:
                unsound.add(name)
            told, alone = answer["deployment"]["tier"], [r for r in answer["rows"] if r["emptied"]]
            assert len(alone) == 4
            parts[name] = {row["shortfall"]["part"] for row in alone if row["shortfall"]}
            assert not {row["shortfall"]["code"] for row in alone if row["shortfall"]} - {None}, (
                name
            )
            assert told["shortest"] <= told["shortest_at_best"], name
            if name == "sampled, too":
                assert told["stores_sampled"]
    assert unsound == UNSOUND[release]
    assert parts["small"] == {"tier's room"}
    assert "tier's unit" in parts["chunks"]
    assert "tier's store" not in parts["sampled, too"]


@pytest.mark.release
def test_whose_limit_it_is() -> None:
    """The target's refusals, draft models, and what doctor cannot set up are told apart."""
    llama = read_model("llama-3-8b").config
    asked = {
        "refused": (llama, ["--max-model-len", "9000000"]),
        "draft model": (read_model("llama-3-8b-eagle").config, []),
        "connector": (llama, tier("NixlConnector")),
        "no json": (llama, ["--kv-transfer-config", "{"]),
        "no such": (llama, tier("NoSuchConnector")),
        "no size": (llama, tier("OffloadingConnector")),
        "tier": (llama, ["--kv-offloading-size", "4"]),
        "encoder": (json.dumps(WHISPER), []),
        "text": (multimodal(), []),
        "type": (json.dumps(json.loads(llama) | {"model_type": "unheard-of"}), []),
        "architecture": (json.dumps(json.loads(llama) | {"architectures": ["Unheard"]}), []),
    }
    wanted = Wanted(read_model("llama-3-8b"), (), (600,), ANSWER, QUESTION)
    with Worker(resolve(NEWEST), limits()) as worker:
        answers = {
            name: worker.ask(
                60, **wanted.asked(arguments) | {"config": config, "arguments": arguments}
            )
            for name, (config, arguments) in asked.items()
        }
    text, offloaded = answers.pop("text"), answers.pop("tier")
    assert {name: each["end"] for name, each in answers.items()} == {
        "refused": "refused",
        "draft model": "draft model",
        "connector": "out of reach",
        "no json": "refused",
        "no such": "refused",
        "no size": "refused",
        "encoder": "out of reach",
        "type": "out of reach",
        "architecture": "refused",
    }
    assert len(answers["architecture"]["refused"]) < 400  # and not with all that there are
    assert answers["draft model"]["refused"] == "EagleLlamaForCausalLM"
    assert "NixlConnector are not played" in answers["connector"]["refused"]
    assert "Invalid JSON" in answers["no json"]["refused"]
    assert "\n" not in answers["no json"]["refused"]
    assert "NoSuchConnector" in answers["no such"]["refused"]
    assert [row["hit"] for row in offloaded["rows"] if row["emptied"]] == [
        row["of_tier"] for row in offloaded["rows"] if row["emptied"]
    ]
    assert all(row["of_tier"] for row in offloaded["rows"] if row["emptied"])
    assert text["deployment"]["text_only"]
    assert {each["kind"] for each in text["deployment"]["groups"]} == {
        "sliding_window",
        "full_attention",
    }


def test_sentences_about_deployments_without_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = read_model("llama-3-8b-eagle")
    ends = {
        end: gate_doctor._refusal(model, "1.2", {"end": end, "refused": "WHY"})
        for end in ("refused", "no progress", "out of reach", "draft model")
    }
    assert [end for end, each in ends.items() if isinstance(each, OutOfReach)] == ["out of reach"]
    assert str(ends["refused"]).startswith("vLLM 1.2 refuses this deployment (WHY);")
    assert "says nothing about vLLM 1.2: WHY" in str(ends["out of reach"])
    drafted = str(ends["draft model"])
    assert drafted.startswith("llama-3-8b-eagle is a draft model (WHY); name the model that it")
    said = json.loads(drafted[drafted.index("{") : -1])
    assert with_paths(["--speculative-config", json.dumps(said)])[1] != json.dumps(said)

    def fails(*_: Any, **__: Any) -> Diagnosis:
        raise ends["out of reach"]

    monkeypatch.setattr(commands_doctor, "diagnose", fails)
    monkeypatch.setattr(commands_doctor, "resolve", lambda *_, **__: None)
    assert CliRunner().invoke(cli.app, ["doctor", "llama-3-8b"]).exit_code == 3


def test_draft_models_are_no_models_of_their_own() -> None:
    assert not set(bundled_drafts()) & set(bundled_models())
    for name in bundled_drafts():
        assert read_model(name).config


@pytest.mark.long(keep=1)
@pytest.mark.release
@cases("arguments, said")
def test_what_the_target_refuses(arguments: list[str], said: str) -> None:
    ended = CliRunner().invoke(cli.app, ["doctor", "llama-3-8b", *arguments])
    assert ended.exit_code == 2
    assert said in ended.output
    assert "Traceback" not in ended.output
