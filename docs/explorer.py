"""The explorer's data: the spec, run over a grid of choices when the site is built.

The page selects and draws; it decides nothing. The grid: full attention alone, or beside a sliding
window, Mamba or chunked local attention; the sizes of `LAYOUTS`; EAGLE off, and on where an engine
can have it; prompts of every 32 tokens up to 640 and of one token more; dense retention, the latest
boundary only, and an interval of 128 tokens; the newest lookahead horizon.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from hitproof.conformance.explain.explanation import Explanation, Question
from hitproof.conformance.explain.reasons import in_ranges, need_reason
from hitproof.conformance.findings.strips import SIGNS, block_role
from hitproof.conformance.scope.configurations import LookedUp
from hitproof.conformance.scope.layouts import Layout, hash_unit, is_possible
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.hits import required_run
from hitproof.spec.releases.horizons import LookaheadHorizon

PROMPTS = sorted({tokens + more for tokens in range(32, 641, 32) for more in (0, 1)})
RETENTIONS = {"dense": None, "latest boundary only": 0, "every 128 tokens": 128}
LAYOUTS: dict[str, dict[str, tuple[int, ...]]] = {
    "full attention + sliding window": {
        "full attention block size": (16, 32, 64),
        "window block size": (8, 16, 32),
        "window": (33, 100, 128),
    },
    "full attention": {"full attention block size": (16, 32, 64)},
    "full attention + Mamba": {
        "full attention block size": (16, 32, 64),
        "Mamba block size": (64, 128),
    },
    "full attention + chunked local": {"block size": (16, 32), "chunk": (64, 128)},
}
"""The sizes, in tokens, that can be chosen for each set of groups."""

START = {
    "groups": "full attention + sliding window",
    "full attention block size": 64,
    "window block size": 16,
    "window": 100,
    "EAGLE": "on",
    "retention": "dense",
    "prompt": 576,
    "hit": 512,
}
"""What is shown first: the worked example."""


@dataclass(frozen=True)
class Case:
    """A choice of everything but the prompt, the retention and the hit.

    Attributes:
        choices: what was chosen, by name.
        layout: the groups.
    """

    choices: dict[str, Any]
    layout: Layout

    @property
    def key(self) -> str:
        """What the page looks it up by."""
        return "|".join(map(str, self.choices.values()))


def cases() -> Iterator[Case]:
    """Every choice of groups, sizes and EAGLE that an engine can have."""
    for name, sizes in LAYOUTS.items():
        for values in product(*sizes.values()):
            for eagle in (False, True):
                groups = _groups(name, *values)
                layout = Layout(groups, max(PROMPTS), eagle, hash_unit(groups))
                if is_possible(layout):
                    chosen = dict(zip(sizes, values, strict=True))
                    yield Case(
                        {"groups": name, **chosen, "EAGLE": "on" if eagle else "off"}, layout
                    )


def _groups(name: str, size: int, other: int = 0, reach: int = 0) -> tuple[Group, ...]:
    full = Group(GroupKind.FULL_ATTENTION, size)
    match name.rpartition(" + ")[2]:
        case "sliding window":
            return full, Group(GroupKind.SLIDING_WINDOW, other, window=reach)
        case "Mamba":
            return full, Group(GroupKind.MAMBA, other)
        case "chunked local":
            return full, Group(GroupKind.CHUNKED_LOCAL, size, chunk=other)
        case _:
            return (full,)


def explained(case: Case, num_tokens: int, retention: str) -> Explanation:
    """What the spec says of one prompt."""
    layout = replace(case.layout, num_tokens=num_tokens)
    return Explanation(Question(layout, LookaheadHorizon.HASHED, RETENTIONS[retention]))


def of_case(case: Case) -> dict[str, Any]:
    """What the page draws of a case."""
    sets, align = case.layout.looked_up, case.layout.alignment
    return {
        "alignment": align,
        "groups": [
            {
                "title": f"{each.group.kind.replace('_', ' ')}, block size {each.group.block_size}",
                "size": each.group.block_size,
                "segment": each.shape.segment,
            }
            for each in sets
        ],
        "hits": {
            str(hit): [_run(each, hit) for each in sets]
            for hit in range(align, max(PROMPTS) + 1, align)
        },
        "prompts": {
            str(tokens): {name: _prompt(explained(case, tokens, name)) for name in RETENTIONS}
            for tokens in PROMPTS
        },
    }


def _run(looked_up: LookedUp, hit: int) -> list[Any]:
    """First block and letters of what a hit needs, and the sentence on it."""
    end = hit // looked_up.group.block_size
    run = required_run(looked_up.shape, end)
    letters = "".join(block_role(looked_up, block, end) for block in run)
    return [run.start, letters, need_reason(looked_up, end).text]


def _prompt(explanation: Explanation) -> list[Any]:
    """The resend's hit, the extension's, and the registered blocks of each set of groups."""
    registered = [in_ranges(explanation.registered(each)) for each in explanation.layout.looked_up]
    return [explanation.resend, explanation.extension, registered]


@cache
def script() -> str:
    """The data as a script, which a page that is opened from disk can load."""
    data = {
        "start": START,
        "sizes": LAYOUTS,
        "prompts": PROMPTS,
        "retentions": list(RETENTIONS),
        "signs": SIGNS,
        "cases": {case.key: of_case(case) for case in cases()},
    }
    return f"var HITPROOF = {json.dumps(data, separators=(',', ':'))};\n"


def form() -> str:
    """Where the page puts its controls and its pictures."""
    return (
        '<form id="explorer-choices" class="choices"></form>'
        '<p id="explorer-said" role="status"></p>'
        '<div id="explorer-strips"></div>'
        "<noscript><p>The explorer needs JavaScript.</p></noscript>"
        '<script src="assets/explorer-data.js"></script><script src="assets/explorer.js"></script>'
    )
