"""What `hitproof prove` prints."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.tree import Tree

from hitproof.conformance.picking import picked
from hitproof.proofs.obligation import Obligation, Theorem
from hitproof.proofs.prover import ProofResult
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import CLAIMS, Basis, Status, basis
from hitproof.vllm_integration.reports.printing import marked, print_text, styled


def print_proofs(results: list[ProofResult], console: Console, verbose: bool) -> None:
    """What `hitproof prove` prints."""
    by_claim: dict[str, list[ProofResult]] = {}
    for result in results:
        by_claim.setdefault(result.claim, []).append(result)
    rows = []
    for claim, parts in by_claim.items():
        rows.append([claim, *_proof_cells(parts, verbose)])
        for part in parts if verbose else []:
            rows.append([f"  {part.obligation}", *_proof_cells([part], verbose)])
    labels = {name: label for claim, p in by_claim.items() for name, label in _labels(claim, p)}
    print_text(
        console,
        "proof.txt",
        results=results,
        verbose=verbose,
        columns=_VERBOSE if verbose else _SHORT,
        rows=rows,
        coloured=_coloured,
        covered=[
            (claim, THEOREMS[claim].covers, _by_label(dict(_labels(claim, parts))))
            for claim, parts in by_claim.items()
            if claim in CLAIMS
        ],
        labels=_by_label(labels),
        unproved=_UNPROVED,
        cells=_proof_cells(results, verbose=False),
    )


_SHORT = {"header": "claim", "no_wrap": True}, "status", "mutants", "cvc5", "seconds"
_VERBOSE = "claim", "status", "mutants refuted", "cvc5", "resources", "seconds"


def print_chains(results: list[ProofResult], console: Console) -> None:
    """What `hitproof prove --graph` prints: of each theorem what it concludes, and from what.

    Below an obligation stands what it takes for granted, and there once more what that does; what
    was shown before is named only.
    """
    status = {(result.claim, result.obligation): result.status for result in results}
    for claim in dict.fromkeys(claim for claim, _ in status):
        theorem = THEOREMS.get(claim)
        if theorem is None or not any(each.rests_on for each in theorem.obligations):
            continue
        shown: set[Obligation] = set()
        tree = Tree(f"[bold]{claim}[/]")
        for conclusion in _conclusions(theorem):
            _add_chain(tree, claim, conclusion, status, shown)
        console.print(tree, soft_wrap=False)


def _conclusions(theorem: Theorem) -> Iterator[Obligation]:
    """The obligations that no other one of the theorem rests on."""
    beneath = {each for obligation in theorem.obligations for each in obligation.rests_on}
    return (each for each in theorem.obligations if each not in beneath)


def _add_chain(
    tree: Tree,
    claim: str,
    obligation: Obligation,
    status: dict[tuple[str, str], Status],
    shown: set[Obligation],
) -> None:
    told = f"{_coloured(status[claim, obligation.name])} {obligation.name}"
    if obligation in shown:
        tree.add(marked(f"{told}, see above"))
        return
    shown.add(obligation)
    branch = tree.add(marked(f"{told}: {obligation.sentence}"))
    for each in obligation.rests_on:
        _add_chain(branch, claim, each, status, shown)


_UNPROVED = {
    str(Basis.TESTED): ", since no theorem notices some changes of them",
}
"""Why clauses with these labels are not proved."""


def _labels(claim: str, parts: list[ProofResult]) -> Iterator[tuple[str, str]]:
    """Each clause of a claim, and how what the solvers were asked about it ended.

    One that they were not asked about is not proved, and one of which they do not notice every
    change is tested; see `spec.claims.Basis`.
    """
    for clause in CLAIMS[claim].clauses if claim in CLAIMS else ():
        name = clause.__name__
        ended = {part.status for part in parts if name in part.clauses}
        yield name, basis(clause) if ended == {Status.PROVED} else "not proved"


def _by_label(labels: dict[str, str]) -> dict[str, list[str]]:
    """The names of the clauses with each label, those that are proved first."""
    sorted_names = sorted(labels, key=lambda name: (labels[name] != Basis.PROVED, name))
    found: dict[str, list[str]] = {}
    for name in sorted_names:
        found.setdefault(labels[name], []).append(name)
    return found


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
    counts = Counter(str(result.second_opinion or "not run") for result in results)
    if len(results) == 1:
        return next(iter(counts))
    return ", ".join(f"{n} {opinion}" for opinion, n in counts.items())


def _coloured(status: Status) -> str:
    colours = {Status.PROVED: "green", Status.REFUTED: "red", Status.INCONCLUSIVE: "yellow"}
    return styled(colours[status], str(status))


def proofs_json(results: list[ProofResult]) -> list[dict[str, Any]]:
    """What `hitproof prove --format json` prints.

    Each obligation has the clauses that the solvers were asked about in it, and all clauses of its
    claim with their labels.
    """
    by_claim: dict[str, list[ProofResult]] = {}
    for result in results:
        by_claim.setdefault(result.claim, []).append(result)
    labels = {claim: dict(_labels(claim, parts)) for claim, parts in by_claim.items()}
    return [
        {
            **picked(result, "claim", "obligation", "status", "detail"),
            "resources": result.resource_count,
            "seconds": round(result.seconds, 3),
            "premises": None if result.premises is None else str(result.premises),
            "counterexample": None if result.counterexample is None else str(result.counterexample),
            "mutants": {name: str(model) for name, model in result.mutants.items()},
            "cvc5": None if result.second_opinion is None else str(result.second_opinion),
            "asked_about": list(result.clauses),
            "clauses": {name: str(label) for name, label in labels[result.claim].items()},
            "covers": THEOREMS[result.claim].covers if result.claim in THEOREMS else "",
        }
        for result in results
    ]
