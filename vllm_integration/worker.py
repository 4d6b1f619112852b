"""The worker: imports the target under the chosen interpreter and runs the checks there.

It is the only process that imports vLLM. Started by `vllm_integration.driver` with the standard
library, ``spec``, ``reference``, ``conformance`` and this package on its path, and nothing else
of ours.
"""

import os
import resource
import sys
from copy import copy
from enum import StrEnum
from typing import IO, Any

from conformance.behaviour import behaviour
from conformance.checks import CHECKS
from conformance.exploration import ExplorationError
from conformance.findings import Evidence
from conformance.layouts import Layout, judged_from_json
from conformance.outcomes import CheckResult
from conformance.shrinking import shrink
from conformance.subjects import CannotJudge
from spec.fine import HitGranularity
from spec.policies import EagleGroups
from spec.retention import LookaheadHorizon
from vllm_integration.adapter import VllmSubject
from vllm_integration.protocol import VERSION, Failure, decode, encode

_JUDGED_BY: dict[str, type[StrEnum]] = {
    "lookahead_horizon": LookaheadHorizon,
    "eagle_groups": EagleGroups,
    "hit_granularity": HitGranularity,
}
"""The policies that checks ask the subject for; what it keeps shows in what it has."""


class _Refused(Exception):
    def __init__(self, kind: Failure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main() -> None:
    """Serve requests until the gate closes the pipe."""
    requests, answers = _private_pipes()
    subject: VllmSubject | None = None
    for line in requests:
        message = decode(line)
        try:
            if message["op"] == "hello":
                subject = _import_target(message)
                result = {"python": sys.version.split()[0]}
            else:
                assert subject is not None
                result = _OPERATIONS[message["op"]](subject, message)
            answer = {"ok": True, **result}
        except _Refused as refusal:
            answer = {"ok": False, "kind": refusal.kind, "message": str(refusal)}
        except ExplorationError as error:
            answer = {"ok": False, "kind": Failure.INTERNAL, "message": str(error)}
        answers.write(encode(answer))
        answers.flush()


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Keep the protocol's pipes away from whatever the target prints or reads."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _import_target(message: dict[str, Any]) -> VllmSubject:
    if message["protocol"] != VERSION:
        raise _Refused(Failure.INTERNAL, f"the gate speaks protocol {message['protocol']}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (message["memory"], message["memory"]))
    root = message["root"]
    if root is not None:
        sys.path.insert(0, root)
    try:
        subject = VllmSubject(frozenset(message["predates"]))
    except ModuleNotFoundError as error:
        if (error.name or "vllm").split(".")[0] != "vllm":
            raise _Refused(
                Failure.ENVIRONMENT,
                f"{sys.executable} lacks the module {error.name!r}, which the target imports; "
                f"install hitproof[target] there, or name another interpreter with --python",
            ) from error
        raise _import_failed(error, root) from error
    except BaseException as error:
        raise _import_failed(error, root) from error
    found = os.path.abspath(sys.modules["vllm"].__file__ or "")
    if root is not None and not found.startswith(root + os.sep):
        raise _Refused(
            Failure.ENVIRONMENT,
            f"{sys.executable} imports vllm from {found}, not from {root}; name an interpreter "
            f"without an installed vllm with --python",
        )
    for name, value in message["policies"].items():
        if name in _JUDGED_BY:  # a cached property, which is not found out any more
            vars(subject)[name] = _JUDGED_BY[name](value)
    return subject


def _import_failed(error: BaseException, root: str | None) -> _Refused:
    where = "the installed vllm" if root is None else f"vllm from {root}"
    reason = f"{type(error).__name__}: {error}".strip().replace("\n", " ")[:300]
    return _Refused(Failure.ENVIRONMENT, f"importing {where} failed with {reason}")


def _check(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Run one check on one configuration."""
    judged = judged_from_json(message["configuration"])
    return _as_json(CHECKS[message["claim"]](subject, judged))


def _behave(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Run one check on one configuration, and tell what the target did."""
    judged = judged_from_json(message["configuration"])
    result, facts = behaviour(subject, message["claim"], judged)
    return _as_json(result) | {"facts": [fact.as_json() for fact in facts]}


def _as_json(result: CheckResult) -> dict[str, Any]:
    return {
        "statuses": result.statuses,
        "evidence": [evidence.as_json() for evidence in result.evidence],
        "paths": result.paths,
        "states": result.states,
        "detail": result.detail,
    }


def _shrink(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Shrink a divergence, and say which code it is about."""
    evidence = Evidence.from_json(message["evidence"])
    what = "mask" if evidence.max_length is None else "lookup"
    several = isinstance(evidence.configuration, Layout)
    return {
        "evidence": shrink(subject, evidence).as_json(),
        "source": subject.source(
            evidence.signature.kind
            if evidence.steps
            else f"{what} {'several' if several else evidence.signature.kind}"
        ),
    }


def _policies(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """How the target behaves where releases differ, whatever it is judged by."""
    del message
    behaving = copy(subject)
    for name in _JUDGED_BY:
        vars(behaving).pop(name, None)
    try:
        return {"policies": behaving.policies(), "detail": ""}
    except CannotJudge as reason:
        return {"policies": {}, "detail": str(reason)}
    except Exception as crash:  # the target's, while it was made to behave
        return {"policies": {}, "detail": f"it raises {crash!r:.200}"}


def _reproduce(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Show a divergence on a whole manager; the modules for it are loaded with the first one."""
    from vllm_integration import case_worker

    return case_worker.reproduce(subject, message)


def _lockstep(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Play histories; the modules for it are loaded when they are first needed."""
    from vllm_integration import lockstep_worker

    operation = getattr(lockstep_worker, message["op"])
    return operation(subject, message)  # type: ignore[no-any-return]


def _selftest(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Judge mutants of the target; the modules for it are loaded when they are first needed."""
    from vllm_integration import selftest_worker

    return selftest_worker.operation(subject, message)


def _judge_history(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Replay a history; the modules for it are loaded when they are first needed."""
    from vllm_integration.replay_worker import judge_history

    return judge_history(subject, message)


_OPERATIONS = {
    "judge_history": _judge_history,
    "check": _check,
    "behave": _behave,
    "shrink": _shrink,
    "reproduce": _reproduce,
    "policies": _policies,
    "lockstep": _lockstep,
    "replay": _lockstep,
    "shrink_history": _lockstep,
    "selftest": _selftest,
    "selftest_baseline": _selftest,
    "selftest_judge": _selftest,
}
