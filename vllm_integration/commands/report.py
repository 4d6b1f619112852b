"""``--report DIR``: a result as one HTML page."""

import shlex
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import typer

from hitproof.vllm_integration.commands.running import announce, fail
from hitproof.vllm_integration.reports.html import writing
from hitproof.vllm_integration.verdict import Verdict


def wanted_report(directory: Path | None, output: StrEnum) -> Path | None:
    """The directory of ``--report``; ends with a usage error where no page can be written."""
    if directory is not None:
        try:
            writing.prepare(directory)
        except OSError as error:
            _refuse(directory, error, output)
    return directory


def write_report(
    directory: Path | None,
    page: Callable[[str], str],
    context: typer.Context,
    output: StrEnum,
) -> None:
    """Write the page that ``page`` makes of the command; ends with one sentence where it cannot."""
    if directory is None:
        return
    try:
        writing.write(directory, page(typed(context)))
    except OSError as error:
        _refuse(directory, error, output)
    announce(f"report: {directory / writing.PAGE}")


def _refuse(directory: Path, error: OSError, output: StrEnum) -> None:
    sentence = f"no report can be written to {directory} ({error.strerror}); name another directory"
    fail(Verdict.USAGE, f"{sentence} with --report", output)


def typed(context: typer.Context) -> str:
    """The command that is running, as it can be typed again; what the environment set included."""
    options, arguments = [], []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name not in {"COMMANDLINE", "ENVIRONMENT"}:
            continue
        value = context.params[name]
        values = value if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            arguments += [str(each) for each in values]
        elif isinstance(value, bool):
            options.append(parameter.opts[0])
        else:
            options += [word for each in values for word in (parameter.opts[0], str(each))]
    return shlex.join(["hitproof", context.info_name or "", *arguments, *context.args, *options])
