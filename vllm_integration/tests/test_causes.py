"""One cause, one finding: changes, places, and what annotations say of them."""

import html
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.places import Location, Passed, Why
from hitproof.conformance.ledger.ledger import CauseStatus, Judgement
from hitproof.conformance.scope.configurations import single_group
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate.obligations import Task
from hitproof.vllm_integration.gate.places import located
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.sessions import Session
from hitproof.vllm_integration.reports.causes import causes, known_from, of
from hitproof.vllm_integration.reports.check import known_in_words, report_json
from hitproof.vllm_integration.reports.ci import github
from hitproof.vllm_integration.reports.html.pages import check_page
from hitproof.vllm_integration.survey import faults
from hitproof.vllm_integration.survey.faults import status_of
from hitproof.vllm_integration.targets.changed import Hunk, hunks
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import MANAGERS, Copy, limits, release
from hitproof.vllm_integration.tests.reports import conforming, entry, found, grown

FILE = "vllm/v1/core/managers.py"
SOURCE = '''\
"""Managers."""

LIMIT = 4


class Manager:
    fine = True

    def hit(self, length):
        # A comment.
        blocks = length // 2
        if blocks:
            blocks -= 1
        return blocks

    def free(self):
        return None
'''


def changed(tmp_path: Path, *edits: tuple[str, str]) -> list[tuple[int, int, str]]:
    new = SOURCE
    for old, text in edits:
        assert old in new
        new = new.replace(old, text)
    for root, source in (("base", SOURCE), ("head", new)):
        file = tmp_path / root / FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    found = hunks(tmp_path / "base", tmp_path / "head")
    assert all(hunk.path == FILE for hunk in found)
    return [(hunk.line, hunk.stop, hunk.function) for hunk in found]


@pytest.mark.parametrize(
    ("edit", "hunk"),
    [
        (("// 2", "// 3"), (11, 12, "Manager.hit")),
        (("        if blocks:\n            blocks -= 1\n", ""), (12, 12, "Manager.hit")),
        (("fine = True", "fine = False"), (7, 8, "Manager")),
        (("LIMIT = 4", "LIMIT = 5"), (3, 4, "")),
        (("blocks -= 1\n", "blocks -= 1\n            # why\n            blocks -= 1\n"), None),
        (("# A comment.", "# Another."), None),
        (("        return None", "\n        return None"), None),
    ],
)
def test_a_hunk_has_its_lines_and_its_function(
    edit: tuple[str, str], hunk: tuple[int, int, str] | None, tmp_path: Path
) -> None:
    told = changed(tmp_path, edit)
    if "why" in edit[1]:
        hunk = (15, 16, "Manager.hit")
    assert told == ([hunk] if hunk else [])


def test_files_that_do_not_parse_are_left_out(tmp_path: Path) -> None:
    assert not changed(tmp_path, ("return None", "return None)"))


def shown(lines: Sequence[int], **more: object) -> Finding:
    (_, (first, *_)) = found()
    where = Location(FILE, 12, "Manager.hit", Why.BRANCH)
    passed = Passed(where, tuple((FILE, line) for line in lines))
    return replace(first, passed=passed, **more)  # type: ignore[arg-type]  # what tests vary


def hunk(line: int, stop: int, function: str = "Manager.hit") -> Hunk:
    return Hunk(FILE, line, stop, function)


FREE, LIMIT, FINE = hunk(17, 18, "Manager.free"), hunk(3, 4, ""), hunk(7, 8, "Manager")


@pytest.mark.parametrize(
    ("lines", "changes", "line", "why"),
    [
        ([11, 12], [], 12, Why.BRANCH),
        ([11, 12], [hunk(11, 12)], 11, Why.CHANGED),
        ([11, 12, 13], [hunk(11, 12), hunk(13, 14)], 13, Why.CHANGED),
        ([11, 13, 12], [hunk(12, 13), hunk(13, 14)], 12, Why.CHANGED),
        ([10, 11], [hunk(12, 12)], 12, Why.CHANGED),  # what is only gone
        ([10, 11], [hunk(12, 12), hunk(10, 11)], 10, Why.CHANGED),
        ([11, 12], [FREE], 12, Why.BRANCH),  # not run
        ([11, 12], [LIMIT, FINE], 12, Why.BRANCH),  # in no function
        ([11, 17, 12], [FREE], 17, Why.CALLED),
        ([11, 12, 17], [FREE, hunk(10, 10)], 10, Why.CHANGED),
        ([11, 12, 17], [FREE, hunk(10, 10, "Manager.hit.inside")], 10, Why.CHANGED),
        ([], [FREE], 17, Why.ONLY),
        ([], [FREE, hunk(11, 12)], 12, Why.BRANCH),
    ],
)
def test_a_finding_is_at_the_change_of_what_decides(
    lines: list[int], changes: list[Hunk], line: int, why: Why
) -> None:
    finding = shown(lines)
    passed = replace(finding.passed, decisive=len(lines))
    where = located(replace(finding, passed=passed), changes).location
    assert where is not None
    assert (where.line, where.why) == (line, why)


def test_a_change_of_what_is_run_around_the_judged_function_does_not_decide() -> None:
    finding = shown([17, 11, 12])
    for decisive, changes, line, why in (
        (2, [FREE], 12, Why.BRANCH),
        (2, [FREE, hunk(11, 12)], 11, Why.CHANGED),
        (3, [FREE], 17, Why.CALLED),
    ):
        passed = replace(finding.passed, decisive=decisive)
        where = located(replace(finding, passed=passed), changes).location
        assert where is not None
        assert (where.line, where.why) == (line, why)


def at(line: int, function: str, why: Why = Why.BRANCH, code: Code = Code.HIT_UNALIGNED) -> Finding:
    finding = shown([line])
    return replace(
        finding,
        signature=replace(finding.signature, defect=Defect(code)),
        passed=Passed(Location(FILE, line, function, why)),
    )


def test_what_one_change_is_responsible_for_is_one_cause() -> None:
    one, other = Code.HIT_UNALIGNED, Code.HIT_OFF_BOUNDARY
    by_change = [at(3, "f", Why.CHANGED, one), at(3, "f", Why.CHANGED, other)]
    assert len(causes(by_change, None)) == 1
    assert len(causes([at(3, "f", Why.CHANGED), at(4, "f", Why.CHANGED)], None)) == 2


def test_one_code_that_one_function_decides_is_one_cause() -> None:
    assert len(causes([at(3, "f"), at(4, "f")], None)) == 1
    assert len(causes([at(3, "f"), at(3, "g")], None)) == 2
    assert len(causes([at(3, "f"), at(3, "f", code=Code.HIT_OFF_BOUNDARY)], None)) == 2
    worst, more = shown([1]), replace(at(4, "f"), passed=Passed())
    (first, second) = causes([worst, more], None)
    assert (first.worst, first.others, second.worst) == (worst, "", more)


def test_a_fault_of_another_release_is_named() -> None:
    documented = faults.load()
    fault = next(each for each in documented if each.signatures)
    signature = min(fault.signatures, key=str)
    numbers = {each.number for each in documented if signature in each.signatures}
    finding = replace(shown([1]), signature=signature)
    assert {each.number for each in known_from(signature, None)} == numbers
    (cause,) = causes([finding], "99.0")
    assert f"BUGS {min(numbers)}, seen in " in cause.fault
    text = github.annotations(
        replace(conforming(), judgement=Judgement((finding,), (), ())), verbose=False
    )
    assert f"fault : BUGS {min(numbers)}" in text
    assert not known_from(of(at(1, "f")), "0.33.0")


def crowded(number: int) -> Report:
    several = [at(n, f"f{n}") for n in range(number) for _ in range(3)]
    new = tuple(several)
    return replace(conforming(), judgement=Judgement(new, (), (entry(several[0]),)))


def test_there_are_at_most_ten_annotations() -> None:
    text = github.annotations(crowded(12), verbose=True)
    verdict, *rest = text.splitlines()
    assert verdict == "vLLM fork: diverges, 12 new findings of 36 signatures"
    assert sum(line.startswith("::") for line in rest) == 10
    assert "2 annotations left out" in text
    few = github.annotations(crowded(2), verbose=False)
    assert few.count("::error ") == 2
    assert "and 2 more findings of this cause (lost hit: 2)" in few


def test_stale_entries_are_not_spoken_of_while_there_is_something_new() -> None:
    assert "stale" not in github.annotations(crowded(1), verbose=True)
    without = replace(crowded(1), judgement=Judgement((), (), crowded(1).judgement.stale))
    assert "stale" in github.annotations(without, verbose=True)


@pytest.mark.long
@pytest.mark.release
@pytest.mark.slow
def test_a_fault_of_many_signatures_is_one_finding_at_the_changed_line(broken_copy: Copy) -> None:
    beside = "        num_new_blocks = num_required_blocks - len(req_blocks)\n"
    edits = {
        "shift = 1 if use_eagle else 0": "shift = 0",
        beside: f"{beside}        del num_tokens\n",
    }
    root = broken_copy("0.33.0", edits)
    configuration = single_group(GroupKind.SLIDING_WINDOW, 1, 3, 2, True, 7)
    task = Task("mask_keeps_every_reachable_block", configuration)
    target = Target("fork", root, "0.33.0")
    with closing(Session.of(target, limits())) as session:
        evidence = session.settle(task, keep_facts=False).evidence
        smallest = {each.signature: each for each in evidence}.values()
        findings = [session.finding(each, f"case_{n}") for n, each in enumerate(smallest)]
    text = (root / MANAGERS).read_text().splitlines()
    line = next(number for number, text in enumerate(text, 1) if text.strip() == "shift = 0")

    changes = hunks(release("0.33.0"), root)
    (cause,) = causes([located(finding, changes) for finding in findings], "0.33.0")
    assert len(cause.findings) > 1
    where = cause.worst.location
    assert where == Location(
        MANAGERS, line, "SlidingWindowManager.reachable_block_mask", Why.CHANGED
    )

    # What changed in another function that is run did not decide, though.
    near = [each for each in changes if each.function.endswith("allocate_new_blocks")]
    assert near
    others = [located(finding, near) for finding in findings]
    # Without a release to compare with, the function that decides is still known.
    for finding in [*findings, *others]:
        assert finding.location is not None
        assert (finding.location.function, finding.location.why) == (where.function, Why.BRANCH)
        assert "if " in text[finding.location.line - 1]


def test_the_case_of_a_cause_is_new_rather_than_grown() -> None:
    (has_grown,) = grown().judgement.new
    where = Location(FILE, 3, "f", Why.CHANGED)
    older, newer = (replace(each, passed=Passed(where)) for each in (has_grown, shown([1])))
    (cause,) = causes([older, newer], None)
    assert cause.findings == (newer, older)


def test_known_divergences_are_counted_by_the_status_of_their_cause() -> None:
    shown = [at(n, f"f{n}") for n in range(4)]
    entries = tuple(
        (each, replace(entry(each), cause=f"{status}", status=status))
        for each, status in zip(shown, (None, *CauseStatus), strict=False)
    )
    report = replace(conforming(), judgement=Judgement((), entries, ()))
    told = (
        "4 known divergences: 2 of 2 faults (lost hit: 2), 1 of 1 upstream choice, "
        "1 of 1 limit of the design"
    )
    assert known_in_words(report) == told
    assert f"conforms, {told}" in github.annotations(report, verbose=False)
    assert "known upstream's choice: " in github.annotations(report, verbose=True)
    assert told in html.unescape(check_page(report, "c"))
    counted = {each["cause"]: each["status"] for each in report_json(report)["known_causes"]}
    assert list(counted.values()) == [CauseStatus.FAULT, *CauseStatus]
    assert {e["status"] for e in report_json(report)["known_divergences"]} == {*CauseStatus}
    assert "known limit of the design: " in github.annotations(report, verbose=True)


def test_an_entry_has_the_status_of_the_fault_that_it_names_unless_it_states_its_own() -> None:
    named = {fault.title: fault.status for fault in faults.load()}
    for title, status in named.items():
        of_fault = replace(entry(at(1, "f")), cause=title)
        assert status_of(of_fault) is status
        assert status_of(replace(of_fault, status=CauseStatus.LIMIT)) is CauseStatus.LIMIT
    assert status_of(entry(at(1, "f"))) is CauseStatus.FAULT
