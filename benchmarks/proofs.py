"""CPU time of the proofs about vLLM's own functions, for all lengths.

``python -m benchmarks.proofs 0.23.0 0.30.0 0.33.0`` proves all masks, lookups of one group and
coordinators of these releases, one after the other, in one worker each. What is proved of one
release is not proved again of another whose code is the same. To import a release takes seconds
more, which do not count.
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
    """Print the seconds by sort of statement, and how statements ended."""
    proved: set[str] = set()
    total = 0.0
    names = [name for name in statements(Profile.DEFAULT) if name.startswith(SORTS)]
    for release in releases:
        seconds, ended = Counter[str](), Counter[str]()
        with closing(Session.of(resolve(release), Limits(timeout=_SECONDS))) as session:
            for name in names:
                asked = {"name": name, "seconds": _SECONDS, "proved": sorted(proved)}
                answer = session.ask(op="unbounded", **asked)
                again = answer["status"] == "proved" and not answer["proved"]
                proved.update(answer["proved"])
                ended["proved before" if again else answer["status"]] += 1
                seconds[name.split()[0]] += answer["cpu"]
        total += seconds.total()
        told = ", ".join(f"{sort} {seconds[sort]:.1f}" for sort in SORTS)
        print(f"{release}: {seconds.total():.1f} s ({told}): {dict(ended)}", flush=True)
    print(f"together: {total:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:] or ["0.33.0", "0.30.0", "0.23.0"])
