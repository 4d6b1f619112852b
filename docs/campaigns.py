"""The figures of campaigns: what was run last, and how what it found was read.

``hitproof campaign histories 0.33.0 --hours 2 --out DIR`` makes a campaign. The same command with
``--hours 0 --format json > run.json`` reports on it, and ``python -m docs.campaigns run.json DIR``
puts it on record. Findings that BUGS did not have are read by hand; ``campaigns.toml`` says what
they are, by the names of their signatures. A campaign of the self-test is put on record likewise.
"""

import json
import sys
import tomllib
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from docs.source import ROOT
from hitproof.conformance.findings.footprints import name_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.words import count
from hitproof.vllm_integration.campaign.causes import NEW, told_cause
from hitproof.vllm_integration.campaign.store import MERGED, Store
from hitproof.vllm_integration.reports import markdown

RECORD = ROOT / "docs" / "campaigns.json"
READ = ROOT / "docs" / "campaigns.toml"
NOT_READ = "not read yet"


@cache
def run() -> dict[str, Any]:
    """What is on record."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


@cache
def read(what: str = "read") -> dict[str, str]:
    """What a finding was when it was read, by the name of its signature; or what a survivor is."""
    found: dict[str, str] = tomllib.loads(READ.read_text(encoding="utf-8"))[what]
    return found


def command() -> str:
    """The command that made the campaign."""
    told = run()
    return f"hitproof campaign histories {told['target']} --seed {told['seed']}"


def figures() -> str:
    """What was run, in numbers."""
    told = run()
    rows = [
        ("hours", f"{told['hours']:.2f}, {count(told['processes'], 'process', 'processes')}"),
        ("jobs", f"{told['jobs']:,}, {told['seconds a job']:.1f} s each (median)"),
        ("processes were busy", f"{told['busy']:.0f} % of the time"),
        ("histories", _parts(told["histories"])),
        *(
            (f"branches of `{name}` that ran", f"{ran} of {of}")
            for name, of, ran in told["branches"]
        ),
        ("histories that show something", f"{told['showing']:,}"),
        ("faults of BUGS that they show", str(len(told["causes"]))),
        ("other signatures", str(len(told["new"]))),
        ("not judged", _parts(told["cannot"]) or "none"),
    ]
    return markdown.table(("what", "figure"), rows)


def findings() -> str:
    """What BUGS did not have, and what each is."""
    rows = [
        (f"`{name.rpartition(': ')[2]}`", name.split(": ")[-2], number, read().get(name, NOT_READ))
        for name, number in run()["new"]
    ]
    return markdown.table(("signature", "of", "histories", "what it is"), rows)


def mutants() -> str:
    """The whole self-test, by function."""
    told = run()["selftest"]
    sums = [sum(int(row[n]) for row in told["functions"]) for n in (1, 2, 3)]
    rows = [*((f"`{name}`", *rest) for name, *rest in told["functions"]), ("all", *map(str, sums))]
    return markdown.table(("function", "mutants", "caught", "equivalent"), rows)


def survivors() -> str:
    """The mutants that nothing noticed, and what became of each."""
    rows = [
        (f"`{function}`", f"`{mutant}`", read("survivors")[mutant])
        for function, mutant in run()["selftest"]["survivors"]
    ]
    return markdown.table(("function", "mutant", "what became of it"), rows)


def selftest() -> str:
    """How the whole self-test was run."""
    told = run()["selftest"]
    return (
        f"`hitproof campaign selftest {told['target']} --quick`, {told['jobs']} jobs, "
        f"{told['hours']:.1f} hours of {count(told['processes'], 'process', 'processes')}"
    )


def of_selftest(report: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a campaign of mutants: its report as JSON."""
    ran, (target,) = report["run"], (each.removeprefix("vLLM ") for each in report["targets"])
    tables = {table["title"]: table["rows"] for table in report["tables"]}
    return {
        "target": target,
        "jobs": report["jobs"],
        "processes": ran["processes"],
        "hours": round(ran["seconds_of_jobs"] / ran["processes"] / 3600, 2),
        "functions": tables["Mutants"],
        "survivors": [[row[1], row[3]] for row in tables["Survivors"]],
    }


def of_campaign(report: dict[str, Any], directory: Path) -> dict[str, Any]:
    """What is kept of a campaign: its report as JSON, and its results."""
    (target,) = (each.removeprefix("vLLM ") for each in report["targets"])
    lines = (directory / MERGED).read_text(encoding="utf-8").splitlines()
    jobs = [json.loads(line) for line in lines]
    told = [(job["question"], each) for job in jobs for each in job["result"].get("histories", ())]
    shown = Counter(Signature.from_json(raw) for _, each in told for raw in each.get("found", ()))
    by_cause: Counter[str] = Counter()
    for signature, number in shown.items():
        by_cause[told_cause(signature, target)] += number
    new = {name_of(s): n for s, n in shown.items() if told_cause(s, target) == NEW}
    log = Store(directory).log()
    hours = (max(each.at for each in log) - min(each.at - each.seconds for each in log)) / 3600
    workers = {each.worker for each in log}
    seeds = chain.from_iterable(job["question"].get("histories", ()) for job in jobs)
    tables = [table["rows"] for table in report["tables"] if table["title"] == "Branches"]
    return {
        "target": target,
        "seed": next(seeds).partition(":")[0].partition(".")[0],
        "hours": round(hours, 2),
        "processes": len(workers),
        "jobs": len(log),
        "seconds a job": round(median(each.seconds for each in log), 1),
        "busy": round(sum(each.seconds for each in log) / 36 / hours / len(workers), 1),
        "histories": Counter(question["origin"] for question, _ in told),
        "branches": [[name, int(of), int(ran)] for name, of, ran in chain.from_iterable(tables)],
        "showing": sum("found" in each for _, each in told),
        "causes": {cause: n for cause, n in by_cause.most_common() if cause != NEW},
        "new": sorted(new.items(), key=lambda each: (-each[1], each[0])),
        "cannot": report["cannot"],
    }


def _parts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in numbers.items())


def main(report: str, *directory: str) -> None:
    """Put a campaign on record."""
    told, kept = json.loads(Path(report).read_text(encoding="utf-8")), run()
    if told["campaign"] == "selftest":
        kept |= {"selftest": of_selftest(told)}
    else:
        kept |= of_campaign(told, Path(*directory))
    RECORD.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
