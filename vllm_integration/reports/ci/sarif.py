"""SARIF 2.1.0, which code scanning reads.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import hashlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hitproof.spec.claims import CLAIMS, Divergence
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.ci.problems import (
    RULES,
    Problem,
    known_problems,
    new_problems,
    readable,
)
from hitproof.vllm_integration.verdict import Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {
    Divergence.UNSOUND: "error",
    Divergence.CRASH: "error",
    Divergence.WRONG_DRAFTS: "warning",
    Divergence.LOST_HIT: "warning",
    Divergence.WASTE: "note",
    Divergence.WRONG_METRIC: "note",
    Divergence.POLICY_CHANGE: "warning",
}
"""How SARIF grades the ways to be wrong. What makes the target diverge is the verdict's matter."""

# Code scanning wants a file for every result: the one by which users enter the cache.
ENTRANCE = "vllm/v1/core/kv_cache_manager.py"


def sarif(report: Report) -> dict[str, Any]:
    """The report of `hitproof check`; known divergences are suppressed results."""
    problems = [*new_problems(report), *known_problems(report)]
    notes = [
        {"level": "warning", "message": {"text": readable(reason)}}
        for reason in report.open_questions
    ]
    return _log(report.verdict, [_result(problem) for problem in problems], notes)


def refusal(verdict: Verdict, sentence: str) -> dict[str, Any]:
    """That there is no report, and why."""
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
    sentences = {name: claim.sentence for name, claim in CLAIMS.items()} | RULES
    levels = {name: LEVELS[claim.divergence] for name, claim in CLAIMS.items()}
    return [
        {
            "id": name,
            "shortDescription": {"text": sentence},
            "defaultConfiguration": {"level": levels.get(name, "warning")},
        }
        for name, sentence in sentences.items()
    ]


def _result(problem: Problem) -> dict[str, Any]:
    level = "warning" if problem.divergence is None else LEVELS[problem.divergence]
    physical: dict[str, Any] = {"artifactLocation": _artifact(problem.path or ENTRANCE)}
    if problem.line:
        physical["region"] = {"startLine": problem.line}
    result: dict[str, Any] = {
        "ruleId": problem.rule,
        "level": level,
        "message": {"text": f"{problem.title}\n{problem.text}".rstrip()},
        "locations": [{"physicalLocation": physical}],
        "partialFingerprints": {
            "hitproofSignature/v2": hashlib.sha256(problem.identity.encode()).hexdigest()
        },
    }
    properties = {"code": problem.code, "pytest": problem.pytest}
    if any(properties.values()):
        result["properties"] = {name: value for name, value in properties.items() if value}
    if problem.accepted:
        result["suppressions"] = [{"kind": "external", "justification": problem.accepted}]
    return result


def _artifact(path: str) -> dict[str, str]:
    if os.path.isabs(path):
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(path), "uriBaseId": "%SRCROOT%"}
