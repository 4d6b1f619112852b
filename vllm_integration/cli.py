"""The command ``hitproof``."""

import importlib.metadata
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from hitproof.vllm_integration.commands.branches import branches
from hitproof.vllm_integration.commands.campaign import campaign
from hitproof.vllm_integration.commands.check import check
from hitproof.vllm_integration.commands.configs import configs
from hitproof.vllm_integration.commands.configuration import ConfiguredCommand
from hitproof.vllm_integration.commands.diff import diff
from hitproof.vllm_integration.commands.doctor import doctor
from hitproof.vllm_integration.commands.engine import engine
from hitproof.vllm_integration.commands.explain import explain
from hitproof.vllm_integration.commands.fixes import app as fixes
from hitproof.vllm_integration.commands.footprints import footprints
from hitproof.vllm_integration.commands.init import init
from hitproof.vllm_integration.commands.init_ledger import init_ledger
from hitproof.vllm_integration.commands.lockstep import lockstep
from hitproof.vllm_integration.commands.options import EXIT_CODES
from hitproof.vllm_integration.commands.policies import policies
from hitproof.vllm_integration.commands.prove import prove
from hitproof.vllm_integration.commands.replay import replay
from hitproof.vllm_integration.commands.selftest import selftest
from hitproof.vllm_integration.commands.simulate import simulate
from hitproof.vllm_integration.commands.survey import survey
from hitproof.vllm_integration.verdict import Verdict

app = typer.Typer(
    name="hitproof",
    help="A formally checked specification of vLLM's prefix cache, and a gate that judges "
    "vLLM's real code by it.\n\n" + EXIT_CODES,
    no_args_is_help=True,
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
    engine,
    simulate,
    explain,
    prove,
    policies,
    configs,
    selftest,
    init,
    init_ledger,
    footprints,
    branches,
    campaign,
):
    app.command(cls=ConfiguredCommand, epilog=EXIT_CODES)(command)
# What it does not know are vLLM's own arguments.
app.command(
    cls=ConfiguredCommand,
    epilog=EXIT_CODES,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(doctor)
app.add_typer(fixes)


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


class _Interrupted(BaseException):
    """A signal asked to stop; what is open is closed on the way out."""


@contextmanager
def _signals() -> Iterator[None]:
    def interrupt(number: int, _: object) -> NoReturn:
        raise _Interrupted(number)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> NoReturn:
    """Run the command; an unexpected exception is an internal error."""
    try:
        with _signals():
            app()
    except SystemExit:
        raise
    except _Interrupted as interrupted:
        _end(128 + interrupted.args[0], "interrupted, so there is no verdict")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(
            int(Verdict.USAGE),
            f"{where}{error.strerror or error}; check free space and permissions, and run it again",
        )
    except Exception as error:
        if os.environ.get("HITPROOF_TRACEBACK"):
            traceback.print_exc()
        _end(int(Verdict.INTERNAL), f"defect in hitproof, please report it: {error!r}")
    sys.exit(0)


def _end(code: int, sentence: str) -> NoReturn:
    typer.echo(f"hitproof: {sentence}", err=True)
    try:
        sys.stdout.flush()
    except OSError:  # which would be a traceback at the end of the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
