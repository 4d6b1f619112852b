"""README and its neighbours: short, and about what is there."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs import clauses, selftests
from docs.source import ROOT, NoSuchCode, find
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import grid
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import CLAIMS, Basis, basis
from hitproof.vllm_integration.verdict import Verdict

README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGETS = (ROOT / "docs/pages/commands/targets.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
LINES = 150


def test_readme_is_read_in_five_minutes() -> None:
    assert README.count("\n") <= LINES


@pytest.mark.parametrize("text", [README, TARGETS], ids=["README", "targets"])
def test_the_exit_codes_are_those_of_the_command(text: str) -> None:
    rows = re.findall(r"^\| (\d) \| (\w+)", text, flags=re.M)
    assert dict(rows).items() == {str(int(v)): v.label for v in Verdict}.items()


def test_readme_names_the_bounds_of_the_default_profile() -> None:
    blocks = min(each.num_blocks for each in configurations(Profile.DEFAULT))
    tokens = sorted({each.num_tokens for each in grid(Profile.DEFAULT)})
    assert f"at least {blocks} blocks in one group" in README
    assert f"of {tokens[0]} to {tokens[-1]} tokens in several" in README


def test_readme_has_the_figures_of_the_last_self_tests() -> None:
    assert selftests.row() in README
    assert selftests.written(README) == README
    other = README.replace(selftests.row(), "| **self-tested** | all | all |")
    assert other != README
    assert selftests.written(other) == README
    for run in selftests.runs():
        read = run["equivalent"] - run["proved_equivalent"]
        left_out = f"({run['mutants']} generated, {read} equivalent by reading"
        assert f"{selftests.share(run)} {left_out}" in README
    proved = {"equivalent": 5, "proved_equivalent": 2}
    assert selftests.left_out(proved) == "3 equivalent by reading, 2 by proof"


def test_readme_says_which_clauses_are_not_proved() -> None:
    """All of them, by name."""
    assert clauses.written(README) == README
    (line,) = (line for line in README.splitlines() if line.startswith("| **proved, unbounded**"))
    cited = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    unproved = [clause.__name__ for clause in cited if basis(clause) is not Basis.PROVED]
    assert all(name in line for name in unproved)
    proved = len(cited) - len(unproved)
    assert f"{proved} of {len(cited)} clauses are proved" in line
    other = README.replace(line, "| **proved, unbounded** | all clauses | all numbers of groups |")
    assert clauses.written(other) == README


def test_each_family_and_profile_has_a_self_test_on_record() -> None:
    found = {(run["family"], run["profile"]) for run in selftests.runs()}
    assert found == {
        ("structured", "default"),
        ("single-point", "default"),
        ("single-point", "quick"),
        ("scheduler", "default"),
        ("lifecycle", "quick"),
    }


def test_readme_names_the_python_that_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or later" in README


def missing_links(text: str, place: Path) -> list[str]:
    """Relative links of a document that lead to no file."""
    links = re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", text)
    return [link for link in links if not (place / link).exists()]


def missing_files(text: str) -> list[str]:
    """Paths of the repository that a document names, and that are not there."""
    tops = "spec|reference|proofs|conformance|vllm_integration|benchmarks|docs|ci|src"
    named = re.findall(rf"(?<![\w/.])((?:{tops})/[\w/.-]*\w)", text)
    return [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.md")), ids=lambda path: path.name)
def test_links_and_files_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert missing_links(text, ROOT) == []
    if path.name != "BUGS.md":  # its paths are vLLM's
        assert missing_files(text) == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/pages/**/*.md")), ids=lambda p: p.name)
def test_files_that_guides_name_are_there(path: Path) -> None:
    assert missing_files(path.read_text(encoding="utf-8")) == []


def test_a_link_or_file_that_is_not_there_is_noticed() -> None:
    text = "see [this](README.md#x), [that](no.md) and `spec/no_such.py` in `spec/hits.py`."
    assert missing_links(text, ROOT) == ["no.md"]
    assert missing_files(text) == ["spec/no_such.py"]


# --- ARCHITECTURE


def described() -> Iterator[Path]:
    """Every sub-package, and the modules of the spec."""
    for top in ("conformance", "vllm_integration"):
        yield from (each.parent for each in (ROOT / top).glob("*/__init__.py"))
    yield from (each for each in (ROOT / "spec").glob("*.py") if each.name != "__init__.py")
    yield ROOT / "spec" / "releases"


@pytest.mark.parametrize(
    "path",
    sorted(path for path in described() if path.name != "tests"),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_architecture_describes_every_sub_package(path: Path) -> None:
    name = re.escape(str(path.relative_to(ROOT)))
    assert re.search(rf"^\| `{name}` \| \w.+ \|$", ARCHITECTURE, flags=re.M)


def test_architecture_names_the_modules_beside_the_sub_packages() -> None:
    for top in ("conformance", "vllm_integration"):
        for module in (ROOT / top).glob("*.py"):
            name = str(module.relative_to(ROOT))
            assert module.name == "__init__.py" or f"`{name}`" in ARCHITECTURE, name


def way(of: str, text: str = ARCHITECTURE) -> list[str]:
    """The modules that a command passes through, in order, as ARCHITECTURE lists them."""
    steps = text.partition(f"## The way of a {of}\n")[2].partition("\n## ")[0]
    listed = "".join(re.findall(r"^(?:\d\.| {3}).*\n", steps, flags=re.M))
    return list(dict.fromkeys(re.findall(r"`(\w[\w/]+\.py)`", listed)))


def comes_out_of_nothing(modules: list[str]) -> list[str]:
    """Those but the first that no earlier one imports, or starts a process with."""
    known, found = "", []
    for module in modules:
        package, _, name = (
            f"hitproof/{module}".removesuffix(".py").replace("/", ".").rpartition(".")
        )
        imported = rf"from {package}\.{name} import|from {package} import [^\n]*\b{name}\b"
        if known and not re.search(imported, known):
            found.append(module)
        known += (ROOT / module).read_text(encoding="utf-8")
    return found


@pytest.mark.parametrize("command", ["check", "replay"])
def test_a_way_is_short_and_each_module_leads_to_the_next(command: str) -> None:
    modules = way(command)
    assert modules[0] == f"vllm_integration/commands/{command}.py"
    assert 10 <= len(modules) <= 12
    assert comes_out_of_nothing(modules) == []
    assert comes_out_of_nothing([*modules[:2], "spec/tiers.py"]) == ["spec/tiers.py"]


def test_a_module_that_is_not_there_is_noticed() -> None:
    with pytest.raises(NoSuchCode):
        find("conformance.judge.no_such")


def unknown_names(text: str) -> list[str]:
    """Constants and classes that a recipe names, and that no file that it names has."""
    code = "".join(
        (ROOT / path).read_text(encoding="utf-8")
        for path in re.findall(r"`(\w+/[\w/]+\.py|Makefile)`", text)
    )
    names = re.findall(r"`(_?[A-Z][A-Z_]+|[A-Z][a-z]+[A-Z]\w+)`", text)
    return [name for name in names if not re.search(rf"\b{name}\b", code)]


def test_recipes_name_what_is_there() -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Add a claim")[2]
    assert len(re.findall("^## Add", recipes, flags=re.M)) == 4
    assert unknown_names(recipes) == []
    assert unknown_names("`CLAIMS` and `NO_CLAIMS` of `spec/claims.py`") == ["NO_CLAIMS"]


def test_the_guide_of_ci_has_every_input_of_the_action() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    guide = (ROOT / "docs/pages/commands/ci.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", guide, flags=re.M) == list(action["inputs"])
    assert all(f"`{output}`" in guide for output in action["outputs"])


# --- the contributor's hooks


def test_hooks_run_what_make_lint_runs() -> None:
    yaml = pytest.importorskip("yaml")
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    _, _, recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")
    commands = re.findall(r"^\t\$\(BIN\)/([\w-]+)", recipe.partition("\n\n")[0], flags=re.M)
    assert local["repo"] == "local"  # so that nothing is fetched
    assert [Path(hook["entry"].split()[0]).name for hook in local["hooks"]] == commands
