"""The reference manager compared with that of a vLLM release: time and pool probes.

Run ``python -m benchmarks.manager`` with an interpreter that has what vLLM imports
(``hitproof[target]``); ``--tokens`` and ``--release`` override the defaults, ``--format json`` is
for programs. Each row is one operation on one request:

- *lookup, miss*, *hit* and *scattered*: `get_computed_blocks` with nothing of the prompt cached,
  all of it, and all but one block in eight, drawn with a fixed seed, of the last group.
- *allocate*: `allocate_slots` for the whole prompt, registering nothing. *cache*: `cache_blocks`
  for all of it. *free*: `free`.

Both managers alternate in the same process, on the same prompt, with the garbage collector off.
Times are medians in milliseconds; for a lookup each is the mean of a few calls, since it changes
nothing and takes microseconds. The ratio is the reference's to vLLM's. Probes are calls of
``BlockPool.get_cached_block``, counted in a run that is not timed.
"""

import argparse
import gc
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks.sides import Side, Vllm, reference_side
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.targets.target import TargetError

BLOCK_SIZE = 16
WINDOWS = (128, 1024)
LOOKUPS = 20
"""Lookups that are timed together."""

_FULL = Group(GroupKind.FULL_ATTENTION, BLOCK_SIZE)
_SHORT, _LONG = (Group(GroupKind.SLIDING_WINDOW, BLOCK_SIZE, window=w) for w in WINDOWS)
LAYOUTS: Mapping[str, tuple[Group, ...]] = {
    "full": (_FULL,),
    f"window {_SHORT.window}": (_SHORT,),
    f"window {_LONG.window}": (_LONG,),
    f"full + window {_LONG.window}": (_FULL, _LONG),
}

OPERATIONS = ("lookup, miss", "allocate", "cache", "lookup, hit", "free", "lookup, scattered")

Measure = Callable[[str, Callable[[], Any]], Any]
"""``measure(operation, call)`` makes the call and records its cost."""


@dataclass(frozen=True)
class Case:
    """The subject of a row."""

    layout: str
    num_tokens: int
    operation: str


_Row = TypeVar("_Row", bound=Case)


@dataclass(frozen=True)
class Row(Case):
    """One operation on both sides; times in milliseconds."""

    reference_ms: float
    vllm_ms: float
    ratio: float
    reference_probes: int
    vllm_probes: int


def compare(vllm: Vllm, layout: str, num_tokens: int, repetitions: int) -> list[Row]:
    """Every operation on both managers, which must give the same hits."""
    groups = LAYOUTS[layout]
    sides = (
        reference_side(groups, BLOCK_SIZE, num_tokens),
        vllm.side(groups, BLOCK_SIZE, num_tokens),
    )
    (probes, hits), (vllm_probes, vllm_hits) = (_count_probes(side) for side in sides)
    if hits != vllm_hits:
        raise CannotJudge(f"the hits differ: {hits} tokens here, {vllm_hits} in vLLM")
    times: tuple[dict[str, list[float]], ...] = tuple({op: [] for op in OPERATIONS} for _ in sides)
    gc.collect()
    gc.disable()
    try:
        for _ in range(repetitions):
            for side, taken in zip(sides, times, strict=True):
                play(side, timed(taken, LOOKUPS))
    finally:
        gc.enable()
    rows = []
    for operation in OPERATIONS:
        ours, theirs = (1000 * median(taken[operation]) for taken in times)
        rows.append(
            Row(
                layout,
                num_tokens,
                operation,
                ours,
                theirs,
                ours / theirs,
                probes[operation],
                vllm_probes[operation],
            )
        )
    return rows


def play(side: Side, measure: Measure) -> list[int]:
    """Every operation once, from an empty cache to an empty cache; the lengths of the hits."""
    manager, request = side
    num_tokens = request.num_tokens

    def lookup() -> Any:
        return manager.get_computed_blocks(request)[1]

    hits = [measure("lookup, miss", lookup)]
    measure(
        "allocate", lambda: manager.allocate_slots(request, num_tokens, delay_cache_blocks=True)
    )
    measure("cache", lambda: manager.cache_blocks(request, num_tokens))
    hits.append(measure("lookup, hit", lookup))
    table = manager.get_block_ids(request.request_id)[-1]
    measure("free", lambda: manager.free(request))
    manager.block_pool.evict_blocks(set(random.Random(0).sample(table, len(table) // 8)))
    hits.append(measure("lookup, scattered", lookup))
    if not manager.block_pool.reset_prefix_cache():
        raise AssertionError("blocks are held after the request was freed")
    return hits


def timed(taken: dict[str, list[float]], lookups: int = 1) -> Measure:
    """Appends the seconds of each operation to its list; of a lookup the mean of ``lookups``."""

    def measure(operation: str, call: Callable[[], Any]) -> Any:
        calls = lookups if operation.startswith("lookup") else 1
        start = perf_counter()
        for _ in range(calls):
            result = call()
        taken[operation].append((perf_counter() - start) / calls)
        return result

    return measure


def _count_probes(side: Side) -> tuple[dict[str, int], list[int]]:
    """The probes of each operation, and the lengths of the hits, of one round."""
    pool = side.manager.block_pool
    probe, calls = pool.get_cached_block, 0
    probes: dict[str, int] = {}

    def counting(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return probe(*arguments)

    def measure(operation: str, call: Callable[[], Any]) -> Any:
        before = calls
        result = call()
        probes[operation] = calls - before
        return result

    pool.get_cached_block = counting
    hits = play(side, measure)
    del pool.get_cached_block
    return probes, hits


def command_line(
    prog: str, description: str, tokens: Sequence[int], repetitions: int
) -> argparse.ArgumentParser:
    """The options that benchmarks on a vLLM release share, with these defaults."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--release", default="0.23.0", help="the vLLM release, as for the gate")
    parser.add_argument("--tokens", type=int, nargs="+", default=tokens)
    parser.add_argument("--layouts", nargs="+", choices=tuple(LAYOUTS), default=tuple(LAYOUTS))
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    return parser


def run(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    measured: Callable[[Vllm, str, int], Sequence[_Row]],
    columns: Mapping[str, Callable[[_Row], str]],
) -> None:
    """Print the rows of each layout and number of tokens; ``columns`` are those of the table."""
    if min(options.tokens) < 8 * BLOCK_SIZE or options.repetitions < 1:
        parser.error(f"give at least {8 * BLOCK_SIZE} tokens and one repetition")
    try:
        vllm = Vllm(options.release)
        rows = [
            row
            for layout in options.layouts
            for num_tokens in options.tokens
            for row in measured(vllm, layout, num_tokens)
        ]
    except (TargetError, CannotJudge) as error:
        parser.error(str(error))
    except ModuleNotFoundError as error:
        parser.error(
            f"{sys.executable} lacks the module {error.name!r}, which vLLM imports; "
            "install hitproof[target] there"
        )
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
        return
    table = Table("groups", "tokens", "operation", box=None)
    for header in columns:
        table.add_column(header, justify="right")
    for row in rows:
        cells = (cell(row) for cell in columns.values())
        table.add_row(row.layout, f"{row.num_tokens:,}", row.operation, *cells)
    Console(width=110).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = command_line(
        "python -m benchmarks.manager",
        "The reference manager beside vLLM's.",
        [10_000, 100_000, 1_000_000],
        5,
    )
    options = parser.parse_args(arguments)

    def measured(vllm: Vllm, layout: str, num_tokens: int) -> list[Row]:
        return compare(vllm, layout, num_tokens, options.repetitions)

    columns: dict[str, Callable[[Row], str]] = {
        "reference ms": lambda row: f"{row.reference_ms:.3f}",
        "vLLM ms": lambda row: f"{row.vllm_ms:.3f}",
        "ratio": lambda row: f"{row.ratio:.2f}",
        "probes": lambda row: f"{row.reference_probes:,}",
        "vLLM probes": lambda row: f"{row.vllm_probes:,}",
    }
    run(parser, options, measured, columns)


if __name__ == "__main__":
    main()
