"""What the spec can say of a manager that hitproof did not create: its configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import HitGranularity, is_fine_grained
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.adapter.groups import KINDS
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.gate.policies import expected_value


@dataclass(frozen=True)
class Scope:
    """What of a manager is judged.

    Attributes:
        engine: the configuration.
        caches: whether prefix caching is on.
        states_at_ends: whether Mamba blocks have the state of a step's end only (align mode).
    """

    engine: EngineConfiguration
    caches: bool
    states_at_ends: bool


def policies_of(version: str | None, chosen: Mapping[str, str]) -> JudgedPolicies:
    """The policies of a release, by the table of `spec.releases.policies`; None is newer than any.

    ``chosen`` has the values that the user asks for instead, by the policies' names.
    """
    values = {name: chosen.get(name, expected_value(p, version)) for name, p in POLICIES.items()}
    return JudgedPolicies.of(values)


def scope_of(
    coordinator: Any, max_model_len: int, use_eagle: bool, policies: JudgedPolicies
) -> Scope:
    """What of the manager around ``coordinator`` is judged.

    Raises `CannotJudge` when the spec does not speak of such a manager; the message says why.
    """
    pool = attribute(coordinator, "block_pool")
    managers = attribute(coordinator, "single_type_managers")
    specs = attribute(coordinator, "kv_cache_config").kv_cache_groups
    if any(getattr(manager, "block_pool", pool) is not pool for manager in managers):
        raise CannotJudge(refusal("shadow-pools"))
    if any(getattr(manager, "retains_longer_hit", False) for manager in managers):
        raise CannotJudge(refusal("shadow-longer-hits"))
    # Before 0.33 flagged groups dropped a block whether EAGLE was on or not.
    drops = getattr(coordinator, "drop_eagle_group_ids", None)
    flagged = any(getattr(spec, "is_eagle_group", False) for spec in specs)
    # Where hashes look ahead the manager does not use EAGLE: it drops no block.
    ahead = getattr(pool, "num_hash_lookahead_tokens", 0)
    use_eagle = bool(use_eagle or ahead or (flagged and drops is None))
    # Several MTP modules compute the last tokens again: one token less than they look ahead.
    again = getattr(coordinator, "num_reprefillable_tokens", 0)
    groups = tuple(
        replace(_group(manager, spec, use_eagle), prefill_lookahead=1 + again * use_eagle)
        for manager, spec in zip(managers, specs, strict=True)
    )
    interval = getattr(coordinator, "retention_interval", None)
    drafts = [getattr(spec.kv_cache_spec, "num_speculative_blocks", 0) for spec in specs]
    engine = EngineConfiguration(
        groups=groups,
        num_gpu_blocks=pool.num_gpu_blocks,
        hash_block_size=getattr(pool, "hash_block_size", groups[0].block_size),
        max_model_len=max_model_len,
        use_eagle=use_eagle,
        num_hash_lookahead_tokens=ahead,
        num_speculative_tokens=max(drafts),
        retention_interval=interval,
    )
    requested = getattr(coordinator, "scheduler_block_size", engine.alignment)
    if requested != engine.alignment:
        words = refusal("shadow-alignment")
        raise CannotJudge(words.format(requested=requested, alignment=engine.alignment))
    if policies.granularity is HitGranularity.FINE and is_fine_grained(
        groups, engine.hash_block_size
    ):
        raise CannotJudge(refusal("shadow-fine-hits"))
    modes = {
        getattr(spec.kv_cache_spec, "mamba_cache_mode", "align")
        for spec, group in zip(specs, groups, strict=True)
        if group.kind is GroupKind.MAMBA
    }
    return Scope(engine, bool(pool.enable_caching), modes <= {"align"})


def _group(manager: Any, spec: Any, use_eagle: bool) -> Group:
    """The group of a single-type manager. Raises `CannotJudge` where the spec has no such kind."""
    name = type(manager).__name__
    cacheable = getattr(spec.kv_cache_spec, "prefix_cacheable", True)
    kind = KINDS.get(name)
    if not cacheable:
        kind = GroupKind.FULL_ATTENTION
    if kind is None:
        raise CannotJudge(refusal("shadow-kinds").format(kind=name))
    eagle = bool(use_eagle and getattr(spec, "is_eagle_group", False))
    if max(getattr(manager, "dcp_world_size", 1), getattr(manager, "pcp_world_size", 1)) > 1:
        raise CannotJudge(refusal("shadow-ranks"))
    return group_of(kind, spec.kv_cache_spec, manager.block_size, eagle, cacheable)


def group_of(
    kind: GroupKind, spec: Any, block_size: int, eagle: bool, cacheable: bool = True
) -> Group:
    """A group by its KV cache spec."""
    return Group(
        kind,
        block_size,
        spec.sliding_window if kind is GroupKind.SLIDING_WINDOW else None,
        eagle,
        spec.attention_chunk_size if kind is GroupKind.CHUNKED_LOCAL else None,
        cacheable,
    )
