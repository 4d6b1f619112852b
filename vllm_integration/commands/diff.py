"""``hitproof diff``."""

from functools import partial
from pathlib import Path

from hitproof.conformance.ledger.ledger import load
from hitproof.vllm_integration.bundled import LEDGER
from hitproof.vllm_integration.commands.frame import Answer, as_document, command
from hitproof.vllm_integration.commands.options import Classes, Scope
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.gate.diff import compare
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.gate.run import Run
from hitproof.vllm_integration.reports.ci.github import diff_annotations
from hitproof.vllm_integration.reports.ci.sarif import diff_sarif
from hitproof.vllm_integration.reports.diff import diff_json, markdown, print_diff
from hitproof.vllm_integration.reports.html.pages import diff_page
from hitproof.vllm_integration.reproduce.cases import tested
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.resolving import held_as


@command(formats="TEXT JSON MARKDOWN GITHUB SARIF", writes=True, page=True)
def diff(
    base: str,
    head: str,
    scope: Scope,
    limits: Limits,
    classes: Classes,
    pytest: Path | None = None,
    policy: list[str] | None = None,
    verbose: bool = False,
) -> Answer:
    """Compare two targets: hits gained, lost or made unsound, crashes, cached blocks.

    The exit code is 1 when HEAD is worse: a fault that BASE does not have, a lost hit, a hit made
    unsound, or a crash. Faults of both are listed separately and do not count. A class named by
    --manager or --coordinator that exists only in HEAD is used only there.
    """
    profile, policies = scope.profile, chosen_values(policy or [])
    base_target = resolve(base)
    if not base_target.is_release:
        base_target = held_as(base_target, classes.release)
    head_target = classes.of(resolve(head))
    # What only the head's tree has is new there.
    managers, coordinators = (
        [text for text in texts or () if base_target.has(text) or not head_target.has(text)]
        for texts in (classes.manager, classes.coordinator)
    )
    aliases = classes.alias or ()
    renamed = [text for text in aliases if base_target.mentions(text.partition("=")[0])]
    base_target = Classes(managers, coordinators, renamed).of(base_target)
    with progress(f"comparing vLLM {base} and {head}") as done:
        run = Run(head_target, profile, load(LEDGER), limits, policies)
        found = compare(base_target, run, done)
    if pytest is not None:
        found.brought = tested(pytest, found.brought, head_target, limits)
    return Answer(
        found.verdict,
        partial(print_diff, found, verbose=verbose),
        partial(diff_json, found),
        {
            "markdown": lambda: markdown(found),
            "github": lambda: diff_annotations(found),
            "sarif": lambda: as_document(diff_sarif(found)),
        },
        partial(diff_page, found),
        found,
    )
