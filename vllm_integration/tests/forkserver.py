"""Interpreters for tests that start with everything imported that their programs import.

Importing a release of vLLM takes some 7 s of processor time, of which all but one go into packages
that every release shares; the command takes most of a second. A server has those imported, and
forks for each process that is asked for. Its client stands in for the interpreter: it hands over
its arguments, environment, directory and file descriptors, waits for the process, and ends as that
does; when the client is killed, so is the session of the process. What the client cannot hand over,
it runs itself. Processes that a client starts are real ones, only their start is not; tests about
the start use the interpreter itself.

    python forkserver.py DIRECTORY PROGRAM     serves until its standard input closes
    DIRECTORY/python                           the client
"""

import array
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_LIKE = "0.33.0"
_BESIDE = ("pytest",)
"""What runs in a target's process beside the target."""
_SAME = {"PYTHONHASHSEED": "0", "PYTHONUSERBASE": os.path.expanduser("~/.local")}
"""Variables that an interpreter reads when it starts, as targets have them."""
_MOST_DESCRIPTORS = 250

_CLIENT = """\
#!{python} -SE
import array, json, os, signal, socket, sys

def here():
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])

words = sys.argv[1:]
what = words[1:] if words[:1] == ["-P"] else words
served = len(what) > 1 and what[0] in ("-c", "-m") or what != words and what and what[0][0] != "-"
if not served or any(os.environ.get(n) not in (None, v) for n, v in {same!r}.items()):
    here()
descriptors = []
for name in os.listdir("/proc/self/fd"):
    try:
        if os.get_inheritable(int(name)):
            descriptors.append(int(name))
    except OSError:
        pass
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    line.connect({address!r})
except OSError:
    here()
about = dict(words=words, environment=dict(os.environ), directory=os.getcwd(),
             descriptors=descriptors)
text = json.dumps(about).encode()
passed = array.array("i", descriptors).tobytes()
line.sendmsg([len(text).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
line.sendall(text)
for descriptor in descriptors:
    os.close(descriptor)
answer = line.makefile("rb").readline()
code = int(answer or b"1")
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


PYTHON, COMMAND = "HITPROOF_PYTHON", "HITPROOF_TEST_COMMAND"
"""Variables that name a client: the one for targets, and the one for the command."""
INTERPRETER = "HITPROOF_TEST_PYTHON"
"""The variable that names the interpreter for targets, without a fork server."""


class Program(StrEnum):
    """What is imported beforehand."""

    RELEASE = "release"
    """What a release imports of other packages."""
    COMMAND = "command"
    """The command ``hitproof``."""


def start(directory: Path, program: Program, python: str) -> "subprocess.Popen[bytes]":
    """Start a server under ``python``; its client is ``directory/python``."""
    client = directory / "python"
    text = _CLIENT.format(python=python, same=_SAME, address=str(directory / "socket"))
    client.write_text(text)
    client.chmod(0o755)
    return subprocess.Popen(
        [python, "-P", __file__, str(directory), program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | _SAME | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )


def stop(server: "subprocess.Popen[bytes]") -> None:
    """End a server, and what its clients asked for."""
    server.communicate()


def serve(directory: Path, program: Program) -> None:
    """Serve until the standard input closes."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(directory / "socket"))
    listening.listen(100)
    waked, wake = socket.socketpair()
    for end in (waked, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    ready = False
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        selector.register(waked, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                source: Any = key.fileobj
                if source is sys.stdin:
                    _kill(running)
                    return
                if source is waked:
                    waked.recv(4096)
                    _reap(running, selector)
                elif source is listening:
                    line, _ = listening.accept()
                    if not ready:
                        _PRELOAD[program]()
                        gc.collect()
                        gc.freeze()  # it is shared with the forks
                        ready = True
                    about, descriptors = _received(line)
                    process = os.fork()
                    if process == 0:
                        selector.close()
                        for inherited in (listening, waked, wake, line, *running.values()):
                            inherited.close()
                        _become(about, descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    running[process] = line
                    selector.register(line, selectors.EVENT_READ)
                else:  # the client is gone
                    selector.unregister(source)
                    _kill(process for process, line in running.items() if line is source)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)


def _reap(running: dict[int, socket.socket], selector: selectors.BaseSelector) -> None:
    """Tell the clients of ended processes how those ended."""
    while running:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process == 0:
            return
        line = running.pop(process, None)
        if line is None:
            continue
        with contextlib.suppress(KeyError):
            selector.unregister(line)
        with contextlib.suppress(OSError):
            line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        line.close()


def _received(line: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What a client asks for, and its file descriptors, under numbers of ours."""
    size = array.array("i")
    head, ancillary, _, _ = line.recvmsg(
        4, socket.CMSG_SPACE(_MOST_DESCRIPTORS * size.itemsize), socket.MSG_WAITALL
    )
    for _, _, data in ancillary:
        size.frombytes(data[: len(data) - len(data) % size.itemsize])
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += line.recv(1 << 20)
    return json.loads(text), list(size)


def _import_command() -> None:
    from hitproof.vllm_integration import cli

    assert cli.app


def _import_beside_a_release() -> None:
    from hitproof.vllm_integration.targets.resolving import resolve

    for name in _BESIDE:
        importlib.import_module(name)
    root = str(resolve(_LIKE).root)
    code = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "import vllm.v1.core.kv_cache_manager, vllm.v1.core.kv_cache_coordinator\n"
        "print('MODULES', *(m for m in sys.modules if m.partition('.')[0] != 'vllm'))"
    )
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    for name in listed.partition("MODULES")[2].split():
        with contextlib.suppress(Exception):  # some are importable from their package only
            importlib.import_module(name)
    importlib.import_module("hitproof.vllm_integration.worker.main")


_PRELOAD = {Program.COMMAND: _import_command, Program.RELEASE: _import_beside_a_release}


def _become(about: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Run what a client asked for in this process, which is a fork."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(about["directory"])
    os.environ.clear()
    os.environ.update(about["environment"])
    apart = _above(descriptors, about["descriptors"])
    wanted = dict(zip(about["descriptors"], apart, strict=True))
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number not in apart:
            with contextlib.suppress(OSError):
                os.close(number)
    for number, descriptor in wanted.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    tempfile.tempdir = None
    words = about["words"]
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if words[0] == "-P":
        del words[0]
    else:
        path.insert(0, "" if words[0] == "-c" else os.getcwd())
    sys.path[:0] = path
    main = sys.modules["__main__"] = ModuleType("__main__")
    code = 0
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), vars(main))
        elif words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def _above(descriptors: list[int], taken: list[int]) -> list[int]:
    """The descriptors, under numbers that none of ``taken`` is."""
    first = max([*taken, *descriptors, 99]) + 1
    return [fcntl.fcntl(descriptor, fcntl.F_DUPFD, first) for descriptor in descriptors]


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Program(sys.argv[2]))
