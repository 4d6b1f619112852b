"""Simulations, as people and as programs read them."""

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.picking import picked
from hitproof.conformance.simulation.causes import Cause, Limit, limits, losses
from hitproof.vllm_integration.gate.simulate import Serving, Simulated
from hitproof.vllm_integration.reports.printing import print_text, sentence
from hitproof.vllm_integration.survey.faults import of_codes

OPERATIONS = ("lookup", "allocate", "free")


def simulated_json(found: Simulated) -> dict[str, Any]:
    """A simulation as JSON."""
    engine = found.deployment.engine
    return {
        "workload": {"about": found.workload.about, "requests": len(found.workload.requests)},
        "deployment": {
            **picked(found.deployment, "name", "max_num_seqs"),
            **picked(engine, *_OF_ENGINE, max_num_batched_tokens="max_chunk"),
        },
        "hashing_seconds": found.hashing,
        "runs": [_run_json(run) | {"requests": list(requests(found, run))} for run in found.runs],
    }


_OF_ENGINE = "num_gpu_blocks", "max_model_len", "use_eagle"


def _run_json(run: Serving) -> dict[str, Any]:
    shown: dict[str, Any] = {"subject": run.subject, "retention": retention(run)}
    if run.cannot:
        return shown | {"cannot": run.cannot}
    return shown | {
        "hit_rate": hit_rate(run),
        **({"tier": run.tier, "tier_rate": tier_rate(run)} if run.tier else {}),
        **run.figures(),
        "cached": [{"requests": ended, "keys": keys} for ended, keys in run.samples],
        "operations": run.operations,
        "seconds": run.seconds,
    }


def requests(found: Simulated, run: Serving) -> Iterator[dict[str, Any]]:
    """What became of each request of a run; nothing where it could not be played."""
    for bound, served in zip(run.bounds, run.served, strict=bool(run.served)):
        donor = None if bound.donor is None else run.served[bound.donor]
        lost = losses(bound, served, donor)
        told = asdict(served)
        for unshown in ("request", "horizon", "junctions", "ends", "tier"):
            del told[unshown]
        if not run.tier:
            del told["of_tier"]
        yield {
            "name": found.workload.label(served.request),
            "prompt": found.workload.requests[served.request].num_prompt_tokens,
            "lookup_only": found.workload.requests[served.request].lookup_only,
            **picked(bound, "shared", "unbounded", "promised", "junction", "foresight"),
            **told,
            "lost": {str(cause): tokens for cause, tokens in lost.items()},
            "limits": {str(limit): tokens for limit, tokens in limits(bound).items()},
        }


def simulated_csv(found: Simulated) -> str:
    """A simulation as CSV: a line for each request of each run."""
    text = io.StringIO()
    lines: Any = None
    for run in found.runs:
        for row in requests(found, run):
            lost, reach, held = row.pop("lost"), row.pop("limits"), row.pop("held")
            flat = {"subject": run.subject, "retention": retention(run), **row}
            flat |= {f"lost_{cause.replace(' ', '_')}": lost.get(cause, 0) for cause in Cause}
            flat |= {f"limit_{each.replace(' ', '_')}": reach.get(each, 0) for each in Limit}
            flat["held"] = " ".join(map(str, held))
            if lines is None:
                lines = csv.DictWriter(text, list(flat), lineterminator="\n")
                lines.writeheader()
            lines.writerow(flat)
    return text.getvalue()


def retention(run: Serving) -> str:
    """The retention of a run, in words."""
    match run.retention:
        case None:
            return "dense"
        case 0:
            return "latest"
        case interval:
            return str(interval)


def hit_rate(run: Serving) -> float:
    """Tokens that were hit, of all tokens of prompts."""
    hits = sum(each.hit for each in run.served)
    return hits / max(1, run.queried)


def tier_rate(run: Serving) -> float:
    """Tokens that were hit and the tier was asked for, of all tokens of prompts."""
    return sum(each.of_tier for each in run.served) / max(1, run.queried)


def about(found: Simulated) -> str:
    """What was played on what."""
    return sentence("simulated", found.workload, found.deployment)


SUMMARY = (
    "subject",
    "retention",
    "hit",
    "unbounded",
    "foresight",
    "lost by",
    "evicted",
    "refused",
    "preempted",
    *(f"{operation} s" for operation in OPERATIONS),
)
"""The columns of the summary: hits in tokens, of all requests, evictions in keys."""


def summary(found: Simulated) -> Iterator[tuple[str, ...]]:
    """A row for each run that could be played."""
    for run in found.runs:
        if run.cannot:
            continue
        shown = _run_json(run)
        yield (
            run.subject,
            retention(run),
            _hits(run, shown),
            str(shown["unbounded"]),
            str(shown["foresight"]),
            ", ".join(lost_in_words(run, found.deployment.engine)) or "nothing",
            str(shown["evictions"]),
            str(shown["refused"]),
            str(shown["preempted"]),
            *(
                f"{run.operations[operation]['seconds']:.2f}" if run.operations else "-"
                for operation in OPERATIONS
            ),
        )


def _hits(run: Serving, shown: dict[str, Any]) -> str:
    """What was hit, and what of it the tier was asked for."""
    told = f"{shown['hits']} ({100 * shown['hit_rate']:.1f} %)"
    if not run.tier:
        return told
    return f"{told}, {shown['of_tier']} ({100 * shown['tier_rate']:.1f} %) of the tier"


def lost_in_words(run: Serving, engine: EngineConfiguration) -> list[str]:
    """What tokens were lost by, those of faults with their codes, and what BUGS has of these."""
    known = of_codes(
        run.faults, run.release, {group.kind for group in engine.groups}, engine.use_eagle
    )
    numbers = {code: ", ".join(f"BUGS {each.number}" for each in known[code]) for code in known}
    told = [f"{code}: {numbers[code]}" if code in numbers else code for code in run.faults]
    codes = f" ({'; '.join(told)})" if told else ""
    return [
        f"{cause} {tokens}{codes if cause is Cause.FAULT else ''}"
        for cause, tokens in run.lost.items()
        if tokens
    ]


def out_of_reach(found: Simulated) -> str:
    """The tokens that were computed before and that nothing can hit; "" where there are none."""
    if not found.runs:
        return ""
    tokens = sum((Counter(limits(bound)) for bound in found.runs[0].bounds), Counter[Limit]())
    told = ", ".join(f"{limit} {tokens[limit]}" for limit in Limit if tokens[limit])
    return f"shared tokens that no cache can serve: {told}" if told else ""


def lookups(found: Simulated) -> Iterator[tuple[str, str, str]]:
    """What the requests that are only looked up hit: subject, retention and the hits in turn."""
    numbers = [n for n, each in enumerate(found.workload.requests) if each.lookup_only]
    for run in found.runs if numbers else ():
        if run.cannot:
            continue
        hits = [(run.served[number].hit, found.workload.label(number)) for number in numbers]
        spans = []
        for hit, same in itertools.groupby(hits, lambda each: each[0]):
            names = [name for _, name in same]
            last = f" to {names[-1]}" if len(names) > 1 else ""
            spans.append(f"{names[0]}{last}: {hit}")
        yield run.subject, retention(run), "; ".join(spans)


def refusals(found: Simulated) -> list[str]:
    """Why runs could not be played."""
    return [f"{r.subject}, retention {retention(r)}: {r.cannot}" for r in found.runs if r.cannot]


def told(found: Simulated) -> dict[str, Any]:
    """All that text and pages say of a simulation, by the names that templates use."""
    return {
        "about": about(found),
        "columns": SUMMARY,
        "summary": list(summary(found)),
        "out_of_reach": out_of_reach(found),
        "lookups": list(lookups(found)),
        "refusals": refusals(found),
    }


def print_simulated(found: Simulated, console: Console) -> None:
    """A simulation as text."""
    print_text(console, "simulate.txt", **told(found))
