"""Documented limits and what the code declines are the same; see `conformance.scope.limits`."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hitproof.conformance.histories.schema import EngineConfiguration, History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.conformance.scope.limits import LIMITS, refusal
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity
from hitproof.vllm_integration.gate.lockstep import policies_of
from hitproof.vllm_integration.shadow.recorder import input_of
from hitproof.vllm_integration.shadow.scope import Scope, scope_of
from hitproof.vllm_integration.targets.target import Target, TargetError

ROOT = Path(__file__).resolve().parents[2]
DECLINING = [
    *(ROOT / "vllm_integration" / "shadow").glob("*.py"),
    ROOT / "vllm_integration" / "adapter" / "schedulers.py",
    ROOT / "vllm_integration" / "gate" / "lockstep.py",
    *(ROOT / "conformance" / "reproduce").glob("*.py"),
    *(ROOT / "conformance" / "judge").glob("*.py"),
]
"""Where it is decided what is judged."""

NO_LIMITS = {
    "this release has one block size for all groups; name a later one",
    "this release has no retention interval; leave retention_interval out, or name a later release",
    "fine-grained hits need a policy on whose hit the end of a prompt is kept for; ask for "
    "fine_tail=extension or fine_tail=resend, or for hit_granularity=aligned",
    "its pool is not a BlockPool",
    "its keys are not block hashes with a group's number behind",
    "a request lost tokens",
    "a hit is given that no lookup of the manager returned",
}
"""Refusals of what a release does not have, or of what a caller does to a manager."""


def calls(text: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))


def named(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def asked_for(texts: list[str]) -> list[str]:
    """The codes of the limits whose refusals are used."""
    return [
        argument.value
        for text in texts
        for call in calls(text)
        if named(call) == "refusal"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def undocumented(texts: list[str]) -> set[str]:
    """Refusals in plain words, which no limit has."""
    return {
        str(argument.value)
        for text in texts
        for call in calls(text)
        if named(call) in ("CannotJudge", "OutOfReach")
        for argument in call.args
        if isinstance(argument, ast.Constant)
    } - NO_LIMITS


TEXTS = [path.read_text(encoding="utf-8") for path in DECLINING]


def test_each_limit_with_a_refusal_is_what_some_code_declines() -> None:
    assert set(asked_for(TEXTS)) == {code for code, limit in LIMITS.items() if limit.refusal}
    assert "shadow-pools" not in asked_for([text.replace("shadow-pools", "x") for text in TEXTS])


def test_what_the_code_declines_is_a_documented_limit() -> None:
    assert undocumented(TEXTS) == set()
    assert undocumented(['raise CannotJudge("it is Tuesday")']) == {"it is Tuesday"}


def test_limits_are_sentences() -> None:
    assert all(limit.sentence.endswith(".") for limit in LIMITS.values())
    refusals = [limit.refusal for limit in LIMITS.values() if limit.refusal]
    assert len(refusals) == len(set(refusals))


def coordinator(block_size: int = 4, **changes: Any) -> Any:
    """A coordinator of one group of full attention and one of Mamba, as far as the scope looks."""
    pool = SimpleNamespace(num_gpu_blocks=9, hash_block_size=block_size, enable_caching=True)
    kinds = ("FullAttentionManager", 4), ("MambaManager", 4)
    managers = [type(name, (), {"block_size": size})() for name, size in kinds]
    specs = [SimpleNamespace(kv_cache_spec=SimpleNamespace()) for _ in managers]
    config = SimpleNamespace(kv_cache_groups=specs)
    made = {"block_pool": pool, "single_type_managers": managers, "kv_cache_config": config}
    return SimpleNamespace(**made | changes)


def with_managers(**attributes: Any) -> Any:
    made = coordinator()
    for manager in made.single_type_managers:
        vars(manager).update(attributes)
    return made


def with_kind(name: str) -> Any:
    return coordinator(single_type_managers=[type(name, (), {"block_size": 4})()] * 2)


def scoped(made: Any, granularity: HitGranularity = HitGranularity.ALIGNED) -> Scope:
    """What the shadow judges of the manager, unless it declines."""
    return scope_of(made, 64, False, JudgedPolicies(granularity=granularity))


def exported() -> None:
    engine = EngineConfiguration(
        (Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)),
        9,
        2,
        64,
        mamba_checkpoint_alignment=2,
    )
    policies = JudgedPolicies(granularity=HitGranularity.FINE, fine_tail=FineTail.EXTENSION)
    replay(History(engine, {}, ()), ReferenceManagers(), policies)


ASKED: dict[str, Callable[[], object]] = {
    "shadow-fine-hits": lambda: scoped(coordinator(2), HitGranularity.FINE),
    "shadow-ranks": lambda: scoped(with_managers(dcp_world_size=2)),
    "shadow-pools": lambda: scoped(with_managers(block_pool=object())),
    "shadow-longer-hits": lambda: scoped(with_managers(retains_longer_hit=True)),
    "shadow-kinds": lambda: scoped(with_kind("CrossAttentionManager")),
    "shadow-alignment": lambda: scoped(coordinator(scheduler_block_size=8)),
    "shadow-recording": lambda: input_of(SimpleNamespace(prompt_token_ids=None)),
    "lockstep-releases": lambda: policies_of(Target("0.19.1", None, "0.19.1")),
    "replay-checkpoints": exported,
}
"""Those that can be asked for without a release; `test_reproduction` asks for others."""


@pytest.mark.parametrize("code", ASKED)
def test_what_is_asked_for_is_declined_in_the_words_of_the_limit(code: str) -> None:
    with pytest.raises((CannotJudge, TargetError, ValueError)) as declined:
        ASKED[code]()
    assert str(declined.value) == refusal(code).format(
        target="0.19.1", kind="CrossAttentionManager", requested=8, alignment=4
    )


def test_what_is_no_limit_is_not_declined() -> None:
    assert scoped(coordinator()).caches
    assert scoped(coordinator(4), HitGranularity.FINE).caches
    assert scoped(coordinator(num_reprefillable_tokens=1)).caches
