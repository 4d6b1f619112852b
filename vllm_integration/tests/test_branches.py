"""Which branches of vLLM's managers run while something is judged, and why others do not."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from rich.console import Console
from typer.testing import CliRunner

from hitproof.conformance.findings.footprints import place_of
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.plays import Origin, Play
from hitproof.conformance.histories.schema import (
    EngineConfiguration,
    Finish,
    History,
    Lookup,
    Preempt,
    RequestInput,
    Reset,
    Schedule,
    Step,
)
from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.bundled import BRANCHES, NOT_RUN
from hitproof.vllm_integration.commands import branches as command
from hitproof.vllm_integration.gate import branches
from hitproof.vllm_integration.gate.branches import (
    LEAVES,
    Measured,
    Reason,
    Share,
    keep,
    measure,
    on_record,
    reasons,
    shares,
)
from hitproof.vllm_integration.gate.gate import opened
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.branches import measured_json as branches_json
from hitproof.vllm_integration.reports.branches import print_measured
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.conftest import PLAIN, Copy, limits, release
from hitproof.vllm_integration.worker.branches import decisions_in

RECORDED = shares(BRANCHES)
FREE = "        self.coordinator.free(request.request_id)\n"
DEAD = '        if request.request_id == "nobody":\n            return\n'


@pytest.mark.parametrize("version", ["0.23.0", "0.33.0"])
def test_each_branch_on_record_that_does_not_run_has_a_reason(version: str) -> None:
    share = RECORDED[version]
    known = reasons(NOT_RUN, version)
    assert share.run + len(share.not_run) == share.total
    for branch, reason in share.not_run:
        given = next((each.reason for each in known if each.is_about(branch)), "")
        assert (branch.describe(), reason) == (branch.describe(), given)
        assert given, branch.describe()


def test_each_reason_is_about_a_branch_on_record() -> None:
    for version, share in RECORDED.items():
        for reason in reasons(NOT_RUN, version):
            if reason.releases.contains(Version(version)) and reason.releases != SpecifierSet():
                about = any(reason.is_about(branch) for branch, _ in share.not_run)
                assert about, f"{version}: {reason.describe()}"
    for reason in reasons(NOT_RUN, None):
        every = [branch for share in RECORDED.values() for branch, _ in share.not_run]
        assert any(map(reason.is_about, every)), reason.describe()


def test_a_share_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = tmp_path / "branches.json"
    record.write_text("{}\n")
    for share in RECORDED.values():
        keep(record, share)
    assert shares(record) == RECORDED
    assert record.read_text() == BRANCHES.read_text()


def test_a_code_is_decided_at_the_innermost_condition(tmp_path: Path) -> None:
    source = """def judge(self, seen):
    \"\"\"Judge.\"\"\"
    first = Code.HIT_TOO_LONG
    if seen:
        for each in seen:
            found = Code.HIT_TOO_SHORT if each else None
        while seen:
            yield Code.BLOCK_LEAKED
    match seen:
        case None:
            yield Code.KEY_LOST
    if seen.wrong:
        yield Code.KEYS_DISAGREE if seen.cached else Code.NULL_BLOCK_CACHED
        yield self.lost(seen)
    return [Code.EVENTS_WRONG for each in seen]

def lost(self, seen):
    return Code.EVENT_FORGETS_COPY
"""
    (tmp_path / "judge.py").write_text(source)
    found: dict[Code, list[int]] = {}
    for decided in decisions_in([tmp_path]).values():
        for code, lines in decided:
            found.setdefault(code, []).extend(sorted(lines))
    assert found == {
        Code.HIT_TOO_LONG: [3],
        Code.HIT_TOO_SHORT: [6],
        Code.BLOCK_LEAKED: [7],
        Code.KEY_LOST: [10],
        # A condition with a code either way says what is wrong, not whether.
        Code.KEYS_DISAGREE: [12],
        Code.NULL_BLOCK_CACHED: [12],
        Code.EVENTS_WRONG: [15],
        # A function that only says what is wrong: the condition is around its call.
        Code.EVENT_FORGETS_COPY: [18, 12],
    }


def test_a_share_without_a_reason_says_so() -> None:
    share = RECORDED["0.33.0"]
    branch, _ = share.not_run[0]
    unexplained = replace(share, not_run=[(branch, ""), *share.not_run[1:]])
    assert "have none" not in share.describe()
    assert unexplained.unexplained == [branch]
    assert unexplained.describe().endswith(", 1 have none")


def test_a_reason_file_that_cannot_be_read(tmp_path: Path) -> None:
    wrong = tmp_path / "reasons.toml"
    wrong.write_text('[[not_run]]\nfunction = "A.b"\n')
    with pytest.raises(LedgerError, match="has no 'reason'"):
        reasons(wrong, None)


def said(report: Report) -> str:
    file = StringIO()
    print_report(report, Console(file=file, width=300), verbose=False)
    return file.getvalue()


@pytest.mark.release
def test_check_reports_the_share_of_code_that_was_measured(broken_copy: Copy) -> None:
    target = resolve("0.33.0")
    share = on_record(BRANCHES, target)
    assert share == RECORDED["0.33.0"]
    report = Report(target, Profile.QUICK, branches=share)
    assert f"branches: {share.describe()}" in said(report)
    assert report_json(report)["branches"]["run"] == share.run
    fork = Target("fork", broken_copy("0.33.0", {FREE: DEAD + FREE}), "0.33.0")
    assert on_record(BRANCHES, fork) is None
    assert on_record(BRANCHES, replace(target, root=None)) is None
    assert on_record(BRANCHES, replace(target, managers=("m:C",))) is None
    report = Report(fork, Profile.QUICK)
    assert "branches: not measured for this code" in said(report)
    assert report_json(report)["branches"] is None


def measured(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *plays: Play,
    known: tuple[Reason, ...] = (),
    search: tuple[str, int] | None = None,
) -> Measured:
    monkeypatch.setattr(branches, "tasks", lambda *_: [])
    monkeypatch.setattr(branches, "histories", lambda *_: list(plays))
    run = Run(Target("fork", root, "0.33.0"), Profile.QUICK, limits=limits())
    return measure(run, known, lambda *_: None, search)


@pytest.mark.long
@pytest.mark.release
def test_a_branch_that_nothing_runs_is_seen(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = PLAIN, Play(Origin.GENERATED, "1:0"), Play(Origin.GENERATED, "1:1")
    root = broken_copy("0.33.0", {FREE: DEAD + FREE})
    condition = DEAD.split("\n")[0].strip()
    function = "KVCacheManager.free"
    never = Reason(function, condition, "return", 0, SpecifierSet(), "nobody has that name")
    runs = Reason(function, condition, "", 0, SpecifierSet(), "wrong")
    unused = Reason(function, "if True:", "", 0, SpecifierSet(), "gone")
    leaves = Reason(function, "", LEAVES, 1, SpecifierSet(), "no branch of it does")
    found = measured(root, monkeypatch, *plays, known=(never, runs, unused, leaves))
    assert not found.open_questions
    of_function = {b.describe(): reason for b, reason in found.share.not_run if never.is_about(b)}
    assert list(of_function.values()) == [never.reason]
    assert condition in next(iter(of_function))
    assert found.stale == [runs]
    assert found.unused == [unused, leaves]
    assert all(run < total for total, run in found.share.counts.values())
    assert found.new.keys() <= {each.describe() for each in plays}


@pytest.mark.long
@pytest.mark.release
def test_histories_are_distilled_that_add_a_branch(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition = "if request.num_preemptions > 1:"
    rare = f"        {condition}\n            request.num_preemptions += 0\n"
    root = broken_copy("0.33.0", {FREE: rare + FREE})
    steps: list[Step] = [Schedule("a", 3), Lookup("b"), Schedule("b")]
    steps += [Preempt("a"), Schedule("a"), Lookup("b")] * 2
    requests = {"a": RequestInput((1, 2, 3, 4), (5,)), "b": RequestInput((1, 2, 3, 6))}
    engine = EngineConfiguration((Group(GroupKind.FULL_ATTENTION, 2),), 20, 2, 16)
    rarely = History(engine, requests, (*steps, Finish("a"), Finish("b")))
    known = Play.written(rarely, "known")
    longer = replace(rarely, steps=(*rarely.steps, Lookup("a"), Reset()))
    never = replace(rarely, steps=rarely.steps[:2])
    several = [longer, rarely, never, rarely]
    tried = [Play.written(each, f"tried {number}") for number, each in enumerate(several)]
    monkeypatch.setattr(branches, "candidates", lambda *_: tried)
    found = measured(root, monkeypatch, PLAIN, search=("1", 0))
    assert not any(each.text == condition for each, _ in found.share.not_run)
    kept = [read(line) for line in found.distilled]
    assert longer in kept  # it alone resets
    assert kept.count(rarely) <= 1
    before = measured(root, monkeypatch, PLAIN)
    assert before.share.run < found.share.run
    assert any(each.text == condition for each, _ in before.share.not_run)
    found = measured(root, monkeypatch, PLAIN, known, search=("1", 0))
    assert [read(line) for line in found.distilled] == [longer]  # the ledger's do the rest


@pytest.mark.long
@pytest.mark.release
def test_a_history_with_a_finding_of_no_entry_is_not_distilled(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that never frees shows a leak in every history that ends a request."""
    root = broken_copy("0.33.0", {FREE: FREE.replace("self.", "pass  # self.", 1)})
    monkeypatch.setattr(branches, "candidates", lambda *_: [PLAIN])
    found = measured(root, monkeypatch, search=("1", 0))
    assert not found.distilled
    assert set(found.unlisted.values()) == {place_of(PLAIN)}
    assert branches_json(found)["unlisted_findings"] == found.unlisted
    file = StringIO()
    print_measured([found], Console(file=file, width=300), verbose=False)
    assert "not distilled, since no entry of the ledger has it: " in file.getvalue()


@pytest.mark.long
@pytest.mark.release
def test_what_another_target_shows_new_is_not_distilled(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy never frees, so that it leaks in what the release plays without a finding."""
    root = broken_copy("0.33.0", {FREE: FREE.replace("self.", "pass  # self.", 1)})
    monkeypatch.setattr(branches, "candidates", lambda *_: [PLAIN])
    found = measured(release("0.33.0"), monkeypatch, search=("1", 0))
    assert len(found.distilled) == 1
    for target, left in ((release("0.33.0"), found.distilled), (root, [])):
        of_it = Target("there", target, "0.33.0")
        with opened(Run(of_it, Profile.QUICK, limits=limits())) as sessions:
            there = found.excused_on("there", sessions, [], lambda *_: None)
        assert list(there.distilled) == list(left)
        assert any(what.startswith("there: ") for what in there.unlisted) is not bool(left)


@pytest.mark.long
@pytest.mark.release
def test_what_the_target_is_asked_about_itself_is_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measured(release("0.33.0"), monkeypatch).share.run == 0


@pytest.mark.release
def test_a_stale_reason_is_refused(
    broken_copy: Copy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(branches, "tasks", lambda *_: [])
    monkeypatch.setattr(branches, "histories", lambda *_: [PLAIN])
    known = tmp_path / "reasons.toml"
    known.write_text(
        '[[not_run]]\nfunction = "KVCacheManager.cache_blocks"\nreason = "nobody calls it"\n'
        '[[not_run]]\nfunction = "KVCacheManager.allocate_*"\nreason = "nobody calls it"\n'
    )
    monkeypatch.setattr(command, "NOT_RUN", known)
    ran = CliRunner().invoke(cli.app, ["branches", "--quick", "0.33.0"])
    assert ran.exit_code == 1
    said = " ".join(ran.output.split())
    assert "stale reason: KVCacheManager.allocate_* runs" in said
    # The history is of a manager: no scheduler is judged.
    _, _, undecided = said.partition("no case could have shown: ")
    assert Code.REQUEST_NEVER_FINISHES in undecided
    assert Code.REFERENCE_COUNT_WRONG not in undecided
    root = broken_copy("0.33.0", {FREE: DEAD + FREE})
    refused = CliRunner().invoke(cli.app, ["branches", "--record", str(root)])
    assert refused.exit_code == 2
    assert "is not a release" in refused.output


def test_what_is_on_record_is_shown() -> None:
    shown = CliRunner().invoke(cli.app, ["branches", "--format", "json"])
    found = json.loads(shown.output)
    assert [each["release"] for each in found] == list(RECORDED)
    text = CliRunner().invoke(cli.app, ["branches", "--verbose"])
    assert text.exit_code == 0
    branch, _ = RECORDED["0.33.0"].not_run[0]
    assert branch.describe() in text.output
    assert isinstance(RECORDED["0.33.0"], Share)
