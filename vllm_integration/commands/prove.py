"""``hitproof prove``."""

from pathlib import Path

import typer
from rich.console import Console

from hitproof.spec.claims import Status
from hitproof.vllm_integration.commands.options import Format
from hitproof.vllm_integration.commands.running import fail, failures, show
from hitproof.vllm_integration.verdict import Verdict


def prove(
    claim: list[str] | None = None,
    timeout: float = 300.0,
    output: Format = Format.TEXT,
    verbose: bool = False,
    graph: bool = False,
    smt2: Path | None = None,
) -> None:
    """Prove the spec's theorems, for all block sizes, windows, alignments and positions.

    Z3 proves them; cvc5, if installed, cross-checks them.
    """
    # Here, so that no other command waits for the solvers to be loaded.
    from hitproof.proofs.prover import DEFAULTS, chosen, prove_in_subprocess
    from hitproof.proofs.second_solver import Opinion, write
    from hitproof.vllm_integration.reports import proof as proof_rendering

    with failures(output):
        try:
            theorems = chosen(claim or None)
        except ValueError as unknown:
            fail(Verdict.USAGE, str(unknown), output)
        try:
            if smt2 is not None:
                write(smt2, theorems, DEFAULTS.bound)
        except OSError as error:
            fail(Verdict.USAGE, f"cannot write the SMT-LIB files: {error}", output)
        results = prove_in_subprocess(claim or None, timeout_seconds=timeout)

    def print_all(console: Console) -> None:
        proof_rendering.print_proofs(results, console, verbose)
        if graph:
            proof_rendering.print_chains(results, console)

    show(output, lambda: proof_rendering.proofs_json(results), print_all)
    disputed = [r.obligation for r in results if r.second_opinion is Opinion.DISAGREES]
    if disputed:
        typer.echo(
            "hitproof: defect in hitproof, please report it: Z3 and cvc5 disagree on "
            + ", ".join(disputed),
            err=True,
        )
        raise typer.Exit(int(Verdict.INTERNAL))
    statuses = {result.status for result in results}
    if Status.REFUTED in statuses:
        raise typer.Exit(int(Verdict.DIVERGES))
    if statuses != {Status.PROVED}:
        raise typer.Exit(int(Verdict.INCONCLUSIVE))
