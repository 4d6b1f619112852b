"""Campaigns, as people and as programs read them."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hitproof.conformance.picking import picked
from hitproof.conformance.words import count
from hitproof.vllm_integration.campaign.running import Campaign
from hitproof.vllm_integration.campaign.store import Ended
from hitproof.vllm_integration.reports.printing import print_text


def campaign_json(found: Campaign, log: Sequence[Ended]) -> dict[str, Any]:
    """A campaign as JSON. All but ``run`` is the same however it was run."""
    summary = found.summary
    return {
        "campaign": found.kind.name,
        "targets": [each.label for each in found.given.targets.values()],
        "verdict": found.verdict.label,
        "exit_code": int(found.verdict),
        "jobs": len(found.jobs) - found.left,
        "left": found.left,
        **picked(summary, "about", "new"),
        "cannot": dict(sorted(summary.cannot.items())),
        "tables": [picked(table, "title", "columns", "rows") for table in summary.tables],
        "run": {
            "engine": found.engine[0],
            "workers": found.engine[1],
            "seconds_of_jobs": round(sum(ended.seconds for ended in log), 1),
            "processes": len({ended.worker for ended in log}),
        },
    }


def print_campaign(found: Campaign, console: Console) -> None:
    """A campaign as text."""
    print_text(console, "campaign.txt", found=found, jobs=jobs_in_words(found))


def jobs_in_words(found: Campaign) -> str:
    """How many jobs ended, and how many are left."""
    done = len(found.jobs) - found.left
    left = f" and {found.left} left" if found.left else ""
    return f"{count(done, 'job')} done{left}"
