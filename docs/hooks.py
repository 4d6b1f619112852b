"""What MkDocs calls: generated pages, and what handwritten ones ask for in double braces."""

from functools import cache
from typing import Any

from jinja2 import DictLoader, Environment, StrictUndefined
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs import (
    campaigns,
    clauses,
    figures,
    fixes,
    headline,
    histories,
    numbers,
    repairs,
    selftests,
    source,
    tables,
    themes,
)
from docs.pictures import NoPicture
from hitproof.conformance.checks.registry import CHECKS
from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.rules import RULES
from hitproof.conformance.findings.strip_svg import STYLE
from hitproof.conformance.findings.strips import ROLES, SIGNS
from hitproof.proofs.theorems import THEOREMS
from hitproof.spec.claims import CLAIMS
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.reports.survey import document
from hitproof.vllm_integration.templates import templates

_LEGEND = """\
<ul class="legend strip" aria-label="what the signs of the pictures mean">
{%- for sign, meaning in signs.items() %}
<li><b class="{{ sign if sign in roles else ('held' if sign == '#' else '') }}">{{ sign }}</b> \
{{ meaning }}</li>
{%- endfor %}
</ul>
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the page of each claim into the navigation."""
    for section in config.nav or []:
        if "The clauses" in section:
            section["The clauses"] = [
                "clauses.md",
                *({clauses.title(name): f"{name}.md"} for name in CLAIMS),
            ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and assets that are generated."""
    made = {"assets/strips.css": STYLE}
    try:
        made["assets/no-script.css"] = themes.without_script()
        made |= generated()
    except (NoPicture, source.NoSuchCode, themes.NoTheme) as error:
        raise PluginError(str(error)) from error
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def generated() -> dict[str, str]:
    """Generated pages: their Markdown, by file."""
    environment = templates(source.ROOT / "docs" / "templates")
    told = {"claims": CLAIMS, "meanings": MEANINGS, "rules": RULES, "policies": POLICIES}
    told |= {"clauses": clauses, "source": source}
    names = ("clauses.md", "codes.md", "sanity_rules.md", "policies.md")
    made = {name: environment.get_template(name).render(told) for name in names}
    for name, claim in CLAIMS.items():
        of_claim = {"claim": claim, "theorem": THEOREMS[name], "check": CHECKS[name]}
        made[f"{name}.md"] = environment.get_template("claim.md").render(told | of_claim)
    return made | {"faults.md": document(tables.survey(), tables.faults())}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what a page asks for."""
    del config, files
    try:
        return _environment().from_string(markdown).render()
    except Exception as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name what Material leaves without a name."""
    del config
    nameless = 'data-md-component="search" role="dialog"'
    if nameless not in output:
        raise PluginError(f"{page.file.src_uri}: Material's search is no longer as it was")
    return output.replace(nameless, f'{nameless} aria-label="Search"')


def _code(name: str) -> str:
    """The source of what a dotted name stands for."""
    return source.listing(source.find(name))


def _ref(name: str) -> str:
    """A dotted name in the text, which must be in the source."""
    source.find(name)
    return f"`{name}`"


def _claim(name: str) -> str:
    """A link to the page of a claim, which must be there."""
    return f"[{clauses.title(CLAIMS[name].name)}]({name}.md)"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=DictLoader({"legend.html": _LEGEND}), undefined=StrictUndefined, autoescape=False
    )
    pages = (campaigns, figures, fixes, headline, histories, numbers, repairs, selftests, tables)
    shared: dict[str, Any] = {each.__name__.rpartition(".")[2]: each for each in pages}
    shared |= {"code": _code, "ref": _ref, "claim": _claim}
    shared |= {"claims": CLAIMS, "signs": SIGNS, "roles": ROLES}
    environment.globals.update(shared)
    return environment
