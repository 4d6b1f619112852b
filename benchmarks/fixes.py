"""Manager and scheduler of 0.33.0 with all fixes compared with 0.33.0 alone: what each executes.

Run ``python -m benchmarks.fixes`` with an interpreter that has what vLLM imports. The operations
are those of `benchmarks.manager`, and *decode*: a step of one token after a prompt. Of a scheduler
they are *schedule* and *update*, that is ``schedule`` and ``update_from_output``, in the step of
the prompt (*prompt*) and in one of one token (*token*), with the manager. What is counted are
bytecode instructions, which are the same however busy the machine is; a function written in C
counts as its call.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.manager import BLOCK_SIZE, LAYOUTS, Case, play
from benchmarks.sides import Side, Vllm
from hitproof.conformance.histories.workloads import Arrival, Deployment
from hitproof.spec.groups import Group
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.fixes.patches import RELEASE, all_fixes
from hitproof.vllm_integration.fixes.trees import apply, linked
from hitproof.vllm_integration.targets.resolving import resolve

_SAMPLED = 7
"""The token that is sampled in each step."""

Counts = dict[tuple[str, int, str], int]
"""Instructions by layout, length of the prompt in tokens, and operation."""


@dataclass(frozen=True)
class Row(Case):
    """One operation, in bytecode instructions."""

    plain: int
    fixed: int
    ratio: float


def counted(call: Callable[[], Any]) -> tuple[int, Any]:
    """How many instructions the call executes, and what it returns."""
    number = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal number
        del argument
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        number += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = call()
    finally:
        sys.settrace(before)
    return number, result


def executed(side: Side) -> dict[str, int]:
    """The instructions of each operation, the second time that it is run."""
    found: dict[str, int] = {}

    def measure(operation: str, call: Callable[[], Any]) -> Any:
        found[operation], result = counted(call)
        return result

    manager, request = side
    for _ in range(2):
        play(side, measure)
    before = request.num_tokens - 1
    manager.allocate_slots(request, before)
    manager.new_step_starts()
    request.num_computed_tokens = before
    measure("decode", lambda: manager.allocate_slots(request, 1))
    manager.free(request)
    return found


def scheduled(groups: Sequence[Group], num_tokens: int) -> dict[str, int]:
    """The instructions of the steps of a real scheduler, in the second request of a length."""
    own = -(-num_tokens // BLOCK_SIZE) + 2
    length = num_tokens + BLOCK_SIZE
    deployment = Deployment(
        groups=tuple(groups),
        num_gpu_blocks=3 * own * len(groups),
        max_model_len=length,
        max_num_batched_tokens=length,
    )
    running = VllmSchedulers().start(deployment)
    scheduler = running.scheduler
    found: dict[str, int] = {}
    schedule, update = scheduler.schedule, scheduler.update_from_output

    def counting(name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        found[name], result = counted(lambda: call(*arguments))
        return result

    for number in range(2):
        first = number * length
        prompt = tuple(range(first, first + num_tokens))
        running.add_request(f"r{number}", Arrival(prompt=prompt, output=(_SAMPLED,) * 4))
        for step in ("prompt", "token", "token", "end"):
            scheduler.schedule = partial(counting, f"schedule, {step}", schedule)
            scheduler.update_from_output = partial(counting, f"update, {step}", update)
            plan = running.schedule()
            running.update(plan, {each.request: [_SAMPLED] for each in plan.scheduled}, {})
    return {name: number for name, number in found.items() if not name.endswith("end")}


def _of_tree(target: str, layouts: Sequence[str], tokens: Sequence[int]) -> Counts:
    vllm = Vllm(target)
    return {
        (layout, length, operation): number
        for layout in layouts
        for length in tokens
        for operation, number in (
            executed(vllm.side(LAYOUTS[layout], BLOCK_SIZE, length))
            | scheduled(LAYOUTS[layout], length)
        ).items()
    }


def compared(plain: Counts, fixed: Counts) -> list[Row]:
    """A row for each operation."""
    return [Row(*case, plain[case], fixed[case], fixed[case] / plain[case]) for case in plain]


def measured(layouts: Sequence[str], tokens: Sequence[int]) -> list[Row]:
    """The rows of these layouts and lengths; each tree is imported into a process of its own."""
    root, fixes = resolve(RELEASE).root, all_fixes()
    assert root is not None
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "patched"
        linked(root, tree, {path for fix in fixes for path in fix.paths})
        apply(tree, fixes)
        counts = []
        for each in (root, tree):
            with ProcessPoolExecutor(1, spawn) as process:
                counts.append(process.submit(_of_tree, str(each), layouts, tokens).result())
    return compared(*counts)


def main() -> int:
    """Count, and print a row for each operation."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.fixes", description="0.33.0 with all fixes beside 0.33.0 alone."
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=(4096, 32768))
    parser.add_argument("--layouts", nargs="+", choices=tuple(LAYOUTS), default=tuple(LAYOUTS))
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = measured(options.layouts, options.tokens)
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    table = Table("layout", "tokens", "operation", RELEASE, "with fixes", "ratio")
    for row in rows:
        numbers = (f"{each:,}" for each in (row.plain, row.fixed))
        table.add_row(row.layout, str(row.num_tokens), row.operation, *numbers, f"{row.ratio:.3f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
