"""Generates structured faults of Python functions: what single-point mutants cannot express.

Each replaces a statement by others: a boundary moved by a block, a loop that leaves out a group,
the parameter of another group, a class that a test no longer recognizes, a value kept between
calls, another attribute or key, another order, a call left out or made twice. About half of them
take effect on a condition only: from the second call on, with several groups, with EAGLE, for a
preempted request. Conditions come from a vocabulary; what a function can reach decides which apply.

In one module, though long: it is the one list of the kinds of faults, and what makes them.
"""

import ast
import builtins
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import chain, islice, zip_longest
from types import CodeType, ModuleType
from typing import Any, TypeAlias

from hitproof.conformance import mutation
from hitproof.conformance.mutation import Mutant

EFFECTIVE = "_fault_is_effective"
"""A name that is True in the globals of the function once the condition has held in a probe.

The fault itself records nothing: that is a trace which checks could notice instead of the fault.
"""


class Fault(StrEnum):
    """What is wrong."""

    BOUNDARY = "shifted boundary"
    DROPPED = "dropped group or element"
    OTHER_GROUP = "other group's parameter"
    CLASS = "class not recognized"
    STATE = "state kept"
    SIBLING = "other attribute"
    KEY = "other key"
    ORDER = "other order"
    OMITTED = "omitted"
    TWICE = "done twice"
    SOMETIMES = "wrong on a condition"


@dataclass(frozen=True)
class Vocabulary:
    """What the code under test is made of.

    Attributes:
        conditions: expressions under which a fault takes effect.
        class_conditions: the same, which tell the subclasses of a class apart.
        sizes: expressions for sizes in tokens, by which a number of tokens can be off.
        groups: names of sequences with one entry a group.
        group: names of the number of a group.
        unordered: names of lists that are read as sets.
        unjudged: a pattern of statements that are left as they are.
        certain: a pattern of conditions that always hold.
        sources: the modules whose classes the code under test uses, as text.
    """

    conditions: Sequence[str] = ()
    class_conditions: Sequence[str] = ()
    sizes: Sequence[str] = ()
    groups: Collection[str] = ()
    group: Collection[str] = ()
    unordered: Collection[str] = ()
    unjudged: re.Pattern[str] = re.compile(r"(?!)")
    certain: re.Pattern[str] = re.compile(r"(?!)")
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class _Class:
    """A class: its bases, its methods, and its other attributes."""

    bases: tuple[str, ...]
    methods: frozenset[str]
    fields: frozenset[str]


_Classes: TypeAlias = Mapping[str, _Class]


@dataclass(frozen=True)
class _Scope:
    """What is in reach of a statement.

    Attributes:
        vocabulary: the vocabulary.
        classes: the classes that are known.
        parameters: each parameter of the function, with the class that it is annotated with.
        names: what the module defines.
        constructs: whether the function sets its object up, so that no call is the second one.
    """

    vocabulary: Vocabulary
    classes: _Classes
    parameters: Mapping[str, str]
    names: frozenset[str]
    constructs: bool = False

    def members(self, owner: str) -> frozenset[str]:
        """The attributes of the class that are no methods, inherited ones included."""
        found: frozenset[str] = frozenset()
        for each in self._lineage(owner):
            found |= each.fields
        return found

    def conditions(self) -> Iterator[str]:
        """The conditions that can be asked for."""
        given = list(self.vocabulary.conditions)
        if any(self.parameters.get("self") in each.bases for each in self.classes.values()):
            given += self.vocabulary.class_conditions
        return filter(self.reaches, given)

    def reaches(self, expression: str) -> bool:
        """Whether each name of the expression is bound, and each attribute of a parameter is."""
        for node in ast.walk(ast.parse(expression, mode="eval")):
            match node:
                case ast.Name(id=name):
                    if name not in self.parameters and name not in self.names:
                        return False
                case ast.Attribute(value=ast.Name(id=owner), attr=name):
                    lineage = self._lineage(self.parameters.get(owner, ""))
                    if not any(name in each.fields | each.methods for each in lineage):
                        return False
        return True

    def _lineage(self, owner: str) -> Iterator[_Class]:
        pending, seen = [owner], set[str]()
        while pending:
            name = pending.pop()
            if name in self.classes and name not in seen:
                seen.add(name)
                yield self.classes[name]
                pending += self.classes[name].bases


def faults(
    module: ModuleType, wanted: Mapping[str, int], vocabulary: Vocabulary
) -> Iterator[Mutant]:
    """Structured faults of functions of ``module``.

    ``wanted`` has their qualified names, and how many faults of each kind each may get at most.
    They are chosen by a hash of their text: the choice is the same everywhere, and changes with
    that function only.
    """
    tree = ast.parse(inspect.getsource(module))
    classes = dict(chain(*(_classes(ast.parse(text)) for text in vocabulary.sources)))
    names = frozenset(vars(module)) | frozenset(vars(builtins))
    for path, node in mutation.defined_functions(tree):
        qualified = ".".join([*(scope.name for scope in path), node.name])
        overloads = any("overload" in ast.unparse(each) for each in node.decorator_list)
        if qualified not in wanted or overloads:
            continue
        function = mutation.function_of(module, qualified.split("."))
        found: dict[Fault, list[_Replacement]] = {}
        of_all, constructs = _parameters(node, path), node.name == "__init__"
        scope = _Scope(vocabulary, classes, of_all, names, constructs)
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
    """In order of preference: those that always take effect in turn with those that may not."""
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
class _Edit:
    """A fault, a text that identifies it in its statement, and how the statements are made."""

    fault: Fault
    key: str
    make: Callable[[], Sequence[ast.stmt]]


@dataclass(frozen=True)
class _Replacement:
    """Statements of a function, and what replaces them, on a condition or always."""

    edit: _Edit
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
            new = [ast.If(_expression(self.condition), new, list(self.old))]
        return self._with(function, new)

    def probe(self, function: ast.FunctionDef) -> ast.FunctionDef:
        """The function with the old statements, recording whether the condition held."""
        test = f"({self.condition}) and globals().setdefault({EFFECTIVE!r}, True)"
        return self._with(function, [ast.If(_expression(test), [ast.Pass()], []), *self.old])

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


def _replacements(function: ast.FunctionDef, scope: _Scope) -> Iterator[_Replacement]:
    for place, statement, following, extra in _statements(function, (), scope.vocabulary):
        here = replace(scope, parameters={**scope.parameters, **extra})
        conditions = list(here.conditions())
        found: list[tuple[_Edit, tuple[ast.stmt, ...]]] = [
            (edit, (statement,)) for edit in _edits(statement, here)
        ]
        if following is not None and _depend(statement, following):
            pair = (statement, following)
            found.append((_Edit(Fault.ORDER, "swap", partial(_same, pair[::-1])), pair))
        for edit, old in found:
            if edit.fault is not Fault.SOMETIMES:
                yield _Replacement(edit, place, old, None)
            for condition in conditions:
                yield _Replacement(edit, place, old, condition)


def _same(new: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    return new


_BODIES = ("body", "orelse", "finalbody")


def _statements(
    owner: Any, place: _Place, vocabulary: Vocabulary
) -> Iterator[tuple[_Place, ast.stmt, ast.stmt | None, dict[str, str]]]:
    """Each statement with its place, the one after it, and the parameters of inner functions."""
    for name in _BODIES:
        body = getattr(owner, name, [])
        if name == "orelse" and isinstance(owner, ast.If):
            body = [] if vocabulary.certain.search(ast.unparse(owner.test)) else body
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
                yield here, statement, following, {}
            inner = _parameters(statement) if isinstance(statement, ast.FunctionDef) else {}
            for each, found, after, extra in _statements(statement, here, vocabulary):
                yield each, found, after, {**inner, **extra}


def _depend(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two simple statements may do something else in the other order."""
    match first, second:
        case ast.Expr(value=ast.Call()), ast.Expr(value=ast.Call()):
            return not all(_IDEMPOTENT.search(ast.unparse(each)) for each in (first, second))
        case (ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Assign(), _) if isinstance(
            second, ast.Expr | ast.AugAssign | ast.Assign
        ):
            return any(
                re.search(rf"{re.escape(text)}(?!\w)", ast.unparse(other))
                for one, other in ((first, second), (second, first))
                for text in _stored(one)
            )
    return False


def _stored(statement: ast.stmt) -> list[str]:
    """The attributes and entries that a statement stores, or whose object it may change."""
    match statement:
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target]):
            return [ast.unparse(target)]
        case ast.AugAssign(target=target):
            return [ast.unparse(target)]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute() as owner))):
            return [ast.unparse(owner)]
    return []


def _edits(statement: ast.stmt, scope: _Scope) -> Iterator[_Edit]:
    """The statement with one fault, in every way."""
    for fault, new in _of_statement(statement, scope):
        yield _Edit(fault, " ".join(map(mutation.head_of, new)), partial(_same, new))
    for place, node in _expressions(statement):
        for fault, changed in _of_expression(node, scope):
            yield _Edit(
                fault, f"{place} {ast.unparse(changed)}", partial(_with, statement, place, changed)
            )


_IDEMPOTENT = re.compile(r"\.(add|discard|clear|sort)\(|\.pop\(.*, None\)$")
_TOKENS = re.compile(r"(_tokens|_length|boundary|_start|_end|token_idx)$")
_BLOCKS = re.compile(r"(num_\w*blocks?|block_idx|_block|need|peek|_idx)$")


def _of_statement(
    statement: ast.stmt, scope: _Scope
) -> Iterator[tuple[Fault, tuple[ast.stmt, ...]]]:
    place = _kept_in(scope)
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if not (
            isinstance(value, ast.Constant)
        ):
            for off in _offsets(ast.unparse(target), scope):
                yield Fault.BOUNDARY, (statement, *_parsed(f"{ast.unparse(target)} {off}"))
            if isinstance(target, ast.Name) and _varies(value):
                kept = f"{place}.setdefault('_fault_{target.id}', {ast.unparse(value)})"
                yield Fault.STATE, tuple(_parsed(f"{target.id} = {kept}"))
        case ast.Return(value=ast.expr() as value) if _varies(value):
            for key in _incomplete_keys(scope):
                memo = f"{place}.setdefault('_fault_memo', {{}})"
                text = f"return {memo}.setdefault({key}, {ast.unparse(value)})"
                yield Fault.STATE, tuple(_parsed(text))
    match statement:
        case ast.Delete(targets=[ast.Name()]):
            pass  # a local variable, which only says that it is not used
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
            yield Fault.OMITTED, (ast.Pass(),)
            if not _is_idempotent(statement, scope):
                yield Fault.TWICE, (statement, statement)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield Fault.OMITTED, (ast.Pass(),)
        case ast.If(orelse=[]):
            yield Fault.OMITTED, (ast.Pass(),)
            yield Fault.SOMETIMES, tuple(statement.body)
        case ast.If():
            yield Fault.SOMETIMES, tuple(statement.body)
            yield Fault.SOMETIMES, tuple(statement.orelse)
        case ast.For(iter=source):
            text = ast.unparse(source)
            for part in (f"list({text})[:-1]", f"list({text})[1:]"):
                yield Fault.DROPPED, (_loop(statement, part),)
            grouped = any(name in text for name in scope.vocabulary.groups)
            if "block" in text and not grouped and not _only_marks(statement.body):
                yield Fault.ORDER, (_loop(statement, f"list({text})[::-1]"),)


def _is_idempotent(statement: ast.stmt, scope: _Scope) -> bool:
    """Whether doing it twice is the same as doing it once."""
    text = ast.unparse(statement)
    return _IDEMPOTENT.search(text) is not None or any(
        text.startswith(f"{name}.append(") for name in scope.vocabulary.unordered
    )


def _only_marks(body: Sequence[ast.stmt]) -> bool:
    """Whether entries of lists or sets are marked and nothing else: in any order the same."""
    for each in body:
        match each:
            case ast.Assign(targets=[ast.Subscript()], value=ast.Constant()) | ast.Continue():
                pass
            case ast.Assign(targets=[ast.Name()]):
                pass  # a local variable, written again for the next entry
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add"))):
                pass
            case ast.If() if _only_marks(each.body) and _only_marks(each.orelse):
                pass
            case _:
                return False
    return True


def _loop(statement: ast.For, source: str) -> ast.For:
    changed = deepcopy(statement)
    changed.iter = _expression(source)
    return changed


def _offsets(target: str, scope: _Scope) -> Iterator[str]:
    name = target.rpartition(".")[2]
    if _TOKENS.search(name) and "block" not in name:
        for size in scope.vocabulary.sizes:
            if scope.reaches(size):
                yield f"-= {size}"
                yield f"+= {size}"
    elif _BLOCKS.search(name):
        yield "-= 1"
        yield "+= 1"


def _varies(value: ast.expr) -> bool:
    """Whether the value may differ between calls: something but ``self`` and its parts is read."""
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return bool(names - {"self", "cls"} - vars(builtins).keys())


def _kept_in(scope: _Scope) -> str:
    """Where state can be kept between calls."""
    if scope.constructs:
        return "globals()"
    for owner in ("self", "block_pool"):
        if owner in scope.parameters and scope.parameters[owner] != "KVCacheBlock":
            return f"{owner}.__dict__"
    return "globals()"


_SIZED = re.compile(r"Sequence|list|List|Iterable|tuple")


def _incomplete_keys(scope: _Scope) -> Iterator[str]:
    for name, annotation in scope.parameters.items():
        if annotation in ("int", "str", "bool") or annotation.startswith("int |"):
            yield name
        elif annotation == "Request":
            yield f"{name}.request_id"
        elif _SIZED.match(annotation) or annotation.endswith("List"):
            yield f"len({name})"


def _of_expression(node: ast.expr, scope: _Scope) -> Iterator[tuple[Fault, ast.expr]]:
    """The expression with one fault, in every way."""
    vocabulary = scope.vocabulary
    match node:
        case ast.Subscript(value=value, slice=index) if not isinstance(
            index, ast.Slice | ast.Constant | ast.UnaryOp
        ):
            name = _last_name(value)
            if name in vocabulary.groups:
                for other in ("0", "-1"):
                    yield Fault.OTHER_GROUP, _expression(f"{ast.unparse(value)}[{other}]")
            elif "hash" in name:
                here = ast.unparse(index)
                for other in (f"max(0, {here} - 1)", f"{here} - 1", f"{here} + 1"):
                    yield Fault.KEY, _expression(f"{ast.unparse(value)}[{other}]")
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
            yield Fault.CLASS, ast.Constant(False)
            yield Fault.CLASS, ast.Constant(True)
            several = kinds.elts if isinstance(kinds, ast.Tuple) else []
            for each in several:
                changed = deepcopy(node)
                changed.args[1] = ast.Tuple([k for k in several if k is not each], ast.Load())
                yield Fault.CLASS, changed
        case ast.Call(func=ast.Name(id="reversed"), args=[source]):
            yield Fault.ORDER, _expression(f"list({ast.unparse(source)})")
        case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value]) if (
            _last_name(owner) not in vocabulary.unordered
        ):
            text = f"{ast.unparse(owner)}.insert(0, {ast.unparse(value)})"
            yield Fault.ORDER, _expression(text)
        case ast.Call(func=ast.Attribute(value=owner, attr=("append_n" | "prepend_n") as name)):
            other = "append_n" if name == "prepend_n" else "prepend_n"
            arguments = ", ".join(map(ast.unparse, node.args))
            yield Fault.ORDER, _expression(f"{ast.unparse(owner)}.{other}({arguments})")
            yield Fault.ORDER, _expression(f"{ast.unparse(owner)}.{name}(list({arguments})[::-1])")
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            for other in _siblings(name, scope.members(scope.parameters.get(owner, ""))):
                yield Fault.SIBLING, _expression(f"{owner}.{other}")
            if name in vocabulary.group:
                yield Fault.OTHER_GROUP, ast.Constant(0)
        case ast.Name(id=name, ctx=ast.Load()):
            if name in scope.parameters:
                for other in _siblings(name, scope.parameters):
                    yield Fault.SIBLING, _expression(other)
            if name in vocabulary.group:
                yield Fault.OTHER_GROUP, ast.Constant(0)
            if "parent" in name:
                yield Fault.KEY, ast.Constant(None)
    match node:
        case ast.Call(keywords=keywords):
            for number, argument in enumerate(node.args):
                if _last_name(argument).endswith(("extra_keys", "extra_hash_keys")):
                    changed = deepcopy(node)
                    changed.args[number] = ast.Constant(None)
                    yield Fault.KEY, changed
            for number, keyword in enumerate(keywords):
                for off in _offsets(keyword.arg or "", scope):
                    changed = deepcopy(node)
                    text = f"{ast.unparse(keyword.value)} {off.replace('=', '')}"
                    changed.keywords[number].value = _expression(text)
                    yield Fault.BOUNDARY, changed
    for point, change in mutation.single_points(node):
        if isinstance(point, ast.expr) and change is not mutation.Change.ARGUMENTS:
            yield Fault.SOMETIMES, point


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


_SORTS = ("tokens", "blocks", "block", "size", "ids", "id", "idx", "boundary", "length", "hashes")


def _siblings(name: str, others: Collection[str]) -> list[str]:
    """The other names of the same sort, going by their last word."""
    sort = name.rpartition("_")[2]
    if sort not in _SORTS:
        return []
    return sorted(o for o in others if o != name and o.rpartition("_")[2] == sort)


_ExpressionPlace: TypeAlias = tuple[tuple[str, int | None], ...]


def _expressions(
    node: ast.AST, place: _ExpressionPlace = ()
) -> Iterator[tuple[_ExpressionPlace, ast.expr]]:
    """The expressions of a statement, without the statements in it."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "targets", "target"):
            continue
        several = value if isinstance(value, list) else [value]
        for index, child in enumerate(several):
            if not isinstance(child, ast.AST) or isinstance(child, ast.stmt | ast.excepthandler):
                continue
            here = (*place, (name, index if isinstance(value, list) else None))
            if isinstance(child, ast.expr):
                yield here, child
            yield from _expressions(child, here)


def _with(statement: ast.stmt, place: _ExpressionPlace, changed: ast.expr) -> list[ast.stmt]:
    copy = deepcopy(statement)
    owner: Any = copy
    for name, index in place[:-1]:
        owner = getattr(owner, name) if index is None else getattr(owner, name)[index]
    name, index = place[-1]
    if index is None:
        setattr(owner, name, changed)
    else:
        getattr(owner, name)[index] = changed
    return [copy]


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _parameters(node: ast.FunctionDef, path: Sequence[ast.ClassDef] = ()) -> dict[str, str]:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    found = {a.arg: ast.unparse(a.annotation).strip("\"'") if a.annotation else "" for a in given}
    if path and "self" in found:
        found["self"] = path[-1].name
    return found


def _classes(tree: ast.Module) -> Iterator[tuple[str, _Class]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        methods, fields = set[str](), set[str]()
        for each in node.body:
            match each:
                case ast.FunctionDef(name=name, decorator_list=decorators):
                    is_field = any("property" in ast.unparse(d) for d in decorators)
                    (fields if is_field else methods).add(name)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    fields.add(name)
                case ast.Assign(targets=[ast.Name(id=name)]):
                    fields.add(name)
        for inner in ast.walk(node):
            match inner:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    fields.add(name)
        bases = tuple(ast.unparse(base) for base in node.bases)
        yield node.name, _Class(bases, frozenset(methods), frozenset(fields))
