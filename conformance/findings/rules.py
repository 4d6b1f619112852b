"""Sanity rules: what is expected of vLLM though no claim of the spec implies it, with reasons.

A finding contradicts a claim of `spec.claims` or one of these, under whose name it is booked. Those
of planning are one a `Rule`; `conformance.explain.derivation` judges them.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hitproof.spec.claims import CLAIMS, Claim


@dataclass(frozen=True)
class SanityRule:
    """Something that a sound engine does, and that does not follow from the spec.

    Attributes:
        name: a stable name that says what is expected.
        sentence: the rule in one English sentence.
        reason: why it is expected of vLLM.
        symbols: the vLLM symbols that it is about.
    """

    name: str
    sentence: str
    reason: str
    symbols: tuple[str, ...]


class Rule(StrEnum):
    """What a configuration must obey that start-up derives from layers."""

    LAYERS = "every layer is in one group"
    READS = "a group keeps what its layers read"
    READ_AGAIN = "a running request keeps what its layers read, also of tokens they compute again"
    PAGES = "a page holds the block of its group"
    POOL = "the pool fits into the memory"
    SCHEDULER_BLOCK = "the scheduler's block is the least common multiple of the groups' blocks"
    HASH_BLOCK = "every block is a whole number of hash blocks"
    HASH_UNIT = "a hash covers what was asked for, or as much as all blocks have in common"
    DRAFTS = "the groups with draft layers are flagged"
    BLOCKS = "a block is whole blocks of its layers, and fills its page"
    PAGE_SIZE = "no page is larger than what the largest needs"
    APART = "no two blocks share bytes, except as the same block of two groups"
    ALIGNED = "blocks are as far apart as a multiple of what their layers need"
    OWN_LAYERS = "a rank has pages for its own layers, and for no others"
    RANKS = "all ranks have the same number of blocks"
    MEMORY = "the memory of some rank is used up"
    PADDING = "less than half of the pool is padding"
    LONG_REQUESTS = "less than half of what a long request takes is padding"
    FILLED_BLOCKS = "layers of one sort are in no more groups than blocks have room for"
    FEW_GROUPS = "there are no more groups than the rarest sort of layers makes"
    DEALT = "on each rank a block is no larger than layers need that are dealt out evenly"

    @property
    def parameter(self) -> str:
        """The rule as a parameter of a defect."""
        return self.name.lower().replace("_", "-")

    @property
    def sanity_rule(self) -> str:
        """The name of the sanity rule that it is."""
        return f"planning_{self.name.lower()}"


WASTEFUL = (
    Rule.HASH_UNIT,
    Rule.PAGE_SIZE,
    Rule.MEMORY,
    Rule.PADDING,
    Rule.LONG_REQUESTS,
    Rule.FILLED_BLOCKS,
    Rule.FEW_GROUPS,
    Rule.DEALT,
)
"""Where these are broken outputs are right, and memory or time is lost."""

FATAL = (Rule.OWN_LAYERS,)
"""Where these are broken the worker does not start: it finds no layer for a tensor of the plan."""


def _rules() -> Iterator[SanityRule]:
    """The rows of ``rules.toml``; the sentences of those of planning are those of `Rule`."""
    planning = {each.sanity_rule: f"After start-up, {each}." for each in Rule}
    rows = tomllib.loads((Path(__file__).parent / "rules.toml").read_text(encoding="utf-8"))
    for name, row in rows.items():
        sentence = planning[name] if name in planning else row["sentence"]
        yield SanityRule(name, sentence, row["reason"], tuple(row["symbols"]))


RULES: dict[str, SanityRule] = {rule.name: rule for rule in _rules()}
"""Every sanity rule, by name."""


def cited(name: str) -> Claim | SanityRule:
    """The claim or the sanity rule of that name. Raises ValueError, with one sentence."""
    found = CLAIMS.get(name) or RULES.get(name)
    if found is None:
        raise ValueError(
            f"no claim or sanity rule is called {name!r}; see hitproof explain --codes"
        )
    return found


def sort_of(name: str) -> str:
    """What a finding that cites ``name`` contradicts, in words."""
    return "sanity rule" if name in RULES else "claim"
