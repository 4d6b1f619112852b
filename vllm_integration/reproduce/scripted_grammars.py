"""What a test with grammars or pauses is made of, beside `scripted_engine`.

The source of these classes goes into the test, too; the grammars are those of the adapter.
"""

from typing import Any, NamedTuple

from hitproof.vllm_integration.reproduce.scripted_engine import Engine


class PausingEngine(Engine):
    """Is paused for a time, in one way or another."""

    pauses: list[tuple[range, Any]]  # steps, and the state then

    def let_arrive(self, step: int) -> None:
        """Add the requests whose time has come, then pause or go on."""
        from vllm.v1.core.sched.interface import PauseState

        super().let_arrive(step)
        states = [state for steps, state in self.pauses if step in steps]
        self.scheduler.set_pause_state(states[0] if states else PauseState.UNPAUSED)


class Constraint(NamedTuple):
    """The grammar of a request."""

    grammar: Any
    steps: int  # how long after its arrival it is compiled
    valid_drafts: tuple[int, ...] = ()  # how many, of each step in turn


class GrammarEngine(Engine):
    """Has requests with grammars, and samples under their masks."""

    keeps_drafts = False  # whether the model runner itself has those it verifies
    constraints: dict[str, Constraint]
    compiling: dict[str, Any]

    def constrain(self, backend: Any, constraints: dict[str, Constraint]) -> None:
        """Have the grammars compiled."""
        from concurrent.futures import Future

        self.constraints = constraints
        self.compiling = {name: Future() for name in constraints}
        self.turns = dict.fromkeys(constraints, 0)
        self.valid = dict.fromkeys(constraints, 0)  # of the drafts that are proposed
        self.scheduler.structured_output_manager.backend = backend
        for name, compiling in self.compiling.items():
            structured = self.arrivals[name].request.structured_output_request
            structured.grammar = compiling

    def let_arrive(self, step: int) -> None:
        """Add the requests whose time has come, and end compiling."""
        super().let_arrive(step)
        for name, compiling in list(self.compiling.items()):
            since = self.arrived.get(name, step + 1)
            grammar, steps, _ = self.constraints[name]
            if step >= since + steps and name not in self.ended:
                compiling.set_result(grammar)
                del self.compiling[name]

    def plan(self, step: int) -> bool:
        """Plan and compute a step, which may await the tokens of the one in flight."""
        output = self.scheduler.schedule()
        chunks = self.take_tables(output)
        self.execute(output, chunks)
        tokens = output.total_num_scheduled_tokens
        waits = bool(tokens and output.pending_structured_output_tokens)
        if waits:
            if not self.in_flight:
                return False  # it waits for ever
            self.await_tokens(step, output)
        self.take_masks(output)
        self.in_flight.append((output, *self.sample(chunks)))
        return not (waits or (len(self.in_flight) < self.batches and tokens))

    def await_tokens(self, step: int, output: Any) -> None:
        """Take up the step in flight, and have its drafts checked for this one."""
        from vllm.v1.outputs import DraftTokenIds

        taken_up, result, drafts = self.in_flight.popleft()
        self.update(step, taken_up, result, drafts)
        if self.drafts and drafts:
            proposed = DraftTokenIds(list(drafts), list(drafts.values()))
            self.scheduler.update_draft_token_ids_in_output(proposed, output)

    def take_masks(self, output: Any) -> None:
        """What each request may sample, after each draft that may be accepted."""
        self.masks: dict[str, list[int]] = {}
        self.acceptable: dict[str, int] = {}
        self.known_drafts: dict[str, int] = {}
        scheduled = output.scheduled_spec_decode_tokens
        for name, drafts in scheduled.items():
            self.known_drafts[name] = sum(token >= 0 for token in drafts)
        made = self.scheduler.get_grammar_bitmask(output)
        if made is None:
            return
        names = made.structured_output_request_ids
        rows = made.grammar_bitmask[:, 0].tolist()
        widths = [1 + len(scheduled.get(name, ())) for name in names]
        if sum(widths) < len(rows):  # all have as many
            widths = [len(rows) // len(names)] * len(names)
        told = getattr(made, "num_acceptable_drafts", None)
        for place, name in enumerate(names):
            first = sum(widths[:place])
            drafts = scheduled.get(name, ())
            self.masks[name] = rows[first : first + 1 + len(drafts)]
            self.acceptable[name] = self.known_drafts.get(name, 0)
            if told is not None:
                self.acceptable[name] = told[place]
            elif self.keeps_drafts:
                self.acceptable[name] = len(drafts)

    def most_right(self, name: str, tried: int) -> int:
        """How many of the ``tried`` drafts can be right at most."""
        valid = self.valid.get(name, tried)
        return min(tried, valid, self.acceptable.get(name, tried))

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """What the model samples and drafts; the grammar may reject a part of it."""
        result, drafts = super().sample(chunks)
        for name, (grammar, _, every) in self.constraints.items():
            proposed = drafts.get(name, ())
            if not proposed:
                continue
            self.valid[name] = len(proposed)
            if every:
                turn = self.turns[name] % len(every)
                self.valid[name] = min(len(proposed), every[turn])
                self.turns[name] += 1
                for place in range(self.valid[name], len(proposed)):
                    proposed[place] = grammar.rejected
        return result, drafts


class ObeyingEngine(GrammarEngine):
    """Asserts that what is sampled of requests with grammars is what these allow."""

    def take_tables(self, output: Any) -> list[tuple[str, int, int]]:
        """Look whether all that is computed has its grammar."""
        chunks = super().take_tables(output)
        assert not any(name in self.compiling for name, _, _ in chunks)
        return chunks

    def sample(self, chunks: list[tuple[str, int, int]]) -> tuple[Any, Any]:
        """Compare drafts and masks with what grammars accept, and sample."""
        for name, _, end in chunks:
            past = end - self.known(name)
            ended = self.arrivals[name].request.is_finished()
            if name not in self.constraints or past < 0 or ended:
                continue
            valid = min(past, self.proposed[name], self.valid[name])
            assert self.known_drafts.get(name, 0) <= valid
            count = 1 + min(valid, self.acceptable.get(name, valid))
            first = self.sampled[name]  # a mask says how many tokens were accepted
            allowed = self.masks.get(name, [])[:count]
            assert allowed == list(range(first, first + count))
        return super().sample(chunks)
