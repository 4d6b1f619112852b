"""Plays a scheduler history: requests arrive; steps are planned, run, and their results processed.

As vLLM's ``EngineCore`` does it: a step is planned as long as fewer than the subject's ``batches``
are in flight, and without new requests those in flight are drained. It is long, as all that is seen
of a step comes together here; it is judged elsewhere.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import OF_SCHEDULER, Signature
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.histories.naming import Names, Prefixes
from hitproof.conformance.histories.schema import Image
from hitproof.conformance.histories.workloads import Pause, Reset, SchedulerHistory
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.event_descriptions import DEVICE as ON_DEVICE
from hitproof.conformance.judge.event_descriptions import HOST as ON_HOST
from hitproof.conformance.judge.event_descriptions import EventDescriptions
from hitproof.conformance.judge.followers import Follower
from hitproof.conformance.judge.judging import Judge
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.playing.expectations import Served
from hitproof.conformance.scheduling import chunk_pool
from hitproof.conformance.scheduling.contract import Contract
from hitproof.conformance.scheduling.deriving import wrong_groups
from hitproof.conformance.scheduling.grammars import Grammars
from hitproof.conformance.scheduling.host_tiers import HOST, HostTiers
from hitproof.conformance.scheduling.offloading import Offloading
from hitproof.conformance.scheduling.outcome import Life, SchedulerOutcome
from hitproof.conformance.scheduling.progress import Progress, Standstill
from hitproof.conformance.scheduling.promises import Donor, Due, PromisedHits
from hitproof.conformance.scheduling.resets import Resets, judge_reset
from hitproof.conformance.scheduling.runner import SCHEDULER, Done, ModelRunner, about, violation
from hitproof.conformance.scheduling.sessions import Sessions
from hitproof.conformance.scheduling.several import Several
from hitproof.conformance.scheduling.steps import Situation, StepRules
from hitproof.conformance.scheduling.transfers import CONNECTOR, ConnectorTransfers
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.managers import named_event
from hitproof.conformance.subject.schedulers import (
    COUNTED,
    Masks,
    Plan,
    PoolState,
    RunningScheduler,
    Scheduled,
    StartupRefused,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind

SESSION = "session"
_SPREADS = (Divergence.UNSOUND, Divergence.WRONG_DRAFTS)
"""What leaves contents wrong, so that later steps read or publish them."""
_OF_NEITHER = (Code.PROMISED_HIT_MISSED, Code.IMAGE_ENCODED_AGAIN)
"""What has nothing to do with sessions, and images with connectors, where there are some."""


def play_on(
    scheduler: RunningScheduler,
    history: SchedulerHistory,
    policies: JudgedPolicies | None = None,
) -> SchedulerOutcome:
    """Play ``history`` on a scheduler that was started for its deployment, and judge every step."""
    player = _Player(scheduler, history, policies or JudgedPolicies())
    player.run()
    return player.outcome


class _Player:
    def __init__(
        self, scheduler: RunningScheduler, history: SchedulerHistory, policies: JudgedPolicies
    ) -> None:
        engine = scheduler.engine
        requests = {name: each.request for name, each in history.requests.items()}
        prefixes = Prefixes(requests, engine.hash_block_size, engine.num_hash_lookahead_tokens)
        self._scheduler, self._history, self._engine = scheduler, history, engine
        self._names, self._prefixes = Names(prefixes), prefixes
        self._judge = Judge(engine, requests, prefixes, policies)
        self._replayed = policies.replayed(engine)
        self._content = ContentModel(
            engine,
            requests,
            self._sign,
            policies.every_state,
            policies.horizon,
            self._replayed > 0,
        )
        self._tiers: HostTiers | None = None
        if history.deployment.host is not None:
            self._tiers = HostTiers(
                engine,
                history.deployment.host,
                history.requests,
                requests,
                self._content.store,
            )
        descriptions = {
            medium: EventDescriptions(engine, requests, prefixes, fine=False, medium=medium)
            for medium in (ON_DEVICE, ON_HOST)
        }
        self._events = Follower(engine.groups, prefixes, descriptions)
        connector = history.deployment.connector
        self._transfers: ConnectorTransfers | None = None
        if connector is not None:
            several = [
                Offloading(
                    engine,
                    each,
                    history.requests,
                    requests,
                    self._content,
                    prefixes,
                    history.deployment.max_num_batched_tokens,
                )
                if each.offloads or each.store
                else ConnectorTransfers(engine, each, history.requests, self._content)
                for each in connector.several
            ]
            self._transfers = several[0]
            if len(several) > 1:
                self._transfers = Several(several, self._content, len(engine.groups))
        self._runner = ModelRunner(
            engine,
            history.requests,
            self._content,
            about(history.deployment),
            self._tiers,
            self._transfers,
            history.deployment.precisions,
            self._replayed,
            scheduler.fences_steps,
        )
        self._promised = PromisedHits(engine, history.requests, policies)
        self._rules = StepRules(
            history.deployment,
            engine,
            history.requests,
            scheduler.batches,
            scheduler.drafting_slots,
            spares_lone=scheduler.spares_lone_prompts,
            reserves=scheduler.reserves_blocks,
        )
        self._begun: set[str] = set()
        self._reported: set[str] = set()
        self._donors: list[Donor] = []
        self._junctions: dict[str, int] = {}
        self._allocated = 0
        self._counted = Counter(dict.fromkeys(COUNTED, 0))
        self._counted_loads = Counter(self._counted)
        self._looked_up: set[str] = set()
        self._stored: dict[str, tuple[int, int]] = {}
        """The longest hit of each request in what a store has when it arrives, and the longest
        that no block past its last boundary confirms, in tokens."""
        self._emptied = 0
        self._rested: PoolState | None = None
        self._unwritten: set[str] = set()
        """Requests of which a store has failed to write some, and has not since tried again."""
        self.outcome = SchedulerOutcome({name: Life() for name in history.requests})
        self._waiting = dict(history.requests)
        self._arrived: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        self._in_flight: deque[tuple[Plan, Done]] = deque()
        self._step = 0
        self._progress = Progress(history)
        self._pause: Pause | None = None
        self._resets = Resets(history)
        self._sessions = Sessions(history, self._waiting, self._arrived, self._ended)
        self._grammars = Grammars(history)
        self._contract = Contract(history.requests)
        self._in_last: set[str] = set()
        self._verified: tuple[int, int] | None = (0, 0)

    def _sign(self, group: int, claim: str, defect: Defect, divergence: Divergence) -> Signature:
        """The signature of what is read or published wrong: of a scheduler, not of a manager."""
        if self._sessions.have_begun:
            given = dict(defect.parameters) | {"requests": "sessions"}
            defect = Defect.read(defect.code, given)
        signature = self._judge.of_group(group, claim, defect, divergence)
        return replace(signature, kind=OF_SCHEDULER + signature.kind)

    def run(self) -> None:
        """Play until nothing is left to do, or nothing more happens."""
        if self._scheduler.derived is not None:
            for wrong in wrong_groups(self._scheduler.derived):
                self._add(wrong)
        try:
            while self._go_on():
                self._step += 1
        except StartupRefused:  # of what only a request shows
            raise
        except Exception as error:  # whatever the target raises is its answer
            defect = crash_defect(crash_of(error))
            signature = Signature.booked(defect, Divergence.CRASH, SCHEDULER, False)
            self._add(Violation(signature, "the step is planned", f"it raises {error!r:.200}"))
            self.outcome.ended = f"the scheduler raises {error!r:.200}"
        if not self.outcome.ended:
            self._at_the_end()

    def _go_on(self) -> bool:
        if self.outcome.ended:
            return False
        for wanted in self._resets.due(self._step, may_restart=self._may_restart):
            self._reset(wanted)
        self._let_arrive()
        self._pause_or_go_on()
        plan: Plan | None = None
        if self._scheduler.has_requests() or self._is_transferring:
            self._judge_idle()
            plan, done = self._plan()
            if plan.awaits_tokens:
                return self._await_tokens(plan, done)
            self._sample(plan, done)
            if len(self._in_flight) < self._scheduler.batches and plan.num_tokens:
                return not self._is_stuck(plan)
        elif not self._in_flight:
            self._judge_rest()
            waits = self._sessions and self._pause is None and self._scheduler.unfinished()
            if waits and not self.outcome.ended:
                return not self._is_stuck(Plan(()))  # to the engine, there is nothing to do
            more = bool(self._waiting or self._resets) or self._pause is not None
            return (more or self._sessions.idle > 0) and not self.outcome.ended
        if self._in_flight:
            self._take_up()
            self._judge_keys()
        return not self._is_stuck(plan)

    def _await_tokens(self, plan: Plan, done: Done) -> bool:
        """The oldest step in flight is processed, and only then this one samples.

        What is registered meanwhile is judged when it is known which drafts are right.
        """
        if not self._in_flight:
            self._add_stuck(Standstill.STUCK, "wait for tokens, and no step in flight has any")
            return False
        drafts = self._take_up()
        constrained = self._runner.constrained(plan)
        left = self._scheduler.check_drafts(plan, drafts) if drafts else {}
        unfinished = self._scheduler.unfinished()
        checked = constrained.keys() & unfinished & drafts.keys()
        of_checked = {name: constrained[name] for name in checked}
        for each_wrong in self._grammars.checked(left, of_checked):
            self._add(each_wrong)
        self._sample(plan, done, checked)
        return not self._is_stuck(plan)

    def _sample(self, plan: Plan, done: Done, checked: Collection[str] = ()) -> None:
        """The step samples, under the masks of grammars, and is in flight.

        The drafts of the requests that are ``checked`` were as it was about to sample.
        """
        masks: Mapping[str, Masks] = {}
        if self._grammars:
            constrained = self._runner.constrained(plan)
            masks = self._scheduler.masks(plan)
            # What is sampled for requests that have ended is not delivered.
            for name in constrained.keys() - self._scheduler.unfinished():
                del constrained[name]
            for each_wrong in self._grammars.masked(masks, constrained):
                self._add(each_wrong)
            if self._scheduler.batches == 1:
                for each_wrong in self._grammars.verified(constrained):
                    self._add(each_wrong)
            elif any(constrained[name].drafts for name in constrained.keys() - checked):
                self._verified = None  # it is not known how many of their drafts count
        for each_wrong in self._runner.sample(plan, done, masks):
            self._add(each_wrong)
        self._rules.accepted(done.valid)
        self._judge_keys()
        self._in_flight.append((plan, done))

    def _judge_idle(self) -> None:
        """The engine goes on until what connectors began to store is stored."""
        if self._transfers is None or self._transfers.loading or self._in_flight:
            return
        if not self._scheduler.has_requests():
            pool, connector = self._scheduler.pool(), self._history.deployment.connector
            for wrong in chunk_pool.left(pool):
                self._add(wrong)
            # What is sent is held until that is over, and the engine may rest meanwhile, as it may
            # in a pause.
            rests = self._pause is None and connector is not None and not connector.loads
            if pool.held and rests:
                self._add(_held(pool.held))

    def _judge_rest(self) -> None:
        """An engine that rests in a pause has let those that hold what was loaded run."""
        pause = self._pause
        if pause is None or not pause.finishes_running or self._transfers is None:
            return
        held = sorted(self._transfers.loaded - self._ended.keys())
        if held and self._scheduler.pool().held:
            self._add(
                violation(
                    Defect.of(Code.STEP_LEAVES_WORK, what="loaded"),
                    f"request {held[0]} goes on while the engine is paused, as it holds what was "
                    "loaded for it",
                    "nothing is left to do",
                )
            )

    def _let_arrive(self) -> None:
        for name, arrival in list(self._waiting.items()):
            since = 0 if arrival.after is None else self._ended.get(arrival.after)
            waits = arrival.after_reset and not self._may_restart
            waits = waits or not self._sessions.follows(name)
            if since is not None and self._step >= since + arrival.arrives and not waits:
                del self._waiting[name]
                if arrival.after_reset:
                    self._reset(Reset(self._step, reset_running_requests=True))
                self._arrived[name] = self._step
                self._scheduler.add_request(name, arrival)
                if session := self._sessions.closes(name):
                    self._scheduler.close(session)
                self._judge_stored(name)
        for name, since in list(self._arrived.items()):
            aborted = self._history.requests[name].aborted
            if aborted is not None and self._step == since + aborted and name not in self._ended:
                self._scheduler.abort(name)
                for each in self._sessions.inputs(name):
                    if each not in self._ended:
                        self._waiting.pop(each, None)
                        self._end(each, "aborted")
        for session in self._sessions.due(self._step):
            self._scheduler.close(session)
        for name in self._grammars.due(self._arrived, self._step):
            if name not in self._ended:
                self._scheduler.grammar_is_ready(name)

    def _pause_or_go_on(self) -> None:
        """Pause the engine, or let it go on; reset the encoder's cache."""
        now = (p for p in self._history.pauses if p.at <= self._step < p.at + p.steps)
        pause = next(now, None)
        if pause != self._pause:
            self._scheduler.pause(pause)
            self._pause = pause
        if self._step in self._history.encoder_resets:
            self._scheduler.reset_encoder()
            self._rules.reset_encoder()

    @property
    def _may_restart(self) -> bool:
        """Whether all that runs can start again.

        vLLM refuses that while pages are transferred; users try again.
        """
        copies = self._tiers is not None and self._is_copying
        gives_up_late = self._transfers is not None or self._tiers is not None
        defers = gives_up_late and self._scheduler.batches > 1
        busy = copies or self._is_transferring or (defers and self._in_flight)
        # The next plan begins to transfer what has just ended.
        busy = busy or (self._transfers is not None and self._step - 1 in self._ended.values())
        # Who waits with what was loaded has blocks.
        loaded = self._transfers.loaded if self._transfers is not None else frozenset()
        busy = busy or bool(loaded - self._ended.keys())
        return not busy and not self._scheduler.loading()

    def _reset(self, wanted: Reset) -> None:
        """Reset the prefix cache; what was computed before is of no use any more."""
        running: tuple[str, ...] = ()
        held = False
        if wanted.reset_running_requests:
            running, self._verified = tuple(self._scheduler.running()), None
        else:
            held = bool(self._scheduler.pool().held)
        was = self._scheduler.reset(wanted)
        self._rested = None
        pool, connected = self._scheduler.pool(), self._history.deployment.connector is not None
        for each_wrong in judge_reset(wanted, was, held, pool, connected):
            self._add(each_wrong)
        if wanted.reset_connector and self._transfers is not None:
            self._transfers.reset(self._arrived)
            if False not in was.connector:
                self._transfers.forget(self._arrived)
        if wanted.reset_connector:
            self._emptied = self._step
            self._stored.clear()
        if held:
            return
        self._donors.clear()
        self._rules.start_again(running)
        self._start_again(running)

    def _start_again(self, names: Iterable[str]) -> None:
        """The model runner is told what was delivered of requests that start again."""
        lives = self.outcome.lives
        self._runner.start_again({name: len(lives[name].delivered) for name in names})

    def _end(self, name: str, how: str) -> None:
        self._ended[name] = self._step
        life, arrival = self.outcome.lives[name], self._history.requests[name]
        life.ended = how
        if how == "finished":
            self._sessions.finished(name, self._step)
        # What an earlier input has given up cannot be kept for the end of this one.
        all_held = all(each.kind is GroupKind.FULL_ATTENTION for each in self._engine.groups)
        if how == "finished" and (all_held or name == self._sessions.inputs(name)[0]):
            tokens = arrival.content + tuple(life.delivered[:-1])
            ends = frozenset(start + count for start, count in life.chunks)
            junction = self._junctions.get(name, 0)
            self._donors.append(Donor(name, tokens, len(arrival.prompt), ends, junction))

    def _plan(self) -> tuple[Plan, Done]:
        pool, running = self._scheduler.pool(), tuple(self._scheduler.running())
        before, copies = pool.cached, self._is_copying
        plan = self._scheduler.schedule()
        planned = [(each.request, each.start, each.num_tokens) for each in plan.scheduled]
        self.outcome.plans.append(planned)
        self._judge_promises(plan, before)
        self._judge_answers(plan, pool)
        self._count_lookups(plan)
        for each in plan.scheduled:
            life = self.outcome.lives[each.request]
            goes_on = life.hit is None and each.request != self._sessions.inputs(each.request)[0]
            if each.whole and self._skips(each.request) and each.start and not goes_on:
                self._add(_read_though_skipping(each))
            self._allocated += sum(map(len, each.blocks))
            if life.hit is None:
                life.hit = self._hit(each)
            elif each.whole:
                life.preemptions += 1
            life.chunks.append((each.start, each.num_tokens))
        seen = self._scheduler.pool()
        # A page of what was loaded is copied to the device.
        copies = copies or (plan.host is not None and any(t.restore for t in plan.host.transfers))
        now = self._situation(running, pool.room, seen.room)
        # What a step in flight may still write is given back only when that is over.
        copies = copies or (self._tiers is not None and bool(self._in_flight) and not pool.room)
        now = replace(
            now,
            is_copying=copies,
            in_pool=(pool.free, seen.free),
            encoded=(pool.encoded, seen.encoded),
            sampling=Counter(name for _, done in self._in_flight for name in done.sampled),
        )
        self._judge_inputs(plan)
        for each_wrong in self._grammars.started(plan):
            self._add(each_wrong)
        for each_wrong in self._rules.judge(plan, now):
            self._add(each_wrong)
        self._judge_beginnings(plan)
        self._judge_tokens(plan)
        self._judge_ends(plan)
        for each_wrong in self._contract.judge(plan):
            self._add(each_wrong)
        if self._transfers is None:
            self._start_again(e.request for e in plan.scheduled if e.whole and not e.first)
        if self._transfers is not None:
            if self._rested is not None:
                for each_wrong in self._transfers.evicted(plan, self._rested, seen):
                    self._add(each_wrong)
            self._rested = seen
        for copy in plan.transfers.copies if plan.transfers is not None else ():
            # States are handed over once.
            if copy.failed and copy.loads is None:
                self._unwritten.add(copy.of)
            elif copy.blocks and not self._history.deployment.has_mamba:
                self._unwritten.discard(copy.of)
        done, wrong = self._runner.execute(plan, seen)
        for each_wrong in wrong:
            self._add(each_wrong)
        return plan, done

    def _judge_inputs(self, plan: Plan) -> None:
        """The model runner is told all of a session that counts, and nothing else."""
        for each in plan.scheduled:
            if each.prompt is None:
                continue
            due = self._history.requests[each.request]
            if each.prompt != due.prompt:
                self._tell_others(each, None, f"tokens {list(due.prompt)}", str(list(each.prompt)))
            elif each.images != due.images:
                told = _places(each.images)
                self._tell_others(each, "images", f"images {_places(due.images)}", told)

    def _tell_others(self, scheduled: Scheduled, of: str | None, due: str, told: str) -> None:
        self._add(
            violation(
                Defect.of(Code.SESSION_TOKENS_WRONG, of=of),
                f"request {scheduled.request} goes on with the {due}",
                f"the model runner is told {told}",
            )
        )
        self.outcome.ended = "what follows comes of other tokens"

    def _count_lookups(self, plan: Plan) -> None:
        """Count the lookups that have led to an admission, or to a load that is waited for."""
        loads = plan.transfers.loads if plan.transfers is not None else {}
        found = {each.request: self._hit(each) for each in plan.scheduled if each.whole}
        for name in self._looked_up & found.keys():
            del found[name]  # by then it was looked up
            self._looked_up.discard(name)
        self._looked_up |= loads.keys() - found.keys()
        found |= {name: loading.start for name, loading in loads.items()}
        for name, hit in found.items():
            life, tokens = self.outcome.lives[name], len(self._history.requests[name].prompt)
            if self._skips(name):
                continue
            kind, tokens = "" if life.hit is None else "preempted_", tokens + len(life.delivered)
            if self._engine.enable_prefix_caching:
                for what, number in (("requests", 1), ("queries", tokens), ("hits", hit)):
                    self._counted[kind + what] += number
            load = loads.get(name)
            given = 0 if load is None else load.end - load.start
            for what, number in (("requests", 1), ("queries", tokens - hit), ("hits", given)):
                self._counted_loads[kind + what] += number

    def _hit(self, admitted: Scheduled) -> int:
        """The hit of a request that is admitted: what is computed again of it counts as found."""
        start = admitted.replay_start
        return start + self._replayed if start and self._replayed else admitted.start

    def _skips(self, name: str) -> bool:
        """Whether a request takes nothing from the cache."""
        return self._history.requests[name].skip_reading_prefix_cache

    def _situation(self, before: tuple[str, ...], free_before: int, free_after: int) -> Situation:
        waits = self._scheduler.loading() if self._history.deployment.loads else frozenset()
        loaded = self._transfers.loaded if self._transfers is not None else frozenset()
        waits -= loaded
        waits |= self._awaiting_grammar
        known = {
            name: self._num_tokens(name)
            for name in self._arrived
            if name not in self._ended and name not in waits and self._sessions.is_its_turn(name)
        }
        after = tuple(self._scheduler.running())
        return Situation(
            before,
            after,
            known,
            free_before,
            free_after,
            loading=len(waits),
            loaded=loaded.difference(self._ended),
            arrived=[name for name in self._arrived if name not in self._ended],
            may_have_evicted=self._may_have_evicted,
            pause=self._pause,
            idle=self._sessions.idle,
        )

    @property
    def _may_have_evicted(self) -> bool:
        """Whether blocks were taken that others had been freed from."""
        return self._evicts(self._allocated)

    def _evicts(self, taken: int) -> bool:
        return taken >= self._engine.num_gpu_blocks - 1

    @property
    def _is_copying(self) -> bool:
        """Whether workers copy or load, as far as the scheduler knows."""
        reports = [done.host for _, done in self._in_flight if done.host is not None]
        unreported = any(each.done or each.loaded for each in reports)
        copies = self._tiers is not None and (self._tiers.is_busy or unreported)
        # Where steps are in flight, what ended requests had is free only when these are over.
        defers = self._transfers is not None and self._scheduler.batches > 1
        return copies or self._is_transferring or defers

    @property
    def _awaiting_grammar(self) -> frozenset[str]:
        """The requests that wait for their grammar."""
        return self._grammars.pending(self._arrived.keys() - self._ended.keys())

    @property
    def _is_transferring(self) -> bool:
        """Whether a connector loads or sends, as far as the scheduler knows."""
        return self._transfers is not None and self._transfers.is_busy

    def _judge_beginnings(self, plan: Plan) -> None:
        """The model runner is told all of a request before it is told what is added."""
        for each in plan.scheduled:
            if each.new:
                self._begun.add(each.request)
            elif each.request not in self._begun:
                self._add(
                    violation(
                        Defect(Code.BEGINNING_NOT_TOLD),
                        f"the model runner is told all of request {each.request} when it begins",
                        "it is told as a request that goes on",
                    )
                )

    def _judge_tokens(self, plan: Plan) -> None:
        """The model runner has all tokens of what it computes, and as many as users got.

        The first one has the outputs of what goes on; planned ahead it loses those of a request
        that is left out of a step. vLLM: ``_update_states`` and ``add_requests``.
        """
        ahead, last = self._history.deployment.async_scheduling, self._in_last
        second = self._history.deployment.v2_model_runner
        self._in_last = {each.request for each in plan.scheduled}
        for each in plan.scheduled:
            name, arrival = each.request, self._history.requests[each.request]
            if arrival.session is not None or arrival.embeddings:
                continue
            delivered = self.outcome.lives[name].delivered
            due, number = (*arrival.prompt, *delivered), each.num_outputs
            if each.tokens not in (None, due):
                self._tell_wrong("tokens", name, f"tokens {list(due)}", str(list(each.tokens)))
            elif each.tokens is None and (
                (ahead and number and name not in last)
                or (each.new and each.whole and delivered and not second)
            ):
                self._tell_wrong("missing", name, f"tokens {list(due)}", "none")
            if number is not None and not (
                number == len(delivered)
                or (self._scheduler.batches > 1 and number > len(delivered))
            ):
                said = f"{len(delivered)} output tokens"
                self._tell_wrong("number", name, said, f"that it has {number}")

    def _tell_wrong(self, of: str, name: str, due: str, told: str) -> None:
        self._add(
            violation(
                Defect.of(Code.TOKENS_TOLD_WRONG, of=of),
                f"request {name} has the {due}",
                f"the model runner is told {told}",
            )
        )

    def _judge_ends(self, plan: Plan) -> None:
        """The model runner is told of each end once, after it."""
        for name in plan.finished:
            how = "again" if name in self._reported else "early"
            inputs = self._sessions.inputs(name)
            if name in self._reported or any(each not in self._ended for each in inputs):
                self._add(_told(how, f"request {name}", f"it is reported {how}"))
            self._reported.update(inputs)

    def _take_up(self) -> Mapping[str, list[int]]:
        """Process the oldest step in flight; returns the drafts that it has proposed."""
        plan, done = self._in_flight.popleft()
        drafts = {} if self._scheduler.batches > 1 else done.drafts
        self._count_drafts(done)
        delivered = self._scheduler.update(plan, done.sampled, drafts, done.host)
        for each_wrong in self._runner.taken_up(done, delivered):
            self._add(each_wrong)
            self.outcome.ended = "what follows comes of a failed load"
        for name, tokens in delivered.items():
            self.outcome.lives[name].delivered += tokens
        unfinished = self._scheduler.unfinished()
        for each_wrong in self._counted_wrong(len(unfinished)):
            self._add(each_wrong)
        for name in self._arrived.keys() - self._ended.keys() - unfinished:
            short = len(self.outcome.lives[name].delivered) < len(
                self._history.requests[name].output
            )
            fails = self._transfers is not None and self._transfers.may_fail(name)
            self._end(name, "failed" if short and fails else "finished")
        self._judge_events()
        return done.drafts

    def _count_drafts(self, done: Done) -> None:
        """Count the drafts that a step has verified, as long as it is sure that they count."""
        lives = self.outcome.lives.values()
        runs = done.verified.keys() <= set(self._scheduler.running())
        if not runs or any(each.preemptions for each in lives):
            self._verified = None
        if self._verified is not None:
            drafts, accepted = self._verified
            drafts += sum(number for number, _ in done.verified.values())
            accepted += sum(number for _, number in done.verified.values())
            self._verified = drafts, accepted

    def _judge_events(self) -> None:
        """What is published leads to what the pools have cached."""
        published, pool = self._scheduler.events(), self._scheduler.pool()
        if published is None:
            return
        # Who was planned while a grammar waited for tokens is judged only now.
        self._learn_all()
        if self._names.ambiguous:
            return  # their events name one block, or copies of it
        pools = {ON_DEVICE: self._named(pool.cached)}
        if pool.host is not None:
            pools[ON_HOST] = self._named({(0, key): ids for key, ids in pool.host.cached.items()})
        named = [(medium, named_event(event, self._names.name)) for medium, event in published]
        for code, spec, actual in self._events.wrong(named, pools):
            self._add(violation(Defect(code), spec, actual))

    def _counted_wrong(self, unfinished: int) -> Iterator[Violation]:
        """Statistics count each request once: it runs, waits, or is passed over while it waits."""
        said = self._scheduler.reported()
        if said is None or self._history.sessions:
            return
        running, waiting, passed_over, *fetched = said
        runs = len(self._scheduler.running())
        if (running, waiting + passed_over) != (runs, unfinished - runs) or min(said) < 0:
            yield violation(
                Defect(Code.REQUESTS_COUNTED_WRONG),
                f"{runs} requests run, and {unfinished - runs} wait or are passed over",
                f"statistics say that {running} run, {waiting} wait, {passed_over} are passed over",
            )
        elif fetched and (min(fetched) < 0 or sum(fetched) > unfinished - runs):
            yield violation(
                Defect(Code.REQUESTS_COUNTED_WRONG),
                f"at most the {unfinished - runs} requests that wait are loaded",
                f"statistics count {sum(fetched)}",
            )

    def _judge_promises(
        self, plan: Plan, before: Mapping[tuple[int, Any], tuple[int, ...]]
    ) -> None:
        """Promised hits are found, where nothing can have been evicted."""
        if not self._engine.enable_prefix_caching:
            return
        if self._transfers is not None:
            self._judge_served(plan)  # of all else, what is loaded, and when, decides what is found
            return
        if self._tiers is not None and (self._is_copying or not self._tiers.keeps_all):
            return
        taken = self._allocated
        for each in plan.scheduled:
            if self._evicts(taken):
                return
            taken += sum(map(len, each.blocks))
            if self.outcome.lives[each.request].hit is not None or self._skips(each.request):
                continue
            if each.request != self._sessions.inputs(each.request)[0]:
                continue  # it goes on with what its session holds
            self._see_junction(each, before)
            due = self._promised.due(each.request, self._donors)
            if due is None or self._hit(each) >= due.tokens:
                continue
            defect = Defect.of(
                Code.PROMISED_HIT_MISSED,
                to=due.who,
                by=self._why_missed(each, due, before),
                states="mamba" if self._history.deployment.has_mamba else None,
            )
            self._add(
                violation(
                    defect,
                    f"request {each.request} hits {due.tokens} tokens of what request "
                    f"{due.donor.name} has computed",
                    f"it hits {self._hit(each)}",
                    Served(each.request, due.tokens, or_more=True),
                )
            )

    def _judge_stored(self, name: str) -> None:
        """A store has the promised hits of a request that arrives, since it evicts nothing.

        They are those of prompts. A request that found more in the prefix cache than was stored has
        not filled it, and what is about to be stored is not promised.
        """
        connector = self._history.deployment.connector
        fails = self._history.requests[name].invalid_blocks
        if connector is None or not connector.store or self._skips(name) or fails:
            return
        self._learn(name)
        tokens = len(self._history.requests[name].prompt)
        first = len(self._engine.groups)  # those of connectors beside it follow
        offloaded = self._named(self._scheduler.pool().offloaded).items()
        stored = {key: ids for key, ids in offloaded if key[0] < first}
        found = self._judge.due_hit(name, tokens, stored)
        last = tokens - tokens % math.lcm(*(each.block_size for each in self._engine.groups))
        unit = self._engine.hash_block_size
        past = {self._prefixes.name(name, end) for end in range(last + unit, tokens + 1, unit)}
        within = {key: ids for key, ids in stored.items() if key[1] not in past}
        self._stored[name] = found, self._judge.due_hit(name, tokens, within)
        if self._is_transferring or self._in_flight:
            return
        donors = (
            replace(each, tokens=each.tokens[: self._kept_of(each)])
            for each in self._donors
            if self._arrived[each.name] >= self._emptied
            and each.name not in self._unwritten
            and self._ended[each.name] < self._step - 1
            and (self.outcome.lives[each.name].hit or 0) <= self._stored.get(each.name, (0, 0))[0]
        )
        due = self._promised.due(name, donors)
        if due is not None and found < due.tokens:
            self._add(
                violation(
                    Defect.of(
                        Code.PROMISED_HIT_MISSED,
                        to=due.who,
                        by="retention" if self._promised.is_sparse else "tier",
                    ),
                    f"a hit of {due.tokens} tokens is stored for request {name}, which request "
                    f"{due.donor.name} has computed",
                    f"what is stored has {found}",
                )
            )

    def _kept_of(self, donor: Donor) -> int:
        """How many tokens of an ended request a store must have.

        A step stores what was known when it was planned, up to two steps before the last was.
        """
        assert self._history.deployment.connector is not None
        if not self._history.deployment.connector.outputs:
            return donor.num_prompt_tokens
        known = [start for start, _ in self.outcome.lives[donor.name].chunks]
        return max(donor.num_prompt_tokens, *known[-3:-2], 0)

    def _judge_served(self, plan: Plan) -> None:
        """A store serves each request the longest hit that it had when the request arrived."""
        for each in plan.scheduled:
            due, within = self._stored.get(each.request, (0, 0))
            if self.outcome.lives[each.request].hit is None and self._hit(each) < due:
                past = "past-boundary" if self._hit(each) >= within else None
                self._add(
                    violation(
                        Defect.of(Code.TIER_HIT_TOO_SHORT, lookahead=past),
                        f"request {each.request} is served {due} tokens that are stored",
                        f"it starts after {self._hit(each)} tokens",
                    )
                )

    def _judge_answers(self, plan: Plan, before: PoolState) -> None:
        """What is in host memory, and not under way, is served together with what is local."""
        told = plan.transfers
        if self._transfers is None or not told or self._history.sessions:
            return
        answered = {*told.answers, *(name for each in told.several for name in each.answers)}
        for name in answered:
            self._learn(name)
        lengths = {name: self._num_tokens(name) for name in answered}
        stored, due_hit = self._named(before.offloaded), self._judge.due_hit
        for each_wrong in self._transfers.too_short(plan, lengths, stored, due_hit):
            self._add(each_wrong)

    def _num_tokens(self, name: str) -> int:
        """All that is known of a request: its prompt, and what users have got."""
        return len(self._history.requests[name].prompt) + len(self.outcome.lives[name].delivered)

    def _see_junction(
        self, scheduled: Scheduled, before: Mapping[tuple[int, Any], tuple[int, ...]]
    ) -> None:
        """Note what a request is seen to share when it is admitted, where a state of it is kept."""
        if not self._engine.keeps_shared_states:
            return
        name = scheduled.request
        self._learn(name)
        tokens = len(self._history.requests[name].prompt)
        found = self._judge.junction(name, tokens, self._hit(scheduled), self._named(before))
        self._junctions[name] = found

    def _why_missed(
        self, scheduled: Scheduled, due: Due, before: Mapping[tuple[int, Any], tuple[int, ...]]
    ) -> str:
        """The part that loses a promised hit: the first that is not as the spec has it.

        `conformance.scheduling.playing` tells the coordinator from the lookups of its groups, and
        retention from the mask.
        """
        name = scheduled.request
        self._learn(name)
        tokens = len(self._history.requests[name].prompt)
        if self._judge.due_hit(name, tokens, self._named(before)) >= due.tokens:
            return "lookup"
        computed = due.donor.tokens[: due.tokens]
        same = (each for each in self._donors if each.tokens[: due.tokens] == computed)
        ends = set().union(*(each.ends for each in same))
        if self._history.deployment.has_mamba and due.tokens not in ends:
            return "chunks"
        return "mask"

    def _learn_all(self) -> None:
        for name in self._arrived:
            self._learn(name)

    def _learn(self, name: str) -> None:
        for index, group in enumerate(self._engine.groups):
            keys = self._scheduler.block_keys(name, index)
            self._names.learn(name, group.block_size, keys)
        keys = self._scheduler.unit_keys(name)
        self._names.learn(name, self._engine.hash_block_size, keys)

    def _named(
        self, cached: Mapping[tuple[int, Any], tuple[int, ...]]
    ) -> dict[tuple[int, str], tuple[int, ...]]:
        return {(group, self._names.name(key)): ids for (group, key), ids in cached.items()}

    def _judge_keys(self) -> None:
        """Every published key names a page with that content."""
        self._learn_all()
        pool = self._scheduler.pool()
        for wrong in self._content.keys.wrong(self._named(pool.cached)):
            self._add(wrong)
        if self._transfers is not None and self._transfers.keeps:
            for wrong in self._transfers.wrong_keys(self._named(pool.offloaded)):
                self._add(wrong)
        if self._tiers is not None and pool.host is not None:
            on_host = {(0, key): ids for key, ids in pool.host.cached.items()}
            for wrong in self._tiers.wrong_keys(self._named(on_host)):
                self._add(wrong)

    def _is_stuck(self, plan: Plan | None) -> bool:
        """Whether nothing goes on any more, though the scheduler says so; that ends the history."""
        if plan is None:
            return False
        idle = not plan.num_tokens and not any(each.num_tokens for each, _ in self._in_flight)
        told = plan.transfers
        idle = idle and not (told is not None and (told.loads or told.sends))
        idle = idle and not self._is_transferring
        idle = idle and not self._sessions.idle
        idle = idle and not self._awaiting_grammar
        idle = idle and (self._tiers is None or not self._is_copying)
        how = self._progress.standstill(plan, idle=idle, paused=self._pause is not None)
        # A request that arrives later may free the way no more than time does.
        unfinished = self._scheduler.unfinished()
        if how is None or (self._waiting and not unfinished):
            return False
        if how is Standstill.REST or not unfinished:
            self._add(
                violation(
                    Defect.of(Code.REQUEST_NEVER_FINISHES, way=Standstill.REST),
                    "an engine in which nothing is left to do, or which is paused, comes to rest",
                    f"it has planned {self._progress.patience} empty steps and goes on",
                )
            )
            self.outcome.ended = "nothing more happens" if unfinished else ""
            return True
        self._add_stuck(
            how,
            f"get no token in {self._progress.patience} steps"
            if how is Standstill.STUCK
            else "start again and again",
        )
        return True

    def _add_stuck(self, how: Standstill, what: str) -> None:
        """Requests that were accepted get nowhere, and nothing more happens."""
        unfinished = self._scheduler.unfinished()
        if self._transfers is not None:  # none of its loads is under way
            self.outcome.unloaded = self._scheduler.loading() - self._transfers.loaded
        deployment, images = self._history.deployment, self._images(unfinished)
        # Only draft layers look ahead at images, and drafts delay no load.
        tells = images is None or deployment.has_draft_head
        tells = tells and not unfinished & self._scheduler.loading()
        parameters = {
            "drafts": about(deployment)["drafts"] if tells else None,
            "states": "mamba" if deployment.has_mamba else None,
            "images": images,
        }
        if (large := self._above_a_step(unfinished)) is not None:
            parameters = {"at_once": large}  # whatever else there is
        self._add(
            violation(
                Defect.of(Code.REQUEST_NEVER_FINISHES, way=how, **parameters),
                "requests that start-up allows are computed to their end",
                f"{', '.join(sorted(unfinished))} {what}",
            )
        )
        self.outcome.ended = "nothing more happens"

    def _images(self, names: Iterable[str]) -> str | None:
        """Whether some of the requests have images, and how these are computed."""
        encoder = self._history.deployment.encoder
        chunks = self._history.deployment.enable_chunked_prefill
        if self._kind in (SESSION, HOST) or not chunks:
            # Sessions and host pools have reasons of their own; whole prompts have whole images.
            return None
        if encoder is None or not any(map(self._images_ahead, names)):
            return None
        return "whole" if encoder.whole_images else "parts"

    def _images_ahead(self, name: str) -> tuple[Image, ...]:
        """The images of which a request has not computed the last token."""
        done = sum(next(reversed(self.outcome.lives[name].chunks), (0, 0)))
        images = self._history.requests[name].images
        return tuple(each for each in images if each.offset + each.length > done)

    def _above_a_step(self, names: Iterable[str]) -> str | None:
        """What some of the requests must compute at once, and no step plans as many tokens."""
        deployment, encoder = self._history.deployment, self._history.deployment.encoder
        most = deployment.max_num_scheduled_tokens
        if most is None:
            return None
        for name in names:
            if not deployment.enable_chunked_prefill and self._num_tokens(name) > most:
                return "prompt"
            whole = encoder is not None and encoder.whole_images
            if whole and any(each.length > most for each in self._images_ahead(name)):
                return "image"
        return None

    def _at_the_end(self) -> None:
        for name, arrival in self._history.requests.items():
            life = self.outcome.lives[name]
            due = list(arrival.output)
            if life.ended in ("aborted", "failed"):
                due = due[: len(life.delivered)]
            if life.delivered != due:
                self._add(
                    violation(
                        Defect(Code.DELIVERED_TOKENS_WRONG),
                        f"request {name} gets the tokens {due}",
                        f"it gets {life.delivered}",
                    )
                )
            elif life.ended == "finished":
                reason = "stop" if arrival.stop else "length"
                said = self._scheduler.told_ends().get(name, "nothing")
                if said != reason:
                    self._add(
                        violation(
                            Defect(Code.FINISH_REASON_WRONG),
                            f"the user of request {name} is told that it ends for {reason}",
                            f"the user is told {said}",
                        )
                    )
            if life.hit is not None and name in self._ended and name not in self._reported:
                self._add(_told("never", f"request {name}", "it is not reported"))
        # A load that fails, or that is no longer awaited, may be looked up again.
        uncounted = self._sessions or (self._transfers is not None and self._transfers.keeps)
        uncounted = uncounted or any(
            each.load_fails or each.invalid_blocks or (each.loads and each.aborted)
            for each in self._history.requests.values()
        )
        if self._tiers is None and not uncounted:
            self._judge_counts(None, self._scheduler.counted(), self._counted)
            # Who skips reading the cache is asked about, or not, and loads nothing.
            if not any(map(self._skips, self._history.requests)):
                counted_loads = self._scheduler.counted_loads()
                self._judge_counts("loads", counted_loads, self._counted_loads)
        fails = any(e.load_fails or e.invalid_blocks for e in self._history.requests.values())
        loads = self._kind == CONNECTOR and not fails
        if loads or self._kind == SCHEDULER:
            told = self._scheduler.told_cached()
            hits = {name: life.hit for name, life in self.outcome.lives.items() if life.delivered}
            for name, hit in hits.items() if loads else ():
                # The last token of a prompt that is loaded in whole is computed again.
                prompt = len(self._history.requests[name].prompt)
                if hit == prompt - 1 and told.get(name) == prompt:
                    hits[name] = prompt
            self._judge_counts("user", told, hits)
        counted_drafts = self._scheduler.verified()
        if (
            self._kind == SCHEDULER
            and self._verified is not None
            and counted_drafts not in (None, self._verified)
        ):
            drafts, accepted = self._verified
            self._add(
                violation(
                    Defect(Code.DRAFTS_COUNTED_WRONG),
                    f"statistics count {drafts} drafts, {accepted} of them accepted",
                    "they count {}, {} of them accepted".format(*counted_drafts),
                )
            )
        pool = self._scheduler.pool()
        if self._tiers is not None and pool.host is not None:
            for wrong in self._tiers.left(pool.host):
                self._add(wrong)
        keeps = self._transfers is not None and self._transfers.keeps
        if self._transfers is not None and keeps and not self._history.sessions:
            self._learn_all()
            offloaded = self._named(pool.offloaded)
            for wrong in self._transfers.left_out(self.outcome.lives, offloaded):
                self._add(wrong)
        for wrong in chunk_pool.left(pool):
            self._add(wrong)
        held = pool.held
        if held:
            self._add(_held(held))
        for where in sorted(self._scheduler.kept()):
            self._add(
                violation(
                    Defect.of(Code.FREED_REQUEST_KEPT, where=where),
                    "nothing is kept under the id of a request when all have ended",
                    f"{where} has an entry of one",
                )
            )
        encoder = self._history.deployment.encoder
        left = f"{', '.join(sorted(pool.encoded))} are" if pool.encoded else ""
        if encoder is not None and not left and not self._scheduler.may_encode(encoder.cache_size):
            left = f"an image of {encoder.cache_size} tokens, as large as the cache, finds no room"
        if left:
            self._add(
                violation(
                    Defect(Code.IMAGES_HELD_WHEN_IDLE),
                    "no encoded image is held when all requests have ended",
                    left,
                )
            )

    def _judge_counts(
        self, of: str | None, counted: Mapping[str, int] | None, due: Mapping[str, int | None]
    ) -> None:
        """What statistics count of lookups."""
        if counted is not None and counted != due:
            # What such a request has loaded leaves it where a new one is: nothing is computed.
            again = [
                n
                for n, each in self._history.requests.items()
                if each.loads == len(each.prompt) == 1
            ]
            more = counted.get("requests", 0) - (due.get("requests") or 0)
            self._add(
                violation(
                    Defect.of(
                        Code.STATISTICS_WRONG,
                        of=of,
                        after="load" if 0 < more <= len(again) else None,
                    ),
                    f"statistics count {dict(due)}",
                    f"they count {dict(counted)}",
                )
            )

    @property
    def _kind(self) -> str:
        if self._tiers is not None:
            return HOST
        if self._transfers is not None:
            return CONNECTOR
        return SESSION if self._sessions.have_begun else SCHEDULER

    def _add(self, wrong: Violation) -> None:
        """Record a violation; what follows one that leaves contents wrong may come from it.

        With a host's pool, a connector, or a session, what is wrong of the whole scheduler has a
        signature of its own. Sessions are promised no hits, and images are evicted for others.
        """
        code = wrong.signature.code
        promised = self._kind in (HOST, CONNECTOR)
        plain = code in _OF_NEITHER and (not promised or code is Code.IMAGE_ENCODED_AGAIN)
        if wrong.signature.kind == SCHEDULER and not plain:
            wrong = replace(wrong, signature=replace(wrong.signature, kind=self._kind))
        for known in self.outcome.findings:
            if known.signature == wrong.signature:
                known.again(wrong, self._step, "step")
                return
        cause = None
        if wrong.signature.divergence in _SPREADS:
            cause = next(
                (
                    each.signature
                    for each in self.outcome.causes
                    if each.signature.divergence in _SPREADS
                ),
                None,
            )
        self.outcome.findings.append(Occurrence(wrong, self._step, "step", cause=cause))


def _held(blocks: Collection[int]) -> Violation:
    return violation(
        Defect(Code.BLOCKS_HELD_WHEN_IDLE),
        "no block is held when all requests have ended",
        f"blocks {sorted(blocks)} are",
    )


def _read_though_skipping(admitted: Scheduled) -> Violation:
    return violation(
        Defect(Code.HIT_FOR_SKIPPING_REQUEST),
        f"request {admitted.request} skips reading the cache: all of its tokens are computed",
        f"it starts after {admitted.start} of them",
        # The test of a finding knows the first admission.
        Served(admitted.request, 0) if admitted.first else None,
    )


def _places(images: Iterable[Image]) -> str:
    return ", ".join(f"{each.identifier} at {each.offset}" for each in images) or "none"


def _told(how: str, who: str, actual: str) -> Violation:
    return violation(
        Defect.of(Code.END_REPORTED_WRONG, how=how), f"the end of {who} is reported once", actual
    )
