"""``hitproof configs``."""

from hitproof.vllm_integration.commands.options import Format
from hitproof.vllm_integration.commands.running import show, wanted_profile
from hitproof.vllm_integration.reports.configs import configs_json, print_configs


def configs(quick: bool = False, thorough: bool = False, output: Format = Format.TEXT) -> None:
    """List what `check` covers: the groups and layouts it generates, and those of real models."""
    profile = wanted_profile(quick, thorough, output)
    show(output, lambda: configs_json(profile), lambda console: print_configs(profile, console))
