"""The cost of the shadow: a vLLM manager with and without it alternate in one process.

Run ``python -m benchmarks.shadow`` with an interpreter that has what vLLM imports
(``hitproof[target]``). The shadow is that of a live engine (`vllm_integration.shadow.live`), which
judges every lookup and every registered block, and audits the whole pool as often as its share of
the time allows; with ``--thorough`` it is that of the pytest plugin, which audits after every call.
The operations are those of `benchmarks.manager`, the last row is the life of one prompt: all of
them together. Times are medians in milliseconds; the ratio is the shadowed manager's to the plain
one's.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.manager import BLOCK_SIZE, LAYOUTS, OPERATIONS, Case, command_line, play, run, timed
from benchmarks.sides import Vllm
from hitproof.vllm_integration.shadow.hooks import Hooks
from hitproof.vllm_integration.shadow.report import Report
from hitproof.vllm_integration.shadow.scope import policies_of
from hitproof.vllm_integration.shadow.watch import Watch

WHOLE = "all of them"


@dataclass(frozen=True)
class Row(Case):
    """One operation of both; times in milliseconds."""

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
    parser = command_line(
        "python -m benchmarks.shadow", "A vLLM manager without and with a shadow.", [100_000], 7
    )
    parser.add_argument("--thorough", action="store_true", help="as the pytest plugin does")
    options = parser.parse_args(arguments)

    def measured(vllm: Vllm, layout: str, num_tokens: int) -> list[Row]:
        release, repetitions, thorough = options.release, options.repetitions, options.thorough
        return compare(vllm, release, layout, num_tokens, repetitions, thorough)

    columns: dict[str, Callable[[Row], str]] = {
        "plain ms": lambda row: f"{row.plain_ms:.3f}",
        "shadowed ms": lambda row: f"{row.shadowed_ms:.3f}",
        "ratio": lambda row: f"{row.ratio:.2f}",
    }
    run(parser, options, measured, columns)


if __name__ == "__main__":
    main()
