"""The worker: imports the target under the chosen interpreter and runs the checks there.

It is the only process that imports vLLM. Started by `vllm_integration.sandbox.driver` with
``hitproof`` on its path, and nothing else of ours. All of hitproof is imported before the target,
so that the target's changes to the path have no effect.
"""

import faulthandler
import fcntl
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from socket import recv_fds, socket
from typing import IO, Any, TypeAlias

from hitproof.conformance.checks.outcomes import CheckResult
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.comparison.behaviour import behaviour
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.layouts import judged_from_json
from hitproof.conformance.subject.failures import (
    FailureKind,
    InternalError,
    classify,
    raised,
    refusal_of,
)
from hitproof.spec.claims import Status
from hitproof.vllm_integration.adapter.aliases import AliasError, take_up
from hitproof.vllm_integration.adapter.overrides import OverrideError, put_in_place
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.sandbox.forks import end_copies_of_others, make_copy
from hitproof.vllm_integration.sandbox.processes import MARK
from hitproof.vllm_integration.sandbox.protocol import OURS, TEXT, Failure, decode, encode
from hitproof.vllm_integration.sandbox.seal import Seal
from hitproof.vllm_integration.worker import branches, findings, lockstep, reads, replay, selftest

_COLLECTED_AFTER = 20_000
"""How many more objects there are before garbage is collected; Python's 700 takes longer."""


class _Refused(Exception):
    def __init__(self, kind: Failure, message: str) -> None:
        super().__init__(message)
        self.kind = kind


_FIRST_DESCRIPTOR = 1000
"""The file descriptors of the protocol's pipes, far from those a target may use by number."""

_FILE_BYTES = 1 << 28
_MORE_TASKS = 1024
_MORE_SECONDS = 60


def main(requests: int, answers: int, handover: int) -> None:
    """Serve the requests from one pipe into the other until the gate closes them.

    For a copy of itself, the worker takes the copy's pipes from the socket ``handover``.
    """
    asked, answered = _out_of_the_way(requests, "rb"), _out_of_the_way(answers, "wb")
    handed_over = socket(fileno=_moved(handover))
    us, pid, leave, lead = os.getpid, os.getpid(), os._exit, os.setsid
    seal = Seal(OURS)
    subject: VllmSubject | None = None
    while line := asked.readline():
        message = decode(line)
        _limit_processor_time(message["within"])
        try:
            if message["op"] == "hello":
                subject = _import_target(message)
                faulthandler.enable()  # after torch, which has a handler of its own
                result = {"python": sys.version.split()[0], "copies": _can_be_copied()}
                end_copies_of_others()
                gc.freeze()  # what was imported stays, and need not be looked through again
            elif message["op"] == "copy":
                _, (*pipes, log), _, _ = recv_fds(handed_over, 1, 3)
                copy = make_copy()
                if copy == 0:
                    for inherited in (asked, answered, handed_over):
                        inherited.close()
                    asked = _out_of_the_way(pipes[0], "rb")
                    answered = _out_of_the_way(pipes[1], "wb")
                    for printed in (1, 2):
                        os.dup2(log, printed)
                    os.close(log)
                    pid = us()
                    lead()
                    os.environ[MARK] = message["mark"]
                    continue
                for descriptor in (*pipes, log):
                    os.close(descriptor)
                result = {"number": copy}
            else:
                assert subject is not None
                result = _result(subject, message)
            answer = {"ok": True, **result}
        except _Refused as refusal:
            answer = {"ok": False, "kind": refusal.kind, "message": str(refusal)}
        except InternalError as error:
            answer = {"ok": False, "kind": Failure.INTERNAL, "message": str(error)}
        except MemoryError:
            raise  # little can be done with what is left
        except Exception as error:
            reason = f"the worker crashed: {raised(error)}"
            answer = {"ok": False, "kind": Failure.RAISED, "message": reason}
        if us() != pid:  # a copy that the target made of this process
            leave(1)
        if changed := seal.broken():
            reason = f"the target changes {changed}, with which it is judged"
            answer = {"ok": False, "kind": Failure.TAMPERED, "message": reason}
        answered.write(encode(answer | {"token": message["token"]}))
        answered.flush()


def _out_of_the_way(pipe: int, mode: str) -> IO[bytes]:
    return os.fdopen(_moved(pipe), mode)


def _moved(descriptor: int) -> int:
    """Keep the protocol's pipes away from the target and from processes that it starts."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    os.close(descriptor)
    return moved


def _can_be_copied() -> bool:
    """Whether a fork of this process works like it: a fork has only the thread that forks.

    Except on Linux, forks of processes that have loaded torch are not safe.
    """
    return sys.platform == "linux" and len(sys._current_frames()) == 1


def _limit(memory: int) -> None:
    """Limits of the whole process: bytes that it maps, bytes in a file, and its subprocesses."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    if tasks := _tasks_of_the_user():  # the limit counts them all
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        wanted = tasks + _MORE_TASKS
        most = wanted if most == resource.RLIM_INFINITY else min(most, wanted)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _tasks_of_the_user() -> int:
    tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid():
                tasks += len(os.listdir(process / "task"))
        except OSError:  # it has ended
            continue
    return tasks


def _limit_processor_time(within: float) -> None:
    """Make the worker end by itself if the gate is gone."""
    used, most = time.process_time(), resource.getrlimit(resource.RLIMIT_CPU)[1]
    wanted = int(used + within * (os.cpu_count() or 1)) + _MORE_SECONDS
    soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, most))


def _import_target(message: dict[str, Any]) -> VllmSubject:
    if message["text"] != TEXT:
        raise _Refused(
            Failure.ENVIRONMENT, "hitproof was reinstalled while it was running; run it again"
        )
    _limit(message["memory"])
    root = message["root"]
    if root is not None:
        sys.path.insert(0, root)
    gc.disable()  # there is almost no garbage, and collecting it takes a tenth of the time
    try:
        take_up(message["aliases"])
        subject = VllmSubject(frozenset(message["predates"]))
    except AliasError as error:
        raise _Refused(Failure.ENVIRONMENT, str(error)) from error
    except ModuleNotFoundError as error:
        if (error.name or "vllm").split(".")[0] != "vllm":
            raise _Refused(
                Failure.ENVIRONMENT,
                f"{sys.executable} lacks the module {error.name!r}, which the target imports; "
                f"install hitproof[target] there, or name another interpreter with --python",
            ) from error
        if error.name == "vllm" and root is None:
            raise _Refused(
                Failure.ENVIRONMENT,
                f"no vLLM is installed for {sys.executable}; install it there, or name another "
                f"interpreter with --python",
            ) from error
        raise _import_failed(error, root) from error
    except BaseException as error:
        raise _import_failed(error, root) from error
    finally:
        gc.freeze()  # what was imported stays, and is not looked through again
        gc.set_threshold(_COLLECTED_AFTER)
        gc.enable()
    found = os.path.abspath(sys.modules["vllm"].__file__ or "")
    if root is not None and not found.startswith(root + os.sep):
        raise _Refused(
            Failure.ENVIRONMENT,
            f"{sys.executable} imports vllm from {found}, not from {root}; name an interpreter "
            f"without an installed vllm with --python",
        )
    try:
        put_in_place(message["managers"], message["coordinators"])
    except OverrideError as error:
        raise _Refused(Failure.ENVIRONMENT, str(error)) from error
    subject.judge_by(message["policies"])
    return subject


def _import_failed(error: BaseException, root: str | None) -> _Refused:
    where = "the installed vllm" if root is None else f"vllm from {root}"
    reason = f"{type(error).__name__}: {error}".strip().replace("\n", " ")[:300]
    return _Refused(Failure.ENVIRONMENT, f"importing {where} failed with {reason}")


def _check(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Run one check on one configuration; with ``facts``, say what the target did, too."""
    claim, judged = message["claim"], judged_from_json(message["configuration"])
    if not message["facts"]:
        return _as_json(CHECKS[claim](subject, judged))
    result, facts = behaviour(subject, claim, judged)
    return _as_json(result) | {"facts": [fact.as_json() for fact in facts]}


def _as_json(result: CheckResult) -> dict[str, Any]:
    return {
        **picked(result, "statuses", "evidence", "paths", "states", "runs", "detail", "refuting"),
        "footprints": [result.footprints[each.signature].as_json() for each in result.evidence],
    }


def _result(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """What an operation gives; with ``branches``, which of the target's were run, too."""
    operation = _OPERATIONS[message["op"]]
    try:
        if message.get("branches"):
            return branches.measured(operation, subject, message)
        return operation(subject, message)
    except ImportError as error:
        if error.name != "coverage":
            raise
        raise _Refused(
            Failure.ENVIRONMENT,
            f"{sys.executable} lacks the module 'coverage', which measures branches; install "
            f"hitproof[branches] there, or name another interpreter with --python",
        ) from error
    except SyntaxError as error:  # the scheduler's modules are imported when they are asked for
        raise _Refused(
            Failure.ENVIRONMENT, f"importing {error.filename} failed with SyntaxError: {error}"
        ) from error


def _here(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Confirm that a copy is running."""
    del subject, message
    return {}


def _ended(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """The exit code of a copy, negative for a signal; None while it runs."""
    del subject
    number, status = os.waitpid(message["number"], os.WNOHANG)
    return {"code": os.waitstatus_to_exitcode(status) if number else None}


def _finding(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """Take a divergence to a finding; see `vllm_integration.worker.findings`."""
    return _FOUND_BY[message["by"]](subject, message)


def _policies(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """How the target behaves where releases differ, whichever policies it is judged by."""
    del message
    try:
        return {"policies": subject.as_it_behaves().policies(), "detail": ""}
    except Exception as error:
        crashes = classify(error) is FailureKind.CRASH
        detail = f"it raises {error!r:.200}" if crashes else refusal_of(error)
        return {"policies": {}, "detail": detail}


_Operation: TypeAlias = Callable[[VllmSubject, dict[str, Any]], dict[str, Any]]


def _later(module: str, name: str, without: dict[str, Any] | None = None) -> _Operation:
    """An operation of a module that no other one needs.

    ``without`` is what it gives where the module lacks a solver, besides that nothing is settled.
    """

    def operation(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
        try:
            found = import_module(f"hitproof.vllm_integration.worker.{module}")
        except ImportError as error:
            if without is None:
                raise
            lacking = f"{sys.executable} lacks the module {error.name!r}"
            return {"status": Status.INCONCLUSIVE, "detail": lacking, **without}
        answer: dict[str, Any] = getattr(found, name)(subject, message)
        return answer

    return operation


_FOUND_BY: dict[str, _Operation] = {
    "check": findings.of_evidence,
    "replay": replay.finding,
    "lockstep": lockstep.finding,
}
_OPERATIONS: dict[str, _Operation] = {
    "policies": _policies,
    "reads": reads.reads,
    "check": _check,
    "unbounded": _later("unbounded", "settled", {"outside": [], "evidence": None}),
    "equivalent": _later("equivalence", "settled", {}),
    "replay": replay.judge_history,
    "abilities": replay.abilities,
    "lockstep": lockstep.lockstep,
    "doctor": _later("doctor", "deploy"),
    "simulate": _later("simulate", "simulate"),
    "finding": _finding,
    "branches": branches.branches,
    "here": _here,
    "ended": _ended,
    "selftest": selftest.operation,
    "selftest_baseline": selftest.operation,
    "selftest_judge": selftest.operation,
    "selftest_upstream": selftest.operation,
}
