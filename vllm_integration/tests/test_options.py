"""The words of arguments and options: each belongs to a parameter of a command."""

from collections.abc import Iterator
from inspect import signature
from typing import Any

from hitproof.vllm_integration.cli import app
from hitproof.vllm_integration.commands.options import TOLD


def _parameters(typer_app: Any) -> Iterator[tuple[str, str]]:
    for command in typer_app.registered_commands:
        yield from (
            (command.callback.__name__, each) for each in signature(command.callback).parameters
        )
    for group in typer_app.registered_groups:
        yield from _parameters(group.typer_instance)


def test_every_option_that_is_described_is_one_of_a_command() -> None:
    used = set(_parameters(app))
    own = {(name, each) for name in TOLD.keys() - {"shared"} for each in TOLD[name]}
    assert own <= used
    assert TOLD["shared"].keys() <= {each for _, each in used - own}
