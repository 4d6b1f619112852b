"""``hitproof prove``."""

from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from hitproof.spec.claims import Status
from hitproof.vllm_integration.commands.frame import Answer, command
from hitproof.vllm_integration.commands.options import Refusal
from hitproof.vllm_integration.verdict import Verdict


@command()
def prove(
    claim: list[str] | None = None,
    timeout: float = 300.0,
    verbose: bool = False,
    graph: bool = False,
    smt2: Path | None = None,
) -> Answer:
    """Prove the spec's theorems, for all block sizes, windows, alignments and positions.

    Z3 proves them; cvc5, if installed, cross-checks them.
    """
    # Here, so that no other command waits for the solvers to be loaded.
    from hitproof.proofs.prover import DEFAULTS, chosen, prove_in_subprocess
    from hitproof.proofs.second_solver import Opinion, write
    from hitproof.vllm_integration.reports.proof import print_chains, print_proofs, proofs_json

    try:
        theorems = chosen(claim or None)
    except ValueError as unknown:
        raise Refusal(str(unknown)) from None
    try:
        if smt2 is not None:
            write(smt2, theorems, DEFAULTS.bound)
    except OSError as error:
        raise Refusal(f"cannot write the SMT-LIB files: {error}") from None
    results = prove_in_subprocess(claim or None, timeout_seconds=timeout)

    def print_all(console: Console) -> None:
        print_proofs(results, console, verbose)
        if graph:
            print_chains(results, console)

    statuses = {result.status for result in results}
    verdict = Verdict.CONFORMS if statuses == {Status.PROVED} else Verdict.INCONCLUSIVE
    if Status.REFUTED in statuses:
        verdict = Verdict.DIVERGES
    disputed = [r.obligation for r in results if r.second_opinion is Opinion.DISAGREES]
    if disputed:
        verdict, told = Verdict.INTERNAL, ", ".join(disputed)
        defect = "defect in hitproof, please report it: Z3 and cvc5 disagree on"
        typer.echo(f"hitproof: {defect} {told}", err=True)
    return Answer(verdict, print_all, partial(proofs_json, results))
