"""The check of admission: one request alone, in pools that barely hold it or barely do not.

The request is computed in chunks. At each step it must get slots where the blocks that the step
reads and writes are there, and not otherwise; and where it is to be admitted as a whole only, it
must be refused at once or get all its slots. States of Mamba groups, several groups, and what the
blocks of a hit take are judged in histories (`conformance.judge.admission`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from hitproof.conformance.checks.outcomes import Case, CheckResult, finished
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.crashes import crash_defect
from hitproof.conformance.findings.evidence import AdmissionEvidence
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    History,
    RequestInput,
    Schedule,
)
from hitproof.conformance.playing.player import Player
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import crash_of
from hitproof.conformance.subject.managers import AdmissionSubject, sharing
from hitproof.conformance.words import count
from hitproof.spec.admission import (
    blocks_at_once,
    blocks_between,
    first_token_read,
    is_answered_right,
)
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import GroupKind

ADMISSION = "admitted_request_gets_its_blocks"
_MORE_BLOCKS = 6
"""Blocks that a request has beyond those that it holds at once."""


def takes_part(configuration: Configuration) -> bool:
    """Whether the check runs there: attention of one group alone, on block edges."""
    group = configuration.group
    alone = configuration.members == 1 and not configuration.model and not group.eagle
    plain = configuration.shape.segment == 1 and configuration.ranks == (1, 1)
    return alone and plain and group.kind is not GroupKind.MAMBA


def check_admission(subject: AdmissionSubject, configuration: Configuration) -> CheckResult:
    """Judge what a manager of one group grants and refuses: many configurations settle nothing."""
    if not takes_part(configuration):
        return CheckResult({}, (), 0, 0)
    return finished((ADMISSION,), partial(_cases, subject, configuration))


@dataclass(frozen=True)
class _Run:
    """One request, its steps, and a pool.

    Attributes:
        chunk: tokens of a step.
        num_tokens: the request's.
        room: blocks in the pool, but for the null block.
        whole: whether the request is to be admitted as a whole only.
        lacks: how many blocks a step lacks, since others take free ones before it; None where no
            other request does.
    """

    configuration: Configuration
    chunk: int
    num_tokens: int
    room: int
    whole: bool
    lacks: int | None = None

    def needed(self, start: int) -> int:
        """The blocks that the request needs for the step from ``start`` on."""
        group, end = self.configuration.group, min(start + self.chunk, self.num_tokens)
        first = first_token_read(start, group.window, group.chunk)
        return int(blocks_between(first, end, group.block_size))

    @property
    def growing(self) -> int | None:
        """The start of the last step that needs more blocks than the one before, if one does."""
        starts = range(self.chunk, self.num_tokens, self.chunk)
        grows = (s for s in reversed(starts) if self.needed(s) > self.needed(s - self.chunk))
        return next(grows, None)

    @property
    def history(self) -> History:
        """The request and its steps."""
        engine = EngineConfiguration(
            groups=(self.configuration.group,),
            num_gpu_blocks=1 + self.room,
            hash_block_size=self.configuration.group.block_size,
            max_model_len=self.num_tokens + 1,
            max_num_batched_tokens=self.chunk,
            full_sequence_must_fit=self.whole,
        )
        steps = -(-self.num_tokens // self.chunk)
        # Where chunks begin, chunked local attention hits without any block.
        prompt = RequestInput(tuple(range(self.num_tokens)), skip_reading_prefix_cache=True)
        return History(engine, {"a": prompt}, (Schedule("a"),) * steps)


def _cases(subject: AdmissionSubject, configuration: Configuration) -> Iterator[Case]:
    group = configuration.group
    for chunk in (group.block_size, 2 * group.block_size + 1):
        at_once = blocks_at_once(group, chunk, configuration.num_blocks * group.block_size)
        num_blocks = min(at_once + _MORE_BLOCKS, configuration.num_blocks)
        num_tokens = num_blocks * group.block_size - 1
        most = min(at_once, num_blocks)
        edges = {1, most - 1, most, most + 1} - {0}
        for whole in (False, True)[: 1 + subject.fits_whole]:
            for room in sorted(edges):
                yield _case(subject, _Run(configuration, chunk, num_tokens, room, whole), most)
        for lacks in (0, 1):
            run = _Run(configuration, chunk, num_tokens, most + 1, False, lacks)
            yield _case(subject, run, most)


def _case(subject: AdmissionSubject, run: _Run, most: int) -> Case:
    found = _judged(subject, run, most)
    return Case(1, 1, [] if found is None else [found])


def _judged(subject: AdmissionSubject, run: _Run, most: int) -> AdmissionEvidence | None:
    """What is wrong with the first wrong answer; ``most`` blocks are enough for all steps."""
    history = run.history
    manager, room = subject.manager(history.engine), run.room
    player = Player(history, manager)
    starts = range(0, run.num_tokens, run.chunk)
    for start, step in zip(starts, history.steps, strict=True):
        if run.lacks is not None and start == run.growing:
            spare = room - run.needed(start) + run.lacks
            room -= len(sharing(manager).take_free_blocks(spare))
        try:
            granted = player.play(step) == ""
        except Exception as error:
            crash = crash_of(error)
            raised = f"it raises {crash!r:.200}"
            return _evidence(run, start, crash_defect(crash), "the manager answers", raised)
        needed = run.needed(start)
        at_most, why = needed, f"the step needs {count(needed, 'block')}"
        if run.whole and start == 0:
            needed, at_most = run.needed(starts[-1]), most
            why = f"the last step needs {count(needed, 'block')}, no step more than {at_most}"
        elif run.whole:
            at_most, why = 0, "it was admitted as a whole, and no other request takes blocks"
        if not is_answered_right(granted, needed, at_most, room):
            code = Code.ADMITTED_WITHOUT_SPACE if granted else Code.ALLOCATION_REFUSED
            if run.whole and start > 0 and not granted:
                code = Code.ADMISSION_NOT_KEPT
            answer = "it gets slots" if granted else "it gets none"
            return _evidence(run, start, Defect(code), why, answer)
        if not granted:
            break
    return None


def _evidence(run: _Run, start: int, defect: Defect, spec: str, actual: str) -> AdmissionEvidence:
    crash = defect.code is Code.RAISES_EXCEPTION
    kind = run.configuration.group.kind
    return AdmissionEvidence(
        Signature(ADMISSION, Divergence.CRASH if crash else Divergence.WASTE, kind, False, defect),
        run.configuration,
        spec,
        actual,
        (
            run.configuration.describe(),
            f"{count(run.room, 'block')} in the pool, besides the null block"
            + ("" if run.lacks is None else f"; before token {run.growing} others take some"),
            f"a request of {count(run.num_tokens, 'token')}, in steps of {run.chunk}"
            + (", to be admitted as a whole" if run.whole else ""),
            f"the step from token {start} on",
        ),
    )
