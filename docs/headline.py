"""The headline of vLLM PR #43447 at full size: on record, since it takes minutes.

``python -m docs.headline`` makes it anew with `hitproof simulate`; a test plays it small.
"""

import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from docs.source import ROOT
from hitproof.vllm_integration.reports import markdown

RECORD = ROOT / "docs" / "headline.json"
_RELEASES = ("0.22.1", "0.23.0", "0.33.0")
_CONVERSATIONS, _TOKENS, _POOL = 14, 1 << 20, 14.5
COMMAND = (
    "hitproof", "simulate", "conversations",
    "--requests", str(_CONVERSATIONS), "--tokens", str(_TOKENS),
    "--model", "DeepSeek-V4-like", "--pool-requests", str(_POOL), "--chunk", "8192",
    "--retention", "dense", "--retention", "16384", "--retention", "latest",
    *itertools.chain.from_iterable(("--target", release) for release in _RELEASES),
    "--reference",
)  # fmt: skip


_COLUMNS = (
    *("subject", "retention", "hit of the first conversation"),
    *("unbounded", "foresight", "lost by", "seconds"),
)


def command() -> str:
    """What makes the record."""
    return shlex.join(COMMAND)


def conversations() -> str:
    """What is played."""
    return f"{_CONVERSATIONS} conversations of {_TOKENS:,} tokens"


def pool() -> str:
    """How large the pool is."""
    blocks = record()["deployment"]["num_gpu_blocks"]
    return f"{_POOL} of them ({blocks:,} blocks)"


def table() -> str:
    """The hits after k others, and what it took, of each subject and retention."""
    rows: list[tuple[str, ...]] = []
    for run in record()["runs"]:
        about = run["subject"], run["retention"]
        if "cannot" in run:
            rows.append((*about, f"not played: {run['cannot']}", *[""] * 4))
            continue
        best = max(each["unbounded"] for each in run["replays"])
        foresight = max(each["foresight"] for each in run["replays"])
        lost = ", ".join(cause for cause, tokens in run["lost"].items() if tokens)
        figures = f"{best:,}", f"{foresight:,}", lost or "nothing", f"{seconds(run):.0f}"
        rows.append((*about, "; ".join(_hits(run)), *figures))
    return markdown.table(_COLUMNS, rows)


def seconds(run: dict[str, Any]) -> float:
    """Seconds inside a manager."""
    return float(sum(each["seconds"] for each in run["operations"].values()))


def _hits(run: dict[str, Any]) -> Iterator[str]:
    first = 0
    for hit, same in itertools.groupby(each["hit"] for each in run["replays"]):
        last = first + len(list(same)) - 1
        after = f"{first}" if first == last else f"{first} to {last}"
        yield f"{hit:,} after {after}"
        first = last + 1


def record() -> dict[str, Any]:
    """What is recorded."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def taken(printed: dict[str, Any]) -> dict[str, Any]:
    """What is kept of what the command prints as JSON."""
    for run in printed["runs"]:
        requests = run.pop("requests", [])
        run.pop("cached", None)
        run["replays"] = [
            {name: each[name] for name in ("hit", "valid", "unbounded", "foresight")}
            for each in requests
            if each["lookup_only"]
        ]
    return printed


def main() -> None:
    """Renew the record."""
    words = [sys.executable, "-m", "hitproof", *COMMAND[1:], "--format", "json"]
    printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    RECORD.write_text(json.dumps(taken(json.loads(printed)), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
