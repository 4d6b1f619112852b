"""What a step may not do, and what it may not leave undone, judged from the plans alone.

- Limits: tokens and requests of a step, tokens of one prompt in it, the greatest length, and the
  blocks that stay free beside the whole of what is admitted.
- Work: in the order in which requests run, each gets as many tokens as it has, and as the limits
  and those before it leave. Beside recurrent states a chunk may end earlier, where a state can be
  of use: at the end of a block, near the end of the prompt, or where another request diverges.
  Waiting requests are admitted where tokens, places and, with a margin, blocks are left.
- Turns: no request is admitted before, or runs on in place of, one that comes first by policy.

Where drafts are in flight, it is not known how many tokens a decoding request has, so only its
prompt counts. A step that preempts is judged by what it preempts, not by what it leaves. The rules
share what is known of a step, and so a module.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Deployment, Pause
from hitproof.conformance.playing.expectations import Admitted
from hitproof.conformance.scheduling.images import EncoderOutputs
from hitproof.conformance.scheduling.promises import common
from hitproof.conformance.scheduling.runner import exceeds, violation
from hitproof.conformance.subject.schedulers import Plan, Scheduled
from hitproof.spec.admission import blocks_between
from hitproof.spec.groups import GroupKind


@dataclass(frozen=True)
class Situation:
    """What a step is planned in, and what it makes of it.

    Attributes:
        before: the requests that ran before it, in the order in which they run.
        after: those that run after it.
        known: tokens that the scheduler knows of each request that has not ended: its prompt, and
            what its user got; in the order of arrival.
        free_before: free blocks before it; beside a host pool, how many of one group there are for
            sure, with what belongs to each.
        free_after: the same after it.
        pause: in what way the engine is paused, if it is.
        is_copying: whether copies to the host's pool are under way, which give blocks up when they
            are done. Who needs blocks may wait for that.
        loading: how many requests wait for a KV connector, or for their grammar, and are not in
            ``known``.
        loaded: those whose load was over before it. They hold what was loaded until they run.
        arrived: all that have not ended, in the order of arrival; by default those that are known.
        idle: how many sessions wait for their next input. Each takes the place of a request.
        may_have_evicted: whether blocks that lookup finds may have been evicted before it.
        in_pool: free blocks of the device's pool before it and after it; by default those above.
        encoded: the requests that hold the encoded output of each image, before it and after it;
            None where that is not known.
        sampling: how many steps in flight have sampled for each request.
    """

    before: Sequence[str]
    after: Sequence[str]
    known: Mapping[str, int]
    free_before: int
    free_after: int
    is_copying: bool = False
    loading: int = 0
    loaded: frozenset[str] = frozenset()
    arrived: Sequence[str] = ()
    may_have_evicted: bool = False
    pause: Pause | None = None
    idle: int = 0
    in_pool: tuple[int, int] | None = None
    encoded: tuple[Mapping[str, Collection[str]], Mapping[str, Collection[str]]] | None = None
    sampling: Mapping[str, int] = field(default_factory=dict)


class StepRules:
    """Judges the steps of one scheduler, in turn.

    ``batches`` is how many steps are in flight at most, ``slots`` how many tokens of a step's input
    each request takes for drafting, ``spares_lone`` whether a request that is alone may have more
    than long_prefill_token_threshold, ``reserves`` whether loads leave blocks for other prompts.
    """

    def __init__(
        self,
        deployment: Deployment,
        engine: EngineConfiguration,
        arrivals: Mapping[str, Arrival],
        batches: int,
        slots: int,
        spares_lone: bool = False,
        reserves: bool = False,
    ) -> None:
        self._deployment = deployment
        self._engine = engine
        self._arrivals = arrivals
        self._in_turn = batches == 1
        self._batches = batches
        self._slots = slots
        self._spares_lone = spares_lone
        self._reserves = reserves
        self._fails = any(each.load_fails or each.invalid_blocks for each in arrivals.values())
        self._loaded_to: dict[str, int] = {}
        """Of requests that a KV connector loads, to which token."""
        self._most = deployment.max_num_scheduled_tokens or deployment.max_num_batched_tokens
        self._budget = min(engine.max_num_batched_tokens or self._most, self._most)
        self._images = EncoderOutputs(deployment, engine, arrivals, batches)
        self._ends: dict[str, int] = {}
        self._furthest: dict[str, int] = {}
        self._met: dict[str, list[int]] = {}
        """What each had in common with what those before it had computed as it was admitted."""
        self._number = 0
        self._sampled: dict[str, int] = {}
        self._known_then: dict[str, int] = {}
        """How many tokens each had when a step last sampled for it."""
        self._proposed: dict[str, int] = {}
        self._restarted: set[str] = set()
        self._gave_way: set[str] = set()
        self._loading: set[str] = set()
        """Requests that have begun to load into a host pool."""
        self._rows: set[str] = set()
        sessions = [each.session for each in arrivals.values()]
        self._going_on = {
            name
            for place, (name, each) in enumerate(arrivals.items())
            if each.session is not None and each.session in sessions[:place]
        }
        self._lookahead = deployment.num_mtp_modules
        states = [g.block_size for g in engine.groups if g.kind is GroupKind.MAMBA]
        sizes = [g.block_size for g in engine.groups if g.prefix_cacheable]
        self._blocks = sizes if states else []
        self._states = "mamba" if states else None

    def judge(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """What is wrong with the step. Remembers what it computes."""
        self._number += 1
        self._loading.update(plan.host.loads if plan.host is not None else ())
        yield from self._images.judge(plan)
        if now.encoded is not None:
            waited = [name for name in now.arrived if name not in now.before]
            yield from self._images.held(*now.encoded, now.after, waited)
        if self._deployment.v2_model_runner:
            yield from self._places(plan)
        if not plan.num_tokens and not now.known:
            return
        yield from self._limits(plan, now)
        yield from self._watermark(plan, now)
        yield from self._reserve(plan, now)
        preempted = [name for name in now.before if name not in now.after]
        if preempted:
            yield from self._preempted(plan, now, preempted)
        stopped = now.pause is not None and not now.pause.finishes_running
        if not now.is_copying and not stopped:
            yield from self._work(plan, now, preempted)
        if not now.is_copying and not preempted and now.pause is None:
            yield from self._waiting(plan, now)
        if not (preempted or stopped):
            yield from self._loaded(plan, now)
        yield from self._drafting(plan, now)
        if not (preempted or self._deployment.loads):
            yield from self._drafting_in_vain(plan, now)
        yield from self._admitted(plan, now)
        yield from self._in_turn_beside_loads(plan, now)
        drafts = self._deployment.num_speculative_tokens if self._in_turn else 0
        self._gave_way.update(preempted)
        for name in preempted:
            self._ends.pop(name, None)
            self._known_then.pop(name, None)
        self._images.forget(preempted)
        self._images.computed(plan)
        for place, each in enumerate(plan.scheduled):
            if each.whole:
                ran_by = {one.request: one.start + one.num_tokens for one in plan.scheduled[:place]}
                self._met[each.request] = self._in_common(each.request, ran_by)
            end = self._ends[each.request] = each.start + each.num_tokens
            self._furthest[each.request] = max(end, self._furthest.get(each.request, 0))
            samples = end >= now.known.get(each.request, end)
            self._proposed[each.request] = drafts if samples and not plan.skips_drafts else 0
            if samples:
                self._sampled[each.request] = self._number
                self._known_then[each.request] = now.known.get(each.request, 0)

    def accepted(self, valid: Mapping[str, int]) -> None:
        """How many proposed drafts of each request are left, as grammars reject the rest."""
        for name, number in valid.items():
            self._proposed[name] = min(self._proposed.get(name, 0), number)

    def start_again(self, running: Iterable[str]) -> None:
        """All that runs is computed from its start again."""
        self._ends.clear()
        self._known_then.clear()
        self._images.forget(running)
        self._restarted.update(running)

    def reset_encoder(self) -> None:
        """The encoder's outputs are forgotten."""
        self._images.reset()

    def _may_join(self, name: str, running: Sequence[str]) -> bool:
        """Whether the adapters of the requests that run leave room for that of one more."""
        most, adapter = self._deployment.max_loras, self._arrivals[name].lora_name
        loaded = self._adapters(running)
        if most is None or adapter is None or len(loaded) < most:
            return True
        # With steps in flight more of them run than a step may have: each then waits for its turn.
        return adapter in loaded and len(loaded) == most

    def _adapters(self, names: Iterable[str]) -> set[str]:
        adapters = (self._arrivals[name].lora_name for name in names)
        return {adapter for adapter in adapters if adapter is not None}

    # --- limits --------------------------------------------------------------------------------

    def _limits(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        deployment, scheduled = self._deployment, plan.scheduled
        tokens = plan.num_tokens + self._slots * len(scheduled)
        if tokens > deployment.max_num_batched_tokens or plan.num_tokens > self._most:
            most = min(deployment.max_num_batched_tokens, self._most)
            yield exceeds("tokens", f"a step has at most {most} tokens", f"it has {tokens}")
        running = max(len(scheduled), len(now.after)) + now.idle
        if running > deployment.max_num_seqs:
            most = deployment.max_num_seqs
            yield exceeds("requests", f"at most {most} requests run", f"{running} run")
        adapters = self._adapters(each.request for each in scheduled)
        most_adapters = deployment.max_loras or len(adapters)
        if len(adapters) > most_adapters:
            yield exceeds(
                "adapters",
                f"the requests of a step have at most {most_adapters} adapters",
                f"they have {len(adapters)}",
            )
        if now.pause is not None:
            # Sessions that go on hold blocks, as those do whose prompt is loaded.
            goes_on = {*now.before, *now.loaded, *self._going_on, *self._loading}
            goes_on = goes_on if now.pause.finishes_running else set()
            for name in self._begun(plan) if self._in_turn else ():
                yield exceeds(
                    "pause",
                    f"request {name} is kept waiting while the engine is paused",
                    "a KV connector begins to load for it",
                )
            for each in scheduled:
                if each.request not in goes_on:
                    yield exceeds(
                        "pause",
                        f"request {each.request} is kept waiting while the engine is paused",
                        f"{each.num_tokens} tokens of it are computed",
                    )
        for name, number in plan.stray_drafts:
            yield violation(
                Defect(Code.DRAFT_COUNT_WRONG),
                f"request {name} has no drafts in the step, as it is not computed",
                f"the step says {number}",
            )
        threshold = self._most_of_one(now)
        for each in scheduled:
            known = now.known.get(each.request, 0)
            since = self._number - self._sampled.get(each.request, 0)
            if not each.whole and each.start >= known > 0 and since < deployment.ranks:
                yield exceeds(
                    "ranks",
                    f"request {each.request} goes on {deployment.ranks} steps after it sampled",
                    f"it goes on after {since}",
                )
            if not (self._in_turn or each.whole) and self._ends_in_flight(each.request, now):
                yield exceeds(
                    "output",
                    f"request {each.request} ends with the step in flight, and has no other",
                    f"{each.num_tokens} tokens of it are computed",
                )
            if not each.num_tokens:
                yield exceeds("empty", f"a token of {each.request} is computed at least", "none")
            end = each.start + each.num_tokens
            most = threshold and max(threshold, self._images.whole(each.request, each.start))
            if most and each.num_tokens > most and len(now.known) > 1:
                yield exceeds(
                    "prompt",
                    f"request {each.request} gets at most {most} tokens while others are there",
                    f"it gets {each.num_tokens}",
                )
            if end >= deployment.max_model_len:
                yield exceeds(
                    "length",
                    f"request {each.request} has at most {deployment.max_model_len} tokens, the "
                    "last of which is sampled",
                    f"{end} are computed",
                )
            whole = not (deployment.enable_chunked_prefill or threshold or self._blocks)
            if whole and self._lookahead == 1 and each.whole:
                if end < now.known[each.request]:
                    yield exceeds(
                        "chunks",
                        f"request {each.request} is computed at once up to its last token",
                        f"the step ends at {end} of {now.known[each.request]}",
                    )
                continue
            if not self._in_turn and each.num_drafts and known - each.start > 1:
                # Planned ahead, drafts are what workers hold of a step that sampled.
                yield violation(
                    Defect(Code.DRAFT_COUNT_WRONG),
                    f"request {each.request} has no drafts in the step, as more than one token "
                    "that it knows is computed",
                    f"the step says {each.num_drafts}",
                )
            drafts = max(0, end - known)
            if (self._in_turn or each.whole) and each.num_drafts != drafts:
                yield violation(
                    Defect(Code.DRAFT_COUNT_WRONG),
                    f"request {each.request} has {drafts} drafts in the step, which are the tokens "
                    "past those that it knows",
                    f"the step says {each.num_drafts}",
                )

    def _ends_in_flight(self, name: str, now: Situation) -> bool:
        """Whether a step in flight is sure to sample the last token of a request."""
        arrival, number = self._arrivals[name], now.sampling.get(name, 0)
        again = name in self._gave_way or name in self._restarted
        if not number or again or self._fails or arrival.session is not None:
            return False  # what was sampled may count for nothing
        return now.known.get(name, 0) - len(arrival.prompt) + number >= arrival.max_tokens

    def _places(self, plan: Plan) -> Iterator[Violation]:
        """A model runner has a place for each request from its admission until it is told better.

        Sessions keep theirs between inputs, and are not counted.

        vLLM: ``finish_requests`` and ``add_requests`` of the second ``GPUModelRunner``.
        """
        self._rows.difference_update(plan.finished, plan.preempted)
        names = (each.request for each in plan.scheduled)
        self._rows.update(name for name in names if self._arrivals[name].session is None)
        if len(self._rows) > self._deployment.max_num_seqs:
            yield exceeds(
                "places",
                f"the model runner has places for {self._deployment.max_num_seqs} requests",
                f"it was not told to forget any of {', '.join(sorted(self._rows))}",
            )

    def _watermark(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """A request admitted beside others leaves them some room, all of its prompt computed.

        Only full attention holds all of it; what other groups take is not counted.
        """
        kept = self._deployment.watermark_blocks
        admitted = [each for each in plan.scheduled if each.request not in now.before]
        if not kept or not admitted or len(now.after) < 2:
            return
        if self._deployment.host is not None and any(each.start for each in admitted):
            return  # after admission vLLM pins those pages of the hit that are still on the device
        last = admitted[-1]
        end = last.start + last.num_tokens + (self._engine.num_lookahead_tokens or 0)
        need = kept + sum(
            max(
                0,
                blocks_between(0, now.known[last.request], group.block_size)
                - blocks_between(0, end, group.block_size),
            )
            for group in self._engine.groups
            if group.kind is GroupKind.FULL_ATTENTION and group.prefix_cacheable
        )
        free = now.free_after if now.in_pool is None else now.in_pool[1]
        if free < need:
            yield exceeds(
                "watermark",
                f"request {last.request} is admitted beside others if {need} blocks stay free, "
                f"the watermark of {kept} among them",
                f"{free} do",
            )

    def _reserve(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """A load begins if blocks are left to compute the prompts that are begun, or loaded.

        Only full attention holds all of them; what other groups take is not counted.
        """
        computed = {each.request: each.start + each.num_tokens for each in plan.scheduled}
        for name in [n for n in self._loaded_to if n in computed or n not in now.arrived]:
            del self._loaded_to[name]
        begun = self._begun(plan)
        loads = plan.transfers.loads if plan.transfers is not None else {}
        self._loaded_to |= {name: loads[name].end for name in begun}
        if not (self._reserves and begun and {*computed} <= {*now.before}):
            return
        ends = {name: computed.get(name, self._ends.get(name, 0)) for name in now.after}
        needs = {
            name: self._blocks_left(name, end) for name, end in (ends | self._loaded_to).items()
        }
        # The load that begins last leaves blocks for all others.
        last = max(begun, key=needs.__getitem__)
        need = sum(needs.values()) - needs[last]
        free = now.free_after if now.in_pool is None else now.in_pool[1]
        if free < need:
            yield exceeds(
                "reserve",
                f"a load begins for request {last} if {need} blocks stay free, which the prompts "
                "need that are computed or loaded",
                f"{free} do",
            )

    def _blocks_left(self, name: str, end: int) -> int:
        """Blocks of full attention that the prompt of a request takes from there on."""
        ahead, prompt = self._engine.num_lookahead_tokens or 0, len(self._arrivals[name].prompt)
        return sum(
            max(
                0,
                blocks_between(0, prompt, group.block_size)
                - blocks_between(0, end + ahead, group.block_size),
            )
            for group in self._engine.groups
            if group.kind is GroupKind.FULL_ATTENTION and group.prefix_cacheable
        )

    # --- work ----------------------------------------------------------------------------------

    def _left(self, scheduled: Sequence[Scheduled]) -> int:
        """Tokens that are left for one more request."""
        used = sum(each.num_tokens for each in scheduled)
        slots = self._slots * (len(scheduled) + 1)
        inputs = self._deployment.max_num_batched_tokens - slots
        return max(0, min(self._budget, inputs) - used)

    def _most_of_one(self, now: Situation) -> int:
        """The most tokens of one prompt in the step; 0 for no limit."""
        deployment, requests = self._deployment, len(now.known) + now.loading + now.idle
        most = deployment.long_prefill_token_threshold
        if not most or (self._spares_lone and requests == 1):
            return 0
        fair = deployment.max_num_batched_tokens // max(requests, 1)
        return max(most, fair) if deployment.long_prefill_token_threshold_adaptive else most

    def _drafting(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """Drafts are proposed where some request is sure to have a step that verifies them."""
        for each in plan.scheduled if plan.skips_drafts else ():
            arrival, known = self._arrivals[each.request], now.known.get(each.request)
            if known is None or each.start + each.num_tokens < known:
                continue  # it samples nothing
            sampled = known - len(arrival.prompt) + self._batches
            if sampled < arrival.max_tokens:
                yield violation(
                    Defect.of(Code.STEP_LEAVES_WORK, what="drafts", states=self._states),
                    f"drafts are proposed after the step, as request {each.request} goes on",
                    "the step says that none are needed",
                )
                return

    def _drafting_in_vain(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """No drafts are proposed after a step if none of its requests has another that verifies."""
        if plan.skips_drafts is not False or not plan.scheduled:
            return
        for each in plan.scheduled:
            arrival, known = self._arrivals[each.request], now.known.get(each.request)
            if known is None or arrival.session is not None:
                return
            if each.start + each.num_tokens < known:
                continue  # it samples nothing
            in_flight = self._known_then.get(each.request) == known
            if known - len(arrival.prompt) + in_flight + 1 < arrival.max_tokens:
                return
        names = ", ".join(each.request for each in plan.scheduled)
        yield violation(
            Defect(Code.DRAFTS_NEVER_VERIFIED),
            f"no drafts are proposed after the step, as none of {names} has another that verifies",
            "the step says that they are needed",
        )

    def _work(self, plan: Plan, now: Situation, preempted: Sequence[str]) -> Iterator[Violation]:
        """Whether those that run get their shares, and those that are admitted.

        Who is preempted gives back what it got in the step, but only to those after the one that
        it makes room for, which gets blocks or is preempted itself.
        """
        if preempted and not self._in_turn:
            return
        given = {each.request: each for each in plan.scheduled}
        most = self._most_of_one(now) or self._most
        # Those that decode have drafts, too, of which some may have been rejected before.
        has = (
            now.known[name]
            - min(self._ends.get(name, 0), now.known[name] - 1)
            + self._proposed.get(name, 0)
            for name in preempted
        )
        lost = sum(self._slots + min(number, most) for number in has)
        before: list[Scheduled] = []
        order = (*now.before, *(n for n in given if n not in now.before))
        fed = [n in preempted or (n in given and any(given[n].blocks)) for n in order]
        for place, name in enumerate(order):
            each = given.get(name)
            if not any(fed[place:]):
                lost = 0
            # Else it has ended meanwhile, or starts again.
            if name in now.known and name not in preempted:
                left = max(0, self._left(before) - lost)
                yield from self._share(name, each, left, now, plan, before)
            if each is not None:
                before.append(each)

    def _share(
        self,
        name: str,
        each: Scheduled | None,
        left: int,
        now: Situation,
        plan: Plan,
        before: Sequence[Scheduled],
    ) -> Iterator[Violation]:
        """Whether a request gets as much as those ``before`` it leave."""
        known = now.known[name]
        ran = self._ends.get(name, 0)
        if each is None and ran >= len(self._arrivals[name].prompt) and not self._in_turn:
            return
        start = each.start if each is not None else min(ran, known - 1)
        got = each.num_tokens if each is not None else 0
        decodes = start == known - 1 and name in now.before
        has = known - start + (self._proposed.get(name, 0) if decodes else 0)
        due = min(has, left, self._deployment.max_model_len - start - 1)
        due = min(due, self._most_of_one(now) or due)
        encoded = self._images.due(before, plan, name, start, due)
        ends_before_image = encoded <= got < due
        due = min(due, encoded)
        if not ends_before_image and self._passes_state(start, start + got, known):
            yield violation(
                Defect.of(Code.STEP_LEAVES_WORK, what="states", states=self._states),
                f"a chunk of request {name} ends at the end of a block, where its state is kept",
                f"it goes on to {start + got} of {known} tokens",
            )
        if got >= due or (due - got < self._lookahead and known - start > 1):
            return
        ran_by = {one.request: one.start + one.num_tokens for one in before}
        if self._blocks and not decodes and self._is_of_use(name, start, got, due, now, ran_by):
            return
        if got == 0 and not self._deployment.enable_chunked_prefill and name not in now.before:
            return
        yield violation(
            Defect.of(Code.STEP_LEAVES_WORK, what="running", states=self._states),
            f"request {name} gets {due} tokens, which it has, and which are left in the step",
            f"it gets {got}",
        )

    def _passes_state(self, start: int, end: int, known: int) -> bool:
        """Whether a chunk goes on past the end of a block, and ends where no state is of use."""
        if not self._blocks or self._lookahead > 1 or end >= known - 1:
            return False
        if any(end % size == 0 for size in (*self._blocks, self._engine.hash_block_size)):
            return False
        # A block that is dropped for draft layers is of no use.
        dropped = self._engine.use_eagle and not self._engine.num_hash_lookahead_tokens
        return any(
            min(end // size, (known - 1) // size - dropped) * size > start for size in self._blocks
        )

    def _is_of_use(
        self,
        name: str,
        start: int,
        got: int,
        due: int,
        now: Situation,
        ran_by: Mapping[str, int],
    ) -> bool:
        """Whether a chunk beside recurrent states may end so early.

        ``ran_by`` has where the chunks of requests before it in the step end.
        """
        known, end, size = now.known[name], start + got, max(self._blocks)
        aligned = math.lcm(*self._blocks)
        if not got:
            # Where no step has room for a block, waiting for one is of no use.
            ever = min(self._budget, self._deployment.long_prefill_token_threshold or aligned)
            return (due < aligned and min(self._blocks) <= ever) or start % size != 0
        ends = {each * (start // each + 1) for each in self._blocks if start % each}
        ends |= {(start + due) // each * each for each in (*self._blocks, aligned)}
        near = 2 * size + self._engine.num_hash_lookahead_tokens + self._lookahead
        lengths = (len(self._arrivals[name].prompt), known)
        if end in ends or any(length - near <= end <= length for length in lengths):
            return True
        mine = self._arrivals[name].content + self._arrivals[name].output
        others = (each for other, each in self._arrivals.items() if other != name)
        shared = [common(mine, each.content + each.output) for each in others]
        # Of what a request before it computes, there is a part, and was when it was admitted.
        shared += [*self._in_common(name, ran_by), *self._met.get(name, ())]
        if (furthest := self._furthest.get(name, 0)) > start:  # of itself, before it started again
            shared.append(furthest)
        # What is left of a shared prefix may end on any block of it.
        in_part = now.may_have_evicted and end % min(self._blocks) == 0
        return any(
            each and end - near <= each and (in_part or each <= end + near) for each in shared
        )

    def _in_common(self, name: str, ran_by: Mapping[str, int]) -> list[int]:
        """How many tokens a request shares with each other one, of those computed there."""
        arrival = self._arrivals[name]
        mine = arrival.content + arrival.output
        return [
            min(common(mine, self._arrivals[other].content), end) for other, end in ran_by.items()
        ]

    def _waiting(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """Whether a request waits although there is room for it."""
        # A request whose adapter has no room waits for that.
        names = (name for name in now.known if name not in now.after)
        waiting = [name for name in names if self._may_join(name, now.after)]
        if not waiting or len(now.after) + now.idle >= self._deployment.max_num_seqs:
            return
        left = self._left(plan.scheduled)
        enough = 2 * math.lcm(*self._blocks) if self._blocks else 1
        enough = max(enough, 1 + self._deployment.num_speculative_tokens, self._lookahead + 1)
        threshold = self._deployment.long_prefill_token_threshold
        if self._blocks and threshold:
            return
        for name in waiting:
            whole = 1 if self._deployment.enable_chunked_prefill else now.known[name]
            stale = not self._in_turn and name in self._ends
            if left < max(enough, whole) or stale or self._awaits_state(name, plan):
                return
            if self._images.may_wait(name, plan, left):
                return
        kept = self._deployment.watermark_blocks
        if now.free_after < kept + len(now.known) * self._most_blocks():
            return
        yield violation(
            Defect.of(Code.STEP_LEAVES_WORK, what="waiting", states=self._states),
            f"request {waiting[0]} is admitted: {left} tokens and {now.free_after} blocks are left",
            "it waits",
        )

    def _loaded(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """Whether a request whose load is over waits though there is room.

        It holds blocks, and gives back none before it ends: it goes on also while the engine is
        paused for those that have not begun.
        """
        waiting = [n for n in now.known if n in now.loaded and n not in now.after]
        there = len(now.after) + now.idle
        if not waiting or self._blocks or there >= self._deployment.max_num_seqs:
            return
        most, left = self._most_blocks(), self._left(plan.scheduled)
        if now.free_after < self._deployment.watermark_blocks + len(waiting) * most:
            return
        for name in waiting:
            whole = 1 if self._deployment.enable_chunked_prefill else now.known[name]
            enough = max(whole, 1 + self._deployment.num_speculative_tokens)
            if left < enough or not self._may_join(name, now.after):
                return
            if name in self._gave_way or self._images.may_wait(name, plan, left):
                return
        yield violation(
            Defect.of(Code.STEP_LEAVES_WORK, what="loaded", states=self._states),
            f"request {waiting[0]} is admitted, as what it waited for is loaded: {left} tokens and "
            f"{now.free_after} blocks are left",
            "it waits",
        )

    @staticmethod
    def _begun(plan: Plan) -> list[str]:
        """The requests that begin to wait for a load."""
        computed = {each.request for each in plan.scheduled}
        loads = plan.transfers.loads if plan.transfers is not None else ()
        return [name for name in loads if name not in computed]

    def _awaits_state(self, name: str, plan: Plan) -> bool:
        """Whether a recurrent state that it can start from may be computed in this step."""
        scheduled = (self._arrivals[each.request].content for each in plan.scheduled)
        mine = self._arrivals[name].content
        return bool(self._blocks) and any(common(mine, each) for each in scheduled)

    def _most_blocks(self) -> int:
        """More blocks than one request can need."""
        drafts = 1 + self._engine.num_speculative_tokens + (self._engine.num_lookahead_tokens or 0)
        tokens = self._deployment.max_model_len + drafts
        return sum(tokens // group.block_size + 2 + drafts for group in self._engine.groups)

    # --- turns ---------------------------------------------------------------------------------

    def _turn(self, now: Situation) -> dict[str, tuple[int, int]]:
        """For each request what it is sorted by: priority where that counts, and arrival."""
        by_priority = self._deployment.policy == "priority"
        return {
            name: (self._arrivals[name].priority if by_priority else 0, number)
            for number, name in enumerate(now.arrived or now.known)
        }

    def _admitted(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """No request is admitted before one that comes first, unless that one lacks an image.

        Without priorities, a preempted request comes before all that wait, also before one that
        lacked an image when it was admitted first. Where prefixes are loaded, a request that holds
        blocks for that comes first. So does a session that continues.
        """
        if not self._in_turn or self._lookahead > 1 or self._deployment.loads:
            return
        turn = self._turn(now)
        admitted = [n for n in now.after if n not in now.before and n not in self._going_on]
        if self._deployment.policy == "fcfs":
            admitted = [name for name in admitted if name not in self._gave_way]
        waiting = [n for n in now.known if n not in now.after and n not in self._going_on]
        if self._restarted:  # among them and those that have waited for long there is no order
            self._restarted &= {*waiting}
            return
        for place, late in enumerate(admitted):
            there = [name for name in now.after if name not in admitted[place:]]
            could = [
                name
                for name in waiting
                if self._may_join(name, there)
                and not self._images.may_wait(name, plan, self._left(plan.scheduled))
            ]
            first = min(could, key=turn.__getitem__, default=late)
            if turn[first] < turn[late]:
                yield violation(
                    Defect(Code.ADMITTED_OUT_OF_TURN),
                    f"request {first} is admitted before request {late}",
                    f"{late} runs, and {first} waits",
                    Admitted(first, late),
                )
                return
        if self._deployment.max_loras is not None:
            return  # requests that had to wait for an adapter may come later
        for one, other in pairwise(admitted):
            if turn[other] < turn[one]:
                yield violation(
                    Defect(Code.ADMITTED_OUT_OF_TURN),
                    f"request {other} is admitted before request {one}",
                    f"{one} is first in the step",
                    Admitted(other, one),
                )
                return

    def _in_turn_beside_loads(self, plan: Plan, now: Situation) -> Iterator[Violation]:
        """Beside a KV connector no request is admitted, or begins to load, out of turn.

        But requests whose load is over may come before those that hold nothing, and requests that
        were preempted without priorities come first, in an order of their own.
        """
        if plan.transfers is None or not self._in_turn or self._lookahead > 1:
            return
        if (
            self._deployment.max_loras is not None
            or self._deployment.encoder is not None
            or self._restarted
        ):
            return
        turn = self._turn(now)
        taken = [n for n in (*now.after, *self._begun(plan)) if n not in now.before]
        begun = plan.transfers.begun.union(now.before, now.after)
        left = [n for n in now.known if n not in begun]
        if self._deployment.policy == "fcfs":
            left = [n for n in left if n not in self._gave_way]
            taken = [n for n in taken if n not in self._gave_way]
        for late in taken:
            for first in left:
                overtakes = late in now.loaded and first not in now.loaded
                if turn[first] < turn[late] and not overtakes:
                    yield violation(
                        Defect(Code.ADMITTED_OUT_OF_TURN),
                        f"request {first} is admitted, or loaded, before request {late}",
                        f"{late} is, and {first} waits",
                        Admitted(first, late),
                    )
                    return

    def _preempted(
        self, plan: Plan, now: Situation, preempted: Sequence[str]
    ) -> Iterator[Violation]:
        """The last requests are preempted, and only if necessary."""
        kept = [name for name in now.before if name in now.after]
        turn = self._turn(now)
        if self._deployment.policy == "fcfs":
            right = list(now.before[len(kept) :]) == list(preempted)
        else:
            right = all(turn[lost] > turn[name] for lost in preempted for name in kept)
        if not right:
            yield violation(
                Defect.of(Code.PREEMPTED_WRONGLY, how="turn"),
                f"who comes last is preempted, of {', '.join(now.before)}",
                f"{', '.join(preempted)} are",
            )
        taken = sum(len(blocks) for each in plan.scheduled for blocks in each.blocks)
        rooms = {(now.free_before, now.free_after)} | ({now.in_pool} if now.in_pool else set())
        if all(after + taken <= before for before, after in rooms):
            yield violation(
                Defect.of(Code.PREEMPTED_WRONGLY, how="use"),
                f"who is preempted gives blocks up for the step; {now.free_before} are free",
                f"{', '.join(preempted)} are preempted, and {now.free_after + taken} are there",
            )
        if taken + self._most_blocks() < now.free_before:
            yield violation(
                Defect.of(Code.PREEMPTED_WRONGLY, how="need"),
                f"nobody is preempted while blocks are free; {now.free_before} are",
                f"{', '.join(preempted)} are preempted",
            )
