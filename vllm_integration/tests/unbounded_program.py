"""A program that proves statements about the target at a path, and prints what is known of them.

Questions that Z3 answers are written to the directory that HITPROOF_QUESTIONS names, if any.
HITPROOF_PROVED has digests of what is proved already, with commas between.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import z3

from hitproof.conformance.scope.profiles import Profile
from hitproof.proofs.second_solver import text_of
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.gate.unbounded import statements
from hitproof.vllm_integration.worker.unbounded import settled


def writing(directory: Path) -> None:
    """Write what Z3 is asked from now on, with its answer, each question once."""
    check = z3.Solver.check
    seen: set[str] = set()

    def noted(solver: Any) -> Any:
        answer = check(solver)
        if answer != z3.unknown and (text := text_of(solver)) not in seen:
            seen.add(text)
            (directory / f"{len(seen)}.{answer}").write_text(text)
        return answer

    z3.Solver.check = noted


root, *wanted = sys.argv[1:]
sys.path.insert(0, root)
if "HITPROOF_QUESTIONS" in os.environ:
    writing(Path(os.environ["HITPROOF_QUESTIONS"]))
subject = VllmSubject(frozenset())
gc.freeze()  # as workers do
proved = set(filter(None, os.environ.get("HITPROOF_PROVED", "").split(",")))
found = {}
for name in wanted or statements(Profile.DEFAULT):
    found[name] = settled(subject, {"name": name, "seconds": 300.0, "proved": sorted(proved)})
    proved.update(found[name]["proved"])
print(json.dumps(found))
