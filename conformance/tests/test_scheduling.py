"""Each clause of whole schedulers, on a small scheduler that is right and on broken ones."""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import pytest

from hitproof.conformance.explain.derivation import Derived
from hitproof.conformance.histories.schema import (
    Embeddings,
    EngineConfiguration,
    HistoryError,
    Image,
)
from hitproof.conformance.histories.workload_json import read_workload, write_workload
from hitproof.conformance.histories.workloads import (
    Arrival,
    Deployment,
    Encoder,
    Pause,
    Reset,
    SchedulerHistory,
)
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.scheduling.outcome import SchedulerOutcome
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.scheduling.promises import Donor, PromisedHits
from hitproof.conformance.subject.schedulers import (
    COUNTED,
    HostResult,
    Masks,
    Plan,
    PoolState,
    Scheduled,
    StartupRefused,
    WasReset,
)
from hitproof.conformance.tests.editing import CASES, cases, history_of
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import FineTail, HitGranularity

SIZE = 4
TABLES = tomllib.loads((CASES / "scheduling.toml").read_text("utf-8"))
PLAYED = {name: (history_of(row, TABLES), row) for name, row in TABLES["played"].items()}
PLAIN, _ = PLAYED["ranks share blocks"]
REQUESTS = PLAIN.requests
DEPLOYMENT = replace(PLAIN.deployment, decode_context_parallel_size=1)
INPUTS = PLAYED["a session"][0].requests


@dataclass
class _Row:
    arrival: Arrival
    table: list[int] = field(default_factory=list)
    computed: int = 0
    known: int = 0
    seen: bool = False
    again: bool = False


@dataclass
class Small:
    """One request a step, in turn; blocks in order, hits on whole blocks of the prompt."""

    deployment: Deployment
    fault: str = ""
    batches: int = 1
    drafting_slots: int = 0
    spares_lone_prompts: bool = True
    reserves_blocks: bool = False
    fences_steps: bool = False
    derived: Derived | None = None

    def __post_init__(self) -> None:
        d = self.deployment
        size = SIZE * d.decode_context_parallel_size
        groups = tuple(replace(group, block_size=size) for group in d.groups)
        self.engine = EngineConfiguration(
            groups, d.num_gpu_blocks, size, d.max_model_len, d.max_num_batched_tokens
        )
        self._size = size
        # Counting the ranks once more takes too few blocks.
        more = d.decode_context_parallel_size if self.fault == "ranks twice" else 1
        self._taken_for = size * more
        self._rows: dict[str, _Row] = {}
        self._all: dict[str, Arrival] = {}
        self._cached: dict[tuple[int, Any], tuple[int, ...]] = {}
        self._counted: Counter[str] = Counter()
        self._told: dict[str, int] = {}
        self._paused = False
        self._next, self._leaked, self._gone = 1, frozenset[int](), list[str]()
        self._encoded: set[str] = set()
        # Of sessions: the input that ended last, those that wait for it, those that are closed.
        self._idle: dict[str, tuple[str, _Row]] = {}
        self._queued: dict[str, dict[str, _Row]] = {}
        self._closed: set[str] = set()
        self._compiling: set[str] = set()

    def add_request(self, name: str, arrival: Arrival) -> None:
        if self.fault == "refuses a request's model":
            raise StartupRefused("too small")
        self._all[name] = arrival
        if arrival.grammar_steps is not None:
            self._compiling.add(name)
        row = _Row(arrival, known=len(arrival.prompt))
        if arrival.session is not None:
            if arrival.session in self._queued:
                self._queued[arrival.session][name] = row
                self._go_on(arrival.session)
                return
            self._queued[arrival.session] = {}
        self._rows[name] = row
        reads = not arrival.skip_reading_prefix_cache or self.fault == "reads"
        for key in self.block_keys(name, 0)[: (row.known - 1) // self._size] if reads else ():
            if (0, key) not in self._cached or self.fault in ("no hit", "no joint hit"):
                break
            row.table += self._cached[0, key]
            row.computed += self._size

    def close(self, session: str) -> None:
        self._closed.add(session)
        self._go_on(session)

    def _go_on(self, session: str) -> None:
        if session not in self._idle or self.fault == "forgets input":
            return
        last, before = self._idle[session]
        if self._queued[session]:
            name = next(iter(self._queued[session]))
            row = self._rows[name] = self._queued[session].pop(name)
            row.table, row.computed = before.table, len(before.arrival.kept)
            row.computed += self.fault == "counts the last"
        elif session in self._closed:
            self._gone.append(last)
        else:
            return
        del self._idle[session]

    def grammar_is_ready(self, name: str) -> None:
        if self.fault != "never sees it":
            self._compiling.discard(name)

    def check_drafts(self, plan: Plan, drafts: Mapping[str, Sequence[int]]) -> dict[str, int]:
        raise NotImplementedError  # there are none

    def masks(self, plan: Plan) -> dict[str, Masks]:
        known = {e.request: self._rows[e.request] for e in plan.scheduled}
        behind = self.fault == "masks late"
        return {
            name: Masks((row.known - len(row.arrival.prompt) - behind,), 0)
            for name, row in known.items()
            if row.arrival.grammar_steps is not None and self.fault != "masks nothing"
        }

    def counted_loads(self) -> None:
        return None

    def verified(self) -> tuple[int, int]:
        return int(self.fault == "counts drafts"), 0

    def abort(self, name: str) -> None:
        del self._rows[name]

    def reset(self, wanted: Reset) -> WasReset:
        if any(row.table for row in self._rows.values()) and not wanted.reset_running_requests:
            return WasReset(self.fault == "says done")
        if self.fault != "kept":
            self._cached.clear()
        for row in self._rows.values():
            row.again = row.again or row.seen
            row.table, row.computed, row.seen = [], 0, False
        return WasReset(self.fault != "says refused")

    def pause(self, pause: Pause | None) -> None:
        self._paused = pause is not None and self.fault != "never pauses"

    def reset_encoder(self) -> None:
        if self.fault != "keeps encoded":
            self._encoded.clear()

    def may_encode(self, length: int) -> bool:
        assert self.deployment.encoder is not None
        left = self.deployment.encoder.cache_size - (self.fault == "loses room")
        return length <= left

    def has_requests(self) -> bool:
        if self._paused and self.fault != "spins":
            return bool(self._gone)
        # With a larger pool it would come to rest, and lack no blocks all the same.
        small = self.deployment.num_gpu_blocks <= DEPLOYMENT.num_gpu_blocks
        goes_on = self.fault == "goes on" and small and bool(self._all)
        return bool(self._rows or self._gone) or goes_on

    def schedule(self) -> Plan:
        gone, self._gone = tuple(self._gone), list[str]()
        if not self._rows or self._paused:
            return Plan((), gone)
        waiting = set[str]() if self.fault == "starts at once" else self._compiling
        name, row = next(((n, r) for n, r in self._rows.items() if n not in waiting), ("", None))
        if row is None:
            return Plan((), gone)
        if self.fault == "raises" and row.computed:
            raise RuntimeError("no such block")
        if self.fault == "stuck" and row.computed:
            return Plan(())
        count = min(row.known - row.computed, self.deployment.max_num_batched_tokens)
        count -= self.fault == "short" and count > 1
        whole = row.computed == 0 or not row.seen
        skips = row.arrival.skip_reading_prefix_cache and self.fault != "counts skipping"
        if not (row.seen or skips) or self.fault == "counts steps":
            first = COUNTED.index("preempted_requests") if row.again else 0
            for what, number in zip(COUNTED[first:], (1, row.known, row.computed), strict=False):
                self._counted[what] += number
        row.seen = True
        if self.fault != "reports no hit to users":
            self._told.setdefault(
                name, row.computed + (self.fault == "reports another hit to users")
            )
        before = list(row.table)
        while len(row.table) * self._taken_for < row.computed + count:
            null = self.fault == "null" and row.computed
            row.table.append(0 if null else self._next)
            self._next += 1
        if self.fault == "twice" and len(row.table) > 2:
            row.table[-1] = row.table[-2]
        if self.fault == "other page" and self._cached and whole:
            row.table[0] = self._next
            self._next += 1
        new = row.table if whole else row.table[len(before) :]
        told = row.arrival.prompt if row.arrival.session else None
        if told is not None and self.fault == "told others":
            told = (*told[:-1], 0)
        images = row.arrival.images if told is not None else ()
        if self.fault == "told of others":
            images = tuple(replace(each, offset=0) for each in images)
        step = Scheduled(name, row.computed, count, 0, (tuple(new),), whole, whole, told, images)
        begins = row.known == len(row.arrival.prompt)
        step = replace(step, new=begins or self.fault == "tells anew")
        row.computed = 0 if self.fault == "cycle" else row.computed + count
        wrong = self.fault == "early"
        encoded = self._encode(name, row) if row.arrival.images else {}
        dense = self.deployment.retention_interval == "dense"
        if self.fault == "unregistered" or (self.fault == "retained" and not dense):
            return Plan((step,), gone)
        for place, key in enumerate(self.block_keys(name, 0)):
            if (place + 1) * self._size <= row.computed + self._size * wrong and place < len(
                row.table
            ):
                self._cached.setdefault((0, key), (row.table[place],))
        if self.fault == "told early":
            gone = (name,)
        if self.fault == "told again" and gone:
            self._gone = list(gone)
        return Plan((step,), gone, encoded=encoded)

    def _encode(self, name: str, row: _Row) -> dict[str, tuple[int, ...]]:
        """Encode the images of which a step has computed tokens."""
        places = tuple(
            place
            for place, image in enumerate(row.arrival.images)
            if image.offset < row.computed and image.identifier not in self._encoded
        )
        self._encoded.update(row.arrival.images[place].identifier for place in places)
        return {} if self.fault == "never encodes" else {name: places}

    def update(
        self,
        _plan: Plan,
        sampled: Mapping[str, Sequence[int]],
        drafts: Mapping[str, Sequence[int]],
        host: HostResult | None = None,
    ) -> dict[str, list[int]]:
        assert not drafts
        assert host is None
        got = {}
        for name, tokens in sampled.items():
            row = self._rows[name]
            if self.fault == "cycle":
                continue
            row.known += len(tokens)
            got[name] = [0 if self.fault == "tokens" else token for token in tokens]
            output = row.arrival.output
            if self.fault == "never stops":
                output = row.arrival.sampled[: row.arrival.max_tokens]
            if row.known == len(row.arrival.prompt) + len(output):
                del self._rows[name]
                if row.arrival.session is not None:
                    self._idle[row.arrival.session] = name, row
                    self._go_on(row.arrival.session)
                elif self.fault != "not told":
                    self._gone.append(name)
                if self.fault == "leak":
                    self._leaked = frozenset(row.table[-1:])
        return got

    def unfinished(self) -> frozenset[str]:
        return frozenset(self._rows).union(*self._queued.values())

    def loading(self) -> frozenset[str]:
        return frozenset()

    def running(self) -> list[str]:
        return [name for name, row in self._rows.items() if row.seen]

    def pool(self) -> PoolState:
        rows = [*self._rows.values(), *(row for _, row in self._idle.values())]
        held = frozenset(b for row in rows for b in row.table if b)
        if self.fault == "freed":
            held = frozenset(sorted(held)[1:])
        users = [] if self.fault == "frees images" else self.running()
        if self.fault == ("holds for all" if self._rows else "holds images"):
            users = [*users, "gone"]
        seen = {image: users for image in self._encoded if users}
        return PoolState(self._cached, 0, held | self._leaked, encoded=seen)

    def kept(self) -> list[str]:
        return ["Small.rows"] if self.fault == "remembers" else []

    def reported(self) -> tuple[int, int, int]:
        running, passed_over = len(self.running()), self.fault == "passes over who runs"
        waiting = len(self._rows) - running * (self.fault != "counts all as waiting")
        return running, waiting - passed_over, int(passed_over)

    def events(self) -> None:
        return None

    def counted(self) -> Mapping[str, int]:
        return self._counted

    def told_ends(self) -> dict[str, str]:
        return {name: "stop" if each.stop else "length" for name, each in self._all.items()}

    def told_cached(self) -> Mapping[str, int]:
        return self._told

    def block_keys(self, name: str, group: int) -> Sequence[Any]:
        assert group == 0
        arrival = self._all[name]
        blind = self.fault == "blind"
        tokens = (arrival.prompt if blind else arrival.content) + arrival.sampled
        return [
            tokens[: end + self._size] for end in range(0, len(tokens) - self._size + 1, self._size)
        ]

    def unit_keys(self, name: str) -> Sequence[Any]:
        return self.block_keys(name, 0)

    def hits_per_group(self, name: str, cap: int) -> Sequence[int]:
        keys = self.block_keys(name, 0)[: cap // self._size]
        found = takewhile(lambda key: (0, key) in self._cached, keys)
        return [0 if self.fault == "no hit" else self._size * sum(1 for _ in found)]


@dataclass(frozen=True)
class Subject:
    fault: str = ""

    def start(self, deployment: Deployment) -> Small:
        if self.fault == "refused":
            raise StartupRefused("too small")
        return Small(deployment, self.fault)


def played(fault: str = "") -> SchedulerOutcome:
    return play(SchedulerHistory(DEPLOYMENT, REQUESTS), Subject(fault))


def test_what_is_right_has_no_finding() -> None:
    outcome = played()
    assert not outcome.findings, outcome.findings
    assert not outcome.ended
    assert {name: life.ended for name, life in outcome.lives.items()} == dict.fromkeys(
        REQUESTS, "finished"
    )
    assert outcome.lives["c"].hit == 8
    assert outcome.lives["a"].chunks[:2] == [(0, 8), (8, 2)]
    assert outcome.as_json()["lives"]["b"]["delivered"] == [103, 104]


@cases("fault, defect")
def test_each_clause_is_shown_a_broken_scheduler(fault: str, defect: str) -> None:
    assert defect in {str(found.signature.defect) for found in played(fault).causes}


@pytest.mark.parametrize("fault", ["refused", "refuses a request's model"])
def test_a_deployment_that_start_up_refuses_is_not_judged(fault: str) -> None:
    outcome = played(fault)
    assert outcome.refused == "too small"
    assert not outcome.findings


@cases("values, reason")
def test_what_no_deployment_can_have_is_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(HistoryError, match=reason):
        Deployment(**{**vars(DEPLOYMENT), **values})


def test_a_history_names_what_comes_first() -> None:
    late = {"a": Arrival((1,), (2,), after="b"), "b": Arrival((1,), (2,))}
    with pytest.raises(HistoryError, match="not listed before"):
        SchedulerHistory(DEPLOYMENT, late)
    with pytest.raises(HistoryError, match="max_model_len"):
        SchedulerHistory(DEPLOYMENT, {"a": Arrival(tuple(range(80)), (2,))})
    with pytest.raises(HistoryError, match="at least one token each"):
        Arrival((1,), ())


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name, (_, row) in PLAYED.items() for fault in row["shows"]],
)
def test_a_history_shows_a_broken_scheduler(name: str, fault: str) -> None:
    history, row = PLAYED[name]
    assert read_workload(write_workload(history)) == history
    outcome = play(history, Subject(fault))
    defect, hits = row["shows"][fault], row.get("hits", {}).get(fault)
    found = {str(each.signature.defect) for each in outcome.causes}
    follows = defect in found and name in ("a session", "embeddings", "images")
    assert found == {defect} - {""} or follows, found
    assert hits in (None, [life.hit for life in outcome.lives.values()])
    assert defect or {life.ended for life in outcome.lives.values()} == {"finished"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"b": replace(INPUTS["b"], prompt=(1, 2))}, "all tokens of a but the last"),
        ({"b": replace(INPUTS["b"], prompt=INPUTS["a"].kept)}, "all tokens of a but the last"),
        ({"b": replace(INPUTS["b"], open_steps=2)}, "only the last input"),
        ({"b": replace(INPUTS["b"], priority=2)}, "have the same"),
        ({"a": replace(INPUTS["a"], images=(Image("cat", 2, 3),))}, "must begin with those of"),
        ({"b": replace(INPUTS["b"], images=(Image("cat", 9, 3),))}, "must begin with those of"),
        ({"s": Arrival((1,), (2,))}, "name of a request"),
        ({"d": replace(INPUTS["d"], after_reset=True)}, "loads and resets"),
    ],
)
def test_what_no_session_can_have_is_refused(changes: dict[str, Arrival], reason: str) -> None:
    served = replace(DEPLOYMENT, encoder=Encoder(6, 6))
    with pytest.raises(HistoryError, match=reason):
        SchedulerHistory(served, INPUTS | changes)
    with pytest.raises(HistoryError, match="only a session stays open"):
        Arrival((1,), (2,), open_steps=1)


def test_who_stops_could_go_on() -> None:
    with pytest.raises(HistoryError, match="needs past_end"):
        Arrival((1,), (2,), stop=True)
    with pytest.raises(HistoryError, match="first stop token"):
        Arrival((1,), (2, 2), past_end=(3,), stop=True)
    long = Arrival(tuple(range(60)), (2,), past_end=tuple(range(70, 74)))
    with pytest.raises(HistoryError, match="max_model_len"):
        SchedulerHistory(DEPLOYMENT, {"a": long})
    assert Arrival((1,), (2,), past_end=(3,)).max_tokens == 1
    assert Arrival((1,), (2,), past_end=(3,), stop=True).max_tokens == 2


def test_what_two_requests_were_seen_to_share_is_promised_to_the_third() -> None:
    full, state = Group(GroupKind.FULL_ATTENTION, 16, eagle=True), Group(GroupKind.MAMBA, 16)
    engine = EngineConfiguration((full, state), 40, 8, 128, 64, use_eagle=True)
    tokens = tuple(range(48))
    third = {"c": Arrival((*tokens[:40], *range(100, 120)), (1,)), "b": Arrival(tokens, (1,))}
    promised = PromisedHits(engine, third, JudgedPolicies())
    seen = Donor("b", tokens, 48, frozenset({32, 48}), junction=24)
    due = promised.due("c", [seen])
    assert due is not None
    assert (due.tokens, due.who) == (24, "sibling")
    assert promised.due("c", [replace(seen, junction=40)]) is None


@pytest.mark.parametrize(("modules", "length"), [(1, 16), (2, 16), (3, 8)])
def test_what_several_modules_compute_again_is_not_promised(modules: int, length: int) -> None:
    """A resend of 25 tokens looks up the third block of 8, whose last tokens may not be final."""
    group = Group(GroupKind.FULL_ATTENTION, 8, eagle=True, prefill_lookahead=modules)
    engine = EngineConfiguration((group,), 40, 8, 128, 64, use_eagle=True)
    tokens = tuple(range(25))
    alike = {"c": Arrival(tokens, (1,)), "a": Arrival(tokens, (1,))}
    promised = PromisedHits(engine, alike, JudgedPolicies())
    due = promised.due("c", [Donor("a", tokens, 25, frozenset({25}))])
    assert due is not None
    assert due.tokens == length


@pytest.mark.parametrize(("output", "length"), [(1, None), (2, None), (3, 12), (8, 12)])
def test_a_tail_inside_a_block_is_promised_where_its_lookahead_became_final(
    output: int, length: int | None
) -> None:
    """With three modules, the last two of the tokens that were computed never become final."""
    full = Group(GroupKind.FULL_ATTENTION, 16, eagle=True, prefill_lookahead=3)
    state = Group(GroupKind.MAMBA, 16, prefill_lookahead=3)
    engine = EngineConfiguration((full, state), 45, 4, 40, 31, use_eagle=True)
    tokens = tuple(range(16 + output - 1))
    alike = {name: Arrival(tokens[:16], (99,)) for name in "ac"}
    fine = JudgedPolicies(granularity=HitGranularity.FINE)
    promised = PromisedHits(engine, alike, fine)
    due = promised.due("c", [Donor("a", tokens, 16, frozenset({12, 16}))])
    assert (due and due.tokens) == length


@pytest.mark.parametrize(("tokens", "length"), [(16, None), (17, 16)])
def test_what_is_kept_for_an_extension_is_not_promised_to_a_resend(
    tokens: int, length: int | None
) -> None:
    """A resend of 16 tokens hits 15 at most, and no other boundary inside the blocks is kept."""
    groups = tuple(Group(kind, 16) for kind in (GroupKind.FULL_ATTENTION, GroupKind.MAMBA))
    engine = EngineConfiguration(groups, 45, 4, 40, 31)
    content = tuple(range(17))
    arrivals = {"a": Arrival(content[:16], (99,)), "b": Arrival(content[:tokens], (98,))}
    fine = JudgedPolicies(granularity=HitGranularity.FINE, fine_tail=FineTail.EXTENSION)
    promised = PromisedHits(engine, arrivals, fine)
    due = promised.due("b", [Donor("a", content[:16], 16, frozenset({16}))])
    assert (due and due.tokens) == length


@pytest.mark.parametrize(
    ("encoder", "image", "reason"),
    [
        (None, Image("cat", 0, 3), "set encoder"),
        (Encoder(3, 2), Image("cat", 0, 3), "make it smaller"),
        (Encoder(9, 9, True), Image("cat", 0, 9), "make it smaller"),
        (Encoder(9, 9), Image("dog", 0, 4), "the same length everywhere"),
        (Encoder(9, 9), Image("cat", 8, 3), "past the prompt's 10 tokens"),
    ],
)
def test_images_that_no_deployment_serves_are_refused(
    encoder: Encoder | None, image: Image, reason: str
) -> None:
    deployment = replace(DEPLOYMENT, encoder=encoder)
    with pytest.raises(HistoryError, match=reason):
        SchedulerHistory(
            deployment,
            {
                "a": Arrival(tuple(range(10)), (1,), images=(image,)),
                "b": Arrival((1, 2, 3), (1,), images=(Image("dog", 0, 3),)),
            },
        )


def test_beside_recurrent_states_images_are_computed_in_parts() -> None:
    with pytest.raises(HistoryError, match="omit encoder_resets"):
        SchedulerHistory(DEPLOYMENT, {"b": Arrival((1,), (2,))}, encoder_resets=(1,))
    states = Group(GroupKind.MAMBA, SIZE)
    with pytest.raises(HistoryError, match="omit whole_images"):
        replace(DEPLOYMENT, groups=(states,), encoder=Encoder(9, 9, True))


def test_what_no_deployment_serves_is_refused() -> None:
    with pytest.raises(HistoryError, match="set max_loras"):
        SchedulerHistory(DEPLOYMENT, {"a": Arrival((1,), (2,), lora_name="x")})


def test_a_session_waits_for_a_pause_to_end() -> None:
    roomy = replace(DEPLOYMENT, max_num_seqs=2)
    for at in range(1, 12):
        history = SchedulerHistory(roomy, INPUTS, pauses=(Pause(at, 9),))
        outcome = play(history, Subject())
        assert not outcome.causes, outcome.causes
        assert {life.ended for life in outcome.lives.values()} == {"finished"}


def test_a_paused_engine_comes_to_rest() -> None:
    outcome = play(SchedulerHistory(DEPLOYMENT, REQUESTS, pauses=(Pause(1, 6),)), Subject("spins"))
    assert [str(each.signature.defect) for each in outcome.causes] == [
        "request-never-finishes(way=rest)"
    ]
    assert outcome.ended == "nothing more happens"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"prompt": (1, 2)}, "set it to 0"),
        ({"images": (Image("cat", 1, 1),)}, "not both"),
        ({"session": "s"}, "cannot have embeddings"),
    ],
)
def test_embeddings_that_no_request_has_are_refused(changes: dict[str, Any], reason: str) -> None:
    embedded = Arrival((0, 2), (3,), embeddings=(Embeddings(0, (1,)),))
    with pytest.raises(HistoryError, match=reason):
        SchedulerHistory(DEPLOYMENT, {"a": replace(embedded, **changes)})
