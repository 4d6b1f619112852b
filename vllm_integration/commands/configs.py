"""``hitproof configs``."""

from typing import Annotated

import typer

from conformance.configurations import Profile
from vllm_integration.commands.options import Format, Output
from vllm_integration.commands.running import show
from vllm_integration.configs_rendering import configs_json, print_configs


def configs(
    quick: Annotated[bool, typer.Option("--quick", help="What `check --quick` covers.")] = False,
    output: Output = Format.TEXT,
) -> None:
    """List what `check` covers: the groups and layouts it generates, and those of real models."""
    profile = Profile.QUICK if quick else Profile.DEFAULT
    show(output, lambda: configs_json(profile), lambda console: print_configs(profile, console))
