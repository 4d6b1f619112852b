"""vLLM's own tests with fixes and without them: which pass before and fail after."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hitproof.vllm_integration.fixes.patches import RELEASE, Fix, FixError
from hitproof.vllm_integration.fixes.verifying import patched
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.sandbox.processes import end, environment
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict

FOLDERS = ("tests/v1/core", "tests/v1/kv_connector/unit", "tests/v1/simple_kv_offload")
"""Where vLLM has tests of managers, schedulers, events and connectors."""
_OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "torch_dtype": "float16",
}
"""What schedulers in vLLM's tests read of facebook/opt-125m; the other fields have defaults."""
_OPTIONS = (
    *("-q", "--noconftest", "-p", "no:cacheprovider", "-p", "recorder"),
    *("--continue-on-collection-errors", "-W", "ignore", "--rootdir=."),
)
_NAMED = re.compile(r"`(test_\w+)`")


@dataclass(frozen=True)
class Suites:
    """What became of vLLM's own tests.

    Attributes:
        passed: how many pass without the fixes.
        failing: those of them that fail with the fixes, each with the numbers of the fixes that say
            that this test expects a fault.
        unmet: tests that a fix says expect its fault, and that do not fail with it.
    """

    passed: int
    failing: dict[str, tuple[int, ...]]
    unmet: dict[str, int]

    @property
    def verdict(self) -> Verdict:
        """Conforms where exactly those tests fail that the fixes name."""
        if self.unmet or not all(self.failing.values()):
            return Verdict.DIVERGES
        return Verdict.CONFORMS if self.passed else Verdict.INCONCLUSIVE


def pinned(fix: Fix) -> tuple[str, ...]:
    """The tests of vLLM that expect the fault, as the fix says, by the names of their functions."""
    return tuple(_NAMED.findall(fix.pinned))


def suites(
    release: Path, fixes: Sequence[Fix], limits: Limits, progress: Callable[[int, int], None]
) -> Suites:
    """Run vLLM's own tests on the ``release``, whose root is given, and on a copy with fixes.

    Raises `FixError` and `EnvironmentFailure`.
    """
    files = [file for folder in FOLDERS for file in sorted((release / folder).rglob("test_*.py"))]
    if not files:
        raise FixError(
            f"vLLM {RELEASE} is cached without its tests; delete {release} and try again"
        )
    names = [file.relative_to(release).as_posix() for file in files]
    with patched(release, fixes) as tree:
        before = _passing(release, names, limits, lambda n: progress(n, 2 * len(names)))
        there = sorted({name.partition("::")[0] for name in before})
        first = 2 * len(names) - len(there)
        after = _passing(tree, there, limits, lambda n: progress(first + n, 2 * len(names)))
        # What fails once and passes alone says nothing of the fixes.
        failing = sorted(before - after)
        again = outcomes(tree, failing, limits) if failing else {}
    return compared(fixes, before, after.union(name for name in again if again[name]))


def compared(fixes: Sequence[Fix], before: Collection[str], after: Collection[str]) -> Suites:
    """The tests that pass before the fixes and not after, beside those that the fixes name."""
    failing = sorted({*before}.difference(after))
    passing = [test for test in sorted(before) if test not in failing]
    functions = {*map(_function, failing)}
    return Suites(
        len(before),
        {
            each: tuple(fix.number for fix in fixes if _function(each) in pinned(fix))
            for each in failing
        },
        {
            _function(each): fix.number
            for each in passing
            for fix in fixes
            if _function(each) in {*pinned(fix)} - functions
            and each.partition("::")[0] not in fix.paths  # which changes what it expects
        },
    )


def _function(test: str) -> str:
    return test.rpartition("::")[2].partition("[")[0]


def _passing(
    root: Path, names: Sequence[str], limits: Limits, progress: Callable[[int], None]
) -> set[str]:
    """The tests in these files that pass."""
    shares = [names[number :: limits.jobs] for number in range(min(limits.jobs, len(names)))]
    found, done = set[str](), 0
    with ThreadPoolExecutor(limits.jobs) as pool:
        ended = pool.map(lambda share: outcomes(root, share, limits), shares)
        for share, each in zip(shares, ended, strict=True):
            found.update(name for name, passes in each.items() if passes)
            progress(done := done + len(share))
    return found


def outcomes(root: Path, names: Sequence[str], limits: Limits) -> dict[str, bool]:
    """Whether each of vLLM's own tests passes that is in these files, or has one of these names.

    They run on the vLLM at ``root``, on the CPU and offline, without ``conftest.py``. What ends the
    process, or does not end in time, does not pass. Raises `EnvironmentFailure`.
    """
    with tempfile.TemporaryDirectory(prefix="hitproof-fixes-") as place:
        scratch = Path(place)
        (scratch / "plugins").mkdir()
        shutil.copy(Path(__file__).with_name("recorder.py"), scratch / "plugins")
        _write_model(scratch / "hub/models--facebook--opt-125m")
        told = scratch / "outcomes"
        around = environment(Target(str(root), root, RELEASE), scratch) | {
            "PYTHONPATH": f"{root}:{scratch / 'plugins'}",
            "HF_HUB_CACHE": str(scratch / "hub"),
            "RECORDER_OUTCOMES": str(told),
            "RECORDER_SECONDS": str(int(limits.timeout)),
        }
        told.touch()
        while True:
            begun = _with_word("begins", told)
            process = subprocess.Popen(
                [limits.interpreter, "-m", "pytest", *_OPTIONS]
                + [f"--deselect={name}" for name in begun]
                + [*names],
                cwd=root,
                env=around,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                process.wait()
            finally:
                end(process, around)
            tests = _with_word("begins", told)
            if _with_word("ends", told) or len(tests) == len(begun):
                break
        passed, failed, skipped = (_with_word(w, told) for w in ("passed", "failed", "skipped"))
    return {name: name in passed - failed for name in sorted(tests - skipped)}


def _with_word(word: str, told: Path) -> set[str]:
    lines = (line.partition(" ") for line in told.read_text("utf-8").splitlines())
    return {name for told, _, name in lines if told == word}


def _write_model(model: Path) -> None:
    """Have the configuration of the model of vLLM's tests found, offline."""
    (model / "snapshots/only").mkdir(parents=True)
    (model / "snapshots/only/config.json").write_text(json.dumps(_OPT))
    (model / "refs").mkdir()
    (model / "refs/main").write_text("only")
