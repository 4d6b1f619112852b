"""The page of 0.33.0 with its fixes: what each removes, what stays open, and what is on record.

``python -m docs.fixes`` makes the record of hits, crashes and instructions anew, with `hitproof
simulate`, a check and `benchmarks.fixes`, in minutes.
"""

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from docs.source import ROOT
from hitproof.conformance.findings.signatures import SEVERITY
from hitproof.conformance.histories.plays import Origin
from hitproof.conformance.ledger.ledger import CauseStatus
from hitproof.conformance.ledger.ledger import load as load_ledger
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count, kinds_of
from hitproof.spec.claims import Divergence
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.fixes.patches import RELEASE, UNFIXED, all_fixes
from hitproof.vllm_integration.gate.gate import check
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.gate.selection import Selection, Wanted
from hitproof.vllm_integration.reports import markdown
from hitproof.vllm_integration.reports.survey import FIXED, grouped
from hitproof.vllm_integration.survey.faults import Fault, load
from hitproof.vllm_integration.survey.survey import Release, read, seen_in
from hitproof.vllm_integration.targets.resolving import resolve

RECORD = ROOT / "docs" / "fixes.json"
COMMAND = (
    "simulate", "system-prompts", "--requests", "8", "--tokens", "4096", "--eagle",
    "--retention", "dense", "--retention", "latest",
)  # fmt: skip


@cache
def _releases() -> list[Release]:
    """The surveyed releases up to the one that the fixes are for."""
    releases = [*read()]
    return releases[: [each.version for each in releases].index(RELEASE) + 1]


def _linked(fault: Fault) -> str:
    return f"[{fault.number}. {fault.title}](faults.md#{fault.number})"


def table() -> str:
    """A Markdown table with a row for each fix, the most severe first."""
    fixes = sorted(all_fixes(), key=lambda fix: (SEVERITY.index(fix.classes[0]), fix.number))
    rows = [
        (
            "<br>".join(map(_linked, fix.faults)),
            ", ".join(fix.classes),
            fix.title.removeprefix("[BugFix] "),
            "<br>".join(f"`{code}`" for code in fix.codes),
        )
        for fix in fixes
    ]
    return markdown.table(("fault", "class", "change", "codes that it removes"), rows)


def counted() -> str:
    """How many of the open faults have a fix."""
    fixes, faults = count(all_fixes(), "fix", "fixes"), count(_open(), "open fault")
    return f"{fixes} for {sum(len(fix.faults) for fix in all_fixes())} of the {faults}"


def remaining() -> str:
    """A Markdown list of the open faults without a fix, by their class."""
    fixed = {fault.number for fix in all_fixes() for fault in fix.faults}
    releases = _releases()
    seen = seen_in(releases, load())
    lines = []
    for fault in _open():
        if fault.number not in fixed:
            classes = {each.signature.divergence for each in seen[fault.number][RELEASE]}
            worst = [each for each in SEVERITY if each in classes]
            why = UNFIXED.get(fault.number)
            lines.append(f"- {_linked(fault)} ({', '.join(worst)}){f': {why}' if why else ''}")
    return "\n".join(lines)


@cache
def _open() -> list[Fault]:
    """The faults that are open in the release, reached by a known configuration or not."""
    sections = grouped(_releases(), load())
    return [
        fault
        for title, group in sections.items()
        if not title.startswith(FIXED)
        for fault in group
        if fault.status is CauseStatus.FAULT
    ]


def pinned() -> str:
    """A Markdown list of what vLLM's own tests expect that a fix changes, and why it does."""
    return "\n".join(
        f"- [{fix.number}](faults.md#{fix.number}): {' '.join(fix.pinned.split())}"
        for fix in all_fixes()
        if fix.pinned
    )


def command() -> str:
    """What makes a row of the record, but for its model and targets."""
    return f"hitproof {' '.join(COMMAND)} --model MODEL --target {RELEASE} --target patched"


def record() -> dict[str, Any]:
    """The hits on record, by model, and the fixes that the patched release had."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def hits() -> str:
    """A Markdown table: the tokens hit on each model's layout, without the fixes and with them."""
    lines: list[tuple[str, ...]] = []
    for model, rows in record()["hits"].items():
        lines += [] if rows else [(model, "refused with draft layers", "", "", "")]
        for row in rows:
            tokens = (f"{row[each]:,}" for each in ("plain", "fixed", "unbounded"))
            lines.append((model, row["retention"], *tokens))
    columns = ("model", "retention", f"{RELEASE}:", "with fixes:", "unbounded:")
    return markdown.table(columns, lines)


def gained() -> str:
    """How many of these rows the fixes change, in a sentence."""
    rows = [row for rows in record()["hits"].values() for row in rows]
    better = sum(row["fixed"] > row["plain"] for row in rows)
    worse = sum(row["fixed"] < row["plain"] for row in rows)
    lost = sorted({cause for row in rows for cause in row["lost"]})
    changed = f"With the fixes, {better} of {count(rows, 'row')} hit more and {worse} hit less."
    return f"{changed} What is still missing is lost to: {', '.join(lost) or 'nothing'}."


def crashes() -> str:
    """A Markdown table: how many scenarios with each model's kinds of groups crash or hang."""
    kept, lines = record()["crashes"], []
    for model in MODELS:
        kinds = kinds_of(model.groups)
        lines.append((model.name, kinds, *map(str, kept[kinds].values())))
    columns = ("model", "groups", "scenarios:", f"{RELEASE}:", "with fixes:")
    return markdown.table(columns, lines)


def crashed(plain: Report, fixed: Report) -> dict[str, dict[str, int]]:
    """By kinds of groups, in how many scenarios of schedulers each release crashes or hangs."""
    found: dict[str, dict[str, int]] = {}
    for name, report in (("plain", plain), ("fixed", fixed)):
        for each in report.played:
            if each.play.origin is Origin.SCENARIOS and not each.refused and not each.left_out:
                kinds = kinds_of(each.play.workload().deployment.groups)
                row = found.setdefault(kinds, {"histories": 0, "plain": 0, "fixed": 0})
                row["histories"] += name == "plain"
                row[name] += any(s.divergence == Divergence.CRASH for s in each.signatures)
    return found


def speed() -> str:
    """A Markdown table: the instructions with fixes in those without, by operation."""
    rows = record()["speed"]
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    ratios = {(r["layout"], r["num_tokens"], r["operation"]): f"{r['ratio']:.3f}" for r in rows}
    lines = [
        (layout, f"{tokens:,}", *(ratios[layout, tokens, each] for each in operations))
        for layout, tokens in dict.fromkeys((row["layout"], row["num_tokens"]) for row in rows)
    ]
    return markdown.table(("groups", "tokens:", *(f"{each}:" for each in operations)), lines)


def taken(printed: dict[str, Any]) -> list[dict[str, Any]]:
    """What is kept of what the command prints as JSON: a row for each retention that is played."""
    played = [run for run in printed["runs"] if "cannot" not in run]
    runs = {(run["retention"], run["subject"] == f"vLLM {RELEASE}"): run for run in played}
    return [
        {
            "retention": retention,
            "plain": run["hits"],
            "fixed": runs[retention, False]["hits"],
            "unbounded": run["unbounded"],
            "lost": [cause for cause, n in runs[retention, False]["lost"].items() if n],
        }
        for (retention, plain), run in runs.items()
        if plain
    ]


def _checked(target: str) -> Report:
    """A check of the scenarios of schedulers."""
    wanted = Wanted(Selection(configurations=(f"{Origin.SCENARIOS} history",)))
    run = Run(resolve(target), Profile.DEFAULT, load_ledger(LEDGER), wanted=wanted)
    return check(run, lambda *_: None)


def main() -> None:
    """Renew the record."""
    own = [sys.executable, "-m", "hitproof"]
    count_all = [sys.executable, "-m", "benchmarks.fixes", "--format", "json"]
    counts = subprocess.run(count_all, stdout=subprocess.PIPE, check=True).stdout
    kept: dict[str, Any] = {
        "fixes": [fix.number for fix in all_fixes()],
        "hits": {},
        "speed": json.loads(counts),
    }
    with tempfile.TemporaryDirectory() as place:
        patched = str(Path(place) / "patched")
        subprocess.run([*own, "fixes", "apply", RELEASE, "--to", patched], check=True)
        targets = ["--target", RELEASE, "--target", patched, "--format", "json"]
        kept["crashes"] = crashed(*(_checked(each) for each in (RELEASE, patched)))
        for model in MODELS:
            words = [*own, *COMMAND, "--model", model.name, *targets]
            # Its exit code is not 0 where vLLM refuses a layout.
            printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
            kept["hits"][model.name] = taken(json.loads(printed))
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
