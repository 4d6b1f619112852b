"""What generated histories show of a target of which one part is broken, and how it is broken.

Run with the name of a part, in a process of its own with the target on its path; prints what was
found of each fault, in histories that show nothing of the target as it is.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

from hitproof.conformance.histories.scenarios import scenario
from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.reproduce.scheduler_case import scheduler_case

Faults: TypeAlias = dict[str, tuple[str, Any]]
"""By name: how what is found of it begins, and what breaks the target."""
Wrap: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def broken(owner: Any, method: str, how: Wrap) -> Any:
    """A method that does it another way."""
    return patch.object(owner, method, how(getattr(owner, method)))


def shown(subject: VllmSchedulers, history: SchedulerHistory) -> set[str]:
    """What a history shows."""
    return {str(each.signature.defect) for each in play(history, subject).causes}


def found(subject: VllmSchedulers, histories: Iterable[SchedulerHistory], start: str) -> list[str]:
    """What begins so, in the first history that shows it."""
    for history in histories:
        if fitting := [each for each in shown(subject, history) if each.startswith(start)]:
            return fitting
    return []


def silent(
    subject: VllmSchedulers, histories: Iterable[SchedulerHistory]
) -> list[SchedulerHistory]:
    """The histories that show nothing of the target as it is."""
    return [history for history in histories if not shown(subject, history)]


def answers(
    subject: VllmSchedulers,
    histories: Iterable[SchedulerHistory],
    faults: Mapping[str, tuple[str, Any]],
) -> dict[str, Any]:
    """What was found without a fault, and of each: how that begins, and what breaks the target."""
    made = {"none": found(subject, histories, "")}
    for name, (start, fault) in faults.items():
        with fault:
            made[name] = found(subject, histories, start)
    return made


# --- connectors


def _hesitant(reset: Callable[..., bool]) -> Callable[..., bool]:
    """Connectors forget only where blocks are given up, too."""

    def done(
        self: Any, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        here = reset(self, reset_running_requests)
        return here and (not reset_connector or self.reset_connector_cache())

    return done


def _forgetful(reset: Callable[..., bool]) -> Callable[..., bool]:
    """Connectors forget whenever there is one."""

    @wraps(reset)
    def done(*given: Any, **named: Any) -> bool:
        return reset(*given, **named | {"reset_connector": True})

    return done


def _hopeful(reset: Callable[..., bool]) -> Callable[..., bool]:
    """All is said to be done."""

    @wraps(reset)
    def done(*given: Any, **named: Any) -> bool:
        reset(*given, **named)
        return True

    return done


def _overruled(finished: Callable[..., Any]) -> Callable[..., Any]:
    """The encoder cache connector alone says what is held."""

    def asked(self: Any, request: Any) -> Any:
        held, answer = finished(self, request)
        return held and self.ec_connector is None, answer

    return asked


def _counted_here(make: Callable[..., Any]) -> Callable[..., Any]:
    """What is found on the device counts as asked for."""

    def made(*given: Any, **named: Any) -> Any:
        stats = make(*given, **named)
        here, loads = stats.prefix_cache_stats, stats.connector_prefix_cache_stats
        if here is not None and loads is not None:
            loads.queries += here.hits
        return stats

    return made


def connectors() -> Faults:
    from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
        SimpleCPUOffloadConnector,
    )
    from vllm.v1.core.sched.scheduler import Scheduler

    from hitproof.vllm_integration.adapter.loading import LoadingConnector

    reset, wrong = "reset_prefix_cache", "connector-reset-wrong"
    return {
        "forgets with the device only": (
            f"{wrong}(how=not-asked)",
            broken(Scheduler, reset, _hesitant),
        ),
        "forgets always": (f"{wrong}(how=unwanted)", broken(Scheduler, reset, _forgetful)),
        "says that it is done": (
            "reset-answered-wrong(how=done)",
            broken(Scheduler, reset, _hopeful),
        ),
        "loads what it forgot": (
            f"{wrong}(how=loads)",
            patch.object(LoadingConnector, "reset_cache", lambda self: not self.refuses),
        ),
        "keeps what it offloaded": (
            f"{wrong}(how=kept)",
            patch.object(SimpleCPUOffloadConnector, "reset_cache", lambda _: True),
        ),
        "frees what is sent": (
            "transferred-page-used(how=free, what=sends)",
            broken(Scheduler, "_connector_finished", _overruled),
        ),
        "counts what is here": (
            "statistics-wrong(of=loads)",
            broken(Scheduler, "make_stats", _counted_here),
        ),
    }


# --- encoders


def _keeping(*names: str) -> Callable[..., Any]:
    """A reset keeps some of what the manager has."""

    def wrapped(reset: Callable[..., Any]) -> Callable[..., Any]:
        def resets(self: Any) -> None:
            kept = {name: getattr(self, name) for name in names}
            copies = {n: v if isinstance(v, int) else v.copy() for n, v in kept.items()}
            reset(self)
            vars(self).update(copies)

        return resets

    return wrapped


def _leaking(free: Callable[..., Any]) -> Callable[..., Any]:
    """What is freed counts as less than it was."""

    def freed(self: Any, request: Any, place: int) -> None:
        before = self.num_freeable_slots
        free(self, request, place)
        self.num_freeable_slots -= self.num_freeable_slots > before

    return freed


def encoders() -> Faults:
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager as Manager
    from vllm.v1.core.sched.scheduler import Scheduler

    held = "images-held-when-idle"
    return {
        "keeps counts of references": (
            held,
            broken(Manager, "reset", _keeping("request_hash_refs")),
        ),
        "keeps room taken": (held, broken(Manager, "reset", _keeping("num_free_slots"))),
        "keeps room held": (held, broken(Manager, "reset", _keeping("num_freeable_slots"))),
        "keeps what may be evicted": ("", broken(Manager, "reset", _keeping("freeable"))),
        "keeps outputs": (
            "encoder-output-missing(how=reset",
            patch.object(Scheduler, "reset_encoder_cache", lambda _: None),
        ),
        "frees too little": (held, broken(Manager, "free_encoder_input", _leaking)),
        "frees nothing of who gives up": (held, patch.object(Manager, "free", lambda *_: None)),
    }


# --- ends


def _late(check: Callable[..., bool]) -> Callable[..., bool]:
    """Stop tokens are seen one token late."""

    def checked(request: Any, max_model_len: int) -> bool:
        params, tokens = request.sampling_params, request.output_token_ids
        stopped = len(tokens) > 1 and tokens[-2] in params.stop_token_ids
        given, params.stop_token_ids = params.stop_token_ids, []
        ended = check(request, max_model_len)
        params.stop_token_ids = given
        if stopped and not ended:
            request.status = type(request.status).FINISHED_STOPPED
        return stopped or ended

    return checked


def _untrimmed(update: Callable[..., Any]) -> Callable[..., Any]:
    """Users get all that was sampled in the step."""

    def updated(self: Any, request: Any, tokens: Any, *more: Any, **named: Any) -> Any:
        sampled = list(tokens)
        _, stopped = update(self, request, tokens, *more, **named)
        return sampled, stopped

    return updated


def _uncomputed(update: Callable[..., Any]) -> Callable[..., Any]:
    """The stop token counts as computed."""

    def updated(self: Any, request: Any, tokens: Any, *more: Any, **named: Any) -> Any:
        kept, stopped = update(self, request, tokens, *more, **named)
        if stopped:
            self.kv_cache_manager.cache_blocks(request, request.num_tokens)
        return kept, stopped

    return updated


def _keeping_blocks(free: Callable[..., Any]) -> Callable[..., Any]:
    """Who stops keeps its blocks."""

    def freed(self: Any, request: Any) -> None:
        if "STOPPED" not in str(request.status):
            free(self, request)

    return freed


def ends() -> Faults:
    from vllm.v1.core.sched import scheduler

    owner, update = scheduler.Scheduler, "_update_request_with_output"

    return {
        "stops late": ("", patch.object(scheduler, "check_stop", _late(scheduler.check_stop))),
        "delivers what comes after": ("", broken(owner, update, _untrimmed)),
        "registers what is not computed": ("", broken(owner, update, _uncomputed)),
        "keeps blocks": ("", broken(owner, "_free_request_blocks", _keeping_blocks)),
    }


# --- formats


def _held(take: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """Blocks that are hit are zeroed, too."""

    def taken(self: Any) -> list[int]:
        held = {block.block_id for block in self.block_pool.blocks if block.ref_cnt > 1}
        return sorted({*take(self), *held} - {0})

    return taken


def formats() -> Faults:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import KVCacheConfig

    def never(name: str) -> Any:
        return patch.object(KVCacheConfig, name, property(lambda _: False))

    taken = _held(KVCacheManager.take_new_block_ids)
    return {
        "precisions do not count": (
            "page-not-zeroed(of=precision",
            never("has_mixed_precision_kv_cache"),
        ),
        "states do not count": ("page-not-zeroed(of=state", never("has_mamba_layers")),
        "nobody is told": (
            "page-not-zeroed",
            patch.object(Scheduler, "_get_new_block_ids_to_zero", lambda _: None),
        ),
        "zeroes what is in use": (
            "other-content-read",
            patch.object(KVCacheManager, "take_new_block_ids", taken),
        ),
    }


# --- grammars


def is_tested(
    subject: VllmSchedulers, histories: Iterable[SchedulerHistory], start: str, fault: Any
) -> bool | str:
    """Whether a test of the first history that shows it fails, and passes without the fault.

    Why there is none, where none is written.
    """
    why: list[str] = []
    for history in histories:
        try:
            with fault:
                shows = [
                    each.violation
                    for each in play(history, subject).causes
                    if str(each.signature.defect).startswith(start)
                ]
                if not shows:
                    continue
                fails = scheduler_case(subject, history, shows[0], "broken").fails
            return fails and not scheduler_case(subject, history, shows[0], "broken").fails
        except CannotJudge as error:
            why.append(str(error))
    return why[0] if why else "nothing shows it"


def _kept(update: Callable[..., Any]) -> Callable[..., Any]:
    """Rejected drafts stay computed."""

    def updated(self: Any, output: Any, result: Any) -> Any:
        answer = update(self, output, result)
        for name, number in (output.num_invalid_spec_tokens or {}).items():
            if request := self.requests.get(name):
                request.num_computed_tokens += number
                request.num_output_placeholders += number
        return answer

    return updated


def _counted(make: Callable[..., Any]) -> Callable[..., Any]:
    """Rejected drafts count."""
    return lambda *all_, **named: make(*all_, **named | {"num_invalid_spec_tokens": None})


def _hasty(update: Callable[..., Any]) -> Callable[..., Any]:
    """No step awaits the tokens of the last one."""

    def updated(self: Any, output: Any) -> None:
        update(self, output)
        output.pending_structured_output_tokens = False

    return updated


def _blocked(schedule: Callable[..., Any]) -> Callable[..., Any]:
    """Nobody is admitted while somebody waits for a grammar."""

    def scheduled(self: Any, *more: Any) -> Any:
        most = self.max_num_active_reqs
        statuses = [str(request.status) for request in self.waiting]
        if any("GRAMMAR" in status for status in statuses):
            self.max_num_active_reqs = len(self.running)
        output = schedule(self, *more)
        self.max_num_active_reqs = most
        return output

    return scheduled


def _deaf(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Nobody sees that a grammar is ready."""
    return lambda self, request: "GRAMMAR" not in str(request.status) and handle(self, request)


def _eager(handle: Callable[..., Any]) -> Callable[..., Any]:
    """A request with a grammar does not wait for it."""

    def handled(self: Any, request: Any) -> Any:
        if "GRAMMAR" in str(request.status):
            request.status = type(request.status).WAITING
        return handle(self, request)

    return handled


def grammars() -> Faults:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager as Manager

    handle, after = "_handle_blocked_waiting_request", "_update_after_schedule"
    return {
        "keeps rejected drafts": ("", broken(Scheduler, "update_from_output", _kept)),
        "counts rejected drafts": (
            "drafts-counted-wrong",
            broken(Scheduler, "make_spec_decoding_stats", _counted),
        ),
        "accepts all drafts": (
            "grammar-ignored(how=drafts",
            patch.object(Manager, "validate_tokens", lambda _, __, drafts: drafts),
        ),
        "rejects all drafts": (
            "step-leaves-work(what=",
            patch.object(Manager, "validate_tokens", lambda *_: []),
        ),
        "does not wait": (
            "grammar-ignored(how=early",
            broken(Scheduler, handle, _eager),
        ),
        "waits for ever": ("request-never-finishes", broken(Scheduler, handle, _deaf)),
        "keeps others waiting": (
            "step-leaves-work(what=waiting",
            broken(Scheduler, "schedule", _blocked),
        ),
        "awaits no tokens": (
            "grammar-ignored(how=state",
            broken(AsyncScheduler, after, _hasty),
        ),
        "masks nothing": (
            "grammar-ignored(how=mask",
            patch.object(Scheduler, "get_grammar_bitmask", lambda *_: None),
        ),
        "does not go on": (
            "grammar-ignored(how=state",
            patch.object(Manager, "accept_tokens", lambda *_: True),
        ),
    }


_NOT_RETURNED = "does not show in what the scheduler's methods return"
NOT_WRITTEN = {
    "counts rejected drafts": "no grammars beside hashes, counts of drafts and transfers",
    "rejects all drafts": _NOT_RETURNED,
    "keeps others waiting": _NOT_RETURNED,
}
"""What has no test, and why."""


# --- host pools

_HISTORY = """{"kind": "scheduler", "version": 1,
 "deployment": {"groups": [{"kind": "full_attention", "block_size": 4}], "num_gpu_blocks": 69,
  "max_model_len": 40, "max_num_batched_tokens": 8, "max_num_seqs": 1, "v2_model_runner": true,
  "policy": "priority",
  "host": {"num_blocks": 17, "writes_through": false, "delay": 3, "loads": true}},
 "requests": {
  "a": {"prompt": [[1, 13]], "output": [[14, 17]], "loads": 13},
  "b": {"prompt": [[18, 25]], "output": [[26, 31]], "loads": 8},
  "c": {"prompt": [[1, 6], [32, 63]], "output": [70, 71], "arrives": 5, "loads": 5},
  "d": {"prompt": [[72, 78]], "output": [[79, 85]]},
  "e": {"prompt": [[1, 5], [86, 102]], "output": [108], "arrives": 2, "after": "a", "aborted": 5,
   "loads": 22, "load_fails": true}}}"""
"""The last pages are given up here; few scenarios show that."""


def _early(publish: Callable[..., Any]) -> Callable[..., Any]:
    def published(self: Any, request_id: str) -> None:
        if request_id in self.request_states:
            self.request_states[request_id].ready_prefix_pages = 1000
        publish(self, request_id)

    return published


def _without_changes(take: Callable[..., Any]) -> Callable[..., Any]:
    def taken(self: Any, request_ids: Any) -> Any:
        names = list(request_ids)
        for name in names:
            self._get_request_state(name).stale_pages.clear()
        return take(self, names)

    return taken


def _moved(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Events of one pool that say they are of another."""

    def emitted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        with patch.object(self, "medium", "STORAGE"):
            return emit(self, *arguments, **keywords)

    return emitted


def host_pools() -> Faults:
    from vllm.v1.core import block_pool
    from vllm.v1.core import single_type_kv_cache_manager as managers
    from vllm.v1.hisparse import coordinator

    owner, pool = coordinator.HiSparseCoordinator, block_pool.BlockPool
    removes, stores = pool._emit_block_removed_events, pool._build_block_stored_event
    hot, nothing = managers.HiSparseHotManager, lambda *_: None
    early = _early(owner._publish_host_blocks_if_ready)
    unchanged = _without_changes(owner.take_residency_updates)
    made = {
        "a page whose block is taken is still read": patch.object(owner, "_lose_page", nothing),
        "a copy whose block is taken is still found": patch.object(owner, "_drop_copy", nothing),
        "no hot blocks": patch.object(hot, "require_hot", nothing),
        "hot blocks are kept": patch.object(hot, "pop_blocks_for_free", lambda *_: []),
        "the engine ends before copies do": patch.object(
            owner, "has_pending_work", lambda _: False
        ),
        "keys before content": patch.object(owner, "_publish_host_blocks_if_ready", early),
        "what is loaded is not restored": patch.object(owner, "complete_host_import", nothing),
        "workers are told of no change": patch.object(owner, "take_residency_updates", unchanged),
        "no event of what is evicted": patch.object(pool, "_emit_block_removed_events", nothing),
        "evicted elsewhere": patch.object(pool, "_emit_block_removed_events", _moved(removes)),
        "stored elsewhere": patch.object(pool, "_build_block_stored_event", _moved(stores)),
        "the last pages are given up": patch.object(coordinator, "ACTIVE_TAIL_PAGES", 0),
    }
    return {name: ("", fault) for name, fault in made.items()}


# --- offloads


def _reversed(pages: str) -> Wrap:
    """Copies of the right blocks, in the wrong order on one side."""

    def wrapped(build: Callable[..., Any]) -> Callable[..., Any]:
        def built(self: Any, output: Any) -> Any:
            made = build(self, output)
            setattr(made, pages, getattr(made, pages)[::-1])
            return made

        return built

    return wrapped


def offloads() -> Faults:
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler as Manager

    method = "build_connector_meta"
    return {
        "stored elsewhere": ("", broken(Manager, method, _reversed("store_cpu_blocks"))),
        "loaded elsewhere": ("", broken(Manager, method, _reversed("load_gpu_blocks"))),
    }


# --- chunks


def offloading(many: int, how: str, *names: str) -> Iterable[SchedulerHistory]:
    """The first ones that offload to host memory in blocks or in chunks, or to a store."""
    ways = {"blocks": (False, 0), "chunks": (False, 1), "store": (True, 0)}
    found = drawn(50 * many, "offloads", *names)
    connectors = ((each, each.deployment.connector) for each in found)
    kept = (h for h, c in connectors if c and (c.store, min(c.chunk, 1)) == ways[how])
    return islice(kept, many)


def _line(old: str, new: str) -> Any:
    """The offloading scheduler with a line of its text changed."""
    from vllm.distributed.kv_transfer.kv_connector.v1 import offloading_connector
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler

    text = inspect.getsource(scheduler)
    assert text.count(old) == 1, old
    changed = dict(vars(scheduler))
    exec(compile(text.replace(old, new), str(scheduler.__file__), "exec"), changed)
    name = "OffloadingConnectorScheduler"
    return patch.object(offloading_connector, name, changed[name])


def chunks() -> Faults:
    """Most put back what earlier releases had."""
    other, raises = "key-names-other-content(tier=offloading)", "raises-exception"
    last = "max(req.num_prompt_tokens, req.num_tokens - 1)"
    window = "group_state.block_ids[j] = 0"
    made = {
        "what is given up is not copied first": (
            other,
            "                for jid in self._block_id_to_pending_jobs[bid]\n",
            "                for jid in ()\n",
        ),
        "what a window gives up is stored": (other, window, "pass"),
        "what is sampled last is stored": (other, last, "req.num_tokens"),
        "a chunk alone is not served": (
            "tier-hit-too-short",
            "if max_hit_size_tokens - num_computed_tokens < tokens_per_chunk:",
            "if max_hit_size_tokens - num_computed_tokens <= tokens_per_chunk:",
        ),
        "the last chunk is not stored": (
            "tier-block-left-out",
            "return min(num_chunks, num_allocated_chunks, num_keyed_chunks)",
            "return min(num_chunks - 1, num_allocated_chunks, num_keyed_chunks)",
        ),
        "a reload is waited for before it begins": (
            raises,
            "req_status.transfer_jobs - self._current_batch_load_jobs.keys()",
            "req_status.transfer_jobs",
        ),
    }
    return {name: (start, _line(old, new)) for name, (start, old, new) in made.items()}


# --- stores


def _one_group(build: Callable[..., Any]) -> Callable[..., Any]:
    """All groups have the keys of the first."""

    def built(self: Any, *args: Any) -> Any:
        made = build(self, *args)
        first = made[0].store_layout
        for each in made:
            each.store_layout.metadata = first.metadata
            each.store_layout._key_prefix = first._key_prefix
        return made

    return built


def _without_the_last(mask: Callable[..., Any]) -> Callable[..., Any]:
    """The last block of a load is left out."""
    return lambda self, *args: tuple([*each[:-1], False] for each in mask(self, *args))


def _nothing_stored(mask: Callable[..., Any]) -> Callable[..., Any]:
    """No block is stored of the groups in front of the last."""

    def stored(self: Any, *args: Any, **given: Any) -> Any:
        *some, last = mask(self, *args, **given)
        return (*([] for _ in some), last if some else [])

    return stored


def _half(matched: Callable[..., Any]) -> Callable[..., Any]:
    """A load is of half of what is found, if more than a block is."""

    def lookup(self: Any, *args: Any) -> Any:
        found = matched(self, *args)
        found.hit_length = found.hit_length // 2 // self.block_size * self.block_size
        return found

    return lookup


def stores() -> Faults:
    from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import coordinator, worker

    lookups, workers = coordinator.MooncakeStoreCoordinator, worker.MooncakeStoreWorker
    other, misread = "key-names-other-content", "other-content-read"
    return {
        "one group": (other, broken(workers, "_build_token_databases", _one_group)),
        "loads are short": (misread, broken(lookups, "load_mask", _without_the_last)),
        "less is stored": (
            "promised-hit-missed(by=tier",
            broken(lookups, "store_mask", _nothing_stored),
        ),
        "less is served": ("tier-hit-too-short", broken(workers, "lookup", _half)),
        "no load begins": (
            "request-never-finishes",
            broken(workers, "start_load_kv", lambda _: lambda *_: None),
        ),
    }


# --- replays


def _left_out(self: Any, request: Any, num_hit_tokens: int, window_loaded: bool) -> int:
    """Nothing is computed again."""
    del self, request, num_hit_tokens, window_loaded
    return 0


def _short(told: int, computed: int) -> Callable[..., int]:
    """So many tokens too few are computed again, as the model runner is told, or is not."""

    def mark(self: Any, request: Any, num_hit_tokens: int, window_loaded: bool) -> int:
        del window_loaded
        window = min(self.prefix_replay_tokens, num_hit_tokens)
        request.replay_start = num_hit_tokens and num_hit_tokens - window + told
        return window - computed if num_hit_tokens else 0

    return mark


def replays() -> Faults:
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.scheduler import Scheduler

    def mark(marked: Callable[..., int]) -> Any:
        return patch.object(Scheduler, "_mark_prefix_replay", marked)

    record = KVCacheManager.record_prefix_cache_stats

    def uncounted(self: Any, request: Any, num_hit_tokens: int) -> None:
        record(self, request, max(0, num_hit_tokens - 1))

    unsound = "other-content-read"
    return {
        "left out": (unsound, mark(_left_out)),
        "one token short": (unsound, mark(_short(1, 1))),
        "one token short, not told": (unsound, mark(_short(0, 1))),
        "counted less": (
            "statistics-wrong",
            patch.object(KVCacheManager, "record_prefix_cache_stats", uncounted),
        ),
    }


# --- resumed

_IN_FLIGHT = Path(__file__).parents[1] / "known" / "scheduler_raises_in_flight.json"
"""One that showed this in earlier releases."""
_STALE = "num_stale_output_tokens"


def _stale(request: Any) -> int:
    """None, for whoever plans a step."""
    plans = sys._getframe(1).f_code.co_name == "schedule"
    return 0 if plans else int(vars(request)[_STALE])


def _set_stale(request: Any, number: int) -> None:
    vars(request)[_STALE] = number


def resumed() -> Faults:
    from vllm.v1.request import Request

    stale = property(_stale, _set_stale)
    return {"resumes early": ("", patch.object(Request, _STALE, stale, create=True))}


# --- all of them

PARTS: dict[str, tuple[Callable[[], Faults], Callable[[], Iterable[SchedulerHistory]]]] = {
    "connectors": (
        connectors,
        lambda: chain(
            drawn(48, "connector", "resets"),
            offloading(20, "blocks", "resets"),
            drawn(48, "connector", "images"),
        ),
    ),
    "encoders": (
        encoders,
        lambda: chain(
            (each for each in drawn(250, "images") if each.encoder_resets),
            drawn(50, "images", "gives up"),
        ),
    ),
    "ends": (ends, lambda: drawn(100, "stops")),
    "formats": (formats, lambda: drawn(24, "precisions")),
    "grammars": (
        grammars,
        lambda: chain(drawn(50, "grammars", "drafts", "planned ahead"), drawn(50, "grammars")),
    ),
    "host_pools": (host_pools, lambda: chain(drawn(80, "host pool"), [read_workload(_HISTORY)])),
    "offloads": (offloads, lambda: offloading(20, "blocks")),
    "chunks": (
        chunks,
        lambda: chain(
            offloading(40, "chunks"),
            offloading(12, "chunks", "resets"),
            (scenario(f"1:{number} with in chunks, windows, drafts") for number in range(12)),
        ),
    ),
    "stores": (stores, lambda: chain(offloading(8, "store"), offloading(8, "store", "few blocks"))),
    "replays": (replays, lambda: drawn(12, "outside the cache")),
    "resumed": (resumed, lambda: [read_workload(_IN_FLIGHT.read_text(encoding="utf-8"))]),
}
"""What breaks each part, and the histories that are played."""


if __name__ == "__main__":
    part, subject = sys.argv[1], VllmSchedulers()
    faults, histories = PARTS[part]
    right = silent(subject, histories())
    made = answers(subject, right, faults())
    for name, (start, fault) in faults().items() if part == "grammars" else ():
        tested, why_not = is_tested(subject, right, start, fault), NOT_WRITTEN.get(name)
        made[f"{name}: test"] = tested is True if why_not is None else why_not in str(tested)
    print(f"\nfound {json.dumps(made)}")
