"""What generated histories show of a target that is wrong beside connectors.

Run in a process of its own with the target on its path; writes what was found of each fault, in
histories that show nothing of the target as it is.
"""

from collections.abc import Callable
from functools import wraps
from itertools import chain
from typing import Any
from unittest.mock import patch

from hitproof.conformance.tests.drawn import drawn
from hitproof.vllm_integration.adapter.schedulers import VllmSchedulers
from hitproof.vllm_integration.tests.faults_in_parts import answers, silent, write

_MANY = 48


def _hesitant(reset: Callable[..., bool]) -> Callable[..., bool]:
    """Connectors forget only where blocks are given up, too."""

    def done(
        self: Any, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        here = reset(self, reset_running_requests)
        return here and (not reset_connector or self.reset_connector_cache())

    return done


def _eager(reset: Callable[..., bool]) -> Callable[..., bool]:
    """Connectors forget whenever there is one."""

    @wraps(reset)
    def done(*given: Any, **named: Any) -> bool:
        return reset(*given, **named | {"reset_connector": True})

    return done


def _hopeful(reset: Callable[..., bool]) -> Callable[..., bool]:
    """All is said to be done."""

    @wraps(reset)
    def done(*given: Any, **named: Any) -> bool:
        reset(*given, **named)
        return True

    return done


def _overruled(finished: Callable[..., Any]) -> Callable[..., Any]:
    """The encoder cache connector alone says what is held."""

    def asked(self: Any, request: Any) -> Any:
        held, answer = finished(self, request)
        return held and self.ec_connector is None, answer

    return asked


def _counted(make: Callable[..., Any]) -> Callable[..., Any]:
    """What is found on the device counts as asked for."""

    def made(*given: Any, **named: Any) -> Any:
        stats = make(*given, **named)
        here, loads = stats.prefix_cache_stats, stats.connector_prefix_cache_stats
        if here is not None and loads is not None:
            loads.queries += here.hits
        return stats

    return made


def faults() -> dict[str, tuple[str, Any]]:
    """What breaks a part of the target, or of a connector, and how its finding starts."""
    from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
        SimpleCPUOffloadConnector,
    )
    from vllm.v1.core.sched.scheduler import Scheduler

    from hitproof.vllm_integration.adapter.loading import LoadingConnector

    def broken(method: str, how: Callable[..., Any]) -> Any:
        return patch.object(Scheduler, method, how(getattr(Scheduler, method)))

    reset, wrong = "reset_prefix_cache", "connector-reset-wrong"
    return {
        "forgets with the device only": (f"{wrong}(how=not-asked)", broken(reset, _hesitant)),
        "forgets always": (f"{wrong}(how=unwanted)", broken(reset, _eager)),
        "says that it is done": ("reset-answered-wrong(how=done)", broken(reset, _hopeful)),
        "loads what it forgot": (
            f"{wrong}(how=loads)",
            patch.object(LoadingConnector, "reset_cache", lambda self: not self.refuses),
        ),
        "keeps what it offloaded": (
            f"{wrong}(how=kept)",
            patch.object(SimpleCPUOffloadConnector, "reset_cache", lambda _: True),
        ),
        "frees what is sent": (
            "transferred-page-used(how=free, what=sends)",
            broken("_connector_finished", _overruled),
        ),
        "counts what is here": ("statistics-wrong(of=loads)", broken("make_stats", _counted)),
    }


if __name__ == "__main__":
    subject = VllmSchedulers()
    made = chain(
        drawn(_MANY, "connector", "resets"),
        drawn(_MANY, "offloads", "resets"),
        drawn(_MANY, "connector", "images"),
    )
    write(answers(subject, silent(subject, made), faults()))
