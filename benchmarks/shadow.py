"""What the shadow costs: a vLLM manager alone and one with its shadow, in one process, in turn.

Run ``python -m benchmarks.shadow`` with an interpreter that has what vLLM imports
(``hitproof[target]``). The shadow is that of a live engine (`vllm_integration.shadow.live`), which
judges every lookup and every registered block, and audits the whole pool as often as its share of
the time allows; with ``--thorough`` it is that of the pytest plugin, which audits after every call.
The operations are those of `benchmarks.manager`, the last row is the life of one prompt: all of
them together. Times are medians in milliseconds; the ratio is the shadowed manager's to the plain
one's.
"""

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.manager import BLOCK_SIZE, LAYOUTS, OPERATIONS, play, timed
from benchmarks.sides import Vllm
from conformance.subjects import CannotJudge
from vllm_integration.shadow.hooks import Hooks
from vllm_integration.shadow.report import Report
from vllm_integration.shadow.scope import policies_of
from vllm_integration.shadow.watch import Watch
from vllm_integration.targets import TargetError

WHOLE = "all of them"


@dataclass(frozen=True)
class Row:
    """One operation of both; times in milliseconds."""

    layout: str
    num_tokens: int
    operation: str
    plain_ms: float
    shadowed_ms: float
    ratio: float


def compare(
    vllm: Vllm, release: str, layout: str, num_tokens: int, repetitions: int, thorough: bool
) -> list[Row]:
    """Every operation without and with a shadow, which must find nothing wrong with it."""
    groups = LAYOUTS[layout]
    report = Report()
    watch = Watch(report, policies_of(release, {}), thorough=thorough)
    plain = vllm.side(groups, BLOCK_SIZE, num_tokens)
    hooks = Hooks(watch)
    shadowed = vllm.side(groups, BLOCK_SIZE, num_tokens)
    hooks.remove()
    times: tuple[dict[str, list[float]], ...] = tuple(
        {operation: [] for operation in OPERATIONS} for _ in range(2)
    )
    gc.collect()
    gc.disable()
    try:
        for _ in range(repetitions):
            play(plain, timed(times[0]))
            hooks = Hooks(watch)
            play(shadowed, timed(times[1]))
            hooks.remove()
    finally:
        gc.enable()
    if report.errors or report.times or report.lookups != 3 * repetitions:
        raise AssertionError("\n".join(report.lines()))
    for taken in times:
        taken[WHOLE] = [sum(each) for each in zip(*taken.values(), strict=True)]
    rows = []
    for operation in times[0]:
        alone, beside = (1000 * median(taken[operation]) for taken in times)
        rows.append(Row(layout, num_tokens, operation, alone, beside, beside / alone))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shadow", description="A vLLM manager without and with a shadow."
    )
    parser.add_argument("--release", default="0.23.0", help="the vLLM release, as for the gate")
    parser.add_argument("--tokens", type=int, nargs="+", default=[100_000])
    parser.add_argument("--layouts", nargs="+", choices=tuple(LAYOUTS), default=tuple(LAYOUTS))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--thorough", action="store_true", help="as the pytest plugin does")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    if min(options.tokens) < 8 * BLOCK_SIZE or options.repetitions < 1:
        parser.error(f"give at least {8 * BLOCK_SIZE} tokens and one repetition")
    try:
        vllm = Vllm(options.release)
        rows = [
            row
            for layout in options.layouts
            for num_tokens in options.tokens
            for row in compare(
                vllm, options.release, layout, num_tokens, options.repetitions, options.thorough
            )
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
    else:
        _print(rows)


def _print(rows: Sequence[Row]) -> None:
    table = Table("groups", "tokens", "operation", box=None)
    for header in ("plain ms", "shadowed ms", "ratio"):
        table.add_column(header, justify="right")
    for row in rows:
        table.add_row(
            row.layout,
            f"{row.num_tokens:,}",
            row.operation,
            f"{row.plain_ms:.3f}",
            f"{row.shadowed_ms:.3f}",
            f"{row.ratio:.2f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
