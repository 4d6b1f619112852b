"""GitHub's annotations, SARIF and JUnit XML of a report, without any target."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from hitproof.conformance.tests.editing import cases
from hitproof.spec.claims import CLAIMS
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci import github, sarif
from hitproof.vllm_integration.reports.ci.problems import place
from hitproof.vllm_integration.reports.ci.sarif import fingerprints
from hitproof.vllm_integration.tests.reports import SOURCE, conforming, diverging, replayed_history
from hitproof.vllm_integration.verdict import Verdict


def test_a_command_is_escaped_as_github_wants_it() -> None:
    line = github.command("error", "50 %\r\nof: a, b", file="a,b:c%.py", line=3, title="")
    assert line == "::error file=a%2Cb%3Ac%25.py,line=3::50 %25%0D%0Aof: a, b\n"
    assert github.command("notice", "done") == "::notice::done\n"


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


# --- SARIF; what is said of each report is in ``golden/printed``


def run_of(report: Report) -> dict[str, Any]:
    (run,) = sarif.sarif(report)["runs"]
    return dict(run)


def test_each_rule_is_described_once() -> None:
    run = run_of(diverging())
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert len(rules) == len(run["tool"]["driver"]["rules"])
    assert {result["ruleId"] for result in run["results"]} <= rules.keys()
    for name, claim in CLAIMS.items():
        assert rules[name]["shortDescription"]["text"] == claim.sentence
    for rule in rules.values():
        assert rule["fullDescription"]["text"].startswith(rule["shortDescription"]["text"])
        assert "hitproof explain" in rule["help"]["text"]


@pytest.mark.parametrize("source", ["", "/with space/a.py:3", "reference: lookup"])
def test_a_result_without_a_known_line_still_has_a_file(source: str) -> None:
    (result,) = run_of(diverging(source))["results"]
    (location,) = result["locations"]
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == ("file:///with%20space/a.py" if "space" in source else sarif.ENTRANCE)


def test_a_result_has_the_columns_and_the_fingerprint_of_its_line(tmp_path: Path) -> None:
    path, line = place(SOURCE)
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("\n" * (line - 1) + "    if use_eagle:\n")
    report = diverging()
    report.target = replace(report.target, root=tmp_path)
    (result,) = run_of(report)["results"]
    (where,) = result["locations"]
    region = where["physicalLocation"]["region"]
    assert region == {"startLine": line, "startColumn": 5, "endColumn": 18}
    fingerprint = result["partialFingerprints"]["primaryLocationLineHash"]
    assert fingerprint == fingerprints(file.read_text())[line - 1]


@cases("text, expected")
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
    (result,) = run_of(report)["results"]
    ((flow,),) = [each["threadFlows"] for each in result["codeFlows"]]
    *before, last = [each["location"] for each in flow["locations"]]
    assert last["physicalLocation"] == result["locations"][0]["physicalLocation"]
    for step, where in zip(steps, before, strict=False):
        if step["do"] == "schedule":
            assert where["physicalLocation"]["region"]["startLine"] == 2


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
    "github": lambda text: text.startswith(("vLLM ", "::error ")),
    "sarif": json.loads,
    "junit": lambda text: list(ElementTree.fromstring(text)),
    "markdown": str,
}
REFUSED = ["json", "github", "sarif", "junit"]


def test_other_formats_are_written_beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wanted = [f"--write={form}={tmp_path / form}" for form in READERS]
    code, printed = run(monkeypatch, diverging(), *wanted)
    assert code == 1
    assert "diverges, 1 new finding" in printed
    assert all(read((tmp_path / form).read_text()) for form, read in READERS.items())


@pytest.mark.parametrize("form", REFUSED)
@cases("arguments")
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
    assert READERS[form](printed)
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
    full = CliRunner().invoke(cli.app, [*command, "--write", "sarif=/dev/full"])
    assert full.exit_code == 2
    # It can have taken minutes, which it says.
    told, again = (re.sub(r"[\d.]+ s$", "", each.stdout, flags=re.M) for each in (result, full))
    assert told == again
    assert "/dev/full cannot be written (No space left on device); name another" in full.stderr


@pytest.mark.parametrize("version", ["0.1.0", "0.3.0.dev0"])
def test_the_version_is_a_semantic_one(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    (run,) = sarif.refusal(Verdict.USAGE, "no such target")["runs"]
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[\da-z.]+)?", run["tool"]["driver"]["semanticVersion"])
