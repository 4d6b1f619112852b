"""All that reports, explanations and stories say, as the files of ``golden/printed`` have it.

``python -m hitproof.vllm_integration.tests.test_printed`` writes them anew; read the difference.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from hitproof.conformance.comparison.changes import Change
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.explain.story import choose, tell
from hitproof.conformance.explain.traces import Trace
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.evidence import Evidence, LookupEvidence, RetentionEvidence
from hitproof.conformance.findings.findings import finding
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.places import Location, Passed, Why
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.judge.tracing import traced
from hitproof.conformance.scope.configurations import single_group
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.tests import broken_managers as broken
from hitproof.conformance.tests.test_evidence import SAVED
from hitproof.conformance.tests.test_traces import TWICE
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration import cli
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff
from hitproof.vllm_integration.gate.replay import ReplayReport
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports import replay
from hitproof.vllm_integration.reports.check import print_report, report_json
from hitproof.vllm_integration.reports.ci import github, junit, sarif, summary
from hitproof.vllm_integration.reports.diff import diff_json, markdown, print_diff
from hitproof.vllm_integration.reports.explain import print_story
from hitproof.vllm_integration.reports.printing import drawn, plain, said
from hitproof.vllm_integration.targets.changed import Hunk
from hitproof.vllm_integration.tests.reports import (
    CONFIGURATION,
    REPORTS,
    conforming,
    diverging,
    replay_of,
    replayed_history,
)

GOLDEN = Path(__file__).resolve().parent / "golden/printed"
PAIR = "--group full_attention,block_size=64 --group sliding_window,block_size=16,window=100"
EXPLAINED = (
    f"{PAIR} --eagle --hit 512",
    f"{PAIR} --eagle --hit 512 --cached 1=26-32",
    f"{PAIR} --eagle --hit 512 --cached 1=26-32 --format json",
    f"{PAIR} --eagle --tokens 576 --release 0.20.0",
    f"{PAIR} --tokens 700 --retention 128",
    f"{PAIR} --tokens 10",
    "--group Full-Attention,block-size=16 --group sliding_window,block_size=16,window=40,EAGLE",
    "--group full_attention,block_size=16 --group mamba,block_size=24,uncached",
    "--preset GPT-OSS-like",
)


def as_json(data: Any) -> str:
    return json.dumps(data, indent=1) + "\n"


def located() -> Report:
    """A finding of a history at a changed line, with its test."""
    report = replayed_history()
    (found,) = report.judgement.new
    passed = Passed(Location("vllm/v1/core/x.py", 7, "f", Why.CHANGED))
    new = (replace(found, passed=passed),)
    return replace(report, judgement=replace(report.judgement, new=new))


def _sarif(report: Report) -> str:
    """The log without the rules, which are those of claims and codes."""
    (run,) = sarif.sarif(report, known=True)["runs"]
    return as_json([run["invocations"], run["results"]])


def _junit(report: Report) -> str:
    """The suites in which something is said."""
    root = ElementTree.fromstring(junit.junit(report))
    for suite in list(root):
        if all(len(case) == 0 for case in suite.iter("testcase")):
            root.remove(suite)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _json(report: Report) -> str:
    told = report_json(report)
    return as_json(told | {"obligations": told["obligations"][:1]})


def _verbose(report: Report) -> str:
    """Without the table of obligations, which has a row for each claim."""
    text = drawn(partial(print_report, report, verbose=True))
    before, _, rest = text.partition("obligations\n")
    return before.rstrip() + "\n" + rest.rpartition("┘\n")[2] if rest else text


FORMS: dict[str, Callable[[Report], str]] = {
    "text": lambda report: drawn(partial(print_report, report, verbose=False)),
    "verbose": _verbose,
    "github": partial(github.annotations, verbose=True),
    "markdown": summary.markdown,
    "sarif": _sarif,
    "junit": _junit,
    "json": _json,
}


def diffs() -> Iterator[Diff]:
    """A fault that the head introduces; hits that it loses by one change, and by several."""
    before, after = conforming(), diverging()
    new = list(after.judgement.new)
    diff = Diff(before, after, brought=new, gone=new, policies=[("p", "a", "b")])
    diff.proved, diff.histories.histories = 1, 1
    yield diff
    lost = [
        ChangeGroup(Change(Effect.LOST, CONFIGURATION, ("given",), "a", "b"), n, ("m",) * (n % 2))
        for n in (1, 2)
    ]
    hunk = Hunk("vllm/v1/core/x.py", 7, 8, "f")
    for hunks in ((hunk,), (hunk, replace(hunk, line=17))):
        yield Diff(conforming(), conforming(), lost, hunks=hunks)


DIFF_FORMS: dict[str, Callable[[Diff], str]] = {
    "text": lambda diff: drawn(partial(print_diff, diff, verbose=False)),
    "verbose": lambda diff: drawn(partial(print_diff, diff, verbose=True)),
    "markdown": markdown,
    "github": github.diff_annotations,
    "sarif": lambda diff: as_json(sarif.diff_sarif(diff)["runs"][0]["results"]),
    "json": lambda diff: as_json(diff_json(diff)),
}


def replays(form: Callable[[ReplayReport], str], *more: type[broken.Wrapped]) -> str:
    """With the reasons of findings alone, and with the traces."""
    shown = [replay_of(broken.ShorterHit, with_trace=False)]
    shown += map(replay_of, (broken.ShorterHit, *more))
    return "\n".join(map(form, shown))


def long_traces() -> Iterator[Trace]:
    """Traces of which some steps, and parts of long values, are left out."""
    _, trace = traced(TWICE, broken.Broken(broken.ShorterHit))
    many = [trace.steps[0].model_copy(update={"number": number}) for number in range(60)]
    queue = tuple((number, number) for number in range(1, 100, 2))
    start = trace.start.model_copy(update={"free_queue": queue})
    yield trace.model_copy(update={"steps": tuple(many), "start": start})
    yield trace.model_copy(update={"steps": tuple(many[40:]), "ended": "it hangs"})


SIGNATURE = Signature(
    "eagle_needs_tail_plus_one", "unsound", "sliding_window", True, Defect(Code.HIT_OFF_BOUNDARY)
)
WINDOW = single_group(GroupKind.SLIDING_WINDOW, 2, 2, 3, True, 6)
LONG = single_group(GroupKind.SLIDING_WINDOW, 1, 1, 3, False, 30)
GROUPS = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.SLIDING_WINDOW, 2, 3)
PLAIN = SIGNATURE, WINDOW, "due", "done"
SEVERAL = SIGNATURE, Layout(GROUPS, 12, True, 2), "due", "done"
FOUND: dict[str, Evidence] = {
    **{name: Evidence.from_json(saved) for name, saved in SAVED.items()},
    "a block that retention does not promise": RetentionEvidence(
        *PLAIN, 8, 0, frozenset({1}), 1, 4
    ),
    "a block that it promises": RetentionEvidence(*PLAIN, 8, 0, frozenset(), 1, 4),
    "a block that no hit decides on": RetentionEvidence(*PLAIN, 8, 0, frozenset({1}), 0, 0),
    "a hit past the horizon": LookupEvidence(
        *SEVERAL, (frozenset({0, 1, 2}), frozenset({1, 2, 3, 4})), 11, 4, 8
    ),
    "a hit that one group cannot serve": LookupEvidence(
        *SEVERAL, (frozenset({0, 1, 2}), frozenset({1, 2, 3})), 11, 4, 8
    ),
    "many longer hits": LookupEvidence(SIGNATURE, LONG, "due", "done", (frozenset({1}),), 30, 0, 3),
}


def stories() -> Iterator[str]:
    for name, evidence in FOUND.items():
        story = tell(choose(json.dumps(finding(evidence, "f:1").as_json()), name, None))
        yield f"--- {name}\n{drawn(partial(print_story, story))}\n"


def explanations() -> Iterator[str]:
    for words in EXPLAINED:
        ended = CliRunner().invoke(cli.app, ["explain", *words.split()])
        yield f"$ hitproof explain {words}\n{ended.stdout}"


def _every(form: Callable[[Report], str]) -> str:
    made = REPORTS | {"located": located}
    return "".join(f"--- {name}\n{form(make()).rstrip()}\n" for name, make in made.items())


def _of_diffs(form: Callable[[Diff], str]) -> str:
    return "".join(f"---\n{form(diff).rstrip()}\n" for diff in diffs())


def _drawn(draw: Callable[[Console], None]) -> str:
    return drawn(draw) + "\n"


PRINTED: dict[str, Callable[[], str]] = {
    **{f"check.{name}": partial(_every, form) for name, form in FORMS.items()},
    **{f"diff.{name}": partial(_of_diffs, form) for name, form in DIFF_FORMS.items()},
    "replay.text": lambda: replays(
        lambda each: _drawn(partial(replay.print_report, each, verbose=True)),
        *(broken.Forgets, broken.Leaks, broken.OtherBlock),
    ),
    "replay.json": lambda: replays(lambda each: as_json(replay.report_json(each))),
    "trace.text": lambda: "".join(f"{plain(said('trace', each))}\n" for each in long_traces()),
    "explain.text": lambda: "".join(explanations()),
    "story.text": lambda: "".join(stories()),
}


def printed(name: str) -> str:
    """A document, whichever releases the survey has."""
    return re.sub(r"(?<=seen in )[^:]*?0\.\d+[^:]*(?=:)", "RELEASES", PRINTED[name]())


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed(name: str) -> None:
    assert printed(name) == (GOLDEN / name).read_text("utf-8")


if __name__ == "__main__":
    for name in PRINTED:
        (GOLDEN / name).write_text(printed(name), "utf-8")
