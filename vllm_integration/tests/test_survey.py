"""The survey: README's table and BUGS.md are what it prints, and a real release bears it out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hitproof.vllm_integration import cli
from hitproof.vllm_integration.bundled import SURVEY
from hitproof.vllm_integration.reports.survey import document, table
from hitproof.vllm_integration.survey.faults import cause, load
from hitproof.vllm_integration.survey.survey import Release, read, to_json, verdict
from hitproof.vllm_integration.tests.conftest import hitproof
from hitproof.vllm_integration.verdict import Verdict

HOUSE = Path(__file__).resolve().parents[2]


def test_readme_has_the_table() -> None:
    pattern = "<!-- hitproof survey -->\n(.*?)<!-- end -->"
    found = re.search(pattern, (HOUSE / "README.md").read_text(), flags=re.S)
    assert found is not None
    assert found[1].strip() == table(read(), load()).strip()


def test_bugs_is_what_is_printed() -> None:
    assert (HOUSE / "BUGS.md").read_text() == document(read(), load())


def test_everything_found_is_told_and_everything_told_was_found() -> None:
    releases, faults = read(), load()
    assert verdict(releases, faults) is Verdict.CONFORMS
    for fault in faults:
        for signature in fault.signatures:
            assert any(
                cause(faults, sighting.signature, release.version) is fault
                for release in releases
                for sighting in release.sightings
                if sighting.signature == signature
            ), (fault.title, signature)


def test_what_is_not_told_or_not_settled_is_no_pass() -> None:
    releases, faults = read(), load()
    assert verdict(releases, faults[1:]) is Verdict.DIVERGES
    assert "not told yet" in table(releases, faults[1:])
    unsettled = replace(releases[0], verdict="inconclusive")
    assert verdict([unsettled], faults) is Verdict.INCONCLUSIVE
    assert verdict([], faults) is Verdict.INCONCLUSIVE


def test_a_survey_survives_json(tmp_path: Path) -> None:
    path = tmp_path / "survey.json"
    path.write_text(json.dumps(to_json(read())))
    assert read(path) == read()
    path.write_text("[{}]")
    result = CliRunner().invoke(cli.app, ["survey", "--from", str(path)])
    assert result.exit_code == 2
    assert "cannot be read" in result.output


@pytest.mark.parametrize("form", ["markdown", "bugs", "json"])
def test_the_kept_survey_is_shown(form: str) -> None:
    result = CliRunner().invoke(cli.app, ["survey", "--format", form])
    assert result.exit_code == 0
    shown = {"markdown": "U unsound", "bugs": "# Faults found", "json": '"version": "0.14.0"'}
    assert shown[form] in result.output


@pytest.mark.release
@pytest.mark.parametrize("version", ["0.19.1", "0.31.0"])
def test_a_release_bears_out_its_column(version: str, tmp_path: Path) -> None:
    """What the quick profile finds is among what the survey has of the release."""
    result = hitproof("survey", "--quick", "--format", "json", version)
    assert result.returncode == 0, result.stderr
    path = tmp_path / "survey.json"
    path.write_text(result.stdout)
    (found,) = read(path)
    (kept,) = (release for release in read(SURVEY) if release.version == version)
    assert found.sightings
    assert signatures(found) <= signatures(kept)


def signatures(release: Release) -> set[object]:
    return {sighting.signature for sighting in release.sightings}
