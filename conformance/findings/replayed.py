"""Findings of replayed histories, in the form of all findings."""

import json
from typing import Any

from hitproof.conformance.findings.demonstration import Demonstration
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.places import NOT_RUN, Passed
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.json_format import as_json, read
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.histories.schema import EngineConfiguration, History
from hitproof.conformance.histories.workload_json import workload_as_json
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.words import in_blocks, in_tokens
from hitproof.spec.groups import Group


def replayed(
    signature: Signature,
    play: Play,
    spec: str,
    actual: str,
    step: int,
    shown: Demonstration,
    passed: Passed = NOT_RUN,
    trace: dict[str, Any] | None = None,
) -> Finding:
    """What the history ``play`` shows at ``step``, an index."""
    given = [play.describe()]
    if play.text and play.of_scheduler:
        given = of_workload(play.workload())
    elif play.text:
        given = up_to(read(play.text), step)
    return Finding(
        signature=signature,
        sentence=signature.sentence,
        given=tuple(given),
        spec=spec,
        actual=actual,
        strip="",
        source="",
        configuration=play.as_json(),
        demonstration=shown,
        passed=passed,
        trace=trace,
    )


def up_to(history: History, step: int) -> list[str]:
    """The history up to a step, an index: configuration, requests and steps, one fact a line."""
    data = as_json(history)
    requests = [f"request {name}: {json.dumps(each)}" for name, each in data["requests"].items()]
    steps = [json.dumps(each) for each in data["steps"][: step + 1]]
    return [*describe(history.engine), *requests, *steps]


def of_workload(history: SchedulerHistory) -> list[str]:
    """A scheduler history: groups, what the scheduler is started with, and requests."""
    data = workload_as_json(history)
    data["deployment"].pop("groups")
    arguments = ", ".join(f"{name} {value}" for name, value in data["deployment"].items())
    requests = [f"request {name}: {json.dumps(each)}" for name, each in data["requests"].items()]
    return ["; ".join(map(_group, history.deployment.groups)), arguments, *requests]


def describe(engine: EngineConfiguration) -> tuple[str, ...]:
    """A configuration in words, one fact a line."""
    retention = "dense" if engine.retention_interval is None else f"{engine.retention_interval}"
    unit, exported = engine.hash_block_size, engine.mamba_checkpoint_alignment
    pool = (
        f"a pool of {in_blocks(engine.num_gpu_blocks)}, alignment {engine.alignment}, EAGLE "
        f"{'on' if engine.use_eagle else 'off'}, retention {retention}"
    )
    if engine.num_hash_lookahead_tokens:
        pool += f", hashes that cover {in_tokens(engine.num_hash_lookahead_tokens)} more"
    if engine.num_prefill_lookahead > 1:
        pool += f", {engine.num_prefill_lookahead} MTP modules"
    if any(group.block_size != unit for group in engine.groups):
        pool += f", hash blocks of {unit}"
    if exported is not None:
        pool += f", Mamba states exported every {in_tokens(exported)} of a chunk"
    if engine.mamba_shared_prefix_checkpoint:
        pool += ", and kept where shared prefixes end"
    if engine.variant:
        pool += f", variant {engine.variant} of specs, pool and requests"
    return "; ".join(map(_group, engine.groups)), pool


def _group(group: Group) -> str:
    more = f", window {group.window}" if group.window else ""
    more += f", chunk {group.chunk}" if group.chunk else ""
    more += ", EAGLE" if group.eagle else ""
    return f"{group.kind.replace('_', ' ')}, block size {group.block_size}{more}"
