"""The page of `hitproof campaign`."""

import itertools
from collections.abc import Sequence

from markupsafe import Markup

from hitproof.vllm_integration.campaign.running import Campaign
from hitproof.vllm_integration.campaign.store import Ended
from hitproof.vllm_integration.reports.campaign import jobs_in_words
from hitproof.vllm_integration.reports.html.charts import chart, drawn
from hitproof.vllm_integration.reports.html.pages import page

_POINTS = 60
_PAUSE = 600.0
"""Seconds without a job that are a pause between two runs."""


def campaign_page(found: Campaign, log: Sequence[Ended], command: str) -> str:
    """The page of a campaign; ``command`` is what made it."""
    wanted = {job.name for job in found.jobs}
    ended = [each for each in log if each.name in wanted]
    return page(
        "campaign.html",
        command,
        title=f"campaign of {found.kind.name}",
        kind=found.kind.name,
        jobs=jobs_in_words(found),
        summary=found.summary,
        verdict=found.verdict.label,
        plots=_plots(found, ended) if ended else [],
        targets=[target.label for target in found.given.targets.values()],
        engine=found.engine,
    )


def _plots(found: Campaign, ended: Sequence[Ended]) -> list[tuple[str, Markup]]:
    """What grows with time. A job's gain is what those before it in the campaign lack."""
    minutes = [seconds / 60 for seconds in _passed(ended)]
    every = max(1, -(-len(ended) // _POINTS))
    shown = range(every - 1, len(ended), every)
    gains = found.summary.gains
    plots = []
    for title, name in (("Branches", "branches"), ("Causes", "causes")):
        grown = list(itertools.accumulate(gains.get(each.name, {}).get(name, 0) for each in ended))
        if grown[-1]:
            plots.append((f"{title} over time", title.lower(), [float(n) for n in grown]))
    busy = list(itertools.accumulate(each.seconds / 60 for each in ended))
    used = [100 * b / max(m, 1 / 60) / found.engine[1] for b, m in zip(busy, minutes, strict=True)]
    plots.append(("Utilisation over time", "percent of the workers", used))
    drawings = []
    for number, (title, name, values) in enumerate(plots):
        line = chart("Line", f"{title}, in minutes of running")
        line.x_labels = [f"{minutes[n]:.1f}" for n in shown]
        line.add(name, [values[n] for n in shown])
        drawings.append((title, drawn(line, number)))
    return drawings


def _passed(ended: Sequence[Ended]) -> list[float]:
    """Seconds since the campaign began when each job ended, without pauses between runs."""
    first = ended[0]
    passed, last = [first.seconds], first.at
    for each in ended[1:]:
        step = each.at - last
        passed.append(passed[-1] + (each.seconds if step > each.seconds + _PAUSE else step))
        last = each.at
    return passed
