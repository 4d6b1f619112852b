"""The examples in README and the guides are what the commands print."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from docs.examples import DOCUMENTS, Example, agrees, all_examples, examples, shell_commands
from docs.source import ROOT
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.tests.conftest import Check, hitproof

GUIDES = ROOT / "docs" / "pages" / "commands"
COMMANDS = typer.main.get_group(cli.app).commands


def named(example: Example) -> str:
    return f"{example.document.name}: {example.command}"


@pytest.mark.long
@pytest.mark.release
@pytest.mark.parametrize("example", all_examples(), ids=named)
def test_an_example_is_what_is_printed(example: Example, checked: Check) -> None:
    name, *words = example.words
    printed = checked(*words).text if name == "check" else hitproof(name, *words).stdout
    assert example.shown.strip()
    assert agrees(example.shown, printed), printed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_guide(name: str) -> None:
    text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# hitproof {name}\n")
    called = [e.words for e in examples(text, GUIDES)] + list(shell_commands(text))
    assert name in {words[0] for words in called}


def test_readme_shows_a_conforming_and_a_diverging_target() -> None:
    shown = [e.shown for e in all_examples() if e.document == ROOT / "README.md"]
    assert any(": conforms" in each for each in shown)
    assert any(": diverges" in each for each in shown)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_are_not_run_have_such_options(document: Path) -> None:
    for words in shell_commands(document.read_text(encoding="utf-8")):
        assert is_known(words), words


def is_known(words: list[str]) -> bool:
    """Whether there is such a command with such options; it is not run."""
    return CliRunner().invoke(cli.app, [*words, "--help"]).exit_code == 0


# --- what is not so is noticed

SHOWN = "first\n...\nmiddle  of it\n...\nlast; 2.0 s\n"


def test_times_and_lines_that_are_left_out_may_differ() -> None:
    assert agrees("1 check; 2.0 s\n", "1  check; 31.5 s\n")
    assert agrees(SHOWN, "first\nmore\nmiddle of it\nlast; 3.0 s\n")


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "first\nlast; 2.0 s\n",
        "other\nfirst\nmiddle of it\nlast; 2.0 s\n",
        "first\nmiddle of it\nlast; 2.0 s\nmore\n",
        "first\nmiddle\nof it\nlast; 2.0 s\n",
    ],
)
def test_an_output_that_differs_is_noticed(printed: str) -> None:
    assert not agrees(SHOWN, printed)


def test_a_line_too_few_or_too_many_is_noticed() -> None:
    assert not agrees("one\ntwo\n", "one\n")
    assert not agrees("one\n", "one\ntwo\n")


def test_examples_are_found_where_they_are() -> None:
    text = "```console\n$ hitproof prove\none\n$ ls\ntwo\n$ hitproof configs --quick\n```\n"
    assert [(e.words, e.shown) for e in examples(text, Path("x.md"))] == [
        (["prove"], "one\n"),
        (["configs", "--quick"], ""),
    ]
    shell = "```sh\nx=1\n.venv/bin/hitproof check 0.33.0 \\\n  --quick  # why\n```\n"
    assert list(shell_commands(shell)) == [["check", "0.33.0", "--quick"]]


@pytest.mark.parametrize("words", [["no-such"], ["check", "0.33.0", "--no-such"]])
def test_a_command_that_is_not_there_is_noticed(words: list[str]) -> None:
    assert not is_known(words)
