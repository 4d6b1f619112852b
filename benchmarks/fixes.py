"""The manager of 0.33.0 with all fixes compared with that of 0.33.0 alone: ratios of times.

Run ``python -m benchmarks.fixes`` with an interpreter that has what vLLM imports, on an idle
machine; the operations are those of `benchmarks.manager`. The two take turns, each in a process of
its own, on the same prompts, with the garbage collector off. A time is the shortest of all
repetitions; the ratio is that with fixes to that without.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.manager import (
    BLOCK_SIZE,
    LAYOUTS,
    LOOKUPS,
    OPERATIONS,
    Case,
    play,
    timed,
)
from benchmarks.sides import Side, Vllm
from hitproof.vllm_integration.fixes.fixes import RELEASE, all_fixes
from hitproof.vllm_integration.fixes.trees import apply, linked
from hitproof.vllm_integration.targets.resolving import resolve

_opened: list[Vllm] = []
_sides: dict[tuple[str, int], Side] = {}


@dataclass(frozen=True)
class Row(Case):
    """One operation; times in milliseconds."""

    plain_ms: float
    fixed_ms: float
    ratio: float


def _open(target: str) -> None:
    _opened.append(Vllm(target))
    gc.disable()


def _play(layout: str, num_tokens: int) -> dict[str, list[float]]:
    """The seconds of each operation in one round."""
    if (layout, num_tokens) not in _sides:
        _sides[layout, num_tokens] = _opened[0].side(LAYOUTS[layout], BLOCK_SIZE, num_tokens)
    taken: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    play(_sides[layout, num_tokens], timed(taken, LOOKUPS))
    return taken


def compare(
    sides: Sequence[ProcessPoolExecutor], layout: str, num_tokens: int, repetitions: int
) -> list[Row]:
    """Every operation, without the fixes and with them."""
    shortest: list[dict[str, float]] = [{}, {}]
    for _ in range(repetitions):
        for side, best in zip(sides, shortest, strict=True):
            for operation, seconds in side.submit(_play, layout, num_tokens).result().items():
                best[operation] = min(*seconds, best.get(operation, float("inf")))
    plain, fixed = shortest
    return [
        Row(
            layout,
            num_tokens,
            each,
            1e3 * plain[each],
            1e3 * fixed[each],
            fixed[each] / plain[each],
        )
        for each in OPERATIONS
    ]


def measured(options: argparse.Namespace) -> list[Row]:
    """The rows of all layouts and lengths."""
    root, fixes = resolve(RELEASE).root, all_fixes()
    assert root is not None
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        tree = Path(place) / "patched"
        linked(root, tree, {path for fix in fixes for path in fix.paths})
        apply(tree, fixes)
        sides = [
            stack.enter_context(ProcessPoolExecutor(1, spawn, _open, (str(each),)))
            for each in (root, tree)
        ]
        return [
            row
            for layout in options.layouts
            for num_tokens in options.tokens
            for row in compare(sides, layout, num_tokens, options.repetitions)
        ]


def main() -> int:
    """Measure, and print a row for each operation."""
    parser = argparse.ArgumentParser(
        "python -m benchmarks.fixes", description="0.33.0 with all fixes beside 0.33.0 alone."
    )
    parser.add_argument("--tokens", type=int, nargs="+", default=(4096, 32768))
    parser.add_argument("--layouts", nargs="+", choices=tuple(LAYOUTS), default=tuple(LAYOUTS))
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = measured(options)
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return 0
    table = Table("layout", "tokens", "operation", RELEASE, "with fixes", "ratio")
    for row in rows:
        times = (f"{ms:.3f} ms" for ms in (row.plain_ms, row.fixed_ms))
        table.add_row(row.layout, str(row.num_tokens), row.operation, *times, f"{row.ratio:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
