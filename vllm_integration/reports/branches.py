"""Which branches of a target's managers run, as people and as programs read it."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from hitproof.vllm_integration.gate.branches import Branch, Measured, Share, percent
from hitproof.vllm_integration.reports.printing import print_text


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
    _print([(each.share, each) for each in found], console, verbose)


def print_shares(shares: Iterable[Share], console: Console, verbose: bool) -> None:
    """Shares: a row for each module, and what did not run; ``verbose``: each branch of it."""
    _print([(each, None) for each in shares], console, verbose)


def _print(found: Sequence[tuple[Share, Measured | None]], console: Console, verbose: bool) -> None:
    print_text(
        console, "branches.txt", found=found, verbose=verbose, by_reason=_by_reason, rows=_rows
    )


def _by_reason(share: Share) -> dict[str, list[Branch]]:
    by_reason: dict[str, list[Branch]] = {}
    for branch, reason in share.not_run:
        by_reason.setdefault(reason, []).append(branch)
    return by_reason


def _rows(share: Share) -> list[tuple[object, ...]]:
    return [(name, total, run, percent(run, total)) for name, (total, run) in share.counts.items()]
