"""``hitproof policies``."""

import typer

from hitproof.vllm_integration.commands.options import Format, OneWorker
from hitproof.vllm_integration.commands.running import announce, failures, show
from hitproof.vllm_integration.gate.policies import standings
from hitproof.vllm_integration.reports import policies as rendering
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import held_as, resolve
from hitproof.vllm_integration.verdict import Verdict


def policies(
    target: str | None = None,
    release: str | None = None,
    output: Format = Format.TEXT,
    limits: OneWorker = Limits(),
) -> None:
    """Show the policies in which vLLM's releases differ, and which release has which value.

    With a target, the exit code is 1 if one of its policies differs from its release's.
    """
    with failures(output):
        resolved = None
        if target is not None:
            resolved = held_as(resolve(target, announce=announce), release)
        found = standings(resolved, limits)
    show(
        output,
        lambda: rendering.policies_json(found),
        lambda console: rendering.print_policies(found, console),
    )
    agrees = all(standing.agrees for standing in found)
    raise typer.Exit(int(Verdict.CONFORMS if agrees else Verdict.DIVERGES))
