"""What a step may not do, and what it may not leave undone: right steps, and wrong ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Deployment, HostPool, Pause
from hitproof.conformance.scheduling.steps import Situation, StepRules
from hitproof.conformance.subject.schedulers import Loading, Plan, Scheduled, Transfers
from hitproof.conformance.tests.editing import cases
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 4)
DEPLOYMENT = Deployment((FULL,), 400, 64, 16, max_num_seqs=2)
STATES = replace(DEPLOYMENT, groups=(FULL, Group(GroupKind.MAMBA, 4)))
THRESHOLD = replace(DEPLOYMENT, long_prefill_token_threshold=5)
MARGIN = replace(DEPLOYMENT, watermark=0.01)
DEPLOYMENTS = {
    "states": STATES,
    "threshold": THRESHOLD,
    "fair": replace(THRESHOLD, long_prefill_token_threshold_adaptive=True),
    "drafts": replace(DEPLOYMENT, speculative_method="ngram", num_speculative_tokens=2),
    "margin": MARGIN,
    "margin of host": replace(MARGIN, host=HostPool(400)),
    "priority": replace(DEPLOYMENT, policy="priority"),
    "ranks": replace(DEPLOYMENT, ranks=2, async_scheduling=True, v2_model_runner=True),
    "states by 3": replace(STATES, max_num_batched_tokens=3),
    "states by 14": replace(STATES, max_num_batched_tokens=14),
    "states by 40": replace(STATES, max_num_batched_tokens=40),
    "adapters": replace(DEPLOYMENT, max_loras=1),
    "scheduled by 8": replace(DEPLOYMENT, max_num_scheduled_tokens=8),
    "no chunks": replace(DEPLOYMENT, enable_chunked_prefill=False),
    "second runner": replace(DEPLOYMENT, v2_model_runner=True),
}
ARRIVALS = {
    "a": Arrival(tuple(range(40)), (1, 2, 3)),
    "b": Arrival(tuple(range(100, 140)), (1, 2, 3), priority=1),
    "c": Arrival(tuple(range(200, 203)), (1, 2, 3)),
    "x": Arrival(tuple(range(300, 304)), (1,), lora_name="x"),
    "y": Arrival(tuple(range(400, 404)), (1,), lora_name="y"),
    "e": Arrival(tuple(range(600, 640)), (1,)),
    "f": Arrival((*range(600, 630), *range(700, 710)), (1,)),
    "g": Arrival((900,), (1, 2)),
    "s": Arrival((800,), (1,), session="session"),
    "more": Arrival((800, 801), (1,), session="session"),
}


def plan_of(text: str) -> Plan:
    """``text``: for each request its name, where it starts, its tokens, and the drafts of these."""
    scheduled = []
    for each in filter(None, text.split(",")):
        name, start, tokens, *drafts = each.split()
        first = start == "0"
        counts = int(start), int(tokens), int(*drafts)
        scheduled.append(Scheduled(name, *counts, ((7,),), first, first))
    return Plan(tuple(scheduled))


def wrong(
    steps: str,
    *,
    deployment: str = "",
    before: Sequence[str] = (),
    after: Sequence[str] | None = None,
    known: Mapping[str, int] | None = None,
    free: tuple[int, int] = (300, 300),
    batches: int = 1,
    slots: int = 0,
    spares_lone: bool = False,
    skips_drafts: bool | None = None,
    stray_drafts: Sequence[Sequence[Any]] = (),
    pause: dict[str, Any] | None = None,
    loads: Mapping[str, int] | None = None,
    **situation: Any,
) -> list[str]:
    """What is wrong with the last of some steps; ``before`` and the rest are of that one."""
    deployed = DEPLOYMENTS[deployment] if deployment else DEPLOYMENT
    engine = EngineConfiguration(deployed.groups, 400, 4, 64, deployed.max_num_batched_tokens)
    rules = StepRules(deployed, engine, ARRIVALS, batches, slots, spares_lone, reserves=True)
    known = known or {"a": 40}
    *earlier, last = map(plan_of, steps.split(" | "))
    for plan in earlier:
        ran = [each.request for each in plan.scheduled]
        by_then = {name: min(number, len(ARRIVALS[name].prompt)) for name, number in known.items()}
        list(rules.judge(plan, Situation((), ran, by_then, 300, 300)))
    names = after if after is not None else [each.request for each in last.scheduled]
    if "in_pool" in situation:
        situation["in_pool"] = tuple(situation["in_pool"])
    now = Situation(
        before, names, known, *free, pause=Pause(**pause) if pause else None, **situation
    )
    if loads is not None:
        begun = {name: Loading(0, end, ()) for name, end in loads.items()}
        last = replace(last, transfers=Transfers(begun, {}))
    stray = tuple((name, number) for name, number in stray_drafts)
    found = rules.judge(replace(last, skips_drafts=skips_drafts, stray_drafts=stray), now)
    return [str(each.signature.defect) for each in found]


@cases("steps, options")
def test_what_is_right_has_no_finding(steps: str, options: dict[str, Any]) -> None:
    assert not wrong(steps, **options)


@cases("defect, steps, options")
def test_each_rule_is_shown_a_wrong_step(defect: str, steps: str, options: dict[str, Any]) -> None:
    assert defect in wrong(steps, **options)
