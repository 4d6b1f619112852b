"""How clauses are written, as far as a program can see it."""

import ast
import re
from pathlib import Path

import pytest

SPEC = Path(__file__).parents[1]
CORE = ("attention", "groups", "hits", "mask", "retention")
MODULES = sorted(path for path in SPEC.rglob("*.py") if path.parent.name != "tests")


def parameters(text: str) -> set[str]:
    """The names of the parameters of all functions."""
    return {node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg)}


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SPEC)))
def test_no_clause_is_told_how_to_compute(module: Path) -> None:
    assert "arithmetic" not in parameters(module.read_text(encoding="utf-8"))


def test_a_clause_that_is_told_is_seen() -> None:
    assert "arithmetic" in parameters("def clause(block, arithmetic=INTEGERS): ...")
    assert "arithmetic" in parameters("clause = lambda block, arithmetic: block")


def history(text: str) -> list[str]:
    """Words on vLLM and its releases."""
    return re.findall(r"vLLM|\breleases?\b|\b0\.\d{2}\b|#\d{4,}", text)


@pytest.mark.parametrize("name", CORE)
def test_the_core_has_no_word_of_releases(name: str) -> None:
    assert history((SPEC / f"{name}.py").read_text(encoding="utf-8")) == []


def test_a_word_of_releases_is_seen() -> None:
    assert history("as vLLM 0.22 has it (PR #43447), a policy of the release") == [
        *("vLLM", "0.22", "#43447", "release")
    ]
