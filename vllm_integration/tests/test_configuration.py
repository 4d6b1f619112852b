"""The configuration file: what it may have, when it applies, and what goes before it."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from hitproof.conformance.tests.editing import cases
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.commands.configuration import (
    FILE,
    KEYS,
    ConfigurationError,
    ConfiguredCommand,
    find,
    options,
)

app = typer.Typer(add_completion=False)


@app.callback()
def _main() -> None: ...


@app.command(cls=ConfiguredCommand)
def shown(
    target: str,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    thorough: Annotated[bool, typer.Option("--thorough")] = False,
    python: Annotated[str, typer.Option(envvar="HITPROOF_PYTHON")] = "own",
    policy: Annotated[list[str] | None, typer.Option()] = None,
    timeout: float = 60.0,
) -> None:
    typer.echo(f"{target} {quick} {thorough} {python} {policy} {timeout}")


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, ["shown", *arguments]).output.strip()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HITPROOF_PYTHON", raising=False)
    below = tmp_path / "vllm" / "v1"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    (tmp_path / FILE).write_text(
        'profile = "quick"\npython = "/x/python"\ntimeout = 5\nstrict = true\n'
        '[policies]\njunctions = "kept"\n'
    )
    return tmp_path / FILE


def test_it_fills_in_what_the_command_has(written: Path) -> None:
    assert find(Path.cwd()) == written
    assert run(".") == ". True False /x/python ['junctions=kept'] 5.0"


def test_the_command_line_and_the_environment_go_before_it(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert written.is_file()
    monkeypatch.setenv("HITPROOF_PYTHON", "/y/python")
    given = run(".", "--thorough", "--timeout", "7", "--policy", "junctions=dropped")
    assert given == ". False True /y/python ['junctions=dropped'] 7.0"


def test_it_is_for_checkouts_and_not_for_releases(written: Path) -> None:
    assert written.is_file()
    assert run("0.33.0") == "0.33.0 False False own None 60.0"
    assert run("installed").startswith("installed True")


def test_a_project_file_counts_if_it_has_the_table(written: Path) -> None:
    project = Path("pyproject.toml")
    project.write_text("[tool.other]\nx = 1\n")
    assert find(Path.cwd()) == written
    project.write_text('[tool.hitproof]\nledger = "known/ledger.toml"\n')
    found = find(Path.cwd())
    assert found == project.absolute()
    assert options(found) == {"ledger": Path.cwd() / "known" / "ledger.toml"}


def test_what_is_above_a_repository_is_not_looked_at(written: Path) -> None:
    repository = written.parent / "vllm"
    (repository / ".git").mkdir()
    assert find(Path.cwd()) is None
    (repository / FILE).touch()
    assert find(Path.cwd()) == repository / FILE


def test_without_a_file_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(".").startswith(". False False")


@cases("text, sentence")
def test_what_a_file_may_not_have(text: str, sentence: str, written: Path) -> None:
    written.write_text(text)
    with pytest.raises(ConfigurationError, match=sentence):
        options(written)
    result = CliRunner().invoke(cli.app, ["check", "."])
    assert result.exit_code == 2
    assert "hitproof: " in result.output
    assert "Traceback" not in result.output


def test_each_option_is_one_of_some_command() -> None:
    """No key is without effect: the commands have a parameter of each name."""
    group = typer.main.get_command(cli.app)
    parameters = {each.name for command in group.commands.values() for each in command.params}  # type: ignore[attr-defined]  # a group has them
    values = {"profile": "quick", "policies": {}, "ledger": "x"}
    for name, (_, given) in KEYS.items():
        assert given(values.get(name, ""), Path()).keys() <= parameters
