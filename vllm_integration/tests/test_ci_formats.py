"""GitHub's annotations, SARIF and JUnit XML of a report, without any target."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from hitproof.spec.claims import CLAIMS
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci import github, junit, sarif, summary
from hitproof.vllm_integration.reports.ci.problems import place
from hitproof.vllm_integration.reports.ci.source_lines import fingerprints
from hitproof.vllm_integration.tests.reports import (
    REPORTS,
    SOURCE,
    conforming,
    diverging,
    replayed_history,
    stale,
)
from hitproof.vllm_integration.verdict import Verdict

FORMATS = ["github", "sarif", "junit", "markdown"]
SEMVER = r"\d+\.\d+\.\d+(-[\da-z.]+)?"

all_reports = pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)


# --- GitHub


COMMAND = re.compile(
    r"::(error|warning|notice)(?: ((?:\w+=[^,:\s][^,:\n]*)(?:,\w+=[^,:\n]*)*))?::(.*)"
)


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """The workflow commands, read as GitHub's runner reads them."""

    def plain(value: str) -> str:
        for code, character in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r")):
            value = value.replace(code, character)
        return value.replace("%25", "%")

    read = []
    for line in text.splitlines():
        if not line.startswith("::"):  # a line of the log
            assert not line[:1].isspace()
            continue
        matched = COMMAND.fullmatch(line)
        assert matched, line
        kind, properties, message = matched.groups()
        told = dict(p.split("=", 1) for p in (properties or "").split(",") if p)
        read.append((kind, {name: plain(value) for name, value in told.items()}, plain(message)))
    return read


def test_a_command_is_escaped_as_github_wants_it() -> None:
    line = github.command("error", "50 %\r\nof: a, b", file="a,b:c%.py", line=3, title="")
    assert line == "::error file=a%2Cb%3Ac%25.py,line=3::50 %25%0D%0Aof: a, b\n"
    assert commands(line) == [("error", {"file": "a,b:c%.py", "line": "3"}, "50 %\r\nof: a, b")]
    assert github.command("notice", "done") == "::notice::done\n"


@all_reports
def test_annotations_say_what_the_verdict_says(make: Any) -> None:
    report = make()
    text = github.annotations(report, verbose=False)
    assert text.startswith(f"vLLM fork: {report.verdict.label}")
    kinds = {kind for kind, _, _ in commands(text)}
    assert ("error" in kinds) is (report.verdict is Verdict.DIVERGES)
    unsettled = report.open_questions and not report.judgement.new
    assert ("warning" in kinds) is bool(unsettled)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (SOURCE, tuple(SOURCE.split(":"))),
        ("C:/x.py:7", ("C:/x.py", "7")),
        ("reference: lookup", ("", "0")),
        ("", ("", "0")),
        ("x.py:0", ("", "0")),
    ],
)
def test_a_place_is_a_file_and_a_line(source: str, expected: tuple[str, str]) -> None:
    path, line = place(source)
    assert (path, str(line)) == expected


# --- SARIF: what its schema requires of what is written, and nothing that it does not know


class Node(dict[str, Any]):
    """A JSON object whose fields are attributes; of one that may be left out, an empty list."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name, [])


MESSAGE = {"text": r"(?s).+"}
LEVEL = "none|note|warning|error"
REGION = {"startLine": 1, "startColumn?": 1, "endColumn?": 2}
ARTIFACT = {"uri": r"(file:///)?[A-Za-z0-9._~%/-]+", "uriBaseId?": ".*"}
# Code scanning requires the region.
LOCATION = {"physicalLocation": {"artifactLocation": ARTIFACT, "region": REGION}}
STEP = {"location": {**LOCATION, "message": MESSAGE}}
RESULT = {
    "ruleId": ".+",
    "level": LEVEL,
    "message": MESSAGE,
    "locations": [LOCATION],
    "partialFingerprints": dict,
    "suppressions?": [{"kind": "inSource|external", "justification": "(?s).*"}],
    "codeFlows?": [{"threadFlows": [{"locations": [STEP]}]}],
    "properties?": dict,
}
RULE = {
    "id": ".+",
    "shortDescription": MESSAGE,
    "fullDescription": MESSAGE,
    "help": MESSAGE,
    "defaultConfiguration": {"level": LEVEL},
}
INVOCATION = {
    "executionSuccessful": bool,
    "exitCode": 0,
    "toolExecutionNotifications": [{"level": LEVEL, "message": MESSAGE}],
}
RUN = {
    "tool": {"driver": {"name": ".+", "semanticVersion": SEMVER, "rules": [RULE]}},
    "columnKind": "utf16CodeUnits|unicodeCodePoints",
    "invocations": [INVOCATION],
    "results": [RESULT],
}
LOG = {"$schema": ".+", "version": r"2\.1\.0", "runs": [RUN]}
"""Fields of objects: texts by a pattern, numbers by the least; with "?" they may be left out."""


def assert_fits(value: Any, shape: Any, at: str = "") -> None:
    """What SARIF's schema requires is there, and nothing that it does not know."""
    match shape:
        case dict():
            assert isinstance(value, dict), at
            required = {name for name in shape if not name.endswith("?")}
            known = {name.removesuffix("?"): inner for name, inner in shape.items()}
            assert required <= value.keys() <= known.keys(), (at, value.keys())
            for name, inner in value.items():
                assert_fits(inner, known[name], f"{at}.{name}")
        case [inner]:
            assert isinstance(value, list), at
            assert value or not at.endswith(("locations", "runs")), at
            for each in value:
                assert_fits(each, inner, at)
        case str():
            assert isinstance(value, str), at
            assert re.fullmatch(shape, value), (at, value)
        case int():
            assert type(value) is int, at
            assert value >= shape, at
        case _:
            assert isinstance(value, shape), at


def as_sarif(document: dict[str, Any]) -> Any:
    log = json.loads(json.dumps(document), object_hook=Node)
    assert_fits(log, LOG)
    (run,) = log.runs
    rules = [rule.id for rule in run.tool.driver.rules]
    assert len(set(rules)) == len(rules)
    assert {result.ruleId for result in run.results} <= set(rules)
    fingerprints = [json.dumps(result.partialFingerprints) for result in run.results]
    assert len(set(fingerprints)) == len(fingerprints)
    assert all(result.partialFingerprints for result in run.results)
    return run


@pytest.mark.parametrize("change", [{"level": "bad"}, {"more": 1}, {"locations": []}])
def test_what_sarif_does_not_know_is_noticed(change: dict[str, Any]) -> None:
    document = sarif.sarif(diverging())
    as_sarif(document)
    document["runs"][0]["results"][0] |= change
    with pytest.raises(AssertionError):
        as_sarif(document)


@all_reports
def test_sarif_says_what_the_verdict_says(make: Any) -> None:
    report = make()
    run = as_sarif(sarif.sarif(report, known=True))
    (invocation,) = run.invocations
    assert invocation.exitCode == int(report.verdict)
    assert invocation.executionSuccessful is (report.verdict is not Verdict.INCONCLUSIVE)
    new = [result for result in run.results if not result.suppressions]
    assert bool(new) is (report.verdict is Verdict.DIVERGES)
    told = bool(report.open_questions)
    assert bool(invocation.toolExecutionNotifications) is told
    rules = {rule.id: rule.shortDescription.text for rule in run.tool.driver.rules}
    assert all(rules[name] == claim.sentence for name, claim in CLAIMS.items())
    for rule in run.tool.driver.rules:
        assert rule.fullDescription.text.startswith(rule.shortDescription.text)
        assert "hitproof explain" in rule.help.text
    without = as_sarif(sarif.sarif(report)).results
    assert without == new


@pytest.mark.parametrize("source", ["", "/with space/a.py:3", "reference: lookup"])
def test_a_result_without_a_known_line_still_has_a_file(source: str) -> None:
    (result,) = as_sarif(sarif.sarif(diverging(source))).results
    (location,) = result.locations
    artifact = location.physicalLocation.artifactLocation
    assert artifact.uri == ("file:///with%20space/a.py" if "space" in source else sarif.ENTRANCE)


def test_a_result_has_the_columns_and_the_fingerprint_of_its_line(tmp_path: Path) -> None:
    path, line = place(SOURCE)
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("\n" * (line - 1) + "    if use_eagle:\n")
    report = diverging()
    report.target = replace(report.target, root=tmp_path)
    (result,) = as_sarif(sarif.sarif(report)).results
    (where,) = result.locations
    region = where.physicalLocation.region
    assert region == {"startLine": line, "startColumn": 5, "endColumn": 18}
    fingerprint = result.partialFingerprints["primaryLocationLineHash"]
    assert fingerprint == fingerprints(file.read_text())[line - 1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # from the tests of github/codeql-action
        ("", ["c129715d7a2bc9a3:1"]),
        (
            " a\nb\n  \t\tc\n d",
            [
                "271789c17abda88f:1",
                "54703d4cd895b18:1",
                "180aee12dab6264:1",
                "a23a3dc5e078b07b:1",
            ],
        ),
    ],
)
def test_fingerprints_are_those_of_code_scanning(text: str, expected: list[str]) -> None:
    assert fingerprints(text) == expected
    assert fingerprints(text.replace("\n", "\r\n")) == expected
    repeated = fingerprints("x\n" * 200)
    assert len(repeated) == 201
    assert repeated[1].endswith(":2")


def test_a_history_is_a_code_flow_at_the_methods_that_it_calls(tmp_path: Path) -> None:
    report = replayed_history()
    (finding,) = report.judgement.new
    steps = json.loads(finding.configuration["text"])["steps"]
    file = tmp_path / sarif.ENTRANCE
    file.parent.mkdir(parents=True)
    file.write_text("class KVCacheManager:\n    def allocate_slots(self):\n        return None\n")
    report.target = replace(report.target, root=tmp_path)
    (result,) = as_sarif(sarif.sarif(report)).results
    assert result.ruleId == "allowed_call_raises_nothing"
    assert "sanity rule: allowed_call_raises_nothing" in result.message.text
    ((flow,),) = [each.threadFlows for each in result.codeFlows]
    shown = [json.loads(each.location.message.text) for each in flow.locations]
    assert shown == steps
    *before, last = [each.location.physicalLocation for each in flow.locations]
    assert last == result.locations[0].physicalLocation
    for step, where in zip(steps, before, strict=False):
        if step["do"] == "schedule":
            assert where.region.startLine == 2
    assert not as_sarif(sarif.sarif(stale())).results[0].codeFlows


# --- the summary of a job


@all_reports
def test_the_summary_says_what_the_verdict_says(make: Any) -> None:
    report = make()
    first, *rest = summary.markdown(report).splitlines()
    assert first.startswith(f"**vLLM fork: {report.verdict.label}")
    assert bool(rest) is (report.verdict is Verdict.DIVERGES or bool(report.open_questions))
    assert ("| finding |" in "".join(rest)) is (report.verdict is Verdict.DIVERGES)


# --- JUnit


def suites(text: str) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in (root, *root):
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(element.attrib[attribute]) == len(list(element.iter(tag)))
        assert int(element.attrib["tests"]) == len(list(element.iter("testcase")))
    return {suite.attrib["name"]: suite for suite in root}


@all_reports
def test_junit_says_what_the_verdict_says(make: Any) -> None:
    report = make()
    told = suites(junit.junit(report))
    assert set(told) >= set(CLAIMS)
    failures = [e for suite in told.values() for e in suite.iter("failure")]
    errors = [e for suite in told.values() for e in suite.iter("error")]
    assert bool(failures) is (report.verdict is Verdict.DIVERGES)
    assert bool(errors) is (report.verdict is Verdict.INCONCLUSIVE)
    for o in report.obligations:
        names = [case.attrib["name"] for case in told[o.claim].iter("testcase")]
        assert names == [f"{o.configuration.describe()}, {o.configuration.bound_in_words}"]


# --- the command


def run(monkeypatch: pytest.MonkeyPatch, report: Report, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(
        "hitproof.vllm_integration.commands.check.resolve", lambda *_, **__: report.target
    )
    monkeypatch.setattr("hitproof.vllm_integration.gate.gate.check", lambda *_, **__: report)
    result = CliRunner().invoke(cli.app, ["check", "fork", *arguments])
    return result.exit_code, result.stdout


READERS: dict[str, Any] = {
    "json": json.loads,
    "github": commands,
    "sarif": lambda text: as_sarif(json.loads(text)),
    "junit": suites,
    "markdown": str,
}
REFUSED = ["json", "github", "sarif", "junit"]


@pytest.mark.long(keep=1)
@pytest.mark.parametrize("form", FORMATS)
@all_reports
def test_the_command_prints_it(make: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = make()
    code, printed = run(monkeypatch, report, "--format", form)
    assert code == int(report.verdict)
    assert printed
    assert READERS[form](printed) is not None


def test_other_formats_are_written_beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = [f"--write={form}={tmp_path / form}" for form in READERS]
    code, printed = run(monkeypatch, diverging(), *wanted)
    assert code == 1
    assert "diverges, 1 new finding" in printed
    assert all(read((tmp_path / form).read_text()) for form, read in READERS.items())


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize(
    "arguments",
    [
        ["--ledger", "no-such-file.toml"],
        ["--write", "text=x"],
        ["--write", "sarif=no/such/x"],
        ["--write", "sarif=/"],
    ],
)
def test_a_refusal_is_a_document_too(
    form: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "hitproof.vllm_integration.gate.gate.check", lambda *_, **__: pytest.fail("too late")
    )
    command = ["check", "fork", "--format", form, *arguments]
    result = CliRunner().invoke(cli.app, command)
    code, printed = result.exit_code, result.stdout
    assert code == 2
    assert printed
    assert READERS[form](printed) is not None
    assert arguments[1].removeprefix("sarif=") in printed


@pytest.mark.parametrize("form", ["text", "json", "markdown", "github", "sarif"])
def test_a_comparison_is_printed_and_written(
    form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, after = conforming(), diverging()
    diff = Diff(before, after, brought=list(after.judgement.new))
    monkeypatch.setattr(
        "hitproof.vllm_integration.commands.diff.resolve", lambda *_, **__: before.target
    )
    monkeypatch.setattr("hitproof.vllm_integration.commands.diff.compare", lambda *_, **__: diff)
    table = tmp_path / "table.md"
    command = ["diff", "a", "b", "--format", form, "--write", f"markdown={table}"]
    result = CliRunner().invoke(cli.app, command)
    assert result.exit_code == 1
    read: Any = {"text": str, "markdown": str, **READERS}[form]
    assert read(result.stdout)
    assert "lookahead block is not registered" in result.stdout
    assert table.read_text().startswith("### Prefix cache")
    assert (form == "markdown") is (result.stdout == table.read_text())
    refused = CliRunner().invoke(cli.app, [*command, "--write", "junit=x"])
    assert refused.exit_code == 2


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0.dev0"])
def test_the_version_is_a_semantic_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    (run,) = sarif.refusal(Verdict.USAGE, "no such target")["runs"]
    assert re.fullmatch(SEMVER, run["tool"]["driver"]["semanticVersion"])
