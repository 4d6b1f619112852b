"""``hitproof configs``."""

from functools import partial

from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Scope
from hitproof.vllm_integration.reports.configs import configs_json, print_configs
from hitproof.vllm_integration.verdict import Verdict


@command()
def configs(scope: Scope) -> Answer:
    """List what `check` covers: the groups and layouts it generates, and those of real models."""
    shown = partial(print_configs, scope.profile), partial(configs_json, scope.profile)
    return Answer(Verdict.CONFORMS, *shown)
