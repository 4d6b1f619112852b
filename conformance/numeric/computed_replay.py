"""Replay in numbers: a history judged, and computed by the small model in the manager's blocks.

The small model runs in the content model, whose names it gives numbers: after every pass that is
settled, its logits are compared with those of the request computed without a cache. Where a step
writes, and which tokens' entries are garbage, is decided once for both
(`conformance.judge.content`); what a pass reads, the model decides by its attention.

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hitproof.conformance.explain.traces import State
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, History, RequestInput
from hitproof.conformance.judge.content import ContentModel
from hitproof.conformance.judge.content_entries import Sign
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.numeric.caches import Paged, Pages, Uncached, at
from hitproof.conformance.numeric.model import Answer, Layer, Model, Token
from hitproof.conformance.numeric.outcome import Errors, NumericOutcome
from hitproof.conformance.numeric.resuming import difference
from hitproof.conformance.subject.managers import ManagerSubject, Observation, Tables
from hitproof.spec.releases.horizons import LookaheadHorizon

Report = Callable[[str, int, Errors], None]
"""What is called with the error of each pass: of which request, and from which token on."""


@dataclass(frozen=True)
class _Computed:
    """What a pass computed from ``start`` on, draft layers from ``first`` on.

    ``states`` are those of each recurrent layer, as of ``start`` tokens and after each token.
    """

    first: int
    start: int
    answer: Answer
    states: Mapping[Layer, Tensor]


class NumericContent(ContentModel):
    """The content model of a manager's blocks, with the small model's numbers in them.

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
        self._requests, self._report = requests, report
        modelled = [self._due.is_modelled(group) for group in engine.groups]
        drafts = self._due.has_drafts
        self.model = Model(engine.groups, drafts, self._due.lookahead, modelled=modelled)
        self.pages = Pages(self.model, engine.num_gpu_blocks)
        self._expected: dict[str, Uncached] = {}
        self._computed: dict[str, _Computed] = {}
        self._hidden: dict[str, dict[int, Tensor]] = {}
        self._held: dict[int, set[tuple[str, int]]] = {}
        self._keys: dict[int, set[Any]] = {}
        self._copied: set[int] = set()
        self._loads = False

    def _layers(self, group: int) -> Iterator[Layer]:
        return (layer for layer in self.model.layers if layer.group == group)

    # --- pages ---------------------------------------------------------------------------------

    def new_step_starts(self) -> None:
        """See `ContentModel`, as for the other methods."""
        super().new_step_starts()
        self.pages.new_step_starts()

    def observed(self, seen: Observation) -> None:
        """Poison what can no longer be read, and what was taken for another use."""
        super().observed(seen)
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
        """Copy pages."""
        super().copy(source, target)
        self.pages.copy(source, target)
        self._copied.add(target)

    def free(self, request: str) -> None:
        """The request's next pass starts anew."""
        super().free(request)
        self._computed.pop(request, None)
        self._hidden.pop(request, None)

    def load(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """A connector has what computing without a cache gives."""
        self._loads = True
        super().load(request, tables, start, end, known)
        self._loads = False
        self.pages.arrived(block for table in tables for block in table)

    # --- what is written -----------------------------------------------------------------------

    def _write_entries(self, request: str, group: int, table: Sequence[int], tokens: range) -> None:
        """A pass writes them itself, as it reads them at once."""
        super()._write_entries(request, group, table, tokens)
        for layer in self._layers(group) if self._loads else ():
            entries = self._uncached(request, tokens.stop).entries[layer]
            self.pages.write(layer, table, tokens, entries[tokens.start : tokens.stop])

    def _spoil_entries(
        self, request: str, group: int, table: Sequence[int], tokens: range, what: str
    ) -> None:
        super()._spoil_entries(request, group, table, tokens, what)
        for layer in self._layers(group):
            self.pages.write(layer, table, tokens, torch.nan)

    def _spoil_drafts(
        self, request: str, group: int, table: Sequence[int], tokens: range, computed: bool
    ) -> None:
        super()._spoil_drafts(request, group, table, tokens, computed)
        for layer in self._layers(group):
            if layer.module:
                self.pages.write(layer, table, tokens, torch.nan)

    def _write_state(
        self, request: str, group: int, table: Sequence[int], block: int, length: int
    ) -> None:
        super()._write_state(request, group, table, block, length)
        of = self._computed[request]
        for layer in self._layers(group):
            self.pages.write_state(layer, at(table, block), of.states[layer][length - of.start])

    def _load_state(
        self, request: str, group: int, table: Sequence[int], end: int, known: int
    ) -> None:
        super()._load_state(request, group, table, end, known)
        block = at(table, (end - 1) // self._engine.groups[group].block_size)
        for layer in self._layers(group):
            states = self._uncached(request, end).states[layer]
            self.pages.write_state(layer, block, states[min(end, known - 1)])

    def _spoil_state(
        self, request: str, group: int, table: Sequence[int], block: int, what: str
    ) -> None:
        super()._spoil_state(request, group, table, block, what)
        for layer in self._layers(group):
            self.pages.write_state(layer, at(table, block), torch.nan)

    # --- passes --------------------------------------------------------------------------------

    def compute(
        self, request: str, tables: Tables, start: int, num_new: int, known: int
    ) -> Iterator[Violation]:
        """Compute, from the states that are read."""
        first, end, states = self._final.get(request, start), start + num_new, dict[int, int]()
        recurrent = [layer for layer in self.model.layers if self.model.is_recurrent(layer)]
        for group in {layer.group for layer in recurrent} if start else ():
            place = (start - 1) // self._engine.groups[group].block_size
            states[group] = self._running.get((request, group), at(tables[group], place))
        hidden = self._hidden.setdefault(request, {})
        again = [hidden[token] for token in range(first, start)]
        cache = Paged(self.pages, tables, states)
        before = {layer: cache.state(layer)[None] for layer in recurrent}
        tokens = self._tokens(request, end + self.model.modules)
        answer = self.model.run(tokens, cache, start, end, torch.stack(again) if again else None)
        hidden.update(enumerate(answer.hidden, start))
        after = {layer: torch.cat([before[layer], kept]) for layer, kept in cache.kept.items()}
        self._computed[request] = _Computed(first, start, answer, after)
        yield from super().compute(request, tables, start, num_new, known)

    def settle(self, request: str, num_computed: int, proposes: bool = True) -> None:
        """Compare what is final."""
        super().settle(request, num_computed, proposes)
        last = self._computed.pop(request, None)
        if last is None:
            return
        final = self._final.get(request, num_computed)
        right = self._uncached(request, last.start + len(last.answer.logits)).answer
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
