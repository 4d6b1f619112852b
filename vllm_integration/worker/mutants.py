"""The code that the self-test mutates, by family.

Single points are changed in lookups, masks, ``cache_blocks`` and what they call by name. Structured
faults are put in everything that the gate judges: what a scheduler calls of ``KVCacheManager``, the
managers, coordinator and pool behind it, and the hashes of requests. For the family of schedulers
single points are changed where a scheduler decides how many tokens a step computes, and where
start-up derives groups, block sizes and the pool; for that of tiers, where the Mooncake store's
coordinator and the offloading scheduler look up, store and load.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hitproof.conformance.mutation import Change, Mutant, mutants
from hitproof.conformance.structured.faults import faults
from hitproof.conformance.structured.scopes import Vocabulary
from hitproof.vllm_integration.adapter.groups import NAMES
from hitproof.vllm_integration.families import Family

ENTRIES = (
    "find_longest_cache_hit",
    "reachable_block_mask",
    "_cache_block_mask",
    "cache_blocks",
    "verify_and_split_kv_cache_groups",
)
"""The entry points, in whichever manager or coordinator defines them."""

CHANGES = frozenset(Change) - {Change.ARGUMENTS, Change.FIELD}
"""The kinds of change. Wrong arguments mostly raise TypeError, which says little about checks."""

_CORE = "vllm.v1.core."
_COORDINATORS = ("KVCacheCoordinator", "UnitaryKVCacheCoordinator", "HybridKVCacheCoordinator")


_SCHEDULER_CALLS = (
    "__init__",
    "get_computed_blocks",
    "get_computed_blocks_for_connector",
    "allocate_slots",
    "cache_blocks",
    "free",
    "evict_blocks",
    "reset_prefix_cache",
    "take_events",
    "take_kv_cache_block_copies",
    "take_boundary_state_offloads",
    "estimate_cached_tokens",
    "get_block_ids_for_computed_tokens",
    "truncate_computed_blocks",
    "record_prefix_cache_stats",
    "get_num_common_prefix_blocks",
    "new_step_starts",
    "usage",
)
_HASHING = (
    "get_request_block_hasher",
    "generate_lookahead_block_hash_extra_keys",
    "hash_block_tokens",
)
_WHOLE = ("KVCacheManager",)
_POOL = ("BlockPool", "BlockHashToBlockMap")
_BLOCKS = ("FreeKVCacheBlockQueue", "KVCacheBlock", "BlockHashListWithBlockSize")
_REQUEST = ("append_output_token_ids", "update_block_hashes")

_NOT_CALLED = {
    "KVCacheManager.remove_skipped_blocks",  # when a connector is told the end of a request
    "FreeKVCacheBlockQueue.append",  # lists have a method of that name; pools append several
}
"""Functions that no check and no history calls; what they call is judged where others call it."""

_STEP = "schedule"
_SPLITS = (_STEP, "_mamba_block_aligned_split", "_update_after_schedule")
"""What decides the chunks of a step, in the classes of schedulers."""

_BOUNDARIES = ("get_mamba_prefill_checkpoint_position", "is_mamba_prefill_checkpoint_valid")
"""The same, in ``kv_cache_interface``."""

_SIZES = ("resolve_kv_cache_block_sizes", "generate_scheduler_kv_cache_config")
_PLANS = ("get_kv_cache_groups", "get_kv_cache_config_from_groups")
"""What derives block sizes, groups and the pool, with what it calls."""

_CHUNKS = re.compile(
    r"num_new_tokens|token_budget|input_budget|prefill_token_threshold|draft_slots"
)
_ELSEWHERE = re.compile(
    r"encoder|connector|external|load_kv|pcp|dcp|diffusion|structured|lora|logger|throttle|pad_spec|dynamic_sd"
    r"|hisparse|num_padding_layers|wasted_bytes"
    r"|num_replay_tokens|len\(kv_cache_groups\) == 0|kv_cache_tensors=\[\]"
)
"""Statements of ``schedule`` that are about chunks, and statements about what no history has, or
that only logs have."""

_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1."
_TIERS = {
    "mooncake.store.coordinator": (
        "__init__",
        "_verify_and_split_kv_cache_groups",
        "store_mask",
        "lookup_mask",
        "load_mask",
        "_reachable_masks",
        "_find_hit_blocks",
        "find_longest_cache_hit",
        "_coverage_spec",
    ),
    "offloading.scheduler": (
        "from_spec",
        "resolve_mamba_align_size",
        "load_window_size_in_chunks",
        "update_offload_keys",
        "update_block_id_groups",
        "storable_chunks",
        "storable_blocks",
        "advance_stored_idx",
        "_calc_num_offloadable_tokens",
        "_maximal_prefix_lookup",
        "_sliding_window_lookup",
        "_lookup_complete_chunks",
        "_lookup",
        "_make_boundary_key",
        "get_num_new_matched_tokens",
        "update_state_after_alloc",
        "_update_req_states",
        "_build_aligned_boundary_store_jobs",
        "_reachable_store_block_mask",
        "_build_store_jobs",
    ),
    "offloading.config": ("get_sliding_window_size_in_chunks",),
}
"""What looks up, stores and loads in tiers, by module."""
_NOT_IN_TIERS = re.compile(
    r"logger|stats|events?_|metric|time\.|[dp]cp|retention|kv_hints|sync|max_(off)?load|policy"
    r"|partial|fence|flush|pending_jobs|LookupResult\.(RETRY|HIT_PENDING)|defer|being_loaded"
    r"|shared_prefix|transfer_jobs|_jobs\b|job_id|req_status is None|hisparse|max_num_new_tokens"
    r"|is_finished|ABORTED|offload_prompt_only"
)
"""Statements about what no tier that is judged has: metrics, events, budgets, backends that answer
later or refuse, and the end of requests."""

_MOST = 1
_MOST_BESIDE = 4
"""Structured faults of one kind in one function: in general, and in those that known divergences
are about."""

_VOCABULARY = Vocabulary(
    conditions=(
        # For some requests.
        "request.num_preemptions > 0",
        "request.lora_request is not None",
        "request.cache_salt is not None",
        "len(request.mm_features) > 1",
        "request.num_output_tokens > 1",
        "request.num_prompt_tokens % 2 == 1",
        # For some engines.
        "self.use_eagle",
        "use_eagle",
        "drop_eagle_block",
        "bool(self.eagle_group_ids)",
        "self.kv_cache_group_id > 0",
        "kv_cache_group_id > 0",
        "len(self.single_type_managers) > 1",
        "len(self.single_type_managers) > 2",
        "len(self.coordinator.single_type_managers) > 1",
        "self.retention_interval is not None",
        "retention_interval is not None",
        "self.block_size != self.scheduler_block_size",
        # In some states.
        "len(self.req_to_blocks) > 1",
        "len(self.cached_block_hash_to_block) > 3",
        "self.block_pool.get_num_free_blocks() < 4",
        "self.get_num_free_blocks() < 4",
        "self.num_free_blocks > 4",
        "len(blocks) > 2",
        "len(block_hashes) > 3",
        "start_block > 0",
        "num_tokens > 3 * self.block_size",
        "max_length > 2 * alignment_tokens",
        # From some call on, and at some calls.
        "globals().setdefault('_fault_calls', []).append(0) or len(globals()['_fault_calls']) > 2",
        "self.__dict__.setdefault('_fault_calls', []).append(0) or len(self._fault_calls) > 1",
        "self.__dict__.setdefault('_fault_calls', []).append(0) or len(self._fault_calls) % 3 == 0",
    ),
    class_conditions=(
        "isinstance(self.kv_cache_spec, SlidingWindowSpec)",
        "isinstance(self.kv_cache_spec, MambaSpec)",
        "isinstance(self.kv_cache_spec, ChunkedLocalAttentionSpec)",
        "isinstance(self.kv_cache_spec, FullAttentionSpec)",
    ),
    sizes=(
        "1",
        "self.block_size",
        "block_size",
        "self.hash_block_size",
        "hash_block_size",
        "self.scheduler_block_size",
        "alignment_tokens",
        "kv_cache_spec.block_size",
    ),
    groups=(
        "single_type_managers",
        "attention_groups",
        "kv_cache_groups",
        "kv_cache_group_ids",
        "group_ids",
        "new_computed_blocks",
        "hit_blocks_by_group",
        "hit_length_by_group",
        "per_group_hits",
        "computed_blocks",
    ),
    group=("kv_cache_group_id", "group_id", "group_idx"),
    unordered=("reachable_boundaries",),
    # Context parallelism, cross-attention, blocks on the host, metrics and logs; places of images
    # that count from the last one, which nothing passes; what only start-up asks, which is in the
    # family of schedulers.
    unjudged=re.compile(
        r"[dp]cp_|CrossAttention|encoder|[hH]i[sS]parse|retains_longer|retained_hit|other_pools"
        r"|metrics_collector|logger|log_stats|envs\.|watermark|zeroing|new_block_ids"
        r"|start_mm_idx < 0|len\(mm_features\) \+ start_mm_idx|manager_classes is None"
        r"|_unexpected_blocks_type"  # raises
    ),
    certain=re.compile(r"enable_caching$"),
    never={
        "UnitaryKVCacheCoordinator": re.compile(r"len\(self\.single_type_managers\) > "),
        # vLLM runs chunked local attention without EAGLE and with blocks of one size only.
        "ChunkedLocalAttentionManager": re.compile(
            r"eagle|block_size != self\.scheduler_block_size"
        ),
    },
    # And then the whole pool is free, which is larger than that where it serves a model.
    never_at_first=re.compile(
        r"len\(self\.(req_to_blocks|cached_block_hash_to_block)\)|get_num_free_blocks\(\) <"
    ),
    # What is registered, hashed, null, evicted, freed, cut, popped, taken or cleared is not so a
    # second time; what is set up or derived from the configuration is so again; and a step that
    # starts only forgets.
    idempotent=re.compile(
        r"(coordinator|super\(\))\.cache_blocks\(|\.new_step_starts\(\)|\.remove_skipped_blocks\("
        r"|\._maybe_evict_cached_block\(|\.reset_hash\(\)|^del \w+\[num_blocks:\]"
        r"|(^|\(|\.extend\()[\w.]+\.(take_pending_\w+|pop_blocks_for_free)\("
        r"|(coordinator|manager)\.free\(|\.evict_blocks\(|\._notify_reuse\(|\._insert_block_hash\("
        r"|\._remove_blocks_in_range\(|^self\.(block_pool\.cache_partial_block|_cache_partial_tail_block)\("
        r"|\._block_hasher\(self\)|\.append\(AllBlocksCleared\(\)\)"
        r"|super\(\)\.__init__\(|^_validate_\w+\(|\.verify_and_split_kv_cache_groups\(\)"
    ),
)


def sampled(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of the mutants, chosen by a hash of their text, in their order."""

    def rank(number: int) -> str:
        return hashlib.sha256(f"{seed} {found[number].name}".encode()).hexdigest()

    return [found[number] for number in sorted(sorted(range(len(found)), key=rank)[:count])]


def of_target(family: Family, beside: Collection[str] = ()) -> list[Mutant]:
    """The mutants of the target, without duplicates.

    ``beside`` are functions, by qualified name, that known divergences are about; they get more
    structured faults.
    """
    wanted: dict[str, set[str]] = {}
    for function in _FUNCTIONS[family]():
        wanted.setdefault(function.__module__, set()).add(function.__qualname__)
    found: list[Mutant] = []
    for module, names in wanted.items():
        codes: dict[FunctionType, list[CodeType]] = {}
        for mutant in _made(family, module, names, beside):
            same = codes.setdefault(mutant.function, [mutant.function.__code__])
            fits = len(mutant.code.co_freevars) == len(mutant.function.__code__.co_freevars)
            if fits and mutant.code not in same:
                same.append(mutant.code)
                found.append(mutant)
    return found


def _made(
    family: Family, module: str, names: Collection[str], beside: Collection[str]
) -> Iterator[Mutant]:
    if family is Family.STRUCTURED:
        sources = [inspect.getsource(_module(name)) for name in _MODULES]
        vocabulary = replace(_VOCABULARY, sources=sources)
        wanted = {name: _MOST_BESIDE if name in beside else _MOST for name in names}
        yield from faults(sys.modules[module], wanted, vocabulary)
        return
    for mutant in mutants(sys.modules[module], names):
        judged = family is not Family.SCHEDULER or decides(mutant.function.__name__, mutant.before)
        if family is Family.TIERS:
            judged = _NOT_IN_TIERS.search(mutant.before) is None
        if mutant.change in CHANGES and judged:
            yield mutant


def decides(function: str, statement: str) -> bool:
    """Whether a statement of a scheduler or of start-up decides what histories can show.

    Of ``schedule`` only what is about the number of tokens that are computed.
    """
    in_chunks = function != _STEP or _CHUNKS.search(statement) is not None
    return in_chunks and _ELSEWHERE.search(statement) is None


_MODULES = (
    "kv_cache_interface",
    "request",
    "core.kv_cache_utils",
    "core.block_pool",
    "core.single_type_kv_cache_manager",
    "core.kv_cache_coordinator",
    "core.kv_cache_manager",
)


def _module(name: str) -> ModuleType:
    return import_module(f"vllm.v1.{name}")


def _named(module: str, names: Iterable[str]) -> list[type]:
    """The classes of these names that the target has."""
    found = (getattr(_module(module), name, None) for name in names)
    return [each for each in found if isinstance(each, type)]


def _owners() -> list[type]:
    kinds = ["SingleTypeKVCacheManager", *(name for name, _ in NAMES.values())]
    return [
        *_named("core.single_type_kv_cache_manager", kinds),
        *_named("core.kv_cache_coordinator", _COORDINATORS),
    ]


def _entry_points() -> list[FunctionType]:
    """Lookups, masks and producers, and what they call, transitively."""
    owners = _owners()
    return _reached(
        {f: None for owner in owners for name in ENTRIES for f in _defined(owner, name)}, owners
    )


def _judged() -> list[FunctionType]:
    """All that the gate judges: what a scheduler calls and what that calls, transitively."""
    behind = [
        *_owners(),
        *_named("core.block_pool", _POOL),
        *_named("core.kv_cache_utils", _BLOCKS),
    ]
    whole, request = _named("core.kv_cache_manager", _WHOLE), _named("request", ["Request"])
    first = {f: None for owner in whole for name in _SCHEDULER_CALLS for f in _defined(owner, name)}
    first |= {f: None for owner in behind for f in _defined(owner, "unpin_blocks")}
    first |= {f: None for owner in behind for f in _defined(owner, "__init__")}
    first |= {f: None for owner in request for name in _REQUEST for f in _defined(owner, name)}
    utils = _module("core.kv_cache_utils")
    first |= {f: None for name in _HASHING if (f := getattr(utils, name, None)) is not None}
    return [f for f in _reached(first, [*behind, *whole]) if _is_called(f, behind)]


def _scheduling() -> list[FunctionType]:
    """What decides chunks, and what derives groups and block sizes from layers."""
    owners = [
        *_named("core.sched.scheduler", ["Scheduler"]),
        *_named("core.sched.async_scheduler", ["AsyncScheduler"]),
    ]
    first = {f: None for owner in owners for name in _SPLITS for f in _defined(owner, name)}
    places = [("kv_cache_interface", _BOUNDARIES), ("core.kv_cache_utils", _SIZES)]
    places += [(name, _PLANS) for name in ("core.kv_cache_planning", "core.kv_cache_utils")]
    derive: dict[FunctionType, None] = {}
    for name, functions in places:
        module = _if_there(name)
        found = (getattr(module, function, None) for function in functions)
        derive |= {each: None for each in found if isinstance(each, FunctionType)}
    return [*first, *_reached(derive, [])]


def _if_there(name: str) -> ModuleType | None:
    """A module that not all releases have."""
    try:
        return _module(name)
    except ModuleNotFoundError:
        return None


def _is_called(function: FunctionType, owners: Sequence[type]) -> bool:
    """Whether histories call the function; releases without cascade attention share no blocks."""
    shares = any(hasattr(owner, "get_num_common_prefix_blocks") for owner in owners)
    return function.__qualname__ not in _NOT_CALLED and (
        shares or function.__name__ != "get_num_common_prefix_blocks"
    )


def _of_tiers() -> list[FunctionType]:
    """What looks up, stores and loads in tiers that the target has."""
    found: list[FunctionType] = []
    for name, wanted in _TIERS.items():
        try:
            module = import_module(_CONNECTORS + name)
        except ModuleNotFoundError:
            continue
        of_module = [
            v for v in vars(module).values() if getattr(v, "__module__", "") == module.__name__
        ]
        found += [v for v in of_module if isinstance(v, FunctionType) and v.__name__ in wanted]
        classes = [each for each in of_module if isinstance(each, type)]
        found += [f for each in classes for name in wanted for f in _defined(each, name)]
    return found


_FUNCTIONS: dict[Family, Callable[[], list[FunctionType]]] = {
    Family.SINGLE_POINT: _entry_points,
    Family.STRUCTURED: _judged,
    Family.SCHEDULER: _scheduling,
    Family.TIERS: _of_tiers,
}


def _reached(first: dict[FunctionType, None], owners: Sequence[type]) -> list[FunctionType]:
    """The functions, and what they call by name of the owners and of vLLM's core."""
    found, pending = dict(first), list(first)
    while pending:
        function = pending.pop()
        for name in _names(function.__code__):
            called = [f for owner in owners for f in _defined(owner, name)]
            by_name = function.__globals__.get(name)
            if isinstance(by_name, FunctionType) and by_name.__module__.startswith(_CORE):
                called.append(by_name)
            new = [f for f in called if f not in found]
            found |= dict.fromkeys(new)
            pending += new
    return list(found)


def _defined(owner: type, name: str) -> Iterator[FunctionType]:
    """The function that the class itself defines under that name."""
    found: Any = vars(owner).get(name)
    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    if isinstance(found, FunctionType):
        yield found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
