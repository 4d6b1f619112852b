"""CrossHair looks for ints that break the contracts of the spec and of the reference.

It runs them on symbolic ints, path by path, up to a number of paths that lead nowhere. What it
cannot confirm within that is printed and is no failure; a counterexample is one. CrossHair also
confirms a contract whose premises contradict each other, so each contract is negated, too, and
its negation must be refuted.
"""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from hitproof.conformance.tests import wrong_contracts
from hitproof.reference.tests import contracts as reference_contracts
from hitproof.spec.tests import contracts as spec_contracts

pytestmark = pytest.mark.slow

CONTRACTS = {spec_contracts: 20, reference_contracts: 100}
"""How many paths that lead nowhere CrossHair tries before it gives a contract up."""

_VERDICT = re.compile(
    r"(?P<file>.+):(?P<line>\d+): (?:info: (?P<confirmed>Confirmed over all paths\.)"
    r"|info: (?P<open>Not confirmed\.)|error: (?P<broken>.+))"
)


def contracts_in(source: str) -> dict[str, ast.FunctionDef]:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in functions if not node.name.startswith("_")}


@cache
def verdicts(path: Path, futile_paths: int = 20) -> dict[str, str]:
    """What CrossHair says of each contract of a file: confirmed, not confirmed or a counterexample.

    Fails on a line that it cannot read, and on a contract that CrossHair says nothing of.
    """
    command = [sys.executable, "-m", "crosshair", "check", "--report_all"]
    command += ["--analysis_kind", "asserts"]
    command += ["--max_uninteresting_iterations", str(futile_paths), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    contracts = contracts_in(path.read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        verdict = _VERDICT.fullmatch(line)
        assert verdict, line
        number = int(verdict["line"])
        (name,) = (
            name
            for name, node in contracts.items()
            if node.lineno <= number <= (node.end_lineno or node.lineno)
        )
        found[name] = verdict["broken"] or ("confirmed" if verdict["confirmed"] else "open")
    assert found.keys() == contracts.keys(), done.stdout + done.stderr
    return found


def file_of(module: ModuleType) -> Path:
    return Path(inspect.getfile(module))


def negated(module: ModuleType, directory: Path) -> Path:
    """The module with the last assertion of each contract negated."""
    tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            *_, last = [None, *(part for part in ast.walk(node) if isinstance(part, ast.Assert))]
            if last is not None:
                last.test = ast.UnaryOp(ast.Not(), last.test)
    path = directory / f"negated_{module.__name__.replace('.', '_')}.py"
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    return path


def is_refuted(verdict: str) -> bool:
    return verdict not in ("confirmed", "open")


@pytest.mark.long
@pytest.mark.parametrize("module", CONTRACTS)
def test_no_contract_is_refuted(module: ModuleType) -> None:
    found = verdicts(file_of(module), CONTRACTS[module])
    for name, verdict in found.items():
        print(f"{module.__name__}.{name}: {verdict}")
    assert {name: verdict for name, verdict in found.items() if is_refuted(verdict)} == {}


@pytest.mark.long
def test_most_contracts_of_the_spec_are_confirmed() -> None:
    found = list(verdicts(file_of(spec_contracts), CONTRACTS[spec_contracts]).values())
    assert found.count("confirmed") > len(found) // 2


@pytest.mark.long
@pytest.mark.parametrize("module", CONTRACTS)
def test_negated_contracts_are_refuted(module: ModuleType, tmp_path: Path) -> None:
    found = verdicts(negated(module, tmp_path))
    assert {name: verdict for name, verdict in found.items() if not is_refuted(verdict)} == {}


def test_wrong_contracts_are_noticed(tmp_path: Path) -> None:
    found = verdicts(file_of(wrong_contracts))
    assert found.pop("premises_contradict") == "confirmed"
    assert {name: verdict for name, verdict in found.items() if not is_refuted(verdict)} == {}
    assert verdicts(negated(wrong_contracts, tmp_path))["premises_contradict"] == "confirmed"
