"""What vLLM counts of requests, proved for all sizes: blocks that they lack, and replays."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import Predates
from hitproof.proofs.unbounded.admitting import (
    CAPS,
    REQUEST,
    AnyAdmission,
    AnyReplay,
    blocks_missing,
    resumes_at,
)
from hitproof.proofs.unbounded.proving import Statement
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Record
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.inspection import (
    arguments,
    attribute,
    parameters_of,
    spelled,
)
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.settling import (
    Departure,
    OfManager,
    Settling,
    Shown,
    Trial,
    called,
    limited,
)

_ASK, _SKIPPED = "get_num_blocks_to_allocate", "get_num_skipped_tokens"
_EVICTABLE, _LOCAL = "_get_num_evictable_blocks", "num_local_computed_tokens"
_REPLAY = "replay_boundaries"


class Admitting(OfManager):
    """How many blocks a request asks for: one that runs or a new one, up to a cap or not."""

    method = _ASK

    def __init__(self, subject: VllmSubject, kind: GroupKind) -> None:
        super().__init__(subject, kind)
        self._in_blocks = _LOCAL not in parameters_of(self._function)

    def _called(
        self, end: Any, computed: Any, local: Any, found: Any, applies: bool
    ) -> dict[str, Any]:
        """The arguments of a call."""
        values = {
            "request_id": REQUEST,
            "num_tokens": end,
            "new_computed_blocks": found,
            "total_computed_tokens": computed,
            _LOCAL: local,
            "num_tokens_main_model": end,
            "apply_admission_cap": applies,
            "prefill_end": 0,
        }
        return self._given(values)

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any request."""
        del known
        any_ = AnyAdmission(here, self._in_blocks)
        read = partial(self._called, any_.end, any_.computed, any_.local)
        return Statement(
            called,
            {"function": any_.ask(self._function, self._manager, self._spec(), read)},
            (),
            any_.conclusions,
            sizes=any_.sizes,
            contracts={
                attribute(self._manager, _SKIPPED): any_.get_num_skipped_tokens(),
                attribute(self._manager, _EVICTABLE).__func__: any_.get_num_evictable_blocks(),
            },
        )

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Requests for which a real manager asks for too many blocks, or too few."""
        chance, parts = trial.chance, self._parts
        for _ in range(trial.tries // 10):
            size, held = chance.randint(1, 4), chance.randint(0, 6)
            runs, applies = chance.random() < 0.3, chance.random() < 0.5
            number = 0 if runs else chance.randint(0, 6)
            group = limited(self._kind, size, chance.randint(2, 9))
            configuration = Configuration(1, held + number, size, group, size)
            pool = parts.pool(configuration)
            manager = parts.manager(self._manager, configuration, pool)
            manager.req_to_blocks[REQUEST] = pool.get_new_blocks(held)
            if runs:
                manager.num_cached_block[REQUEST] = held
            found = pool.get_new_blocks(number)
            pool.free_blocks([block for block in found if chance.random() < 0.5])
            local = (held + number) * size - (chance.randrange(size) if number else 0)
            computed, end = local + chance.randint(0, 9), local + chance.randint(0, 30)
            cap = chance.choice([None, chance.randint(0, 9)])
            for name in CAPS:
                if hasattr(manager, name):
                    setattr(manager, name, cap)
            asked = getattr(manager, _ASK)(**self._called(end, computed, local, found, applies))
            skipped = 0 if runs else getattr(manager, _SKIPPED)(computed)
            due = blocks_missing(end, skipped, held + number, size, cap if applies else None)
            due += sum(not block.ref_cnt for block in found[max(skipped // size - held, 0) :])
            if number and not self._in_blocks:
                due += local % size > 0
            if asked != due:
                told = f"{end} tokens, {computed} of them computed; {held} blocks held"
                yield Shown(f"{group}, {told}, {number} found: {asked} are asked for, not {due}")


class Replaying(Settling):
    """The boundaries of a prompt at which replays resume."""

    def __init__(self, subject: VllmSubject, eagle: bool) -> None:
        self._subject, self._eagle = subject, eagle
        coordinators = subject.parts.coordinators
        self._of_instances = not hasattr(coordinators, _REPLAY)
        self._base = attribute(coordinators, "KVCacheCoordinator")
        name = f"get_{_REPLAY}" if self._of_instances else _REPLAY
        of = self._base if self._of_instances else coordinators
        self._function: Any = getattr(of, name, None)
        if self._function is None:
            raise Predates(f"the target has no {_REPLAY}")

    def _called(self, tokens: Any, alignment: Any) -> dict[str, Any]:
        """The arguments of a call."""
        values = {
            "num_prompt_tokens": tokens,
            "scheduler_block_size": alignment,
            "use_eagle": self._eagle,
        }
        return spelled(self._function, arguments(self._function, values, _REPLAY))

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any prompt."""
        del known
        any_ = AnyReplay(here, self._eagle)
        if self._of_instances:
            groups = {"eagle_group_ids": (0,) if self._eagle else ()}
            own = Record(self._base, groups | {"scheduler_block_size": any_.alignment})
            request = Record(
                self._subject.parts.requests.Request, {"num_prompt_tokens": any_.num_prompt_tokens}
            )
            given: dict[str, Any] = {"self": own, "request": request}
        else:
            given = self._called(any_.num_prompt_tokens, any_.alignment)
        return Statement(self._function, given, (), any_.conclusions, sizes=any_.sizes)

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Prompts for which other boundaries are promised."""
        chance = trial.chance
        for _ in range(trial.tries // 10):
            tokens, alignment = chance.randint(1, 40), chance.randint(1, 9)
            if self._of_instances:
                group = Group(GroupKind.FULL_ATTENTION, alignment, None, False)
                layout = Layout((group,), 1, self._eagle, alignment)
                coordinator = self._subject.lookup(layout).inputs[0]
                request = self._subject.parts.request(tokens, alignment)
                found = getattr(coordinator, f"get_{_REPLAY}")(request)
            else:
                found = self._function(**self._called(tokens, alignment))
            due = set(resumes_at(tokens, alignment, self._eagle))
            if {each // alignment * alignment for each in found} != due:
                yield Shown(f"{tokens} tokens, alignment {alignment}: {found}, not {sorted(due)}")
