"""SARIF 2.1.0, which code scanning reads.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html

Lines of the target's source are hashed as by the action that uploads results to GitHub, which warns
where one is another:
https://github.com/github/codeql-action/blob/main/src/fingerprints.ts
"""

import ast
import hashlib
import importlib.metadata
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.rules import RULES as SANITY_RULES
from hitproof.spec.claims import CLAIMS, Divergence
from hitproof.vllm_integration.gate.diff import Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci.diff_problems import diff_problems
from hitproof.vllm_integration.reports.ci.problems import (
    RULES,
    WORSE,
    Problem,
    known_problems,
    new_problems,
)
from hitproof.vllm_integration.reports.printing import readable
from hitproof.vllm_integration.verdict import Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {
    Divergence.UNSOUND: "error",
    Divergence.CRASH: "error",
    Divergence.WRONG_DRAFTS: "error",
    Divergence.LOST_HIT: "error",
    Divergence.WASTE: "warning",
    Divergence.WRONG_METRIC: "warning",
    Divergence.POLICY_CHANGE: "warning",
}
"""How SARIF grades the ways to be wrong. What makes the target diverge is the verdict's matter."""

# Code scanning wants a file for every result: the one by which users enter the cache.
ENTRANCE = "vllm/v1/core/kv_cache_manager.py"


def sarif(report: Report, known: bool = False) -> dict[str, Any]:
    """The report of `hitproof check`; with ``known`` known divergences are suppressed results.

    Code scanning opens an alert for a suppressed result, too.
    """
    problems = [*new_problems(report), *(known_problems(report) if known else ())]
    log = _judged(report.verdict, problems, report.open_questions, report.target.root)
    if report.restricted is not None:
        note = {"level": "note", "message": {"text": readable(report.restricted.describe())}}
        log["runs"][0]["invocations"][0]["toolExecutionNotifications"].append(note)
        # A category of its own, so that the alerts of what was left out stay open.
        log["runs"][0]["automationDetails"] = {"id": "hitproof-restricted/"}
    return log


def diff_sarif(diff: Diff) -> dict[str, Any]:
    """The report of `hitproof diff`: what it holds against the head."""
    problems, _ = diff_problems(diff)
    return _judged(diff.verdict, problems, diff.open_questions, diff.head.target.root)


def _judged(
    verdict: Verdict, problems: Sequence[Problem], reasons: Sequence[str], root: Path | None
) -> dict[str, Any]:
    notes = [{"level": "warning", "message": {"text": readable(reason)}} for reason in reasons]
    return _log(verdict, [_result(problem, root) for problem in problems], notes)


def refusal(verdict: Verdict, sentence: str) -> dict[str, Any]:
    """State that there is no report, and why."""
    return _log(verdict, [], [{"level": "error", "message": {"text": readable(sentence)}}])


def _log(
    verdict: Verdict, results: list[dict[str, Any]], notes: list[dict[str, Any]]
) -> dict[str, Any]:
    invocation = {
        "executionSuccessful": verdict in (Verdict.CONFORMS, Verdict.DIVERGES),
        "exitCode": int(verdict),
        "toolExecutionNotifications": notes,
    }
    driver = {
        "name": "hitproof",
        # As SemVer writes a development version.
        "semanticVersion": importlib.metadata.version("hitproof").replace(".dev", "-dev."),
        "rules": _rules(),
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rules() -> list[dict[str, Any]]:
    sentences = {name: each.sentence for name, each in (CLAIMS | SANITY_RULES).items()} | RULES
    levels = {name: LEVELS[claim.divergence] for name, claim in CLAIMS.items()}
    levels |= {name: LEVELS[_worst(name)] for name in SANITY_RULES}
    return [
        {
            "id": name,
            "shortDescription": {"text": sentence},
            "fullDescription": {"text": _in_full(name, sentence)},
            "help": {"text": _help(name, sentence)},
            "defaultConfiguration": {"level": levels.get(name, "warning")},
        }
        for name, sentence in sentences.items()
    ]


def _worst(name: str) -> Divergence:
    """What a sanity rule that is broken means at worst, as its codes have it."""
    classes = {each for m in MEANINGS.values() if name in m.claims for each in m.classes}
    return min(classes, key=list(Divergence).index)


def _in_full(name: str, sentence: str) -> str:
    """What a rule says, and what it means when it is broken."""
    if (rule := SANITY_RULES.get(name)) is not None:
        return f"{sentence} A sanity rule: {rule.reason} It is about {', '.join(rule.symbols)}."
    claim = CLAIMS.get(name)
    if claim is None:
        return sentence
    covers = ", ".join(claim.symbols)
    return f"{sentence} Where it is broken: {claim.divergence}, at worst. It covers {covers}."


def _help(name: str, sentence: str) -> str:
    """What the codes of findings that break a rule mean."""
    lines = [
        f"{code}: {meaning.means} {meaning.effect}"
        for code, meaning in MEANINGS.items()
        if name in meaning.claims
    ]
    remedy = "`hitproof explain CODE` says what the code of a finding means."
    return "\n\n".join([sentence, *lines, remedy])


def _result(problem: Problem, root: Path | None) -> dict[str, Any]:
    level = "error" if problem.rule == WORSE else "warning"
    if problem.divergence is not None:
        level = LEVELS[problem.divergence]
    path, line = problem.path or ENTRANCE, problem.line or 1
    found = source_line(root, path, line)
    region: dict[str, int] = {"startLine": line}
    identity = hashlib.sha256(problem.identity.encode()).hexdigest()
    fingerprints = {"hitproofSignature/v2": identity}
    if found is not None:
        region |= {"startColumn": found.start, "endColumn": found.end}
        fingerprints["primaryLocationLineHash"] = found.fingerprint
    physical = {"artifactLocation": _artifact(path), "region": region}
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "level": level,
        "message": {"text": f"{problem.title}\n{problem.text}".rstrip()},
        "locations": [{"physicalLocation": physical}],
        "partialFingerprints": fingerprints,
    }
    if problem.steps:
        result["codeFlows"] = [_code_flow(problem.steps, physical, root)]
    properties = {"code": problem.code, "pytest": problem.pytest, "status": problem.status}
    if any(properties.values()):
        result["properties"] = {name: value for name, value in properties.items() if value}
    if problem.accepted:
        result["suppressions"] = [{"kind": "external", "justification": problem.accepted}]
    return result


def _code_flow(steps: Sequence[str], last: dict[str, Any], root: Path | None) -> dict[str, Any]:
    """The steps of a history, each at the method that it calls; the last shows the finding."""
    methods = _methods(root)
    entrance = {"artifactLocation": _artifact(ENTRANCE)}
    places = [
        entrance
        | {"region": {"startLine": methods.get(_CALLED.get(json.loads(step)["do"], ""), 1)}}
        for step in steps
    ]
    locations = [
        {"location": {"physicalLocation": place, "message": {"text": step}}}
        for place, step in zip([*places[:-1], last], steps, strict=True)
    ]
    return {"threadFlows": [{"locations": locations}]}


_CALLED = {
    "schedule": "allocate_slots",
    "lookup": "get_computed_blocks",
    "load": "allocate_slots",
    "loaded": "cache_blocks",
    "preempt": "free",
    "finish": "free",
    "evict": "evict_blocks",
    "reset": "reset_prefix_cache",
    "new_step": "new_step_starts",
}
"""The method of ``KVCacheManager`` that a step of a history is about."""


@cache
def _methods(root: Path | None) -> dict[str, int]:
    """The lines of the methods by which users enter the cache."""
    try:
        tree = ast.parse((root / ENTRANCE).read_bytes()) if root else ast.Module([], [])
    except (OSError, SyntaxError):
        return {}
    return {node.name: node.lineno for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _artifact(path: str) -> dict[str, str]:
    if os.path.isabs(path):
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(path), "uriBaseId": "%SRCROOT%"}


_HASHED = 100
"""Characters from the start of a line that its hash covers, blanks left out."""
_FACTOR = 37
_END_OF_FILE = 0xFFFF


@dataclass(frozen=True)
class SourceLine:
    """One line of a file.

    Attributes:
        start: the column of its first character that is no blank, from 1.
        end: the column after its last one.
        fingerprint: its hash, and the how manieth line of that hash it is.
    """

    start: int
    end: int
    fingerprint: str


def source_line(root: Path | None, path: str, line: int) -> SourceLine | None:
    """The line, from 1, of a file below ``root``; None where it cannot be read."""
    if root is None or not line:
        return None
    lines, hashes = _read(root / path)
    if line > min(len(lines), len(hashes)):
        return None
    text = lines[line - 1].rstrip()
    start = len(text) - len(text.lstrip()) + 1
    return SourceLine(start, max(len(text), start) + 1, hashes[line - 1])


@cache
def _read(file: Path) -> tuple[list[str], list[str]]:
    try:
        text = file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return [], []
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), fingerprints(text)


def fingerprints(text: str) -> list[str]:
    """The fingerprint of each line of a file."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace(" ", "").replace("\t", "")
    units = text.encode("utf-16-le")
    characters = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    characters.append(_END_OF_FILE)
    starts = [0] + [n + 1 for n, each in enumerate(characters) if each == ord("\n")]
    seen: Counter[str] = Counter()
    found = []
    for start in starts:
        value = 0
        for at in range(start, start + _HASHED):
            value = value * _FACTOR + (characters[at] if at < len(characters) else 0)
        name = f"{value % 2**64:x}"
        seen[name] += 1
        found.append(f"{name}:{seen[name]}")
    return found
