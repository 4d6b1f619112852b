"""What generated histories show of a target's connector that offloads, part by part broken.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 40


def _reversed(build: Callable[..., Any], pages: str) -> Callable[..., Any]:
    """Copies of the right blocks, in the wrong order on one side."""

    def built(self: Any, output: Any) -> Any:
        made = build(self, output)
        setattr(made, pages, getattr(made, pages)[::-1])
        return made

    return built


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, and how what is found of that begins."""
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler as Manager

    method = "build_connector_meta"

    def broken(pages: str) -> tuple[str, Any]:
        return "", patch.object(Manager, method, _reversed(getattr(Manager, method), pages))

    return {
        "stored elsewhere": broken("store_cpu_blocks"),
        "loaded elsewhere": broken("load_gpu_blocks"),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    write(answers(subject, silent(subject, drawn(_MANY, "offloads")), faults()))
