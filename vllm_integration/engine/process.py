"""The engine's own process: ``python -m hitproof.vllm_integration.engine.process JOB RESULTS``.

It runs each case of the job without caching, all requests of a wave together, then some one by one,
which measures the noise; and with caching, where vLLM loads the shadow as a plugin. RESULTS gets
one line of JSON for each case that ended.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

from hitproof.vllm_integration.engine.models import VOCABULARY, Kind, write_model
from hitproof.vllm_integration.engine.numbers import Output, compare, threshold
from hitproof.vllm_integration.engine.planting import Planted, planted
from hitproof.vllm_integration.engine.workload import ADAPTER, Asked, batches, waves

_MEMORY = 64 << 20  # bytes of cache; the pool is smaller


def main(job: Path, results: Path) -> None:
    """Run the cases of the job."""
    asked = json.loads(job.read_text())
    _prepare_vllm()
    for number, case in enumerate(asked["cases"]):
        place = job.parent / f"case{number}"
        found = _run(
            Kind(case["kind"]),
            case["eagle"],
            None if case["planted"] is None else Planted(case["planted"]),
            asked["seed"],
            place,
        )
        with results.open("a") as file:
            file.write(json.dumps({**case, **found}) + "\n")


def _prepare_vllm() -> None:
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2

    from hitproof.vllm_integration.engine import weights

    weights.register()
    # From 0.32 on Mamba-2 exports states from inside a chunk, which its scan on CPUs cannot do.
    if "get_kv_cache_spec" in vars(MambaMixer2):
        del MambaMixer2.get_kv_cache_spec


def _run(kind: Kind, eagle: bool, fault: Planted | None, seed: str, place: Path) -> dict[str, Any]:
    from hitproof.vllm_integration.shadow import live, shadow

    started = time.monotonic()
    arguments = write_model(kind, eagle, place)
    together = batches(waves(kind, seed))
    requests = [each for batch in together for each in batch]
    sizes = [len(batch) for batch in together]
    play = _Player(requests, _adapter(kind, place))
    with _engine(arguments, caching=False) as made:
        expected = play(made[0], sizes)
        alone = play(made[0], [1] * (len(requests) // 2))  # half of them will do
        noise = compare(expected[: len(alone)], alone).worst
    _shadow_next(place)
    counts = {"evictions": 0, "preemptions": 0}
    # Pools are tiny, so the shadow can audit them after every call, however long that takes.
    with (
        mock.patch.object(shadow, "_AUDIT_SHARE", math.inf),
        planted(fault),
        _counting(counts),
        _engine(arguments, caching=True) as made,
    ):
        groups = _groups(made[0])
        actual = play(made[0], sizes)
    live.stop()
    limit = threshold(noise)
    found = compare(expected, actual, limit)
    return {
        "groups": groups,
        "requests": len(requests),
        "tokens": found.tokens,
        "noise": noise,
        "threshold": limit,
        "worst": found.worst,
        "different": [each.as_json() for each in found.different],
        "hits": sum(each.hit > 0 for each in actual),
        "hit_tokens": sum(each.hit for each in actual),
        **counts,
        "shadow": _lines(place / "shadow.jsonl"),
        "record": str(next(place.glob("record.jsonl.*"), "")),
        "seconds": time.monotonic() - started,
    }


@contextmanager
def _engine(arguments: dict[str, Any], *, caching: bool) -> Iterator[list[Any]]:
    """A list with the engine, emptied at the end: one that ends later would end the next, too."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    from hitproof.vllm_integration.engine import weights

    made = [
        LLM(
            **arguments,
            load_format=weights.LOAD_FORMAT,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            kv_cache_memory_bytes=_MEMORY,
            max_logprobs=VOCABULARY,
            enable_prefix_caching=caching,
        )
    ]
    try:
        yield made
    finally:
        made.clear()
        cleanup_dist_env_and_memory()


class _Player:
    """Asks an engine for the workload; the prompts are those of the first run."""

    def __init__(self, requests: Sequence[Asked], adapter: Any) -> None:
        self._requests = requests
        self._adapter = adapter
        self._said: dict[int, list[int]] = {}

    def __call__(self, engine: Any, sizes: Sequence[int]) -> list[Output]:
        """The outputs; ``sizes`` are the numbers of requests that are sent together."""
        outputs: list[Output] = []
        for size in sizes:
            numbers = range(len(outputs), len(outputs) + size)
            outputs += self._ask(engine, numbers)
        return outputs

    def _ask(self, engine: Any, numbers: range) -> list[Output]:
        from vllm import SamplingParams

        asked = [self._requests[number] for number in numbers]
        prompts = [each.prompt_after(self._said) for each in asked]
        answers = engine.generate(
            [
                {"prompt_token_ids": prompt, **({"cache_salt": each.salt} if each.salt else {})}
                for prompt, each in zip(prompts, asked, strict=True)
            ],
            [
                SamplingParams(
                    max_tokens=each.max_tokens,
                    temperature=0,
                    logprobs=VOCABULARY,
                    ignore_eos=True,
                    detokenize=False,
                )
                for each in asked
            ],
            lora_request=[self._adapter if each.adapter else None for each in asked],
            use_tqdm=False,
        )
        for number, prompt, answer in zip(numbers, prompts, answers, strict=True):
            self._said.setdefault(number, [*prompt, *answer.outputs[0].token_ids])
        return [_output(answer) for answer in answers]


def _output(answer: Any) -> Output:
    (found,) = answer.outputs
    logprobs = [[each[token].logprob for token in range(VOCABULARY)] for each in found.logprobs]
    return Output(list(found.token_ids), logprobs, answer.num_cached_tokens or 0)


def _adapter(kind: Kind, place: Path) -> Any:
    if kind is not Kind.ADAPTERS:
        return None
    from vllm.lora.request import LoRARequest

    from hitproof.vllm_integration.engine.weights import write_adapter

    return LoRARequest(ADAPTER, 1, write_adapter(place / "adapter", 2, 64, 64))


def _shadow_next(place: Path) -> None:
    """Have the next engine load the shadow as the plugin that it is."""
    import vllm.plugins

    os.environ["HITPROOF_SHADOW"] = "1"
    os.environ["HITPROOF_SHADOW_FILE"] = str(place / "shadow.jsonl")
    os.environ["HITPROOF_SHADOW_RECORD"] = str(place / "record.jsonl")
    vllm.plugins.plugins_loaded = False


@contextmanager
def _counting(counts: dict[str, int]) -> Iterator[None]:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.sched.scheduler import Scheduler

    def counted(owner: Any, name: str, what: str, always: bool) -> Any:
        method: Callable[..., Any] = getattr(owner, name)

        @wraps(method)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            result = method(*arguments, **keywords)
            counts[what] += bool(always or result)
            return result

        return mock.patch.object(owner, name, wrapper)

    with (
        counted(BlockPool, "_maybe_evict_cached_block", "evictions", False),
        counted(Scheduler, "_preempt_request", "preemptions", True),
    ):
        yield


def _groups(engine: Any) -> list[list[Any]]:
    """What the engine's manager has: each group's class and block size."""
    scheduler = engine.llm_engine.engine_core.engine_core.scheduler
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return [[type(each).__name__, each.block_size] for each in managers]


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
