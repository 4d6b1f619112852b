"""``hitproof fixes``: list, show, apply and verify the patches that remove faults of a release."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.picking import picked
from hitproof.vllm_integration.bundled import SURVEY
from hitproof.vllm_integration.commands.configuration import ConfiguredCommand
from hitproof.vllm_integration.commands.frame import Answer, Outputs, command
from hitproof.vllm_integration.commands.options import EXIT_CODES, QuickOnly
from hitproof.vllm_integration.commands.running import progress, resolve
from hitproof.vllm_integration.fixes.patches import RELEASE, Fix, FixError, named
from hitproof.vllm_integration.fixes.suites import suites
from hitproof.vllm_integration.fixes.trees import apply as apply_fixes
from hitproof.vllm_integration.fixes.trees import clean_texts, copied
from hitproof.vllm_integration.fixes.verifying import Verified, name_of, near, pairs
from hitproof.vllm_integration.fixes.verifying import verify as verify_fixes
from hitproof.vllm_integration.gate.selection import EVERYTHING
from hitproof.vllm_integration.reports import fixes as rendering
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.survey.survey import read as read_survey
from hitproof.vllm_integration.targets.commits import CommitError
from hitproof.vllm_integration.targets.resolving import held_as
from hitproof.vllm_integration.targets.target import INSTALLED
from hitproof.vllm_integration.verdict import Verdict

app = typer.Typer(
    name="fixes",
    help=f"Patches that remove faults of vLLM {RELEASE}, each with its faults of BUGS.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EXIT_CODES,
)


@app.command("list", cls=ConfiguredCommand, epilog=EXIT_CODES)
@command(FixError, CommitError)
def list_fixes() -> Answer:
    """List the fixes: the fault, what the patch does, and how many codes it removes."""
    fixes = named(())
    return Answer(
        Verdict.CONFORMS,
        partial(rendering.print_list, fixes),
        lambda: [rendering.fix_json(fix) for fix in fixes],
    )


@app.command("show", cls=ConfiguredCommand, epilog=EXIT_CODES)
@command(FixError, CommitError, formats="TEXT UPSTREAM PATCH JSON")
def show_fix(number: int) -> Answer:
    """Show a fix: the fault, its impact, the change, its cost, a test, and the patch."""
    (fix,) = named([number])
    text, releases = rendering.shown(fix), read_survey(SURVEY)
    return Answer(
        Verdict.CONFORMS,
        lambda console: console.print(text, markup=False, soft_wrap=True),
        partial(rendering.fix_json, fix),
        {"patch": lambda: fix.patch, "upstream": lambda: rendering.upstream(fix, releases)},
    )


@app.command("apply", cls=ConfiguredCommand, epilog=EXIT_CODES)
@command(FixError, CommitError, formats="")
def apply(
    target: Annotated[str, {"release": RELEASE}],
    numbers: list[int] | None = None,
    to: Path | None = None,
    release: str | None = None,
) -> Answer:
    """Apply fixes to a tree of vLLM: all of those that are named, or none."""
    fixes = named(numbers or ())
    if to is None and not Path(target).is_dir():
        raise FixError(
            f"{target} is not a directory; name a checkout, or apply the fixes to a copy with --to"
        )
    if target == INSTALLED:
        raise FixError("the installed vLLM is not copied; name a release or a checkout")
    # A directory is meant, whatever else has its name.
    tree = held_as(resolve(str(Path(target).absolute()) if to is None else target), release)
    root, clean = tree.root, None
    assert root is not None
    if to is not None:
        copied(root, to)
        root = to.absolute()
    else:
        clean = clean_texts(tree, _original(), fixes)
    apply_fixes(root, fixes, clean)
    typer.echo(f"{root} has {name_of(fixes)}")
    return Answer(Verdict.CONFORMS)


def _original() -> Path:
    """The tree of the release that is fixed."""
    root = resolve(RELEASE).root
    assert root is not None
    return root


@app.command("verify", cls=ConfiguredCommand, epilog=EXIT_CODES)
@command(FixError, CommitError)
def verify(
    scope: QuickOnly,
    limits: Limits,
    outputs: Outputs,
    numbers: list[int] | None = None,
    together: bool = False,
    fully: bool = False,
) -> Answer:
    """Check that each fix removes its fault and adds nothing, alone and all together.

    Alone, and beside each that changes the same function, a fix is checked in the configurations
    and histories with which the ledger shows its faults; together, all of the profile is checked.
    Of each it says what it changes, and how many functions are the same with all that they call.

    The exit code is 0 if so, 1 if a divergence of the fault is left or another one is new, and 3
    if something could not be judged.
    """
    verified, profile, fixes = list[Verified](), scope.profile, named(numbers or ())
    original = _original()
    fewer: list[tuple[Fix, ...]] = []
    if not together and len(fixes) > 1:
        fewer = [*((fix,) for fix in fixes), *pairs(original, fixes)]

    def alone(some: tuple[Fix, ...]) -> Verified:
        wanted, one = EVERYTHING if fully else near(some), replace(limits, jobs=1)
        return verify_fixes(original, some, profile, one, lambda *_: None, wanted)

    def tell(each: Verified) -> None:
        verified.append(each)
        outputs.tell(partial(rendering.print_verified, each))

    what = f"judging vLLM {RELEASE} with one fix or two that change the same function"
    with progress(what) as done, ThreadPoolExecutor(limits.jobs) as pool:
        for each in pool.map(alone, fewer):
            tell(each)
            done(len(verified), len(fewer))
    with progress(f"judging vLLM {RELEASE} with {name_of(fixes)}") as done:
        tell(verify_fixes(original, fixes, profile, limits, done))
    verdicts = {each.verdict for each in verified}
    worst = [Verdict.DIVERGES, Verdict.INCONCLUSIVE, Verdict.CONFORMS]
    return Answer(
        next(each for each in worst if each in verdicts),
        partial(rendering.print_remaining, verified[-1]),
        partial(rendering.verified_json, verified),
    )


@app.command("tests", cls=ConfiguredCommand, epilog=EXIT_CODES)
@command(FixError, CommitError)
def run_tests(limits: Limits, numbers: list[int] | None = None) -> Answer:
    """Run vLLM's own tests of caches, schedulers and connectors without the fixes and with them.

    Lists those that pass without and fail with them. The exit code is 0 if these are the tests of
    which the fixes say that they expect a fault, 1 if not, and 3 if no test passes without them.
    """
    fixes = named(numbers or ())
    with progress(f"running the tests of vLLM {RELEASE}") as done:
        found = suites(_original(), fixes, limits, done)
    return Answer(
        found.verdict,
        partial(rendering.print_suites, found),
        lambda: picked(found, "passed", "failing", "unmet", verdict="verdict.label"),
    )
