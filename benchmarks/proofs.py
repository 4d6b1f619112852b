"""CPU time of the proofs about vLLM's own functions, for all lengths.

``python -m benchmarks.proofs 0.23.0 0.30.0 0.33.0`` proves all that ``check`` does of these
releases, one after the other, in one worker each. What is proved of one release is not proved again
of another whose code is the same. To import a release takes seconds more, which do not count. What
``--quick`` asks is told apart: that much longer ``check`` takes with proofs than without, with
nothing in the cache, divided by the number of its processes.
"""

import sys
from collections import Counter
from contextlib import closing

from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.gate.unbounded import statements
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import resolve

SORTS = ("mask", "lookup", "hashes", "coordinator")
_SECONDS = 300.0


def main(releases: list[str]) -> None:
    """Print the seconds by sort of statement and by profile, and how statements ended."""
    proved: set[str] = set()
    total = 0.0
    names, quick = statements(Profile.DEFAULT), set(statements(Profile.QUICK))
    for release in releases:
        seconds, ended = Counter[str](), Counter[str]()
        with closing(Session.of(resolve(release), Limits(timeout=_SECONDS))) as session:
            for name in names:
                asked = {"name": name, "seconds": _SECONDS, "proved": sorted(proved)}
                answer = session.ask(op="unbounded", **asked)
                again = answer["status"] == "proved" and not answer["proved"]
                proved.update(answer["proved"])
                ended["proved before" if again else answer["status"]] += 1
                for counted in (name.split()[0], *(["quick"] if name in quick else [])):
                    seconds[counted] += answer["cpu"]
        main_ones = sum(seconds[sort] for sort in SORTS)
        total += main_ones
        told = ", ".join(f"{sort} {spent:.1f}" for sort, spent in sorted(seconds.items()))
        print(f"{release}: {main_ones:.1f} s ({told}): {dict(ended)}", flush=True)
    print(f"masks, lookups and coordinators together: {total:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:] or ["0.33.0", "0.30.0", "0.23.0"])
