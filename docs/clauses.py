"""A page for each claim: sentence, picture, formula, code, theorem, check, vLLM symbols, faults."""

from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from typing import Any
from urllib.parse import quote

from docs.notation import Line, formulas
from docs.pictures import picture
from docs.source import folded, listing, place, rests_on
from docs.tables import faults, survey
from hitproof.conformance.checks.registry import CHECKS
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import CLAIMS, IN_VLLM, Basis, Claim, basis

PROVED_FOR = (
    "all block sizes, windows, alignments and positions, and the definition of a hit for any "
    "number of groups; that lookups which take turns find it is shown for each of them, the step "
    "to all is by an informal argument"
)
"""How far the theorems reach, in README's words."""

_SEARCH = "https://github.com/search?type=code&q="


def pages() -> Iterator[tuple[str, str]]:
    """File and Markdown of the page of each claim, and of the list of them."""
    yield "clauses.md", _overview()
    for claim in CLAIMS.values():
        yield f"{claim.name}.md", "\n".join(_page(claim))


def _overview() -> str:
    rows = (
        f"| {number} | [{title(claim.name)}]({claim.name}.md) | {claim.sentence} "
        f"| {claim.divergence} |"
        for number, claim in enumerate(CLAIMS.values(), 1)
    )
    return "\n".join(
        [
            "# The clauses",
            "",
            "Each claim is one sentence with a stable name. It is stated by clauses, functions "
            "of `spec/`, and has a theorem and a check on vLLM's real code of the same name. Its "
            "page says what the theorem covers.",
            "",
            "| number | claim | sentence | a violation is |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Proved and executable clauses",
            "",
            f"{how_many_are_proved()}",
            "",
            "A clause is *proved* if the solvers see it in the theorem of each claim that cites "
            "it, and every single-point mutant of it that is not equivalent makes some theorem "
            "fail. It is *tested* if the solvers see only a part of it, so that some mutants are "
            "caught by tests only. It is *executable* if it takes a whole configuration, or "
            "returns a range or a list: it runs on ints only, and is tested. Tests derive these "
            "labels (`python -m hitproof.conformance.spec_mutants`).",
            "",
            "| clause | basis | of the claims |",
            "|---|---|---|",
            *_labelled(),
            "",
        ]
    )


def how_many_are_proved() -> str:
    """How many clauses are proved, and the names of the others."""
    clauses = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    rest = sorted(each.__name__ for each in clauses if basis(each) is not Basis.PROVED)
    return (
        f"{len(clauses) - len(rest)} of {len(clauses)} clauses are proved; the remaining "
        f"{len(rest)} clauses are tested, not proved: {', '.join(rest)}"
    )


_ROW = "| **proved, unbounded** |"


def written(text: str) -> str:
    """README with its line about what is proved."""
    row = (
        f"{_ROW} the clauses of the specification agree with each other and with what attention "
        f"reads (`hitproof prove`: Z3, then cvc5). {how_many_are_proved()} | {PROVED_FOR} |\n"
    )
    lines = text.splitlines(keepends=True)
    return "".join(row if line.startswith(_ROW) else line for line in lines)


def _labelled() -> Iterator[str]:
    clauses = {clause for claim in CLAIMS.values() for clause in claim.clauses}
    for clause in sorted(clauses, key=lambda each: (list(Basis).index(basis(each)), each.__name__)):
        claims = [claim.name for claim in CLAIMS.values() if clause in claim.clauses]
        links = ", ".join(f"[{title(name)}]({name}.md)" for name in claims)
        yield f"| `{clause.__name__}` | {basis(clause)} | {links} |"


def title(claim: str) -> str:
    """A claim's name as words."""
    words = claim.replace("_", " ").replace("eagle", "EAGLE")
    return words[0].upper() + words[1:]


def _page(claim: Claim) -> Iterator[str]:
    yield f"# {title(claim.name)}"
    yield f"\n`{claim.name}`\n{{ .claim }}\n"
    yield f"**{claim.sentence}**\n"
    yield f"Real code that violates it has a divergence of the class *{claim.divergence}*.\n"
    yield "## Picture\n"
    yield picture(claim.name).html()
    yield '\n{% include "legend.html" %}\n'
    yield from _formulas(claim)
    yield from _code(claim)
    yield from _theorem(claim)
    yield from _check(claim)
    yield "\n## What it judges in vLLM\n"
    for symbol in claim.symbols:
        wanted = quote(f"repo:vllm-project/vllm {symbol.rpartition('.')[2]}")
        yield f"- [`{symbol}`]({_SEARCH}{wanted})"
    for clause in claim.clauses:
        if clause in IN_VLLM:
            yield f"- `{clause.__name__}`: {IN_VLLM[clause].replace('``', '`')}"
    yield from _faults(claim)
    yield ""


def _formulas(claim: Claim) -> Iterator[str]:
    yield "\n## Formula\n"
    stated = [(each, formulas(each)) for each in claim.clauses]
    beneath = {each for clause in claim.clauses for each in rests_on(clause)} - set(claim.clauses)
    below = [(each, formulas(each)) for each in beneath]
    below.sort(key=lambda pair: pair[0].__name__)
    yield "The clauses below, run on symbols instead of ints.\n"
    if any(lines for _, lines in stated):
        yield from _equations(stated)
    if any(lines for _, lines in below):
        yield "\nThey rest on:\n"
        yield from _equations(below)
    by_values = [each.__name__ for each, lines in stated if not lines]
    if by_values:
        names = ", ".join(f"`{name}`" for name in by_values)
        yield f"\nNo formulas, but functions of a whole configuration, are {names}; see the code."


def _equations(
    clauses: list[tuple[Callable[..., Any], tuple[Line, ...]]],
) -> Iterator[str]:
    yield '<div class="formulas" data-search-exclude>'
    letters: dict[str, str] = {}
    for _, lines in clauses:
        for line in lines:
            letters |= line.symbols
            case = f"<p>{escape(line.case)}</p>" if line.case else ""
            yield (
                f'{case}<div class="scroll" tabindex="0" role="group" aria-label="formula">'
                f'<math display="block"><mrow>{line.mathml}</mrow></math></div>'
            )
    if letters:
        told = ", ".join(
            f"<i>{letter}</i> {escape(name)}" for letter, name in sorted(letters.items())
        )
        yield f"<p>{told}</p>"
    yield "</div>"


def _code(claim: Claim) -> Iterator[str]:
    yield "\n## Code\n"
    for clause in claim.clauses:
        yield folded(f"`{clause.__name__}`, {basis(clause)} ({place(clause)})", listing(clause))


def _theorem(claim: Claim) -> Iterator[str]:
    theorem = THEOREMS[claim.name]
    yield "\n## Theorem\n"
    yield f"{theorem.covers}\n"
    count = len(theorem.obligations)
    unproved = [each.__name__ for each in claim.clauses if basis(each) is not Basis.PROVED]
    if unproved:
        names = ", ".join(f"`{name}`" for name in unproved)
        yield f"Not proved, but tested, are the clauses {names}.\n"
    yield (
        f"This is proved without bounds, in {count} obligations; deliberate errors in them are "
        f"refuted. `hitproof prove {claim.name}` proves it again.\n"
    )
    modules = {_module(each.state) for each in theorem.obligations}
    yield f"It is stated in {', '.join(f'`{module}`' for module in sorted(modules))}.\n"
    told = "\n".join(f"- {each.sentence}" for each in theorem.obligations)
    yield folded("What is proved", told)


def _module(state: Callable[..., Any]) -> str:
    """The file that states an obligation."""
    return place(state.func if isinstance(state, partial) else state).partition(":")[0]


def _check(claim: Claim) -> Iterator[str]:
    check = CHECKS[claim.name]
    yield "\n## Check on real code\n"
    yield f"`hitproof check` judges it by `{check.__name__}`.\n"
    yield folded(f"`{check.__name__}` ({place(check)})", listing(check))


def _faults(claim: Claim) -> Iterator[str]:
    seen = [
        (sighting.signature, release.version)
        for release in survey()
        for sighting in release.sightings
        if sighting.signature.claim == claim.name
    ]
    broken = [
        f"- [{fault.number}. {fault.title}](faults.md#{fault.number})"
        for fault in faults()
        if any(fault.explains(signature, version) for signature, version in seen)
    ]
    yield "\n## Faults found\n"
    if broken:
        yield from broken
    else:
        yield "No surveyed release violates it."
