"""Scheduler histories on engines that are set up or used in other ways than most.

In turn: pipeline ranks, so that more steps are in flight; no prefix caching; pauses, while requests
run, end and arrive; groups that opt out of prefix caching, rings and windows, and blocks of sizes
that do not divide one another. Apart from that they are as other
histories: generated ones, and ones at the limits of steps.
"""

import math
from dataclasses import replace
from random import Random

from hitproof.conformance.histories.limit_workloads import limit_workload
from hitproof.conformance.histories.workload_generator import workload
from hitproof.conformance.histories.workloads import Deployment, Pause, SchedulerHistory
from hitproof.spec.groups import Group, GroupKind

_MORE_ROOM = 3
"""How much larger pools are with more steps in flight, or more groups."""


def engine_workload(seed: int | str) -> SchedulerHistory:
    """The scheduler history of a seed."""
    random = Random(f"hitproof engines {seed}")
    prefix, _, last = str(seed).rpartition(":")
    number = int(last)
    made = (limit_workload, workload)[number % 2](f"engines {prefix}:{number // 4}")
    deployment = made.deployment
    match number // 2 % 4:
        case 0:
            return replace(made, deployment=_pipeline(deployment, random))
        case 1:
            return replace(made, deployment=_uncached(deployment, random))
        case 2:
            return replace(made, pauses=_pauses(random))
        case _ if number // 8 % 2:
            return replace(made, deployment=_uneven(deployment))
        case _:
            if number % 32 == 7:  # of full attention
                made = workload(f"engines {prefix}:{number // 4 // 8 * 8}")
                return replace(made, deployment=_replayed(made.deployment, random))
            # Of all layouts in turn; every fourth seed has but two.
            made = (limit_workload, workload)[number % 2](f"engines {prefix}:{number // 16}")
            return replace(made, deployment=_opted_out(made.deployment, seed))


def _pipeline(deployment: Deployment, random: Random) -> Deployment:
    runs_ahead = random.random() < 0.7
    if not runs_ahead or random.random() < 0.5:
        deployment = _without_drafts(deployment)
    return replace(
        deployment,
        ranks=random.choice((2, 2, 3)),
        num_gpu_blocks=_MORE_ROOM * deployment.num_gpu_blocks,
        async_scheduling=runs_ahead,
        v2_model_runner=runs_ahead,
    )


def _uncached(deployment: Deployment, random: Random) -> Deployment:
    groups = tuple(each for each in deployment.groups if each.kind is not GroupKind.MAMBA)
    sizes = {each.block_size for each in groups}
    return replace(
        deployment,
        groups=groups,
        enable_prefix_caching=False,
        prefix_match_unit=random.choice((None, 2 * max(sizes), min(sizes) // 2, 3)),
        retention_interval=None,
        mamba_checkpoint_alignment=None,
        mamba_shared_prefix_checkpoint=False,
    )


def _opted_out(deployment: Deployment, seed: int | str) -> Deployment:
    size = math.lcm(*(group.block_size for group in deployment.groups))
    # No hit depends on how large its blocks are.
    size = Random(f"hitproof rings {seed}").choice((size, size // 2, max(size // 4, 1)))
    ring = Group(GroupKind.FULL_ATTENTION, size, prefix_cacheable=False)
    return replace(
        deployment,
        groups=(*deployment.groups, ring),
        num_gpu_blocks=_MORE_ROOM * deployment.num_gpu_blocks,
    )


def _replayed(deployment: Deployment, random: Random) -> Deployment:
    """A window outside the prefix cache, alone or beside a ring, as DeepSeek-V4.1 has both."""
    size = random.choice((1, 2)) * deployment.groups[0].block_size // 2
    tokens = random.choice((size, 2 * size, 3 * size))
    window = Group(GroupKind.SLIDING_WINDOW, size, tokens, prefix_cacheable=False)
    ring = Group(GroupKind.FULL_ATTENTION, size, prefix_cacheable=False)
    return replace(
        deployment,
        groups=(*deployment.groups, *random.choice(((window,), (window, ring)))),
        num_gpu_blocks=_MORE_ROOM * deployment.num_gpu_blocks,
        v2_model_runner=True,
    )


def _uneven(deployment: Deployment) -> Deployment:
    size, interval = deployment.groups[0].block_size, deployment.retention_interval
    full = Group(GroupKind.FULL_ATTENTION, size * 3 // 2)
    windows = [each for each in deployment.groups if each.kind is GroupKind.SLIDING_WINDOW]
    return replace(
        deployment,
        groups=(full, *(windows or [Group(GroupKind.SLIDING_WINDOW, size, window=size + 2)])),
        num_gpu_blocks=_MORE_ROOM * deployment.num_gpu_blocks,
        prefix_match_unit=None,
        retention_interval=None if isinstance(interval, int) else interval,
        mamba_checkpoint_alignment=None,
        mamba_shared_prefix_checkpoint=False,
    )


def _pauses(random: Random) -> tuple[Pause, ...]:
    pauses, at = [], 0
    for _ in range(random.randint(2, 5)):
        at += random.randint(1, 6)
        steps = random.randint(1, 4)
        pauses.append(Pause(at, steps, finishes_running=random.random() < 0.4))
        at += steps
    return tuple(pauses)


def _without_drafts(deployment: Deployment) -> Deployment:
    return replace(
        deployment,
        groups=tuple(replace(group, eagle=False) for group in deployment.groups),
        speculative_method=None,
        num_speculative_tokens=0,
        num_mtp_modules=1,
    )
