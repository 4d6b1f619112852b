"""The kinds of structured faults, and what makes them: a statement with one fault, in every way.

What cannot matter, going by its text alone, is no fault and is not made:

- doing twice what is so already after the first time (`Vocabulary.idempotent`, and what Python says
  of sets and of ``pop`` with a default);
- keeping a value that no two calls can differ in, and a memo whose key decides the value;
- another order of a set, of a list that is read as one, or of turns that have nothing to do with
  each other;
- deleting the name of a local variable, and leaving out what only asserts something.

Whatever else means the same needs an argument about the code, and so an entry of its own.
"""

import ast
import builtins
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

from hitproof.conformance import mutation
from hitproof.conformance.structured.scopes import Scope


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
class Edit:
    """A fault, a text that identifies it in its statement, and how the statements are made."""

    fault: Fault
    key: str
    make: Callable[[], Sequence[ast.stmt]]


def same(new: Sequence[ast.stmt]) -> Sequence[ast.stmt]:
    """The statements, which are made already."""
    return new


def depend(first: ast.stmt, second: ast.stmt) -> bool:
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


def edits_of(statement: ast.stmt, scope: Scope) -> Iterator[Edit]:
    """The statement with one fault, in every way."""
    for fault, new in _of_statement(statement, scope):
        yield Edit(fault, " ".join(map(mutation.head_of, new)), partial(same, new))
    for place, node in _expressions(statement):
        for fault, changed in _of_expression(node, scope):
            yield Edit(
                fault, f"{place} {ast.unparse(changed)}", partial(_with, statement, place, changed)
            )


_IDEMPOTENT = re.compile(r"\.(add|discard|clear|sort)\(|\.pop\([^()]*, (None|\(\))\)+$")
_TOKENS = re.compile(r"(_tokens|_length|boundary|_start|_end|token_idx)$")
_BLOCKS = re.compile(r"(num_\w*blocks?|block_idx|_block|need|peek|_idx)$")


def _of_statement(
    statement: ast.stmt, scope: Scope
) -> Iterator[tuple[Fault, tuple[ast.stmt, ...]]]:
    place = _kept_in(scope)
    match statement:
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value) if not (
            isinstance(value, ast.Constant)
        ):
            for off in _offsets(ast.unparse(target), scope):
                yield Fault.BOUNDARY, (statement, *_parsed(f"{ast.unparse(target)} {off}"))
            if isinstance(target, ast.Name) and _read(value, scope):
                kept = f"{place}.setdefault('_fault_{target.id}', {ast.unparse(value)})"
                yield Fault.STATE, tuple(_parsed(f"{target.id} = {kept}"))
        case ast.Return(value=ast.expr() as value) if read := _read(value, scope):
            for key in _incomplete_keys(scope):
                if read == {key} and not _reads_object(value):
                    continue  # the key decides the value: such a memo is right
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
            if not _asserts(statement):
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
            if "block" in text and not grouped and not _any_order(statement, scope):
                yield Fault.ORDER, (_loop(statement, f"list({text})[::-1]"),)


def _is_idempotent(statement: ast.stmt, scope: Scope) -> bool:
    """Whether doing it twice is the same as doing it once."""
    text = ast.unparse(statement)
    patterns = (_IDEMPOTENT, scope.vocabulary.idempotent)
    return any(pattern.search(text) for pattern in patterns) or any(
        text.startswith(f"{name}.append(") for name in scope.vocabulary.unordered
    )


def _asserts(statement: ast.If) -> bool:
    """Whether all that an ``if`` does is to say, by a RuntimeError, what cannot be."""
    return all(
        isinstance(each, ast.Raise)
        and isinstance(each.exc, ast.Call)
        and ast.unparse(each.exc.func) == "RuntimeError"
        for each in statement.body
    )


_SET = re.compile(r"(set|frozenset|Set)\b")


def _any_order(loop: ast.For, scope: Scope) -> bool:
    """Whether any order of a loop is right: it is over a set, or each turn is about its own."""
    source = ast.unparse(loop.iter)
    return _SET.match(scope.parameters.get(source, "")) is not None or _are_apart(
        loop.body, ast.unparse(loop.target), scope
    )


def _are_apart(body: Sequence[ast.stmt], each: str, scope: Scope) -> bool:
    """Whether the turns of a loop have nothing to do with each other.

    Entries of lists or sets are marked, ``each`` is counted or taken out of something, or a method
    of it is called without arguments; nothing else.
    """
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Subscript()], value=ast.Constant()) | ast.Continue():
                pass
            case ast.Assign(targets=[ast.Name()]):
                pass  # a local variable, written again for the next entry
            case ast.AugAssign(target=ast.Attribute(value=ast.Name(id=name))) if name == each:
                pass
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add"))):
                pass
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="remove"), args=[ast.Name(id=name)])
            ) if name == each:
                pass
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=[], keywords=[])
            ) if name == each:
                pass
            case ast.If() if all(
                _are_apart(branch, each, scope) for branch in (statement.body, statement.orelse)
            ):
                pass
            case _ if scope.vocabulary.unjudged.search(mutation.head_of(statement)):
                pass
            case _:
                return False
    return True


def _loop(statement: ast.For, source: str) -> ast.For:
    changed = deepcopy(statement)
    changed.iter = expression(source)
    return changed


def _offsets(target: str, scope: Scope) -> Iterator[str]:
    name = target.rpartition(".")[2]
    if _TOKENS.search(name) and "block" not in name:
        for size in scope.vocabulary.sizes:
            if scope.reaches(size):
                yield f"-= {size}"
                yield f"+= {size}"
    elif _BLOCKS.search(name):
        yield "-= 1"
        yield "+= 1"


_OBJECT = frozenset(("self", "cls", "super"))


def _read(value: ast.expr, scope: Scope) -> set[str]:
    """The names whose values may differ between calls.

    ``self``, builtins and what the module defines are none: a value that is made of them alone may
    be kept.
    """
    defined = scope.names - scope.parameters.keys()
    return _names(value) - _OBJECT - vars(builtins).keys() - defined


def _reads_object(value: ast.expr) -> bool:
    """Whether attributes, which may change, have to do with the value."""
    return not _OBJECT.isdisjoint(_names(value))


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _kept_in(scope: Scope) -> str:
    """Where state can be kept between calls."""
    if scope.constructs:
        return "globals()"
    for owner in ("self", "block_pool"):
        if owner in scope.parameters and scope.parameters[owner] != "KVCacheBlock":
            return f"{owner}.__dict__"
    return "globals()"


_SIZED = re.compile(r"Sequence|list|List|Iterable|tuple")


def _incomplete_keys(scope: Scope) -> Iterator[str]:
    for name, annotation in scope.parameters.items():
        if annotation in ("int", "str", "bool") or annotation.startswith("int |"):
            yield name
        elif annotation == "Request":
            yield f"{name}.request_id"
        elif _SIZED.match(annotation) or annotation.endswith("List"):
            yield f"len({name})"


def _of_expression(node: ast.expr, scope: Scope) -> Iterator[tuple[Fault, ast.expr]]:
    """The expression with one fault, in every way."""
    vocabulary = scope.vocabulary
    match node:
        case ast.Subscript(value=value, slice=index) if not isinstance(
            index, ast.Slice | ast.Constant | ast.UnaryOp
        ):
            name = _last_name(value)
            if name in vocabulary.groups:
                for other in ("0", "-1"):
                    yield Fault.OTHER_GROUP, expression(f"{ast.unparse(value)}[{other}]")
            elif "hash" in name:
                here = ast.unparse(index)
                for other in (f"max(0, {here} - 1)", f"{here} - 1", f"{here} + 1"):
                    yield Fault.KEY, expression(f"{ast.unparse(value)}[{other}]")
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
            yield Fault.CLASS, ast.Constant(False)
            yield Fault.CLASS, ast.Constant(True)
            several = kinds.elts if isinstance(kinds, ast.Tuple) else []
            for each in several:
                changed = deepcopy(node)
                changed.args[1] = ast.Tuple([k for k in several if k is not each], ast.Load())
                yield Fault.CLASS, changed
        case ast.Call(func=ast.Name(id="reversed"), args=[source]):
            yield Fault.ORDER, expression(f"list({ast.unparse(source)})")
        case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[value]) if (
            _last_name(owner) not in vocabulary.unordered
        ):
            text = f"{ast.unparse(owner)}.insert(0, {ast.unparse(value)})"
            yield Fault.ORDER, expression(text)
        case ast.Call(func=ast.Attribute(value=owner, attr=("append_n" | "prepend_n") as name)):
            other = "append_n" if name == "prepend_n" else "prepend_n"
            arguments = ", ".join(map(ast.unparse, node.args))
            yield Fault.ORDER, expression(f"{ast.unparse(owner)}.{other}({arguments})")
            yield Fault.ORDER, expression(f"{ast.unparse(owner)}.{name}(list({arguments})[::-1])")
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            for other in _siblings(name, scope.members(owner)):
                yield Fault.SIBLING, expression(f"{owner}.{other}")
            if name in vocabulary.group:
                yield Fault.OTHER_GROUP, ast.Constant(0)
        case ast.Name(id=name, ctx=ast.Load()):
            if name in scope.parameters:
                for other in _siblings(name, scope.parameters):
                    yield Fault.SIBLING, expression(other)
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
                    changed.keywords[number].value = expression(text)
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


def expression(text: str) -> ast.expr:
    """An expression from its text."""
    return ast.parse(text, mode="eval").body
