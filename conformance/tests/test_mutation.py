"""Mutants are generated in every way that is named, run in place and leave no trace."""

import ast
import importlib.util
import inspect
import math
from pathlib import Path

import pytest

from hitproof.conformance import mutation
from hitproof.conformance.mutation import mutants
from hitproof.spec import attention, groups
from hitproof.spec.attention import attends

CHANGES = {
    "a < b": {"a <= b", "a > b", "a >= b"},
    "0 <= a < b": {"0 < a < b", "0 > a < b", "0 >= a < b", "0 <= a <= b", "0 <= a > b"}
    | {"0 <= a >= b"},
    "a is b": {"a is not b"},
    "a not in b": {"a in b"},
    "a + b": {"a - b", "a", "b"},
    "a // b": {"a * b", "a % b", "a", "b"},
    "a & b": {"a | b", "a", "b"},
    "a or b": {"a and b", "a", "b"},
    "a and b and c": {"a or b or c", "b and c", "a and c", "a and b"},
    "not a": {"a"},
    "7": {"8", "6"},
    "True": {"False"},
    "'text'": set(),
    "max(a, b)": {"min(a, b)", "max(b, a)", "a", "b"},
    "math.lcm(*a)": {"math.gcd(*a)"},
    "f(a, *b)": {"f(*b, a)", "a"},
    "f(a, b, c)": {"f(b, a, c)", "f(a, c, b)"},
    "f(a, key=b)": {"f(a)"},
    "a if b else c": {"c if b else a", "a", "c"},
    "[a for a in b]": set(),
    "(a for a in b if a)": {"(a for a in b)"},
    "group.tail": {"group.lookahead", "group.segment"},
}


@pytest.mark.parametrize("expression", CHANGES)
def test_changes_to_an_expression(expression: str) -> None:
    node = ast.parse(expression, mode="eval").body
    assert {ast.unparse(changed) for changed, _ in mutation.single_points(node)} == CHANGES[
        expression
    ]


STATEMENTS = {
    "if a: b()": {"if not a:"},
    "if a < b: c()": {"if a <= b:", "if a > b:", "if a >= b:"},
    "if not a: b()": {"if a:"},
    "if a and b: c()": {"if not (a and b):", "if a or b:", "if a:", "if b:"},
    "while a: b()": {"while not a:"},
    "while a: break": {"while not a:", "continue"},
    "for a in b: continue": {"break"},
    "a += b": {"a -= b"},
    "x: int = -a": {"x: int = a"},
    "raise E(1)": set(),
    "assert a < b": set(),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_changes_to_a_statement(statement: str, tmp_path: Path) -> None:
    (tmp_path / "mutated.py").write_text(f"def f():\n    {statement}\n")
    spec = importlib.util.spec_from_file_location("mutated", tmp_path / "mutated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = list(mutants(module))
    assert {mutant.after for mutant in found} == STATEMENTS[statement]
    assert {mutant.lines for mutant in found} <= {(2, 2)}


def test_mutant_is_run_by_whoever_imported_the_function() -> None:
    name = "spec.attention.attends: token <= query -> token < query"
    (mutant,) = (mutant for mutant in mutants(attention) if mutant.name == name)
    original = attends.__code__
    assert attends(3, 3, None)
    with mutant.applied():
        assert not attends(3, 3, None)
        assert attends(3, 2, None)
    with pytest.raises(ZeroDivisionError), mutant.applied():
        math.log(1 / 0)
    assert attends.__code__ is original
    assert attends(3, 3, None)


def test_methods_are_mutated_and_what_is_raised_is_not() -> None:
    names = [mutant.name for mutant in mutants(groups)]
    assert any(name.startswith("spec.groups.Group.__post_init__: ") for name in names)
    assert not any("the alignment" in name or "a block holds" in name for name in names)


def test_the_lines_of_a_statement_end_before_those_in_it() -> None:
    (statement,) = ast.parse("match x:\n    case 1:\n        y = 1\n").body
    assert mutation.lines_of(statement) == (1, 1)


def test_the_text_of_a_mutant_is_the_module_with_the_change() -> None:
    original = ast.parse(inspect.getsource(groups)).body
    for mutant in mutants(groups, {"geometry"}):
        assert mutant.text is not None
        changed = ast.parse(mutant.text()).body
        differ = [
            (ast.unparse(old), ast.unparse(new))
            for old, new in zip(original, changed, strict=True)
            if ast.dump(old) != ast.dump(new)
        ]
        ((old, new),) = differ
        assert new.count(mutant.after) > old.count(mutant.after) or mutant.before in old
