"""Charts on pages."""

from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

_SVG = "http://www.w3.org/2000/svg"
_COLORS = (
    "#0b5cad", "#b3261e", "#00735a", "#7a5200", "#6b3fa0", "#3f7f93",
    "#a8437f", "#5f6b00", "#c0591a", "#4a4e56", "#2f8f4e", "#8c6d5a",
)  # fmt: skip


def chart(kind: str, title: str) -> Any:
    """A chart of pygal's, in the colours of the page."""
    import pygal  # only where a page is asked for
    from pygal.style import Style

    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="currentColor",
        foreground_strong="currentColor",
        foreground_subtle="currentColor",
        colors=_COLORS,
    )
    return getattr(pygal, kind)(
        style=style,
        title=title,
        width=1000,
        height=420,
        js=(),
        show_dots=False,
        legend_at_bottom=True,
        x_label_rotation=20,
        show_minor_x_labels=kind != "Line",
        x_labels_major_count=12 if kind == "Line" else None,
        truncate_legend=-1,
    )


def drawn(made: Any, number: int) -> Markup:
    """The chart as SVG without scripts, which the page does not run."""
    made.uuid = f"plot-{number}"
    tree = made.render_tree()
    for parent in tree.iter():
        for child in [each for each in parent if each.tag in ("script", f"{{{_SVG}}}script")]:
            parent.remove(child)
    tree.set("role", "img")
    tree.set("aria-label", made.config.title)
    return Markup(ElementTree.tostring(tree, encoding="unicode"))
