"""Which branches of a target's managers run, as people and as programs read it."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hitproof.vllm_integration.gate.branches import Measured, Share, percent


def measured_json(found: Measured) -> dict[str, Any]:
    """A measurement as JSON."""
    return share_json(found.share) | {
        "stale_reasons": [each.describe() for each in found.stale],
        "open_questions": list(found.open_questions),
        "new": dict(found.new),
        "unlisted_findings": dict(found.unlisted),
    }


def share_json(share: Share) -> dict[str, Any]:
    """A share as JSON."""
    kept = share.as_json()
    return counted_json(share) | {
        name: kept[name] for name in ("not_run", "undecided") if name in kept
    }


def counted_json(share: Share) -> dict[str, Any]:
    """A share as JSON, without the branches that do not run."""
    return {
        "release": share.release,
        "profile": str(share.profile),
        "branches": share.total,
        "run": share.run,
        "unexplained": len(share.unexplained),
        "modules": share.as_json()["modules"],
    }


def print_measured(found: Iterable[Measured], console: Console, verbose: bool) -> None:
    """Measurements: the shares, and what is wrong with the reasons."""
    for measured in found:
        print_shares([measured.share], console, verbose)
        for each in measured.stale:
            line = f"stale reason: {escape(each.describe())} runs; remove the reason or narrow it"
            console.print(f"[bold red]{line}[/]")
        for question in measured.open_questions:
            console.print(f"could not be judged: {escape(question)}")
        for headline, place in measured.unlisted.items():
            line = f"not distilled, since no entry of the ledger has it: {headline} ({place})"
            console.print(escape(line))


def print_shares(shares: Iterable[Share], console: Console, verbose: bool) -> None:
    """Shares: a row for each module, and what did not run; ``verbose``: each branch of it."""
    for share in shares:
        _print_share(share, console, verbose)


def _print_share(share: Share, console: Console, verbose: bool) -> None:
    table = Table("module", "branches", "run", "share", title=f"vLLM {share.release}", box=None)
    for name, (total, run) in share.counts.items():
        table.add_row(name, str(total), str(run), percent(run, total))
    console.print(table)
    by_reason: dict[str, list[str]] = {}
    for branch, reason in share.not_run:
        by_reason.setdefault(reason, []).append(branch.describe())
    for reason, branches in by_reason.items():
        console.print(f"{len(branches)} not run: {escape(reason or 'no reason yet')}")
        for line in branches if verbose or not reason else ():
            console.print(f"  {line}", markup=False, soft_wrap=True)
    if share.undecided:
        codes = ", ".join(share.undecided)
        console.print(f"no case could have shown: {codes}", markup=False, soft_wrap=True)
    console.print(share.describe(), markup=False)
