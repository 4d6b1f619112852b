"""The model runner: what each step of a scheduler reads and writes, from its plans alone.

It keeps what vLLM's model runner keeps: block tables to which it appends, the tokens that it has
sampled, and the pages (`conformance.judge.content`). Where several steps are in flight, a step
may be planned before drafts of the last one are known to be wrong; it starts where they went wrong.
vLLM: ``_update_states`` and ``execute_model`` of ``GPUModelRunner``.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Deployment
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_store import INVALID_LOAD
from hitproof.conformance.playing.expectations import Expected
from hitproof.conformance.scheduling.host_tiers import HostTiers
from hitproof.conformance.scheduling.transfers import ConnectorTransfers, Touched
from hitproof.conformance.subject.managers import Tables
from hitproof.conformance.subject.schedulers import (
    HostResult,
    Loading,
    Masks,
    Plan,
    PoolState,
    Scheduled,
)
from hitproof.spec.attention import attends
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind

SCHEDULER = "scheduler"
"""What is judged, where it is a whole scheduler, whatever groups it has."""


def violation(
    defect: Defect, spec: str, actual: str, expected: Expected | None = None
) -> Violation:
    """Where a whole scheduler is wrong, whatever groups it has."""
    return Violation.of(SCHEDULER, defect, spec, actual, expected)


def exceeds(limit: str, spec: str, actual: str) -> Violation:
    """A step that goes past a limit of the deployment."""
    return violation(Defect.of(Code.STEP_EXCEEDS_LIMIT, limit=limit), spec, actual)


def about(deployment: Deployment) -> dict[str, str | None]:
    """The parameters of defects that say how a deployment's steps are planned."""
    method: dict[str | None, str] = {"draft_model": "model", "ngram": "ngram"}
    drafts = method.get(deployment.speculative_method)
    if deployment.has_draft_head:
        drafts = "several-modules" if deployment.num_mtp_modules > 1 else "head"
    return {"drafts": drafts, "scheduling": "async" if deployment.async_scheduling else None}


@dataclass
class _Request:
    """What the model runner keeps of a request."""

    tables: Tables
    proposed: int = 0
    valid: int = 0
    """Of the proposed drafts, those that its grammar accepts."""
    written_from: int = 0
    """Tokens before it are computed again for windows outside the prefix cache alone."""


class Constrained(NamedTuple):
    """A request with a grammar, as a step is about to sample for it."""

    output: int
    """How many output tokens it has."""
    drafts: int
    """How many drafts the step verifies."""
    valid: int
    """How many of them the grammar accepts."""


class _Name(NamedTuple):
    """A place in a block table."""

    request: str
    group: int
    place: int

    def __str__(self) -> str:
        return f"request {self.request}, group {self.group}, block {self.place} of its table"


@dataclass(frozen=True)
class Done:
    """The result of a step: tokens and drafts of each request, and what workers report."""

    sampled: dict[str, list[int]]
    drafts: dict[str, list[int]]
    host: HostResult | None = None
    misread: dict[str, Violation] = field(default_factory=dict)
    """What requests read of failed loads: wrong if their users get the tokens."""
    valid: dict[str, int] = field(default_factory=dict)
    """How many of the drafts the grammars accept."""
    verified: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many drafts were verified that grammars accept, and how many of them were right."""


class ModelRunner:
    """Runs the plans of one scheduler; pure bookkeeping, with the content of each page.

    ``about`` has the parameters of defects that say how steps are planned (`about`), ``tiers`` are
    the pages of a host's pool, ``transfers`` those that a KV connector loads or sends,
    ``precisions`` those of the groups, where they differ, ``replayed`` the window outside the
    prefix cache that is computed again after a hit, 0 for none, ``fences`` whether what a step in
    flight uses is held until its results are processed, since a load may take what is free.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        arrivals: Mapping[str, Arrival],
        content: ContentModel,
        about: Mapping[str, str | None],
        tiers: HostTiers | None = None,
        transfers: ConnectorTransfers | None = None,
        precisions: Sequence[str] = (),
        replayed: int = 0,
        fences: bool = False,
    ) -> None:
        self._engine = engine
        self._fences = fences
        self._replayed = replayed
        self._precisions = precisions or [""] * len(engine.groups)
        self._tiers = tiers
        self._transfers = transfers
        self._in_flight: deque[frozenset[int]] = deque()
        self._arrivals = arrivals
        self._content = content
        self._about = about
        self._requests: dict[str, _Request] = {}
        self._sampled: dict[str, int] = {}
        self._verifying: dict[str, int] = {}
        self._proposing: dict[str, int] = {}
        self._before: dict[str, str] = {}
        """Of each input of a session the one before."""
        last: dict[str, str] = {}
        for name, each in arrivals.items():
            if each.session is not None:
                if each.session in last:
                    self._before[name] = last[each.session]
                last[each.session] = name

    def execute(self, plan: Plan, pool: PoolState) -> tuple[Done, list[Violation]]:
        """Run one step, until it samples; ``pool`` is what was held when it was planned."""
        held = pool.held
        self._content.new_step_starts()
        if self._transfers is not None:
            self._transfers.flush(plan)
        for block in plan.zeroed or ():
            self._content.store.zero(block)
        wrong = list(self._given(plan)) if self._tiers is None else []
        for name in (*plan.finished, *plan.preempted):
            self._forget(name)
        for source, target in plan.copies:
            self._content.copy(source, target)
        for each in plan.scheduled:
            self._take_up(each)
        wrong += [*self._written_once(plan), *self._in_use(plan, held)]
        ranges = {each.request: self._range(each) for each in plan.scheduled}
        if self._tiers is not None:
            ids = pool.host.cached.values() if pool.host is not None else ()
            registered = frozenset(block for of_key in ids for block in of_key)
            wrong += self._tiers.start(plan, ranges, held, registered)
        if self._transfers is not None:
            touched = self._touched(plan)
            before = frozenset[int]().union(*self._in_flight)
            wrong += self._transfers.start(plan, touched, before, held, self._known)
            wrong += self._left_in_flight(before - held)
            wrong += self._handed(plan)
            self._in_flight.append(touched.used)
        of_loads: dict[str, Violation] = {}
        for each in plan.scheduled:
            start, num_tokens = ranges[each.request]
            known, tables = self._known(each.request), self._requests[each.request].tables
            self._content.planned(each.request, each.start)
            if each.request in plan.state_columns:
                column = plan.state_columns[each.request]
                self._content.finds_states(each.request, tables, column)
            for misread in self._content.compute(each.request, tables, start, num_tokens, known):
                if self._transfers is not None and _is_of_load(misread):
                    of_loads.setdefault(each.request, misread)
                else:
                    wrong.append(misread)
            if plan.zeroed is not None and self._tiers is None:  # these fill what they take
                wrong += self._unzeroed(each)
            unknown = self._taken_from_load(each)
            if unknown is not None:
                of_loads.setdefault(each.request, unknown)
            if each.request in of_loads:
                end = start + num_tokens
                self._content.spoil(each.request, tables, start, end, INVALID_LOAD)
        host = None
        if self._tiers is not None:
            host, misreads = self._tiers.finish(plan, ranges, self._load)
            wrong += misreads
        elif self._transfers is not None:
            self._transfers.spoilt.update(of_loads)
            host = self._transfers.finish(self._known)
        return Done({}, {}, host, of_loads), wrong

    def sample(self, plan: Plan, done: Done, masks: Mapping[str, Masks]) -> list[Violation]:
        """Sample the tokens of a step that ran, under the ``masks`` of grammars, into ``done``.

        Returns what is wrong where drafts are proposed after it.
        """
        wrong = [
            each_wrong
            for each in plan.scheduled
            for each_wrong in self._sample(
                each, done, not plan.skips_drafts, masks.get(each.request)
            )
        ]
        if self._transfers is not None:
            self._transfers.sampled()
        return wrong

    def constrained(self, plan: Plan) -> dict[str, Constrained]:
        """The requests with grammars for which a step is about to sample."""
        found = {}
        for each in plan.scheduled:
            name, known = each.request, self._known(each.request)
            end = sum(self._range(each))
            if self._arrivals[name].grammar_steps is not None and end >= known:
                request, past = self._requests[name], end - known
                output = known - len(self._arrivals[name].prompt)
                found[name] = Constrained(
                    output, min(past, request.proposed), min(past, request.valid)
                )
        return found

    def taken_up(self, done: Done, delivered: Mapping[str, Sequence[int]]) -> Iterator[Violation]:
        """The oldest step's results are processed: users get what was ``delivered``.

        A request that got nothing of what was sampled has to sample it again.
        """
        if self._transfers is None:
            return
        self._in_flight.popleft()
        if done.host is not None:
            self._transfers.taken_up(done.host)
        for name, misread in done.misread.items():
            if delivered.get(name):
                yield self._delivered_of_load(name, misread)
        for name, tokens in done.sampled.items():
            if not delivered.get(name):
                self._sampled[name] = max(0, self._sampled.get(name, 0) - len(tokens))

    def start_again(self, delivered: Mapping[str, int]) -> None:
        """Requests start again, from their prompts and the tokens that users have by now.

        What steps in flight have sampled is sampled again.
        """
        self._sampled.update(delivered)

    def _taken_from_load(self, scheduled: Scheduled) -> Violation | None:
        """Whether a step computes a token that came of a failed load, and was not delivered."""
        name = scheduled.request
        if self._transfers is None or not self._transfers.spoils(name):
            return None
        known, end = self._known(name), sum(self._range(scheduled))
        padding = scheduled.num_drafts if scheduled.whole else 0
        if end <= known + max(self._requests[name].proposed, padding):
            return None
        return violation(
            Defect.of(Code.FAILED_LOAD_DELIVERED, of="own", policy=self._transfers.policy),
            f"request {name}: {known} tokens are known, and no more are computed",
            f"token {known} is, which was sampled from a failed load",
        )

    def _delivered_of_load(self, name: str, misread: Violation) -> Violation:
        assert self._transfers is not None
        defect = Defect.of(
            Code.FAILED_LOAD_DELIVERED,
            of="own" if self._transfers.fails(name) else "other",
            policy=self._transfers.policy,
            scheduling=self._about["scheduling"],
        )
        return violation(defect, f"{misread.spec}, before its user gets a token", misread.actual)

    def _handed(self, plan: Plan) -> Iterator[Violation]:
        """What is sent of a request are the blocks of the tokens that were computed of it."""
        sends = plan.transfers.sends if plan.transfers is not None else {}
        for name, handed in sends.items():
            computed = self._known(name) - 1
            # What a step in flight computes behind the end may be handed, or not.
            ahead = self._about["scheduling"] is not None
            for index, group in enumerate(self._engine.groups):
                due = -(-computed // group.block_size)
                less = group.kind is GroupKind.FULL_ATTENTION and len(handed[index]) < due
                more = group.kind is not GroupKind.MAMBA and len(handed[index]) > due
                if less or (more and not ahead):
                    yield violation(
                        Defect(Code.HANDED_BLOCKS_WRONG),
                        f"request {name}: the {due} blocks of group {index} are sent that its "
                        f"{computed} tokens fill",
                        f"{len(handed[index])} are",
                    )

    def _given(self, plan: Plan) -> Iterator[Violation]:
        """The blocks that a connector is given at the end of a request are those of its tables."""
        ended = {call.request: call.tables for call in plan.told or () if call.what == "end"}
        for name in ended.keys() & self._requests.keys() - {*plan.preempted}:
            for index, table in enumerate(self._requests[name].tables):
                for place, (own, given) in enumerate(zip(table, ended[name][index], strict=False)):
                    if given not in (0, own):
                        yield violation(
                            Defect(Code.HANDED_BLOCKS_WRONG),
                            f"{_Name(name, index, place)}: a connector is given block {own} at its "
                            "end",
                            f"it is given block {given}",
                        )
                        break

    def _touched(self, plan: Plan) -> Touched:
        used = {block for pair in plan.copies for block in pair}
        written = {target for _, target in plan.copies}
        for each in plan.scheduled:
            start, num_tokens = self._range(each)
            repairs = self._transfers is not None and self._transfers.spoils(each.request)
            for _, group, table in self._cached_tables(each):
                first = self._first_written(each.request, start) // group.block_size
                for place in needed(group, start, start + num_tokens):
                    if block := _at(table, place):
                        used.add(block)
                        # Who computes shared blocks again writes the same.
                        if place >= first and not repairs:
                            written.add(block)
        return Touched(frozenset(used), frozenset(written))

    def _first_written(self, name: str, start: int) -> int:
        """The first token of which a step from ``start`` on writes to groups that are cached."""
        return max(start, self._requests[name].written_from)

    def _load(self, name: str, loading: Loading) -> None:
        """A connector wrote what a request waits for."""
        known = self._known(name)
        self._content.load(name, loading.tables, loading.start, loading.end, known)

    def _forget(self, name: str) -> None:
        self._requests.pop(name, None)
        self._content.free(name)

    def _take_up(self, scheduled: Scheduled) -> None:
        name = scheduled.request
        if scheduled.whole or name not in self._requests:
            if self._transfers is None or not self._transfers.waited(name):
                self._content.free(name)
            before = self._before.get(name)
            if before is not None and before in self._requests:
                del self._requests[before]
                self._content.go_on(before, name, scheduled.blocks, scheduled.start)
            self._requests[name] = _Request(scheduled.blocks)
            if scheduled.replay_start:
                start, end = scheduled.replay_start, scheduled.replay_start + self._replayed
                self._content.replay(name, range(start, end))
                self._requests[name].written_from = end
            return
        request = self._requests[name]
        request.tables = tuple(
            (*had, *more) for had, more in zip(request.tables, scheduled.blocks, strict=True)
        )

    def _known(self, name: str) -> int:
        return len(self._arrivals[name].prompt) + self._sampled.get(name, 0)

    def _range(self, scheduled: Scheduled) -> tuple[int, int]:
        """Where the step really starts, and how many tokens it computes."""
        return min(scheduled.start, self._known(scheduled.request) - 1), scheduled.num_tokens

    def _sample(
        self, scheduled: Scheduled, done: Done, drafts: bool, masks: Masks | None
    ) -> Iterator[Violation]:
        """Sample the tokens that the script has, and propose drafts if any are wanted."""
        name, arrival = scheduled.request, self._arrivals[scheduled.request]
        request, known = self._requests[name], self._known(name)
        start, num_tokens = self._range(scheduled)
        end = start + num_tokens
        if end < known:
            self._content.settle(name, end, drafts)
            return
        output = arrival.sampled[known - len(arrival.prompt) :]
        verified, accepted = min(end - known, request.proposed), 0
        if verified:
            turn = self._verifying.get(name, 0)
            self._verifying[name] = turn + 1
            wanted = arrival.accepted[turn % len(arrival.accepted)] if arrival.accepted else 0
            most = verified if masks is None else masks.acceptable
            accepted = max(0, min(wanted, verified, request.valid, most, len(output) - 1))
            done.verified[name] = min(verified, request.valid), accepted
        # A step in flight when a request ends samples what is not delivered.
        done.sampled[name] = list(output[: 1 + accepted]) or [0]
        self._sampled[name] = self._sampled.get(name, 0) + len(output[: 1 + accepted])
        request.proposed = self._engine.num_speculative_tokens if drafts else 0
        request.valid = request.proposed
        if request.proposed:
            upcoming = [*output[1 + accepted :], *([0] * request.proposed)]
            done.drafts[name] = upcoming[: request.proposed]
            if arrival.valid_drafts:
                turn = self._proposing.get(name, 0)
                self._proposing[name] = turn + 1
                valid = arrival.valid_drafts[turn % len(arrival.valid_drafts)]
                request.valid = min(request.proposed, valid)
                done.drafts[name][request.valid :] = [arrival.rejected] * (
                    request.proposed - request.valid
                )
            done.valid[name] = request.valid
        self._content.settle(name, known + accepted, drafts)
        if request.proposed and self._engine.num_lookahead_tokens:
            yield from self._drafted(scheduled, known + accepted)

    def _drafted(self, scheduled: Scheduled, known: int) -> Iterator[Violation]:
        """Passes of draft layers after the first write an entry each, behind what is ``known``."""
        end = min(known + self._engine.num_speculative_tokens - 1, self._engine.max_model_len)
        flagged = any(group.eagle for group in self._engine.groups)
        for index, group, table in self._cached_tables(scheduled):
            if group.kind is GroupKind.MAMBA or group.eagle < flagged:
                continue
            for place in range(known // group.block_size, -(-end // group.block_size)):
                if not _at(table, place):
                    defect = Defect.of(Code.NULL_PAGE_WRITTEN, of="drafts")
                    yield Violation(
                        Signature.booked(defect, Divergence.WRONG_DRAFTS, SCHEDULER, False),
                        f"{_Name(scheduled.request, index, place)}: drafts behind token "
                        f"{known - 1} are proposed in a page of its own",
                        "the null page" if place < len(table) else "its table ends before it",
                    )
                    return

    # --- what no step may do -----------------------------------------------------------------

    def _written_once(self, plan: Plan) -> Iterator[Violation]:
        """No page is written through two names in one step, and never the null page."""
        writers: dict[int, _Name] = {}
        users: dict[int, set[tuple[int, int]]] = {}
        for scheduled in plan.scheduled:
            start, num_tokens = self._range(scheduled)
            for index, group, table in self._cached_tables(scheduled):
                last = (start + num_tokens - 1) // group.block_size
                first = self._first_written(scheduled.request, start) // group.block_size
                first = last if group.kind is GroupKind.MAMBA else first
                for place in needed(group, start, start + num_tokens):
                    block, name = _at(table, place), _Name(scheduled.request, index, place)
                    if block:
                        users.setdefault(block, set()).add((index, place))
                    if place < first:
                        continue
                    if not block:
                        yield violation(
                            Defect(Code.NULL_PAGE_WRITTEN),
                            f"{name}: a page of its own is written",
                            "the null page" if place < len(table) else "its table ends before it",
                        )
                    elif writers.setdefault(block, name) != name and not self._is_repaired(
                        name, writers[block]
                    ):
                        yield violation(
                            Defect(Code.PAGE_WRITTEN_TWICE),
                            f"{name}: block {block} is written by nobody else in the step",
                            f"it is written as {writers[block]}, too",
                        )
        for block, name in writers.items():
            if others := users[block] - {(name.group, name.place)}:
                group_index, place = min(others)
                yield violation(
                    Defect(Code.PAGE_WRITTEN_TWICE),
                    f"{name}: block {block} has no other place while it is written",
                    f"it is block {place} of a table of group {group_index}, too",
                )

    def _is_repaired(self, one: _Name, other: _Name) -> bool:
        """Whether both compute a block again that they share, whose load has failed."""
        loads, same = self._transfers, (one.group, one.place) == (other.group, other.place)
        both = loads is not None and loads.spoils(one.request) and loads.spoils(other.request)
        return same and both

    def _in_use(self, plan: Plan, held: frozenset[int]) -> Iterator[Violation]:
        """What a step reads or writes is held until it ran, drafts in flight or not.

        A device runs its steps in order; a load is in no order with them.
        """
        unordered = self._transfers is not None and self._about["scheduling"] is not None
        for source, _ in plan.copies if unordered else ():
            if source not in held:
                yield violation(
                    Defect.of(Code.PAGE_FREED_IN_FLIGHT, **self._about),
                    f"block {source} is held until the step that copies it has run",
                    "it is free, and a load may take it",
                )
        for scheduled in plan.scheduled:
            start, num_tokens = self._range(scheduled)
            for index, group, table in self._cached_tables(scheduled):
                for place in needed(group, start, start + num_tokens):
                    block = _at(table, place)
                    if block and block not in held:
                        yield violation(
                            Defect.of(Code.PAGE_FREED_IN_FLIGHT, **self._about),
                            f"{_Name(scheduled.request, index, place)}: it is held while tokens "
                            f"from {start} on are computed",
                            f"block {block} is free",
                        )
                        break

    def _left_in_flight(self, free: frozenset[int]) -> Iterator[Violation]:
        """What steps in flight use is held, where loads are in no order with them."""
        if free and self._fences:
            yield violation(
                Defect.of(Code.PAGE_FREED_IN_FLIGHT, **self._about),
                f"block {min(free)} is held until the results of the step in flight that uses it "
                "are processed",
                "it is free, and a load may take it",
            )

    def _unzeroed(self, scheduled: Scheduled) -> Iterator[Violation]:
        """Attention reads no block in part of which another group has left another format.

        Kernels read whole blocks, and weigh what is not computed yet by 0: that leaves what is not
        a number as it is.
        """
        start, num_tokens = self._range(scheduled)
        for index, group, table in self._cached_tables(scheduled):
            if group.kind is GroupKind.MAMBA:
                continue
            for place in needed(group, start, start + num_tokens):
                block = _at(table, place)
                for other in sorted(self._content.store.under(block, group.block_size)):
                    state = self._engine.groups[other].kind is GroupKind.MAMBA
                    if not state and self._precisions[other] == self._precisions[index]:
                        continue
                    yield violation(
                        Defect.of(
                            Code.PAGE_NOT_ZEROED,
                            of="state" if state else "precision",
                            reader=None if group.kind is GroupKind.FULL_ATTENTION else "local",
                        ),
                        f"{_Name(scheduled.request, index, place)}: block {block} was zeroed since "
                        f"group {other} wrote into it, as it is not full yet",
                        "it was not",
                    )
                    return

    def _cached_tables(self, scheduled: Scheduled) -> Iterator[tuple[int, Group, tuple[int, ...]]]:
        """The groups that take part in prefix caching, with the request's tables."""
        tables = self._requests[scheduled.request].tables
        for index, (group, table) in enumerate(zip(self._engine.groups, tables, strict=True)):
            if group.prefix_cacheable:
                yield index, group, table


def _is_of_load(misread: Violation) -> bool:
    """Whether what is read wrong is of a load that has failed."""
    return dict(misread.signature.defect.parameters).get("of") == "invalid-load"


def _at(table: tuple[int, ...], place: int) -> int:
    """The block there; 0, the null page, past the table's end."""
    return table[place] if place < len(table) else 0


def needed(group: Group, start: int, end: int) -> list[int]:
    """The places in a table that a step from ``start`` to ``end`` reads or writes."""
    size = group.block_size
    last = (end - 1) // size
    if group.kind is GroupKind.MAMBA:
        return [last]
    return [
        place
        for place in range(last + 1)
        if attends(start, min((place + 1) * size - 1, start), group.window, group.chunk)
    ]
