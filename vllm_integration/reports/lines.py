"""Lines of reports in the terminal: facts under a label, and lines that are kept whole."""

import textwrap

from rich.console import Console

from hitproof.conformance.findings.rules import sort_of


def print_whole(line: str, console: Console) -> None:
    """A line of a picture, which is neither broken nor cut where the terminal is narrow."""
    console.print(line, markup=False, no_wrap=True, crop=False, overflow="ignore")


def print_fact(label: str, text: str, console: Console) -> None:
    """A fact under its label; on a terminal, what does not fit goes on below it."""
    head = f"  {label:<6}{':' if label else ' '} "
    room = max(console.width - len(head) - 1, 20)
    lines = textwrap.wrap(text, room) if console.is_terminal else [text]
    for line in lines or [""]:
        console.print(f"{head}{line}", markup=False)
        head = " " * len(head)


def print_cited(claim: str, sentence: str, console: Console) -> None:
    """The claim or the sanity rule that a finding contradicts."""
    print_fact(sort_of(claim), claim, console)
    print_fact("", sentence, console)
