"""What a test with streaming sessions is made of, beside `scripted_engine`.

The source of these classes goes into the test, too.
"""

from typing import Any

from hitproof.vllm_integration.reproduce.scripted_engine import Engine


class SessionEngine(Engine):
    """Has streaming sessions: requests of one id are its inputs, in turn."""

    prompts: dict[str, list[int]]
    seen: dict[str, list[tuple[str, int, int]]]
    ends: dict[str, tuple[Any, int]]

    def converse(self, ends: dict[str, tuple[Any, int]]) -> None:
        """What ends each session, by its last input, and how many steps after it.

        An input goes on with all tokens of the one before but the last.
        """
        self.ends, self.prompts, self.seen = ends, {}, {}
        kept: dict[str, list[int]] = {}
        seen: dict[str, list[tuple[str, int, int]]] = {}
        for name, (request, output, *_) in self.arrivals.items():
            before = kept.get(request.request_id, [])
            # vLLM appends to the list of the first input.
            self.prompts[name] = [*before, *request.prompt_token_ids]
            kept[request.request_id] = [*self.prompts[name], *output[:-1]]
            own, first = super().images(name), len(before)
            added = [(one, first + start, first + end) for one, start, end in own]
            self.seen[name] = [*seen.get(request.request_id, []), *added]
            seen[request.request_id] = self.seen[name]

    def inputs(self, request_id: str) -> list[str]:
        """The inputs of a session; a request by itself."""
        every = self.arrivals.items()
        return [name for name, each in every if each.request.request_id == request_id]

    def is_due(self, name: str, step: int) -> bool:
        """Whether the time of an input has come, and those before it are there."""
        inputs = self.inputs(self.arrivals[name].request.request_id)
        before = inputs[: inputs.index(name)]
        return self.arrived.keys() >= set(before) and super().is_due(name, step)

    def let_arrive(self, step: int) -> None:
        """Add the requests whose time has come, and end sessions."""
        super().let_arrive(step)
        for name, (end, steps) in list(self.ends.items()):
            since = self.ended.get(name, step + 1) if steps else 0
            if name in self.arrived and step >= since + steps:
                self.scheduler.add_request(end)
                del self.ends[name]

    def is_over(self) -> bool:
        """Whether all requests and sessions have ended."""
        return super().is_over() and not self.ends

    def prompt(self, name: str) -> list[int]:
        """All tokens of an input's session when it begins."""
        return self.prompts[name]

    def images(self, name: str) -> list[tuple[str, int, int]]:
        """All images of an input's session when it begins."""
        return self.seen[name]

    def called(self, request_id: str) -> str:
        """The input that a session is at."""
        inputs = [name for name in self.inputs(request_id) if name in self.arrived]
        return next((name for name in inputs if name not in self.ended), inputs[-1])

    def deliver(self, step: int, output: Any) -> None:
        """Give the user of an input the tokens of a step."""
        name = self.called(output.request_id)
        self.delivered[name] += output.new_token_ids
        if output.finish_reason is not None:
            self.ended.setdefault(name, step)


class ToldEngine(SessionEngine):
    """Asserts that the model runner is told the tokens of an input that count, and its images."""

    def take_tables(self, output: Any) -> list[tuple[str, int, int]]:
        """Compare what is told of an input; which tokens are computed."""
        for new in output.scheduled_new_reqs:
            name = self.called(new.req_id)
            assert new.prompt_token_ids == self.prompt(name)
            places = [(each.identifier, each.mm_position) for each in new.mm_features]
            images = [(each, at.offset, at.offset + at.length) for each, at in places]
            assert images == self.images(name)
        return super().take_tables(output)
