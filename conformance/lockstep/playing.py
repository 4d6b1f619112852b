"""Lockstep: one history played on two managers, the real one and the reference.

Every call goes to both, and then everything observable must agree. Where they differ, the real
manager is judged by the spec, on its own cache. If it violates the spec at that call, that is a
finding, and the lockstep continues if the two can be resynchronised by public methods:

- A registered block that no hit can use is evicted again; a block left out is evicted from the
  reference.
- A hit that is shorter than possible is used by both.

After any other finding the rest of the history would only compare its consequences, and is
dropped. A difference at which neither violates the spec is also a finding: a policy change. If it
is the reference that violates the spec, that is a fault of hitproof.
"""

from collections.abc import Sequence

from hitproof.conformance.histories.schema import History
from hitproof.conformance.judge.promises import JudgedPolicies
from hitproof.conformance.lockstep.outcome import FIELDS, Outcome
from hitproof.conformance.lockstep.pair import Pair, Stop
from hitproof.conformance.playing.player import Player
from hitproof.conformance.subject.managers import ManagerSubject


def run(
    history: History,
    real: ManagerSubject,
    reference: ManagerSubject,
    policies: JudgedPolicies,
    compared: Sequence[str] = FIELDS,
) -> Outcome:
    """Play ``history`` on both and compare the fields in ``compared`` after every call.

    Raises `CannotJudge` when the real manager lacks an entry point.
    """
    outcome = Outcome()
    pair = Pair(history, real, reference, policies, outcome, compared)
    player = Player(history, pair)
    for number, step in enumerate(history.steps):
        pair.step = number
        try:
            player.play(step)
        except Stop:
            break
        outcome.steps += 1
    return outcome
