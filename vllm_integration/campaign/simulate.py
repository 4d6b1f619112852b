"""Campaigns of simulations: each combination of what a sweep file lists, on each of its targets."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.simulation.generators import GENERATORS
from hitproof.conformance.simulation.workload import WorkloadError
from hitproof.conformance.words import first_of
from hitproof.spec.groups import ConfigurationError
from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.plans import (
    CampaignError,
    Ended,
    Given,
    Rounds,
    Summary,
    Table,
    named,
)
from hitproof.vllm_integration.campaign.serving import Place
from hitproof.vllm_integration.gate import simulate as gate
from hitproof.vllm_integration.targets.resolving import resolve

_REFERENCE = "reference"
_KEPT = {"dense": None, "latest": 0}
_MODELS = {model.name: model for model in MODELS}


_Positive: TypeAlias = Annotated[int, Field(ge=1)]


class Sweep(BaseModel):
    """A sweep file: a JSON object of lists, named as the options of `hitproof simulate`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    target: list[str] = ["0.33.0"]
    workload: list[str]
    model: list[str] = [MODELS[0].name]
    eagle: list[bool] = [False]
    requests: list[_Positive] = [14]
    tokens: list[Annotated[int, Field(ge=16)]] = [65_536]
    seed: list[Annotated[int, Field(ge=0)]] = [1]
    retention: list[str | int] = ["dense"]
    pool_requests: list[Annotated[float, Field(ge=0.01, allow_inf_nan=False)]] = [4.0]
    chunk: list[_Positive] = [8192]
    max_num_seqs: list[_Positive] = [1]

    def combinations(self) -> list[dict[str, Any]]:
        """Each combination but for the target, by the names of the options."""
        lists = {name: values for name, values in self if name != "target"}
        return [dict(zip(lists, each, strict=True)) for each in product(*lists.values())]


def prepare(words: Sequence[str], given: Given, announce: Callable[[str], None]) -> Given:
    """One sweep file."""
    if len(words) != 1:
        raise CampaignError("name one sweep file")
    try:
        sweep = Sweep.model_validate_json(Path(words[0]).read_bytes())
    except OSError as error:
        raise CampaignError(
            f"{words[0]} cannot be read ({error.strerror}); name a sweep file"
        ) from error
    except ValidationError as error:
        reason = first_of(error, "the file")
        raise CampaignError(f"{words[0]}: {reason}; correct it") from error
    for name, known in (("workload", GENERATORS), ("model", _MODELS)):
        if unknown := set(getattr(sweep, name)) - set(known):
            raise CampaignError(
                f"{words[0]}: there is no {name} {min(unknown)}; name some of {', '.join(known)}"
            )
    if not (sweep.target and sweep.combinations()):
        raise CampaignError(f"{words[0]}: there is nothing to simulate; list some of each")
    targets = [resolve(each, announce=announce) for each in sweep.target if each != _REFERENCE]
    facts = {"combinations": sweep.combinations(), "reference": _REFERENCE in sweep.target}
    return replace(given, targets=dict(map(named, targets)), facts=facts)


def plan(given: Given) -> Rounds:
    """All combinations, in one round."""
    jobs = [
        Job.of("simulate", content, target, **each)
        for content, target in given.targets.items()
        for each in given.facts["combinations"]
    ]
    if given.facts["reference"]:
        jobs += [Job("simulate", "", "", each) for each in given.facts["combinations"]]
    yield list({job.name: job for job in jobs}.values())


def work(question: Mapping[str, Any], place: Place) -> Result:
    """Simulate one combination on a target, or on the reference where there is none."""
    try:
        workload = GENERATORS[question["workload"]](
            question["requests"], question["tokens"], question["seed"]
        )
        engine = gate.engine_of(
            _MODELS[question["model"]],
            workload,
            eagle=question["eagle"],
            chunk=question["chunk"],
            blocks=None,
            pool_requests=question["pool_requests"],
        )
        kept = question["retention"]
        interval = kept if isinstance(kept, int) else _KEPT[kept]
        found = gate.simulate(
            workload,
            gate.Deployment(engine, (interval,), question["max_num_seqs"], question["model"]),
            [] if place.target is None else [place.target],
            place.limits,
            reference=place.target is None,
            progress=lambda *_: None,
            opened=lambda _: nullcontext(place.session()),
        )
    except (WorkloadError, ConfigurationError, KeyError) as error:
        return {"cannot": f"it cannot be simulated: {error}"}
    if not found.runs:
        return {"cannot": "the reference has no such retention"}
    (run,) = found.runs
    return {"cannot": run.cannot} if run.cannot else run.figures() | {"queried": run.queried}


def seen(given: Given, result: Result) -> Iterable[str]:
    """What could not be simulated."""
    del given
    return ["not simulated"] if "cannot" in result else []


def fold(given: Given, ended: Ended) -> Summary:
    """A row for each combination and target, with what differs between them."""
    questions = [job.question for job, _ in ended]
    names = list(questions[0]) if questions else []
    varied = [name for name in names if len({json.dumps(each[name]) for each in questions}) > 1]
    summary = Summary(f"{len(ended)} simulations on {len(given.targets)} targets")
    rows = []
    for job, result in ended:
        target = given.targets[job.content].label if job.content else _REFERENCE
        shown = [target, *(str(job.question[name]) for name in varied)]
        if "cannot" in result:
            summary.cannot[f"{', '.join(shown)}: {result['cannot']}"] += 1
            continue
        share = 100 * result["hits"] / max(1, result["queried"])
        lost = ", ".join(f"{cause} {number}" for cause, number in result["lost"].items() if number)
        figures = [result["hits"], result["unbounded"], result["foresight"]]
        rows.append((*shown, f"{share:.1f} %", *map(str, figures), lost or "nothing"))
    columns = ("target", *varied, "hit rate", "hit", "unbounded", "foresight", "lost by")
    summary.tables = [Table("Hits in tokens", columns, rows)]
    return summary
