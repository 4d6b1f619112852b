"""What start-up derives from the layers of a deployment, and whether it accepts them."""

from collections.abc import Iterator
from dataclasses import replace

from hitproof.conformance.explain.derivation import Derived, broken_rules
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.rules import FATAL, WASTEFUL
from hitproof.conformance.findings.violations import Occurrence, Violation
from hitproof.conformance.histories.workloads import SchedulerHistory
from hitproof.conformance.scheduling.runner import violation
from hitproof.spec.claims import Divergence

_TOO_FEW = "TooFewBlocks"
_TOO_LITTLE = ("ValueError", _TOO_FEW)
"""How start-up says, in a sentence of its own, that memory is too small: grouping has wasted it."""
_ENOUGH, _BESIDE = 2, 8
"""A multiple of the blocks of the longest request, and blocks for states and drafts: together room
for it however layers are grouped, as less than half of the pool is padding."""


def wrong_groups(derived: Derived) -> Iterator[Violation]:
    """The rules that derived groups break."""
    for broken in broken_rules(derived):
        defect = Defect.of(Code.DERIVED_GROUPS_WRONG, rule=broken.rule.parameter)
        wrong = violation(defect, str(broken.rule), broken.sentence)
        if broken.rule in WASTEFUL:
            wrong = _of_class(Divergence.WASTE, wrong)
        elif broken.rule in FATAL:
            wrong = _of_class(Divergence.CRASH, wrong)
        yield wrong


def refusal(history: SchedulerHistory, reason: str) -> list[Occurrence]:
    """What is wrong when start-up refuses: nothing without layers, or with little memory.

    A requested hash unit may not fit what it derives: nothing is wrong then, either.
    """
    deployment = history.deployment
    # A block of hidden states may have one token.
    hidden = any(layers.keeps == "hidden states" for layers in deployment.layers)
    size = 1 if hidden else min(group.block_size for group in deployment.groups)
    longest = -(-deployment.max_model_len // size)
    blocks = deployment.num_gpu_blocks_override or min(deployment.blocks_of_ranks)
    little = blocks < _ENOUGH * longest + _BESIDE
    unit = deployment.prefix_match_unit is not None and deployment.enable_prefix_caching
    if not deployment.layers or little or unit:
        return []
    error = reason.partition(":")[0]
    error = error if error.isidentifier() else _TOO_FEW
    found = violation(
        Defect.of(Code.LAYERS_REFUSED, error=error), "start-up accepts the layers", reason
    )
    if error in _TOO_LITTLE:
        found = _of_class(Divergence.WASTE, found)
    return [Occurrence(found, 0, "step")]


def _of_class(divergence: Divergence, found: Violation) -> Violation:
    return replace(found, signature=replace(found.signature, divergence=divergence))
