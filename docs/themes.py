"""The dark theme of the site where there is no JavaScript, which else chooses the theme."""

import re
from importlib.resources import files
from pathlib import Path

_SHEETS = Path(str(files("material"))) / "templates" / "assets" / "stylesheets"
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_DARK = "[data-md-color-scheme=slate]"


class NoTheme(LookupError):
    """The theme of the site has no dark scheme where it used to have one."""


def without_script() -> str:
    """Material's own dark rules, for readers that prefer dark, whatever scheme the page names."""
    sheets = sorted(_SHEETS.glob("main.*.css")) + sorted(_SHEETS.glob("palette.*.css"))
    rules = [
        f"{selector.strip().replace(_DARK, '[data-md-color-scheme]')} {{ {body} }}"
        for sheet in sheets
        for selector, body in _RULE.findall(sheet.read_text(encoding="utf-8"))
        if _DARK in selector
    ]
    if not any("--md-default-bg-color" in rule for rule in rules):
        raise NoTheme(f"no rule of {_DARK} in {_SHEETS} sets colours")
    dark = "\n".join(rules)
    return (
        f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
        ".md-header__option { display: none; }\n"
    )
