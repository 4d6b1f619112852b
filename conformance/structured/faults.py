"""Generates structured faults of Python functions: what single-point mutants cannot express.

Each replaces a statement by others: a boundary moved by a block, a loop that leaves out a group,
the parameter of another group, a class that a test no longer recognizes, a value kept between
calls, another attribute or key, another order, a call left out or made twice. About half of them
take effect on a condition only: from the second call on, with several groups, with EAGLE, for a
preempted request. Conditions come from a vocabulary; what a function can reach decides which apply.
"""

import ast
import builtins
import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, zip_longest
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from hitproof.conformance import mutation
from hitproof.conformance.mutation import Mutant
from hitproof.conformance.structured.edits import Edit, Fault, depend, edits_of, expression, same
from hitproof.conformance.structured.scopes import Scope, Vocabulary, classes_of, parameters_of

EFFECTIVE = "_fault_is_effective"
"""A name that is True in the globals of the function once the condition has held in a probe.

The fault itself records nothing: that is a trace which checks could notice instead of the fault.
"""


def faults(
    module: ModuleType, wanted: Mapping[str, int], vocabulary: Vocabulary
) -> Iterator[Mutant]:
    """Structured faults of functions of ``module``.

    ``wanted`` has their qualified names, and how many faults of each kind each may get at most.
    They are chosen by a hash of their text: the choice is the same everywhere, and changes with
    that function only.
    """
    tree = ast.parse(inspect.getsource(module))
    classes = dict(chain(*(classes_of(ast.parse(text)) for text in vocabulary.sources)))
    names = frozenset(vars(module)) | frozenset(vars(builtins))
    for path, node in mutation.defined_functions(tree):
        qualified = ".".join([*(scope.name for scope in path), node.name])
        overloads = any("overload" in ast.unparse(each) for each in node.decorator_list)
        if qualified not in wanted or overloads:
            continue
        function = mutation.function_of(module, qualified.split("."))
        found: dict[Fault, list[_Replacement]] = {}
        of_all, constructs = parameters_of(node, path), node.name == "__init__"
        scope = Scope(vocabulary, classes, of_all, names, constructs)
        for each in _replacements(node, scope):
            found.setdefault(each.fault, []).append(each)
        for several in found.values():
            for replacement in islice(_chosen(several, qualified), wanted[qualified]):
                name = function.__code__.co_qualname
                code = mutation.compiled(replacement.put(node), path, module, name)
                probe = partial(_probe, replacement, node, path, module, name)
                yield Mutant(
                    f"{qualified}: {replacement.before} -> {replacement.after}",
                    function,
                    code,
                    replacement.fault,
                    replacement.before,
                    replacement.after,
                    mutation.lines_of(replacement.old[0]),
                    None if replacement.condition is None else probe,
                )


def _probe(
    replacement: "_Replacement",
    node: ast.FunctionDef,
    path: tuple[ast.ClassDef, ...],
    module: ModuleType,
    name: str,
) -> CodeType:
    return mutation.compiled(replacement.probe(node), path, module, name)


def _chosen(several: Sequence["_Replacement"], function: str) -> Iterator["_Replacement"]:
    """By preference, alternating those that always take effect with those that may not."""
    ranked = sorted((_rank(function, each.key), number) for number, each in enumerate(several))
    found = [several[number] for _, number in ranked]
    always = [each for each in found if each.condition is None]
    turns = [always, [each for each in found if each.condition is not None]]
    if _rank(function, several[0].fault)[0] in "02468ace":
        turns.reverse()
    seen = set[tuple[_Place, str]]()
    for turn in chain.from_iterable(zip_longest(*turns)):
        if turn is not None and turn.changes and (text := (turn.place, turn.after)) not in seen:
            seen.add(text)
            yield turn


def _rank(*texts: str) -> str:
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()


_Place: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Replacement:
    """Statements of a function, and what replaces them, on a condition or always."""

    edit: Edit
    place: _Place
    old: tuple[ast.stmt, ...]
    condition: str | None

    @property
    def fault(self) -> Fault:
        return self.edit.fault

    @property
    def key(self) -> str:
        return f"{self.place} {self.edit.key} {self.condition}"

    @property
    def before(self) -> str:
        return mutation.head_of(self.old[0])

    @property
    def after(self) -> str:
        new = "; ".join(mutation.head_of(each) for each in self.edit.make())
        return new if self.condition is None else f"if {self.condition}: {new}"

    @property
    def changes(self) -> bool:
        """Whether the new statements differ from the old ones."""
        return [ast.dump(n) for n in self.edit.make()] != [ast.dump(o) for o in self.old]

    def put(self, function: ast.FunctionDef) -> ast.FunctionDef:
        """The function with the new statements."""
        new = list(self.edit.make())
        if self.condition is not None:
            new = [ast.If(expression(self.condition), new, list(self.old))]
        return self._with(function, new)

    def probe(self, function: ast.FunctionDef) -> ast.FunctionDef:
        """The function with the old statements, recording whether the condition held."""
        test = f"({self.condition}) and globals().setdefault({EFFECTIVE!r}, True)"
        return self._with(function, [ast.If(expression(test), [ast.Pass()], []), *self.old])

    def _with(self, function: ast.FunctionDef, new: Sequence[ast.stmt]) -> ast.FunctionDef:
        changed = deepcopy(function)
        owner: Any = changed
        for name, index in self.place[:-1]:
            owner = getattr(owner, name)[index]
        name, index = self.place[-1]
        getattr(owner, name)[index : index + len(self.old)] = [
            ast.copy_location(deepcopy(each), self.old[0]) for each in new
        ]
        return changed


def _replacements(function: ast.FunctionDef, scope: Scope) -> Iterator[_Replacement]:
    for place, statement, following, extra, never in _statements(function, (), scope.vocabulary):
        here = replace(scope, parameters={**scope.parameters, **extra})
        if scope.constructs:
            here = replace(here, attributes=scope.before(function, statement))
        conditions = [each for each in here.conditions() if each not in never]
        found: list[tuple[Edit, tuple[ast.stmt, ...]]] = [
            (edit, (statement,)) for edit in edits_of(statement, here)
        ]
        if following is not None and depend(statement, following):
            pair = (statement, following)
            found.append((Edit(Fault.ORDER, "swap", partial(same, pair[::-1])), pair))
        for edit, old in found:
            if edit.fault is not Fault.SOMETIMES:
                yield _Replacement(edit, place, old, None)
            for condition in conditions:
                # What does nothing on the condition may be left out on it.
                if edit.fault is not Fault.OMITTED or not _denies(statement, condition):
                    yield _Replacement(edit, place, old, condition)


def _denies(statement: ast.AST, condition: str) -> bool:
    """Whether an ``if`` asks for the opposite of a condition."""
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == f"not {condition}"


def _denied(test: ast.expr, holds: bool) -> set[str]:
    """The conditions that do not hold where all of ``test`` holds, or where none of it does."""
    parts = [test]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if holds else ast.Or):
        parts = test.values
    if not holds:
        return {ast.unparse(part) for part in parts}
    denials = (part for part in parts if isinstance(part, ast.UnaryOp))
    return {ast.unparse(part.operand) for part in denials if isinstance(part.op, ast.Not)}


_BODIES = ("body", "orelse", "finalbody")


def _statements(
    owner: Any, place: _Place, vocabulary: Vocabulary
) -> Iterator[tuple[_Place, ast.stmt, ast.stmt | None, dict[str, str], set[str]]]:
    """Each statement with its place, and the one after it.

    Then the parameters of inner functions, and conditions that do not hold where it is.
    """
    for name in _BODIES:
        body = getattr(owner, name, [])
        never: set[str] = set()
        if isinstance(owner, ast.If):
            never = _denied(owner.test, name == "body")
            if name == "orelse" and vocabulary.certain.search(ast.unparse(owner.test)):
                body = []
        for index, statement in enumerate(body):
            if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            if vocabulary.unjudged.search(mutation.head_of(statement)):
                continue
            here = (*place, (name, index))
            following = body[index + 1] if index + 1 < len(body) else None
            if not isinstance(statement, ast.FunctionDef):
                yield here, statement, following, {}, never
            inner = parameters_of(statement) if isinstance(statement, ast.FunctionDef) else {}
            for each, found, after, extra, denied in _statements(statement, here, vocabulary):
                yield each, found, after, {**inner, **extra}, never | denied
