"""`hitproof explain`: what it prints, draws and refuses. No vLLM is needed."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.strip_svg import NAMESPACE
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.tests.broken_managers import ShorterHit
from hitproof.conformance.tests.test_checks import BROKEN, evidence_of
from hitproof.conformance.tests.test_traces import trace_of
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration import cli

PAIR = (
    "--group",
    "full_attention,block_size=64",
    "--group",
    "sliding_window,block_size=16,window=100",
)


def explain(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, ["explain", *map(str, arguments)], input=stdin)


def explained(*arguments: object) -> dict[str, Any]:
    result = explain(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    subject, claim, _ = BROKEN["no lookahead"]
    configuration = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, True, 6)
    shown = finding(evidence_of(subject, configuration, claim), "f:1").as_json()
    path = tmp_path / "report.json"
    path.write_text(json.dumps({"findings": [shown, shown]}))
    return path


@pytest.mark.parametrize("eagle", [(), ("--eagle",)])
@pytest.mark.parametrize("model", [model.name for model in MODELS])
def test_every_preset_is_explained(model: str, eagle: tuple[str, ...]) -> None:
    if (model, eagle) == ("Llama-4-Scout-like", ("--eagle",)):
        return  # chunks exclude EAGLE
    found = explained("--preset", model.upper(), *eagle)
    assert found["hit"] > 0
    assert found["groups"]
    assert found["layout"]["use_eagle"] is bool(eagle)


def test_a_release_has_its_horizon() -> None:
    asked = *PAIR, "--eagle", "--tokens", 576
    found = {
        release: explained(*asked, "--release", release)["lookahead_horizon"]
        for release in ("0.20.0", "0.31.2", "0.32", "0.33.0")
    }
    assert list(found.values()) == ["capped", "capped", "hashed", "hashed"]
    assert explained(*asked) == explained(*asked, "--release", "0.33.0")


def test_the_svg_has_every_block(tmp_path: Path) -> None:
    path = tmp_path / "strip.svg"
    path.write_text("what was there before")
    assert explain(*PAIR, "--eagle", "--hit", 512, "--svg", path).exit_code == 0
    root = ElementTree.parse(path).getroot()
    classes = [rect.get("class", "") for rect in root.iter(f"{{{NAMESPACE}}}rect")]
    assert len([c for c in classes if c.startswith("cell")]) == 3 * (9 + 36)
    assert (classes.count("cell t"), classes.count("cell L"), classes.count("cell p")) == (7, 2, 8)
    title = root.findtext(f"{{{NAMESPACE}}}title")
    assert title == explained(*PAIR, "--eagle", "--hit", 512)["answer"]


def test_a_finding_is_told(report: Path) -> None:
    result = explain(report, "--number", 2)
    assert result.exit_code == 0
    assert "2. what longer hits would have needed" in result.stdout
    assert "4 tokens: needs blocks 1 to 2; block 2 is not cached" in result.stdout
    found = explained(report, "--number", 1)
    assert found["steps"][0]["title"] == "what was given"
    single = json.dumps(json.loads(report.read_text())["findings"][0])
    assert explain("-", stdin=single).stdout == result.stdout


def test_the_history_of_a_finding_is_shown(tmp_path: Path) -> None:
    subject, claim, _ = BROKEN["no lookahead"]
    configuration = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, True, 6)
    trace = trace_of(ShorterHit)
    evidence = evidence_of(subject, configuration, claim)
    shown = finding(evidence, "f:1", trace=trace.as_json()).as_json()
    path = tmp_path / "finding.json"
    path.write_text(json.dumps(shown))
    text = explain(path).stdout
    assert "trace: the state after each step" in text
    assert 'steps[2] {"do": "schedule", "request": "b"}' in text
    assert explained(path)["trace"] == trace.as_json()
    path.write_text(json.dumps(shown | {"trace": {"start": 1}}))
    assert "has no finding as `hitproof check --format json` prints it" in refused(path)


def refused(*arguments: object) -> str:
    result = explain(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("hitproof: ")
    return line


def test_a_name_that_no_file_can_have_is_refused() -> None:
    assert "cannot be read" in refused("a\0b")


def test_bad_input_as_json() -> None:
    result = explain("--preset", "gpt", "--format", "json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["verdict"] == "usage"
