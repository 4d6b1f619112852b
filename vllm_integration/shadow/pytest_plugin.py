"""The shadow as a plugin of pytest: a test suite that uses ``KVCacheManager`` checks conformance.

``-p hitproof.vllm_integration.shadow.pytest_plugin`` switches it on, or ``--hitproof-shadow`` where
hitproof is installed (then pytest finds the plugin by its entry point, and it is off by default).
Every manager that a test makes is judged by the spec after every call; a divergence that the ledger
does not have fails the test that ran, with the finding's text. At the end the terminal shows what
was judged, and what was not and why.

A run in which nothing was judged fails: a shadow that saw nothing proves nothing.
``--no-hitproof-shadow-require`` allows it, for a suite of which only parts use managers.
"""

import json
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hitproof.vllm_integration.shadow.session import Session

_NAME = "hitproof.vllm_integration.shadow.pytest_plugin"
_WORKER = "hitproof_shadow"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("hitproof", "hitproof: vLLM's prefix cache judged while tests run")
    group.addoption(
        "--hitproof-shadow",
        action="store_true",
        help=f"Judge every KVCacheManager; implied by -p {_NAME}.",
    )
    group.addoption(
        "--no-hitproof-shadow-require",
        action="store_false",
        default=True,
        dest="hitproof_shadow_require",
        help="Do not fail if nothing was judged.",
    )
    group.addoption(
        "--hitproof-ledger",
        type=Path,
        action="append",
        metavar="FILE",
        help="A ledger of known divergences; repeatable. [default: hitproof's own]",
    )
    group.addoption(
        "--hitproof-policy",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Override a policy of the release; repeatable.",
    )
    group.addoption(
        "--hitproof-release",
        metavar="RELEASE",
        help="Baseline release of vLLM. [default: its own, or the one it descends from]",
    )
    group.addoption(
        "--hitproof-alias",
        action="append",
        default=[],
        metavar="NEW=OLD",
        help="vLLM has renamed the function, attribute or parameter OLD to NEW; repeatable.",
    )
    group.addoption(
        "--hitproof-record",
        type=Path,
        metavar="FILE",
        help="Record the calls of each manager as histories (JSON lines) for hitproof replay; with "
        "pytest-xdist, one file per worker.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start when asked to."""
    wanted = config.getoption("--hitproof-shadow") or config.getoption("--hitproof-record")
    if not (wanted or _NAME in config.known_args_namespace.plugins):
        return
    if config.pluginmanager.has_plugin("hitproof_shadow_run"):
        return
    from hitproof.vllm_integration.shadow.session import Session, SessionError

    try:
        session = Session(
            ledgers=config.getoption("--hitproof-ledger"),
            policies=config.getoption("--hitproof-policy"),
            record=_record_of(config),
            release=config.getoption("--hitproof-release"),
            aliases=config.getoption("--hitproof-alias"),
        )
    except SessionError as error:
        raise pytest.UsageError(f"hitproof: {error}") from error
    config.pluginmanager.register(_Run(config, session), "hitproof_shadow_run")


def _record_of(config: pytest.Config) -> Path | None:
    """Where this process records: workers of pytest-xdist have a file of their own each."""
    record: Path | None = config.getoption("--hitproof-record")
    if record is None or config.getoption("numprocesses", default=None):
        return None
    worker = getattr(config, "workerinput", {}).get("workerid")
    return record if worker is None else record.with_name(f"{record.stem}-{worker}{record.suffix}")


class _Run:
    """The plugin at work."""

    def __init__(self, config: pytest.Config, session: "Session") -> None:
        self._config = config
        self._session = session
        self._is_worker = hasattr(config, "workerinput")
        # What was found and not reported yet, by signature: the first, and how often.
        self._found: dict[Any, tuple[Any, int]] = {}
        self._errors = 0
        session.report.on_new = self._note

    def _note(self, finding: Any) -> None:
        first, times = self._found.get(finding.signature, (finding, 0))
        self._found[finding.signature] = first, times + 1

    # --- each test ---------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, None]:
        """Findings in fixtures count for the test."""
        self._judge((yield))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, None]:
        """Fail the test that has findings."""
        self._judge((yield))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, None]:
        """The same for what fixtures do afterwards."""
        self._judge((yield))

    def _judge(self, outcome: Any) -> None:
        report = self._session.report
        texts = [
            finding.text() + (f"\n  {times} times in this test" if times > 1 else "")
            for finding, times in self._found.values()
        ]
        self._found.clear()
        if report.errors.total() > self._errors:
            self._errors = report.errors.total()
            texts.append(f"defect in hitproof, please report it: {list(report.errors)[-1]}")
        if not texts:
            return
        error = outcome.excinfo[1] if outcome.excinfo else None
        text = "hitproof: " + "\n".join(texts)
        if error is None or isinstance(error, pytest.skip.Exception):
            outcome.force_exception(pytest.fail.Exception(text, pytrace=False))
        else:
            error.add_note(text)

    # --- the end -----------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """New findings fail the run, also where a test was expected to fail; so does no judging."""
        self._session.close()
        if self._is_worker:
            counts = json.dumps(self._session.report.as_json())
            session.config.workeroutput[_WORKER] = counts  # type: ignore[attr-defined]
            return
        report = self._session.report
        wrong = bool(report.num_new) or bool(report.errors) or self._saw_nothing()
        if wrong and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist is done."""
        counts = getattr(node, "workeroutput", {}).get(_WORKER)
        if counts is not None:
            self._session.report.merge(json.loads(counts))

    def _saw_nothing(self) -> bool:
        required = self._config.getoption("hitproof_shadow_require")
        return required and not self._session.report.operations + self._session.report.lookups

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What was judged, and what was not."""
        terminalreporter.section(f"hitproof shadow of vLLM {self._session.version or 'unknown'}")
        for line in self._session.lines():
            terminalreporter.write_line(line)
        for finding, _ in self._found.values():  # after the last test
            terminalreporter.write_line(finding.text())
        if self._saw_nothing():
            terminalreporter.write_line(
                "this fails the run; --no-hitproof-shadow-require allows it"
            )
