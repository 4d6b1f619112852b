"""A policy that is asked for is judged by, in `check` and in `replay`, or refused.

Both ask workers for the same: checks on configurations, and histories to be replayed.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.gate.policies import NOT_IN_HISTORIES, Standing, chosen_values
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.sandbox.driver import Worker
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import hitproof, limits, one_sentence
from hitproof.vllm_integration.verdict import Verdict

VECTORS = Path(__file__).resolve().parents[2] / "conformance" / "vectors"
JUNCTION, EAGLE = (
    (VECTORS / f"{n}.json").read_text() for n in ("retention_junction", "eagle_with_mask")
)
ONE_DRAFT = """{"engine": {"groups": [{"kind": "full_attention", "block_size": 8, "eagle": true},
  {"kind": "sliding_window", "block_size": 2, "window": 4}], "num_gpu_blocks": 99,
  "hash_block_size": 2, "max_model_len": 64, "use_eagle": true},
 "requests": {"a": {"prompt": [[1, 30]]}}, "steps": [{"do": "schedule", "request": "a"}]}"""
INSIDE = """{"engine": {"groups": [{"kind": "full_attention", "block_size": 4},
  {"kind": "mamba", "block_size": 4}], "num_gpu_blocks": 40, "hash_block_size": 2,
  "max_model_len": 64},
 "requests": {"a": {"prompt": [[1, LENGTH]]}, "b": {"prompt": [[1, LENGTH], 90, 91]}},
 "steps": [{"do": "schedule", "request": "a", "tokens": 4}, {"do": "schedule", "request": "a"},
  {"do": "schedule", "request": "b"}]}"""

CHOSEN = {
    "lookahead_horizon": ("0.33.0", "capped", EAGLE),
    "eagle_groups": ("0.33.0", "all", ONE_DRAFT),
    "hit_granularity": ("0.33.0", "aligned", INSIDE.replace("LENGTH", "7")),
    "fine_tail": ("0.33.0", "extension", INSIDE.replace("LENGTH", "6")),
    "sparse_retention": ("0.33.0", "none", JUNCTION),
    "junctions": ("0.24.0", "kept", JUNCTION),
}
"""For each policy a release, a value that it lacks, and a history that shows the difference."""

CHECKED = {"sparse_retention": "retention_keeps_siblings", "junctions": "retention_keeps_junctions"}
"""Claims whose checks depend on a policy by themselves."""


@cache
def judged(release: str, policies: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """What a worker says of the histories, of checks of retention, and of what the target shows."""
    group = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, False, 8)
    target = resolve(release, announce=lambda *_: None)
    found: dict[str, Any] = {}
    with Worker(target, limits(), dict(policies)) as worker:
        for name, (_, _, history) in CHOSEN.items():
            play = Play.written(read(history.encode(), name), "").as_json()
            found[name] = worker.ask(120, op="replay", play=play) | {"policies": {}}
        for claim in CHECKED.values():
            message = {"claim": claim, "configuration": group.as_json(), "facts": False}
            found[claim] = worker.ask(120, op="check", **message)["statuses"][claim]
        found["shown"] = worker.ask(120, op="policies")["policies"]
    return found


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("name", CHOSEN)
def test_a_chosen_policy_changes_what_is_judged(name: str) -> None:
    release, value, _ = CHOSEN[name]
    plain, chosen = judged(release), judged(release, ((name, value),))
    assert plain["shown"] == chosen["shown"], "what the target shows is not for us to choose"
    assert plain["shown"][name] != value
    assert plain[name] != chosen[name]
    for claim in filter(None, [CHECKED.get(name)]):
        assert plain[claim] != chosen[claim]


def test_every_policy_can_be_chosen_or_is_refused() -> None:
    assert CHOSEN.keys() | NOT_IN_HISTORIES.keys() == POLICIES.keys()
    assert not CHOSEN.keys() & NOT_IN_HISTORIES.keys()


def test_what_decides_nothing_in_a_history_is_refused() -> None:
    result = hitproof(
        "replay", VECTORS / "eagle_with_mask.json", "0.33.0", "--policy", "default_retention=dense"
    )
    assert result.returncode == Verdict.USAGE
    assert "default_retention decides nothing here" in one_sentence(result)


def test_what_no_check_depends_on_is_held_against_what_the_target_shows() -> None:
    assert chosen_values(["default_retention=dense"]) == {"default_retention": "dense"}
    policy = POLICIES["default_retention"]
    changes = {
        (expected, actual, chosen): bool(
            Report(
                Target("1", None, "1"),
                Profile.QUICK,
                policies=[Standing(policy, expected, actual, chosen)],
            ).policy_changes
        )
        for expected in ("dense", "latest")
        for actual in ("dense", "latest")
        for chosen in (None, "dense", "latest")
    }
    assert changes == {case: (case[2] or case[0]) != case[1] for case in changes}
    horizon = Standing(POLICIES["lookahead_horizon"], "hashed", "hashed", "capped")
    report = Report(Target("1", None, "1"), Profile.QUICK, policies=[horizon])
    assert report.policy_changes == [], "the checks judge by it, and show what differs"
