"""Which branches of the target's managers run while something is judged.

A branch is an arc that coverage.py counts: from a line that can go on at several lines to one of
them, -1 times the function's line where it leaves the function. Only code in functions counts:
what runs while modules are imported runs in any case.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.deciding import decisions
from hitproof.vllm_integration.worker.replay import abilities

if TYPE_CHECKING:
    from coverage import Coverage

MODULES = (
    "kv_cache_manager",
    "kv_cache_coordinator",
    "single_type_kv_cache_manager",
    "block_pool",
)
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
