"""The frame around a command: its options, its failures in one sentence, and where answers go.

A command is a function of what its arguments and options say; it returns an `Answer`.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, Protocol, get_args

import typer
from rich.console import Console

from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.conformance.subject.failures import InternalError
from hitproof.proofs.errors import ReplayError, SecondSolverError
from hitproof.vllm_integration.commands.options import Refusal, Scope, declared, options_of
from hitproof.vllm_integration.commands.running import announce
from hitproof.vllm_integration.gate.policies import CannotProbe, UnknownPolicy
from hitproof.vllm_integration.gate.selection import NothingSelected
from hitproof.vllm_integration.reports.ci import github, junit, sarif
from hitproof.vllm_integration.reports.html import writing
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure, InternalFailure, WorkerGone
from hitproof.vllm_integration.targets.target import TargetError
from hitproof.vllm_integration.verdict import Verdict

_Plain = StrEnum("_Plain", "TEXT")


class Timed(Protocol):
    """A result that says how long it took, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """What a command answers.

    Attributes:
        verdict: its value is the exit code.
        text: prints it for people; nothing if the command has printed it already.
        json: what it is as JSON.
        documents: the document of each other format, by name.
        page: the page for ``--report``, given the command that made it.
        of: the result; its ``seconds`` are set to the time that the command took.
    """

    verdict: Verdict
    text: Callable[[Console], None] = lambda _: None
    json: Callable[[], Any] = dict
    documents: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    page: Callable[[str], str] | None = None
    of: Timed | None = None


def as_document(data: Any) -> str:
    """JSON as it is printed."""
    return json.dumps(data, indent=2) + "\n"


def _refusal_json(verdict: Verdict, sentence: str) -> str:
    name = verdict.label
    return json.dumps({"verdict": name, "exit_code": int(verdict), "error": sentence}) + "\n"


_REFUSALS: Mapping[str, Callable[[Verdict, str], str]] = {
    "json": _refusal_json,
    "github": github.refusal,
    "sarif": lambda verdict, sentence: as_document(sarif.refusal(verdict, sentence)),
    "junit": junit.refusal,
}
"""What programs read, by the name of the format, where there is no result."""


_USAGE: tuple[type[Exception], ...] = (
    TargetError,
    LedgerError,
    EnvironmentFailure,
    UnknownPolicy,
    NothingSelected,
)
"""What is wrong with what the user gave; the message names the remedy."""


@contextmanager
def _failures(output: StrEnum, usage: tuple[type[Exception], ...]) -> Iterator[None]:
    """End with one sentence and the exit code where the body cannot do its work.

    ``usage`` are exceptions of the command's own whose message names the remedy.
    """
    try:
        yield
    except Refusal as refusal:
        _fail(refusal.verdict, str(refusal), output)
    except _USAGE + usage as error:
        _fail(Verdict.USAGE, str(error), output)
    except (CannotProbe, WorkerGone) as error:
        _fail(Verdict.INCONCLUSIVE, f"the target's policies cannot be determined: {error}", output)
    except (InternalFailure, InternalError, ReplayError, SecondSolverError) as error:
        _fail(Verdict.INTERNAL, f"defect in hitproof, please report it: {error}", output)


def _fail(verdict: Verdict, sentence: str, output: StrEnum) -> NoReturn:
    if output in _REFUSALS:
        typer.echo(_REFUSALS[output](verdict, sentence), nl=False)
    typer.echo(f"hitproof: {sentence}", err=True)
    raise typer.Exit(int(verdict))


def write_text(path: Path, text: str, remedy: str, mode: str = "w") -> None:
    """Write a file; raises `Refusal` with the ``remedy`` where that cannot be done."""
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refusal(f"{path} exists already; name another file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Refusal(f"{path} cannot be written ({reason}){remedy}") from None


def given_by_user(context: typer.Context, name: str) -> bool:
    """Whether a parameter was typed or set in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}


class Outputs:
    """Where the answer of a command goes. Raises `Refusal` where it cannot.

    ``written`` is ``--write``, each as FORMAT=FILE, in formats of ``format``.

    Attributes:
        format: the format that is printed.
        directory: that of ``--report``.
        formats: the formats in which the answer is wanted.
    """

    def __init__(
        self,
        context: typer.Context,
        output: StrEnum,
        directory: Path | None,
        written: Sequence[str] | None,
    ) -> None:
        self._context, self.format, self.directory = context, output, directory
        self._files = [self._file(text) for text in written or ()]
        self.formats = {output.value, *(form for form, _ in self._files)}
        paths = [path for _, path in self._files]
        if twice := [path for path in paths if paths.count(path) > 1]:
            raise Refusal(f"--write names {twice[0]} twice; name a file for each format")
        if directory is not None:
            try:
                writing.prepare(directory)
            except OSError as error:
                raise self._refusal(error) from None

    def _file(self, text: str) -> tuple[str, Path]:
        form, equals, name = text.partition("=")
        formats = [each.value for each in type(self.format) if each.value != "text"]
        if form not in formats or not equals or not name:
            raise Refusal(
                f"--write {text} is not FORMAT=FILE; the formats are {', '.join(formats)}"
            )
        path = Path(name)
        if path.is_dir() or not path.absolute().parent.is_dir():
            where = "is a directory" if path.is_dir() else "is in a directory that does not exist"
            raise Refusal(f"{name} {where}; name another file with --write")
        return form, path

    def show(self, answer: Answer) -> None:
        """Write the answer, and print it as far as the reader wants it.

        It is printed even if it cannot be written, since it can have taken minutes; the exit code
        then says *usage*.
        """
        documents = {"json": lambda: as_document(answer.json()), **answer.documents}
        unwritten = list[Refusal]()
        if (page := answer.page) is not None:
            documents["html"] = lambda: page(self._typed())
        for form, path in self._files:
            try:
                write_text(path, documents[form](), "; name another file with --write")
            except Refusal as refusal:
                unwritten.append(refusal)
        if self.directory is not None and page is not None:
            try:
                writing.write(self.directory, page(self._typed()))
                announce(f"report: {self.directory / writing.PAGE}")
            except OSError as error:
                unwritten.append(self._refusal(error))
        if self.format in documents:
            _printed(lambda: typer.echo(documents[self.format](), nl=False))
        else:
            self.tell(answer.text)
        for each in unwritten:
            typer.echo(f"hitproof: {each}", err=True)
        if unwritten:
            raise typer.Exit(int(Verdict.USAGE))

    def tell(self, text: Callable[[Console], None]) -> None:
        """Print something for people, if the format is for them."""
        if self.format not in ("json", *_REFUSALS):
            _printed(lambda: text(_stdout()))

    def _refusal(self, error: OSError) -> Refusal:
        sentence = f"no report can be written to {self.directory} ({error.strerror})"
        return Refusal(f"{sentence}; name another directory with --report")

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


def _printed(print_all: Callable[[], None]) -> None:
    """Print as far as the reader wants it; the exit code stays the verdict's."""
    try:
        print_all()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `_printed`: Rich would exit with 1, which says *diverges*."""
        raise BrokenPipeError


def _stdout() -> Console:
    """A console as wide as the terminal; lines in a pipe are not broken."""
    piped: dict[str, Any] = {} if sys.stdout.isatty() else {"width": 200, "soft_wrap": True}
    return _Output(highlight=False, **piped)


def command(
    *refuses: type[Exception],
    formats: str = "TEXT JSON",
    page: bool = False,
    writes: bool = False,
    schema: Callable[[], Any] | None = None,
) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """Make a function the command that Typer takes; ``options.toml`` has its arguments and options.

    A parameter that is a dataclass is a group, with an option for each attribute; a
    `typer.Context` and the `Outputs` are those of the command. What has ``formats`` takes
    ``--format``, what ``writes`` them ``--write``, what has a ``page`` ``--report``. ``schema`` is
    what ``--schema`` prints. ``refuses`` are exceptions whose message names the remedy.
    """

    def framed(function: Callable[..., Answer]) -> Callable[..., None]:
        name, groups, own = function.__name__, dict[str, Any](), dict[str, type]()
        kinds: Any = StrEnum("Format", formats)  # type: ignore[misc]
        every = [
            *([_parameter("output", kinds, next(iter(kinds)))] if formats else []),
            *([_parameter("write", list[str] | None, None)] if writes else []),
            *([_parameter("html", Path | None, None)] if page else []),
            *([_parameter("print_schema", _printing(schema), False)] if schema else []),
        ]
        for each in signature(function, eval_str=True).parameters.values():
            of: Any = next(iter(get_args(each.annotation)), each.annotation)
            if of in (typer.Context, Outputs):
                own[each.name] = of
            elif isinstance(of, type) and is_dataclass(of):
                groups[each.name] = each.default if each.default is not Parameter.empty else of()
                every += options_of(each, groups[each.name])
            else:
                every.append(each)
        parameters = [_parameter("context", typer.Context)]
        every.sort(key=lambda each: each.name not in vars(Scope()))
        parameters += [declared(name, each) for each in every]

        @wraps(function)
        def called(context: typer.Context, **given: Any) -> None:
            started = time.monotonic()
            # Only the frame's own options: `simulate` has a --write of its own.
            if schema is not None:
                del given["print_schema"]
            output = given.pop("output") if formats else _Plain.TEXT
            directory = given.pop("html") if page else None
            written = given.pop("write") if writes else None
            with _failures(output, refuses):
                outputs = Outputs(context, output, directory, written)
                for each, group in groups.items():
                    values = {n: given.pop(n) for n in vars(group).keys() & given.keys()}
                    given[each] = replace(group, **values)
                for each, of in own.items():
                    given[each] = outputs if of is Outputs else context
                answer = function(**given)
                if answer.of is not None:
                    answer.of.seconds = time.monotonic() - started
                outputs.show(answer)
            raise typer.Exit(int(answer.verdict))

        called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return framed


def _printing(schema: Callable[[], Any]) -> Any:
    """The type of an option that prints a schema."""

    def print_schema(context: typer.Context, wanted: bool) -> None:
        if wanted and not context.resilient_parsing:
            typer.echo(json.dumps(schema(), indent=2))
            raise typer.Exit

    return Annotated[bool, {"callback": print_schema}]


def _parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
