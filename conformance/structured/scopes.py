"""What is in reach of a statement: names, attributes, and the conditions made of them."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_NOTHING = re.compile(r"(?!)")


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
        never: for some classes a pattern of conditions that never hold in their methods.
        never_at_first: a pattern of conditions that never hold while an object is set up.
        idempotent: a pattern of calls that change nothing when they are made again at once.
        sources: the modules whose classes the code under test uses, as text.
    """

    conditions: Sequence[str] = ()
    class_conditions: Sequence[str] = ()
    sizes: Sequence[str] = ()
    groups: Collection[str] = ()
    group: Collection[str] = ()
    unordered: Collection[str] = ()
    unjudged: re.Pattern[str] = _NOTHING
    certain: re.Pattern[str] = _NOTHING
    never: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    never_at_first: re.Pattern[str] = _NOTHING
    idempotent: re.Pattern[str] = _NOTHING
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class Class:
    """A class.

    Attributes:
        bases: the names of its bases.
        methods: the names of its methods.
        fields: its other attributes.
        initial: those of them that each object has once the class's ``__init__`` has run.
    """

    bases: tuple[str, ...]
    methods: frozenset[str]
    fields: frozenset[str]
    initial: frozenset[str] = frozenset()


Classes: TypeAlias = Mapping[str, Class]


@dataclass(frozen=True)
class Scope:
    """What is in reach of a statement.

    Attributes:
        vocabulary: the vocabulary.
        classes: the classes that are known.
        parameters: each parameter of the function, with the class that it is annotated with.
        names: what the module defines.
        constructs: whether the function sets its object up, so that no call is the second one.
        attributes: the attributes of ``self`` that are set already where the function sets it up.
    """

    vocabulary: Vocabulary
    classes: Classes
    parameters: Mapping[str, str]
    names: frozenset[str]
    constructs: bool = False
    attributes: frozenset[str] = frozenset()

    def members(self, owner: str) -> frozenset[str]:
        """The attributes of a parameter that are no methods, inherited ones included."""
        if self.constructs and owner == "self":
            return self.attributes
        found: frozenset[str] = frozenset()
        for each in self._lineage(self.parameters.get(owner, "")):
            found |= each.fields
        return found

    def before(self, function: ast.FunctionDef, statement: ast.stmt) -> frozenset[str]:
        """The attributes of ``self`` that are set when its ``__init__`` reaches a statement.

        Methods and properties are none of them: they may read what is not set yet.
        """
        earlier = [each for each in function.body if each.lineno < statement.lineno]
        found = frozenset(_stored(earlier))
        if any("super().__init__(" in ast.unparse(each) for each in earlier):
            _, *bases = self._lineage(self.parameters["self"])
            found = found.union(*(each.initial for each in bases))
        return found

    def conditions(self) -> Iterator[str]:
        """The conditions that can be asked for."""
        given = list(self.vocabulary.conditions)
        if any(self.parameters.get("self") in each.bases for each in self.classes.values()):
            given += self.vocabulary.class_conditions
        owner = self.parameters.get("self") or self.parameters.get("cls", "")
        never = [self.vocabulary.never.get(owner, _NOTHING)]
        if self.constructs:
            never.append(self.vocabulary.never_at_first)
        return (
            each
            for each in given
            if self.reaches(each) and not any(pattern.search(each) for pattern in never)
        )

    def reaches(self, expression: str) -> bool:
        """Whether names, and attributes of parameters, are bound, and what is counted can be."""
        for node in ast.walk(ast.parse(expression, mode="eval")):
            match node:
                case ast.Name(id=name):
                    if name not in self.parameters and name not in self.names:
                        return False
                case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=sized)]):
                    known = list(self._lineage(self.parameters.get(sized, "")))
                    if known and not any("__len__" in each.methods for each in known):
                        return False
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if self.constructs:
                    if name not in self.attributes:
                        return False
                case ast.Attribute(value=ast.Name(id=owner), attr=name):
                    lineage = self._lineage(self.parameters.get(owner, ""))
                    if not any(name in each.fields | each.methods for each in lineage):
                        return False
        return True

    def _lineage(self, owner: str) -> Iterator[Class]:
        pending, seen = [owner], set[str]()
        while pending:
            name = pending.pop()
            if name in self.classes and name not in seen:
                seen.add(name)
                yield self.classes[name]
                pending += self.classes[name].bases


def parameters_of(node: ast.FunctionDef, path: Sequence[ast.ClassDef] = ()) -> dict[str, str]:
    """The parameters of a function, with annotations; ``path`` has the classes around it."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    found = {a.arg: ast.unparse(a.annotation).strip("\"'") if a.annotation else "" for a in given}
    return found | {name: path[-1].name for name in ("self", "cls") if path and name in found}


def classes_of(tree: ast.Module) -> Iterator[tuple[str, Class]]:
    """The classes that a module defines, by their names."""
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
        initial = frozenset(_stored(_constructor(node)))
        yield node.name, Class(bases, frozenset(methods), frozenset(fields), initial)


def _constructor(node: ast.ClassDef) -> Sequence[ast.stmt]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return each.body
    return []


def _stored(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The attributes of ``self`` that the statements themselves store, on no condition."""
    for each in statements:
        targets = each.targets if isinstance(each, ast.Assign) else []
        if isinstance(each, ast.AnnAssign) and each.value is not None:
            targets = [each.target]
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    yield name
