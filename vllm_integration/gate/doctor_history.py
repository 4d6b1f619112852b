"""A request of a diagnosis as a scheduler history, which `hitproof replay` plays on any release."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from hitproof.conformance.explain.reuse import Reuse
from hitproof.conformance.histories.schema import HistoryError
from hitproof.conformance.histories.workload_json import write_workload
from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_ANSWER = 1_000_000
_QUESTION = 2_000_000
"""The first tokens of answers and questions; prompts have those from 0 on."""


def history_of(
    told: dict[str, Any], row: dict[str, Any], answer: int, question: int
) -> SchedulerHistory | None:
    """The requests that lead to a row, each after the one before; None where none can say it.

    None says what doctor does with a tier.

    ``told`` is the deployment as a worker describes it.
    """
    if told["mamba_cache_mode"] not in (None, "align") or not told["prefix_caching"]:
        return None
    if told["tier"] is not None:
        return None
    output = tuple(range(_ANSWER, _ANSWER + answer))
    try:
        prompts = _prompts(row, output, question)
        names = [f"request-{number}" for number in range(1, len(prompts) + 1)]
        before = {later: earlier for earlier, later in pairwise(names)}
        requests = {
            name: Arrival(prompt, output, after=before.get(name), accepted=_accepted(told))
            for name, prompt in zip(names, prompts, strict=True)
        }
        return SchedulerHistory(_deployment(told), requests, about=_about(row))
    except HistoryError:
        return None


def write_histories(
    told: dict[str, Any], rows: list[dict[str, Any]], answer: int, question: int, directory: Path
) -> list[Path]:
    """Write the histories of rows into a directory; the files. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for row in rows:
        history = history_of(told, row, answer, question)
        if history is not None:
            path = directory / f"{row['reuse'].replace(' ', '_')}_{row['prompt']}.json"
            path.write_text(write_workload(history), encoding="utf-8")
            written.append(path)
    return written


def _about(row: dict[str, Any]) -> str:
    return f"a {row['reuse']} of {row['prompt']} tokens hits {row['hit']}, at best {row['best']}"


def _accepted(told: dict[str, Any]) -> tuple[int, ...]:
    """All drafts are right."""
    drafts = told["num_speculative_tokens"]
    return (drafts,) if drafts else ()


def _prompts(row: dict[str, Any], output: tuple[int, ...], question: int) -> list[tuple[int, ...]]:
    prompt = tuple(range(row["prompt"]))
    questions = [
        tuple(range(_QUESTION + number * question, _QUESTION + (number + 1) * question))
        for number in range(3)
    ]
    match Reuse(row["reuse"]):
        case Reuse.RESEND:
            return [prompt, prompt]
        case Reuse.TURN:
            return [prompt, prompt + output + questions[0]]
        case Reuse.SIBLING:
            return [prompt + each for each in questions[:2]]
        case Reuse.NEXT_SIBLING:
            return [prompt + each for each in questions]


def _deployment(told: dict[str, Any]) -> Deployment:
    groups = tuple(
        Group(
            GroupKind(each["kind"]),
            each["block_size"],
            each["window"],
            each["eagle"],
            each["chunk"],
            each["prefix_cacheable"],
        )
        for each in told["groups"]
    )
    usual = math.gcd(*(group.block_size for group in groups if group.prefix_cacheable))
    unit = told["hash_block_size"]
    return Deployment(
        groups,
        told["num_blocks"],
        told["max_model_len"],
        told["max_num_batched_tokens"],
        prefix_match_unit=unit if len(groups) > 1 and unit != usual else None,
        speculative_method=told["speculative_method"],
        num_speculative_tokens=told["num_speculative_tokens"],
        lookahead_hashes=bool(told["hash_lookahead"]),
        async_scheduling=told["async_scheduling"],
        retention_interval=told["retention"],
    )
