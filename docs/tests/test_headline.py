"""The page of replayed conversations: what it says is what is on record."""

from dataclasses import replace
from typing import Any

from docs import headline
from docs.source import ROOT
from hitproof.conformance.scope.models import MODELS
from hitproof.spec.groups import GroupKind, alignment, geometry
from hitproof.spec.hits import required_run


def runs() -> dict[tuple[str, str], dict[str, Any]]:
    return {(run["subject"], run["retention"]): run for run in headline.record()["runs"]}


def hits(run: dict[str, Any]) -> list[int]:
    return [each["hit"] for each in run["replays"]]


def test_the_record_is_of_the_command() -> None:
    words = headline.COMMAND
    targets = [f"vLLM {words[at + 1]}" for at, word in enumerate(words) if word == "--target"]
    retentions = [words[at + 1] for at, word in enumerate(words) if word == "--retention"]
    assert {key for key in runs() if key[0].startswith("vLLM")} == {
        (target, retention) for target in targets for retention in retentions
    }
    assert {key for key in runs() if key[0] == "reference"} == {
        ("reference", retention) for retention in retentions
    }
    played = [run for run in runs().values() if "cannot" not in run]
    assert {len(run["replays"]) for run in played} == {headline._CONVERSATIONS}
    assert headline.record()["deployment"]["max_model_len"] == headline._TOKENS


def test_readme_has_the_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"`{headline.command()}`" in text


def test_what_the_page_says_of_causes() -> None:
    for (subject, retention), run in runs().items():
        if "cannot" in run:
            assert subject == "vLLM 0.22.1"
            assert retention != "dense"
            continue
        assert run["faults"] == {}
        assert {cause for cause, tokens in run["lost"].items() if tokens} <= {"eviction order"}
        assert all(each["foresight"] == each["unbounded"] for each in run["replays"])
        twin = runs().get((subject.replace("vLLM", "reference as"), retention))
        assert twin is None or hits(twin) == hits(run)
        if retention == "dense":
            assert not all(hits(run))
        else:
            assert all(each["hit"] == each["unbounded"] for each in run["replays"])
    oldest, newer = (
        sum(map(bool, hits(runs()[f"vLLM {v}", "dense"]))) for v in ("0.22.1", "0.23.0")
    )
    assert oldest <= newer


def test_what_the_page_says_of_dense_retention() -> None:
    model = next(each for each in MODELS if each.name == "DeepSeek-V4-like")
    groups = [replace(group, eagle=False) for group in model.groups]
    size = alignment(groups)
    kept = {
        group: len(required_run(geometry(group, size), 64 * size // group.block_size))
        for group in groups
        if group.kind is GroupKind.SLIDING_WINDOW
    }
    windows = [group for group in groups if group in kept]
    full = sum(size // group.block_size for group in groups if group not in kept)
    assert len(windows) == 4
    assert sum(kept[group] for group in windows) > 20 * full


def test_the_table() -> None:
    text = headline.table()
    assert text.count("\n") == 1 + len(runs())
    assert "not played" in text
