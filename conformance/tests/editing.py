"""Cases as data: rows of tests, and edits of the source of a module, made for a while."""

import inspect
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from textwrap import indent
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias, TypeVar

import pytest

from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.histories.workloads import SchedulerHistory

Fault: TypeAlias = Mapping[str, Any]
"""``in`` is a module, ``edit`` lines of it: those after a - are taken out, those after a + are put
in. What else there is says what is found."""


CASES = Path(__file__).parent / "cases"


_Test = TypeVar("_Test", bound=Callable[..., None])


def cases(names: str, **options: Any) -> Callable[[_Test], _Test]:
    """Parametrize a test by its rows in ``cases/rows.toml`` beside it."""

    def parametrized(test: _Test) -> _Test:
        file = Path(inspect.getfile(test))
        rows = rows_of(file, test.__name__.removeprefix("test_"))
        made: _Test = pytest.mark.parametrize(names, rows, **options)(test)
        return made

    return parametrized


def rows_of(file: Path, test: str) -> list[Any]:
    tables = tomllib.loads((file.parent / "cases" / "rows.toml").read_text("utf-8"))
    rows: list[Any] = tables[file.stem][test]
    return rows


def programs(file: str) -> dict[str, str]:
    """The programs of a test's module, which tests run or read, in ``cases/programs.toml``."""
    text = Path(file).with_name("cases").joinpath("programs.toml").read_text("utf-8")
    made: dict[str, str] = tomllib.loads(text)[Path(file).stem]
    return made


def function(name: str, given: str, text: str, names: dict[str, Any]) -> Callable[..., Any]:
    """A function of such parameters. One line is what it answers; ``names`` are those in it."""
    if "\n" not in text and not text.startswith("raise "):
        text = f"return {text}"
    made: dict[str, Callable[..., Any]] = {}
    exec(f"def {name}({given}):\n{indent(text, '    ')}", names, made)
    return made[name]


def history_of(
    case: Mapping[str, Any], tables: Mapping[str, Any], known: str = ""
) -> SchedulerHistory:
    """The history of a row: a known one, or requests and a deployment, by name or its own.

    What else the row's deployment has is changed there.
    """
    changes = dict(case.get("deployment", {}))
    if known:
        document = json.loads(known)
        like = document["deployment"]
        if "host" in changes:
            changes["host"] = like["host"] | changes["host"]
    else:
        requests = case["requests"]
        named = tables["requests"][requests] if isinstance(requests, str) else requests
        document = {"kind": "scheduler", "version": 1, "requests": named}
        document |= {key: case[key] for key in ("pauses", "encoder_resets") if key in case}
        like = tables["deployments"].get(changes.pop("like", ""), {})
    return read_workload(json.dumps(document | {"deployment": like | changes}))


def faults(file: Path, module: str) -> dict[str, dict[str, Fault]]:
    """The tables of a file, each with its faults by name; in ``module`` where none is named."""
    tables = tomllib.loads(file.read_text("utf-8"))
    return {
        table: {name: {"in": module} | fault for name, fault in rows.items()}
        for table, rows in tables.items()
    }


@contextmanager
def edited(fault: Fault) -> Iterator[None]:
    """The module is as the fault has it: its functions have the code of the edited source."""
    module = import_module(fault["in"])
    lines = fault["edit"].splitlines()
    old, new = (
        "".join(f"{line[1:]}\n" for line in lines if not line.startswith(other)) for other in "+-"
    )
    text = inspect.getsource(module)
    assert text.count(old) == 1, fault
    compiled = compile(text.replace(old, new), str(module.__file__), "exec", dont_inherit=True)
    made = {code.co_qualname: code for code in _codes(compiled)}
    before = {each: each.__code__ for each in _functions(module, module)}
    for function, code in before.items():
        other = made.get(code.co_qualname, code)
        if len(other.co_freevars) == len(code.co_freevars):
            function.__code__ = other
    try:
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    """What is defined in a module or a class, and in what is defined there."""
    for each in filter(inspect.iscode, code.co_consts):
        yield from (each, *_codes(each))


def _functions(owner: Any, module: ModuleType) -> Iterator[FunctionType]:
    """The functions of a module, and the methods of its classes."""
    for each in vars(owner).values():
        function = getattr(each, "fget", getattr(each, "__func__", each))
        if isinstance(function, FunctionType) and function.__module__ == module.__name__:
            yield function
        elif isinstance(each, type) and owner is module and each.__module__ == module.__name__:
            yield from _functions(each, module)
