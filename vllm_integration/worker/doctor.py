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
    del subject
    try:
        engine = Engine(_model(message["config"]), message["arguments"])
    except tuple(_ENDS) as end:
        return {"refused": str(end), "end": _ENDS[type(end)]}
    patient = _Patient(engine, message["answer"], message["question"])
    try:
        shortest = patient.shortest() if message["shortest"] else None
        rows = [row for length in message["lengths"] for row in patient.rows(length)]
        if shortest and shortest > patient.setup.shortest_prompt():
            rows.append(patient.resend(shortest - 1))
        endless = message["shortest"] and patient.never_finishes()
    except NoProgress as problem:
        return {"refused": str(problem), "end": _ENDS[NoProgress]}
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
        },
        "broken_rules": [
            picked(each, "rule", "sentence") for each in broken_rules(_derived(engine, setup))
        ]
        + ([_ENDLESS | {"sentence": endless}] if endless else []),
        "rows": rows,
        "shortest": shortest,
        "shortest_at_best": setup.shortest_prompt(),
    }


_OF_GROUP = "kind", "block_size", "window", "chunk", "eagle", "prefix_cacheable"
_OF_SETUP = (
    *("alignment", "scheduler_block_size", "hash_block_size", "num_blocks"),
    *("use_eagle", "hash_lookahead", "retention"),
)


def broken_by(config: str, arguments: Sequence[str]) -> frozenset[str]:
    """The rules that the groups of a model break; why start-up refuses it is one."""
    try:
        engine = Engine(_model(config), arguments)
    except tuple(_ENDS) as end:
        return frozenset({f"start-up: {end}"})
    return frozenset(str(each.rule) for each in broken_rules(_derived(engine, setup_of(engine))))


def _model(config: str) -> str:
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
    def __init__(self, engine: Engine, answer: int, question: int) -> None:
        self._engine, self._answer, self._question = engine, answer, question
        self._fresh = (_OF_ITS_OWN * number for number in count(1))
        self.setup = setup_of(engine)

    def _tokens(self, length: int) -> list[int]:
        first = next(self._fresh)
        return list(range(first, first + length))

    def rows(self, length: int) -> Iterator[dict[str, Any]]:
        """What each kind of request hits after a prompt of that length."""
        if length + self._answer + self._question > self._engine.config.model_config.max_model_len:
            return
        yield self.resend(length)
        prompt = self._tokens(length)
        first, before = self._first(prompt)
        turn = [*prompt, *first.output, *self._tokens(self._question)]
        # The last token is sampled, but nothing is computed of it.
        computed = length + len(first.output) - 1
        yield self._row(Reuse.TURN, length, turn, computed, before)
        prompt = self._tokens(length)
        first, before = self._first([*prompt, *self._tokens(self._question)])
        for reuse in (Reuse.SIBLING, Reuse.NEXT_SIBLING):
            tokens = [*prompt, *self._tokens(self._question)]
            yield self._row(reuse, length, tokens, length, before)
            before = self._before(first, self._last)

    def resend(self, length: int) -> dict[str, Any]:
        """What a resend of a prompt of that length hits."""
        prompt = self._tokens(length)
        _, before = self._first(prompt)
        return self._row(Reuse.RESEND, length, prompt, length, before)

    def _first(self, tokens: Sequence[int]) -> tuple[Served, Before]:
        self._engine.reset()
        served = self._engine.serve(tokens, self._answer)
        return served, self._before(served)

    def _before(self, *served: Served) -> Before:
        kept = tuple(
            Kept(frozenset(blocks), frozenset(entries))
            for blocks, entries in self._engine.cached(served[0])
        )
        ends = frozenset(token for each in served for step in each.steps for token in step)
        return Before(kept, ends, self._engine.worker.handed_out)

    def _row(
        self, reuse: Reuse, length: int, tokens: Sequence[int], shared: int, before: Before
    ) -> dict[str, Any]:
        served = self._last = self._engine.serve(tokens, self._answer)
        cap = len(tokens) - 1
        best = self.setup.best_hit(cap, shared)
        found = shortfall(self.setup, reuse, cap, served.hit, best, before)
        return {
            "reuse": str(reuse),
            "prompt": length,
            "tokens": len(tokens),
            "shared": shared,
            "hit": served.hit,
            "best": best,
            "shortfall": found and found.as_json(),
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

    def shortest(self) -> int | None:
        """The shortest prompt whose resend hits anything, in tokens; None where none does."""
        hitting = self.setup.shortest_prompt()
        failing = hitting - 1
        if not self._hits(failing):
            most = self._engine.config.model_config.max_model_len - self._answer
            for _ in range(_MOST_BOUNDARIES):
                if hitting > most:
                    return None
                if self._hits(hitting):
                    break
                failing, hitting = hitting, hitting + self.setup.alignment
            else:
                return None
        else:
            failing, hitting = 0, failing
        while hitting - failing > 1:
            middle = (hitting + failing) // 2
            failing, hitting = (failing, middle) if self._hits(middle) else (middle, hitting)
        return hitting

    def _hits(self, length: int) -> bool:
        prompt = self._tokens(length)
        self._engine.reset()
        self._engine.serve(prompt, 1)
        return self._engine.serve(prompt, 1).hit > 0
