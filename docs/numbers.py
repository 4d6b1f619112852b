"""The errors on the page about numbers: on record, since pages are built without torch.

``python -m docs.numbers`` computes them anew; a test compares the record with what it computes.
"""

import json
import math
from html import escape
from typing import Any

from docs.source import ROOT
from hitproof.conformance.numeric.outcome import EXACT
from hitproof.spec.groups import Group, GroupKind
from hitproof.vllm_integration.reports import markdown

RECORD = ROOT / "docs" / "numbers.json"
_FULL, _MAMBA = Group(GroupKind.FULL_ATTENTION, 4), Group(GroupKind.MAMBA, 4)
_WINDOW = Group(GroupKind.SLIDING_WINDOW, 2, window=6)
_CHUNKED = Group(GroupKind.CHUNKED_LOCAL, 4, chunk=12)
_SHOWN = (((_FULL, _WINDOW, _MAMBA), True, 12), ((_FULL, _CHUNKED), False, 20))
"""Groups, whether there is a draft head, and the hit."""
_LEAST, _MOST = -4, 1
"""The ends of the scale, powers of ten."""


def computed() -> dict[str, Any]:
    """What is recorded, computed with torch."""
    from hitproof.conformance.numeric.layouts import inside_blocks, presets, small, windows
    from hitproof.conformance.numeric.resuming import WRONG_RULES, Experiment

    missing = []
    for groups, eagle, hit in _SHOWN:
        experiment = Experiment.of(groups, eagle, hit + 7)
        content = experiment.content(hit)
        missing.append(
            {
                "hit": hit,
                "groups": [
                    {
                        "name": _name(group),
                        "block_size": group.block_size,
                        "blocks": [
                            {
                                "required": (index, block) in content,
                                **experiment.without(hit, (index, block), ("x", "y"))._asdict(),
                            }
                            for block in range(hit // group.block_size)
                        ],
                    }
                    for index, group in enumerate(groups)
                ],
            }
        )
    experiment = Experiment.of((_FULL,), True, 18)
    shared = [
        {"rules": name, "shared": shared, "hit": hit, **errors._asdict()}
        for name in ("spec", "no lookahead")
        for shared, hit, errors in (
            experiment.shared(WRONG_RULES[name]) if name in WRONG_RULES else experiment.shared()
        )
    ]
    layouts = {each.__name__: len([*each()]) for each in (small, windows, inside_blocks, presets)}
    return {"missing": missing, "shared": shared, "layouts": layouts}


def missing() -> str:
    """The error of the logits when one block holds other content, for each block before a hit."""
    return "\n".join(map(_plot, _record()["missing"]))


def shared() -> str:
    """What a request gets that shares a number of tokens, with lookahead and without."""
    rows: dict[int, dict[str, Any]] = {}
    for each in _record()["shared"]:
        rows.setdefault(each["shared"], {})[each["rules"]] = each
    logits = "logits, draft logits"
    return markdown.table(
        ("shared tokens", "hit", logits, "without lookahead", logits),
        (
            (number, *_cells(found.get("spec")), *_cells(found.get("no lookahead")))
            for number, found in sorted(rows.items())
        ),
    )


def layouts() -> int:
    """How many layouts the tests compute."""
    return sum(_record()["layouts"].values())


def _record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def _cells(found: dict[str, Any] | None) -> tuple[str, str]:
    if found is None:
        return "none", ""
    return str(found["hit"]), f"{_off(found['target'])}, {_off(found['drafts'])}"


def _off(error: float) -> str:
    return "as uncached" if error <= EXACT else f"off by {error:.2g}"


def _name(group: Group) -> str:
    sizes = (("block size", group.block_size), ("window", group.window), ("chunk", group.chunk))
    said = ", ".join(f"{what} {size}" for what, size in sizes if size is not None)
    return f"{group.kind.replace('_', ' ')}, {said}"


def _plot(found: dict[str, Any]) -> str:
    """Bars on a logarithmic scale, in a table that can be read without seeing them."""
    hit = found["hit"]
    caption = f"A hit of {hit} tokens: how far logits are off when one block holds other content."
    rows = []
    for group in found["groups"]:
        rows.append(f'<tr><th colspan="3" scope="rowgroup">{escape(group["name"])}</th></tr>')
        for block, each in enumerate(group["blocks"]):
            size = group["block_size"]
            first, last = block * size, (block + 1) * size - 1
            error = max(each["target"], each["drafts"])
            need = "required" if each["required"] else "not required"
            rows.append(
                f'<tr><th scope="row">block {block}, tokens {first} to {last}</th><td>{need}</td>'
                f'<td><span class="bar" style="width: {_width(error):.0f}%"></span> '
                f"{_off(error)}</td></tr>"
            )
    return (
        f'<figure class="picture" data-search-exclude><table class="bars">'
        f"<caption>{escape(caption)}</caption>{''.join(rows)}</table></figure>"
    )


def _width(error: float) -> float:
    """The width of a bar, in percent of half its cell."""
    if error <= EXACT:
        return 0.0
    share = (math.log10(error) - _LEAST) / (_MOST - _LEAST)
    return 60 * min(max(share, 0.02), 1.0)


def main() -> None:
    """Renew the record."""
    RECORD.write_text(json.dumps(computed(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
