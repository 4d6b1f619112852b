"""Frozen vectors from what an engine asked: ``python -m ...engine.vectors RECORD... DIR``.

RECORD is what ``hitproof engine --record`` writes. Tokens and requests are renamed, so that files
are short; a vector ends when requests were preempted and others had hits.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.histories.json_format import read, read_lines, write
from hitproof.conformance.histories.schema import (
    History,
    NewStep,
    Release,
    RequestInput,
    Reset,
    Results,
    Step,
    Take,
)
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.outcome import ReplayOutcome
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.spec.releases.horizons import LookaheadHorizon

_HITS, _HITS_ALONE = 5, 8
"""How many hits a vector has; more where nothing is preempted."""


def frozen(history: History, about: str) -> History:
    """The vector: a beginning of the history, with the hits that the reference serves."""
    vector = _beginning(_renamed(history))
    horizons = LookaheadHorizon.HASHED, LookaheadHorizon.CAPPED
    hits = {each: tuple(look.served for look in _played(vector, each).lookups) for each in horizons}
    return replace(vector, about=about, hits=hits)


def _played(history: History, horizon: LookaheadHorizon) -> ReplayOutcome:
    reference = ReferenceManagers(replace(Policies(), horizon=horizon))
    return replay(history, reference, JudgedPolicies(horizon=horizon))


def _renamed(history: History) -> History:
    """Requests by their number; tokens so that those after one prefix are numbered in a row."""
    names = {name: name.partition("-")[0] for name in history.requests}
    children: dict[tuple[int, int], int] = {}

    def token_ids(tokens: Sequence[int], before: int) -> tuple[int, ...]:
        found = []
        for token in tokens:
            before = children.setdefault((before, token), len(children) + 1)
            found.append(before)
        return tuple(found)

    requests: dict[str, RequestInput] = {}
    for name, request in history.requests.items():
        prompt = token_ids(request.prompt, 0)
        output = token_ids(request.output, prompt[-1])
        requests[names[name]] = replace(request, prompt=prompt, output=output)
    steps = tuple(_named(step, names) for step in history.steps)
    return replace(history, requests=requests, steps=steps)


def _named(step: Step, names: Mapping[str, str]) -> Step:
    if isinstance(step, (NewStep, Release, Reset, Results, Take)):
        return step
    return replace(step, request=names[step.request])


def _beginning(history: History) -> History:
    outcome = _played(history, LookaheadHorizon.HASHED)
    hits = [look.step for look in outcome.lookups if look.served]
    preempted = [n for n, how in enumerate(outcome.steps) if how.startswith("preempted")]
    end = max(hits[_HITS - 1], preempted[0]) if preempted else hits[_HITS_ALONE - 1]
    steps = history.steps[: end + 1]
    named = {getattr(step, "request", None) for step in steps}
    requests = {name: each for name, each in history.requests.items() if name in named}
    return replace(history, requests=requests, steps=steps)


def main(records: Sequence[Path], place: Path) -> None:
    """Write a vector of the first history of each record."""
    for record in records:
        history = read_lines(record.read_bytes(), record.name, read)[0]
        about = f"What a real engine asked of its manager, {record.stem} model."
        (place / f"{record.stem}.json").write_text(write(frozen(history, about)))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:-1]], Path(sys.argv[-1]))
