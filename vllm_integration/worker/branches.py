"""Which branches of the target's managers run while something is judged.

A branch is an arc that coverage.py counts: from a line that can go on at several lines to one of
them, -1 times the function's line where it leaves the function. Only code in functions counts:
what runs while modules are imported runs in any case.

A code is decided at the condition that leads to it: the test, loop or comprehension around the
place that names it, or around the calls of a function that only says what is wrong. A property
whose condition no case reaches could not have failed.
"""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitproof.conformance import checks, judge, scheduling
from hitproof.conformance.findings.meaning import Code
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.replay import abilities

_Lines = frozenset[int]


@cache
def decisions() -> Mapping[str, tuple[tuple[Code, _Lines], ...]]:
    """By source file of what judges: the codes that it decides, and the lines of each condition."""
    return decisions_in([Path(each.__path__[0]).resolve() for each in (checks, judge, scheduling)])


def decisions_in(rooms: Iterable[Path]) -> Mapping[str, tuple[tuple[Code, _Lines], ...]]:
    """The same of other rooms, by their folders."""
    read = {
        str(file): _Module(file.read_text(encoding="utf-8"))
        for room in rooms
        for file in sorted(room.glob("*.py"))
    }
    found: dict[str, list[tuple[Code, _Lines]]] = {}
    for file, module in read.items():
        for code, lines, function in module.codes:
            if code is Code.LOCKSTEP_DIFFERENCE:
                continue  # `hitproof lockstep` alone compares with the reference
            found.setdefault(file, []).append((code, lines))
            if function:
                for place, called in _deciding_calls(read, file, function, frozenset()):
                    found.setdefault(place, []).append((code, called))
    return {file: tuple(decided) for file, decided in found.items()}


class _Module:
    """What a source file decides.

    Attributes:
        codes: each code with the lines of its condition, and the function that has it without any.
        calls: by the name of what is called, the same of each call.
    """

    def __init__(self, source: str) -> None:
        self.codes: list[tuple[Code, _Lines, str]] = []
        self.calls: dict[str, list[tuple[_Lines, str]]] = {}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                first = next((each for each in node.body if not _is_text(each)), node.body[0])
                for each in node.body:
                    self._below(each, _lines(first), node.name)

    def _below(self, node: ast.AST, condition: _Lines, function: str) -> None:
        """Take up a node; ``function`` is that around it where no condition is, else empty."""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == Code.__name__:
            self.codes.append((Code[node.attr], condition, function))
        elif isinstance(node, ast.Call) and (node.args or node.keywords):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            self.calls.setdefault(name, []).append((condition, function))
        if not _chooses(node):
            found = _condition(node)
            condition, function = (found, "") if found else (condition, function)
        for each in ast.iter_child_nodes(node):
            self._below(each, condition, function)


def _deciding_calls(
    read: Mapping[str, _Module], file: str, function: str, seen: frozenset[str]
) -> Iterator[tuple[str, _Lines]]:
    """The conditions around calls of a function that only says what is wrong.

    Those in its own file, or else in all others.
    """
    own = {file: read[file]} if function in read[file].calls else read
    for place, module in own.items():
        for lines, around in module.calls.get(function, ()):
            yield place, lines
            if around and around not in seen:
                yield from _deciding_calls(read, place, around, seen | {function})


def _condition(node: ast.AST) -> _Lines:
    if isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
        return _lines(node)
    tests = [getattr(node, name, None) for name in ("test", "iter", "pattern")]
    return next((_lines(test) for test in tests if test is not None), frozenset())


def _chooses(node: ast.AST) -> bool:
    """Whether a condition has a code either way: it says what is wrong, not whether."""
    if isinstance(node, ast.If):
        return any(map(_names_code, node.body)) and any(map(_names_code, node.orelse))
    return isinstance(node, ast.IfExp) and _names_code(node.body) and _names_code(node.orelse)


def _names_code(node: ast.AST) -> bool:
    return any(
        isinstance(each, ast.Attribute) and getattr(each.value, "id", "") == Code.__name__
        for each in ast.walk(node)
    )


def _lines(node: ast.AST) -> _Lines:
    first = getattr(node, "lineno", 0)
    return frozenset(range(first, (getattr(node, "end_lineno", None) or first) + 1))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


if TYPE_CHECKING:
    from coverage import Coverage

MODULES = ("kv_cache_manager", "kv_cache_coordinator", "single_type_kv_cache_manager", "block_pool")
"""The modules of ``vllm.v1.core`` whose branches are counted, where others are not named."""

_Operation = Callable[[VllmSubject, dict[str, Any]], dict[str, Any]]


def measured(
    operation: _Operation, subject: VllmSubject, message: dict[str, Any]
) -> dict[str, Any]:
    """The answer of an operation that judges, with the ``arcs`` that ran meanwhile, by module.

    ``branches`` of the message names the modules, or is true for `MODULES`. Then the answer also
    has the codes that were ``decided``: those whose condition ran.

    Raises ImportError where there is no coverage.py.
    """
    # What the target is asked to find out how it behaves is not judged, and is kept.
    subject.policies()
    abilities(subject, {})
    named = message["branches"]
    files = _files(MODULES if named is True else named)
    judges = decisions() if named is True else {}
    tracing = _coverage([*files.values(), *judges])
    tracing.start()
    try:
        answer = operation(subject, message)
    finally:
        tracing.stop()
    data = tracing.get_data()
    decided = {
        code
        for file, conditions in judges.items()
        for code, lines in conditions
        if not lines.isdisjoint(data.lines(file) or ())
    }
    arcs = {name: data.arcs(file) or [] for name, file in files.items()}
    return answer | {"arcs": arcs, "decided": sorted(decided)}


def branches(subject: VllmSubject, message: dict[str, Any]) -> dict[str, Any]:
    """All branches of the target's managers, and which of them are in ``arcs``, by module.

    ``modules`` names others than `MODULES`.

    Gives ``modules``: for each the ``digest`` of its source, and its ``branches``, each with its
    ``function``, ``line``, the line that it goes ``to``, the ``text`` of the first and
    ``to_text`` of the second, and whether it was ``run``; and ``codes``, all that are decided.
    Raises ImportError where there is no coverage.py.
    """
    del subject
    files = _files(message.get("modules", MODULES))
    analysis = _coverage(files.values())
    data = analysis.get_data()
    data.add_arcs(
        {file: list(map(tuple, message["arcs"].get(name, ()))) for name, file in files.items()}
    )
    data.touch_files(files.values())
    report = Path("branches.json").resolve()
    analysis.json_report(morfs=list(files.values()), outfile=str(report))
    found = {
        str(Path(file).resolve()): each
        for file, each in json.loads(report.read_text(encoding="utf-8"))["files"].items()
    }
    codes = {code for conditions in decisions().values() for code, _ in conditions}
    modules = {name: _module(file, found[file]) for name, file in files.items()}
    return {"modules": modules, "codes": sorted(codes)}


def _module(file: str, reported: dict[str, Any]) -> dict[str, Any]:
    source = Path(file).read_bytes()
    lines = source.decode().splitlines()

    def text(line: int) -> str:
        return "leaves the function" if line < 0 else lines[line - 1].strip()

    listed = [
        {
            "function": function,
            "line": line,
            "to": to,
            "text": text(line),
            "to_text": text(to),
            "run": run,
        }
        for function, each in reported["functions"].items()
        if function
        for run, arcs in ((True, each["executed_branches"]), (False, each["missing_branches"]))
        for line, to in arcs
    ]
    listed.sort(key=lambda branch: (branch["line"], branch["to"]))
    return {"digest": sha256(source).hexdigest()[:12], "branches": listed}


def _files(names: Sequence[str]) -> dict[str, str]:
    modules = {name: import_module(f"vllm.v1.core.{name}") for name in names}
    return {name: str(Path(each.__file__ or "").resolve()) for name, each in modules.items()}


def _coverage(files: Iterable[str]) -> "Coverage":
    from coverage import Coverage  # an extra, which no other operation needs

    made = Coverage(data_file=None, config_file=False, branch=True, include=list(files))
    made.set_option("run:disable_warnings", ["trace-changed", "no-data-collected"])
    for which in ("exclude", "partial"):
        made.clear_exclude(which)  # no comment of the target leaves anything out
    return made
