"""What people read on a terminal: the worst first, one screen, and no picture cut in two."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from hitproof.conformance.comparison.changes import Change
from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.strips import LEGEND
from hitproof.conformance.ledger.ledger import Judgement
from hitproof.proofs.prover import ProofResult
from hitproof.spec.claims import CLAIMS, Divergence, Status
from hitproof.vllm_integration.gate.diff import ChangeGroup, Diff
from hitproof.vllm_integration.gate.report import Report
from hitproof.vllm_integration.reports.check import print_report
from hitproof.vllm_integration.reports.diff import print_diff
from hitproof.vllm_integration.reports.proof import print_proofs
from hitproof.vllm_integration.tests.reports import CONFIGURATION, conforming, found


def raising(number: int) -> Defect:
    return Defect.of(Code.RAISES_EXCEPTION, error=f"Error{number}")


def several(count: int) -> Report:
    (shown,) = found()[1]
    worst = replace(shown, signature=replace(shown.signature, divergence=Divergence.UNSOUND))
    others = [
        replace(shown, signature=replace(shown.signature, defect=raising(number)))
        for number in range(1, count)
    ]
    return replace(conforming(), judgement=Judgement((worst, *others), (), ()))


def printed(report: Report, width: int = 100, verbose: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    print_report(report, console, verbose)
    return file.getvalue()


def test_many_findings_fit_on_a_screen_the_worst_in_full() -> None:
    text = printed(several(12))
    assert len(text.splitlines()) < 40
    assert text.startswith("unsound: ")
    assert text.count("claim :") == 1
    assert all(
        f"lost hit: sliding window: raises Error{number}\n" in text for number in range(1, 12)
    )
    assert "--verbose shows these in full" in text
    assert "12 new findings" in text.splitlines()[-1]


def test_pictures_are_whole_and_facts_stay_under_their_label_where_it_is_narrow() -> None:
    lines = printed(several(1), width=60).splitlines()
    assert f"    {LEGEND}" in lines
    sentence = CLAIMS[found()[1][0].signature.claim].sentence
    at = next(number for number, line in enumerate(lines) if line.strip().startswith(sentence[:20]))
    indent = len(lines[at]) - len(lines[at].lstrip())
    assert len(lines[at]) < 60
    assert lines[at + 1].startswith(" " * indent)
    assert sentence.startswith(f"{lines[at].strip()} {lines[at + 1].strip()}")


@pytest.mark.parametrize("verbose", [False, True])
def test_proofs_are_a_line_a_claim_on_eighty_columns(verbose: bool) -> None:
    results = [ProofResult(claim, "o", Status.PROVED, seconds=1.5) for claim in CLAIMS]
    file = StringIO()
    print_proofs(results, Console(file=file, width=80), verbose)
    lines = file.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    if not verbose:
        assert len(lines) <= 2 + 2 * len(CLAIMS)
        assert all(any(claim in line for line in lines) for claim in CLAIMS)
    assert lines[-1].startswith(f"{len(CLAIMS)} obligations: {len(CLAIMS)} proved; 0 mutants")


def test_a_comparison_shows_the_cases_of_its_worst_changes() -> None:
    change = Change(Effect.LOST, CONFIGURATION, ("given",), "hit", "no hit")
    groups = [ChangeGroup(change, 1, (f"model {number}",)) for number in range(9)]
    for verbose, cases in ((False, 4), (True, 9)):
        file = StringIO()
        print_diff(Diff(conforming(), conforming(), groups), Console(file=file), verbose)
        assert file.getvalue().count("given : given") == cases
        assert all(f"model {number}" in file.getvalue() for number in range(9))
