"""What a test of a whole scheduler is made of: the source of these classes goes into it.

They step vLLM's own scheduler as its ``EngineCore`` does, with a model that answers what
a script says. A test has only the classes that it needs, so each imports what it uses of
vLLM where it is used, and nothing of ours. They are many: one for each thing that is asserted.
"""

from collections import deque
from typing import Any, NamedTuple


class Model:
    """What a scheduler asks of ModelConfig: a text model with nothing special."""

    runner_type = "generate"
    skip_tokenizer_init = True
    hf_overrides = multimodal_config = logits_processors = None

    def __init__(self, max_model_len: int) -> None:
        self.max_model_len = self.original_max_model_len = max_model_len

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_"):
            raise AttributeError(name)
        return False


class Arrival(NamedTuple):
    """A request, and what the model samples for it."""

    request: Any
    output: list[int]
    after: str | None = None  # the request that ends before
    arrives: int = 0  # how many steps later
    accepted: tuple[int, ...] = ()  # how many drafts are right, at each verification
    aborted: int | None = None  # after how many steps
    after_reset: bool = False  # whether the prefix cache is reset before
    past_end: tuple[int, ...] = ()  # what the model would sample if it went on


class Engine:
    """Steps a scheduler like EngineCore."""

    def __init__(
        self,
        scheduler: Any,
        arrivals: dict[str, Arrival],
        batches: int = 1,
        drafts: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.arrivals = arrivals
        self.batches = batches  # steps in flight, at most
        self.drafts = drafts  # how many the model proposes
        self.hits: dict[str, int] = {}
        self.delivered: dict[str, list[int]] = {name: [] for name in arrivals}
        self.arrived: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.tables: dict[str, list[list[int]]] = {}
        self.sampled = dict.fromkeys(arrivals, 0)
        self.proposed = dict.fromkeys(arrivals, 0)
        self.verified = dict.fromkeys(arrivals, 0)
        self.in_flight: deque[Any] = deque()

    def run(self, steps: int) -> None:
        """Step until all requests have ended, but at most so often."""
        for step in range(steps):
            self.let_arrive(step)
            if self.is_busy():
                if not self.plan(step):
                    continue
            elif not self.in_flight and self.is_over():
                return
            if self.in_flight:
                self.update(step, *self.in_flight.popleft())

    def plan(self, _: int) -> bool:
        """Plan and compute a step; whether to take the oldest one up now."""
        output = self.scheduler.schedule()
        chunks = self.take_tables(output)
        self.execute(output, chunks)
        self.in_flight.append((output, *self.sample(chunks)))
        tokens = output.total_num_scheduled_tokens
        return len(self.in_flight) >= self.batches or not tokens

    def is_busy(self) -> bool:
        """Whether a step is to be planned."""
        return bool(self.scheduler.has_requests())

    def is_over(self) -> bool:
        """Whether all requests have ended."""
        return len(self.ended) == len(self.arrivals)

    def let_arrive(self, step: int) -> None:
        """Add the requests whose time has come."""
        from vllm.v1.request import RequestStatus

        for name, arrival in self.arrivals.items():
            if name not in self.arrived and self.is_due(name, step):
                self.arrived[name] = step
                if arrival.after_reset:
                    self.scheduler.reset_prefix_cache(reset_running_requests=True)
                self.scheduler.add_request(arrival.request)
        for name, arrived in self.arrived.items():
            due = step - arrived == self.arrivals[name].aborted
            if due and name not in self.ended:
                self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
                self.ended[name] = step

    def is_due(self, name: str, step: int) -> bool:
        """Whether a request's time has come."""
        arrival, since = self.arrivals[name], 0
        if arrival.after is not None:
            since = self.ended.get(arrival.after, step + 1)
        return step >= since + arrival.arrives

    def take_tables(self, output: Any) -> list[tuple[str, int, int]]:
        """Update block tables as a model runner does; which tokens are computed."""
        starts = {}
        for new in output.scheduled_new_reqs:
            name = self.called(new.req_id)
            starts[name] = new.num_computed_tokens
            self.hits.setdefault(name, starts[name])
            self.tables[name], self.proposed[name] = list(map(list, new.block_ids)), 0
        cached = output.scheduled_cached_reqs
        names = list(map(self.called, cached.req_ids))
        resumed = set(map(self.called, cached.resumed_req_ids))
        starts |= dict(zip(names, cached.num_computed_tokens, strict=True))
        for name, more in zip(names, cached.new_block_ids, strict=True):
            if name in resumed:
                self.tables[name], self.proposed[name] = list(map(list, more)), 0
            elif more is not None:
                for table, ids in zip(self.tables[name], more, strict=True):
                    table.extend(ids)
        chunks = []
        for request_id, count in output.num_scheduled_tokens.items():
            name = self.called(request_id)
            start = min(starts[name], self.known(name) - 1)
            chunks.append((name, start, start + count))
        return chunks

    def known(self, name: str) -> int:
        """How many tokens the request has, those of steps in flight included."""
        return len(self.prompt(name)) + self.sampled[name]

    def prompt(self, name: str) -> list[int]:
        """The prompt of a request."""
        request = self.arrivals[name].request
        return list(request.prompt_token_ids or [0] * request.num_prompt_tokens)

    def images(self, name: str) -> list[tuple[str, int, int]]:
        """The images in the prompt of a request, from one token to before another."""
        images = self.arrivals[name].request.mm_features
        places = [(each.identifier, each.mm_position) for each in images]
        return [(each, at.offset, at.offset + at.length) for each, at in places]

    def called(self, request_id: str) -> str:
        """The name of the request that has an id."""
        return request_id

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Compute the tokens of a step: here nothing."""

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """What the model samples and drafts."""
        from vllm.v1.outputs import ModelRunnerOutput

        tokens, drafts = [], {}
        for name, _, end in chunks:
            arrival, known, new = self.arrivals[name], self.known(name), []
            if end >= known:
                rest = [*arrival.output, *arrival.past_end][self.sampled[name] :]
                tried = min(end - known, self.proposed[name])
                right = 0
                if tried and arrival.accepted:
                    turn = self.verified[name] % len(arrival.accepted)
                    wanted = arrival.accepted[turn]
                    most = self.most_right(name, tried)
                    right = max(0, min(wanted, most, len(rest) - 1))
                self.verified[name] += bool(tried)
                new = rest[: 1 + right] or [0]
                self.sampled[name] += len(rest[: 1 + right])
                self.proposed[name] = self.drafts
                upcoming = [*rest[1 + right :], *[0] * self.drafts]
                drafts[arrival.request.request_id] = upcoming[: self.drafts]
            tokens.append(new)
        ids = [self.arrivals[name].request.request_id for name, _, _ in chunks]
        places = {request_id: place for place, request_id in enumerate(ids)}
        return ModelRunnerOutput(ids, places, tokens), drafts

    def most_right(self, _: str, tried: int) -> int:
        """How many of the ``tried`` drafts can be right at most."""
        return tried

    def update(self, step: int, output: Any, result: Any, drafts: Any) -> Any:
        """Give the scheduler the result of a step; returns its answer."""
        from vllm.v1.outputs import DraftTokenIds

        answered = self.scheduler.update_from_output(output, result)
        if self.drafts and drafts and self.batches == 1:
            proposed = DraftTokenIds(list(drafts), list(drafts.values()))
            self.scheduler.update_draft_token_ids(proposed)
        for outputs in answered.values():
            for each in outputs.outputs:
                self.deliver(step, each)
        for name in self.arrived:
            if self.arrivals[name].request.is_finished():
                self.ended.setdefault(name, step)
        return answered

    def deliver(self, _: int, output: Any) -> None:
        """Give a user the tokens of a step."""
        self.delivered[output.request_id] += output.new_token_ids


class SeeingEngine(Engine):
    """Asserts that the encoder's output of each image is there when a step reads it."""

    ahead = 0  # tokens that draft layers look ahead

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Free and encode as a model runner does, then read."""
        kept: set[str] = vars(self).setdefault("kept", set())
        kept.difference_update(output.free_encoder_mm_hashes)
        for name, places in output.scheduled_encoder_inputs.items():
            images = self.images(self.called(name))
            kept.update(images[place][0] for place in places)
        for name, start, end in chunks:
            for identifier, first, last in self.images(name):
                if first < end + self.ahead and start < last:
                    assert identifier in kept


class CountingEngine(Engine):
    """Counts the drafts that it has proposed and verified, and those in statistics."""

    tried = accepted = counted = counted_accepted = 0

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """Count what is verified of each request, and how many of it are right."""
        tried = []
        for name, _, end in chunks:
            past = end - self.known(name)
            tried.append(min(max(past, 0), self.proposed[name]))
        result, drafts = super().sample(chunks)
        self.tried += sum(tried)
        for number, tokens in zip(tried, result.sampled_token_ids, strict=True):
            self.accepted += len(tokens) - 1 if number else 0
        return result, drafts

    def update(self, *arguments: Any) -> Any:
        """Give the scheduler the result of a step, and add up what it counts."""
        answered = super().update(*arguments)
        for outputs in answered.values():
            stats = getattr(outputs.scheduler_stats, "spec_decoding_stats", None)
            if stats is not None:
                self.counted += stats.num_draft_tokens
                self.counted_accepted += stats.num_accepted_tokens
        return answered


class SparingEngine(Engine):
    """Asserts that no image is encoded that is there, or has been read in part."""

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Free as a model runner does, then encode."""
        kept: set[str] = vars(self).setdefault("kept", set())
        begun: set[tuple[str, int, str]] = vars(self).setdefault("begun", set())
        starts = {name: start for name, start, _ in chunks}
        kept.difference_update(output.free_encoder_mm_hashes)
        for name, places in output.scheduled_encoder_inputs.items():
            images = self.images(called := self.called(name))
            for identifier in [images[place][0] for place in places]:
                assert identifier not in kept
                assert (called, starts[called], identifier) not in begun
                kept.add(identifier)
        for name, _, end in chunks:
            for identifier, first, last in self.images(name):
                if first < end < last:
                    begun.add((name, end, identifier))


class WholeEngine(Engine):
    """Asserts that a step that starts an image computes all of it."""

    def execute(self, _: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Look where chunks end."""
        for name, start, end in chunks:
            for _, first, last in self.images(name):
                assert not start <= first < end < last


class PagedEngine(Engine):
    """Keeps what each step writes: slots and states, as the tokens they depend on."""

    pages: dict[int, dict[tuple[int, int], list[Any]]]
    unit: int  # tokens of a hash

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Copy pages, then compute."""
        self.pages = getattr(self, "pages", {})
        copies = getattr(output, "kv_cache_block_copies", None) or ()
        # As vLLM's worker does, read all sources before a target is written.
        held = {c.dst_block_id: self.pages.get(c.src_block_id, {}) for c in copies}
        self.pages.update((target, dict(pages)) for target, pages in held.items())
        self.compute(chunks)

    def compute(self, chunks: list[tuple[str, int, int]]) -> None:
        """Write the tokens of a step into the pages."""
        for chunk in chunks:
            self.fill(*chunk)

    def fill(self, name: str, start: int, end: int, right: bool = True) -> None:
        """Write tokens into the pages of a request, or garbage."""
        tokens = self.tokens(name)
        for group, spec in enumerate(self.specs()):
            size = spec.block_size
            if hasattr(spec, "mamba_type"):
                held = tokens[:end] if right else None
                self.write(name, group, (end - 1) // size, 0, held)
                self.export(name, group, start, end)
                continue
            for token in range(start, end):
                place, slot = divmod(token, size)
                held = self.entry(tokens, token) if right else None
                self.write(name, group, place, slot, held)

    def export(self, name: str, group: int, start: int, end: int) -> None:
        """Write the state from inside a chunk, where a backend exports one."""
        from vllm.v1 import kv_cache_interface as interface

        spec = self.specs()[group]
        align = getattr(spec, "prefill_checkpoint_alignment", None)
        if align is None:
            return
        unit, size = self.unit, spec.block_size
        drop = self.scheduler.use_eagle_block_drop
        ahead = getattr(self.scheduler, "num_hash_lookahead_tokens", 0)
        position = interface.get_mamba_prefill_checkpoint_position(
            end,
            unit,
            drop_eagle_block=drop,
            **({"num_hash_lookahead_tokens": ahead} if ahead else {}),
        )
        is_valid = interface.is_mamba_prefill_checkpoint_valid
        if is_valid(start, end, position, unit, size, align):
            held = self.tokens(name)[:position]
            self.write(name, group, (end - 1) // size - 1, 0, held)

    def entry(self, tokens: list[Any], token: int) -> list[Any]:
        """What a token's entry depends on."""
        return tokens[: token + 1]

    def specs(self) -> list[Any]:
        """The KV cache spec of each group."""
        groups = self.scheduler.kv_cache_config.kv_cache_groups
        return [group.kv_cache_spec for group in groups]

    def tokens(self, name: str) -> list[Any]:
        """All tokens of a request, with their adapter, image or embedding."""
        request, output, *_ = arrival = self.arrivals[name]
        adapter = request.lora_request and request.lora_request.lora_name
        tokens = [*self.prompt(name), *output, *arrival.past_end]
        content: list[Any] = [(token, adapter) for token in tokens]
        for identifier, first, last in self.images(name):
            for token in range(first, last):
                content[token] = (*content[token], identifier, token - first)
        if request.prompt_embeds is not None:
            is_id = getattr(request, "prompt_is_token_ids", None)
            for place, row in enumerate(request.prompt_embeds.tolist()):
                if not (is_id and is_id[place]):
                    content[place] = (*content[place], *row)
        return content

    def at(self, name: str, group: int, place: int) -> int:
        """The block at a place of a block table; 0 if there is none."""
        table = self.tables[name][group]
        return table[place] if place < len(table) else 0

    def write(self, name: str, group: int, place: int, slot: int, held: Any) -> None:
        """Write a slot; another group's content of the page is lost."""
        block = self.at(name, group, place)
        page = self.pages.setdefault(block, {})
        if any(other != group for other, _ in page):
            page.clear()
        if block:  # the null block keeps nothing
            page[group, slot] = held


class ReadingEngine(PagedEngine):
    """Asserts that each step reads what the request alone would have computed."""

    judged: tuple[int, ...]  # groups

    def compute(self, chunks: list[tuple[str, int, int]]) -> None:
        """Read the states, write what is computed, read what it attends to."""
        of_mamba = [g for g in self.judged if hasattr(self.specs()[g], "mamba_type")]
        for name, start, _ in chunks:
            for group in of_mamba if start else ():
                place = (start - 1) // self.specs()[group].block_size
                page = self.pages.get(self.at(name, group, place), {})
                assert page.get((group, 0)) == self.tokens(name)[:start]
        super().compute(chunks)
        for name, start, end in chunks:
            for group in set(self.judged).difference(of_mamba):
                self.read(name, group, start, end)

    def read(self, name: str, group: int, start: int, end: int) -> None:
        """Read what the tokens of a chunk attend to in a group."""
        spec, tokens = self.specs()[group], self.tokens(name)
        window = getattr(spec, "sliding_window", None) or start + 1
        chunk = getattr(spec, "attention_chunk_size", None) or start + 1
        first = max(start - window + 1, start // chunk * chunk)
        for token in range(first, end):
            place, slot = divmod(token, spec.block_size)
            page = self.pages.get(self.at(name, group, place), {})
            assert page.get((group, slot)) == self.entry(tokens, token)


class DraftingEngine(ReadingEngine):
    """Asserts it of layers that draft."""

    def entry(self, tokens: list[Any], token: int) -> list[Any]:
        """What a token's entry depends on: the next token, too."""
        return tokens[: token + 2]


class KeyedEngine(PagedEngine):
    """Asserts that a block that a hash finds holds the tokens of the hash."""

    judged: tuple[int, ...]  # groups

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Compute a step, and look all hashes up."""
        super().execute(output, chunks)
        self.look_up()

    def update(self, *arguments: Any) -> None:
        """Give the scheduler the result of a step, and look all hashes up."""
        super().update(*arguments)
        self.look_up()

    def look_up(self) -> None:
        """Compare the blocks that are found with what they hold."""
        from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize

        pool = self.scheduler.kv_cache_manager.block_pool
        for name in self.arrived:
            hashes, tokens = self.arrivals[name].request.block_hashes, self.tokens(name)
            for group in self.judged:
                spec = self.specs()[group]
                size, keys = spec.block_size, hashes
                if size != self.unit:
                    keys = BlockHashListWithBlockSize(hashes, self.unit, size)
                by_end = {(n + 1) * self.unit: key for n, key in enumerate(hashes)}
                by_end |= {(n + 1) * size: keys[n] for n in range(len(keys))}
                for end, key in by_end.items():
                    for block in pool.get_cached_block(key, [group]) or ():
                        page = self.pages.get(block.block_id, {})
                        if hasattr(spec, "mamba_type"):
                            assert page.get((group, 0)) == tokens[:end]
                            continue
                        for token in range((end - 1) // size * size, end):
                            held = page.get((group, token % size))
                            assert held == tokens[: token + 1]


class Transfer(NamedTuple):
    """What a KV connector loads of a request, and sends."""

    loads: int = 0  # tokens
    load_steps: int | None = None  # how long; None: the step that uses them loads them
    load_fails: bool = False
    invalid_blocks: tuple[int, ...] = ()  # what the load fails for, by place
    invalid_steps: int | None = None  # when that is said; None: with the load's end
    send_steps: int | None = None  # how long after the end


class LoadingEngine(PagedEngine):
    """Has workers that load and send what a connector is asked for."""

    transfers: dict[str, Transfer]
    under_way: dict[str, tuple[int, int, int]]
    sending: dict[str, int]
    report: Any
    steps = 0

    def connect(self, transfers: dict[str, Transfer]) -> None:
        """Tell the scheduler's half of the connector what there is."""
        self.transfers, self.under_way, self.sending = transfers, {}, {}
        connector = self.scheduler.connector
        for name, each in transfers.items():
            if each.loads:
                connector.tokens[name] = each.loads
            if each.load_steps is None:
                connector.at_once.add(name)
            if each.send_steps is not None:
                connector.sends.add(name)

    def is_busy(self) -> bool:
        """Whether a step is to be planned: also while anything is on its way."""
        return super().is_busy() or bool(self.under_way or self.sending)

    def compute(self, chunks: list[tuple[str, int, int]]) -> None:
        """Load and send beside what is computed."""
        from vllm.v1.outputs import KVConnectorOutput

        self.steps += 1
        invalid = self.begin()
        for name, (ends, start, end) in self.under_way.items():
            each = self.transfers[name]
            if each.invalid_steps == self.steps - ends + (each.load_steps or 0):
                invalid |= self.invalid(name, start, end)
        for chunk in chunks:
            self.forward(chunk)
        over = [name for name, each in self.under_way.items() if each[0] <= self.steps]
        sent = {name for name, ends in self.sending.items() if ends <= self.steps}
        for name in over:
            invalid |= self.load(name, *self.under_way.pop(name)[1:])
        for name in sent:
            del self.sending[name]
        failed = {name for name in over if self.transfers[name].load_fails}
        self.report = KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving=set(over) or None,
            invalid_block_ids=invalid,
            **({"failed_recving": failed} if failed else {}),
        )

    def forward(self, chunk: tuple[str, int, int]) -> None:
        """Compute the tokens of a request."""
        super().compute([chunk])

    def begin(self) -> set[int]:
        """Begin what was asked for; which blocks could not be loaded at once."""
        connector, invalid = self.scheduler.connector, set[int]()
        for name, (start, end, tables) in connector.asked.items():
            steps = self.transfers[name].load_steps
            if steps is None:
                invalid |= self.load(name, start, end)
            else:
                self.tables[name] = list(map(list, tables))
                self.fill(name, start, end, right=False)  # not there yet
                self.under_way[name] = self.steps + steps, start, end
        for name in connector.ended:
            self.sending[name] = self.steps + (self.transfers[name].send_steps or 0)
        connector.asked, connector.ended = {}, {}
        return invalid

    def load(self, name: str, start: int, end: int) -> set[int]:
        """Write what is loaded; which blocks could not be."""
        transfer, size = self.transfers[name], self.specs()[0].block_size
        self.fill(name, start, end, right=not transfer.load_fails)
        for place in transfer.invalid_blocks:
            first, last = max(start, place * size), min(end, (place + 1) * size)
            if first < last:
                self.fill(name, first, last, right=False)
        if transfer.invalid_steps is not None:
            return set()
        return self.invalid(name, start, end)

    def invalid(self, name: str, start: int, end: int) -> set[int]:
        """The blocks of a load that fail."""
        size = self.specs()[0].block_size
        places = range(start // size, (end - 1) // size + 1)
        failing = self.transfers[name].invalid_blocks
        return {self.at(name, 0, place) for place in places if place in failing}

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """What the model samples, and what workers report."""
        result, drafts = super().sample(chunks)
        result.kv_connector_output = self.report
        return result, drafts

    def update(self, *arguments: Any) -> None:
        """Give the scheduler the result; what is not delivered is sampled again."""
        had = {name: len(tokens) for name, tokens in self.delivered.items()}
        super().update(*arguments)
        result = arguments[2]
        for name, new in zip(result.req_ids, result.sampled_token_ids, strict=True):
            if len(self.delivered[name]) == had[name]:
                self.sampled[name] = max(0, self.sampled[name] - len(new))


class LoadedReadingEngine(LoadingEngine, ReadingEngine):
    """Asserts it where a connector loads."""


class LoadedKeyedEngine(LoadingEngine, KeyedEngine):
    """Asserts it where a connector loads."""


class FailedLoadEngine(LoadedReadingEngine):
    """Asserts that no user gets a token that comes of a failed load."""

    spoilt: set[str]
    misread: deque[set[str]]

    def connect(self, transfers: dict[str, Transfer]) -> None:
        """Tell the connector what there is; note what comes of it."""
        super().connect(transfers)
        self.spoilt, self.misread = set(), deque()

    def compute(self, chunks: list[tuple[str, int, int]]) -> None:
        """Compute a step, and note which requests read what a load has spoilt."""
        self.misread.append(set())
        super().compute(chunks)

    def forward(self, chunk: tuple[str, int, int]) -> None:
        """Compute the tokens of a request, which are spoilt by what it reads."""
        name, start, end = chunk
        # What was not delivered is not known, and cannot be computed.
        known = self.known(name) + self.proposed[name]
        unknown = name in self.spoilt and end > known
        try:
            super().forward(chunk)
        except AssertionError:
            unknown = True
        if unknown:
            self.spoilt.add(name)
            self.misread[-1].add(name)
            self.fill(name, start, end, right=False)

    def load(self, name: str, start: int, end: int) -> set[int]:
        """Write what is loaded, and note whose load has failed."""
        invalid = super().load(name, start, end)
        if invalid or self.transfers[name].load_fails:
            self.spoilt.add(name)
        return invalid

    def update(self, *arguments: Any) -> None:
        """Give the scheduler the result, and note which requests get a token of it."""
        had = {name: len(tokens) for name, tokens in self.delivered.items()}
        super().update(*arguments)
        for name in self.misread.popleft():
            assert len(self.delivered[name]) == had[name]


class HostPoolEngine(Engine):
    """Has workers that copy pages to a pool in host memory, and load onto it."""

    transfers: dict[str, Transfer]
    delay: int
    copying: list[tuple[int, int]]
    loading: list[tuple[int, str]]
    report: Any
    steps = 0

    def connect(self, transfers: dict[str, Transfer], delay: int) -> None:
        """What there is to load, and after how many steps it is reported."""
        self.transfers, self.delay = transfers, delay
        self.copying, self.loading = [], []
        for name, each in transfers.items():
            self.scheduler.connector._connectors[1].tokens[name] = each.loads

    def execute(self, output: Any, chunks: list[tuple[str, int, int]]) -> None:
        """Do what workers are told, and report what is over."""
        from vllm.distributed.kv_transfer.kv_connector.v1.hisparse import connector
        from vllm.v1.outputs import KVConnectorOutput

        super().execute(output, chunks)
        self.steps += 1
        metadata = output.kv_connector_metadata
        several = hasattr(metadata, "metadata")
        own = metadata.metadata[0] if several else metadata
        pages = own.command.page_transfers if own.command is not None else ()
        self.copying += [(self.steps, page.transfer_id) for page in pages]
        if several:
            loader = self.scheduler.connector._connectors[1]
            self.loading += [(self.steps, name) for name in loader.asked]
            loader.asked = {}
        last = self.steps - self.delay
        done = {number: 1 for since, number in self.copying if since <= last}
        loaded = {name for since, name in self.loading if since <= last}
        self.copying = [each for each in self.copying if each[0] > last]
        self.loading = [each for each in self.loading if each[0] > last]
        copied = tuple(each.dst_block_id for each in own.host_block_copies)
        told = connector.HiSparseConnectorWorkerMetadata(done, dict(done), copied)
        self.report = KVConnectorOutput(
            finished_recving=loaded or None,
            failed_recving={name for name in loaded if self.transfers[name].load_fails},
            kv_connector_worker_meta=self.of_several(told) if several else told,
        )

    def of_several(self, told: Any) -> Any:
        """The report of one of two connectors."""
        from vllm.distributed.kv_transfer.kv_connector.v1 import multi_connector

        return multi_connector.MultiKVConnectorWorkerMetadata((told, None))

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """What the model samples, and what workers report."""
        result, drafts = super().sample(chunks)
        result.kv_connector_output = self.report
        return result, drafts
