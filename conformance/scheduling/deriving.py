"""What start-up derives from the layers of a deployment, and whether it accepts them."""

from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.explain.derivation import Derived, broken_rules
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import WASTEFUL
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.runner import violation
from hitproof.spec.claims import Divergence

_TOO_FEW = "TooFewBlocks"


def wrong_groups(derived: Derived) -> Iterator[Violation]:
    """The rules that derived groups break."""
    for broken in broken_rules(derived):
        defect = Defect.of(Code.DERIVED_GROUPS_WRONG, rule=broken.rule.parameter)
        wrong = violation(defect, str(broken.rule), broken.sentence)
        if broken.rule in WASTEFUL:
            signature = replace(wrong.signature, divergence=Divergence.WASTE)
            wrong = replace(wrong, signature=signature)
        yield wrong


def refusal(history: SchedulerHistory, reason: str) -> list[Occurrence]:
    """What is wrong when start-up refuses: nothing where groups are given as nobody has them."""
    if not history.deployment.layers:
        return []
    error = reason.partition(":")[0]
    defect = Defect.of(Code.LAYERS_REFUSED, error=error if error.isidentifier() else _TOO_FEW)
    return [Occurrence(violation(defect, "start-up accepts the layers", reason), 0, "step")]
