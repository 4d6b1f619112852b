"""Hunks: without any one of a patch something is found that the whole patch removes."""

import ast
import tomllib
from collections.abc import Set
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.workloads import (
    Arrival,
    Connector,
    Deployment,
    SchedulerHistory,
)
from hitproof.conformance.ledger.ledger import load
from hitproof.conformance.ledger.records import choose, read
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.fine import HitGranularity
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.patches import RELEASE, Fix, all_fixes
from hitproof.vllm_integration.fixes.verifying import near, patched
from hitproof.vllm_integration.gate.obligations import Task, histories, tasks
from hitproof.vllm_integration.gate.selection import Selection
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import limits, release

FIXES = [fix for fix in all_fixes() if fix.num_hunks > 1]
ELSEWHERE = tomllib.loads((Path(__file__).parent / "cases/hunks.toml").read_text("utf-8"))
"""Places that show hunks which no place of the ledger shows, by hunk."""
Place = Task | Play


def code(text: str) -> str:
    """A module without comments, docstrings and annotations of attributes."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def stored_by(num_tokens: int, *, umbp: bool) -> SchedulerHistory:
    """A prompt of steps of 9 tokens whose last block another request hits in a store."""
    names = ("a", "b", "c")
    lengths = dict(zip(names, (num_tokens, num_tokens + 9, num_tokens + 11), strict=True))
    # UMBP saves a block anew unless another request of the step saves it.
    before = dict(zip(names, (None, None if umbp else "a", "b"), strict=True))
    deployment = Deployment(
        groups=(Group(kind=GroupKind.FULL_ATTENTION, block_size=4, eagle=True),),
        num_gpu_blocks=60,
        max_model_len=32,
        max_num_batched_tokens=64,
        long_prefill_token_threshold=9,
        speculative_method="mtp",
        num_speculative_tokens=3,
        num_mtp_modules=3,
        connector=Connector(store=True, umbp=umbp),
    )
    requests = {
        name: Arrival(
            prompt=tuple(range(1, length + 1)),
            output=tuple(range(length + 1, length + 4)),
            after=before[name],
            arrives=3 if before[name] else 0,
            after_reset=bool(before[name]),
        )
        for name, length in lengths.items()
    }
    return SchedulerHistory(deployment, requests)


STORED = [
    Play.written_workload(stored_by(length, umbp=umbp), f"stored {length}")
    for umbp in (False, True)
    for length in (8, 16)
]


@cache
def of_profile() -> tuple[list[Task], list[Play]]:
    """What the quick profile judges."""
    entries = [entry for entry in load(LEDGER) if entry.is_judged_on(RELEASE)]
    record = choose(read(LEDGER), RELEASE)
    played = histories(Profile.QUICK, entries, HitGranularity.FINE, record)
    return tasks(Profile.QUICK, entries), played


def chosen(selection: Selection) -> list[Place]:
    todo, played = of_profile()
    return [*selection.histories(played), *selection.tasks(todo)]


def places(fix: Fix, hunk: int) -> list[Place]:
    """Where the fix's faults show, and where the hunk does."""
    own = [*chosen(near([fix]).selection), *(STORED if fix.number == 181 else ())]
    shows = ELSEWHERE.get(f"{fix.number}:{hunk}", "")
    if shows.startswith("{"):
        return [Play(Origin.WRITTEN, "a hunk", shows), *own]
    return [*chosen(Selection(configurations=(shows,))), *own] if shows else own


class Found:
    """What the release with a fix shows, place by place."""

    def __init__(self, fix: Fix, tree: Path) -> None:
        target = Target(f"a tree with {fix.number}", tree, RELEASE, inferred="its fixes")
        self._session = Session.of(target, limits(300.0))
        self._found: dict[Place, Set[Signature | str]] = {}

    def at(self, place: Place) -> Set[Signature | str]:
        """What is found, and why something could not be judged."""
        if place not in self._found:
            if isinstance(place, Play):
                played = self._session.play(place)
                why = {played.unsettled} - {""}
                self._found[place] = {*played.signatures} | why
            else:
                settled = self._session.settle(place, keep_facts=False)
                why = {each.detail for each in settled.obligations} - {""}
                self._found[place] = {each.signature for each in settled.evidence} | why
        return self._found[place]

    def close(self) -> None:
        self._session.close()


def shown(fix: Fix, hunk: int, whole: Found) -> bool:
    """Whether something is found without a hunk that the whole patch removes."""
    with (
        patched(release(RELEASE), [fix.without_hunk(hunk)]) as tree,
        closing(Found(fix, tree)) as fewer,
    ):
        return any(fewer.at(place) - whole.at(place) for place in places(fix, hunk))


def does_nothing(fix: Fix, hunk: int, tree: Path) -> bool:
    """Whether a hunk is of a comment or a test only, ``tree`` having all of them."""
    with patched(release(RELEASE), [fix.without_hunk(hunk)]) as other:
        own = [path for path in fix.paths if path.startswith("vllm/")]
        texts = [[code((root / path).read_text()) for path in own] for root in (tree, other)]
    return texts[0] == texts[1]


@pytest.mark.long(keep=1)
@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("fix", FIXES, ids=[f"fix {fix.number}" for fix in FIXES])
def test_no_hunk_does_nothing(fix: Fix) -> None:
    with (
        patched(release(RELEASE), [fix]) as tree,
        closing(Found(fix, tree)) as whole,
    ):
        assert not [
            hunk
            for hunk in range(fix.num_hunks)
            if not does_nothing(fix, hunk, tree) and not shown(fix, hunk, whole)
        ]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.release
def test_stores_wait_until_draft_entries_are_settled() -> None:
    (fix,) = (fix for fix in FIXES if fix.number == 181)
    with patched(release(RELEASE), [fix]) as tree:
        for root, found in ((release(RELEASE), True), (tree, False)):
            with closing(Found(fix, root)) as each:
                assert {bool(each.at(play)) for play in STORED} == {found}
