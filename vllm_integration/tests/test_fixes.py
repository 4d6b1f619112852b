"""Fixes: they apply, say what they do, leave a tree with changes alone, and remove their faults."""

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import CauseStatus, Judgement, load
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.tests.editing import programs
from hitproof.spec.claims import CLAIMS
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.bundled import LEDGER, SURVEY
from hitproof.vllm_integration.fixes.patches import (
    RELEASE,
    UNFIXED,
    Fix,
    FixError,
    all_fixes,
    named,
    touched,
)
from hitproof.vllm_integration.fixes.suites import Suites, compared, outcomes, pinned, suites
from hitproof.vllm_integration.fixes.trees import apply, linked
from hitproof.vllm_integration.fixes.verifying import (
    Verified,
    near,
    of_report,
    pairs,
    verify,
)
from hitproof.vllm_integration.gate.obligations import tasks
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import EVERYTHING, Wanted
from hitproof.vllm_integration.reports.fixes import print_remaining, shown, upstream
from hitproof.vllm_integration.survey.faults import load as load_faults
from hitproof.vllm_integration.survey.survey import read as read_survey
from hitproof.vllm_integration.tests.conftest import limits, release
from hitproof.vllm_integration.tests.reports import (
    changed_policy,
    conforming,
    diverging,
    inconclusive,
    unprobed,
)
from hitproof.vllm_integration.verdict import Verdict

FIXES = all_fixes()
ONE = FIXES[0]
IDS = [f"fix {fix.number}" for fix in FIXES]
survey = cache(read_survey)
_ADDED = re.compile(r"^\+(?!\+\+ )(.*)$", re.MULTILINE)


def fixes(*words: object) -> Result:
    """What `hitproof fixes` says in this process."""
    return CliRunner().invoke(cli.app, ["fixes", *map(str, words)])


def refused(*words: object) -> str:
    """The sentence with which a usage error ends."""
    result = fixes(*words)
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("hitproof: "))
    assert (result.exit_code, "Traceback" in result.output) == (2, False)
    return line.removeprefix("hitproof: ")


# --- what they say


def test_there_are_fixes() -> None:
    assert {6, 9} <= {fix.number for fix in FIXES}
    assert named(()) == FIXES
    assert [fix.number for fix in named([9, 6, 9])] == [6, 9]


@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_a_fix_removes_what_the_ledger_has_of_a_fault(fix: Fix) -> None:
    assert fix.entries
    assert {each.status for each in fix.faults} == {CauseStatus.FAULT}
    assert {entry.cause for entry in fix.entries} == {each.title for each in fix.faults}
    assert fix.classes
    assert fix.codes


@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_a_fix_is_written_as_vllm_is(fix: Fix) -> None:
    tree = ast.parse(fix.test)
    assert [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    long = [line for line in [*_ADDED.findall(fix.patch), *fix.test.splitlines()] if len(line) > 88]
    assert long == []
    assert any(path.startswith("vllm/") for path in fix.paths)
    assert all(path.startswith(("vllm/", "tests/")) for path in fix.paths)
    assert fix.test_file.startswith("tests/")


@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_what_is_shown(fix: Fix) -> None:
    text, issue = shown(fix), upstream(fix, survey(SURVEY))
    for each in (text, issue):
        assert all(part.strip() in each for part in (fix.patch, fix.test, fix.title))
        assert all(fault.reach.partition("\n")[0] in each for fault in fix.faults)
    assert all(code in text for code in fix.codes)
    assert issue.startswith(f"# {fix.title}\n")
    _, *sections = re.split(r"^## ", issue, flags=re.MULTILINE)
    headings, bodies = zip(*(each.split("\n", 1) for each in sections), strict=True)
    assert headings == ("What is wrong", "Cause", "Reproduction", "Change")
    assert all(len(body.split()) > 2 for body in bodies)
    parts = re.findall(r"\*\*([A-Z].*?)\.\*\* \S+", issue)
    needed = {"Impact", "Trigger", "Affected configurations", "Affected releases", "Cost"}
    assert needed <= {*parts}
    prose = re.sub(r"^```.*?^```$", "", issue, flags=re.DOTALL | re.MULTILINE)
    # Numbers of ours say nothing to a reader of vLLM's issues.
    assert not re.findall(r"\b(?:faults?|BUGS|as in) \d+|hitproof", prose)
    affected = re.findall(r"^\*\*Affected releases\.\*\* (.*)\.$", issue, re.MULTILINE)
    assert len(affected) == len(fix.faults)
    assert all(f"- `{path}:{line}`\n" in issue for path, line in fix.causes)
    assert all(RELEASE in each for each in affected)
    assert fix.causes


@pytest.mark.release
@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_hunks_begin_at_the_lines_that_they_say(fix: Fix) -> None:
    causes = iter(fix.causes)
    for file in re.split(r"^(?=--- a/)", fix.patch, flags=re.MULTILINE)[1:]:
        (path,) = touched(file)
        text = (release(RELEASE) / path).read_text().splitlines()
        for first, hunk in re.findall(r"^@@ -(\d+).*\n((?:[ +-].*\n)*)", file, re.MULTILINE):
            lines = hunk.splitlines()
            before = [line[1:] for line in lines if not line.startswith("+")]
            begin = int(first) - 1
            assert text[begin : begin + len(before)] == before
            changed = next(n for n, line in enumerate(lines) if not line.startswith(" "))
            if path.startswith("vllm/") and not lines[changed][1:].startswith(("import ", "from ")):
                assert next(causes) == (path, begin + changed + 1)
    assert not [*causes]


def test_list_and_show() -> None:
    listed = fixes("list").output
    assert all(re.search(rf"│ {fix.number}\b", listed) for fix in FIXES)
    assert len(json.loads(fixes("list", "--format", "json").output)) == len(FIXES)
    formats = {
        form: fixes("show", ONE.number, "--format", form).output
        for form in ("text", "upstream", "patch", "json")
    }
    assert formats["text"] == shown(ONE) + "\n"
    assert formats["upstream"] == upstream(ONE, survey(SURVEY))
    assert formats["patch"] == ONE.patch
    assert json.loads(formats["json"])["patch"] == ONE.patch


def test_a_hunk_is_left_out() -> None:
    hunks = "@@ -1 +1 @@\n-a\n+b\n", "@@ -5 +5 @@ def f():\n-c\n+d\n"
    first, second = "--- a/x.py\n+++ b/x.py\n", "--- a/y.py\n+++ b/y.py\n"
    fix = replace(ONE, patch=first + hunks[0] + hunks[1] + second + hunks[0])
    assert (fix.num_hunks, fix.paths) == (3, ("x.py", "y.py"))
    assert [fix.without_hunk(number).patch for number in range(3)] == [
        first + hunks[1] + second + hunks[0],
        first + hunks[0] + second + hunks[0],
        first + hunks[0] + hunks[1],
    ]


# --- trees


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of the release in which the files that fixes touch are copies."""
    root = tmp_path / "tree"
    linked(release(RELEASE), root, {path for fix in FIXES for path in fix.paths})
    return root


def texts(root: Path) -> dict[str, str]:
    """The files that fixes touch."""
    return {path: (root / path).read_text() for fix in FIXES for path in fix.paths}


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True)


@pytest.mark.release
@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_each_applies_alone(fix: Fix, tree: Path) -> None:
    before = texts(tree)
    apply(tree, [fix])
    after = texts(tree)
    assert {path for path in before if before[path] != after[path]} == {*fix.paths}
    for path in fix.paths:
        ast.parse(after[path])
    assert texts(release(RELEASE)) == before


@pytest.mark.release
def test_all_apply_together(tree: Path) -> None:
    result = fixes("apply", tree)
    assert result.exit_code == 0, result.output
    assert "".join(result.output.split()).endswith(f"({','.join(IDS)})".replace("fix ", ""))
    for path, text in texts(tree).items():
        ast.parse(text, path)
    assert "has changes that are not committed; " in refused("apply", tree, ONE.number)
    with pytest.raises(FixError, match=f" has fix {ONE.number} already; leave {ONE.number} out"):
        apply(tree, [ONE])


@pytest.mark.release
def test_a_copy_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hitproof.vllm_integration.fixes.trees.UNPACKED", ["PKG-INFO"])
    (tmp_path / "there").mkdir()
    assert "there is there already; " in refused("apply", RELEASE, "--to", tmp_path / "there")
    deep = tmp_path / "no" / "such"
    assert "directory that does not exist" in refused("apply", RELEASE, "--to", deep)
    new = tmp_path / "new"
    assert "does not apply" in refused("apply", RELEASE, "--to", new, ONE.number)  # no code in it
    assert [each.name for each in new.iterdir()] == ["PKG-INFO"]


@pytest.mark.release
def test_what_is_no_tree_of_the_release(tmp_path: Path, tree: Path) -> None:
    assert "no/tree is not a directory; " in refused("apply", "no/tree")
    assert "is not a vLLM checkout" in refused("apply", tmp_path)
    assert "0.32.0" in refused("apply", tree, "--release", "0.32.0")
    assert "hitproof's cache; apply the fixes to a copy" in refused("apply", release(RELEASE))
    assert refused("apply", "installed", "--to", tmp_path / "new").startswith("the installed vLLM")


@pytest.mark.release
@pytest.mark.parametrize("in_git", [False, True])
def test_a_tree_with_changes_is_left_alone(in_git: bool, tree: Path) -> None:
    path = tree / ONE.paths[0]
    if in_git:
        git(tree, "init", "-q")
        git(tree, "add", "-f", *texts(tree), "PKG-INFO")
        git(tree, "commit", "-qm", "all")
    path.write_text(path.read_text() + "# mine\n")
    before = texts(tree)
    assert "has changes that are not committed; " in refused("apply", tree, ONE.number)
    assert texts(tree) == before
    if in_git:
        git(tree, "commit", "-qam", "mine")
        assert fixes("apply", tree, ONE.number).exit_code == 0
        assert path.read_text().endswith("# mine\n")


KILLED = """
import os, sys
from pathlib import Path
replace, left = Path.replace, [int(sys.argv.pop(1))]

def at_last(self, target):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return replace(self, target)

Path.replace = at_last
from hitproof.vllm_integration.cli import app
app(["fixes", "apply", *sys.argv[1:]])
"""
"""Apply fixes, and be killed after that many files."""


@pytest.mark.release
@pytest.mark.parametrize(("in_git", "num_files"), [(False, 0), (False, 2), (True, 3)])
def test_what_is_killed_goes_on_where_it_was(in_git: bool, num_files: int, tree: Path) -> None:
    if in_git:
        git(tree, "init", "-q")
        git(tree, "add", "-f", *texts(tree), "PKG-INFO")
        git(tree, "commit", "-qm", "all")
    before = texts(tree)
    script = [sys.executable, "-c", KILLED, str(num_files), str(tree)]
    killed = subprocess.run(script, capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr.decode()
    half = texts(tree)
    assert sum(half[path] != before[path] for path in before) == num_files
    assert fixes("apply", tree).exit_code == 0
    whole = texts(tree)
    assert all(half[path] in {before[path], whole[path]} for path in before)
    assert not [*tree.rglob("*.hitproof")]
    assert fixes("apply", tree).exit_code == 0
    assert texts(tree) == whole


@pytest.mark.release
def test_what_is_linked_is_left_alone(tmp_path: Path) -> None:
    linked(release(RELEASE), tmp_path / "tree", {"PKG-INFO"})
    before = texts(release(RELEASE))
    with pytest.raises(FixError, match="is a link; apply the fixes to a copy with --to"):
        apply(tmp_path / "tree", FIXES)
    assert texts(release(RELEASE)) == before


@pytest.mark.release
def test_a_patch_that_does_not_apply(tree: Path) -> None:
    first, second = FIXES[0], FIXES[1]
    path = tree / second.paths[0]
    before = texts(tree)
    broken = "# another module\n"
    path.write_text(broken)
    with pytest.raises(FixError, match=f"fix {second.number} does not apply to .*; name a tree"):
        apply(tree, [first, second])
    assert texts(tree) == before | {second.paths[0]: broken}


# --- what a check says


def test_what_is_left_or_new_is_no_fix() -> None:
    other = FIXES[1].entries[0]
    (found, *_) = diverging().judgement.new

    def verified(judgement: Judgement, report: Report) -> Verified:
        return of_report([ONE], replace(report, judgement=judgement))

    fixed = verified(Judgement((), ((found, other),), ONE.entries), conforming())
    assert (fixed.verdict, fixed.gone, fixed.left) == (Verdict.CONFORMS, ONE.entries, ())
    assert fixed.remaining == {other.cause: 1}
    more = verified(Judgement((), (), (*ONE.entries, other)), conforming())
    assert (more.verdict, more.gone, more.also) == (Verdict.CONFORMS, ONE.entries, (other,))
    first, *others = ONE.entries
    left = verified(Judgement((), ((found, first),), tuple(others)), conforming())
    assert (left.verdict, left.left) == (Verdict.DIVERGES, (first,))
    new = verified(Judgement((found,), (), ONE.entries), conforming())
    assert (new.verdict, new.new) == (Verdict.DIVERGES, (found,))
    for report in (inconclusive(), unprobed()):
        unsettled = verified(Judgement((), (), ONE.entries), report)
        assert (unsettled.verdict, bool(unsettled.detail)) == (Verdict.INCONCLUSIVE, True)
    assert verified(Judgement((), (), ()), conforming()).verdict is Verdict.INCONCLUSIVE
    told = replace(changed_policy(), judgement=Judgement((), (), ONE.entries))
    assert of_report([ONE], told).verdict is Verdict.INCONCLUSIVE


def test_only_a_fix_that_leaves_tiers_alone_may_leave_their_copy() -> None:
    """6 changes a coordinator, whose code the Mooncake store has once more; 129 changes a tier."""
    (found, *_) = diverging().judgement.new
    for number, verdict in ((6, Verdict.CONFORMS), (129, Verdict.DIVERGES)):
        (fix,) = named([number])
        of_tier = next(e for e in fix.entries if e.signature.claim.startswith("tier_"))
        gone = tuple(entry for entry in fix.entries if entry != of_tier)
        report = replace(conforming(), judgement=Judgement((), ((found, of_tier),), gone))
        verified = of_report([fix], report)
        assert (verified.verdict, bool(verified.copies)) == (verdict, number == 6)


def test_only_what_a_fix_names_may_grow() -> None:
    fix = next(fix for fix in FIXES if fix.uncovered)
    known = fix.uncovered[0].signature
    defect = Defect.of(Code.KNOWN_DIVERGENCE_GROWN, extent="more", of=str(known.defect))
    (found, *_) = diverging().judgement.new
    grown = replace(found, signature=replace(known, defect=defect))

    def verified(fix: Fix, found: Finding) -> Verified:
        judgement = Judgement((found,), (), fix.entries)
        return of_report([fix], replace(conforming(), judgement=judgement))

    said = verified(fix, grown)
    assert (said.verdict, said.grown, said.new) == (Verdict.CONFORMS, (grown,), ())
    other = replace(grown, signature=replace(grown.signature, kind="another"))
    silent = next(fix for fix in FIXES if not fix.uncovered)
    for each, finding in ((silent, grown), (fix, other), (fix, found)):
        unsaid = verified(each, finding)
        assert (unsaid.verdict, unsaid.new) == (Verdict.DIVERGES, (finding,))


def test_verify_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command, with a check that finds one entry of the first fix when that is alone."""
    (found, *_) = diverging().judgement.new

    def judged(run: Run, _: object) -> Report:
        alone = run.target.name.endswith(f"with fix {ONE.number}")
        entries = tuple(entry for fix in FIXES[:2] for entry in fix.entries)
        kept = entries[:1] if alone else ()
        gone = tuple(entry for entry in entries if entry not in kept)
        known = tuple((found, entry) for entry in kept)
        return replace(conforming(), judgement=Judgement((), known, gone))

    verifying = "hitproof.vllm_integration.fixes.verifying"
    monkeypatch.setattr(f"{verifying}.check", judged)
    monkeypatch.setattr(f"{verifying}.load", lambda _: ())
    monkeypatch.setattr(f"{verifying}.read", lambda _: {})
    numbers = [fix.number for fix in FIXES[:2]]
    result = fixes("verify", *numbers)
    assert result.exit_code == 1
    first, left, changes, second, _, both, _, rest, *kept = result.output.splitlines()
    assert re.match(r"  changes HybridKV\w+.find_longest_cache_hit; \d+ functions may ", changes)
    assert first.startswith(f"fix {numbers[0]}: diverges; {len(ONE.entries) - 1} of ")
    assert left == f"  left: {ONE.entries[0].signature.headline}"
    assert second.startswith(f"fix {numbers[1]}: conforms; ")
    assert both.startswith(f"2 fixes ({numbers[0]}, {numbers[1]}): conforms; ")
    assert rest.endswith("0.33.0 still has 0 known divergences of 0 causes")
    assert kept == ["0 upstream choices:", "0 limits of the design:", "0 faults:"]
    assert fixes("verify", *numbers, "--together").exit_code == 0
    described = json.loads(fixes("verify", numbers[0], "--format", "json").output)
    assert [each["verdict"] for each in described] == ["diverges"]


def test_what_is_left_is_said_with_a_reference_or_a_reason() -> None:
    """A choice names what says so, a fault why it has no fix, if there is a reason."""
    known = [entry for entry in load(LEDGER) if entry.applies_to(RELEASE)]
    fixed = {entry for fix in FIXES for entry in fix.entries}
    kept = {entry.cause: 1 for entry in known if entry not in fixed}
    console = Console(width=300)
    with console.capture() as printed:
        print_remaining(Verified(FIXES, (), (), (), (), kept, (), ()), console)
    _, *lines = printed.get().splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == len(CauseStatus)
    for fault in load_faults():
        if fault.title in kept:
            (line,) = (line for line in lines if f" {fault.number}. " in line)
            assert line.endswith(f" of {RELEASE})") == (fault.status is not CauseStatus.FAULT)
            assert UNFIXED.get(fault.number, "") in line


@pytest.mark.release
def test_pairs_change_the_same_function() -> None:
    found = pairs(release(RELEASE), named([6, 9, 43, 61, 73]))
    assert [(one.number, other.number) for one, other in found] == [(9, 43), (61, 73)]


@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_a_fix_alone_is_checked_where_its_faults_show(fix: Fix) -> None:
    selection, places = near([fix]).selection, {entry.configuration for entry in fix.entries}
    plays = {each for each in places if isinstance(each, Play)}
    assert {*selection.histories(list(plays))} == plays
    todo = tasks(Profile.QUICK, fix.entries)
    assert {task.configuration for task in selection.tasks(todo)} >= places - plays
    assert len(selection.tasks(todo)) < len(todo) / 2
    assert selection.claims == {*CLAIMS}


def verified_now(*some: Fix, wanted: Wanted = EVERYTHING) -> Verified:
    own = release(RELEASE)
    return verify(own, some, Profile.QUICK, limits(300.0), lambda *_: None, wanted)


@pytest.mark.long(keep=1)
@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_a_check_finds_the_fault_no_more(fix: Fix) -> None:
    assert verified_now(fix, wanted=near([fix])).verdict is Verdict.CONFORMS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.release
def test_a_check_finds_nothing_new_with_all_fixes() -> None:
    assert verified_now(*FIXES).verdict is Verdict.CONFORMS


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("fix", FIXES, ids=IDS)
def test_its_test_fails_without_it_and_passes_with_it(fix: Fix, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    linked(release(RELEASE), root, {*fix.paths, fix.test_file})
    with (root / fix.test_file).open("a") as suite:
        suite.write(f"\n\n{fix.test.strip()}\n")
    names = re.findall(r"^def (test_\w+)", fix.test, re.MULTILINE)

    def ended() -> set[bool]:
        tests = [f"{fix.test_file}::{name}" for name in names]
        return {*outcomes(root, tests, limits(300.0)).values()}

    assert False in ended()
    apply(root, [fix])
    assert ended() == {True}


# --- vLLM's own tests

SUITE = programs(__file__)["SUITE"]


@pytest.mark.long
@pytest.mark.release
def test_outcomes_of_tests_of_vllm(tmp_path: Path) -> None:
    root, name = tmp_path / "tree", "tests/v1/core/test_output.py"
    linked(release(RELEASE), root, {name, "vllm/v1/core/kv_cache_utils.py"})
    (root / name).write_text(SUITE)
    found = outcomes(root, [name], limits(20.0))
    passed = {test.rpartition("::")[2] for test, passes in found.items() if passes}
    assert passed == {"test_passes", "test_of_two[1]", "test_last"}
    assert len(found) == 8
    assert {test.partition("::")[0] for test in found} == {name}
    named = outcomes(root, [f"{name}::test_of_two[2]"], limits(20.0))
    assert named == {f"{name}::test_of_two[2]": False}


def test_exactly_the_named_tests_fail() -> None:
    fix = replace(ONE, pinned="`test_a` expects the fault.")
    a, b = "t.py::test_a[1]", "t.py::TestX::test_b"
    cases: list[tuple[set[str], set[str], dict[str, Any], dict[str, int], Verdict]] = [
        ({a, b}, {b}, {a: (fix.number,)}, {}, Verdict.CONFORMS),
        ({a, b}, {a, b}, {}, {"test_a": fix.number}, Verdict.DIVERGES),
        ({a, b}, set(), {a: (fix.number,), b: ()}, {}, Verdict.DIVERGES),
        ({b}, {b}, {}, {}, Verdict.CONFORMS),
        (set(), set(), {}, {}, Verdict.INCONCLUSIVE),
    ]
    assert compared([replace(fix, patch="--- a/t.py\n")], {a, b}, {a, b}).unmet == {}
    for before, after, failing, unmet, verdict in cases:
        found = compared([fix], before, after)
        assert (found.failing, found.unmet, found.verdict) == (failing, unmet, verdict)


def test_the_tests_are_told_with_the_fixes_that_name_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Suites(9, {"t.py::test_a": (62,), "t.py::test_b": ()}, {"test_c": 82})
    monkeypatch.setattr("hitproof.vllm_integration.commands.fixes.suites", lambda *_: found)
    result = fixes("tests", 62)
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "9 tests of vLLM 0.33.0 pass without the fixes; 2 of them fail with them",
        "  t.py::test_a: it expects the fault of 62",
        "  t.py::test_b: no fix says why",
        "  test_c: passes, and fix 82 says that it expects the fault",
    ]
    told = json.loads(fixes("tests", "--format", "json").output)
    assert (told["passed"], told["unmet"]) == (9, {"test_c": 82})


@pytest.mark.release
@pytest.mark.parametrize("fix", [fix for fix in FIXES if fix.pinned])
def test_what_a_fix_says_of_tests_names_tests_of_vllm(fix: Fix) -> None:
    own = release(RELEASE) / "tests/v1"
    text = "".join(file.read_text() for file in own.rglob("test_*.py")) if pinned(fix) else ""
    assert all(f"def {name}(" in text for name in pinned(fix))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.release
def test_vllms_own_tests_fail_only_where_a_fix_says_so() -> None:
    found = suites(release(RELEASE), FIXES, limits(300.0), lambda *_: None)
    assert found.verdict is Verdict.CONFORMS, found
    assert found.passed > 1000
    assert found.failing
