"""The pages of `hitproof campaign` and `hitproof simulate`, which have charts."""

import itertools
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from hitproof.vllm_integration.campaign.running import Campaign
from hitproof.vllm_integration.campaign.store import Ended
from hitproof.vllm_integration.gate.simulate import Serving, Simulated
from hitproof.vllm_integration.reports import simulate as rendering
from hitproof.vllm_integration.reports.campaign import jobs_in_words
from hitproof.vllm_integration.reports.html.pages import page

_SVG = "http://www.w3.org/2000/svg"
_COLORS = (
    "#0b5cad", "#b3261e", "#00735a", "#7a5200", "#6b3fa0", "#3f7f93",
    "#a8437f", "#5f6b00", "#c0591a", "#4a4e56", "#2f8f4e", "#8c6d5a",
)  # fmt: skip


def chart(kind: str, title: str) -> Any:
    """A chart of pygal's, in the colours of the page."""
    import pygal  # only where a page is asked for
    from pygal.style import Style

    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="currentColor",
        foreground_strong="currentColor",
        foreground_subtle="currentColor",
        colors=_COLORS,
    )
    return getattr(pygal, kind)(
        style=style,
        title=title,
        width=1000,
        height=420,
        js=(),
        show_dots=False,
        legend_at_bottom=True,
        x_label_rotation=20,
        show_minor_x_labels=kind != "Line",
        x_labels_major_count=12 if kind == "Line" else None,
        truncate_legend=-1,
    )


def drawn(made: Any, number: int) -> Markup:
    """The chart as SVG without scripts, which the page does not run."""
    made.uuid = f"plot-{number}"
    tree = made.render_tree()
    for parent in tree.iter():
        for child in [each for each in parent if each.tag in ("script", f"{{{_SVG}}}script")]:
            parent.remove(child)
    tree.set("role", "img")
    tree.set("aria-label", made.config.title)
    return Markup(ElementTree.tostring(tree, encoding="unicode"))


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
        plots=_grown(found, ended) if ended else [],
        targets=[target.label for target in found.given.targets.values()],
        engine=found.engine,
    )


def _grown(found: Campaign, ended: Sequence[Ended]) -> list[tuple[str, Markup]]:
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


def simulate_page(found: Simulated, command: str) -> str:
    """The page of a simulation; ``command`` is what made it."""
    runs = [run for run in found.runs if not run.cannot]
    return page(
        "simulate.html",
        command,
        title=f"simulation on {found.deployment.name}",
        **rendering.told(found),
        plots=_compared(found, runs) if runs else [],
        subjects=list(dict.fromkeys(run.subject for run in found.runs)),
        hashing=found.hashing,
    )


def _compared(found: Simulated, runs: Sequence[Serving]) -> list[tuple[str, Markup]]:
    every = max(1, -(-len(found.workload.requests) // _POINTS))
    numbers = range(every - 1, len(found.workload.requests), every)
    rates = chart("Line", "Share of all prompt tokens so far that were hit, by request")
    rates.x_labels = [str(number + 1) for number in numbers]
    prompts = list(itertools.accumulate(r.num_prompt_tokens for r in found.workload.requests))
    could = list(itertools.accumulate(each.unbounded for each in runs[0].bounds))
    rates.add("unbounded", [could[n] / prompts[n] for n in numbers])
    foresight = list(itertools.accumulate(each.foresight for each in runs[0].bounds))
    rates.add("foresight", [foresight[n] / prompts[n] for n in numbers])
    for run in runs:
        hits = list(itertools.accumulate(each.hit for each in run.served))
        rates.add(_label(run), [hits[n] / prompts[n] for n in numbers])
        if run.tier:
            tier = list(itertools.accumulate(each.of_tier for each in run.served))
            rates.add(f"{_label(run)}, of the tier", [tier[n] / prompts[n] for n in numbers])
    if not any(run.operations for run in runs):
        return [("hit rate over time", drawn(rates, 0))]
    groups = [f"group {number}" for number in range(len(found.deployment.engine.groups))]
    cached = chart("StackedBar", "Blocks cached in each group at the end")
    held = chart("StackedBar", "Most blocks that one request held in each group")
    for bars in (cached, held):
        bars.x_labels = [_label(run) for run in runs]
    for number, name in enumerate(groups):
        cached.add(name, [run.samples[-1][1][number] if run.samples else 0 for run in runs])
        held.add(name, [_most_held(run, number) for run in runs])
    seconds = chart("StackedBar", "Seconds in the manager, by operation")
    seconds.x_labels = [_label(run) for run in runs]
    for operation in rendering.OPERATIONS:
        seconds.add(operation, [run.operations[operation]["seconds"] for run in runs])
    return [
        ("hit rate over time", drawn(rates, 0)),
        ("cached blocks", drawn(cached, 1)),
        ("held blocks", drawn(held, 2)),
        ("seconds", drawn(seconds, 3)),
    ]


def _most_held(run: Serving, group: int) -> int:
    return max((each.held[group] for each in run.served if each.held), default=0)


def _label(run: Serving) -> str:
    return f"{run.subject}, {rendering.retention(run)}"
