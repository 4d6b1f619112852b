"""Resets of the prefix cache: what is asked of them, what they answer, and what they leave.

After an update of weights nothing may be read that was computed before it. What is held here keeps
a reset from being done; a KV connector forgets what it has all the same, as nothing else tells it.
"""

from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.workloads import Reset, SchedulerHistory
from hitproof.conformance.scheduling.runner import violation
from hitproof.conformance.subject.schedulers import PoolState, WasReset
from hitproof.spec.claims import Divergence


class Resets:
    """The resets of one history that have not come yet."""

    def __init__(self, history: SchedulerHistory) -> None:
        self._waiting = list(history.resets)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def due(self, step: int, *, may_restart: bool) -> Iterator[Reset]:
        """The resets whose step has come; ``may_restart``: whether running requests can restart."""
        for each in list(self._waiting):
            if each.at <= step and (may_restart or not each.reset_running_requests):
                self._waiting.remove(each)
                yield each


def judge_reset(
    wanted: Reset, was: WasReset, held: bool, after: PoolState, connected: bool = True
) -> Iterator[Violation]:
    """What is wrong with a reset; ``after`` is what is there after it.

    ``held`` is whether something that does not start again had blocks, and ``connected`` whether
    there is a KV connector; without one there is nothing that it could keep.
    """
    if not held and (after.cached or after.held):
        yield violation(
            Defect(Code.CACHED_AFTER_RESET),
            "nothing is cached, and no block is held, after a reset",
            f"{len(after.cached)} keys are cached, and {len(after.held)} blocks held",
        )
    could_not = False in was.connector
    if connected and wanted.reset_connector and not was.connector:
        yield _of_connector(
            "not-asked", "the KV connector is asked to forget what it has", "it is not asked"
        )
    elif wanted.reset_connector and not could_not and after.offloaded:
        number = len(after.offloaded)
        yield _of_connector(
            "kept", "nothing is cached in host memory after a reset", f"{number} keys are"
        )
    elif was.connector and not wanted.reset_connector:
        wrong = _of_connector("unwanted", "the KV connector keeps what it has", "it is reset")
        yield _less(wrong, Divergence.LOST_HIT)
    due = not held and not could_not
    if was.done != due:
        how = "done" if was.done else "refused"
        wrong = violation(
            Defect.of(Code.RESET_ANSWERED_WRONG, how=how),
            f"the reset is {'done' if due else 'not done'}, and says so",
            f"it says that it is {'done' if was.done else 'not done'}",
        )
        yield wrong if was.done else _less(wrong, Divergence.WASTE)


def _of_connector(how: str, spec: str, actual: str) -> Violation:
    return violation(Defect.of(Code.CONNECTOR_RESET_WRONG, how=how), spec, actual)


def _less(wrong: Violation, divergence: Divergence) -> Violation:
    """The violation, with a lesser effect than the worst of its code."""
    return replace(wrong, signature=replace(wrong.signature, divergence=divergence))
