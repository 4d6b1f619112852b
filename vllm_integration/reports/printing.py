"""Reports as text: a template makes the lines, and here they are printed.

A template has ``[[bold red]]…[[/]]`` around what is set off. A line of it that begins with
``[[whole]]`` is neither broken nor cut where the terminal is narrow, and one of `fact` goes on
below its label. An empty line is left out: ``[[]]`` is one. A line of `table` is a table.
"""

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from hitproof.conformance.comparison.effects import Effect
from hitproof.conformance.findings.footprints import in_words as reach
from hitproof.conformance.findings.rules import sort_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.words import count, in_blocks, in_tokens
from hitproof.vllm_integration.reports.traces import in_short, read_trace, reasons, told_steps
from hitproof.vllm_integration.templates import templates
from hitproof.vllm_integration.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Environment

_WRITTEN = re.compile(r"\[\[([a-z ]*|/)\]\]")
_MARK = re.compile("\x02([a-z ]*|/)\x03")
_WHOLE, _TABLE, _LABEL = "\x02whole\x03", "\x04", "\x05"
_PIPE_WIDTH = 100
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def readable(text: str) -> str:
    """The text without what XML cannot have, such as the control characters of a terminal."""
    return _NO_XML.sub("\ufffd", text)


def print_text(console: Console, name: str, /, **shown: Any) -> None:
    """Print what a template makes of what is ``shown``."""
    print_lines(console, _environment().get_template(name).render(**shown))


def document(name: str, /, **shown: Any) -> str:
    """What a template makes that is no report in the terminal."""
    return _environment().get_template(name).render(**shown)


def said(part: str, *about: Any) -> str:
    """What a macro of ``parts.txt`` makes; `print_lines` prints it."""
    return str(getattr(_environment().get_template("parts.txt").module, part)(*about))


def sentences(part: str, *about: Any) -> list[str]:
    """What a macro of ``sentences.txt`` makes, sentence by sentence."""
    told = str(getattr(_environment().get_template("sentences.txt").module, part)(*about))
    every = (" ".join(each.split()) for each in told.split("\x02end\x03"))
    return [each for each in every if each]


def sentence(part: str, *about: Any) -> str:
    """The sentence that a macro of ``sentences.txt`` makes; "" for none."""
    return next(iter(sentences(part, *about)), "")


def print_lines(console: Console, text: str) -> None:
    """Print the text that a template has made."""
    for line in filter(None, text.split("\n")):
        if line.startswith(_TABLE):
            _print_table(console, *json.loads(line[1:]))
        elif line.startswith(_WHOLE):
            whole = marked(line.removeprefix(_WHOLE))
            console.print(whole, no_wrap=True, crop=False, overflow="ignore")
        elif _LABEL in line:
            _print_fact(console, *line.split(_LABEL, 1))
        else:
            console.print(marked(line))


def plain(text: str) -> str:
    """The text that a template has made, without colours and unbroken lines."""
    return drawn(lambda console: print_lines(console, text))


def drawn(draw: Callable[[Console], None]) -> str:
    """What ``draw`` prints, without colours and unbroken lines."""
    file = StringIO()
    draw(Console(file=file, width=200, soft_wrap=True, color_system=None, highlight=False))
    return readable(file.getvalue().rstrip())


def marked(line: str) -> Text:
    """A line with its styles."""
    text, style = Text(), ""
    for number, part in enumerate(_MARK.split(line)):
        if number % 2:
            style = part.strip("/")
        else:
            text.append(part, style)
    return text


def wrapped(console: Console, text: str, below: str, least: int = 1) -> list[str]:
    """The lines of a text, those but the first after ``below``, at ``least`` so wide."""
    return textwrap.wrap(
        text,
        max(width(console) - 1, least),
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )


def width(console: Console) -> int:
    """The columns that text has; in a pipe a usual number."""
    return console.width if console.is_terminal else _PIPE_WIDTH


def _print_fact(console: Console, head: str, text: str) -> None:
    room = max(console.width - len(head) - 1, 20)
    for line in (textwrap.wrap(text, room) if console.is_terminal else [text]) or [""]:
        console.print(Text(f"{head}{line}"))
        head = " " * len(head)


def _print_table(
    console: Console,
    columns: Sequence[str | dict[str, Any]],
    rows: Sequence[Sequence[str]],
    options: dict[str, Any],
) -> None:
    made = (each if isinstance(each, str) else Column(**each) for each in columns)
    drawn = Table(*made, **options)
    for row in rows:
        drawn.add_row(*map(marked, row))
    console.print(drawn)


def styled(style: str, text: object) -> str:
    """A text that is set off."""
    return f"\x02{style}\x03{text}\x02/\x03"


def whole(line: str) -> str:
    """A line that is neither broken nor cut."""
    return f"{_WHOLE}{line}"


def _fact(label: str, text: object) -> str:
    """A fact under its label."""
    return f"  {label:<6}{':' if label else ' '} {_LABEL}{text}"


def table(columns: Sequence[object], rows: Sequence[Sequence[object]], **options: Any) -> str:
    """A table; the options are those of Rich, and so are those of a column that has some."""
    return _TABLE + json.dumps([columns, [[*map(str, row)] for row in rows], options])


@cache
def _environment() -> "Environment":
    from jinja2 import FunctionLoader  # only where a report is printed

    folder = Path(__file__).parent / "templates"
    environment = templates(folder)
    environment.loader = FunctionLoader(
        lambda name: _WRITTEN.sub("\x02\\1\x03", (folder / name).read_text(encoding="utf-8"))
    )
    environment.globals |= {
        **{each.__name__: each for each in (count, in_blocks, in_tokens, sort_of)},
        **{each.__name__: each for each in (in_short, read_trace, reasons, told_steps)},
        "fact": _fact,
        "table": table,
        "json": json.dumps,
        "Verdict": Verdict,
        "Effect": Effect,
        "signature": Signature.from_json,
        "reach": reach,
        "styled": styled,
    }
    return environment
