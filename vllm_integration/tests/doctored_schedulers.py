"""What requests hit on the target's scheduler alone, in the groups that doctor derived.

Run in a process of its own with the target on its path: reads deployments and requests as JSON from
standard input, writes the hits of the last request of each.
"""

import json
import sys
from itertools import pairwise
from typing import Any

from hitproof.conformance.histories.workloads import Arrival, Deployment, SchedulerHistory
from hitproof.conformance.scheduling.player import play
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers


def hit(subject: VllmSchedulers, asked: dict[str, Any]) -> int | str | None:
    """The hit of the last of some requests, each served when the one before has ended."""
    told = asked["deployment"]
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
    deployment = Deployment(
        groups,
        told["num_blocks"],
        told["max_model_len"],
        told["max_num_batched_tokens"],
        async_scheduling=told["async_scheduling"],
    )
    names = [f"request {number}" for number in range(len(asked["prompts"]))]
    before = {later: earlier for earlier, later in pairwise(names)}
    output = tuple(range(50, 50 + asked["answer"]))
    requests = {
        name: Arrival(tuple(prompt), output, after=before.get(name))
        for name, prompt in zip(names, asked["prompts"], strict=True)
    }
    outcome = play(SchedulerHistory(deployment, requests), subject)
    return outcome.refused or outcome.lives[names[-1]].hit


if __name__ == "__main__":
    subject = VllmSchedulers()
    found = [hit(subject, each) for each in json.loads(sys.stdin.read())]
    print(f"\nhits {json.dumps(found)}")
