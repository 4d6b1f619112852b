"""Faults that only some specs, pools or requests meet, put into an imported vLLM one by one.

python varied_faults.py ROOT     prints which of them the checks and histories see, as JSON
"""

import ast
import inspect
import json
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.histories.plays import Origin, Play, plays
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.gate.obligations import Task, tasks
from hitproof.vllm_integration.worker.replay import played

FAULTS = tomllib.loads(Path(__file__).with_name("cases").joinpath("edits.toml").read_text("utf-8"))


@contextmanager
def _wrong(subject: VllmSubject, place: str, when: str, then: str) -> Iterator[None]:
    where: Any = {**vars(subject._parts), "hybrid": subject._producer.hybrid}
    module, *names = place.split()
    function = where[module]
    for name in names:
        function = getattr(function, name)
    function = getattr(function, "__func__", function)
    code = function.__code__
    function.__code__ = _code(function, when, then)
    try:
        yield
    finally:
        function.__code__ = code


@cache
def _code(function: Any, when: str, then: str) -> Any:
    """The code of a function in which ``then`` is done where ``when`` holds."""
    module = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (definition,) = module.body
    assert isinstance(definition, ast.FunctionDef)
    fault = ast.parse(f"if {when}:\n{textwrap.indent(then, ' ')}").body
    at = len(definition.body) if ".pop()" in then else 0
    definition.body[at:at] = fault
    definition.decorator_list = []
    ast.increment_lineno(ast.fix_missing_locations(module), function.__code__.co_firstlineno - 1)
    compiled = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    return next(each for each in compiled.co_consts if inspect.iscode(each))


def seen(root: str) -> dict[str, str]:
    """What sees each fault: a configuration or a history, "" if none does."""
    sys.path.insert(0, root)
    subject = VllmSubject(frozenset())

    def shown(each: Task | Play) -> Any:
        if isinstance(each, Play):
            return [found.signature for found in played(subject, each).causes]
        result = CHECKS[each.claim](subject, each.configuration)
        return [e.signature for e in result.evidence], result.detail

    as_it_is = cache(shown)
    small = [t for t in tasks(Profile.QUICK, ()) if not t.configuration.model]
    some = [p for p in plays(Profile.DEFAULT, False) if p.origin is Origin.GENERATED]
    judged: list[Task | Play] = [*some[:30], *small, *some[30:150]]
    found = {}
    for name, fault in FAULTS["variants"].items():
        found[name] = ""
        for each in judged:
            before = as_it_is(each)
            with _wrong(subject, fault["of"], fault["when"], fault["then"]):
                after = shown(each)
            if before != after:
                found[name] = str(each)
                break
    return found


if __name__ == "__main__":
    print(json.dumps(seen(sys.argv[1]), indent=1))
