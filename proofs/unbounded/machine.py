"""Symbolic execution of a function's source, one path at a time.

A path is a sequence of decisions: wherever the function asks for the truth of a formula, both
answers that are possible are followed, each by an execution from the start. Loops whose iterations
have no fixed number are cut (`proofs.unbounded.loops`). What is not described here is
`Unsupported`.

The supported part of Python is in one place, so that it can be read as a whole: this module has
more than 400 lines.
"""

import ast
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeAlias

from hitproof.proofs.unbounded.knowledge import GivenUp, Knowledge
from hitproof.proofs.unbounded.source import Source, Unsupported, source_of
from hitproof.proofs.unbounded.terms import Arithmetic, Truth
from hitproof.proofs.unbounded.values import (
    Above,
    Block,
    Bound,
    Broken,
    Contract,
    Distinct,
    Entries,
    Filled,
    Items,
    Key,
    Listing,
    Marks,
    Maybe,
    Raised,
    Record,
    Unknown,
    equal,
    is_number,
    is_same,
    is_truth,
    type_of,
)
from hitproof.spec.terms import Formula, Term

_DEEPEST = 20
_MADE = "list that is made"
_MOST_UNROLLED = 16
"""Up to how many iterations, if their number is known, a loop is not cut."""


Decisions: TypeAlias = tuple[bool, ...]
"""Answers to the questions of an execution, in order."""


class Path:
    """The decisions of one execution.

    Attributes:
        decisions: those that were made, in order.
        knowledge: what holds on the path.
        others: the beginnings of other paths that are possible.
        impossible: the beginnings of those that are not.

    ``in_short`` follows paths that may be impossible rather than to ask for long.
    """

    def __init__(
        self, arithmetic: Arithmetic, beginning: Decisions, in_short: bool = False
    ) -> None:
        self._arithmetic = arithmetic
        self._in_short = in_short
        self._beginning = beginning
        self._known: dict[Any, bool] = {}
        self._supposed: list[tuple[int, Formula]] = []
        self.decisions: Decisions = ()
        self.knowledge = Knowledge(arithmetic)
        self.others: list[Decisions] = []
        self.impossible: set[Decisions] = set()

    def _is_possible(self, formula: Formula) -> bool:
        """Whether a formula may hold. The same question has the same answer each time.

        Z3 may give up once and not another time, since it remembers what it was asked between. A
        path that is executed again must come to the same decisions.
        """
        question = self._question(formula)
        answers = self._arithmetic.possible
        if question not in answers:
            answers[question] = self._may_hold(formula)
        return answers[question]

    def _question(self, formula: Formula) -> tuple[Formula, ...]:
        """A formula, after all that is supposed."""
        return (*(each for _, each in self._supposed), formula)

    def _may_hold(self, formula: Formula) -> bool:
        if self.knowledge.allows(formula):
            return True
        if not self._in_short:
            return self.knowledge.values(formula) is not None
        try:
            return self.knowledge.values(formula, in_short=True) is not None
        except GivenUp:
            return True

    def suppose(self, formula: Formula) -> None:
        """Go on where the formula holds."""
        if formula is not True and getattr(formula, "key", None) not in self._known:
            self._add(len(self.decisions), formula)

    def _add(self, number: int, formula: Formula) -> None:
        if self._supposed and self._supposed[-1][0] < number:
            self.knowledge.may_part()
        self.knowledge.add(formula)
        self._supposed.append((number, formula))
        if isinstance(formula, Truth):
            self._known[formula.key] = True

    def forget(self, kept: Decisions) -> None:
        """Know no more than before the first decision that is not one of those kept."""
        supposed = [each for each in self._supposed if each[0] <= len(kept)]
        self._known, self._supposed, self.knowledge = {}, [], Knowledge(self._arithmetic)
        for number, formula in supposed:
            self._add(number, formula)

    def from_here(self, beginning: Decisions) -> "Path":
        """A path that knows the same, and whose decisions are its own."""
        other = Path(self._arithmetic, beginning, self._in_short)
        for _, formula in self._supposed:
            other.suppose(formula)
        return other

    def require(self, sentence: str, formula: Formula) -> None:
        """Raise `Broken` unless the formula follows."""
        question = self._question(formula)
        if question in self._arithmetic.required:
            return
        values = self.knowledge.fails(lambda: formula)
        if values is not None:
            raise Broken(sentence, values)
        self._arithmetic.required.add(question)

    def decide(self, formula: Formula) -> bool:
        """Whether the formula holds on this path; both answers are followed, if possible."""
        if isinstance(formula, bool):
            return formula
        otherwise = self._arithmetic.not_(formula)
        if formula.key in self._known:
            return True
        if otherwise.key in self._known:
            return False
        number = len(self.decisions)
        if number < len(self._beginning):
            holds = self._beginning[number]
        else:
            holds = self._is_possible(formula)
            other = (*self.decisions, not holds)
            if holds and self._is_possible(otherwise):
                self.others.append(other)
            else:
                self.impossible.add(other)
        self.decisions = (*self.decisions, holds)
        self.suppose(formula if holds else otherwise)
        return holds


Standing: TypeAlias = Callable[[Sequence[tuple[Any, Path]]], Any]
"""Gives a value that is as good as each of several, with their paths; None if there is none."""


class Frame:
    """The variables of one call, or those of a comprehension in it."""

    def __init__(
        self, function: FunctionType, source: Source, around: "Frame | None" = None
    ) -> None:
        self.function = function
        self.source = source
        self.around = around
        self.variables: dict[str, Any] = {}

    def place(self, node: ast.AST) -> str:
        """File and line of a part of the function."""
        return self.source.place(node)


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


@dataclass
class _Return(Exception):
    value: Any


Cut = Callable[["Machine", Frame, "ast.For | ast.While", "Items | None"], None]
"""Executes a loop of any number of iterations."""


class Machine:
    """Executes functions on one path.

    Attributes:
        arithmetic: what numbers and formulas mean.
        path: the path.
        frames: the calls that are being executed.
        counting: whether lists of any length count the block of the position.
        active: for each loop that is being executed and is cut, the lists that existed when it
            began, by identity, and when that was.
    """

    def __init__(
        self,
        arithmetic: Arithmetic,
        path: Path,
        cut: Cut,
        contracts: Mapping[Any, Contract] = MappingProxyType({}),
        counting: bool = False,
        stands_for: Standing | None = None,
    ) -> None:
        self.arithmetic, self.counting, self._stands_for = arithmetic, counting, stands_for
        self.path = path
        self.frames: list[Frame] = []
        self.active: list[tuple[set[int], int]] = []
        self._cut, self._contracts = cut, contracts
        self._clock = self._hashed = 0
        self._certain: Callable[[Term], Formula] | None = None
        self._iterated: list[tuple[Listing, ...]] = []

    # --- calls

    def call(self, function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call anything that can be called."""
        if isinstance(function, MethodType):
            function = Bound(function.__func__, function.__self__)
        if isinstance(function, Bound):
            return self.call(function.function, [function.receiver, *arguments], named)
        if isinstance(function, Contract):
            return function.apply(self, *arguments, **named)
        if isinstance(function, FunctionType):
            contract = self._contracts.get(function)
            if contract is not None:
                return contract.apply(self, *arguments, **named)
            return self.execute(function, arguments, named)
        described = next((told for known, told in DESCRIBED if known is function), None)
        if described is not None:
            try:
                inspect.signature(described).bind(self, *arguments, **named)
            except TypeError:
                raise Unsupported(f"such arguments of {function.__name__}") from None
            return described(self, *arguments, **named)
        if isinstance(function, type):
            made = self._contracts.get(function)
            if made is not None:
                return made.apply(self, *arguments, **named)
            return self._make(function, arguments, named)
        raise Unsupported(f"a call of {function!r:.60}")

    def _make(self, of: type, arguments: Sequence[Any], named: Mapping[str, Any]) -> Record:
        initialize = inspect.getattr_static(of, "__init__")
        if _inherited(of, "__new__") is not object.__new__ or not isinstance(
            initialize, FunctionType
        ):
            raise Unsupported(f"an instance of {of.__name__}")
        if _inherited(type(of), "__call__") is not type.__call__ or _reads_specially(of):
            raise Unsupported(f"an instance of {of.__name__}")
        made = Record(of, born=self.tick())
        self.call(initialize, [made, *arguments], named)
        return made

    def execute(
        self, function: FunctionType, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Call a function as it is, even if it is described."""
        frame = Frame(function, source_of(function))
        if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            raise Unsupported("a generator", frame.place(frame.source.definition))
        if len(self.frames) >= _DEEPEST:
            raise Unsupported("a recursion", frame.place(frame.source.definition))
        frame.variables = _bound(function, arguments, named)
        return self.run(frame, frame.source.definition.body)

    def run(self, frame: Frame, body: Sequence[ast.stmt]) -> Any:
        """Execute the body of a function, and give what it returns."""
        self.frames.append(frame)
        try:
            self.block(body, frame)
        except _Return as returned:
            return returned.value
        finally:
            self.frames.pop()
        return None

    def merged(self, run: Callable[[], Any]) -> Any:
        """What something gives that changes nothing: one value for all ways, if one stands for all.

        The decisions on these ways are not made then.
        """
        if self._stands_for is None:
            return run()
        around, results = self.path, []
        beginnings: list[Decisions] = [()]
        try:
            while beginnings:
                self.path = around.from_here(beginnings.pop())
                results.append((run(), self.path))
                beginnings += self.path.others
        except (Raised, Unsupported):
            results = []
        finally:
            self.path = around
        found = self._stands_for(results)
        return run() if found is None else found

    # --- statements

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> None:
        """Execute statements."""
        for statement in statements:
            execute = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if execute is None:
                raise Unsupported(f"{type(statement).__name__}", frame.place(statement))
            try:
                execute(statement, frame)
            except Unsupported as error:
                if error.place:
                    raise
                raise Unsupported(error.construct, frame.place(statement)) from None
            except Raised as error:
                if error.place:
                    raise
                raise Raised(error.what, frame.place(statement)) from None

    def _do_expr(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)

    def _do_pass(self, _node: ast.Pass, _frame: Frame) -> None:
        pass

    def _do_break(self, _node: ast.Break, _frame: Frame) -> None:
        raise _Break

    def _do_continue(self, _node: ast.Continue, _frame: Frame) -> None:
        raise _Continue

    def _do_return(self, node: ast.Return, frame: Frame) -> None:
        raise _Return(None if node.value is None else self.value(node.value, frame))

    def _do_functiondef(self, node: ast.FunctionDef, frame: Frame) -> None:
        """A function that changes nothing and has no variables of its own but its parameters."""
        parameters = node.args
        plain = not (parameters.defaults or parameters.kwonlyargs or node.decorator_list)
        if not plain or parameters.vararg or parameters.kwarg or any(map(_assigns, ast.walk(node))):
            raise Unsupported("such a function in a function", frame.place(node))
        names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]

        def apply(machine: Machine, *given: Any, **named: Any) -> Any:
            values = dict(zip(names, given, strict=False)) | named
            if len(given) + len(named) != len(names) or set(values) != set(names):
                raise Unsupported(f"such arguments of {node.name}")

            def run() -> Any:
                inner = Frame(frame.function, frame.source, frame)
                inner.variables = dict(values)
                return machine.run(inner, node.body)

            return machine.merged(run)

        frame.variables[node.name] = Contract(apply, node)

    def _do_assert(self, node: ast.Assert, frame: Frame) -> None:
        if __debug__ and not self.truth(self.value(node.test, frame)):
            raise Raised("AssertionError")

    def _do_raise(self, node: ast.Raise, _frame: Frame) -> None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        raise Raised("an exception" if raised is None else ast.unparse(raised))

    def _do_if(self, node: ast.If, frame: Frame) -> None:
        holds = self.truth(self.value(node.test, frame))
        self.block(node.body if holds else node.orelse, frame)

    def _do_assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)

    def _do_annassign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:  # what annotates a variable of a function is not evaluated
            self.assign(node.target, self.value(node.value, frame), frame)

    def _do_augassign(self, node: ast.AugAssign, frame: Frame) -> None:
        if not isinstance(node.target, ast.Name):
            raise Unsupported("an augmented assignment to what is no variable")
        left = self._named(node.target.id, frame)
        if not is_number(left) and not is_truth(left):
            raise Unsupported("an augmented assignment to what is no number")
        value = self._operate(node.op, left, self.value(node.value, frame))
        frame.variables[node.target.id] = value

    def _do_delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in frame.variables:
                del frame.variables[target.id]
                continue
            if not isinstance(target, ast.Subscript) or not isinstance(target.slice, ast.Slice):
                raise Unsupported("a deletion of what is no slice")
            of, part = self.value(target.value, frame), target.slice
            if part.lower is None or part.upper is not None or part.step is not None:
                raise Unsupported("a deletion of another slice than to the end")
            self._shorten(of, self.value(part.lower, frame))

    def _do_for(self, node: ast.For, frame: Frame) -> None:
        self._go_through(node, self.items(self.value(node.iter, frame)), frame)

    def _go_through(self, node: ast.For, items: Items, frame: Frame) -> None:
        with self._fixed(items):
            if not isinstance(items.length, int) or items.length > _MOST_UNROLLED:
                self._cut(self, frame, node, items)
                return
            for place in range(items.length):
                self.assign(node.target, items.at(place), frame)
                if not self.iteration(node, frame):
                    return
        self.block(node.orelse, frame)

    @contextmanager
    def _fixed(self, items: Items) -> Iterator[None]:
        """Reject changes of lists while they are iterated."""
        self._iterated.append(items.lists)
        try:
            yield
        finally:
            self._iterated.pop()

    def _do_while(self, node: ast.While, frame: Frame) -> None:
        self._cut(self, frame, node, None)

    def iteration(self, node: "ast.For | ast.While", frame: Frame) -> bool:
        """Execute the body of a loop once; whether the loop goes on."""
        try:
            self.block(node.body, frame)
        except _Break:
            return False
        except _Continue:
            pass
        return True

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Assign to a variable, the variables of a tuple, an item or an attribute."""
        match target:
            case ast.Name(name):
                frame.variables[name] = value
            case ast.Tuple(targets) | ast.List(targets):
                if isinstance(value, Listing) and value.items is not None:
                    value = tuple(value.items)
                if not isinstance(value, tuple):
                    raise Unsupported("an assignment to several variables")
                if len(targets) != len(value):
                    raise Raised("ValueError")
                for each, item in zip(targets, value, strict=True):
                    self.assign(each, item, frame)
            case ast.Subscript(of, part) if not isinstance(part, ast.Slice):
                self._put(self.value(of, frame), self.value(part, frame), value)
            case ast.Attribute(of, name):
                record = self.value(of, frame)
                if (
                    not isinstance(record, Record)
                    or not record.born
                    or any(record.born < began for _, began in self.active)
                ):
                    raise Unsupported(f"an assignment to the attribute {name}")
                if inspect.getattr_static(record.python_type, name, None) is not None:
                    raise Unsupported(f"an assignment to the attribute {name} of a class")
                record.attributes[name] = value
            case _:
                raise Unsupported(f"an assignment to {ast.unparse(target)}")

    # --- expressions

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression."""
        evaluate = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if evaluate is None:
            raise Unsupported(f"{type(node).__name__}", frame.place(node))
        return evaluate(node, frame)

    def _of_constant(self, node: ast.Constant, _frame: Frame) -> Any:
        return self._taken(node.value, "a constant")

    def _of_name(self, node: ast.Name, frame: Frame) -> Any:
        return self._named(node.id, frame)

    def _named(self, name: str, frame: Frame) -> Any:
        at: Frame | None = frame
        while at is not None:
            if name in at.variables:
                found = at.variables[name]
                if isinstance(found, Unknown):
                    if found.needed is not None:
                        found.needed()
                    raise Unsupported(f"{name}, which is {found.why}")
                return found
            at = at.around
        function, code = frame.function, frame.function.__code__
        if name in code.co_varnames or name in code.co_cellvars:
            raise Raised("UnboundLocalError")
        if name in code.co_freevars:
            cell = (function.__closure__ or ())[code.co_freevars.index(name)]
            return self._taken(cell.cell_contents, name)
        built_in = function.__globals__.get("__builtins__", {})
        built_in = vars(built_in) if isinstance(built_in, ModuleType) else built_in
        for names in (function.__globals__, built_in):
            if name in names:
                return self._taken(names[name], name)
        raise Raised("NameError")

    def _taken(self, value: Any, name: str) -> Any:
        """A value of the real program that cannot change."""
        if isinstance(value, tuple):
            return tuple(self._taken(each, name) for each in value)
        is_plain = value is None or type(value) in (bool, int, str)
        if is_plain or callable(value) or isinstance(value, (ModuleType, type(int | str))):
            return value
        raise Unsupported(f"{name}, which is a {type(value).__name__}")

    def _of_attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        return self.attribute(self.value(node.value, frame), node.attr)

    def attribute(self, of: Any, name: str) -> Any:
        """An attribute of an object, a class, a module or a list."""
        if isinstance(of, Listing):
            if name in _OF_LISTS:
                return Bound(Contract(_OF_LISTS[name]), of)
        elif isinstance(of, Marks):
            if name in _OF_MARKS:
                return Bound(Contract(_OF_MARKS[name]), of)
        elif isinstance(of, Entries):
            if name == "get":
                return Bound(Contract(Machine.get), of)
        elif isinstance(of, Above):
            return self._of_above(of, name)
        elif isinstance(of, tuple):
            if name in getattr(type(of), "_fields", ()):
                return getattr(of, name)
        elif isinstance(of, ModuleType):
            if "__getattr__" not in vars(of) and name in vars(of):
                return self._taken(vars(of)[name], name)
        elif isinstance(of, type):
            return self._of_class(of, of, name)
        elif isinstance(of, Record):
            return self._of_record(of, name)
        elif isinstance(of, Block):
            return self._of_block(of, name)
        raise Unsupported(f"the attribute {name} of {of!r:.60}")

    def _of_block(self, block: Block, name: str) -> Any:
        if name == "is_null":
            return block.place == -1
        if name not in ("block_hash", "block_hash_num_tokens"):
            raise Unsupported(f"the attribute {name} of a block")
        of = name, block.group, self._hashed, block.place
        return Maybe(self.has_hash(block.place, block.group), of)

    def has_hash(self, place: Term, group: int = 0) -> Formula:
        """Whether a block has a hash by now."""
        has: Formula = self.arithmetic.holds_at(f"hashed@{self._hashed}/{group}", place)
        if self._certain is not None:
            self.path.suppose(self.arithmetic.implies(self._certain(place), has))
        return has

    def change_hashes(self, certain: Callable[[Term], Formula] | None = None) -> None:
        """From now on blocks may have a hash that had none, and the other way round.

        Those at the ``certain`` places have one.
        """
        if self.active:
            raise Unsupported("hashes that are changed in a loop")
        self._hashed += 1
        self._certain = certain

    def _of_record(self, record: Record, name: str) -> Any:
        found = inspect.getattr_static(record.python_type, name, None)
        if _reads_specially(record.python_type):
            raise Unsupported(f"the attribute {name} of a {record.python_type.__name__}")
        if isinstance(found, property):
            return self.call(found.fget, [record], {})
        if name in record.attributes:
            value = record.attributes[name]
            if isinstance(value, Unknown):
                raise Unsupported(f"the attribute {name}, which is {value.why}")
            return value
        if found is None or hasattr(type(found), "__set__"):
            raise Unsupported(f"the attribute {name} of a {record.python_type.__name__}")
        return self._of_class(record.python_type, record, name)

    def _of_class(self, of: type, receiver: Any, name: str) -> Any:
        if not set(vars(type(of))).isdisjoint(("__getattribute__", "__getattr__", name)) and (
            type(of) is not type
        ):
            raise Unsupported(f"the attribute {name} of the class {of.__name__}")
        found = inspect.getattr_static(of, name, None)
        match found:
            case classmethod():
                return Bound(found.__func__, of)
            case staticmethod():
                return found.__func__
            case FunctionType():
                return found if receiver is of else Bound(found, receiver)
        if hasattr(type(found), "__get__") or found is None:
            raise Unsupported(f"the attribute {name} of the class {of.__name__}")
        return self._taken(found, name)

    def _of_above(self, above: Above, name: str) -> Any:
        receiver = above.receiver
        of = receiver if isinstance(receiver, type) else receiver.python_type
        for each in of.__mro__[of.__mro__.index(above.of) + 1 :]:
            match vars(each).get(name):
                case classmethod() as found:
                    return Bound(found.__func__, of)
                case FunctionType() as found:
                    return Bound(found, receiver)
                case None:
                    continue
            break
        raise Unsupported(f"the attribute {name} of super()")

    def _above(self, frame: Frame) -> Above:
        """What ``super()`` is in a method."""
        code = frame.function.__code__
        if "__class__" not in code.co_freevars or not code.co_argcount:
            raise Unsupported("super() outside of a method")
        of = self._named("__class__", frame)
        receiver = self._named(code.co_varnames[0], frame)
        if not isinstance(receiver, (Record, type)):
            raise Unsupported(f"super() of {receiver!r:.60}")
        return Above(of, receiver)

    def _of_call(self, node: ast.Call, frame: Frame) -> Any:
        function = self.value(node.func, frame)
        if function is super and not node.args and not node.keywords:
            return self._above(frame)
        if any(isinstance(each, ast.Starred) for each in node.args):
            raise Unsupported("a starred argument", frame.place(node))
        if any(each.arg is None for each in node.keywords):
            raise Unsupported("a starred argument", frame.place(node))
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            if function not in (tuple, list):
                raise Unsupported("a generator expression", frame.place(node))
            arguments: list[Any] = [self._comprehended(node.args[0], frame)]
        else:
            arguments = [self.value(each, frame) for each in node.args]
        named = {str(each.arg): self.value(each.value, frame) for each in node.keywords}
        return self.call(function, arguments, named)

    def _of_listcomp(self, node: ast.ListComp, frame: Frame) -> Listing:
        return self._comprehended(node, frame)

    def _comprehended(self, node: "ast.GeneratorExp | ast.ListComp", frame: Frame) -> Listing:
        (part, *others) = node.generators
        if others or part.is_async or any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            raise Unsupported("such a comprehension", frame.place(node))
        over = self.items(self.value(part.iter, frame))
        inner = Frame(frame.function, frame.source, frame)
        made = inner.variables[_MADE] = self.new_list([])
        loop = _as_loop(node, part)
        self.frames.append(inner)
        try:
            self._go_through(loop, over, inner)
        finally:
            self.frames.pop()
        return made

    def _of_tuple(self, node: ast.Tuple, frame: Frame) -> tuple[Any, ...]:
        return tuple(self.value(each, frame) for each in node.elts)

    def _of_set(self, node: ast.Set, frame: Frame) -> Distinct:
        items: list[Term] = []
        for each in node.elts:
            number = self._number(self.value(each, frame))
            if not any(self.decide(number == other) for other in items):
                items.append(number)
        return Distinct(tuple(items))

    def _of_list(self, node: ast.List, frame: Frame) -> Listing:
        made = self.new_list([])
        for each in node.elts:
            if isinstance(each, ast.Starred):
                self.spread(made, self.value(each.value, frame))
            else:
                self.append(made, self.value(each, frame))
        return made

    def _of_namedexpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.value(node.value, frame)
        self.assign(node.target, value, frame)
        return value

    def _of_ifexp(self, node: ast.IfExp, frame: Frame) -> Any:
        holds = self.truth(self.value(node.test, frame))
        return self.value(node.body if holds else node.orelse, frame)

    def _of_boolop(self, node: ast.BoolOp, frame: Frame) -> Any:
        ends = isinstance(node.op, ast.Or)
        for each in node.values:
            value = self.value(each, frame)
            if each is node.values[-1] or self.truth(value) is ends:
                return value
        raise AssertionError

    def _of_unaryop(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.value(node.operand, frame)
        if isinstance(node.op, ast.Not):
            if is_truth(value):
                return self.arithmetic.not_(value)
            return not self.truth(value)
        if isinstance(node.op, ast.USub):
            return -self._number(value)
        raise Unsupported(f"the operator {type(node.op).__name__}", frame.place(node))

    def _of_binop(self, node: ast.BinOp, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        if isinstance(node.op, ast.Mult):
            if isinstance(left, Listing):
                return self._repeated(left, self._number(right))
            if isinstance(right, Listing):
                return self._repeated(right, self._number(left))
        if isinstance(node.op, ast.BitOr) and isinstance(left, type) and isinstance(right, type):
            return left | right
        return self._operate(node.op, left, right)

    def _operate(self, op: ast.operator, left: Any, right: Any) -> Any:
        left, right = self._number(left), self._number(right)
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv():
                return self._divided(left, right)
            case ast.Mod():
                return left - self._divided(left, right) * right
        raise Unsupported(f"the operator {type(op).__name__}")

    def _divided(self, left: Term, right: Term) -> Term:
        """Python's ``//``: rounded down, whatever the signs are."""
        if self.decide(right >= 1):
            return self.arithmetic.floor_div(left, right)
        if self.decide(right <= -1):
            return self.arithmetic.floor_div(-left, -right)
        raise Raised("ZeroDivisionError")

    def _of_compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.value(node.left, frame)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, frame)
            holds = self._compared(op, left, right)
            if part is node.comparators[-1] or not self.decide(holds):
                return holds
            left = right
        raise AssertionError

    def _compared(self, op: ast.cmpop, left: Any, right: Any) -> Formula:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = self._identical(left, right)
            return same if isinstance(op, ast.Is) else not same
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Marks):
            found = right.members[self._marked(right, left)]
            return found if isinstance(op, ast.In) else self.arithmetic.not_(found)
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, Entries):
            has = self._key(left) in right.entries
            return has if isinstance(op, ast.In) else not has
        compare = _COMPARISONS.get(type(op))
        if compare is None:
            raise Unsupported(f"the operator {type(op).__name__}")
        if isinstance(op, (ast.Eq, ast.NotEq)):
            if isinstance(left, Block) and isinstance(right, Block):
                same = equal(self.arithmetic, left, right)
                return same if isinstance(op, ast.Eq) else self.arithmetic.not_(same)
            # None and texts are equal to nothing else.
            kinds = [each is None or isinstance(each, str) for each in (left, right)]
            if any(kinds) and all(
                plain or is_number(each) or is_truth(each)
                for plain, each in zip(kinds, (left, right), strict=True)
            ):
                same = type(left) is type(right) and left == right
                return same if isinstance(op, ast.Eq) else not same
        return compare(self._number(left), self._number(right))

    def _identical(self, left: Any, right: Any) -> bool:
        if is_truth(left) and is_truth(right):
            return self.decide(left) == self.decide(right)
        for one, other in ((left, right), (right, left)):
            if one is None and isinstance(other, Maybe):
                return not self.decide(other.given)
            if one is None or type(one) is bool:
                known = is_number(other) or is_truth(other) or other is None
                objects = (str, tuple, type, Listing, Record, Items, Block, Key)
                if known or isinstance(other, objects):
                    return one is other
        if isinstance(left, (Listing, Record)) and isinstance(right, (Listing, Record)):
            return left is right
        raise Unsupported("the identity of such values")

    def _of_subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        of = self.value(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            if not isinstance(of, Items) or node.slice.step is not None:
                raise Unsupported("a slice", frame.place(node))
            lower, upper = node.slice.lower, node.slice.upper
            start = 0 if lower is None else self._edge(of, self.value(lower, frame))
            end = of.length if upper is None else self._edge(of, self.value(upper, frame))
            length = end - start if self.decide(start <= end) else 0
            return Items(length, lambda place: of.at(start + place), of.python_type, of.lists)
        return self.item(of, self.value(node.slice, frame))

    def _edge(self, of: Items, place: Any) -> Term:
        """Where a slice begins or ends."""
        place = self._number(place)
        if not self.decide(place >= 0):
            place = place + of.length
            place = place if self.decide(place >= 0) else 0
        return place if self.decide(place <= of.length) else of.length

    def item(self, of: Any, place: Any) -> Any:
        """An item, by Python's rules for negative places."""
        if isinstance(of, Record):
            method = inspect.getattr_static(of.python_type, "__getitem__", None)
            if not isinstance(method, FunctionType):
                raise Unsupported(f"an item of a {of.python_type.__name__}")
            return self.call(method, [of, place], {})
        if isinstance(of, Entries):
            if self._key(place) not in of.entries:
                raise Raised("KeyError")
            return of.entries[place]
        place = self._number(place)
        if isinstance(of, Listing) and of.items is None:
            raise Unsupported("an item of a list of any length")
        known = of.items if isinstance(of, Listing) else of
        if isinstance(known, (list, tuple)):
            if not isinstance(place, int):
                raise Unsupported("an item at any place of a list or tuple")
            if not -len(known) <= place < len(known):
                raise Raised("IndexError")
            return known[place]
        if isinstance(of, Items):
            return of.at(self._place(of.length, place))
        if isinstance(of, Filled):
            place = self._place(of.original.length, place)
            if self.decide(place == self.arithmetic.position):
                return of.cell
            if self.decide(of.low <= place) and self.decide(place < of.high):
                either = self.arithmetic.flag(f"{place} of {of.low} to {of.high}@{of.changed}")
                return of.item if self.decide(either) else of.original.at(place)
            return of.original.at(place)
        raise Unsupported(f"an item of {of!r:.60}")

    def _place(self, length: Term, place: Term) -> Term:
        if not self.decide(place >= 0):
            place = place + length
            if not self.decide(place >= 0):
                raise Raised("IndexError")
        if not self.decide(place < length):
            raise Raised("IndexError")
        return place

    # --- truth and numbers

    def decide(self, formula: Formula) -> bool:
        """Whether a formula holds on this path."""
        return self.path.decide(formula)

    def truth(self, value: Any) -> bool:
        """The truth of any value, by Python's rules."""
        if is_truth(value):
            return self.decide(value)
        if is_number(value):
            return self.decide(value != 0)
        if value is None:
            return False
        if isinstance(value, Listing):
            return self.decide(value.size() >= 1)
        if isinstance(value, (tuple, str)):
            return bool(value)
        raise Unsupported(f"the truth of {value!r:.60}")

    def _number(self, value: Any) -> Term:
        """A number, or what a truth value counts as."""
        if is_truth(value):
            return int(self.decide(value))
        if is_number(value):
            return value
        raise Unsupported(f"{value!r:.60} where a number is expected")

    # --- lists, and what can be iterated

    def new_list(self, items: list[Any]) -> Listing:
        """A list that the function makes."""
        return Listing(items, born=self.tick())

    def tick(self) -> int:
        """Number the moments at which lists are made and loops begin."""
        self._clock += 1
        return self._clock

    def items(self, over: Any) -> Items:
        """What an iteration yields, in order."""
        if isinstance(over, Items):
            return over
        if isinstance(over, tuple):
            return Items(len(over), _known(over))
        if isinstance(over, Listing) and over.items is not None:
            return Items(len(over.items), _known(over.items), lists=(over,))
        if isinstance(over, Record):
            return self._yielded(over)
        raise Unsupported(f"an iteration over {over!r:.60}")

    def _yielded(self, over: Record) -> Items:
        """What ``__iter__`` yields, if it is one loop that yields one item each time."""
        method = inspect.getattr_static(over.python_type, "__iter__", None)
        if not isinstance(method, FunctionType):
            raise Unsupported(f"an iteration over a {over.python_type.__name__}")
        source = source_of(method)
        match source.definition.body:
            case [ast.For(ast.Name(name), iter_, [ast.Expr(ast.Yield(ast.expr() as item))], [])]:
                frame = Frame(method, source)
                frame.variables = _bound(method, [over], {})
                inside = self.items(self.value(iter_, frame))

                def at(place: Term) -> Any:
                    frame.variables[name] = inside.at(place)
                    return self.value(item, frame)

                return Items(inside.length, at)
        raise Unsupported(f"an iteration over a {over.python_type.__name__}")

    def symbolic(self, of: Listing) -> None:
        """From now on only the item at the position is known."""
        if of.items is not None:
            for place, item in enumerate(of.items):
                if self.decide(self.arithmetic.position == place):
                    of.cell = item
                    break
            if self.counting:
                of.count = sum(map(self._counted, of.items))
            of.length, of.items = len(of.items), None

    def _counted(self, item: Any) -> int:
        """1 for the block of the position."""
        at = self.arithmetic.position
        return int(isinstance(item, Block) and self.decide(item.place == at))

    def _changing(self, of: Any) -> Listing:
        if not isinstance(of, Listing):
            raise Unsupported(f"a change of {of!r:.60}")
        if any(of is each for lists in self._iterated for each in lists):
            raise Unsupported("a change of a list while it is iterated")
        self._check_held(of)
        of.same = of.count = None
        return of

    def _check_held(self, of: "Listing | Filled | Marks") -> None:
        for known, began in self.active:
            if id(of) not in known and of.born < began:
                raise Unsupported("a change of what no variable holds")

    def _marked(self, of: Marks, number: Any) -> int:
        if type(number) is not int or not 0 <= number < len(of.members):
            raise Unsupported(f"{number!r:.60} in a set")
        return number

    def add(self, of: Any, number: Any) -> None:
        """``add`` of sets."""
        self._check_held(of)
        of.members[self._marked(of, number)] = True

    def clear(self, of: Any) -> None:
        """``clear`` of sets."""
        self._check_held(of)
        of.members[:] = [False] * len(of.members)

    def append(self, of: Any, item: Any) -> None:
        """``append`` of lists."""
        count = getattr(of, "count", None)
        of = self._changing(of)
        if of.items is not None:
            of.items.append(item)
            return
        if self.decide(self.arithmetic.position == of.length):
            of.cell = item
        of.length = of.length + 1
        of.count = None if count is None else count + self._counted(item)

    def pop(self, of: Any) -> Any:
        """``pop`` of lists, without a place."""
        of = self._changing(of)
        if of.items is not None:
            if not of.items:
                raise Raised("IndexError")
            return of.items.pop()
        if not self.decide(of.length >= 1):
            raise Raised("IndexError")
        of.length = of.length - 1
        return Unknown("an item of a list of any length")

    def spread(self, of: Listing, by: Any) -> None:
        """Append all that an iteration yields; if that is any number, the list must be empty."""
        over = self.items(by)
        if isinstance(over.length, int):
            for place in range(over.length):
                self.append(of, over.at(place))
            return
        if of.items != []:
            raise Unsupported("items of any number after others")
        of.cell = over.at(self.arithmetic.position)  # beyond the ends it is asked for nowhere
        of.items, of.length = None, over.length

    def extend(self, of: Any, by: Any) -> None:
        """``extend`` of lists by a list."""
        of = self._changing(of)
        if not isinstance(by, Listing):
            raise Unsupported("an extension by what is no list")
        if by.items is not None:
            for item in list(by.items):
                self.append(of, item)
        elif by.same is not None:
            self.symbolic(of)
            end = of.length + by.length
            at = self.arithmetic.position
            if self.decide(at >= of.length) and self.decide(at < end):
                of.cell = by.same
            of.length = end
        else:
            raise Unsupported("an extension by a list of any length")

    def _repeated(self, of: Listing, times: Term) -> Listing:
        if of.items is not None and isinstance(times, int):
            return self.new_list(of.items * times)
        if of.items is None or len(of.items) != 1:
            raise Unsupported("the repetition of such a list")
        (item,) = of.items
        length = times if self.decide(times >= 0) else 0
        return Listing(None, length, item, item, self.tick())

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            raise Unsupported(f"{key!r:.60} as a key")
        return key

    def get(self, of: Any, key: Any, default: Any = None) -> Any:
        """``get`` of dicts."""
        return of.entries.get(self._key(key), default)

    def _put(self, of: Any, place: Any, item: Any) -> None:
        if isinstance(of, Entries):
            if any(of.born < began for _, began in self.active):
                raise Unsupported("a change of a dict in a loop")
            of.entries[self._key(place)] = item
            return
        if isinstance(of, Filled):
            self._fill(of, self._place(of.original.length, self._number(place)), item)
            return
        of, place = self._changing(of), self._number(place)
        if of.items is not None and isinstance(place, int):
            if not -len(of.items) <= place < len(of.items):
                raise Raised("IndexError")
            of.items[place] = item
            return
        self.symbolic(of)
        place = self._place(of.length, place)
        if self.decide(self.arithmetic.position == place):
            of.cell = item

    def _fill(self, of: Filled, place: Term, item: Any) -> None:
        self._check_held(of)
        if not is_same(item, of.item):
            raise Unsupported("another item than the one that is put first")
        if self.decide(place == self.arithmetic.position):
            of.cell = item
        if self.decide(place == of.low - 1):
            of.low = place
        elif self.decide(of.low == of.high):
            of.low, of.high = place, place + 1
        elif self.decide(place < of.low):
            of.low = place
        elif self.decide(of.high <= place):
            of.high = place + 1
        elif self.active:
            raise Unsupported("a place that a loop may fill once more")
        of.changed = self.tick()

    def _shorten(self, of: Any, start: Any) -> None:
        of, start = self._changing(of), self._number(start)
        if of.items is not None and isinstance(start, int):
            del of.items[start:]
            return
        self.symbolic(of)
        if not self.decide(start >= 0):
            start = start + of.length
            start = start if self.decide(start >= 0) else 0
        if self.decide(start < of.length):
            of.length = start


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Formula]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

_OF_LISTS: dict[str, Callable[..., Any]] = {
    "append": Machine.append,
    "pop": Machine.pop,
    "extend": Machine.extend,
}


_OF_MARKS: dict[str, Callable[..., Any]] = {"add": Machine.add, "clear": Machine.clear}


def _reads_specially(of: type) -> bool:
    """Whether instances of a class have attributes in another way than objects usually do."""
    reads: Any = object.__getattribute__
    return _inherited(of, "__getattribute__") is not reads or hasattr(of, "__getattr__")


def _inherited(of: type, name: str) -> Any:
    """An attribute of a class."""
    return getattr(of, name)


def _as_loop(node: "ast.GeneratorExp | ast.ListComp", part: ast.comprehension) -> ast.For:
    """A comprehension as the loop that it stands for."""
    append = ast.Attribute(ast.Name(_MADE, ast.Load()), "append", ast.Load())
    body: ast.stmt = ast.Expr(ast.Call(append, [node.elt], []))
    for condition in reversed(part.ifs):
        body = ast.If(condition, [body], [])
    loop = ast.copy_location(ast.For(part.target, part.iter, [body], []), node)
    return ast.fix_missing_locations(loop)


def _known(items: Sequence[Any]) -> Callable[[Term], Any]:
    """The items of a list or tuple, at places that are known."""

    def at(place: Term) -> Any:
        if not isinstance(place, int):
            raise Unsupported("an item at any place of a list or tuple")
        return items[place]

    return at


def _assigns(node: ast.AST) -> bool:
    """Whether a part of a function sets a variable, or asks for those of others."""
    stores = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    return stores or isinstance(node, (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom))


def _bound(
    function: FunctionType, arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The parameters of a call, by name."""
    code = function.__code__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise Unsupported(f"any number of arguments of {function.__qualname__}")
    positional = code.co_varnames[: code.co_argcount]
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = dict(zip(positional, arguments, strict=False))
    by_name = known[code.co_posonlyargcount :]
    if len(arguments) > len(positional) or not set(named) <= set(by_name) - set(given):
        raise Raised("TypeError")
    defaults = function.__defaults__ or ()
    missing: dict[str, Any] = dict(
        zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    )
    missing |= function.__kwdefaults__ or {}
    bound = {name: _default(value) for name, value in missing.items()} | given | dict(named)
    if set(bound) != set(known):
        raise Raised("TypeError")
    return bound


def _default(value: Any) -> Any:
    if value is None or type(value) in (bool, int, str) or value == ():
        return value
    return Unknown(f"a default of type {type(value).__name__}")


# --- functions of Python that are described


def _range(machine: Machine, *bounds: Any) -> Items:
    if not 1 <= len(bounds) <= 3 or not all(map(is_number, bounds)):
        raise Unsupported("a range of such bounds")
    start, stop = bounds[:2] if len(bounds) > 1 else (0, *bounds)
    step = bounds[2] if len(bounds) > 2 else 1
    if machine.decide(step >= 1):
        length = -((start - stop) // step)
    elif machine.decide(step <= -1):
        length = -((stop - start) // -step)
    else:
        raise Raised("ValueError")
    length = length if machine.decide(length >= 0) else 0
    return Items(length, lambda place: start + place * step, range)


def _len(machine: Machine, of: Any) -> Term:
    if isinstance(of, Filled):
        return of.original.length
    if isinstance(of, Listing):
        return of.size()
    if isinstance(of, tuple):
        return len(of)
    if isinstance(of, Items):
        return of.length
    if isinstance(of, Record):
        method = inspect.getattr_static(of.python_type, "__len__", None)
        if isinstance(method, FunctionType):
            length = machine.call(method, [of], {})
            if is_number(length):
                if machine.decide(length >= 0):
                    return length
                raise Raised("ValueError")
    raise Unsupported(f"the length of {of!r:.60}")


def _extreme(is_better: Callable[[Any, Any], Formula]) -> Callable[..., Term]:
    def extreme(machine: Machine, *values: Any) -> Term:
        if len(values) < 2 or not all(map(is_number, values)):
            raise Unsupported("min or max of such arguments")
        best, *others = values
        for other in others:
            best = other if machine.decide(is_better(other, best)) else best
        return best

    return extreme


def _isinstance(_machine: Machine, value: Any, of: Any) -> bool:
    found = type_of(value)
    if found is None:
        raise Unsupported(f"isinstance of {value!r:.60}")
    options = of if isinstance(of, tuple) else getattr(of, "__args__", (of,))
    if not all(isinstance(each, type) for each in options):
        raise Unsupported("isinstance of such a type")
    return issubclass(found, tuple(options))


def _zip(machine: Machine, *parts: Any, strict: Any = False) -> Items:
    each = [machine.items(part) for part in parts]
    if not each or not all(isinstance(part.length, int) for part in each):
        raise Unsupported("zip of any length")
    lists = tuple(of for part in each for of in part.lists)
    length = min(part.length for part in each)
    if strict is not False and any(part.length > length for part in each):
        raise Unsupported("a strict zip of unequal lengths")
    return Items(length, lambda place: tuple(p.at(place) for p in each), lists=lists)


def _islice(machine: Machine, over: Any, stop: Any) -> Items:
    if not is_number(stop):
        raise Unsupported("islice with such an end")
    if not machine.decide(stop >= 0):
        raise Raised("ValueError")
    items = machine.items(over)
    length = stop if machine.decide(stop <= items.length) else items.length
    return Items(length, items.at, lists=items.lists)


def _tuple(machine: Machine, *of: Any) -> tuple[Any, ...]:
    if not of:
        return ()
    items = machine.items(of[0])
    if len(of) > 1 or not isinstance(items.length, int):
        raise Unsupported("a tuple of any length")
    return tuple(map(items.at, range(items.length)))


def _list(machine: Machine, *of: Any) -> Listing:
    made = machine.new_list([])
    for each in of:
        machine.spread(made, each)
    return made


def _set(machine: Machine) -> Marks:
    return Marks([False] * _MOST_UNROLLED, machine.tick())


def _sorted(machine: Machine, over: Any) -> Listing:
    of = over.items if isinstance(over, Distinct) else _tuple(machine, over)
    found: list[Term] = []
    for each in of:
        if not is_number(each):
            raise Unsupported("sorted of what are no numbers")
        less = (n for n, other in enumerate(found) if machine.decide(each < other))
        found.insert(next(less, len(found)), each)
    return machine.new_list(found)


def _enumerate(machine: Machine, over: Any) -> Items:
    items = machine.items(over)
    return Items(items.length, lambda place: (place, items.at(place)), lists=items.lists)


def _int(machine: Machine, value: Any) -> Term:
    if is_number(value):
        return value
    if is_truth(value):
        return int(machine.decide(value))
    raise Unsupported("int of such a value")


def _bool(machine: Machine, value: Any) -> Formula:
    return value if is_truth(value) else machine.truth(value)


def _abs(machine: Machine, value: Any) -> Term:
    value = _int(machine, value)
    return value if machine.decide(value >= 0) else -value


DESCRIBED: tuple[tuple[Any, Callable[..., Any]], ...] = (
    (range, _range),
    (len, _len),
    (min, _extreme(operator.lt)),
    (max, _extreme(operator.gt)),
    (isinstance, _isinstance),
    (zip, _zip),
    (islice, _islice),
    (tuple, _tuple),
    (list, _list),
    (set, _set),
    (sorted, _sorted),
    (enumerate, _enumerate),
    (int, _int),
    (bool, _bool),
    (abs, _abs),
)
"""Functions of Python's own, each as what it does on symbols."""
