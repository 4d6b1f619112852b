"""Replay on real releases: a history tells a fault on those that have it, and on no others."""

import json
from pathlib import Path

import pytest

from hitproof.conformance.histories.vectors import vectors
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.gate.replay import ReplayReport, run
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.shadow.report import load_known
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.tests.conftest import hitproof, limits
from hitproof.vllm_integration.verdict import Verdict

COUNT = "free_count_is_free_queue_length"
VECTORS = vectors()
_UNALIGNED = (
    "raises-exception(error=AssertionError, message=aligned_length is not compatible with eagle "
    "now, site=SlidingWindowManager.find_longest_cache_hit)"
)
FAULTS = {
    "eagle_spiral": {"0.14.0": "lost hit: hit-too-short(run=whole, short=several)"},
    "eagle_with_mask": {
        "0.14.0": f"crash: {_UNALIGNED}",
        "0.18.0": f"crash: {_UNALIGNED}",
        "0.22.1": "lost hit: lookahead-block-unregistered",
    },
    "mamba_under_eagle": {
        "0.21.0": "unsound: hit-too-long(group=full_attention)",
        "0.22.1": "unsound: hit-too-long(group=full_attention)",
        "0.23.0": "unsound: hit-too-long(group=full_attention)",
    },
    "unreachable_window_blocks": {
        "0.14.0": "waste: unreachable-block-registered(place=between-runs, segment=unfilled)",
        "0.18.0": "waste: unreachable-block-registered(place=between-runs, segment=unfilled)",
        "0.21.0": "waste: unreachable-block-registered(place=between-runs, segment=unfilled)",
    },
    "mamba_states_at_chunk_ends": {"0.14.0": "unsound: state-read-too-early"},
}
"""What a history shows, and on which of the releases below."""


def replayed(release: str, names: list[str]) -> dict[str, ReplayReport]:
    target = resolve(release)
    reports = run(Run(target, limits=limits()), [VECTORS[name] for name in names])
    return dict(zip(names, reports, strict=True))


def shown(report: ReplayReport) -> list[str]:
    return [f"{f.signature.divergence}: {f.signature.defect}" for f in report.findings]


@pytest.mark.long(keep=1)
@pytest.mark.release
@pytest.mark.parametrize("release", ["0.14.0", "0.18.0", "0.21.0", "0.22.1", "0.23.0"])
def test_a_fault_is_told_on_the_releases_that_have_it(release: str) -> None:
    reports = replayed(release, [*FAULTS, "retention_junction"])
    # What a release cannot be asked is inconclusive.
    junction = reports.pop("retention_junction")
    without = release != "0.23.0"
    assert ("has no retention interval" in junction.unsettled) == without
    assert (junction.verdict is Verdict.INCONCLUSIVE) == without
    for name, report in reports.items():
        assert not report.unsettled
        here = FAULTS[name].get(release)
        others = set(FAULTS[name].values()) - {here}
        told = shown(report)
        assert here is None or (here in told and report.verdict is Verdict.DIVERGES)
        assert not others & set(told)


@pytest.mark.release
def test_the_newest_release_serves_what_is_promised() -> None:
    known = load_known("0.33.0")
    for name, report in replayed("0.33.0", list(VECTORS)).items():
        served = tuple(lookup["served"] for lookup in report.lookups)
        assert served == VECTORS[name].hits[LookaheadHorizon(report.policies["horizon"])]
        assert len(report.steps) == len(VECTORS[name].steps)
        if name in FAULTS:
            assert not [f for f in report.findings if f.signature not in known]


@pytest.mark.release
def test_what_is_printed() -> None:
    """An extension of a prompt does not hit what retention promises it."""
    path = (
        Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "retention_junction.json"
    )
    result = hitproof("replay", path, "0.23.0", "--format", "json")
    report = json.loads(result.stdout)
    assert (result.returncode, report["verdict"]) == (Verdict.DIVERGES, "diverges")
    told, finding = report["findings"]
    assert told["claim"] == "events_describe_the_cache"  # of blocks that retention left out
    assert finding["claim"] == "retention_keeps_resends_and_extensions"
    assert finding["sentence"].startswith("Under sparse retention")
    assert finding["given"][-1].startswith('steps[0] {"do": "schedule", "request": "a"}')
    assert [lookup["served"] for lookup in report["lookups"]] == [0, 0, 0]


@pytest.mark.release
def test_a_policy_that_is_asked_for_is_judged_by() -> None:
    path = Path(__file__).resolve().parents[2] / "conformance" / "vectors" / "eagle_with_mask.json"
    asked = ("--policy", "lookahead_horizon=hashed", "--format", "json")
    report = json.loads(hitproof("replay", path, "0.23.0", *asked).stdout)
    assert report["policies"]["horizon"] == "hashed"


@pytest.mark.release
def test_an_expectation_that_is_not_met_diverges(tmp_path: Path) -> None:
    expect = '{"do": "expect", "request": "a", "computed": 9}'
    text = """{"about": "two histories", "engine": {"groups": [{"kind": "full_attention",
        "block_size": 4}], "num_gpu_blocks": 9, "hash_block_size": 4, "max_model_len": 64},
        "requests": {"a": {"prompt": [[1, 9]]}}, "steps": [{"do": "schedule", "request": "a"},
        EXPECT]}""".replace("EXPECT", expect)
    lines = " ".join(text.split())
    path = tmp_path / "two.jsonl"
    path.write_text(lines + "\n" + lines.replace('"computed": 9', '"computed": 8') + "\n")
    result = hitproof("replay", path, "0.33.0")
    assert result.returncode == Verdict.DIVERGES
    assert result.stdout.startswith(f"""history 2 of 2: two histories
not as expected
  given : steps[1] {expect.replace("9", "8")}
  computed: 9, not 8
""")
    assert "1 of 2 expectations met" in result.stdout
    assert result.stdout.endswith("vLLM 0.33.0: diverges, 1 unmet expectation\n")
    report = json.loads(hitproof("replay", path, "0.33.0", "--format", "json").stdout)
    assert [each["number"] for each in report["histories"]] == [1, 2]
    assert [each["expected"][0]["met"] for each in report["histories"]] == [True, False]
