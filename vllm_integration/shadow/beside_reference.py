"""The reference in lockstep with a real manager: the same calls, and all that can be seen compared.

It ends for a manager where one of the two cannot follow the other, and after a finding: what comes
later would be its consequences. The reason is reported.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hitproof.conformance.emulation import releases
from hitproof.conformance.emulation.releases import Policies, ReplayPolicy
from hitproof.conformance.reference.managers import ReferenceManager, ReferenceManagers
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.failures import CannotJudge, refusal_of
from hitproof.conformance.subject.managers import Allocation, Hit, Progress
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.managers import IN_FLIGHT
from hitproof.vllm_integration.gate.lockstep import policies_name
from hitproof.vllm_integration.shadow.judged import Call, Judged, numbers
from hitproof.vllm_integration.shadow.real import State
from hitproof.vllm_integration.shadow.recorder import input_of

_NOT_FOLLOWED = ("reserved_blocks", "num_encoder_tokens", "full_sequence_must_fit")


def policies_of(version: str | None) -> Policies | None:
    """The reference's policies for a release; None when it is older than those it follows."""
    name = policies_name(version)
    if name is None:
        return None
    known: Policies = getattr(releases, name)
    return replace(known, replays=ReplayPolicy.PROMISED)


class Lockstep:
    """The reference beside one real manager. Raises `CannotJudge` where it cannot follow."""

    def __init__(self, judged: Judged, policies: Policies | None) -> None:
        engine, scope = judged.scope.engine, judged.scope
        states = any(group.kind is GroupKind.MAMBA for group in engine.groups)
        specs = judged.manager.coordinator.kv_cache_config.kv_cache_groups
        drafts = [getattr(spec.kv_cache_spec, "num_speculative_blocks", 0) for spec in specs]
        reasons = {
            refusal("reference-releases"): policies is None,
            refusal("reference-no-cache"): not scope.caches,
            refusal("reference-retention"): (engine.retention_interval is not None),
            refusal("reference-states"): states and not scope.states_at_ends,
            refusal("reference-drafts"): max(drafts) > 0 and not engine.use_eagle,
            refusal("reference-watermark"): bool(getattr(judged.manager, "watermark_blocks", 0)),
            refusal("reference-tails"): (
                hasattr(judged.cache.pool, "cache_partial_block")
                and any(group.block_size != engine.hash_block_size for group in engine.groups)
            ),
            refusal("reference-opting-out"): not all(g.prefix_cacheable for g in engine.groups),
            refusal("reference-recomputed-drafts"): any(
                group.prefill_lookahead > 1 for group in engine.groups
            ),
        }
        why = next((reason for reason, holds in reasons.items() if holds), None)
        if why is not None or policies is None:
            raise CannotJudge(str(why))
        self._judged = judged
        policies = replace(policies, horizon=judged.policies.horizon)
        self._reference: ReferenceManager = ReferenceManagers(policies).start(engine)
        # By the request's id: the object, its name in the reference, and its tokens there.
        self._known: dict[str, tuple[Any, str, int]] = {}
        self._names = 0
        self._served: set[str] = set()

    def follow(self, call: Call, result: Any, state: State) -> bool:
        """Ask the reference the same and compare; False where the lockstep ends here."""
        asked = _CALLS.get(call.method)
        if asked is None:
            return True
        try:
            answers = asked(self, call, result)
        except Exception as error:
            reason = refusal_of(error, asked=False)
            self._judged.report.not_judged[f"from there on, lockstep: {reason}"] += 1
            return False
        self._judged.report.compared += 1
        seen = self._reference.observe()
        of = {self._known[name][1] for name in self._known}
        mine = {
            "answer": answers[0],
            "tables": {
                self._known[name][1]: tuple(tuple(each.get(name, ())) for each in state.tables)
                for name in {name for each in state.tables for name in each}
                if name in self._known
            },
            "ref_counts": {n: c for n, c in enumerate(state.ref_counts) if c and n},
            "cached": sorted(state.cached.values()),
            "free_queue": tuple(state.free),
        }
        theirs = {
            "answer": answers[1],
            "tables": {name: tables for name, tables in seen.tables.items() if name in of},
            "ref_counts": dict(seen.ref_counts),
            "cached": sorted(seen.cached.values()),
            "free_queue": seen.free_queue,
        }
        for field, real in mine.items():
            if real != theirs[field]:
                judge = self._judged.judge
                policy = judge.policy(call.method, field, str(real), str(theirs[field]))
                self._judged.add(policy, call)
                return False
        return True

    # --- the calls -------------------------------------------------------------------------

    def _name(self, call: Call) -> str:
        """The request's name in the reference, which gets what is new of it."""
        request = call.values["request"]
        known = self._known.get(request.request_id)
        if known is None or known[0] is not request:
            self._names += 1
            made, name = input_of(request), f"{self._names}"
            self._reference.add_request(name, made)
            told = len(made.prompt)
        else:
            _, name, told = known
        tokens = [int(token) for token in request.all_token_ids[told:]]
        if len(request.all_token_ids) < told:
            raise CannotJudge("a request lost tokens")
        if tokens:
            self._reference.append_output(name, tokens)
        self._known[request.request_id] = request, name, told + len(tokens)
        in_flight = [getattr(request, each, 0) for each in IN_FLIGHT]
        progress = Progress(request.num_computed_tokens, request.num_preemptions, False, *in_flight)
        self._reference.set_progress(name, progress)
        return name

    def _looked_up(self, call: Call, result: Any) -> tuple[Any, Any]:
        name = self._name(call)
        hit = self._reference.get_computed_blocks(name)
        self._served.add(name)
        tables = numbers(result[0].blocks)
        return (int(result[1]), tables), (hit.length, hit.tables)

    def _allocated(self, call: Call, result: Any) -> tuple[Any, Any]:
        for name in _NOT_FOLLOWED:
            if call.values.get(name):
                raise CannotJudge(f"{name} is given")
        blocks = call.values.get("new_computed_blocks")
        hit, name = None, self._name(call)
        if blocks is not None and any(map(len, blocks.blocks)):
            if name not in self._served:
                raise CannotJudge("a hit is given that no lookup of the manager returned")
            hit = Hit(call.number("num_new_computed_tokens"), numbers(blocks.blocks))
        new = self._reference.allocate_slots(
            name,
            Allocation(
                call.number("num_new_tokens"),
                hit,
                call.number("num_lookahead_tokens"),
                call.number("num_external_computed_tokens"),
                bool(call.values.get("delay_cache_blocks")),
            ),
        )
        return None if result is None else numbers(result.blocks), new

    def _cached(self, call: Call, result: Any) -> tuple[Any, Any]:
        self._reference.cache_blocks(self._name(call), call.number("num_computed_tokens"))
        return result, None

    def _freed(self, call: Call, result: Any) -> tuple[Any, Any]:
        name = self._name(call)
        self._reference.free(name)
        return result, None

    def _evicted(self, call: Call, result: Any) -> tuple[Any, Any]:
        self._reference.evict_blocks(call.values["block_ids"])
        return result, None

    def _reset(self, call: Call, result: Any) -> tuple[Any, Any]:
        del call
        return bool(result), self._reference.reset_prefix_cache()

    def _new_step(self, call: Call, result: Any) -> tuple[Any, Any]:
        del call
        self._reference.new_step_starts()
        return result, None

    def _cannot(self, call: Call, result: Any) -> tuple[Any, Any]:
        del result
        raise CannotJudge(f"{call.method} is called")


_CALLS: dict[str, Callable[[Lockstep, Call, Any], tuple[Any, Any]]] = {
    "get_computed_blocks": Lockstep._looked_up,
    "allocate_slots": Lockstep._allocated,
    "cache_blocks": Lockstep._cached,
    "free": Lockstep._freed,
    "evict_blocks": Lockstep._evicted,
    "reset_prefix_cache": Lockstep._reset,
    "new_step_starts": Lockstep._new_step,
    "remove_skipped_blocks": Lockstep._cannot,
    "pop_blocks_for_free": Lockstep._cannot,
}
