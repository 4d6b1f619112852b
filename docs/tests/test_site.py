"""The rendered spec: it answers, it stands alone, and the build fails on what is not there."""

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mkdocs.exceptions import MkDocsException

from docs import pictures
from docs.tables import faults, survey
from docs.tests.building import ROOT, build_site
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.codes import MEANINGS
from hitproof.spec import attention
from hitproof.spec.claims import CLAIMS

PAGES = ROOT / "docs" / "pages"


class Page(HTMLParser):
    """What a page refers to, its anchors and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.ids: set[str] = set()
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"href", "src"} and value is not None:
                self.links.append((tag, value))
            if value and (name == "id" or (tag, name) == ("a", "name")):
                self.ids.add(value)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def read(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_the_worked_example_answers(read: dict[str, Page]) -> None:
    text = read["example.html"].text
    assert "a hit of 512 tokens needs group 0: blocks 0 to 8; group 1: blocks 25 to 32" in text
    assert "ceil((100 - 1) / 16) = ceil(99 / 16) = 7 blocks" in text
    assert "alignment = lcm(64, 16) = 64 tokens" in text
    assert "need = 7 + 1 = 8 blocks: blocks 25 to 32" in text
    assert "block 32, hit needs: lookahead" in text


def test_every_claim_has_a_page_with_all_its_parts(read: dict[str, Page], site: Path) -> None:
    for claim in CLAIMS.values():
        page, html = read[f"{claim.name}.html"], (site / f"{claim.name}.html").read_text()
        assert claim.sentence in page.text
        assert str(claim.divergence) in page.text
        assert '<svg xmlns="http://www.w3.org/2000/svg" class="strip"' in html
        assert f"`{CHECKS[claim.name].__name__}`" not in page.text  # Markdown became HTML
        assert CHECKS[claim.name].__name__ in page.text
        for clause in claim.clauses:
            assert f"def {clause.__name__}" in " ".join(page.text.split())
        for symbol in claim.symbols:
            assert symbol in page.text
        assert "deliberate errors in them are refuted" in page.text


def references(site: Path, read: dict[str, Page]) -> Iterator[str]:
    """References that lead nowhere, or that fetch something over the network."""
    for name, page in read.items():
        for tag, link in page.links:
            parts = urlsplit(link)
            if parts.scheme in {"http", "https"}:
                if tag != "a":
                    yield f"{name}: {tag} {link}"
                continue
            if name == "404.html" or parts.scheme == "data":
                continue  # served by a server only
            target = normpath(Path(name).parent / unquote(parts.path)) if parts.path else name
            anchors = read[target].ids if target in read else set()
            if not (site / target).exists() or (parts.fragment and parts.fragment not in anchors):
                yield f"{name}: {link}"


def test_no_reference_is_broken_or_needs_the_network(site: Path, read: dict[str, Page]) -> None:
    assert len(read) > len(CLAIMS) + 8
    assert list(references(site, read)) == []
    for path in [*site.glob("assets/*.css"), *site.glob("assets/*.js")]:
        assert not re.search(r"@import|url\(|fetch\(|https?://(?!www\.w3\.org)", path.read_text())


def test_faults_and_releases_are_shown(read: dict[str, Page]) -> None:
    assert "The smallest case, on" in read["faults.html"].text
    table = read["releases.html"].text
    assert all(release.version in table for release in survey())
    assert all(fault.title in table for fault in faults())
    assert "lookahead horizon" in read["policies.html"].text.lower()
    assert all(code in read["codes.html"].ids for code in MEANINGS)


# --- the build fails on what is not there


@pytest.fixture
def edited(tmp_path: Path) -> Callable[[str], Path]:
    """The handwritten pages, with a line more on the first one."""

    def edit(line: str) -> Path:
        pages = tmp_path / "pages"
        shutil.copytree(PAGES, pages)
        first = pages / "index.md"
        first.write_text(f"{first.read_text()}\n{line}\n")
        return pages

    return edit


def assert_fails(log: pytest.LogCaptureFixture, build: Callable[[], None], *why: str) -> None:
    with pytest.raises(MkDocsException):
        build()
    told = [record.getMessage() for record in log.records if record.levelno >= logging.WARNING]
    for reason in why:
        assert any(reason in message for message in told), told


@pytest.mark.long
def test_a_broken_link_fails_the_build(
    edited: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ("no-such-page.md", "tail.md#no-such-heading", "faults.md#999")
    pages = edited(" ".join(f"[there]({link})" for link in broken))
    assert_fails(caplog, lambda: build_site(tmp_path / "s", pages), *broken)


def test_a_claim_without_a_picture_fails_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(pictures.PICTURES, "eagle_needs_tail_plus_one")
    why = "the claim eagle_needs_tail_plus_one has no picture"
    assert_fails(caplog, lambda: build_site(tmp_path / "s"), why)


def test_code_that_no_longer_exists_fails_the_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(attention, "lookahead_blocks")
    why = "spec.attention.lookahead_blocks is not in the source"
    assert_fails(caplog, lambda: build_site(tmp_path / "s"), why)


@pytest.mark.parametrize(
    "line", ['{{ ref("spec.hits.no_such") }}', '{{ code("spec.hits.no_such") }}']
)
def test_a_reference_to_no_code_fails_the_build(
    line: str, edited: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = edited(line)
    assert_fails(caplog, lambda: build_site(tmp_path / "s", pages), "no_such")
