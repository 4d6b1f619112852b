"""The body of one Python function as JavaScript: its statements."""

import ast
from collections.abc import Iterable, Iterator
from json import dumps

from docs.translation.expressions import Expressions, local


class Statements(Expressions):
    """Translates one function, or one method of a class."""

    def function(self, tree: ast.FunctionDef, name: str) -> str:
        """A function of a module."""
        if tree.decorator_list and not _is_only_cached(tree):
            raise self.no(tree.decorator_list[0])
        star = "*" if _yields(tree) else ""
        return f"function{star} {name}({self.given(tree.args)}) {{\n{self._body(tree)}\n}}"

    def method(self, tree: ast.FunctionDef, is_property: bool, is_cached: bool) -> str:
        """A method or a property of a class."""
        first, *rest = tree.args.args
        given = ast.arguments([], rest, None, [], [], None, tree.args.defaults)
        parameters = self.given(given)
        body = f"const {local(first.arg)} = this;\n{self._body(tree)}"
        if is_cached:
            kept = f"py.cached(this, {dumps(tree.name)}, () => {{\n{body}\n}})"
            return f"get {tree.name}() {{ return {kept}; }}"
        kind = "get " if is_property else "*" if _yields(tree) else ""
        return f"{kind}{tree.name}({parameters}) {{\n{body}\n}}"

    def _body(self, tree: ast.FunctionDef) -> str:
        arguments = {each.arg for each in tree.args.args}
        if tree.args.vararg:
            arguments.add(tree.args.vararg.arg)
        assigned = {
            each.id
            for each in _own(tree.body)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        self.locals.append(arguments | assigned)
        lines = [f"let {', '.join(sorted(map(local, assigned - arguments)))};"]
        if not assigned - arguments:
            lines = []
        lines += self._block(tree.body)
        self.locals.pop()
        return "\n".join(lines)

    def _block(self, statements: Iterable[ast.stmt]) -> list[str]:
        return [line for each in statements for line in self._statement(each)]

    def _statement(self, node: ast.stmt) -> Iterator[str]:
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.Delete(targets) if all(isinstance(each, ast.Name) for each in targets):
                pass
            case ast.Expr(ast.Yield(ast.expr() as value)):
                yield f"yield {self.expression(value)};"
            case ast.Expr(ast.YieldFrom(value)):
                yield f"yield* py.iter({self.expression(value)});"
            case ast.Expr(value):
                yield f"{self.expression(value)};"
            case ast.Return(None):
                yield "return null;"
            case ast.Return(ast.expr() as value):
                yield f"return {self.expression(value)};"
            case ast.Assign([target], value) | ast.AnnAssign(target, _, ast.expr() as value, _):
                yield self.assigned(target, self.expression(value))
            case ast.AugAssign(ast.Name(name), operator, value):
                sum_ = self.operation(operator, local(name), self.expression(value), node)
                yield f"{local(name)} = {sum_};"
            case ast.If(test, body, orelse):
                yield f"if ({self.truth(test)}) {{"
                yield from self._block(body)
                if orelse:
                    yield "} else {"
                    yield from self._block(orelse)
                yield "}"
            case ast.While(test, body, []):
                yield f"while ({self.truth(test)}) {{"
                yield from self._block(body)
                yield "}"
            case ast.For(target, things, body, []):
                yield f"for (const each_ of py.iter({self.expression(things)})) {{"
                yield self.assigned(target, "each_")
                yield from self._block(body)
                yield "}"
            case ast.Continue():
                yield "continue;"
            case ast.Break():
                yield "break;"
            case ast.Raise(ast.Call() as error):
                yield f"throw {self.expression(error)};"
            case ast.Assert(test):
                yield f'if (!{self.truth(test)}) py.refuse("an assertion fails");'
            case ast.Try(body, [ast.ExceptHandler(ast.Name() as kind, name, handler)], [], []):
                caught = local(name or "error")
                self.locals.append({name} if name else set())
                yield "try {"
                yield from self._block(body)
                yield f"}} catch ({caught}) {{"
                yield f"if (!({caught} instanceof {self.expression(kind)})) throw {caught};"
                yield from self._block(handler)
                yield "}"
                self.locals.pop()
            case ast.Match(subject, cases):
                yield from self._match(self.expression(subject), cases)
            case _:
                raise self.no(node)

    def _match(self, subject: str, cases: list[ast.match_case]) -> Iterator[str]:
        for number, case in enumerate(cases):
            match case:
                case ast.match_case(ast.MatchValue(value), None):
                    test = f"if (py.eq({subject}, {self.expression(value)})) "
                case ast.match_case(ast.MatchAs(None, None), None) if number == len(cases) - 1:
                    test = ""
                case _:
                    raise self.no(case.pattern)
            yield f"{'else ' if number else ''}{test}{{"
            yield from self._block(case.body)
            yield "}"


def _own(statements: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function, without those of lambdas and comprehensions, which have a scope."""
    scoped = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
    for node in statements:
        if not isinstance(node, scoped):
            yield node
            yield from _own(ast.iter_child_nodes(node))


def _yields(tree: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own(tree.body))


def _is_only_cached(tree: ast.FunctionDef) -> bool:
    return [ast.unparse(each) for each in tree.decorator_list] == ["cache"]
