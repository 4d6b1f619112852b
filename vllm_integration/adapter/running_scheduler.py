"""A scheduler of the target that runs, behind `conformance.subject.schedulers.RunningScheduler`.

Requests are the target's own, and model outputs come from outside. Imported in the worker process
only. It is long, as the protocol has many members, all about one object.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hitproof.conformance.explain.derivation import Derived
from hitproof.conformance.histories.schema import EngineConfiguration, Image
from hitproof.conformance.histories.workloads import Arrival, Connector, Deployment, Pause, Reset
from hitproof.conformance.subject.managers import Event, Tables
from hitproof.conformance.subject.schedulers import (
    COUNTED,
    HostResult,
    Masks,
    Plan,
    PoolState,
    Scheduled,
    WasReset,
)
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.blocks import (
    HASH_LOOKAHEAD,
    block_hasher,
    embedded_prompt,
    image_features,
)
from hitproof.vllm_integration.adapter.cache import VllmCache
from hitproof.vllm_integration.adapter.chunks import RunningChunks
from hitproof.vllm_integration.adapter.host_pool import INDEXER, RunningHostPool
from hitproof.vllm_integration.adapter.inspection import attribute, call, must, parameters_of
from hitproof.vllm_integration.adapter.leftovers import leftovers
from hitproof.vllm_integration.adapter.lookups import hits_per_group
from hitproof.vllm_integration.adapter.mooncake import RunningStore
from hitproof.vllm_integration.adapter.several import RunningSeveral
from hitproof.vllm_integration.adapter.states import RunningStates, has_kernels
from hitproof.vllm_integration.adapter.transfers import (
    RunningConnector,
    RunningOffload,
    ToldConnector,
)
from hitproof.vllm_integration.adapter.umbp_store import RunningUmbp

ENCODED = "encoder_cache_manager"
"""That which keeps what is encoded."""
RESET_ENCODER = "reset_encoder_cache"
ADAPTIVE = "long_prefill_token_threshold_adaptive"
SET_PAUSE = "set_pause_state"
INTERVAL = "prefix_cache_retention_interval"
_CACHED = "num_cached_tokens"
_ZEROED = "new_block_ids_to_zero"
_STARTS_AGAIN = "reset_running_requests"
_FENCES = "defer_block_free"

if TYPE_CHECKING:
    from hitproof.vllm_integration.adapter.grammars import RunningGrammars
    from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers


class VllmScheduler:
    """A running scheduler; see `conformance.subject.schedulers.RunningScheduler`.

    Attributes:
        keywords: the names of the arguments that its scheduler was made with.
    """

    keywords: tuple[str, ...] = ()
    derived: Derived | None = None

    def __init__(
        self,
        vllm: "VllmSchedulers",
        deployment: Deployment,
        vllm_config: Any,
        scheduler: Any,
        hash_block_size: int,
    ) -> None:
        from vllm.utils.hashing import sha256

        self._vllm = vllm
        self.scheduler = scheduler
        self.vllm_config = vllm_config
        self.batches = (
            int(attribute(vllm_config, "max_concurrent_batches"))
            if hasattr(vllm_config, "max_concurrent_batches")
            else max(1 + deployment.async_scheduling, deployment.ranks)
        )
        speculation = vllm_config.speculative_config
        self.drafting_slots = int(getattr(speculation, "max_num_new_slots_for_drafting", 0))
        self.spares_lone_prompts = hasattr(vllm_config.scheduler_config, ADAPTIVE)
        connector = deployment.connector
        consumes = connector is not None and not connector.produces
        self.fences_steps = self.batches > 1 and consumes and hasattr(scheduler, _FENCES)
        allocate = attribute(scheduler, "kv_cache_manager").allocate_slots
        self.reserves_blocks = "reserved_blocks" in parameters_of(allocate)
        self.engine = _engine(deployment, vllm_config, scheduler, hash_block_size)
        attribute(vllm.utils, "init_none_hash")(sha256)
        self._hasher = None
        if deployment.enable_prefix_caching or vllm_config.kv_transfer_config is not None:
            self._hasher = block_hasher(
                vllm.utils, sha256, hash_block_size, self.engine.num_hash_lookahead_tokens
            )
        # Those that take no pass of their own are never left out.
        self._runs_v2 = deployment.v2_model_runner
        self._may_skip_drafts = deployment.v2_model_runner and self.engine.num_lookahead_tokens
        self._manager = attribute(scheduler, "kv_cache_manager")
        self._pool = attribute(self._manager, "block_pool")
        self._requests: dict[str, Any] = {}
        self._adapters: dict[str, int] = {}
        # Of sessions: the ids by input, the inputs that have not ended, the last that has.
        self._ids: dict[str, str] = {}
        self._inputs: dict[str, deque[str]] = {}
        self._ended: dict[str, str] = {}
        self._last_input: dict[str, Arrival] = {}
        self._seen: set[str] = set()
        self._counted: Counter[str] = Counter()
        self._counted_loads: Counter[str] = Counter()
        self._reported: tuple[int, ...] | None = None
        self._verified = (0, 0)
        self._told_cached: dict[str, int] = {}
        self._told_ends: dict[str, str] = {}
        self._grammars: RunningGrammars | None = None
        self._cache = VllmCache(
            vllm.utils, self.engine, self._pool, self._requests, vllm.registers_tails
        )
        self._states = _states_of(deployment, self.batches)
        self._told: ToldConnector | None = None
        if getattr(scheduler, "connector", None) is not None:
            self._told = ToldConnector(scheduler.connector)
        self._host: RunningHostPool | None = None
        self._connector: RunningConnector | None = None
        if deployment.connector is not None:
            self._connector = self._running(deployment.connector)
        if deployment.host is not None:
            self._host = RunningHostPool(scheduler, deployment.host)
            self._host.bind(vllm.utils, self.engine, self._requests)

    def _running(self, connector: Connector) -> RunningConnector:
        """The connector of the scheduler, or the several that it has."""
        if connector.beside is None:
            return self._running_one(self.scheduler, connector)

        def one(place: int, of_it: Any) -> RunningConnector:
            return self._running_one(of_it, connector.several[place])

        return RunningSeveral(self.scheduler, len(self.engine.groups), one)

    def _running_one(self, scheduler: Any, connector: Connector) -> RunningConnector:
        if connector.umbp:
            return RunningUmbp(scheduler, connector)
        if connector.store:
            return RunningStore(scheduler, self.vllm_config, connector)
        if connector.chunk:
            return RunningChunks(scheduler)
        if connector.offloads:
            offload = RunningOffload(scheduler)
            offload.bind(self._vllm.utils, self.engine, self._requests)
            return offload
        return RunningConnector(scheduler)

    def add_request(self, name: str, arrival: Arrival) -> None:
        if arrival.images:
            self._vllm.require_images(self.vllm_config, [each.length for each in arrival.images])
        request = self.make_request(name, arrival)
        if arrival.grammar_steps is not None:
            # It derives from classes of the target.
            from hitproof.vllm_integration.adapter.grammars import RunningGrammars

            if self._grammars is None:
                self._grammars = RunningGrammars(self.scheduler)
            self._grammars.begin(request, arrival)
        self.scheduler.add_request(request)
        if arrival.session is not None:
            self._inputs.setdefault(arrival.session, deque()).append(name)
            # The session's own hashes are of what it has at a time. Keys are called by what they
            # are of.
            tokens = arrival.prompt + arrival.sampled
            self.make_request(name, replace(arrival, prompt=tokens, session=None, open_steps=0))
        if self._host is not None:
            self._host.has(name, arrival.loads)
        if self._connector is not None:
            self._connector.has(name, arrival)

    def make_request(self, name: str, arrival: Arrival) -> Any:
        """The target's request, which is not added yet."""
        from vllm.sampling_params import SamplingParams

        prompt, images, session = arrival.prompt, arrival.images, arrival.session
        if session is not None:
            before = self._last_input.get(session)
            if before is not None:
                # Users say where their images are in what they add.
                kept, place = len(before.kept), len(before.images)
                prompt = prompt[kept:]
                images = tuple(replace(e, offset=e.offset - kept) for e in images[place:])
            self._last_input[session] = arrival
            self._ids[name] = session
        sampling = SamplingParams(
            max_tokens=arrival.max_tokens,
            min_tokens=arrival.min_tokens,
            ignore_eos=True,
            stop_token_ids=[arrival.output[-1]] if arrival.stop else None,
            skip_reading_prefix_cache=arrival.skip_reading_prefix_cache or None,
            structured_outputs=_structured(arrival),
        )
        request = call(
            attribute(self._vllm.requests, "Request"),
            {
                "request_id": session or name,
                "prompt_token_ids": list(prompt),
                "sampling_params": sampling,
                "pooling_params": None,
                "eos_token_id": None,
                "cache_salt": arrival.cache_salt,
                "lora_request": self._adapter(arrival.lora_name),
                **_images(images),
                **_embeddings(arrival, self._vllm.requests.Request),
                "priority": arrival.priority,
                "arrival_time": float(len(self._requests)),
                "block_hasher": self._hasher,
                **({} if session is None else {"resumable": True}),
            },
            "Request",
        )
        self._requests[name] = request
        return request

    def close(self, session: str) -> None:
        self.scheduler.add_request(self.make_end(session))

    def make_end(self, session: str) -> Any:
        """What says that a session has no more input. vLLM: ``AsyncLLM`` makes the same."""
        from vllm.sampling_params import SamplingParams

        return call(
            attribute(self._vllm.requests, "Request"),
            {
                "request_id": session,
                "prompt_token_ids": [0],
                "sampling_params": SamplingParams(max_tokens=1),
                "pooling_params": None,
                "eos_token_id": None,
            },
            "Request",
        )

    def grammar_is_ready(self, name: str) -> None:
        assert self._grammars is not None
        self._grammars.end(name)

    def check_drafts(self, plan: Plan, drafts: Mapping[str, Sequence[int]]) -> dict[str, int]:
        self.scheduler.update_draft_token_ids_in_output(self._drafts(drafts), plan.handle)
        return {
            name: sum(token >= 0 for token in tokens)
            for name, tokens in plan.handle.scheduled_spec_decode_tokens.items()
        }

    def masks(self, plan: Plan) -> dict[str, Masks]:
        if self._grammars is None:
            return {}
        return self._grammars.masks(plan.handle, self._runs_v2)

    def abort(self, name: str) -> None:
        request_id = self._ids.get(name, name)
        self.scheduler.finish_requests(
            request_id, self._vllm.requests.RequestStatus.FINISHED_ABORTED
        )
        if inputs := self._inputs.get(request_id):
            self._ended[request_id] = inputs[0]
            inputs.clear()

    def _name(self, request_id: str) -> str:
        """The input that a session is at, the last one at its end; else the request itself."""
        inputs = self._inputs.get(request_id)
        if inputs is None:
            return request_id
        return inputs[0] if inputs else self._ended[request_id]

    def _turns(self, request_id: str) -> None:
        """An input of a session has ended."""
        if inputs := self._inputs.get(request_id):
            self._ended[request_id] = inputs.popleft()

    def reset(self, wanted: Reset) -> WasReset:
        reset = attribute(self.scheduler, "reset_prefix_cache")
        options = {
            _STARTS_AGAIN: wanted.reset_running_requests,
            "reset_connector": wanted.reset_connector,
        }
        given = {name: True for name, value in options.items() if value}
        able = given.keys() <= set(parameters_of(reset))
        what = "resets no connector, and no cache that is in use"
        must(able, what, "after_reset and such resets")
        if self._connector is None:
            return WasReset(bool(reset(**given)))
        with self._connector.resetting(wanted) as answers:
            done = bool(reset(**given))
        return WasReset(done, tuple(answers))

    def pause(self, pause: Pause | None) -> None:
        must(hasattr(self.scheduler, SET_PAUSE), "does not pause", "pauses")
        from vllm.v1.core.sched.interface import PauseState

        state = PauseState.UNPAUSED
        if pause is not None:
            state = PauseState.PAUSED_NEW if pause.finishes_running else PauseState.PAUSED_ALL
        getattr(self.scheduler, SET_PAUSE)(state)

    def reset_encoder(self) -> None:
        what = "resets no encoder cache"
        must(hasattr(self.scheduler, RESET_ENCODER), what, "encoder_resets")
        getattr(self.scheduler, RESET_ENCODER)()

    def may_encode(self, length: int) -> bool:
        large = Arrival((0,) * length, (0,), images=(Image("", 0, length),))
        request = self.make_request("", large)
        can_allocate = attribute(attribute(self.scheduler, ENCODED), "can_allocate")
        try:
            return bool(can_allocate(request, 0, length, 0))
        except (KeyError, AssertionError):  # it counts on what is not there
            return False

    def _adapter(self, name: str | None) -> Any:
        if name is None:
            return None
        from vllm.lora.request import LoRARequest

        number = self._adapters.setdefault(name, len(self._adapters) + 1)
        return LoRARequest(lora_name=name, lora_int_id=number, lora_path=f"/{name}")

    def has_requests(self) -> bool:
        return bool(self.scheduler.has_requests())

    def schedule(self) -> Plan:
        output = self.scheduler.schedule()
        counts, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        scheduled: dict[str, Scheduled] = {}
        tables: dict[str, Tables] = {}
        for new in output.scheduled_new_reqs:
            name = new.req_id
            tables[name] = _tables(new.block_ids)
            at = self._name(name)
            told = tuple(new.prompt_token_ids or ()) if name in self._inputs else None
            scheduled[name] = Scheduled(
                at,
                new.num_computed_tokens,
                counts[name],
                len(drafts.get(name, ())),
                self._judged(tables[name]),
                whole=True,
                first=at not in self._seen,
                prompt=told,
                images=() if told is None else _told_images(new.mm_features),
                replay_start=getattr(new, "replay_start", 0),
                tokens=_told_tokens(getattr(new, "prefill_token_ids", None)),
            )
            self._seen.add(at)
        known = output.scheduled_cached_reqs
        none = ((),) * len(self.scheduler.kv_cache_config.kv_cache_groups)
        for name, blocks, start, number in zip(
            known.req_ids,
            known.new_block_ids,
            known.num_computed_tokens,
            known.num_output_tokens,
            strict=True,
        ):
            tables[name] = none if blocks is None else _tables(blocks)
            scheduled[name] = Scheduled(
                self._name(name),
                start,
                counts[name],
                len(drafts.get(name, ())),
                self._judged(tables[name]),
                whole=name in known.resumed_req_ids,
                first=False,
                new=False,
                tokens=_told_tokens(known.all_token_ids.get(name)),
                num_outputs=None if self._runs_v2 else number,
            )
        copies = getattr(output, "kv_cache_block_copies", None) or ()
        # In the order in which they were planned: what one reads an earlier one may write.
        planned = tuple(scheduled[name] for name in counts)
        finished = tuple(sorted(map(self._name, output.finished_req_ids)))
        preempted = tuple(sorted(map(self._name, getattr(output, "preempted_req_ids", None) or ())))
        found = {} if self._states is None else self._states.step(planned, finished + preempted)
        return Plan(
            planned,
            finished,
            preempted,
            tuple((each.src_block_id, each.dst_block_id) for each in copies),
            output,
            None if self._host is None else self._host.step(output, tables, self._name),
            getattr(output, "skip_drafts", None) if self._may_skip_drafts else None,
            None if self._connector is None else self._connector.step(output),
            tuple((self._name(n), len(ids)) for n, ids in drafts.items() if n not in counts),
            {self._name(n): tuple(ids) for n, ids in output.scheduled_encoder_inputs.items()},
            tuple(output.free_encoder_mm_hashes),
            tuple(getattr(output, _ZEROED) or ()) if hasattr(output, _ZEROED) else None,
            bool(counts and output.pending_structured_output_tokens),
            found,
            None if self._told is None else self._told.taken(),
        )

    def _judged(self, tables: Tables) -> Tables:
        """The tables of the engine's groups; those of a host's pool are beside them."""
        return tables if self._host is None else (tables[INDEXER],)

    def update(
        self,
        plan: Plan,
        sampled: Mapping[str, Sequence[int]],
        drafts: Mapping[str, Sequence[int]],
        host: HostResult | None = None,
    ) -> dict[str, list[int]]:
        outputs = self._vllm.outputs
        names = [each.request for each in plan.scheduled]
        ids = [self._ids.get(name, name) for name in names]
        result = call(
            attribute(outputs, "ModelRunnerOutput"),
            {
                "req_ids": ids,
                "req_id_to_index": {name: place for place, name in enumerate(ids)},
                "sampled_token_ids": [list(sampled.get(name, ())) for name in names],
                "logprobs": None,
                "prompt_logprobs_dict": {},
                "pooler_output": None,
            },
            "ModelRunnerOutput",
        )
        if self._host is not None and host is not None:
            result.kv_connector_output = self._host.report(host)
        if self._connector is not None and host is not None:
            result.kv_connector_output = self._connector.report(host)
        if self._states is not None:
            self._states.sampled(plan.scheduled, sampled)
        self._reported = None
        answered = self.scheduler.update_from_output(plan.handle, result)
        for each in answered.values():
            for counted, name in (
                (self._counted, "prefix_cache_stats"),
                (self._counted_loads, "connector_prefix_cache_stats"),
            ):
                stats = getattr(each.scheduler_stats, name, None)
                for what in COUNTED if stats is not None else ():
                    counted[what] += getattr(stats, what)
            self._reported = _reported(each.scheduler_stats) or self._reported
            verified = getattr(each.scheduler_stats, "spec_decoding_stats", None)
            if verified is not None:
                number, accepted = self._verified
                number += verified.num_draft_tokens
                self._verified = number, accepted + verified.num_accepted_tokens
        if drafts:
            self.scheduler.update_draft_token_ids(self._drafts(drafts))
        delivered = {}
        for each in (each for of_client in answered.values() for each in of_client.outputs):
            delivered[self._name(each.request_id)] = list(each.new_token_ids)
            told = each if _CACHED in type(each).__struct_fields__ else each.prefill_stats
            if told is not None and each.new_token_ids:
                self._told_cached.setdefault(self._name(each.request_id), getattr(told, _CACHED))
            if each.finish_reason is not None:
                self._told_ends[self._name(each.request_id)] = str(each.finish_reason)
                self._turns(each.request_id)
        return delivered

    def _drafts(self, drafts: Mapping[str, Sequence[int]]) -> Any:
        ids = [self._ids.get(name, name) for name in drafts]
        return self._vllm.outputs.DraftTokenIds(ids, [list(each) for each in drafts.values()])

    def unfinished(self) -> frozenset[str]:
        return frozenset(
            name
            for name, request in self._requests.items()
            if not request.is_finished() and name not in self._ids
        ).union(*self._inputs.values())

    def loading(self) -> frozenset[str]:
        waits = getattr(self._vllm.requests.RequestStatus, "WAITING_FOR_REMOTE_KVS", None)
        put_off = frozenset[str]() if self._connector is None else self._connector.put_off
        return frozenset(
            name
            for name, request in self._requests.items()
            if (waits is not None and request.status == waits)
            or (name in put_off and not request.is_finished())
        )

    def running(self) -> list[str]:
        return [self._name(request.request_id) for request in attribute(self.scheduler, "running")]

    def pool(self) -> PoolState:
        cached, free = self._cache.cached(), self._pool.get_num_free_blocks()
        held = frozenset(
            block.block_id for block in self._pool.blocks if block.ref_cnt and not block.is_null
        )
        users = attribute(self.scheduler, ENCODED).cached
        encoded = {image: {*map(self._name, ids)} for image, ids in users.items() if ids}
        if self._host is None:
            state, of = PoolState(cached, free, held, None, encoded), self._connector
            if of is None:
                return state
            return replace(state, offloaded=of.cached(), in_use=of.in_use)
        cached = {(0, key): ids for (_, key), ids in cached.items()}
        return PoolState(cached, free, held, self._host.state(), encoded)

    def kept(self) -> Collection[str]:
        ids = {each.request_id for each in self._requests.values()}
        return leftovers(self.scheduler, ids, self._vllm.requests.Request)

    def events(self) -> Sequence[tuple[str, Event]] | None:
        return None if self._host is None else self._host.events()

    def reported(self) -> tuple[int, ...] | None:
        return self._reported

    def counted(self) -> Mapping[str, int] | None:
        return self._counted

    def told_cached(self) -> Mapping[str, int]:
        return self._told_cached

    def told_ends(self) -> Mapping[str, str]:
        return self._told_ends

    def counted_loads(self) -> Mapping[str, int] | None:
        counts = self._vllm.counts_admissions and self._connector is not None
        return self._counted_loads if counts else None

    def verified(self) -> tuple[int, int] | None:
        return self._verified if self._vllm.counts_admissions else None

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        return self._cache.block_keys(name, group)

    def unit_keys(self, name: str) -> Sequence[Any]:
        return self._cache.unit_keys(name)

    def hits_per_group(self, name: str, cap: int) -> Sequence[int] | None:
        """See `conformance.subject.schedulers.RunningScheduler`; not all releases have that."""
        coordinator = attribute(self._manager, "coordinator")
        found = hits_per_group(coordinator, self._requests[name], cap)
        return None if found is None else found[1]


def _states_of(deployment: Deployment, batches: int) -> RunningStates | None:
    """Where the second model runner has states, as far as what it knows is the scheduler's."""
    sizes = {group.block_size for group in deployment.groups if group.kind is GroupKind.MAMBA}
    followed = deployment.v2_model_runner and batches == 1 and deployment.connector is None
    if not followed or len(sizes) != 1 or not has_kernels():
        return None
    return RunningStates(sizes.pop())


def _structured(arrival: Arrival) -> Any:
    """What a request with a grammar asks for, whichever it is; None without one."""
    from vllm.sampling_params import StructuredOutputsParams

    return None if arrival.grammar_steps is None else StructuredOutputsParams(regex="[a-z]*")


def _images(images: Sequence[Image]) -> dict[str, Any]:
    """The argument of a request that has its images; none without any."""
    given = [(image.identifier, image.offset, image.length) for image in images]
    return {"mm_features": image_features(given)} if given else {}


def _told_tokens(tokens: Sequence[int] | None) -> tuple[int, ...] | None:
    """Tokens that a model runner is told; None where these are not told."""
    return None if tokens is None else tuple(tokens)


def _told_images(features: Sequence[Any]) -> tuple[Image, ...]:
    """Images that a model runner is told."""
    places = [(each.identifier, each.mm_position) for each in features]
    return tuple(Image(name, int(place.offset), int(place.length)) for name, place in places)


def _embeddings(arrival: Arrival, real: Any) -> dict[str, Any]:
    """The arguments of a request whose prompt comes as embeddings, or as some; none else."""
    given = embedded_prompt(arrival.request, real)
    if given and given["prompt_is_token_ids"] is None:
        given |= {"prompt_token_ids": None}  # nothing of it has a token id
    return given


def _reported(stats: Any) -> tuple[int, ...] | None:
    """How many requests run, wait, are passed over, and load; see `RunningScheduler.reported`."""
    if stats is None or not hasattr(stats, "num_waiting_reqs"):
        return None
    skipped = getattr(stats, "num_skipped_waiting_reqs", 0)
    fetched = (getattr(stats, "num_kv_fetch_reqs_by_stage", None) or {}).values()
    counts = stats.num_running_reqs, stats.num_waiting_reqs, skipped, *fetched
    return tuple(map(int, counts))


def _engine(
    deployment: Deployment, vllm_config: Any, scheduler: Any, hash_block_size: int
) -> EngineConfiguration:
    """The configuration of the manager as the target has derived it."""
    draft_head = deployment.has_draft_head
    ahead = int(getattr(scheduler, "num_prefill_lookahead", 0)) if draft_head else 0
    ranks = deployment.decode_context_parallel_size
    groups = tuple(
        replace(group, block_size=group.block_size * ranks, prefill_lookahead=max(ahead, 1))
        for group in deployment.groups
    )
    interval = getattr(vllm_config.cache_config, INTERVAL, None)
    if not deployment.enable_prefix_caching:
        # Nothing is hashed, and nothing kept.
        hash_block_size = math.gcd(*(group.block_size for group in groups))
        interval = None
    return EngineConfiguration(
        groups=groups,
        num_gpu_blocks=deployment.num_gpu_blocks,
        hash_block_size=hash_block_size,
        max_model_len=int(scheduler.max_model_len),
        max_num_batched_tokens=int(scheduler.max_num_scheduled_tokens),
        use_eagle=draft_head,
        num_hash_lookahead_tokens=int(getattr(scheduler, HASH_LOOKAHEAD, 0)),
        num_speculative_tokens=deployment.num_speculative_tokens,
        num_lookahead_tokens=int(scheduler.num_lookahead_tokens),
        enable_prefix_caching=deployment.enable_prefix_caching,
        retention_interval=interval,
        mamba_checkpoint_alignment=deployment.mamba_checkpoint_alignment,
        mamba_shared_prefix_checkpoint=deployment.mamba_shared_prefix_checkpoint,
    )


def _tables(blocks: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, blocks))
