"""What a step may not do, and what it may not leave undone: right steps, and wrong ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival, Deployment, HostPool, Pause
from hitproof.conformance.scheduling.steps import Situation, StepRules
from hitproof.conformance.subject.schedulers import Plan, Scheduled
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 4)
DEPLOYMENT = Deployment((FULL,), 400, 64, 16, max_num_seqs=2)
STATES = replace(DEPLOYMENT, groups=(FULL, Group(GroupKind.MAMBA, 4)))
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


def step(name: str, start: int, tokens: int, drafts: int = 0) -> Scheduled:
    return Scheduled(name, start, tokens, drafts, ((7,),), start == 0, start == 0)


def wrong(
    steps: Sequence[Sequence[Scheduled]],
    deployment: Deployment = DEPLOYMENT,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] | None = None,
    known: Mapping[str, int] | None = None,
    free: tuple[int, int] = (300, 300),
    batches: int = 1,
    slots: int = 0,
    spares_lone: bool = False,
    skips_drafts: bool | None = None,
    stray_drafts: tuple[tuple[str, int], ...] = (),
    may_have_evicted: bool = False,
    pause: Pause | None = None,
    in_pool: tuple[int, int] | None = None,
) -> list[str]:
    """What is wrong with the last of some steps; ``before`` and the rest are of that one."""
    engine = EngineConfiguration(deployment.groups, 400, 4, 64, deployment.max_num_batched_tokens)
    rules = StepRules(deployment, engine, ARRIVALS, batches, slots, spares_lone)
    known = known or {"a": 40}
    for plan in steps[:-1]:
        ran = [each.request for each in plan]
        by_then = {name: min(number, len(ARRIVALS[name].prompt)) for name, number in known.items()}
        list(rules.judge(Plan(tuple(plan)), Situation((), ran, by_then, 300, 300)))
    names = after if after is not None else [each.request for each in steps[-1]]
    now = Situation(
        before, names, known, *free, may_have_evicted=may_have_evicted, pause=pause, in_pool=in_pool
    )
    last = Plan(tuple(steps[-1]), skips_drafts=skips_drafts, stray_drafts=stray_drafts)
    found = rules.judge(last, now)
    return [str(each.signature.defect) for each in found]


BOTH = {"a": 40, "b": 40}
THRESHOLD = replace(DEPLOYMENT, long_prefill_token_threshold=5)
FAIR = replace(THRESHOLD, long_prefill_token_threshold_adaptive=True)
DRAFTS = replace(DEPLOYMENT, speculative_method="ngram", num_speculative_tokens=2)
MARGIN = replace(DEPLOYMENT, watermark=0.01)
MARGIN_OF_HOST = replace(MARGIN, host=HostPool(400))
PRIORITY = replace(DEPLOYMENT, policy="priority")
RUN = [step("a", 0, 16)]
ANEW = [RUN, [step("a", 16, 16)], [step("a", 0, 8)]]
AGAIN = {"deployment": STATES, "known": {"a": 40}}
BESIDE = [[step("c", 0, 3)], [step("c", 3, 1), step("a", 0, 15)]]
BESIDE_A_HIT = [[step("c", 0, 3)], [step("c", 3, 1), step("a", 8, 15)]]
ADMITTED = {"deployment": MARGIN, "before": ["c"], "known": {"c": 4, "a": 40}}
RANKS = replace(DEPLOYMENT, ranks=2, async_scheduling=True, v2_model_runner=True)
NO_OTHERS = Pause(0, 1, finishes_running=True)
SMALL = replace(STATES, max_num_batched_tokens=3)
ADAPTERS = {"deployment": replace(DEPLOYMENT, max_loras=1), "known": {"x": 4, "y": 4}}
PARTLY = {"deployment": STATES, "known": {"e": 40}}
MET = {
    "deployment": replace(STATES, max_num_batched_tokens=40),
    "before": ["e", "f"],
    "known": {"e": 40, "f": 40},
}
GO_ON = [step("e", 12, 28), step("f", 4, 4)]


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        ([RUN], {}),
        ([RUN, [step("a", 16, 16)]], {"before": ["a"]}),
        ([[step("a", 0, 5)]], {"deployment": THRESHOLD}),
        ([[step("a", 0, 5), step("b", 0, 5)]], {"deployment": THRESHOLD, "known": BOTH}),
        ([RUN], {"known": BOTH}),
        ([RUN], {"deployment": THRESHOLD, "spares_lone": True}),
        ([[step("a", 0, 8), step("b", 0, 8)]], {"deployment": FAIR, "known": BOTH}),
        # Two drafts are verified; no drafts are needed, as the last token is sampled.
        (
            [[step("c", 0, 3)], [step("c", 3, 3, 2)]],
            {"deployment": DRAFTS, "before": ["c"], "known": {"c": 4}},
        ),
        ([[step("c", 5, 1)]], {"deployment": DRAFTS, "known": {"c": 6}, "skips_drafts": True}),
        ([[step("c", 0, 3)]], {"deployment": DRAFTS, "known": {"c": 3}, "skips_drafts": False}),
        # Who is preempted may have been given tokens before.
        (
            [RUN, [step("a", 16, 4)]],
            {"before": ["a", "b"], "after": ["a"], "known": BOTH, "free": (0, 9)},
        ),
        # Where what another had computed of the same prompt ended, as it was admitted.
        ([[step("e", 0, 12), step("f", 0, 4)], GO_ON], MET),
        # The last block of the budget; and nothing, since a block does not fit.
        ([[step("a", 0, 12)]], {"deployment": replace(STATES, max_num_batched_tokens=14)}),
        ([RUN, [step("a", 16, 16)], [step("a", 32, 4)]], {"deployment": STATES, "before": ["a"]}),
        (
            [RUN, [step("a", 16, 16)]],
            {"before": ["a", "b"], "after": ["a"], "known": BOTH, "free": (0, 9)},
        ),
        (
            [RUN, [step("a", 16, 16)]],
            {
                "before": ["a", "b"],
                "after": ["a"],
                "known": BOTH,
                "free": (0, 0),
                "in_pool": (0, 9),
            },
        ),
        ([[step("x", 0, 4)]], ADAPTERS),
        # Of what two requests share, blocks are left up to there.
        ([[step("e", 0, 4)]], PARTLY | {"may_have_evicted": True}),
        # The same of what it had computed itself, before it started again.
        (ANEW, AGAIN | {"may_have_evicted": True}),
        # The watermark of four blocks stays free, with the other six of the prompt; alone none do.
        (BESIDE, ADMITTED | {"free": (14, 10)}),
        ([RUN], {"deployment": MARGIN, "free": (4, 0)}),
        # What is free on the device counts, not how many pages that is with what belongs to each.
        (BESIDE, ADMITTED | {"free": (4, 3), "in_pool": (10, 10)}),
        (
            BESIDE_A_HIT,
            ADMITTED | {"deployment": MARGIN_OF_HOST, "free": (4, 3), "in_pool": (10, 2)},
        ),
        ([[step("a", 40, 1)]], {"known": {"a": 41}, "before": ["a"], "batches": 2}),
        # The second pipeline rank has the token two steps later.
        (
            [[step("c", 0, 3)], [step("a", 0, 16)], [step("a", 16, 15), step("c", 3, 1)]],
            {"deployment": RANKS, "before": ["a", "c"], "known": {"a": 31, "c": 3}, "batches": 3},
        ),
        ([[]], {"before": ["a"], "after": ["a"], "pause": Pause(0, 1)}),
        ([RUN, [step("a", 16, 16)]], {"before": ["a"], "known": BOTH, "pause": NO_OTHERS}),
        # The next input of a session, which holds its blocks.
        ([[step("more", 1, 1)]], {"known": {"more": 2}, "pause": NO_OTHERS}),
        # Where no step has room for a block, a part of it is computed.
        ([[step("a", 0, 3)]], {"deployment": SMALL}),
    ],
)
def test_what_is_right_has_no_finding(steps: Any, options: dict[str, Any]) -> None:
    assert not wrong(steps, **options)


WRONG: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "step-exceeds-limit(limit=tokens)": [
        ([[step("a", 0, 17)]], {}),
        ([RUN], {"slots": 1}),
        ([RUN], {"deployment": replace(DEPLOYMENT, max_num_scheduled_tokens=8)}),
    ],
    "step-exceeds-limit(limit=adapters)": [([[step("x", 0, 4), step("y", 0, 4)]], ADAPTERS)],
    "admitted-out-of-turn": [
        ([[step("y", 0, 4)]], ADAPTERS),
        ([[step("b", 0, 16)]], {"known": BOTH, "free": (1, 1)}),
        (
            [[step("b", 0, 16)]],
            {"known": {"b": 40, "a": 40}, "deployment": PRIORITY, "free": (1, 1)},
        ),
        ([[step("b", 0, 8), step("a", 0, 8)]], {"known": BOTH}),
    ],
    "step-exceeds-limit(limit=requests)": [
        (
            [[step("a", 40, 1), step("b", 40, 1), step("c", 0, 3)]],
            {"known": {"a": 41, "b": 41, "c": 3}},
        )
    ],
    "step-exceeds-limit(limit=prompt)": [
        ([RUN], {"deployment": THRESHOLD, "known": BOTH}),
        ([[step("a", 0, 9), step("b", 0, 7)]], {"deployment": FAIR, "known": BOTH}),
    ],
    "step-exceeds-limit(limit=length)": [([[step("a", 60, 5)]], {"known": {"a": 65}})],
    "step-exceeds-limit(limit=chunks)": [
        ([[step("a", 0, 16)]], {"deployment": replace(DEPLOYMENT, enable_chunked_prefill=False)})
    ],
    "step-leaves-work(what=running)": [
        ([[step("a", 0, 5)]], {"deployment": THRESHOLD, "spares_lone": True}),
        ([[step("a", 0, 5), step("b", 0, 8)]], {"deployment": FAIR, "known": BOTH}),
        (
            [[step("c", 0, 3)], [step("c", 3, 2, 1)]],
            {"deployment": DRAFTS, "before": ["c"], "known": {"c": 4}},
        ),
        (
            [[step("a", 0, 8), step("c", 0, 3)], [step("a", 8, 6)]],
            {"before": ["a", "c"], "after": ["a"], "known": {"a": 40, "c": 4}, "free": (0, 9)},
        ),
        # Who gave way was before the one that got its blocks, and this one comes after.
        (
            [[step("a", 0, 8), step("c", 0, 3)], [step("b", 0, 8)]],
            {
                "deployment": PRIORITY,
                "before": ["a", "b", "c"],
                "after": ["b", "c"],
                "known": {"a": 40, "b": 40, "c": 4},
                "free": (0, 0),
            },
        ),
        ([[step("a", 0, 15)]], {}),
        ([RUN, []], {"before": ["a"], "after": ["a"]}),
        # A later request gets what the first should get.
        ([RUN, [step("b", 0, 16)]], {"before": ["a"], "after": ["a", "b"], "known": BOTH}),
    ],
    "drafts-never-verified": [
        ([[step("c", 5, 1)]], {"deployment": DRAFTS, "known": {"c": 6}, "skips_drafts": False}),
        ([[step("a", 0, 16)]], {"deployment": DRAFTS, "skips_drafts": False}),
        # One token is sampled by a step in flight, the last by this one.
        (
            [[step("g", 0, 1)], [step("g", 1, 1)]],
            {"deployment": DRAFTS, "batches": 2, "known": {"g": 1}, "skips_drafts": False},
        ),
    ],
    "step-leaves-work(what=drafts)": [
        ([[step("c", 0, 3)]], {"deployment": DRAFTS, "known": {"c": 3}, "skips_drafts": True})
    ],
    "step-leaves-work(states=mamba, what=running)": [
        (ANEW, AGAIN),
        ([[step("f", 0, 4), step("e", 0, 12)], GO_ON], MET),
        ([[]], {"deployment": SMALL, "before": ["a"], "after": ["a"]}),
        ([[step("e", 0, 4)]], PARTLY),
        ([[step("e", 0, 6)]], PARTLY | {"may_have_evicted": True}),
        ([[step("a", 0, 8)]], {"deployment": STATES}),
        ([[step("a", 0, 11)]], {"deployment": STATES}),
    ],
    "step-exceeds-limit(limit=watermark)": [
        (BESIDE, ADMITTED | {"free": (13, 9)}),
        (BESIDE, ADMITTED | {"deployment": MARGIN_OF_HOST, "free": (4, 10), "in_pool": (10, 9)}),
    ],
    "draft-count-wrong": [
        ([[step("a", 40, 3, 1)]], {"known": {"a": 41}}),
        ([[step("c", 0, 4, 0)]], {"known": {"c": 3}, "batches": 2}),
        ([[step("a", 30, 4, 2)]], {"known": {"a": 32}, "batches": 2}),
        ([RUN], {"stray_drafts": (("b", 2),)}),
    ],
    "step-exceeds-limit(limit=empty)": [([[step("a", 0, 0)]], {})],
    "step-exceeds-limit(limit=ranks)": [
        (
            [[step("c", 0, 3)], [step("c", 3, 1)]],
            {"deployment": RANKS, "before": ["c"], "known": {"c": 3}, "batches": 3},
        )
    ],
    "step-exceeds-limit(limit=pause)": [
        ([RUN], {"before": ["a"], "pause": Pause(0, 1)}),
        ([RUN], {"pause": NO_OTHERS}),
        ([[step("more", 1, 1)]], {"known": {"more": 2}, "pause": Pause(0, 1)}),
    ],
    "step-leaves-work(states=mamba, what=states)": [
        ([[step("a", 0, 14)]], {"deployment": replace(STATES, max_num_batched_tokens=14)})
    ],
    "step-leaves-work(what=waiting)": [([[step("c", 0, 3)]], {"known": {"c": 3, "b": 40}})],
    "preempted-wrongly(how=turn)": [
        (
            [[step("b", 16, 16)]],
            {"before": ["a", "b"], "after": ["b"], "known": BOTH, "free": (0, 0)},
        ),
        (
            [[step("b", 16, 16)]],
            {
                "before": ["b", "a"],
                "after": ["b"],
                "known": BOTH,
                "deployment": PRIORITY,
                "free": (0, 0),
            },
        ),
    ],
    "step-exceeds-limit(limit=places)": [
        (
            [[step("a", 40, 1), step("b", 40, 1)], [step("c", 0, 3)]],
            {
                "known": {"a": 41, "b": 41, "c": 3},
                "deployment": replace(DEPLOYMENT, v2_model_runner=True),
            },
        )
    ],
    "preempted-wrongly(how=use)": [
        (
            [[step("a", 16, 16)]],
            {"before": ["a", "b"], "after": ["a"], "known": BOTH, "free": (2, 1)},
        ),
        (
            [[step("a", 16, 16)]],
            {
                "before": ["a", "b"],
                "after": ["a"],
                "known": BOTH,
                "free": (2, 1),
                "in_pool": (9, 8),
            },
        ),
    ],
    "preempted-wrongly(how=need)": [
        ([[step("a", 16, 16)]], {"before": ["a", "b"], "after": ["a"], "known": BOTH})
    ],
}


@pytest.mark.parametrize(
    ("defect", "steps", "options"), [(defect, *row) for defect in WRONG for row in WRONG[defect]]
)
def test_each_rule_is_shown_a_wrong_step(defect: str, steps: Any, options: dict[str, Any]) -> None:
    assert defect in wrong(steps, **options)
