"""The figures of the self-test: what was run last, and what README and the pages say of it.

README's line about what is proved (`docs.clauses`) is written with them.

``hitproof selftest 0.33.0 --format json > run.json`` makes a run, ``python -m docs.selftests
run.json`` puts it in the place of the last one of its family and profile, and writes README anew.
"""

import json
import sys
from pathlib import Path
from typing import Any

from docs import clauses
from docs.source import ROOT
from hitproof.vllm_integration.reports import markdown

RECORD = ROOT / "docs" / "selftests.json"
README = ROOT / "README.md"
_KEPT = (
    *("family", "profile", "sample", "seed", "mutants", "caught", "equivalent"),
    *("proved_equivalent", "survived", "upstream", "killed_by_upstream"),
)
_ROW = "| **self-tested** |"


def runs() -> list[dict[str, Any]]:
    """What is on record of each run."""
    found: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def command(run: dict[str, Any]) -> str:
    """The command that makes the run."""
    words = ["hitproof selftest", run["target"]]
    words += [f"--family {run['family']}"] if run["family"] != "single-point" else []
    words += ["--quick"] if run["profile"] == "quick" else []
    if run["sample"] is not None:
        words += [f"--sample {run['sample']} --seed {run['seed']}"]
    words += ["--upstream"] if run["upstream"] else []
    return " ".join(words)


def share(run: dict[str, Any]) -> str:
    """The caught faults, of those that are not equivalent."""
    return f"{run['caught']} of {run['caught'] + run['survived']}"


def left_out(run: dict[str, Any]) -> str:
    """The equivalent faults."""
    proved = run["proved_equivalent"]
    read = f"{run['equivalent'] - proved} equivalent by reading"
    return f"{read}, {proved} by proof" if proved else read


def table() -> str:
    """The runs as a table."""
    columns = ("command", "caught", "equivalent", "noticed by vLLM's tests only")
    rows = [
        (
            f"`{command(run)}`",
            share(run),
            run["equivalent"],
            run["killed_by_upstream"] if run["upstream"] else "not run",
        )
        for run in runs()
    ]
    return markdown.table(columns, rows)


def row() -> str:
    """README's line."""
    said = ", ".join(
        f"{run['family']}{' with `--quick`' if run['profile'] == 'quick' else ''} {share(run)} "
        f"({run['mutants']} generated, {left_out(run)})"
        for run in runs()
    )
    return (
        f"{_ROW} faults injected into vLLM's own code are caught ([`hitproof selftest`]"
        f"(docs/pages/commands/selftest.md)) | of samples of the generated faults, without "
        f"equivalent ones: {said} |"
    )


def written(text: str) -> str:
    """README with the figures on record."""
    lines = text.splitlines(keepends=True)
    return "".join(f"{row()}\n" if line.startswith(_ROW) else line for line in lines)


def main(files: list[str]) -> None:
    """Take up runs, and write README."""
    kept = {(run["family"], run["profile"]): run for run in runs()} if RECORD.exists() else {}
    for file in files:
        run = json.loads(Path(file).read_text(encoding="utf-8"))
        chosen = {name: run[name] for name in _KEPT}
        kept[run["family"], run["profile"]] = {"target": run["target"]["name"]} | chosen
    ordered = [kept[key] for key in sorted(kept, reverse=True)]
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    README.write_text(clauses.written(written(README.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
