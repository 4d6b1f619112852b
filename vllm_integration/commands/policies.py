"""``hitproof policies``."""

from functools import partial

from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import OneWorker
from hitproof.vllm_integration.commands.running import resolve
from hitproof.vllm_integration.gate.policies import standings
from hitproof.vllm_integration.reports.policies import policies_json, print_policies
from hitproof.vllm_integration.targets.resolving import held_as
from hitproof.vllm_integration.verdict import Verdict


@command()
def policies(limits: OneWorker, target: str | None = None, release: str | None = None) -> Answer:
    """Show the policies in which vLLM's releases differ, and which release has which value.

    With a target, the exit code is 1 if one of its policies differs from its release's.
    """
    found = standings(None if target is None else held_as(resolve(target), release), limits)
    agrees = all(standing.agrees for standing in found)
    shown = partial(print_policies, found), partial(policies_json, found)
    return Answer(Verdict.CONFORMS if agrees else Verdict.DIVERGES, *shown)
