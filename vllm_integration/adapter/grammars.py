"""The grammars of a scheduler history's requests, in the target's own ``StructuredOutputManager``.

A grammar is a script, as what the model samples is. It has no vocabulary: where it constrains what
is sampled, the mask says how many tokens it had accepted by then. Imported in the worker process
only.
"""

from concurrent.futures import Future
from itertools import takewhile
from typing import Any

import torch
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.subject.schedulers import Masks
from hitproof.vllm_integration.adapter.inspection import attribute

_ALL = -1
"""The row of a mask that allows every token; a test has it as a number."""
_STRIDE = "mask_stride"
_ACCEPTABLE = "num_acceptable_drafts"


class ScriptedGrammar(StructuredOutputGrammar):  # type: ignore[misc]  # untyped vLLM
    """A grammar that accepts the tokens of a script, and after them all but one.

    Attributes:
        tokens: the script.
        rejected: a token that it accepts nowhere.
        accepted: how many tokens it has accepted.
    """

    def __init__(self, tokens: list[int], rejected: int) -> None:
        self.tokens, self.rejected, self.accepted = tokens, rejected, 0

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """The first tokens that it accepts."""
        for number, token in enumerate(tokens):
            due = self.tokens[self.accepted + number : self.accepted + number + 1]
            if token == self.rejected or due not in ([], [token]):
                return tokens[:number]
        return tokens

    def accept_tokens(self, _request_id: str, tokens: list[int]) -> bool:
        """Accept tokens, if it does."""
        number = len(self.validate_tokens(tokens))
        self.accepted += number
        return number == len(tokens)

    def rollback(self, num_tokens: int) -> None:
        """Take the last tokens back."""
        self.accepted -= num_tokens

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Say where it is."""
        bitmask[batch_index] = self.accepted

    def is_terminated(self) -> bool:
        """Whether nothing more is constrained."""
        return False

    def reset(self) -> None:
        """Begin again."""
        self.accepted = 0


class ScriptedBackend(StructuredOutputBackend):  # type: ignore[misc]  # untyped vLLM
    """Makes masks of one number for each token that is sampled."""

    def __init__(self) -> None:
        pass  # no vocabulary, no tokenizer

    def compile_grammar(self, *_: Any, **__: Any) -> StructuredOutputGrammar:
        """Never called: a script needs no compilation."""
        raise NotImplementedError("grammars are scripts")

    def allocate_token_bitmask(self, max_num_seqs: int) -> torch.Tensor:
        """Rows of one number, which allow every token."""
        return torch.full((max_num_seqs, 1), -1, dtype=torch.int32)

    def destroy(self) -> None:
        """There is nothing to free."""


class RunningGrammars:
    """The grammars of the requests of one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        attribute(scheduler, "structured_output_manager").backend = ScriptedBackend()
        self._compiling: dict[str, tuple[Future[Any], ScriptedGrammar]] = {}

    def begin(self, request: Any, arrival: Arrival) -> None:
        """The grammar of a request is being compiled. vLLM: ``grammar_init``."""
        compiling: Future[Any] = Future()
        grammar = ScriptedGrammar(list(arrival.sampled), arrival.rejected)
        self._compiling[request.request_id] = compiling, grammar
        attribute(request, "structured_output_request").grammar = compiling

    def end(self, name: str) -> None:
        """The grammar of a request is compiled."""
        compiling, grammar = self._compiling.pop(name)
        compiling.set_result(grammar)

    def masks(self, output: Any, v2_model_runner: bool) -> dict[str, Masks]:
        """What the masks of a step allow, by request, as its model runner reads them."""
        made = self._scheduler.get_grammar_bitmask(output)
        if made is None:
            return {}
        names, rows = made.structured_output_request_ids, made.grammar_bitmask[:, 0].tolist()
        spaced = _STRIDE in StructuredOutputManager.grammar_bitmask.__code__.co_varnames
        found, first = {}, 0
        for place, name in enumerate(names):
            drafts = output.scheduled_spec_decode_tokens.get(name, ())
            states = rows[first : first + 1 + len(drafts)]
            # The first model runner has no drafts but those that it is given.
            acceptable = sum(1 for _ in takewhile(lambda token: token >= 0, drafts))
            if v2_model_runner:
                most = getattr(made, _ACCEPTABLE, None)
                acceptable = len(drafts) if most is None else most[place]
            states = tuple(None if state == _ALL else state for state in states)
            found[name] = Masks(states, acceptable)
            first += len(rows) // len(names) if spaced else 1 + len(drafts)
        return found
