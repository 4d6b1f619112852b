"""Replay of hits inside blocks and of several MTP modules: the newest release with a fault each."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

from hitproof.conformance.histories.corpus import series
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Abilities, possible
from hitproof.conformance.histories.schema import History
from hitproof.vllm_integration.gate.replay import ReplayReport, run
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.shadow.report import load_known
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import Copy, edits, limits

RELEASE = "0.33.0"
COUNT = 25


Told: TypeAlias = Callable[[str | Path, bool], Counter[tuple[str, str]]]


def of_modules(target: str | Path, hashes_look_ahead: bool = True) -> Counter[tuple[str, str]]:
    """What histories with several MTP modules tell of a target, and how many of them."""
    abilities = Abilities(hashes_look_ahead=hashes_look_ahead, exports_states=hashes_look_ahead)
    return shown(target, [possible(history, abilities) for history in series("modules")])


def of_fine_hits(target: str | Path, has_checkpoints: bool = True) -> Counter[tuple[str, str]]:
    """What the first histories with hits inside blocks tell of it."""
    abilities = Abilities(
        exports_states=has_checkpoints,
        keeps_shared_states=has_checkpoints,
        hashes_look_ahead=has_checkpoints,
    )
    return shown(
        target, [possible(history, abilities) for history in series("fine_families")[:COUNT]]
    )


def reports(target: str | Path, histories: Sequence[History]) -> list[ReplayReport]:
    """Histories on a target."""
    return run(Run(resolve(str(target)), limits=limits()), histories)


def shown(target: str | Path, histories: Sequence[History]) -> Counter[tuple[str, str]]:
    """Classes and defects that histories show of a target, and how many of them do."""
    seen = Counter[tuple[str, str]]()
    for report in reports(target, histories):
        assert not report.unsettled
        seen.update(
            {(str(f.signature.divergence), str(f.signature.defect)) for f in report.findings}
        )
    return seen


WHOLE = """
{"engine": {"groups": [{"kind": "full_attention", "block_size": 4}],
            "num_gpu_blocks": 30, "hash_block_size": 4, "max_model_len": 60},
 "requests": {"a": {"prompt": [0, 0, 0, 0, 0, 0, 0, 0, 0], "output": [50],
                    "embeddings": [{"offset": 0, "values": [1, 2, 3, 4, 5, 6, 7, 8, 9]}]},
              "b": {"prompt": [0, 0, 0, 0, 0, 0, 0, 0, 0],
                    "embeddings": [{"offset": 0, "values": [1, 2, 3, 4, 5, 6, 7, 9, 9]}]}},
 "steps": [{"do": "schedule", "request": "a"}, {"do": "new_step"},
           {"do": "schedule", "request": "b"}]}
"""
HASHED = "block_prompt_embeds = request.prompt_embeds[start_token_idx:end_token_idx]"


@pytest.mark.release
def test_prompts_that_come_as_embeddings(broken_copy: Copy) -> None:
    """Prompts that differ in an embedding share blocks up to it; a hash without it serves more."""
    prompts = read(WHOLE)
    assert not shown(RELEASE, [prompts])
    copy = broken_copy(RELEASE, {HASHED: HASHED.replace("_idx]", "_idx - 1]")})
    told = shown(copy, [prompts])
    assert any(divergence == "unsound" for divergence, _ in told)


@pytest.mark.release
def test_prompts_that_come_as_embeddings_in_part() -> None:
    """No release up to 0.33.0 has them share blocks with plain prompts (BUGS 90)."""
    written = json.loads(WHOLE)
    written["requests"]["b"]["embeddings"] = [{"offset": 4, "values": [5, 6, 7, 8, 9]}]
    written["requests"]["a"]["embeddings"] = []
    told = shown(RELEASE, [read(json.dumps(written))])
    assert {divergence for divergence, _ in told} == {"lost hit"}
    (report,) = reports("0.20.2", [read(json.dumps(written))])
    assert "no prompt of this release comes as embeddings in part" in str(report.unsettled)


def known_of(release: str) -> set[tuple[str, str]]:
    """Classes and defects of the known divergences of a release."""
    return {(str(known.divergence), str(known.defect)) for known in load_known(release)}


@cache
def as_released(told: Told) -> Counter[tuple[str, str]]:
    return told(RELEASE, True)


FAULTS = edits("fine")


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_told(fault: str, broken_copy: Copy) -> None:
    """It adds findings of a class whose defects start so; where states come from follows."""
    wanted = FAULTS[fault]
    told: Told = of_fine_hits if wanted["histories"] == "hits" else of_modules
    more = told(broken_copy(RELEASE, {wanted["old"]: wanted["new"]}), True) - as_released(told)
    assert [key for key in more if ": ".join(key).startswith(wanted["shows"])], more


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.28.0", RELEASE])
def test_one_dropped_block_is_too_little(release: str) -> None:
    seen = of_modules(release, release == RELEASE)
    for group in ("sliding_window", "full_attention"):
        code = f"hit-too-long(block=lookahead, group={group}, modules=several)"
        assert seen["wrong drafts", code]
    assert seen.keys() <= known_of(release)


@pytest.mark.release
def test_the_newest_release_keeps_and_copies_what_it_should() -> None:
    """What it shows is known."""
    assert as_released(of_fine_hits).keys() <= known_of(RELEASE)


@pytest.mark.release
def test_a_release_that_kept_less_is_told() -> None:
    # Up to 0.29 the state was kept where no hit with EAGLE ends.
    seen = of_fine_hits("0.28.0", False)
    assert any(
        failure.startswith("promised-entry-unregistered(hit=extension") for _, failure in seen
    )
