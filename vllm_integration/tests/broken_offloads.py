"""What generated histories show of a target's connector that offloads, part by part broken.

Run in a process of its own with the target on its path; writes what was found of each fault.
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

from hitproof.conformance.histories.offload_workloads import offload_workload
from hitproof.conformance.scheduling.playing import play
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers

_MANY = 40


def found(subject: VllmSchedulers) -> list[str]:
    """What the first history that shows anything shows."""
    for number in range(_MANY):
        if causes := play(offload_workload(f"1:{number}"), subject).causes:
            return [str(each.signature.code) for each in causes]
    return []


def _reversed(build: Callable[..., Any], pages: str) -> Callable[..., Any]:
    """Copies of the right blocks, in the wrong order on one side."""

    def built(self: Any, output: Any) -> Any:
        made = build(self, output)
        setattr(made, pages, getattr(made, pages)[::-1])
        return made

    return built


def faults() -> dict[str, Any]:
    """What breaks a part of the target."""
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler as Manager

    build = Manager.build_connector_meta
    return {
        "none": nullcontext(),
        "stored elsewhere": patch.object(
            Manager, "build_connector_meta", _reversed(build, "store_cpu_blocks")
        ),
        "loaded elsewhere": patch.object(
            Manager, "build_connector_meta", _reversed(build, "load_gpu_blocks")
        ),
    }


if __name__ == "__main__":
    subject, answers = VllmSchedulers(), {}
    for name, broken in faults().items():
        with broken:
            answers[name] = found(subject)
    print(f"\nfound {json.dumps(answers)}")
