"""The worker's side of doctor: a deployment of the imported vLLM, and what requests hit on it."""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from hitproof.conformance.explain.derivation import Derived, broken_rules
from hitproof.conformance.explain.reuse import Before, CacheSetup, Kept, Reuse, shortfall
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.simulation.tiers import Stored, TierSetup, tier_shortfall
from hitproof.spec.groups import share_eagle
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.device import DEVICE
from hitproof.vllm_integration.adapter.engine import (
    DraftModel,
    Engine,
    NoProgress,
    OutOfReach,
    Refused,
    Served,
    set_up_once,
)
from hitproof.vllm_integration.adapter.subject import VllmSubject

_MODEL = "model"
_ENDS: dict[type[Exception], str] = {
    Refused: "refused",
    OutOfReach: "out of reach",
    DraftModel: "draft model",
    NoProgress: "no progress",
}
"""What an answer without rows says of why there are none."""
_ENDLESS = {"rule": "what start-up accepts finishes"}
_UNSOUND = {"rule": "no hit is longer than what may be kept for it"}
_LARGEST = 1 << 17
"""The most tokens of a request that is served to see whether it finishes."""
_MOST_BOUNDARIES = 32
_OF_ITS_OWN = 1 << 20
"""Far more tokens than a prompt has, so that each has tokens of its own."""


def deploy(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Start an engine for a model and arguments, and serve requests of the given lengths.

    ``lengths`` are those of prompts, ``answer`` and ``question`` of the rest, all in tokens; with
    ``shortest`` the shortest prompt is looked for that hits anything.
    """
    try:
        engine = Engine(model_directory(message["config"]), message["arguments"])
    except tuple(_ENDS) as end:
        return {"refused": str(end), "end": _ENDS[type(end)]}
    patient = _Patient(engine, subject, message["answer"], message["question"])
    try:
        shortest = patient.shortest() if message["shortest"] else None
        rows = [row for length in message["lengths"] for row in patient.rows(length)]
        tier = patient.told(message["shortest"])
        if shortest and shortest > patient.setup.shortest_prompt():
            rows.append(patient.resend(shortest - 1))
        endless = message["shortest"] and patient.never_finishes()
    except tuple(_ENDS) as end:
        return {"refused": str(end), "end": _ENDS[type(end)]}
    setup = patient.setup
    config = engine.config
    return {
        "refused": "",
        "deployment": {
            "device": DEVICE,
            "left_out": set_up_once(),
            "text_only": engine.text_only,
            "groups": [
                {
                    **picked(group, *_OF_GROUP),
                    "spec": spec,
                    "layers": len(layers),
                    "first_layer": layers[0] if layers else "",
                }
                for group, layers, spec in engine.groups()
            ],
            **picked(setup, *_OF_SETUP, prefix_caching="caching"),
            "speculative_method": getattr(config.speculative_config, "method", None),
            "num_speculative_tokens": getattr(
                config.speculative_config, "num_speculative_tokens", 0
            ),
            "mamba_cache_mode": engine.mamba_cache_mode,
            "max_model_len": config.model_config.max_model_len,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "async_scheduling": bool(getattr(config.scheduler_config, "async_scheduling", False)),
            "tier": tier,
        },
        "broken_rules": [
            picked(each, "rule", "sentence") for each in broken_rules(_derived(engine, setup))
        ]
        + ([_ENDLESS | {"sentence": endless}] if endless else [])
        + [_UNSOUND | {"sentence": each} for each in _too_long(rows, setup.alignment)],
        "rows": rows,
        "shortest": shortest,
        "shortest_at_best": setup.shortest_prompt(),
    }


def _too_long(rows: Sequence[dict[str, Any]], alignment: int) -> list[str]:
    """The first hit, as a list, that ends on a later boundary than any that may be kept."""
    longer = (row for row in rows if row["hit"] // alignment * alignment > row["best"])
    return [
        f"a {row['reuse']} of {row['prompt']} tokens hits {row['hit']}, at best {row['best']}"
        for row in longer
    ][:1]


_WHOLE = (Reuse.RESEND, Reuse.TURN)
"""What repeats all of the prompt that was served."""
_OF_GROUP = "kind", "block_size", "window", "chunk", "eagle", "prefix_cacheable"
_OF_SETUP = (
    *("alignment", "scheduler_block_size", "hash_block_size", "num_blocks"),
    *("use_eagle", "hash_lookahead", "retention"),
)


def broken_by(config: str, arguments: Sequence[str]) -> frozenset[str]:
    """The rules that the groups of a model break; why start-up refuses it is one."""
    try:
        engine = Engine(model_directory(config), arguments)
    except tuple(_ENDS) as end:
        return frozenset({f"start-up: {end}"})
    return frozenset(str(each.rule) for each in broken_rules(_derived(engine, setup_of(engine))))


def model_directory(config: str) -> str:
    """A directory that has the config.json alone, without the quantization of weights.

    That takes compiled kernels, and decides nothing about the cache.
    """
    home = Path(_MODEL, str(os.getpid())).resolve()  # copies of the worker write at once
    home.mkdir(parents=True, exist_ok=True)
    raw = json.loads(config)
    for each in (raw, raw.get("text_config") or {}):
        each.pop("quantization_config", None)
    (home / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    return str(home)


def setup_of(engine: Engine) -> CacheSetup:
    """The engine, as far as hits depend on it."""
    return CacheSetup(
        tuple(group for group, _, _ in engine.groups()),
        engine.scheduler_block_size,
        engine.hash_block_size,
        engine.use_eagle,
        engine.hash_lookahead,
        engine.retention,
        engine.num_blocks,
        engine.caching,
        engine.mamba_cache_mode == "align",
    )


def tier_of(engine: Engine, setup: CacheSetup, subject: VllmSubject) -> TierSetup:
    """The tier of an engine, as far as what it serves depends on it."""
    tier = engine.tier
    assert tier is not None
    groups = setup.groups
    if setup.drops_blocks and not any(group.eagle for group in groups):
        # Where none is flagged all drop a block (`spec.groups.share_eagle`); a layout in chunks
        # takes each group as it is flagged.
        groups = share_eagle(groups, True)
    layout = Layout(
        groups,
        engine.config.model_config.max_model_len,
        setup.drops_blocks,
        setup.hash_block_size,
        blocks_per_chunk=tier.chunk,
    )
    looks = LookaheadHorizon.HASHED if tier.chunk else subject.lookahead_horizon
    return TierSetup(tier.name, layout, looks, tier.room, setup.retention, tier.settled)


def _ends(served: Sequence[Served]) -> frozenset[int]:
    return frozenset(token for each in served for step in each.steps for token in step)


def _derived(engine: Engine, setup: CacheSetup) -> Derived:
    """What start-up made of the layers."""
    return Derived(
        setup,
        engine.layers(),
        tuple(tuple(layers) for _, layers, _ in engine.groups()),
        engine.pages,
        engine.pool_bytes,
        engine.available,
    )


class _Patient:
    def __init__(self, engine: Engine, subject: VllmSubject, answer: int, question: int) -> None:
        self._engine, self._answer, self._question = engine, answer, question
        self._fresh = (_OF_ITS_OWN * number for number in count(1))
        self.setup = setup_of(engine)
        self.tier = None if engine.tier is None else tier_of(engine, self.setup, subject)
        self._sampled: bool | None = None
        self._stored: set[int] = set()

    def _tokens(self, length: int) -> list[int]:
        first = next(self._fresh)
        return list(range(first, first + length))

    def rows(self, length: int) -> Iterator[dict[str, Any]]:
        """What each kind of request hits after a prompt of that length.

        Where there is a tier, also after the pool was emptied, so that only the tier has anything.
        """
        if length + self._answer + self._question > self._engine.config.model_config.max_model_len:
            return
        for emptied in (False,) if self.tier is None else (False, True):
            for reuse in Reuse:
                yield self._reused(reuse, length, emptied)

    def _reused(self, reuse: Reuse, length: int, emptied: bool) -> dict[str, Any]:
        prompt, shared = self._tokens(length), length
        whole = [*prompt, *self._tokens(self._question)]
        self._engine.reset()
        before = [self._engine.serve(prompt if reuse in _WHOLE else whole, self._answer)]
        tokens = [*prompt, *self._tokens(self._question)]
        match reuse:
            case Reuse.RESEND:
                tokens = prompt
            case Reuse.TURN:
                output = before[0].output
                tokens = [*prompt, *output, *self._tokens(self._question)]
                # The last token is sampled, but nothing is computed of it.
                shared = length + len(output) - 1
            case Reuse.NEXT_SIBLING:
                before.append(self._engine.serve(tokens, self._answer))
                tokens = [*prompt, *self._tokens(self._question)]
        return self._row(reuse, length, tokens, shared, before, emptied)

    def resend(self, length: int) -> dict[str, Any]:
        """What a resend of a prompt of that length hits."""
        return self._reused(Reuse.RESEND, length, False)

    def _before(self, served: Sequence[Served]) -> Before:
        kept = tuple(
            Kept(frozenset(blocks), frozenset(entries))
            for blocks, entries in self._engine.cached(served[0])
        )
        return Before(kept, _ends(served), self._engine.worker.handed_out)

    def _in_tier(self, served: Sequence[Served]) -> Stored:
        first, tier = served[0], self._engine.tier
        chunks = self._engine.in_tier(first)
        assert tier is not None
        for number, (found, group) in enumerate(zip(chunks, self.setup.groups, strict=True)):
            size = group.block_size * max(1, tier.chunk)
            prompt = len(first.tokens) // size
            if (len(first.tokens) + len(first.output) - 1) // size > prompt:
                self._sampled = bool(self._sampled) or max(found, default=0) >= prompt
            if found:
                self._stored.add(number)
        computed = sum(len(each.tokens) + len(each.output) for each in served)
        kept = tuple(map(frozenset, chunks))
        return Stored(kept, _ends(served), len(first.tokens), computed, bool(self._sampled))

    def _row(
        self,
        reuse: Reuse,
        length: int,
        tokens: Sequence[int],
        shared: int,
        served: Sequence[Served],
        emptied: bool,
    ) -> dict[str, Any]:
        cap = len(tokens) - 1
        best = self.setup.best_hit(cap, shared)
        before, stored = self._before(served), self._in_tier(served) if self.tier else None
        if emptied:
            self._engine.reset()
        last = self._engine.serve(tokens, self._answer)
        if emptied and self.tier is not None and stored is not None:
            found = tier_shortfall(self.tier, reuse, cap, shared, last.hit, best, stored)
        else:
            found = shortfall(self.setup, reuse, cap, last.hit, best, before)
        return {
            "reuse": str(reuse),
            "prompt": length,
            "tokens": len(tokens),
            "shared": shared,
            "hit": last.hit,
            "best": best,
            "shortfall": found and found.as_json(),
        } | ({} if self.tier is None else {"of_tier": last.loaded, "emptied": emptied})

    def told(self, shortest: bool) -> dict[str, Any] | None:
        """The tier, after requests were served; None without one."""
        tier = self.tier
        if tier is None:
            return None
        cached = {n for n, each in enumerate(self.setup.groups) if each.prefix_cacheable}
        return {
            **picked(tier, "name", "room"),
            "alignment": tier.layout.alignment,
            "blocks_per_chunk": max(1, tier.layout.blocks_per_chunk),
            "lookahead": tier.layout.lookahead_tokens,
            "stores_sampled": self._sampled if self._stored else None,
            "never_stored": sorted(cached - self._stored) if self._stored else [],
            "shortest": self.shortest(emptied=True) if shortest else None,
            "shortest_at_best": tier.shortest_prompt,
        }

    def never_finishes(self) -> str:
        """How a request of the greatest length never finishes; "" where it does.

        It is the last one to be served: it stays in the scheduler.
        """
        longest = self._engine.config.model_config.max_model_len
        if longest > _LARGEST:
            return ""
        self._engine.reset()
        try:
            self._engine.serve(self._tokens(longest - 1), 1)
        except NoProgress:
            return (
                f"one of {longest} tokens never does, with a pool of {self.setup.num_blocks} blocks"
            )
        return ""

    def shortest(self, emptied: bool = False) -> int | None:
        """The shortest prompt whose resend hits anything, in tokens; None where none does.

        Where the pool was ``emptied`` between, only the tier serves it.
        """
        hitting, step = self.setup.shortest_prompt(), self.setup.alignment
        if emptied and self.tier is not None:
            hitting, step = self.tier.shortest_prompt, self.tier.layout.alignment
        failing = hitting - 1
        if not self._hits(failing, emptied):
            most = self._engine.config.model_config.max_model_len - self._answer
            for _ in range(_MOST_BOUNDARIES):
                if hitting > most:
                    return None
                if self._hits(hitting, emptied):
                    break
                failing, hitting = hitting, hitting + step
            else:
                return None
        else:
            failing, hitting = 0, failing
        while hitting - failing > 1:
            middle = (hitting + failing) // 2
            found = self._hits(middle, emptied)
            failing, hitting = (failing, middle) if found else (middle, hitting)
        return hitting

    def _hits(self, length: int, emptied: bool) -> bool:
        prompt = self._tokens(length)
        self._engine.reset()
        # What ends with its first step need not be stored.
        self._engine.serve(prompt, self._answer if emptied else 1)
        if emptied:
            self._engine.reset()
        return self._engine.serve(prompt, 1).hit > 0
