"""What is found of a target of which one part is broken, by an edit of ``cases/parts.toml`` each.

Run with the name of a part, in a process of its own with the target on its path; prints what was
found of each fault: in histories that show nothing of the target as it is, or on such layouts by
the checks of tiers.
"""

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from hitproof.conformance.checks.tiers import check_tier_lookup, check_tier_masks
from hitproof.conformance.histories.plays import TOGETHER
from hitproof.conformance.histories.scenarios import scenario
from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.playing import play
from hitproof.conformance.scope.layouts import Layout, beside_umbp, layouts, offloaded
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.conformance.tests.drawn import drawn
from hitproof.conformance.tests.editing import Fault, edited, faults
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.reproduce.scheduler_case import scheduler_case

HERE = Path(__file__).parent
FAULTS = faults(HERE / "cases" / "parts.toml", "vllm.v1.core.sched.scheduler")


def shown(subject: VllmSchedulers, history: SchedulerHistory) -> set[str]:
    """What a history shows."""
    return {str(each.signature.defect) for each in play(history, subject).causes}


def found(subject: VllmSchedulers, histories: Iterable[SchedulerHistory], start: str) -> list[str]:
    """What begins so, in the first history that shows it."""
    for history in histories:
        if fitting := [each for each in shown(subject, history) if each.startswith(start)]:
            return fitting
    return []


LAYOUTS: dict[str, Callable[[Profile], Iterable[Layout]]] = {
    "tiers": offloaded,
    "umbp": beside_umbp,
    "mooncake": layouts,
}
"""Where the checks of tiers show the faults of a part."""


def of_tiers(subject: VllmSubject, judged: Iterable[Layout], start: str) -> list[str]:
    """What begins so, by the first check of a tier that shows it."""
    for layout in judged:
        for check in (check_tier_lookup, check_tier_masks):
            defects = {str(e.signature.defect) for e in check(subject, layout).evidence}
            if fitting := [each for each in defects if each.startswith(start)]:
                return fitting
    return []


def is_tested(
    subject: VllmSchedulers, histories: Iterable[SchedulerHistory], fault: Fault
) -> bool | str:
    """Whether a test of the first history that shows it fails, and passes without the fault.

    Why there is none, where none is written.
    """
    why: list[str] = []
    for history in histories:
        try:
            with edited(fault):
                shows = [
                    each.violation
                    for each in play(history, subject).causes
                    if str(each.signature.defect).startswith(fault.get("shows", ""))
                ]
                if not shows:
                    continue
                fails = scheduler_case(subject, history, shows[0], "broken").fails
            return fails and not scheduler_case(subject, history, shows[0], "broken").fails
        except CannotJudge as error:
            why.append(str(error))
    return why[0] if why else "nothing shows it"


def offloading(many: int, how: str, *names: str) -> Iterable[SchedulerHistory]:
    """The first ones that offload to host memory in blocks or in chunks, or to a store."""
    ways = {"blocks": (False, 0), "chunks": (False, 1), "store": (True, 0)}
    drawn_ones = drawn(50 * many, "offloads", *names)
    connectors = ((each, each.deployment.connector) for each in drawn_ones)
    kept = (h for h, c in connectors if c and (c.store, min(c.chunk, 1)) == ways[how])
    return islice(kept, many)


def named(many: int, *features: str) -> Iterable[SchedulerHistory]:
    """``many`` scenarios with each of these features."""
    return (scenario(f"1:{number} with {each}") for each in features for number in range(many))


def kept(*files: Path) -> Iterable[SchedulerHistory]:
    """Histories of files, of which few scenarios show the same."""
    return [read_workload(each.read_text(encoding="utf-8")) for each in files]


REPAIRED = (
    "1:315 with offloads, windows, resets",
    "1:2498 with reads fail, windows, drafts",
    "1:93 with offloads, hits inside blocks, asked twice",
    "1:30",
)
"""Scenarios of the default profile that show what releases repaired in a store."""

PARTS: dict[str, Callable[[], Iterable[SchedulerHistory]]] = {
    "connectors": lambda: chain(
        drawn(48, "connector", "resets"),
        offloading(20, "blocks", "resets"),
        drawn(48, "connector", "images"),
    ),
    "copies": lambda: named(8, "hits inside blocks, connector, planned ahead"),
    "encoders": lambda: chain(
        (each for each in drawn(250, "images") if each.encoder_resets),
        drawn(50, "images", "gives up"),
    ),
    "ends": lambda: drawn(100, "stops"),
    "kept": lambda: drawn(100, "gives up"),
    "formats": lambda: drawn(24, "precisions"),
    "grammars": lambda: chain(
        drawn(50, "grammars", "drafts", "planned ahead"), drawn(50, "grammars")
    ),
    "host_pools": lambda: chain(drawn(80, "host pool"), kept(HERE / "cases" / "last_pages.json")),
    "offloads": lambda: offloading(20, "blocks"),
    "chunks": lambda: chain(
        offloading(40, "chunks"),
        offloading(12, "chunks", "resets"),
        named(12, "in chunks, windows, drafts"),
    ),
    "stores": lambda: chain(offloading(8, "store"), offloading(8, "store", "few blocks")),
    "repaired": lambda: chain(map(scenario, REPAIRED), named(20, "two connectors, states")),
    "several": lambda: named(24, "two connectors", "two connectors, states"),
    "umbp_stores": lambda: chain(
        named(36, "umbp", "umbp, states", "umbp, windows, drafts"),
        named(24, "reads fail", "reads fail, windows"),
    ),
    "reads": lambda: named(12, "reads fail", "reads fail, windows"),
    "columns": lambda: named(12, "states, second runner", "states, drafts, second runner"),
    "lazily": lambda: named(12, "lazily"),
    "written": lambda: named(24, "writes fail", "sampled too, drafts"),
    "rooms": lambda: chain(
        named(48, "little room", "little room, states"), named(24, "evicting", "evicting, windows")
    ),
    "meanwhile": lambda: named(
        12,
        "in chunks",
        "preempting, resets",
        "preempting, states, resets",
        "preempting, gives up, planned ahead",
        "short steps, windows",
    ),
    "repeats": lambda: named(12, "answers later", "answers later, windows"),
    "replays": lambda: drawn(12, "outside the cache"),
    "together": lambda: named(8, *TOGETHER),
    "told": lambda: chain(
        named(8, "connector, gives up", "connector, states, gives up"),
        named(6, "drafts, planned ahead, few blocks"),
    ),
    "ways": lambda: chain(
        named(12, "gives way", "gives way, drafts", "hands over, planned ahead"),
        named(4, "connector, skips reading"),
        [scenario("1:384")],
    ),
    "resumed": lambda: kept(HERE.parent / "known" / "scheduler_raises_in_flight.json"),
}
"""The histories that are played of each part."""


def main(part: str, *wanted: str) -> None:
    """Put each of the part's faults in turn into the target."""
    look: Callable[[str], list[str]]
    if part in PARTS:
        subject = VllmSchedulers()
        right = [each for each in PARTS[part]() if not shown(subject, each)]
        look = partial(found, subject, right)
    else:
        checked = VllmSubject(frozenset())
        right_ones = [
            each for each in LAYOUTS[part](Profile.QUICK) if not of_tiers(checked, [each], "")
        ]
        look = partial(of_tiers, checked, right_ones)
    made: dict[str, Any] = {"none": look("")}
    for name, fault in FAULTS[part].items():
        if wanted and name not in wanted:
            continue
        with edited(fault):
            made[name] = look(fault.get("shows", ""))
        if part == "grammars":
            tested, why_not = is_tested(subject, right, fault), fault.get("untested")
            made[f"{name}: test"] = tested is True if why_not is None else why_not in str(tested)
    print(f"\nfound {json.dumps(made)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
