"""Traces of histories that were judged: the states, and why each finding is one.

The derivation of a finding is worked out from the state in which the spec was asked: of a lookup
from what was cached before its step, of anything else from what the step left.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hitproof.conformance.explain.reasons import Reason, in_words
from hitproof.conformance.explain.story import consequence, why
from hitproof.conformance.explain.traces import (
    Answer,
    Broken,
    Entry,
    State,
    Trace,
    TracedStep,
    changes,
    chosen,
    in_runs,
)
from hitproof.conformance.findings.evidence import (
    ConnectorEvidence,
    Evidence,
    LookupEvidence,
    MaskEvidence,
    RetentionEvidence,
)
from hitproof.conformance.findings.parts import Block, Key, Part, Table
from hitproof.conformance.findings.replayed import describe
from hitproof.conformance.findings.violations import Occurrence
from hitproof.conformance.histories.json_format import as_json
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies, Promises
from hitproof.conformance.playing.expectations import Held, LocalPrefix, Registered, Served
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.managers import ManagerSubject
from hitproof.conformance.words import count, in_tokens
from hitproof.spec.attention import attends
from hitproof.spec.groups import geometry
from hitproof.spec.mask import next_boundary

_MOST_PARTS = 6
_FEW = 40
_OF_LOOKUPS = "get_computed_blocks"


class States:
    """The states of a history as it is played, for `trace_of`.

    If the states take more than ``most`` entries of tables, keys and queues, only those are kept
    that `conformance.explain.traces.chosen` keeps of a long history.
    """

    def __init__(self, most: int = 500_000) -> None:
        self.start: State | None = None
        self.kept: list[Noted] = []
        self._most = most
        self._played = self._size = 0

    def __call__(self, state: State, breaks: bool) -> None:
        """Note a state: the first, then that after each step, which ``breaks`` something or not."""
        if self.start is None:
            self.start = self._before = state
            return
        changed = tuple(change.name for change in changes(self._before, state))
        noted = Noted(self._played, state, changed, breaks, self._before if breaks else None)
        self.kept.append(noted)
        self._before = state
        self._played += 1
        self._size += state.size
        if self._size > self._most:
            self.kept = chosen(self.kept, _FEW)
            self._size = sum(each.state.size for each in self.kept)


@dataclass(frozen=True)
class Noted:
    """A state that is kept.

    Attributes:
        number: the step that led to it, an index.
        state: the state.
        changed: the fields that the step changed.
        broken: whether something was found at the step for the first time.
        before: the state before such a step.
    """

    number: int
    state: State
    changed: tuple[str, ...]
    broken: bool
    before: State | None


def traced(
    history: History, subject: ManagerSubject, policies: JudgedPolicies | None = None
) -> tuple[ReplayOutcome, Trace]:
    """Replay a history, and the trace of it. Raises as `replay` does."""
    states = States()
    outcome = replay(history, subject, policies, noted=states)
    return outcome, trace_of(history, outcome, states, policies)


def trace_of(
    history: History, outcome: ReplayOutcome, states: States, policies: JudgedPolicies | None = None
) -> Trace:
    """The trace of a history whose ``states`` were noted when it was replayed."""
    derivations = _Derivations(history, policies or JudgedPolicies(), outcome)
    steps = as_json(history)["steps"]
    lookups: dict[int, list[Answer]] = {}
    for each in outcome.lookups:
        answer = Answer(request=each.request, due=each.due, served=each.served)
        lookups.setdefault(each.step, []).append(answer)
    assert states.start is not None
    return Trace(
        engine=describe(history.engine),
        start=states.start,
        steps=tuple(
            TracedStep(
                number=number,
                step=steps[number],
                # The step at which the history ended has none.
                deviation=outcome.steps[number] if number < len(outcome.steps) else outcome.ended,
                lookups=tuple(lookups.get(number, ())),
                changed=noted.changed,
                state=noted.state,
                broken=tuple(
                    derivations.broken(found, noted.before, noted.state)
                    for found in outcome.findings
                    if found.step == number and noted.before is not None
                ),
            )
            for noted in states.kept
            for number in [noted.number]
        ),
        ended=outcome.ended,
    )


class _Derivations:
    """Why the findings of one history are findings."""

    def __init__(self, history: History, policies: JudgedPolicies, outcome: ReplayOutcome) -> None:
        engine = history.engine
        policies = policies.on(engine)
        self._engine, self._requests, self._outcome = engine, history.requests, outcome
        self._groups = policies.groups(engine)
        self._promises = Promises(engine, history.requests, self._groups, policies)
        self._prefixes = Prefixes(
            history.requests, engine.hash_block_size, engine.num_hash_lookahead_tokens
        )
        self._fine = policies.fine(engine)
        self._steps = history.steps

    def broken(self, found: Occurrence, before: State, after: State) -> Broken:
        """A finding at its step, whose states are given."""
        signature = found.signature
        return Broken(
            claim=signature.claim,
            sentence=signature.sentence,
            divergence=signature.divergence,
            headline=signature.headline,
            code=str(signature.defect),
            call=found.call,
            follows_from=None if found.cause is None else found.cause.headline,
            because=tuple(dict.fromkeys(self._because(found, before, after))),
            spec=found.violation.spec,
            actual=found.violation.actual,
        )

    def _because(self, found: Occurrence, before: State, after: State) -> Iterator[Reason]:
        at_lookup = found.call.startswith(_OF_LOOKUPS)
        state, claim = before if at_lookup else after, found.signature.claim
        evidence = None if self._fine else self._evidence(found, state)
        if evidence is not None:
            for chapter in why(evidence):
                yield Reason(f"{chapter.title}:", claim)
                yield from chapter.reasons
            if isinstance(evidence, LookupEvidence):
                for chapter in consequence(evidence):
                    yield from chapter.reasons
            return
        if isinstance(expected := found.violation.expected, Held):
            yield self._read(expected, before, claim)
        violation = found.violation
        yield from self._entries_promised(found, claim)
        parts = dict.fromkeys(
            [*violation.damages, *(p for them in violation.evidence for p in them)]
        )
        facts = [fact for part in sorted(parts, key=_order) for fact in self._facts(part, state)]
        if not facts and (request := self._asks(found)):
            groups = range(len(self._groups))
            facts = [fact for group in groups for fact in self._found_by(request, group, state)]
        yield from (Reason(fact, claim) for fact in facts[:_MOST_PARTS])
        if len(facts) > _MOST_PARTS:
            yield Reason(f"and {count(len(facts) - _MOST_PARTS, 'fact')} more of this kind", claim)

    def _evidence(self, found: Occurrence, state: State) -> Evidence | None:
        """The finding as a check would show it, where one could."""
        match found.violation.expected:
            case Served(request) | LocalPrefix(request):
                return self._lookup(found, request, state)
            case Registered(request, group, block):
                return self._registered(found, request, group, block, state)
            case _:
                return None

    def _lookup(self, found: Occurrence, request: str, state: State) -> Evidence | None:
        if self._requests[request].skip_reading_prefix_cache:
            return None
        num_tokens = len(self._requests[request].prompt)
        if request in state.requests:
            num_tokens = state.requests[request].tokens
        engine = self._engine
        layout = Layout(
            self._groups, num_tokens, engine.use_eagle_block_drop, engine.hash_block_size
        )
        cached = tuple(
            frozenset.intersection(
                *(self._cached(request, group, num_tokens, state) for group in each.group_ids)
            )
            for each in layout.looked_up
        )
        expected = found.violation.expected
        assert isinstance(expected, Served | LocalPrefix)
        served = None
        if isinstance(expected, Served):
            answers = (
                each.served
                for each in self._outcome.lookups
                if (each.step, each.request) == (found.step, request)
            )
            served = next(answers, None)
        kind = LookupEvidence if isinstance(expected, Served) else ConnectorEvidence
        violation, most = found.violation, num_tokens - 1
        return kind(
            found.signature,
            layout,
            violation.spec,
            violation.actual,
            cached,
            most,
            expected.tokens,
            served,
        )

    def _registered(
        self, found: Occurrence, request: str, index: int, block: int, state: State
    ) -> Evidence | None:
        group, violation = self._groups[index], found.violation
        num_tokens = state.requests[request].tokens
        num_blocks = max(num_tokens // group.block_size, block + 1)
        alignment, unit = self._engine.alignment, self._engine.hash_block_size
        one = Configuration(1, num_blocks, alignment, group, unit)
        held = self._cached(request, index, num_tokens, state)
        about = found.signature, one, violation.spec, violation.actual
        interval = self._engine.retention_interval
        if interval is None or not self._promises.is_retained(group):
            return MaskEvidence(*about, (state.requests[request].computed,), held, block)
        end = next_boundary(geometry(group, alignment), block)
        if block not in held:
            # Which prefix was seen to be shared is not in the state.
            ends = self._promises.promised(request, index, block)
            if not ends:
                return None
            end = min(ends.values())
        decisive = end * group.block_size
        return RetentionEvidence(*about, num_tokens, interval, held, block, decisive)

    def _cached(self, request: str, group: int, num_tokens: int, state: State) -> frozenset[int]:
        """The blocks of a request's tokens, by position, that a group has cached."""
        size = self._engine.groups[group].block_size
        named = {entry.prefix for entry in state.cached if entry.group == group}
        return frozenset(
            block
            for block in range(num_tokens // size)
            if self._prefixes.name(request, (block + 1) * size) in named
        )

    def _asks(self, found: Occurrence) -> str | None:
        """The request of a finding's step, if there is one."""
        return getattr(self._steps[found.step], "request", None)

    def _entries_promised(self, found: Occurrence, claim: str) -> Iterator[Reason]:
        """Which entries inside blocks a promised hit of the step's request takes."""
        who, request = dict(found.signature.defect.parameters).get("hit"), self._asks(found)
        if not self._fine or request is None:
            return
        for group in range(len(self._groups)):
            ends = self._promises.entries_inside(request, group).get(str(who))
            if ends:
                tokens = str(ends[0]) if len(ends) == 1 else f"{ends[0]} to {ends[-1]}"
                yield Reason(
                    f"a hit of the {who} of request {request} ends at token "
                    f"{self._promises.tail(request)}; of group {group} it takes an entry at token "
                    f"{tokens}",
                    claim,
                )

    def _read(self, held: Held, before: State, claim: str) -> Reason:
        """Which blocks the request's next token reads."""
        group, size = self._groups[held.group], self._groups[held.group].block_size
        what = group.kind.replace("_", " ")
        window = f" of {in_tokens(group.window)}" if group.window else ""
        window = f" of chunks of {in_tokens(group.chunk)}" if group.chunk else window
        text = (
            f"group {held.group} is {what}{window}, block size {size}: what the step of request "
            f"{held.request} reads starts in block {held.first}"
        )
        standing = before.requests.get(held.request)
        query = None if standing is None else standing.computed
        if query is not None and attends(query, held.first * size, group.window, group.chunk):
            text += f", as token {query} attends to token {held.first * size}"
        return Reason(text, claim)

    def _facts(self, part: Part, state: State) -> Iterator[str]:
        """What a state has on a part of it."""
        match part:
            case Block(block) if block:
                yield self._block(block, state)
            case Table(request, group):
                if request in state.tables:
                    table = ", ".join(in_runs(state.tables[request][group]))
                    yield f"block table of {request}, group {group}: {table or 'empty'}"
                else:
                    yield from self._found_by(request, group, state)
            case Key(name):
                found = [entry for entry in state.cached if entry.prefix == name]
                yield from (f"{name} finds {_found(entry)}" for entry in found)
                if not found:
                    yield f"{name} finds no block"

    def _found_by(self, request: str, group: int, state: State) -> Iterator[str]:
        """The blocks that the keys of a request find."""
        unit, num_tokens = self._engine.hash_block_size, len(self._requests[request].token_ids)
        ends = range(unit, num_tokens + 1, unit)
        names = {self._prefixes.name(request, end) for end in ends}
        for entry in state.cached:
            if entry.group == group and entry.prefix in names:
                yield f"{entry.prefix} finds {_found(entry)}"

    @staticmethod
    def _block(block: int, state: State) -> str:
        places = [
            f"{request} (group {group}, position {table.index(block)})"
            for request, tables in state.tables.items()
            for group, table in enumerate(tables)
            if block in table
        ]
        keys = [
            f"{entry.prefix} (group {entry.group})"
            for entry in state.cached
            if block in entry.blocks
        ]
        queued = any(min(run) <= block <= max(run) for run in state.free_queue)
        return (
            f"block {block}: reference count {state.ref_counts.get(block, 0)}, "
            f"in {'the table of ' + ', '.join(places) if places else 'no table'}, "
            f"{'in' if queued else 'not in'} the free queue, "
            f"{'registered as ' + ', '.join(keys) if keys else 'not registered'}"
        )


def _found(entry: Entry) -> str:
    return f"{in_words(entry.blocks)} in group {entry.group}"


def _order(part: Part) -> tuple[str, str]:
    return type(part).__name__, repr(part)
