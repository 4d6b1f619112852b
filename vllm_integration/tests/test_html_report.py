"""`--report DIR`: one page that tells all of a result, refers to nothing, and is written whole."""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hitproof.conformance.findings.demonstration import CaseOutcome, Demonstration
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.spec.claims import CLAIMS, Divergence
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.html import writing
from hitproof.vllm_integration.reports.html.pages import THEME, check_page, diff_page
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.tests.reports import REPORTS, conforming, diverging, found, known
from hitproof.vllm_integration.verdict import Verdict

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """A page's elements; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def references(page: Page) -> Iterator[tuple[str, str]]:
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "xlink:href"):
            if name in attributes:
                yield tag, attributes[name] or ""


def comparison() -> Diff:
    before, after = conforming(), diverging()
    return Diff(before, after, brought=list(after.judgement.new), policies=[("p", "a", "b")])


@pytest.mark.parametrize("make", [*REPORTS.values(), comparison])
def test_a_page_stands_alone(make: Any) -> None:
    result = make()
    text = diff_page(result, "again") if isinstance(result, Diff) else check_page(result, "again")
    page = Page(text)
    assert result.verdict.name.lower() in page.text
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in page.elements}
    assert f"script-src '{THEME.hash}'\"" in text
    assert len(page.named("script")) == 1
    assert f"<script>{THEME}</script>" in text
    for tag, reference in references(page):
        assert tag == "a", reference
        assert reference.startswith(("#", "https://")), reference
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {r[1:] for _, r in references(page) if r[0] == "#"} <= set(ids)
    assert "url(" not in text.replace("default-src 'none'", "")
    assert "@import" not in text
    names = [meta.get("name") for meta in page.named("meta")]
    assert "viewport" in names
    assert "color-scheme: light dark" in text
    themes = [each["value"] for each in page.named("input") if each.get("name") == "theme"]
    assert themes == ["system", "light", "dark"]
    assert all(claim in page.text for claim in CLAIMS)
    assert "again" in page.text


def test_a_finding_is_shown_with_its_picture_its_story_and_its_test() -> None:
    report = diverging()
    (shown,) = report.judgement.new
    played = Demonstration("t", True, pytest="def test_t():\n    assert 1 < 2\n", vector={"a": "<"})
    judgement = replace(report.judgement, new=(replace(shown, demonstration=played),))
    page = Page(check_page(replace(report, judgement=judgement), "c"))
    assert page.named("svg")
    assert "block 2, registered: not" in page.text
    assert "the hit that decides on block 2" in page.text
    assert "assert 1 < 2" in page.text
    assert '"a": "<"' in page.text.replace("\\u003c", "<")
    assert "reproduced, by public methods only" in page.text


def test_how_a_test_ended_is_told() -> None:
    report = diverging()
    played = Demonstration("t", False, "it <hung>", outcome=CaseOutcome.BREAKS, said="oh")
    (shown,) = report.judgement.new
    judgement = replace(report.judgement, new=(replace(shown, demonstration=played),))
    page = Page(check_page(replace(report, judgement=judgement), "c"))
    assert f"not reproduced: it <hung>; its test {CaseOutcome.BREAKS}: oh" in page.text


def test_the_most_severe_finding_comes_first() -> None:
    (shown,) = found()[1]
    worse = replace(shown, signature=replace(shown.signature, divergence=Divergence.UNSOUND))
    report = replace(conforming(), judgement=Judgement((worse, shown), (), ()))
    text = Page(check_page(report, "c")).text
    assert text.index("U unsound") < text.index("L lost hit")


def test_known_divergences_are_folded() -> None:
    page = Page(check_page(known(), "c"))
    places = [tag for tag, _ in page.elements]
    assert places.index("details") < places.index("article")
    assert not any("open" in attributes for attributes in page.named("details"))
    assert "tolerated, 100 % sure" in page.text
    assert "1 known divergence of 1 fault (lost hit: 1)" in page.text


def test_what_a_target_says_cannot_become_part_of_the_page() -> None:
    bad = "</style><script>alert(1)</script>\x00"
    report = diverging()
    (shown,) = report.judgement.new
    shown = replace(shown, actual=bad, source=bad, given=(bad,), strip=bad)
    report = replace(
        report, target=Target(bad, Path("/x"), None), judgement=Judgement((shown,), (), ())
    )
    text = check_page(report, bad)
    page = Page(text)
    assert len(page.named("script")) == 1
    assert bad.strip("\x00") not in text.replace(f"<script>{THEME}</script>", "")
    assert "alert(1)" in page.text
    assert "\x00" not in page.text


def run(monkeypatch: pytest.MonkeyPatch, report: Report, *arguments: str) -> tuple[int, str]:
    monkeypatch.setattr(
        "hitproof.vllm_integration.commands.check.resolve", lambda *_, **__: report.target
    )
    monkeypatch.setattr("hitproof.vllm_integration.gate.gate.check", lambda *_, **__: report)
    result = CliRunner().invoke(cli.app, ["check", "fork", *arguments])
    return result.exit_code, result.stderr


def test_the_command_writes_it_with_the_command_that_makes_it_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "new" / "two words"
    arguments = ["--quick", "--policy", "junctions=kept", "--policy", "eagle_groups=all"]
    monkeypatch.setenv("HITPROOF_PYTHON", sys.executable)
    code, said = run(monkeypatch, diverging(), *arguments, "--report", str(directory))
    assert code == int(Verdict.DIVERGES)
    assert "index.html" in said
    page = Page((directory / "index.html").read_text())
    for part in (
        "hitproof check fork --quick",
        "--policy junctions=kept --policy eagle_groups=all",
        f"--report '{directory}'",
        "--python ",
    ):
        assert part in page.text
    assert list(directory.iterdir()) == [directory / "index.html"]
    mode = stat.S_IMODE((directory / "index.html").stat().st_mode)
    assert mode == stat.S_IMODE(os.stat(_touched(directory / "other")).st_mode)


def _touched(path: Path) -> Path:
    path.touch()
    return path


def test_the_comparison_writes_one_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    diff = comparison()
    monkeypatch.setattr(
        "hitproof.vllm_integration.commands.diff.resolve", lambda *_, **__: diff.base.target
    )
    monkeypatch.setattr("hitproof.vllm_integration.commands.diff.compare", lambda *_, **__: diff)
    result = CliRunner().invoke(cli.app, ["diff", "a", "b", "--report", str(tmp_path)])
    assert result.exit_code == int(Verdict.DIVERGES)
    assert "hitproof diff a b --report" in Page((tmp_path / "index.html").read_text()).text


@pytest.mark.parametrize("command", [["check", "fork"], ["diff", "a", "b"]])
@pytest.mark.parametrize("where", ["file", "file/below", "taken"])
def test_a_place_where_no_page_can_be_written_is_refused_before_the_work(
    command: list[str], where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "index.html").mkdir(parents=True)
    for name in ("check", "diff"):
        monkeypatch.setattr(
            f"hitproof.vllm_integration.commands.{name}.resolve",
            lambda *_, **__: pytest.fail("too late"),
        )
    result = CliRunner().invoke(cli.app, [*command, "--report", str(tmp_path / where)])
    assert result.exit_code == int(Verdict.USAGE)
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith(f"hitproof: no report can be written to {tmp_path / where}")
    assert "name another directory with --report" in sentence


def test_a_page_is_written_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writing.write(tmp_path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, said = run(monkeypatch, conforming(), "--report", str(tmp_path))
    assert code == int(Verdict.USAGE)
    assert "No space left on device" in said
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
