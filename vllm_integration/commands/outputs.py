"""Where a result goes: it is printed, and written to files and to a page where asked for."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console

from hitproof.vllm_integration.commands.running import announce, fail, show_document
from hitproof.vllm_integration.reports.html import writing
from hitproof.vllm_integration.verdict import Verdict


def given_by_user(context: typer.Context, name: str) -> bool:
    """Whether a parameter was typed or set in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}


class Outputs:
    """Where the result of a command goes; ends with a usage error where it cannot.

    ``written`` is ``--write``, each as FORMAT=FILE, in formats of ``output``.

    Attributes:
        directory: that of ``--report``.
        formats: the formats in which the result is wanted.
    """

    def __init__(
        self,
        context: typer.Context,
        output: StrEnum,
        directory: Path | None,
        written: Sequence[str] | None = None,
    ) -> None:
        self._context, self._output, self.directory = context, output, directory
        self._files = [self._file(text) for text in written or ()]
        self.formats = {output.value, *(form for form, _ in self._files)}
        if directory is not None:
            try:
                writing.prepare(directory)
            except OSError as error:
                self._refuse(error)

    def _file(self, text: str) -> tuple[str, Path]:
        form, equals, name = text.partition("=")
        formats = [each.value for each in type(self._output) if each.value != "text"]
        if form not in formats or not equals or not name:
            sentence = f"--write {text} is not FORMAT=FILE; the formats are {', '.join(formats)}"
            fail(Verdict.USAGE, sentence, self._output)
        path = Path(name)
        if path.is_dir() or not path.absolute().parent.is_dir():
            where = "is a directory" if path.is_dir() else "is in a directory that does not exist"
            fail(Verdict.USAGE, f"{name} {where}; name another file with --write", self._output)
        return form, path

    def write_page(self, page: Callable[[str], str]) -> None:
        """Write the page that ``page`` makes of the command, if one is wanted."""
        if self.directory is None:
            return
        try:
            writing.write(self.directory, page(self._typed()))
        except OSError as error:
            self._refuse(error)
        announce(f"report: {self.directory / writing.PAGE}")

    def show(
        self,
        documents: Mapping[str, Callable[[], str]],
        as_text: Callable[[Console], None],
        page: Callable[[str], str],
    ) -> None:
        """Write and print a result, which ``documents`` has in each format but text and html."""
        documents = {**documents, "html": lambda: page(self._typed())}
        for form, path in self._files:
            try:
                path.write_text(documents[form](), encoding="utf-8")
            except OSError as error:
                sentence = f"{path} cannot be written ({error.strerror})"
                fail(Verdict.USAGE, sentence, self._output)
        self.write_page(page)
        show_document(self._output, documents, as_text)

    def _refuse(self, error: OSError) -> None:
        sentence = f"no report can be written to {self.directory} ({error.strerror})"
        sentence += "; name another directory with --report"
        fail(Verdict.USAGE, sentence, self._output)

    def _typed(self) -> str:
        """The command that is running, as it can be typed again; with what the environment set."""
        context, options, arguments = self._context, list[str](), list[str]()
        for parameter in context.command.params:
            name = parameter.name or ""
            if not given_by_user(context, name):
                continue
            value = context.params[name]
            values = value if isinstance(value, list | tuple) else [value]
            if parameter.param_type_name == "argument":
                arguments += [str(each) for each in values]
            elif isinstance(value, bool):
                options.append(parameter.opts[0])
            else:
                options += [word for each in values for word in (parameter.opts[0], str(each))]
        words = ["hitproof", context.info_name or "", *arguments, *context.args, *options]
        return shlex.join(words)
