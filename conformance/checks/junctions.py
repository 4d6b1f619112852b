"""The check of junctions: a prefix seen to be shared is hit again, on whole managers.

Three prompts that share a prefix and nothing else are served one after another. What the first
leaves behind is of little use to the second where retention is sparse, or where only Mamba states
at the ends of chunks are there; its lookup shows that the prefix is shared. The third must hit
what it hits where every block and state is kept.
"""

from collections.abc import Iterator
from functools import partial

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import SharedPrefixEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import CannotJudge, crash_of
from hitproof.conformance.subject.registering import ServingSubject
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind
from hitproof.spec.retention import SPARSE_KINDS, junction_boundary

_CLAIM = "retention_keeps_junctions"


def check_junctions(subject: ServingSubject, configuration: Configuration) -> CheckResult:
    """Judge what the third of three siblings hits, for prefixes of several lengths.

    Kinds that retention does not thin out settle nothing.
    """
    if configuration.group.kind not in SPARSE_KINDS:
        return CheckResult({}, (), 0, 0)
    return finished((_CLAIM,), partial(_cases, subject, configuration))


def _cases(subject: ServingSubject, configuration: Configuration) -> Iterator[Case]:
    align, size = configuration.alignment, configuration.group.block_size
    lookahead = configuration.lookahead_tokens
    past = {0, 1, size, lookahead, align - 1}
    for shared in (align, align + lookahead, *sorted(2 * align + more for more in past)):
        intervals: tuple[int | None, ...] = (0, 2 * align)
        if configuration.group.kind is GroupKind.MAMBA:
            # Under dense retention, too, there are states only where chunks end.
            intervals = None, *intervals
            promised = int(junction_boundary(shared, lookahead, align))
        else:
            dense = _third_hit(subject, configuration, shared, None)
            if isinstance(dense, Exception):
                yield Case(1, 1, [_evidence(configuration, shared, None, 0, dense)])
                continue
            promised = dense
        if promised == 0:
            continue  # there is nothing to lose
        for interval in intervals:
            hit = _third_hit(subject, configuration, shared, interval)
            lost = isinstance(hit, Exception) or hit < promised
            evidence = [_evidence(configuration, shared, interval, promised, hit)] if lost else []
            yield Case(1, 1, evidence)


def _third_hit(
    subject: ServingSubject, configuration: Configuration, shared: int, interval: int | None
) -> int | Exception:
    # Long enough that no boundary of a prompt's own end lies in what is shared.
    suffix = 3 * configuration.alignment
    prompts = [
        [*range(shared), *range(first, first + suffix)]
        for first in range(shared, shared + 3 * suffix, suffix)
    ]
    try:
        hits = subject.hits(configuration, prompts, interval)
    except Exception as error:
        return crash_of(error)
    if len(hits) != len(prompts):
        raise CannotJudge("not every prompt's hit is accounted for")
    return hits[-1]


def _evidence(
    configuration: Configuration,
    shared: int,
    interval: int | None,
    promised: int,
    hit: int | Exception,
) -> SharedPrefixEvidence:
    policy = {None: "dense", 0: "latest"}.get(interval, "interval")
    found = "nothing" if hit == 0 else "some"
    divergence = Divergence.LOST_HIT
    defect = Defect.of(Code.JUNCTION_NOT_HIT, found=found, retention=policy)
    if isinstance(hit, Exception):
        divergence, defect = Divergence.CRASH, crash_defect(hit, retention=policy)
    drops = configuration.lookahead_tokens > 0
    return SharedPrefixEvidence(
        signature=Signature(_CLAIM, divergence, configuration.group.kind, drops, defect),
        configuration=configuration,
        num_tokens=shared + 3 * configuration.alignment,
        shared=shared,
        interval=interval,
        spec=f"the third prompt hits {in_tokens(promised)}, as where every block is kept",
        actual=f"raises {hit!r}" if isinstance(hit, Exception) else f"it hits {in_tokens(hit)}",
        spec_hit=promised,
        actual_hit=None if isinstance(hit, Exception) else hit,
    )
