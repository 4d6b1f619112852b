"""Targets that do harm while they are imported: the gate stands, and says what became of it."""

import os
import resource
from pathlib import Path

import pytest

from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration.sandbox import driver
from hitproof.vllm_integration.tests.conftest import Judge, ended, fake_checkout, hitproof

pytestmark = pytest.mark.usefixtures("real_interpreter")

FORGED = r"""b'{"ok": true, "python": "3.12", "token": ""}\n'"""


def test_a_clean_target_gets_as_far_as_the_import(judge: Judge, tmp_path: Path) -> None:
    """What the others are compared with."""
    code, report = judge(fake_checkout(tmp_path / "checkout", "raise RuntimeError('as told')"))
    assert (code, report["verdict"]) == (2, "usage")
    assert report["error"].endswith("failed with RuntimeError: as told")


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("print('{\"ok\": true}', flush=True)", "True"),
        (f"told = os.write(1, {FORGED})", "44"),
        (f"told = os.write(2, {FORGED})", "44"),
        ("os.chdir('/'); told = os.getcwd()", "/"),
        ("os.closerange(0, 10); told = os.open('/', 0)", "0"),
        ("shutil.rmtree(os.path.dirname(os.getcwd())); told = os.listdir('/proc/self/cwd')", "[]"),
        ("os.remove(__file__); told = os.path.exists(__file__)", "False"),
        ("atexit.register(os._exit, 0); told = atexit._ncallbacks() > 0", "True"),
        ("sys.excepthook = told = lambda *_: os._exit(0)", "<function"),
        ("sys.settrace(lambda *_: None); told = sys.gettrace() is not None", "True"),
        ("sys.stdout = sys.stderr = told = None", "None"),
        ("time.time = time.monotonic = lambda: 7; told = time.time()", "7"),
        ("os.write = os.read = os.getpid = told = None", "None"),
        ("threading.Thread = threading.Lock = told = None", "None"),
        ("signal.signal(signal.SIGTERM, lambda *_: None); told = 1", "1"),
        ("told = os.fork() and 'forked'", "forked"),
        ("threading.Thread(target=time.sleep, args=(60,)).start()", "True"),
    ],
)
def test_an_act_changes_nothing(act: str, told: str, judge: Judge, tmp_path: Path) -> None:
    """The act is done, and what the target says then still arrives."""
    text = (
        "import atexit, os, shutil, signal, sys, threading, time\n"
        f"told = True\n{act}\nraise RuntimeError(f'told {{told}}')\n"
    )
    code, report = judge(fake_checkout(tmp_path / "checkout", text))
    assert (code, report["verdict"]) == (2, "usage")
    assert f"RuntimeError: told {told}" in report["error"]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        ("os._exit(0)", "the worker ended with exit code 0"),
        ("os.abort()", "the worker was killed by signal 6"),
        ("sys.exit(0)", "failed with SystemExit: 0"),
        ("raise KeyboardInterrupt", "failed with KeyboardInterrupt"),
        ("raise type('Odd', (BaseException,), {})('odd')", "failed with Odd: odd"),
        ("x = [0] * 10**12", "failed with MemoryError"),
        ("x = [bytes(1 << 28) for _ in range(100)]", "failed with MemoryError"),
        ("open('x', 'wb').truncate(10 << 30)", "failed with OSError: [Errno 27] File too large"),
        ("os.closerange(0, 5000)", "the worker closed the connection|the worker ended"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the worker was killed by signal 9"),
        (
            f"[os.write(n, {FORGED}) for n in writable()]; raise RuntimeError",
            "its answer cannot be read (it ",
        ),
        ("import json; json.JSONEncoder.encode = lambda *_: '{}'", "its answer cannot be read"),
        (
            "[os.write(n, b'x' * 100) for n in writable()]; os._exit(0)",
            "the worker ended with exit code 0",
        ),
    ],
)
def test_an_act_that_ends_the_import(act: str, sentence: str, judge: Judge, tmp_path: Path) -> None:
    text = (
        "import os, signal, sys\n"
        "def writable():\n"
        "    for n in map(int, os.listdir('/proc/self/fd')):\n"
        "        try: os.write(n, b''); yield n\n"
        "        except OSError: pass\n"
        f"{act}\n"
    )
    code, report = judge("--memory", "8", fake_checkout(tmp_path / "checkout", text))
    assert (code, report["verdict"]) == (2, "usage")
    assert any(each in report["error"] for each in sentence.split("|")), report["error"]


@pytest.mark.long(keep=1)
@cases("act, changed")
def test_a_target_that_changes_its_judge(
    act: str, changed: str, judge: Judge, tmp_path: Path
) -> None:
    """The last of them shows the limit: who runs in the same process can switch the seal off."""
    text = f"{act}\nraise RuntimeError('done')\n"
    code, report = judge(fake_checkout(tmp_path / "checkout", text))
    assert (code, report["verdict"]) == (2, "usage")
    told = f"the target changes {changed}, with which it is judged"
    assert (told if changed else "RuntimeError: done") in report["error"]


def test_a_target_that_loops(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_IMPORT_SECONDS", 5.0)
    text = "print('here', flush=True)\nwhile True: pass\n"
    code, report = judge(fake_checkout(tmp_path / "checkout", text))
    assert (code, report["verdict"]) == (2, "usage")
    assert (
        "the worker did not answer within 5 seconds; --timeout allows more (here)"
        in report["error"]
    )


STAYS = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600); os._exit(0)"


@pytest.mark.long(keep=1)
@pytest.mark.parametrize(
    ("fork", "count"),
    [
        (f"if not os.fork(): note(); {STAYS}", 1),
        (f"if not os.fork(): os.setsid(); note(); {STAYS}", 1),
        (
            "if not os.fork():\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
            "    note(); " + STAYS,
            1,
        ),
        (f"for _ in range(50):\n    if not os.fork(): note(); {STAYS}", 50),
        (f"for _ in range(5): os.fork()\nif os.getpid() != first: note(); {STAYS}", 31),
    ],
    ids=["child", "session", "daemon", "many", "bomb"],
)
def test_what_a_target_starts_ends_with_it(
    fork: str, count: int, judge: Judge, tmp_path: Path
) -> None:
    """The copies keep the pipes open, and the target's own end must be noticed all the same."""
    started = tmp_path / "started"
    started.mkdir()
    text = (
        "import os, signal, time\nfirst = os.getpid()\n"
        f"def note(): open(f'{started}/{{os.getpid()}}', 'w')\n{fork}\n"
        f"while len(os.listdir('{started}')) < {count}: time.sleep(0.01)\nos._exit(5)\n"
    )
    code, report = judge(fake_checkout(tmp_path / "checkout", text))
    assert (code, report["verdict"]) == (2, "usage")
    assert "the worker ended with exit code 5" in report["error"]
    processes = [int(path.name) for path in started.iterdir()]
    assert len(processes) == count
    assert all(ended(process) for process in processes)


def test_what_a_target_may_know_and_take(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITPROOF_TEST_SECRET", "hidden")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    out = tmp_path / "out"
    text = (
        "import os, resource as r\n"
        "limits = [r.getrlimit(getattr(r, f'RLIMIT_{n}'))[0] for n in "
        "('AS', 'FSIZE', 'CPU', 'CORE', 'NPROC')]\n"
        f"open('{out}', 'w').write(repr((dict(os.environ), os.getcwd(), limits)))\n"
    )
    code, _ = judge("--memory", "8", fake_checkout(tmp_path / "checkout", text))
    assert code == 2
    environment, directory, limits = eval(out.read_text())
    assert not any("hidden" in value for value in environment.values())
    assert set(environment) <= {
        "PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUSERBASE",
        "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "HOME", "TMPDIR", "HF_HUB_OFFLINE",
        "VLLM_NO_USAGE_STATS", "VLLM_LOGGING_LEVEL", "CUDA_VISIBLE_DEVICES", "HITPROOF_PROCESS",
    }  # fmt: skip
    assert directory == environment["HOME"] == environment["TMPDIR"]
    assert "hitproof-" in directory
    assert not os.path.exists(os.path.dirname(directory))
    memory, file, processor, core, tasks = limits
    assert (memory, file, core) == (8 << 30, 1 << 28, 0)
    assert resource.RLIM_INFINITY not in (processor, tasks)


def test_a_target_that_ends_the_gate_gets_no_pass(tmp_path: Path) -> None:
    """A signal from a process of the same user cannot be kept off."""
    text = "import os, signal; os.kill(os.getppid(), signal.SIGTERM)"
    assert hitproof("check", fake_checkout(tmp_path, text)).returncode not in (0, 1)
