"""What `hitproof prove` prints."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from hitproof.proofs.prover import ProofResult
from hitproof.spec.claims import Status


def print_proofs(results: list[ProofResult], console: Console, verbose: bool) -> None:
    """What `hitproof prove` prints: a line a claim, or with ``verbose`` a line an obligation."""
    columns = ("status", "mutants refuted", "cvc5", "resources", "seconds")
    table = Table("claim", *columns)
    if not verbose:
        table = Table(Column("claim", no_wrap=True), box=None, padding=(0, 2, 0, 0))
        for column in ("status", "mutants", "cvc5", "seconds"):
            table.add_column(column)
    by_claim: dict[str, list[ProofResult]] = {}
    for result in results:
        by_claim.setdefault(result.claim, []).append(result)
    for claim, parts in by_claim.items():
        table.add_row(claim, *_proof_cells(parts, verbose))
        for part in parts if verbose else []:
            table.add_row(f"  {escape(part.obligation)}", *_proof_cells([part], verbose))
    console.print(table)
    for result in results:
        if result.status is not Status.PROVED:
            console.print(
                f"{_coloured(result.status)}: {result.claim}, {escape(result.obligation)}: "
                f"{escape(result.detail)}",
                highlight=False,
            )
    status, mutants, opinions, *_, seconds = _proof_cells(results, verbose=False)
    console.print(
        f"{len(results)} obligations: {status or 'none'}; {mutants} mutants refuted; "
        f"cvc5: {opinions or 'not asked'}; {seconds} s",
        highlight=False,
    )


def _proof_cells(parts: list[ProofResult], verbose: bool) -> list[str]:
    """How the parts of a claim ended."""
    counts = Counter(part.status for part in parts)
    return [
        ", ".join(f"{n} {_coloured(status)}" for status, n in counts.items()),
        str(sum(len(part.mutants) for part in parts)),
        _opinions(parts),
        *([str(sum(part.resource_count for part in parts))] if verbose else []),
        f"{sum(part.seconds for part in parts):.2f}",
    ]


def _opinions(results: list[ProofResult]) -> str:
    """What the second solver says, each opinion with its count where there are several results."""
    counts = Counter(str(result.second_opinion or "not asked") for result in results)
    if len(results) == 1:
        return next(iter(counts))
    return ", ".join(f"{n} {opinion}" for opinion, n in counts.items())


def _coloured(status: Status) -> str:
    colours = {Status.PROVED: "green", Status.REFUTED: "red", Status.INCONCLUSIVE: "yellow"}
    return f"[{colours[status]}]{status}[/]"


def proofs_json(results: list[ProofResult]) -> list[dict[str, Any]]:
    """What `hitproof prove --format json` prints."""
    return [
        {
            "claim": result.claim,
            "obligation": result.obligation,
            "status": str(result.status),
            "detail": result.detail,
            "resources": result.resource_count,
            "seconds": round(result.seconds, 3),
            "premises": None if result.premises is None else str(result.premises),
            "counterexample": None if result.counterexample is None else str(result.counterexample),
            "mutants": {name: str(model) for name, model in result.mutants.items()},
            "cvc5": None if result.second_opinion is None else str(result.second_opinion),
        }
        for result in results
    ]
