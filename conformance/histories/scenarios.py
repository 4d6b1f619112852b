"""Scheduler histories made of features, each a row of `FEATURES`, in all combinations.

A *scenario* is a deployment and its requests. First its features are drawn: the one of its number,
and others that go with it. Each of them then changes the deployment, and after requests have been
drawn that share beginnings, the requests. What the schema refuses (`HistoryError`) is drawn again
without the last feature, so what excludes what is said in one place, the schema's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hitproof.conformance.histories.schema import Embeddings, HistoryError, Image
from hitproof.conformance.histories.workloads import (
    DRAFT_HEADS,
    Arrival,
    Connector,
    Deployment,
    Encoder,
    HostPool,
    Pause,
    Reset,
    SchedulerHistory,
)
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import is_fine_grained
from hitproof.spec.retention import SPARSE_KINDS

_FULL, _WINDOW, _STATE = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW, GroupKind.MAMBA
_NAMES = "abcdefgh"
_FEATURES_AT_ONCE = (1, 2, 3, 3, 4, 5)
_LONGEST = 10
"""The longest request, in blocks of the smallest size."""


@dataclass
class Scenario:
    """What is drawn so far.

    Attributes:
        random: the source of all that is drawn.
        size: tokens in a block of the first group.
        groups: the KV cache groups.
        deployed: further arguments of `Deployment`.
        played: further arguments of `SchedulerHistory`.
        requests: the requests by name; empty until they are drawn.
        scarce: whether the pool has room for little more than one request.
        cuts: whether requests are cut to what the longest may have.
        longest: what that is, where a feature says it.
        fresh: the next token that no request has yet.
    """

    random: Random
    size: int
    groups: list[Group]
    deployed: dict[str, Any] = field(default_factory=dict)
    played: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, Arrival] = field(default_factory=dict)
    scarce: bool = False
    cuts: bool = False
    longest: int | None = None
    fresh: int = 1

    def chance(self, share: float) -> bool:
        """Whether what happens to such a share of the requests, say, happens now."""
        return self.random.random() < share

    def any_of(self, *choices: Any) -> Any:
        """One of the choices."""
        return self.random.choice(choices)

    def new_tokens(self, number: int) -> tuple[int, ...]:
        """``number`` tokens that no request has yet."""
        self.fresh += number
        return tuple(range(self.fresh - number, self.fresh))

    def near_an_edge(self, most: int) -> int:
        """A number of tokens from 1 to ``most``, often about whole blocks."""
        edge = self.size * self.random.randint(1, max(most // self.size, 1))
        near = edge + self.random.randint(-1, 2)
        return max(1, min(self.random.choice((near, near, self.random.randint(1, most))), most))

    @property
    def drafts(self) -> int:
        """Drafts that are proposed after each step of a decode."""
        return int(self.deployed.get("num_speculative_tokens", 0))

    def each(self, share: float, change: Callable[[Arrival], dict[str, Any]]) -> None:
        """Change a share of the requests: ``change`` has new values of their fields."""
        for name, request in self.requests.items():
            if self.chance(share):
                self.requests[name] = replace(request, **change(request))


@dataclass(frozen=True)
class Feature:
    """A row of the table.

    Attributes:
        name: its name.
        deploy: what it changes of a deployment.
        ask: what it changes of the requests, or when something happens to the engine.
        without: features that do not go with it, beside what the schema refuses.
        share: how often it is added to others, as a weight.
    """

    name: str
    deploy: Callable[[Scenario], None] = lambda _: None
    ask: Callable[[Scenario], None] = lambda _: None
    without: tuple[str, ...] = ()
    share: int = 1


def _group(kind: GroupKind, size: int, random: Random) -> Group:
    window = random.randint(2, 4 * size + 1) if kind is _WINDOW else None
    chunk = size * random.randint(1, 4) if kind is GroupKind.CHUNKED_LOCAL else None
    return Group(kind, size, window=window, chunk=chunk)


def _of_kinds(*kinds: GroupKind) -> Callable[[Scenario], None]:
    def deploy(made: Scenario) -> None:
        made.groups = [_group(kind, made.size, made.random) for kind in kinds]

    return deploy


def _of_sizes(made: Scenario) -> None:
    """Block sizes of which one divides the other, or none does."""
    first, second = made.any_of((2, 1), (1, 2), (3, 2), (2, 3))
    unit = max(made.size // 2, 1)
    made.groups = [
        Group(_FULL, first * unit),
        _group(_WINDOW, second * unit, made.random),
    ]


def _fine(made: Scenario) -> None:
    """Hits that end inside blocks, and states that are kept there."""
    made.size = made.any_of(4, 8)
    unit = made.size // 2
    made.groups = [Group(_FULL, made.size), Group(_STATE, made.size)]
    made.deployed |= {
        "prefix_match_unit": unit,
        "mamba_checkpoint_alignment": made.any_of(None, unit, 2 * unit),
        "mamba_shared_prefix_checkpoint": made.chance(0.5),
    }


def _drafts(made: Scenario, *methods: str) -> None:
    method = made.any_of(*methods or ("eagle", "mtp", "mtp", "ngram", "draft_model", "eagle3"))
    drafts = made.random.randint(1, 3)
    # vLLM refuses several modules that look further ahead than a block.
    several = method == "mtp" and drafts <= min(each.block_size for each in made.groups)
    modules = made.any_of(1, drafts) if several else 1
    if method in DRAFT_HEADS:
        able = [n for n, each in enumerate(made.groups) if each.kind is not _STATE]
        flagged = made.random.choice(able)
        made.groups[flagged] = replace(made.groups[flagged], eagle=True)
    if modules > 1:
        made.deployed["mamba_checkpoint_alignment"] = None
    made.deployed |= {
        "speculative_method": method,
        "num_speculative_tokens": drafts,
        "num_mtp_modules": modules,
        "lookahead_hashes": made.chance(0.6),
    }


def _accepted(made: Scenario) -> None:
    for name, request in made.requests.items():
        turns = range(made.random.randint(1, 3))
        accepted = tuple(made.random.randint(0, made.drafts) for _ in turns)
        made.requests[name] = replace(request, accepted=accepted)


def _ahead(made: Scenario) -> None:
    ranks = 1 if "host" in made.deployed else made.any_of(1, 1, 1, 2, 3)
    made.deployed |= {
        "async_scheduling": True,
        "ranks": ranks,
        "v2_model_runner": "v2_model_runner" in made.deployed or ranks > 1 or made.chance(0.4),
    }


def _by_priority(made: Scenario) -> None:
    made.deployed["policy"] = "priority"
    made.scarce = made.scarce or made.chance(0.6)


def _priorities(made: Scenario) -> None:
    """The first request, or the first to run, is often preempted first."""
    turn = made.any_of(lambda place: -place, lambda _: made.random.randint(0, 2))
    for place, (name, request) in enumerate(made.requests.items()):
        if request.session is None:  # the inputs of one have the same
            made.requests[name] = replace(request, priority=turn(place))


def _scarce(made: Scenario) -> None:
    made.scarce = True


def _limits(made: Scenario) -> None:
    """Limits of a step other than its budget."""
    threshold = made.any_of(0, made.size - 1, made.size, made.size + 1)
    made.deployed |= {
        "long_prefill_token_threshold": threshold,
        "long_prefill_token_threshold_adaptive": bool(threshold) and made.chance(0.4),
        "max_num_seqs": made.any_of(1, 2, 3),
    }
    if made.chance(0.4):
        made.deployed["max_num_scheduled_tokens"] = made.drafts + 3 + made.random.randint(0, 4)


def _watermark(made: Scenario) -> None:
    made.scarce = True
    made.deployed["watermark"] = made.any_of(0.1, 0.25, 0.4)


def _stops(made: Scenario) -> None:
    """Requests that end before all that the model would sample, most by a stop token."""

    def ends(_: Arrival) -> dict[str, Any]:
        past = made.new_tokens(made.random.randint(1, 6))
        return {"past_end": past, "stop": made.chance(0.8)}

    made.each(0.6, ends)


def _follow_up(made: Scenario) -> None:
    """A request continues past the end of another, whose unsampled tokens must not be cached."""
    name, first = made.random.choice(list(made.requests.items()))
    prompt = first.prompt + first.sampled + made.new_tokens(made.random.randint(1, made.size))
    made.requests["past"] = Arrival(prompt, made.new_tokens(2), after=name)


def _session(made: Scenario) -> None:
    """The first request goes on: its next inputs are there when one ends, or come later."""
    first, *others = made.requests
    inputs = {first: replace(made.requests[first], session="s")}
    last = first
    for name in ("second", "third")[: made.any_of(1, 1, 2)]:
        before = inputs[last]
        more = made.new_tokens(made.any_of(1, made.size - len(before.kept) % made.size))
        inputs[name] = replace(
            before,
            prompt=before.kept + more,
            output=made.new_tokens(made.random.randint(1, made.size)),
            past_end=made.new_tokens(3),
            stop=made.chance(0.7),
            arrives=made.any_of(0, 0, 1, 4),
            after=last if made.chance(0.5) else None,
            aborted=made.random.randint(1, 6) if made.chance(0.1) else None,
        )
        last = name
    if made.chance(0.4):
        inputs[last] = replace(inputs[last], open_steps=made.random.randint(1, 6))
    told = inputs[last].kept
    made.requests = inputs | {name: made.requests[name] for name in others}
    made.requests["told"] = Arrival(told + made.new_tokens(1), made.new_tokens(2), after=last)


def _grammars(made: Scenario) -> None:
    def grammar(_: Arrival) -> dict[str, Any]:
        turns = range(made.random.randint(1, 3)) if made.drafts else ()
        valid = tuple(made.random.randint(0, made.drafts) for _ in turns)
        return {"grammar_steps": made.any_of(0, 0, 1, 2, 5), "valid_drafts": valid}

    made.each(0.6, grammar)


def _encoder(made: Scenario) -> None:
    largest = made.random.randint(1, 2 * made.size)
    made.deployed["encoder"] = Encoder(
        largest + made.any_of(0, 0, 1, largest, 100),
        largest + made.any_of(0, 0, 1, largest, 100),
        whole_images=made.chance(0.25),
        ec_connector=made.chance(0.2),
    )


def _images(made: Scenario) -> None:
    """Images at some places of the prompts, with or without text in between."""
    encoder: Encoder = made.deployed["encoder"]
    most, start, places = min(encoder.budget, encoder.cache_size, 2 * made.size), 0, []
    for _ in range(made.random.randint(1, 4)):
        start += made.any_of(0, 0, 1, made.size - 1, made.random.randint(0, made.size))
        length = made.random.randint(1, most)
        places.append((start, length))
        start += length

    def seen(request: Arrival) -> dict[str, Any]:
        if request.session is not None:
            return {}
        own = [
            Image(f"{made.any_of('cat', 'cat', 'dog')} of {length}", at, length)
            for at, length in places
            if at + length <= len(request.prompt)
        ]
        return {"images": tuple(own)}

    made.each(0.8, seen)
    told, images = 0, list[Image]()
    for name, each in made.requests.items():
        if each.session is not None:  # each input has those of earlier ones, and its own
            end = len(each.prompt)
            own = [at for at in places if at[0] >= told and sum(at) <= end]
            own = own or [(told, min(most, end - told))]
            images += [Image(f"cat of {length}", at, length) for at, length in own]
            made.requests[name] = replace(each, images=tuple(images))
            told = len(each.kept)
    if made.chance(0.3):
        steps = made.random.sample(range(1, 16), made.random.randint(1, 4))
        made.played["encoder_resets"] = tuple(sorted(steps))


def _images_moved(made: Scenario) -> None:
    """Some prompts differ only in where their images are."""

    def moved(request: Arrival) -> dict[str, Any]:
        by = made.any_of(0, 1)
        images = [Image(f"cat of {e.length}", e.offset + by, e.length) for e in request.images]
        fits = images and images[-1].offset + images[-1].length <= len(request.prompt)
        return {"images": tuple(images)} if fits and request.session is None else {}

    made.each(1, moved)


def _embeddings(made: Scenario) -> None:
    """Prompts come as embeddings, in whole or in part; equal ids have equal ones, but for an odd
    request.
    """
    whole, odd = made.chance(0.4), made.random.choice(list(made.requests))
    for name, request in made.requests.items():
        rows = {n: token for n, token in enumerate(request.prompt) if whole or token % 5 < 2}
        if name == odd and rows:
            rows[made.random.choice(list(rows))] += 1_000_000
        made.requests[name] = replace(
            request,
            prompt=tuple(0 if n in rows else token for n, token in enumerate(request.prompt)),
            embeddings=tuple(Embeddings(place, (value,)) for place, value in rows.items()),
        )


def _adapters(made: Scenario) -> None:
    most: int = made.deployed["max_loras"]
    adapters = (*"xyz"[: most + 1], None)
    made.each(0.8, lambda _: {"lora_name": made.random.choice(adapters)})


def _salts(made: Scenario) -> None:
    made.each(0.5, lambda _: {"cache_salt": made.any_of("s", "t")})


def _skips(made: Scenario) -> None:
    made.each(0.3, lambda _: {"skip_reading_prefix_cache": True})


def _gives_up(made: Scenario) -> None:
    made.each(0.4, lambda _: {"aborted": made.random.randint(1, 8)})


def _longest_asked(made: Scenario) -> None:
    """Users ask for as many tokens as there are, or for more."""
    made.cuts = True


def _drafts_of_others(made: Scenario) -> None:
    """Drafts without layers of their own, so that a lookup finds all but the last token."""
    made.deployed |= {
        "speculative_method": made.any_of("ngram", "draft_model"),
        "num_speculative_tokens": made.random.randint(1, 3),
        "retention_interval": "dense",
        "max_num_seqs": 4,
    }


def _one_token_left(made: Scenario) -> None:
    """While others decode, a request comes all but whose last token is cached, of a length that has
    room for one more token and its drafts, or has not.
    """
    alignment = math.lcm(*(each.block_size for each in made.groups))
    unit = made.deployed.get("prefix_match_unit", alignment)
    shared = made.new_tokens(alignment + made.random.randint(0, 4 * made.size // unit) * unit)
    late = Arrival(shared + made.new_tokens(1), made.new_tokens(1), after="first")
    made.longest = len(late.prompt) + made.drafts + made.any_of(0, 0, 1)
    made.requests = {
        "first": Arrival(shared, made.new_tokens(2)),
        "long": Arrival(made.new_tokens(2), made.new_tokens(made.longest)),
        "late": late,
    }


def _arrives_after_reset(made: Scenario) -> None:
    made.each(0.4, lambda _: {"after_reset": True})


def _resets(made: Scenario) -> None:
    connector: Connector | None = made.deployed.get("connector")
    made.played["resets"] = tuple(
        Reset(
            at,
            reset_running_requests=made.chance(0.4),
            reset_connector=made.chance(0.7) if connector is not None else at % 2 == 0,
            connector_refuses=connector is not None and not connector.keeps and made.chance(0.15),
        )
        for at in sorted(made.random.sample(range(1, 20), made.random.randint(1, 4)))
    )


def _pauses(made: Scenario) -> None:
    pauses, at = [], 0
    for _ in range(made.random.randint(1, 4)):
        at += made.random.randint(1, 6)
        pauses.append(Pause(at, made.any_of(1, 2, 4, 12), finishes_running=made.chance(0.5)))
        at += pauses[-1].steps
    made.played["pauses"] = tuple(pauses)


def _connector(made: Scenario) -> None:
    made.deployed["connector"] = Connector(made.any_of("fail", "recompute"))


def _transfers(made: Scenario) -> None:
    """Loads in a step or over some, which may fail in part or as a whole, and sends."""

    def loads(request: Arrival) -> dict[str, Any]:
        length = len(request.prompt)
        blocks = length // made.size
        has = made.any_of(length, blocks * made.size, made.random.randint(0, blocks) * made.size)
        steps = made.any_of(None, None, 0, 1, 3)
        made_of: dict[str, Any] = {"loads": has, "load_steps": steps}
        if has and blocks and len(made.groups) == 1 and made.chance(0.4):
            made_of["invalid_blocks"] = (made.random.randrange(blocks),)
            if steps is not None:
                made_of["invalid_steps"] = made.any_of(None, made.random.randint(0, steps))
        elif has and steps is not None:
            made_of["load_fails"] = made.chance(0.3)
        return made_of

    made.each(0.6, loads)
    made.each(0.4, lambda _: {"send_steps": made.random.randint(0, 6)})


def _producer(made: Scenario) -> None:
    made.deployed["connector"] = Connector(produces=True)
    made.scarce = True


def _hand_over(made: Scenario) -> None:
    """Prefills end with their first token and are sent, while another request takes blocks."""
    size = made.size
    made.requests = {
        "long": Arrival(made.new_tokens(size), made.new_tokens(made.random.randint(5, 9) * size))
    }
    for place, name in enumerate(_NAMES):
        prompt = made.new_tokens(made.random.randint(1, 4 * size))
        made.requests[name] = Arrival(
            prompt, made.new_tokens(1), place, send_steps=made.random.randint(0, 2)
        )


def _by_priority_in_small_steps(made: Scenario) -> None:
    _by_priority(made)
    made.scarce = True
    made.deployed |= {
        "max_num_seqs": 4,
        "max_num_scheduled_tokens": made.any_of(2, 3, 4) * (1 + made.drafts),
    }


def _gives_way(made: Scenario) -> None:
    """The first request to run is preempted in the step that has begun to compute it."""
    size = made.size
    made.requests = {
        name: Arrival(
            made.new_tokens(made.random.randint(1, size + 1)),
            made.new_tokens(made.random.randint(2 * size, 5 * size)),
            arrives=2 * place,
            priority=-place,
        )
        for place, name in enumerate(_NAMES[: made.any_of(3, 4)])
    }


def _prompts_give_way(made: Scenario) -> None:
    """Prompts are computed in many steps, and those of the first requests start again."""
    _gives_way(made)

    def grows(_: Arrival) -> dict[str, Any]:
        return {"prompt": made.new_tokens(made.random.randint(made.size, 5 * made.size))}

    made.each(0.7, grows)
    if "encoder" in made.deployed:
        _images(made)


def _connector_in_small_steps(made: Scenario) -> None:
    _connector(made)
    made.scarce = True
    made.deployed |= {
        "max_num_seqs": 4,
        "max_num_scheduled_tokens": 3 * made.size + made.drafts,
        "long_prefill_token_threshold": made.size,
    }


def _loads_beside_prompts(made: Scenario) -> None:
    """Requests are loaded while a long prompt is computed, which needs blocks until its end."""
    size, random = made.size, made.random
    made.requests = {"long": Arrival(made.new_tokens(random.randint(5, 9) * size), (0,))}
    for place, name in enumerate(_NAMES[:3], start=1):
        blocks = random.randint(1, 5)
        prompt = made.new_tokens(blocks * size + random.randint(1, size))
        output = made.new_tokens(random.randint(1, 2 * size))
        steps = made.any_of(1, 2, 4)
        made.requests[name] = Arrival(prompt, output, place, loads=blocks * size, load_steps=steps)


def _loads_are_given_up(made: Scenario) -> None:
    """Requests end while they are loaded, or as soon as they are."""
    _transfers(made)

    def gives_up(request: Arrival) -> dict[str, Any]:
        steps = made.any_of(0, 1, 2)
        fails = {} if request.invalid_blocks else {"load_fails": made.chance(0.4)}
        loads = {"loads": request.loads or len(request.prompt), "load_steps": steps} | fails
        return loads | {"aborted": steps + made.any_of(0, 1, 1, 2), "invalid_steps": None}

    made.each(0.5, gives_up)


def _offloads(made: Scenario, how: str | None = None) -> None:
    """Host memory, block by block or in chunks, or a store."""
    room = 2 + made.any_of(_LONGEST, 4 * _LONGEST, 8 * _LONGEST) * len(made.groups)
    delay, sizes = made.any_of(0, 0, 1, 3), {each.block_size for each in made.groups}
    retention = made.any_of(None, "dense", "dense")
    connector = Connector(offloads=room, delay=delay)
    how = how or made.any_of("blocks", "chunks", "chunks", "store")
    if how != "blocks":
        alignment = math.lcm(*sizes)
        retention = made.any_of(None, None, 0, alignment, 2 * alignment, "dense")
    if how == "chunks":
        chunk = made.any_of(1, 1, 2, 4) if len(sizes) == 1 else 1
        connector = replace(connector, chunk=chunk, outputs=made.chance(0.6))
        if isinstance(retention, int):
            retention *= chunk  # vLLM refuses one that ends inside a chunk
    elif how == "store":
        connector = replace(connector, offloads=0, store=True)
    made.deployed["connector"] = connector
    if any(each.kind in SPARSE_KINDS for each in made.groups):
        made.deployed["retention_interval"] = retention


def _unread(made: Scenario) -> None:
    """Some of what is in a store cannot be read once, and some requests come again."""
    made.scarce = True
    _offloads(made, "store")
    made.deployed["connector"] = replace(
        made.deployed["connector"],
        load_failure=made.any_of("fail", "recompute"),
        umbp=made.chance(0.4),
    )


def _reads_fail(made: Scenario) -> None:
    _asked_again_unreset(made)

    def fails(request: Arrival) -> dict[str, Any]:
        return {"invalid_blocks": (made.random.randrange(1 + len(request.prompt) // made.size),)}

    made.each(0.6, fails)


def _several(made: Scenario) -> None:
    """Two connectors, of which one may have what requests say."""
    made.scarce = made.chance(0.7)
    kinds = made.random.sample(("blocks", "chunks", "chunks", "store", "own"), 2)
    both = []
    for kind in kinds:
        if kind == "own":
            both.append(Connector())
        else:
            _offloads(made, kind)
            both.append(made.deployed["connector"])
    made.deployed["connector"] = replace(both[0], beside=both[1])


def _loads_beside(made: Scenario) -> None:
    _asked_again_unreset(made)
    connector: Connector = made.deployed["connector"]
    if connector.loads:
        _transfers(made)
        made.each(1, lambda _: {"invalid_blocks": (), "invalid_steps": None})


def _later(made: Scenario) -> None:
    """Lookups are answered when they are repeated."""
    made.scarce = True
    _offloads(made, made.any_of("chunks", "store"))
    made.deployed["connector"] = replace(made.deployed["connector"], later=made.any_of(1, 2, 5))


def _lazily(made: Scenario) -> None:
    """Single blocks, which are offloaded when they are soon to be evicted."""
    made.scarce = True
    _offloads(made, "blocks")
    made.deployed["connector"] = replace(made.deployed["connector"], lazy=True)


def _umbp(made: Scenario) -> None:
    """The store of UMBP, for prompts or for all that is computed."""
    made.scarce = made.chance(0.7)
    _offloads(made, "store")
    outputs = made.chance(0.5)
    made.deployed["connector"] = replace(made.deployed["connector"], umbp=True, outputs=outputs)


def _also_sampled(made: Scenario) -> None:
    """A store for all that is computed, also behind the prompt."""
    made.scarce = made.chance(0.5)
    _offloads(made, "store")
    made.deployed["connector"] = replace(made.deployed["connector"], outputs=True)


def _unwritten(made: Scenario) -> None:
    """A store that cannot write some of what the first steps compute, of which there are many."""
    _offloads(made, "store")
    failures = made.any_of(1, 1, 2, 4)
    made.deployed["connector"] = replace(
        made.deployed["connector"], offloads=0, write_failures=failures
    )
    made.deployed["max_num_scheduled_tokens"] = made.drafts + made.any_of(3, made.size, made.size)


def _in_blocks(made: Scenario) -> None:
    """Host memory for single blocks, and few blocks on the device."""
    made.scarce = True
    _offloads(made, "blocks")


def _little_room(made: Scenario) -> None:
    """Host memory for some blocks of a request, to and from which copies take a while."""
    made.scarce = True
    _offloads(made, made.any_of("blocks", "chunks"))
    made.deployed["connector"] = replace(
        made.deployed["connector"],
        offloads=1 + made.any_of(2, 4, 8) * len(made.groups),
        delay=made.any_of(1, 2, 4),
    )


def _evicting(made: Scenario) -> None:
    """Host memory for some chunks, of which some make room for others."""
    made.scarce = made.chance(0.7)
    _offloads(made, "chunks")
    made.deployed["connector"] = replace(
        made.deployed["connector"],
        offloads=1 + made.any_of(2, 3, 4, 8) * len(made.groups),
        eviction=made.any_of("lru", "lru", "arc"),
        threshold=made.any_of(0, 0, 0, 2),
    )


def _preempting(made: Scenario) -> None:
    """What requests compute is copied for a while, in which others may need their blocks."""
    made.scarce = True
    _offloads(made, made.any_of("blocks", "chunks", "chunks", "store"))
    connector: Connector = made.deployed["connector"]
    made.deployed["connector"] = replace(
        connector,
        umbp=connector.store and made.chance(0.5),
        outputs=connector.chunk > 0,
        delay=made.any_of(2, 4, 8),
    )
    made.deployed["max_num_seqs"] = made.any_of(2, 3, 4)


def _decodes_at_once(made: Scenario) -> None:
    """Requests come at once and grow, until there is no room for all."""

    def grows(_: Arrival) -> dict[str, Any]:
        output = made.new_tokens(made.random.randint(made.size, 4 * made.size))
        return {"output": output, "arrives": made.any_of(0, 0, 1), "after": None}

    made.each(0.8, grows)


def _short_steps(made: Scenario) -> None:
    """Steps compute less than a block, or than a chunk of some."""
    _offloads(made, made.any_of("blocks", "chunks", "chunks", "store"))
    made.deployed["max_num_scheduled_tokens"] = made.drafts + made.random.randint(2, made.size + 1)


def _in_chunks(made: Scenario) -> None:
    """Host memory in chunks, in which all that is computed has room."""
    sizes, chunk = {each.block_size for each in made.groups}, 1
    if len(sizes) == 1 and "prefix_match_unit" not in made.deployed:  # parts of blocks are alone
        chunk = made.any_of(1, 2, 2, 4)
    made.deployed["connector"] = Connector(
        offloads=2 + 16 * _LONGEST * len(made.groups),
        chunk=chunk,
        outputs=made.chance(0.7),
        delay=made.any_of(0, 1, 1, 3),
    )
    if any(each.kind in SPARSE_KINDS for each in made.groups):
        made.deployed["retention_interval"] = "dense"


def _asked_again(made: Scenario) -> None:
    """Requests go on with what others have computed, when chunks of it are in host memory alone."""
    _asked_again_unreset(made)
    made.each(0.5, lambda _: {"after_reset": True})


def _asked_again_unreset(made: Scenario) -> None:
    """Requests go on with what others have computed; two of them come at once."""
    names = list(made.requests)
    for name in ("again", "too", "more"):
        donor = made.random.choice(names)
        first = made.requests[donor]
        whole = first.prompt + first.output
        prompt = made.any_of(first.prompt, whole, whole + made.new_tokens(made.size))
        prompt, output = prompt[: _LONGEST * made.size], made.new_tokens(made.random.randint(1, 6))
        made.requests[name] = Arrival(prompt, output, made.any_of(0, 0, 2), donor)


def _asked_twice(made: Scenario) -> None:
    """A prompt is asked for again, and again, when what was computed of it is in the tier alone.

    The first time its end is computed anew, beside what is loaded, and stored.
    """
    donor = made.random.choice(list(made.requests))
    prompt, unit = made.requests[donor].prompt, made.deployed.get("prefix_match_unit", made.size)
    for name in ("second", "third"):
        end = (len(prompt) - 1) // unit * unit  # of what a repeat finds at best
        longer = prompt + made.new_tokens(made.any_of(0, 0, 1, made.size))
        prompt = made.any_of(longer, longer, prompt[: max(1, end)], prompt[: end + 1])
        prompt = prompt[: _LONGEST * made.size]
        output = made.new_tokens(made.random.randint(1, 4))
        made.requests[name] = Arrival(prompt, output, 4, donor, after_reset=True)
        donor = name


def _host(made: Scenario) -> None:
    made.groups = [Group(_FULL, made.size)]
    made.deployed |= {
        "v2_model_runner": True,
        "host": HostPool(
            2 + made.any_of(1, 2, 6) * _LONGEST,
            made.random.randint(1, 3),
            made.any_of(1, 1, 2),
            made.chance(0.5),
            made.any_of(0, 0, 1, 3),
            made.chance(0.5),
        ),
    }


def _host_loads(made: Scenario) -> None:
    host: HostPool = made.deployed["host"]
    if host.loads:
        made.each(
            0.5,
            lambda request: {
                "loads": made.random.randint(1, len(request.prompt)),
                "load_fails": made.chance(0.25),
            },
        )


def _precisions(made: Scenario) -> None:
    formats = ("float32", "fp8")
    made.deployed["precisions"] = tuple(made.random.choice(formats) for _ in made.groups)
    made.scarce = True


def _uncached(made: Scenario) -> None:
    made.groups = [each for each in made.groups if each.kind is not _STATE]
    sizes = {each.block_size for each in made.groups}
    # Nothing is hashed by it.
    unit = made.any_of(None, 2 * max(sizes), 3) if len(made.groups) > 1 else None
    made.deployed |= {"enable_prefix_caching": False, "prefix_match_unit": unit}


def _ring(made: Scenario) -> None:
    """Groups outside the prefix cache, whose blocks may be of any size."""
    size = math.lcm(*(each.block_size for each in made.groups))
    size = made.any_of(size, max(size // 2, 1))
    made.groups.append(Group(_FULL, size, prefix_cacheable=False))
    if made.chance(0.4) and [each.kind for each in made.groups] == [_FULL, _FULL]:
        size = max(size, 2)
        tokens = size * made.any_of(1, 2, 3)
        made.groups.append(Group(_WINDOW, size, tokens, prefix_cacheable=False))
        made.deployed["v2_model_runner"] = True


def _retention(made: Scenario) -> None:
    if not any(each.kind in SPARSE_KINDS for each in made.groups):
        made.groups.append(_group(_WINDOW, made.size, made.random))
    alignment = math.lcm(*(each.block_size for each in made.groups))
    made.deployed["retention_interval"] = made.any_of("dense", 0, alignment, 2 * alignment)


def _context_parallel(made: Scenario) -> None:
    made.groups = [Group(_FULL, made.size * made.any_of(1, 2)) for _ in range(made.any_of(1, 2))]
    decode, prefill = made.any_of((2, 2), (2, 1), (1, 2), (4, 1))
    made.deployed |= {
        "decode_context_parallel_size": decode,
        "prefill_context_parallel_size": prefill,
    }


def _whole_prompts(made: Scenario) -> None:
    made.deployed["enable_chunked_prefill"] = False


FEATURES = (
    Feature("one window", _of_kinds(_WINDOW), share=2),
    Feature("windows", _of_kinds(_FULL, _WINDOW), share=3),
    Feature("two windows", _of_kinds(_FULL, _WINDOW, _WINDOW)),
    Feature("states", _of_kinds(_FULL, _STATE), share=3),
    Feature("windows and states", _of_kinds(_FULL, _WINDOW, _STATE)),
    Feature("chunks", _of_kinds(_FULL, GroupKind.CHUNKED_LOCAL), without=("drafts",)),
    Feature("block sizes", _of_sizes),
    Feature("hits inside blocks", _fine),
    Feature(
        "context parallel", _context_parallel, without=("drafts", "retention", "outside the cache")
    ),
    Feature("host pool", _host, _host_loads, without=("drafts", "retention")),
    Feature("outside the cache", _ring, without=("host pool", "connector", "offloads")),
    Feature("retention", _retention),
    Feature("drafts", _drafts, _accepted, share=6),
    Feature("planned ahead", _ahead, share=5),
    Feature("few blocks", _scarce, share=5),
    Feature("limits", _limits, share=3),
    Feature("watermark", _watermark),
    Feature("whole prompts", _whole_prompts),
    Feature(
        "no prefix caching", _uncached, without=("hits inside blocks", "retention", "offloads")
    ),
    Feature("offloads", _offloads, without=("retention", "one window", "outside the cache")),
    Feature("connector", _connector, _transfers, share=2),
    Feature("precisions", _precisions),
    Feature("session", ask=_session, without=("embeddings", "stops")),
    Feature("images", _encoder, _images, share=2),
    Feature("embeddings", ask=_embeddings),
    Feature("adapters", lambda made: made.deployed.update(max_loras=made.any_of(1, 2)), _adapters),
    Feature("stops", ask=_stops, share=3),
    Feature("follow-up", ask=_follow_up, without=("embeddings",)),
    Feature("grammars", ask=_grammars),
    Feature("salts", ask=_salts),
    Feature("skips reading", ask=_skips),
    Feature("gives up", ask=_gives_up, share=2),
    Feature("asks for more", _longest_asked),
    Feature("reset before a request", ask=_arrives_after_reset),
    Feature("resets", ask=_resets),
    Feature("pauses", ask=_pauses),
    Feature("priorities", _by_priority, _priorities, share=2),
)
"""Features in the order in which they change a scenario."""

_NAMED = (
    Feature("store", lambda made: _offloads(made, "store")),
    Feature("umbp", _umbp, _asked_again_unreset),
    Feature("in blocks", _in_blocks, _asked_again),
    Feature("in chunks", _in_chunks, _asked_again),
    Feature("reads fail", _unread, _reads_fail),
    Feature("sampled too", _also_sampled, _asked_again_unreset),
    Feature("writes fail", _unwritten, _asked_again_unreset),
    Feature("two connectors", _several, _loads_beside),
    Feature("answers later", _later, _asked_again_unreset),
    Feature("lazily", _lazily, _asked_again_unreset),
    Feature("little room", _little_room, _asked_again_unreset),
    Feature("evicting", _evicting, _asked_again_unreset),
    Feature("preempting", _preempting, _decodes_at_once),
    Feature("short steps", _short_steps, _asked_again_unreset),
    Feature("hands over", _producer, _hand_over),
    Feature("gives way", _by_priority_in_small_steps, _gives_way),
    Feature("prompts give way", _by_priority_in_small_steps, _prompts_give_way),
    Feature("loads beside prompts", _connector_in_small_steps, _loads_beside_prompts),
    Feature("grows", _scarce, _decodes_at_once),
    Feature("images moved", ask=_images_moved),
    Feature("gives up loads", _connector, _loads_are_given_up),
    Feature("second runner", lambda made: made.deployed.update(v2_model_runner=True)),
    Feature("asked twice", ask=_asked_twice),
    Feature("draft head", lambda made: _drafts(made, *DRAFT_HEADS), _accepted),
    Feature("one token left", _drafts_of_others, _one_token_left, without=("drafts", "retention")),
)
"""Features that scenarios have only if their seed names them."""

_LAYOUTS = FEATURES[:10]
"""They say which groups there are: a scenario has one of them at most."""


def features(seed: int | str) -> list[Feature]:
    """The features of the scenario of a seed; that of its number comes first.

    A seed may name them: ``7 with drafts, stops``.
    """
    _, _, named = str(seed).partition(" with ")
    if named:
        return [each for each in (*FEATURES, *_NAMED) if each.name in named.split(", ")]
    random = Random(f"hitproof scenario {seed}")
    chosen = [FEATURES[int(str(seed).rpartition(":")[2]) % len(FEATURES)]]
    others = sorted(FEATURES, key=lambda each: random.random() ** (1 / each.share), reverse=True)
    wanted = random.choice(_FEATURES_AT_ONCE)
    for each in others:
        if len(chosen) < wanted and all(go_together(each, other) for other in chosen):
            chosen.append(each)
    return chosen


def scenario(seed: int | str) -> SchedulerHistory:
    """The scenario of a seed."""
    return with_features(seed)[0]


def with_features(seed: int | str) -> tuple[SchedulerHistory, list[Feature]]:
    """The scenario of a seed, and which features it has in the end."""
    chosen = features(seed)
    while True:
        try:
            return _made(Random(f"hitproof scenario {seed} of {len(chosen)}"), chosen), chosen
        except HistoryError:
            chosen = chosen[:-1]


def go_together(one: Feature, other: Feature) -> bool:
    """Whether a scenario may have both features, as far as the table says."""
    both_say_the_groups = one in _LAYOUTS and other in _LAYOUTS
    return not (
        one is other
        or both_say_the_groups
        or one.name in other.without
        or other.name in one.without
    )


def _made(random: Random, chosen: list[Feature]) -> SchedulerHistory:
    in_order = [each for each in (*FEATURES, *_NAMED) if each in chosen]
    size = random.choice((2, 4, 4, 8))
    made = Scenario(random, size, [Group(_FULL, size)])
    for each in in_order:
        each.deploy(made)
    _draw_requests(made)
    for each in in_order:
        each.ask(made)
    longest = max(len(each.prompt) + len(each.sampled) for each in made.requests.values())
    longest += made.drafts + random.choice((0, 0, 2))
    if made.longest is not None:
        _cut(made, longest := made.longest, asks=False)
    elif made.cuts:
        _cut(made, longest := longest - random.randint(0, made.size))
    deployment = _deployment(made, longest)
    return SchedulerHistory(deployment, made.requests, **made.played)


def _draw_requests(made: Scenario) -> None:
    """Requests that are sent again, go on, branch off or are new, at once or one after another."""
    random, most = made.random, _LONGEST * made.size
    for name in _NAMES[: random.randint(3, 6)]:
        output = made.new_tokens(made.any_of(1, 2, random.randint(1, 2 * made.size)))
        room = most - len(output)
        prompt: tuple[int, ...] = ()
        after = None
        if made.requests and made.chance(0.75):
            donor = random.choice(list(made.requests))
            first = made.requests[donor]
            after = donor if made.chance(0.6) else None
            whole = first.prompt + first.output
            prompt = made.any_of(first.prompt, whole, whole[: made.near_an_edge(len(whole))])[:room]
        if not prompt or made.chance(0.6):
            prompt += made.new_tokens(max(0, made.near_an_edge(room) - len(prompt)))
        prompt = prompt or made.new_tokens(1)
        made.requests[name] = Arrival(prompt, output, made.any_of(0, 0, 0, 1, 2, 5), after)


def _cut(made: Scenario, longest: int, asks: bool = True) -> None:
    """Cut requests to the longest that is served, and ask for more than there is then."""
    for name, each in made.requests.items():
        output = each.output[: max(1, longest - len(each.prompt))]
        prompt = each.prompt[: longest - len(output)]
        more = len(output) + made.any_of(-1, 0, 1, made.size) if asks else 0
        least = max(0, more) if len(prompt) + len(output) == longest else 0
        made.requests[name] = replace(each, prompt=prompt, output=output, min_tokens=least)


def _deployment(made: Scenario, longest: int) -> Deployment:
    random, groups, drafts = made.random, tuple(made.groups), made.drafts
    alignment = math.lcm(*(each.block_size for each in groups))
    budget = made.any_of(made.size, alignment, alignment + 1, 2 * alignment - 1, 3 * alignment)
    budget = max(made.any_of(budget, budget, 4 * longest), 4) + drafts
    if not made.deployed.get("enable_chunked_prefill", True):
        budget = max(budget, longest)
    encoder: Encoder | None = made.deployed.get("encoder")
    if encoder is not None and encoder.whole_images:
        lengths = [each.length for asked in made.requests.values() for each in asked.images]
        budget = max(budget, max(lengths, default=0) + drafts + 2)
    if "max_num_scheduled_tokens" in made.deployed:
        budget = max(budget, made.deployed["max_num_scheduled_tokens"])
    if encoder is not None and not made.deployed.get("enable_chunked_prefill", True):
        size, cache = max(encoder.budget, budget), max(encoder.cache_size, budget)
        made.deployed["encoder"] = replace(encoder, budget=size, cache_size=cache)
    one = sum(_blocks_needed(each, longest, budget, drafts) for each in groups)
    one += sum(each.window is not None for each in groups)
    host: HostPool | None = made.deployed.get("host")
    if host is not None:
        in_flight = min(one, 1 + 2 * budget // made.size)
        one += host.resident_groups * (host.hot_blocks + in_flight)
    one *= made.deployed.get("ranks", 1)
    pool = one + (
        random.randint(0, one // 3 + 1) if made.scarce else random.choice((1, 4, 8)) * one
    )
    unit = made.deployed.get("prefix_match_unit") or math.gcd(*(e.block_size for e in groups))
    if not is_fine_grained(groups, unit):
        made.deployed.pop("mamba_checkpoint_alignment", None)
        made.deployed.pop("mamba_shared_prefix_checkpoint", None)
    arguments = {"max_num_seqs": made.any_of(1, 2, 4, 4)} | made.deployed
    return Deployment(groups, 1 + pool, longest, budget, **arguments)


def _blocks_needed(group: Group, longest: int, budget: int, drafts: int) -> int:
    """Blocks that one request of the longest kind needs at most."""
    blocks = math.ceil((longest + drafts) / group.block_size)
    match group.kind:
        case GroupKind.MAMBA:
            return 3 + drafts
        case GroupKind.SLIDING_WINDOW:
            assert group.window is not None
            seen = group.window - 1 + 2 * (budget + drafts)
            return min(blocks, math.ceil(seen / group.block_size) + 1)
        case _:
            return blocks
