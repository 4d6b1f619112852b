"""The frozen vectors: the reference serves the promised hits, and breaks no claim."""

import subprocess
import sys
from dataclasses import replace

import pytest

from hitproof.conformance.emulation.releases import Policies
from hitproof.conformance.histories.json_format import read, write
from hitproof.conformance.histories.schema import History
from hitproof.conformance.histories.vectors import engine_vectors, vectors
from hitproof.conformance.judge.judged_replay import replay
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.reference.managers import ReferenceManagers
from hitproof.spec.releases.horizons import LookaheadHorizon

ENGINE = engine_vectors()
VECTORS = {**vectors(), **{f"engine/{name}": each for name, each in ENGINE.items()}}


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("horizon", [LookaheadHorizon.HASHED, LookaheadHorizon.CAPPED])
def test_the_reference_serves_what_is_promised(name: str, horizon: LookaheadHorizon) -> None:
    reference = ReferenceManagers(replace(Policies(), horizon=horizon))
    outcome = replay(VECTORS[name], reference, JudgedPolicies(horizon=horizon))
    assert not outcome.findings
    assert tuple(lookup.served for lookup in outcome.lookups) == VECTORS[name].hits[horizon]


@pytest.mark.parametrize("vector", VECTORS.values(), ids=list(VECTORS))
def test_a_vector_is_written_as_it_is_read(vector: History) -> None:
    assert vector.about.endswith(".")
    again = read(write(vector))
    assert (again, again.about, again.hits) == (vector, vector.about, vector.hits)


def test_engines_preempt_and_hit() -> None:
    assert ENGINE
    for vector in ENGINE.values():
        outcome = replay(vector, ReferenceManagers())
        assert sum(lookup.served > 0 for lookup in outcome.lookups) >= 5
        assert not any(how.startswith("skipped") for how in outcome.steps)
    steps = [replay(each, ReferenceManagers()).steps for each in ENGINE.values()]
    assert sum(any(how.startswith("preempted") for how in each) for each in steps) >= 2


def test_the_two_horizons_differ_somewhere() -> None:
    assert any(len(set(vector.hits.values())) > 1 for vector in VECTORS.values())


def test_no_solver_is_needed() -> None:
    program = (
        "import sys; sys.modules['z3'] = None\n"
        "from hitproof.conformance.histories.vectors import vectors\n"
        "from hitproof.conformance.judge.judged_replay import replay\n"
        "from hitproof.conformance.reference.managers import ReferenceManagers\n"
        "from hitproof.conformance.emulation.releases import Policies\n"
        "for vector in vectors().values(): replay(vector, ReferenceManagers())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
