"""Replay in numbers: a history judged, and computed by the small model in the manager's blocks.

The small model runs beside the symbolic content model, on the same calls: after every one that
computes, the logits are compared with those of the request computed without a cache. What a step
writes where, and what it reads, is decided here and there by separate code, so that each confirms
the other. Both take from the same functions which groups are modelled, which of them have draft
layers and how far these look ahead (`conformance.judge.content_entries`), and where states are
exported (`conformance.playing.checkpoints`): an error in these shows in neither.

- A page that no request holds and no key names is NaN, and so is one taken for another use.
- A step computes the tokens that the request has in the end; those of drafts that turn out wrong
  are NaN once they are settled, and so are the entries of the draft head that depend on tokens
  which were not known.
- Requests of one step compute in the order in which they are scheduled, and each reads recurrent
  states as they were before the step.

A LoRA adapter, and an image where its placeholders are, change what is computed. A salt does not.
Groups that opt out of prefix caching have no layers, nor have Mamba groups whose blocks the drafts
of one step can fill (`conformance.judge.content_entries`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hitproof.conformance.explain.traces import State
from hitproof.conformance.histories.schema import EngineConfiguration, History, RequestInput
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_entries import DueEntries, Sign
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.numeric.caches import Paged, Pages, Uncached, at
from hitproof.conformance.numeric.model import Answer, Layer, Model, Token
from hitproof.conformance.numeric.outcome import Errors, NumericOutcome
from hitproof.conformance.numeric.resuming import difference
from hitproof.conformance.playing.checkpoints import exported
from hitproof.conformance.subject.managers import ManagerSubject, Observation, Tables
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.terms import ceil_div

Report = Callable[[str, int, Errors], None]
"""What is called with the error of each pass: of which request, and from which token on."""


@dataclass(frozen=True)
class _Pass:
    """A pass whose drafts are not settled; see `conformance.judge.content`."""

    first: int
    start: int
    end: int
    known: int
    tables: Tables
    answer: Answer
    states: Mapping[Layer, Tensor]

    @property
    def drafts(self) -> int:
        """How many drafts it verifies."""
        return max(0, self.end - self.known)

    def state(self, layer: Layer, tokens: int) -> Tensor:
        """The state of a layer as of ``tokens`` tokens."""
        return self.states[layer][tokens - self.start]


class NumericContent(ContentModel):
    """The content model of a manager's blocks, with the small model beside it.

    ``report`` is called when the tokens of a pass are settled.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        sign: Sign,
        every_state: bool = False,
        policy: LookaheadHorizon = LookaheadHorizon.HASHED,
        replays: bool = False,
        *,
        report: Report,
    ) -> None:
        super().__init__(engine, requests, sign, every_state, policy, replays)
        self._numbers = Numbers(engine, requests, every_state, policy, report)

    def new_step_starts(self) -> None:
        """See `ContentModel`, as for the other methods."""
        super().new_step_starts()
        self._numbers.pages.new_step_starts()

    def observed(self, seen: Observation) -> None:
        """Poison what was given up."""
        super().observed(seen)
        self._numbers.observed(seen)

    def copy(self, source: int, target: int) -> None:
        """Copy pages."""
        super().copy(source, target)
        self._numbers.copy(source, target)

    def free(self, request: str) -> None:
        """The request's next pass starts anew."""
        super().free(request)
        self._numbers.free(request)

    def load(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """Write what computing without a cache gives."""
        super().load(request, tables, start, end, known)
        self._numbers.load(request, tables, start, end, known)

    def compute(
        self, request: str, tables: Tables, start: int, num_new: int, known: int
    ) -> Iterator[Any]:
        """Compute."""
        yield from super().compute(request, tables, start, num_new, known)
        self._numbers.compute(request, tables, start, start + num_new, known)

    def settle(self, request: str, num_computed: int, proposes: bool = True) -> None:
        """Compare."""
        super().settle(request, num_computed, proposes)
        self._numbers.settle(request, num_computed)


class Numbers:
    """The small model of one history."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        every_state: bool,
        policy: LookaheadHorizon,
        report: Report,
    ) -> None:
        self._engine, self._requests = engine, requests
        self._every_state, self._policy, self._report = every_state, policy, report
        due = DueEntries(engine, requests)
        modelled = [due.is_modelled(group) for group in engine.groups]
        self.model = Model(engine.groups, due.has_drafts, due.lookahead, modelled=modelled)
        self.pages = Pages(self.model, engine.num_gpu_blocks)
        self._recurrent = [layer for layer in self.model.layers if self.model.is_recurrent(layer)]
        self._attending = [layer for layer in self.model.layers if layer not in self._recurrent]
        self._states = sorted({layer.group for layer in self._recurrent})
        self._expected: dict[str, Uncached] = {}
        self._passes: dict[str, _Pass] = {}
        self._final: dict[str, int] = {}
        self._running: dict[tuple[str, int], int] = {}
        self._hidden: dict[str, dict[int, Tensor]] = {}
        self._held: dict[int, set[tuple[str, int]]] = {}
        self._keys: dict[int, set[Any]] = {}
        self._copied: set[int] = set()

    # --- pages ---------------------------------------------------------------------------------

    def observed(self, seen: Observation) -> None:
        """Poison what can no longer be read, and what was taken for another use."""
        held: dict[int, set[tuple[str, int]]] = {}
        for request, tables in seen.tables.items():
            for group, table in enumerate(tables):
                for block in table:
                    held.setdefault(block, set()).add((request, group))
        for block in seen.ref_counts:  # held back for a copy, and in no table
            held.setdefault(block, set())
        keys: dict[int, set[Any]] = {}
        for key, ids in seen.cached.items():
            for block in ids:
                keys.setdefault(block, set()).add(key)
        for block in self._held.keys() | self._keys.keys() | held.keys():
            kept = self._keys.get(block, set()) & keys.get(block, set())
            owned = self._held.get(block, set()) & held.get(block, set())
            still = block in self._held and block in keys and block not in held
            back = block in self._held and not held.get(block, {0})
            if not (kept or owned or still or back or block in self._copied):
                self.pages.poison(block)
        self._held, self._keys = held, keys
        self._copied.clear()

    def copy(self, source: int, target: int) -> None:
        """Copy a page, before the step computes."""
        self.pages.copy(source, target)
        self._copied.add(target)

    def free(self, request: str) -> None:
        """The request gives up its blocks."""
        for kept in (self._passes, self._final, self._hidden):
            kept.pop(request, None)
        for group in self._states:
            self._running.pop((request, group), None)

    def load(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """A connector has what computing without a cache gives.

        If a request is loaded whole, its last token is recomputed from the state before.
        """
        right, tokens = self._uncached(request, end), range(start, end)
        for layer in self._attending:
            entries = right.entries[layer][start:end]
            self.pages.write(layer, tables[layer.group], tokens, entries)
        for layer in self._recurrent:
            group = layer.group
            block = at(tables[group], (end - 1) // self._engine.groups[group].block_size)
            self.pages.write_state(layer, block, right.states[layer][min(end, known - 1)])
            self._running[request, group] = block
        self.pages.arrived(block for table in tables for block in table)

    # --- passes --------------------------------------------------------------------------------

    def compute(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """The forward pass on the tokens from ``start`` to ``end``."""
        first = self._final.pop(request, start)
        states = {}
        for group in self._states if start else ():
            place = (start - 1) // self._engine.groups[group].block_size
            states[group] = self._running.get((request, group), at(tables[group], place))
        hidden = self._hidden.setdefault(request, {})
        again = [hidden[token] for token in range(first, start)]
        cache = Paged(self.pages, tables, states)
        before = {layer: cache.state(layer) for layer in self._recurrent}
        tokens = self._tokens(request, end + self.model.modules)
        answer = self.model.run(tokens, cache, start, end, torch.stack(again) if again else None)
        hidden.update(enumerate(answer.hidden, start))
        after = {
            layer: torch.cat([before[layer][None], kept]) for layer, kept in cache.kept.items()
        }
        now = self._passes[request] = _Pass(first, start, end, known, tables, answer, after)
        for layer in self._recurrent:
            self._write_states(layer, now)
        for group in self._states:
            size = self._engine.groups[group].block_size
            self._running[request, group] = at(tables[group], ceil_div(end, size) - 1)

    def _write_states(self, layer: Layer, now: _Pass) -> None:
        """Keep the state of the certain tokens, one of each draft after it, and what is exported.

        vLLM: ``mamba_utils``.
        """
        size, table = self._engine.groups[layer.group].block_size, now.tables[layer.group]
        sure, current = now.end - now.drafts, ceil_div(now.end, size) - 1
        kept = {current + draft: sure + draft for draft in range(now.drafts + 1)}
        if self._every_state:
            kept = {
                block: (block + 1) * size for block in range(now.start // size, sure // size)
            } | kept
        checkpoint = exported(self._engine, self._policy, now.start, now.end)
        if checkpoint is not None:
            kept[checkpoint.block] = checkpoint.tokens
        for block, tokens in kept.items():
            self.pages.write_state(layer, at(table, block), now.state(layer, tokens))

    def settle(self, request: str, num_computed: int) -> None:
        """The drafts of the last pass are settled: tokens from ``num_computed`` on were wrong."""
        last = self._passes.pop(request, None)
        if last is None:
            return
        # A step that has computed all that was known samples a token.
        known, ahead = max(last.known, num_computed + 1), self.model.modules
        final = min(num_computed, max(last.first, known - ahead))
        if final < num_computed:
            self._final[request] = final
        wrong, settled = range(num_computed, last.end), range(final, num_computed)
        for layer in self._attending:
            of_drafts = self.model.modules and layer.module
            self.pages.write(layer, last.tables[layer.group], wrong, torch.nan)
            if of_drafts:
                proposed = range(num_computed, num_computed)
                if ahead == 1:
                    most = num_computed + max(self._engine.num_speculative_tokens - 1, 0)
                    proposed = range(num_computed, min(most, self._engine.max_model_len))
                for tokens in (settled, proposed):
                    self.pages.write(layer, last.tables[layer.group], tokens, torch.nan)
        for layer in self._recurrent:
            self._settle_states(request, layer, last, num_computed)
        self._compare(request, last, num_computed, final)

    def _settle_states(self, request: str, layer: Layer, last: _Pass, num_computed: int) -> None:
        size, table = self._engine.groups[layer.group].block_size, last.tables[layer.group]
        sure, current = last.end - last.drafts, ceil_div(last.end, size) - 1
        accepted = num_computed - sure
        for draft in range(accepted + 1, last.drafts + 1):
            self.pages.write_state(layer, at(table, current + draft), torch.nan)
        self._running[request, layer.group] = at(table, current + accepted)
        filled = num_computed // size * size
        if last.drafts and filled >= sure:
            self.pages.write_state(layer, at(table, filled // size - 1), last.state(layer, filled))

    def _compare(self, request: str, last: _Pass, num_computed: int, final: int) -> None:
        right = self._uncached(request, last.end).answer
        target = difference(
            last.answer.logits[: num_computed - last.start], right.logits[last.start : num_computed]
        )
        drafts = [
            difference(found[: final - last.first], due[last.first : final])
            for found, due in zip(last.answer.drafts, right.drafts, strict=True)
        ]
        self._report(request, last.start, Errors(target, max(drafts, default=0.0)))

    # --- requests ------------------------------------------------------------------------------

    def _uncached(self, request: str, end: int) -> Uncached:
        """The request computed without a cache, up to ``end`` tokens at least."""
        found = self._expected.get(request)
        if found is None or len(found.answer.logits) < end:
            end = max(end, len(self._requests[request].token_ids)) + self._engine.lookahead_slots
            tokens = self._tokens(request, end + self.model.modules)
            found = self._expected[request] = Uncached(self.model, tokens)
        return found

    def _tokens(self, request: str, end: int) -> list[Token]:
        given, tokens = self._requests[request], list[Token]()
        embedded = given.embedded
        for position, token in enumerate(given.token_ids):
            shown = [
                (image.identifier, position - image.offset)
                for image in given.images
                if image.offset <= position < image.offset + image.length
            ]
            if position in embedded:
                shown.append(("embedding", embedded[position]))
            tokens.append((token, given.lora_name, given.lora_path, *shown))
        past = range(len(tokens), end)
        return tokens + [("past the end", request, position) for position in past]


def numeric_replay(
    history: History,
    subject: ManagerSubject,
    policies: JudgedPolicies | None = None,
    noted: Callable[[State, bool], None] | None = None,
) -> tuple[ReplayOutcome, NumericOutcome]:
    """Replay a history, and compute it; see `conformance.judge.judged_replay.replay`."""
    found, step = NumericOutcome(), 0

    def report(request: str, token: int, errors: Errors) -> None:
        found.add(step, request, token, errors)

    def step_ends() -> None:
        nonlocal step
        step += 1

    content = partial(NumericContent, report=report)
    return replay(history, subject, policies, step_ends, noted, content), found
