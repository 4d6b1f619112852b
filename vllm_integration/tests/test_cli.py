"""The command: its help and its exit codes."""

import itertools
import json
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_group
from typer.testing import CliRunner

from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.errors import ReplayError
from hitproof.proofs.prover import ProofResult
from hitproof.spec.claims import Status
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.commands.options import EXIT_CODES
from hitproof.vllm_integration.commands.running import jobs, phases, progress
from hitproof.vllm_integration.sandbox.driver import InternalFailure
from hitproof.vllm_integration.sandbox.processes import MARK
from hitproof.vllm_integration.tests.conftest import hitproof

COMMANDS = sorted(get_group(cli.app).commands)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_documents_the_exit_codes_and_says_each_default_once(command: list[str]) -> None:
    result = CliRunner().invoke(cli.app, [*command, "--help"])
    assert result.exit_code == 0
    assert " ".join(EXIT_CODES.split()) in " ".join(result.output.split())
    assert [each for each in result.output.split("\n  -") if each.count("[default") > 1] == []


@pytest.mark.parametrize("error", [InternalError("made to fail"), InternalFailure("made to fail")])
def test_an_internal_error_exits_4(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("hitproof.vllm_integration.commands.check.resolve", fail)
    monkeypatch.setattr("sys.argv", ["hitproof", "check", "0.33.0"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 4
    assert "defect in hitproof" in capsys.readouterr().err


_MAIN = [sys.executable, "-c", "from hitproof.vllm_integration.cli import main; main()"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("arguments", [["policies"], ["configs", "--quick", "--format", "json"]])
def test_output_that_cannot_be_written_is_the_environments_fault(arguments: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [*_MAIN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 2
    assert result.stderr.startswith("hitproof: No space left on device; ")
    assert result.stderr.count("\n") == 1


def test_every_environment_variable_is_documented() -> None:
    package = Path(cli.__file__).resolve().parent
    read = {
        name
        for path in (*package.rglob("*.py"), *package.glob("commands/*.toml"))
        if "tests" not in path.relative_to(package).parts
        for name in re.findall(r"HITPROOF_[A-Z_]*[A-Z]", path.read_text("utf-8"))
    }
    page = package.parent / "docs/pages/commands/targets.md"
    documented = set(re.findall(r"^\| `(HITPROOF_\w+)` \|", page.read_text("utf-8"), re.MULTILINE))
    assert documented == read - {MARK}


def test_progress_has_phase_count_elapsed_time_and_an_estimate() -> None:
    printed = StringIO()
    console = Console(file=printed, force_terminal=True, width=120)
    clock = itertools.count()
    with progress("judging", console, lambda: float(next(clock))) as done:
        for number in range(5):
            done(number, 4)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.getvalue()).splitlines()
    assert not [line for line in lines if "?" in line or "0/0" in line]
    for wanted in (
        r"judging: import .* \d+:\d\d:\d\d elapsed",
        r"judging .* [23]/4, \d+:\d\d:\d\d elapsed, about \d+:\d\d:\d\d left",
        r"judging: findings .* 4/4, \d+:\d\d:\d\d elapsed",
    ):
        assert [line for line in lines if re.match(wanted, line)], wanted


def test_progress_of_jobs_is_a_line_a_minute_where_there_is_no_terminal() -> None:
    printed, now = StringIO(), 0.0
    with jobs("campaign", Console(file=printed, width=20), lambda: now) as done:
        for now in (1.0, 30.0, 61.0, 90.0, 119.0, 130.0):
            done(int(now), 200, {"known": 3})
    first, second = printed.getvalue().splitlines()
    assert first.startswith("campaign: 60.0 a minute, 3 known, 61/200, 0:01:01 elapsed, about ")
    assert re.match(r"campaign: 60.0 a minute, 3 known, 130/200, 0:02:10 elapsed", second)


def test_phases_are_shown_one_at_a_time() -> None:
    printed = StringIO()
    console = Console(file=printed, force_terminal=True, width=120)
    clock = itertools.count()
    with phases(console, lambda: float(next(clock))) as done:
        for phase in ("hashes", "vLLM 0.33.0"):
            for number in range(5):
                done(phase, number, 4)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.getvalue()).splitlines()
    for wanted in ("hashes", "vLLM 0.33.0"):
        shown = rf"{wanted} .* [23]/4, \d+:\d\d:\d\d elapsed, about \d+:\d\d:\d\d left"
        assert [line for line in lines if re.match(shown, line)], wanted
    assert lines.index(next(x for x in lines if x.startswith("vLLM"))) > max(
        at for at, line in enumerate(lines) if line.startswith("hashes")
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_in_one_sentence(number: signal.Signals) -> None:
    wait = "import signal, time; from hitproof.proofs import prover\n"
    wait += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in background
    wait += "def waiting(*_, **__):\n    print('here', flush=True); time.sleep(60)\n"
    wait += "prover.prove_in_subprocess = waiting\n" + _MAIN[2]
    with subprocess.Popen(
        [sys.executable, "-c", wait, "prove"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "here\n"
        running.send_signal(number)
        _, said = running.communicate()
    assert running.returncode == 128 + number
    assert said == "hitproof: interrupted, so there is no verdict\n"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ([ProofResult("c", "o", Status.PROVED)], 0),
        ([ProofResult("c", "o", Status.PROVED), ProofResult("c", "p", Status.REFUTED, "why")], 1),
        ([ProofResult("c", "o", Status.INCONCLUSIVE, "gave up")], 3),
        ([], 3),
        (ReplayError("made to fail"), 4),
    ],
)
def test_prove_exit_codes(
    outcome: list[ProofResult] | Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(*_: object, **__: object) -> list[ProofResult]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("hitproof.proofs.prover.prove_in_subprocess", prove)
    result = CliRunner().invoke(cli.app, ["prove"])
    assert result.exit_code == code, result.output


@pytest.mark.long
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_closed_pipe_does_not_change_the_exit_code(output: str) -> None:
    command = "from hitproof.vllm_integration.cli import main; main()"
    claim = "mask_keeps_only_reachable_blocks"
    process = subprocess.Popen(
        [sys.executable, "-c", command, "prove", "--format", output, claim],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate()
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("profile", [["--quick"], [], ["--thorough"]])
def test_configs_lists_models_and_misses_no_pair(profile: list[str]) -> None:
    result = hitproof("configs", "--format", "json", *profile)
    assert result.returncode == 0
    listed = json.loads(result.stdout)
    assert listed["coverage"]["missing"] == []
    for model in listed["models"]:
        assert model["origin"]
        names = [judged["model"] for judged in model["judged"]]
        assert any(name.endswith("+ EAGLE") for name in names) or "Llama-4" in model["name"]
        assert any(not name.endswith("+ EAGLE") for name in names)
    text = hitproof("configs", *profile).stdout
    assert all(model["name"] in text for model in listed["models"])
    pairs = listed["coverage"]["pairs"]
    assert f"{pairs} of {pairs} possible pairs" in text


def test_policies_are_listed_without_a_target() -> None:
    result = hitproof("policies", "--format", "json")
    assert result.returncode == 0
    listed = {policy["policy"]: policy["values"] for policy in json.loads(result.stdout)}
    assert listed == {
        name: [{"value": era.value, "releases": era.releases} for era in policy.eras]
        for name, policy in POLICIES.items()
    }
    table = hitproof("policies").stdout
    assert all(name in table for name in POLICIES)


def at_the_prompt(**environment: str) -> str:
    """What the command answers to a shell."""
    result = CliRunner().invoke(cli.app, [], prog_name="hitproof", env=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def completed(*words: str) -> list[str]:
    """What the shell offers for the last word."""
    line, number = " ".join(("hitproof", *words)), str(len(words))
    return at_the_prompt(
        COMP_WORDS=line, COMP_CWORD=number, _HITPROOF_COMPLETE="complete_bash"
    ).split()


def test_the_shell_completes_commands_options_and_names() -> None:
    assert completed("ch") == ["check"]
    assert completed("check", "--last") == ["--last-failed"]
    assert completed("check", ".", "--only", "eagle_") == ["eagle_needs_tail_plus_one"]
    assert completed("check", ".", "--only", "nothing-like-it") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    assert "_HITPROOF_COMPLETE" in at_the_prompt(_HITPROOF_COMPLETE=f"source_{shell}")
