"""The command ``hitproof``."""

import importlib.metadata
import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from hitproof.vllm_integration.commands.check import check
from hitproof.vllm_integration.commands.configs import configs
from hitproof.vllm_integration.commands.diff import diff
from hitproof.vllm_integration.commands.explain import explain
from hitproof.vllm_integration.commands.footprints import footprints
from hitproof.vllm_integration.commands.init_ledger import init_ledger
from hitproof.vllm_integration.commands.lockstep import lockstep
from hitproof.vllm_integration.commands.options import EXIT_CODES
from hitproof.vllm_integration.commands.policies import policies
from hitproof.vllm_integration.commands.prove import prove
from hitproof.vllm_integration.commands.replay import replay
from hitproof.vllm_integration.commands.selftest import selftest
from hitproof.vllm_integration.commands.survey import survey
from hitproof.vllm_integration.verdict import Verdict

app = typer.Typer(
    name="hitproof",
    help="A formally checked specification of vLLM's prefix cache, and the gate that judges "
    "vLLM's real code against it.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (
    check,
    diff,
    survey,
    replay,
    lockstep,
    explain,
    prove,
    policies,
    configs,
    selftest,
    init_ledger,
    footprints,
):
    app.command(epilog=EXIT_CODES)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hitproof {importlib.metadata.version('hitproof')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version


def main() -> NoReturn:
    """Run the command; an exception that nobody expected is an internal error."""
    try:
        app()
    except SystemExit:
        raise
    except Exception as error:
        typer.echo(f"hitproof: defect in hitproof, please report it: {error!r}", err=True)
        if os.environ.get("HITPROOF_TRACEBACK"):
            traceback.print_exc()
        sys.exit(int(Verdict.INTERNAL))
    sys.exit(0)
